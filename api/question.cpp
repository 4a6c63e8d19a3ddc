#include "api/question.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "planner/tables/tables.hpp"
#include "reports/result/result_tables.hpp"
#include "reports/timeline/writers.hpp"

namespace flopcast {

void Context::tell(const std::string& line) const {
  std::fputs((line + "\n").c_str(), streams.err);
}

const std::vector<QuestionInfo>& questions() {
  static const std::vector<QuestionInfo> all = [] {
    std::vector<QuestionInfo> list = {plan_question(),          simulate_question(),     memory_question(),
                                      compare_question(),       sweep_question(),        timeline_question(),
                                      network_flows_question(), network_show_question(), partition_question(),
                                      catalog_question(),       convert_question(),      explain_question(),
                                      calibrate_question(),     fit_question(),          validate_question(),
                                      run_question(),           report_question()};
    for (QuestionInfo& one : schedule_questions()) list.push_back(std::move(one));
    return list;
  }();
  return all;
}

const QuestionInfo& question_named(std::string_view name) {
  const auto found = std::find_if(questions().begin(), questions().end(),
                                  [name](const QuestionInfo& question) { return question.name == name; });
  FLOPCAST_CHECK(found != questions().end());
  return *found;
}

std::string printed(const Answer& answer, const Context& context) {
  if (answer.text) return answer.text();
  const Shows shown = shown_by(context.format);
  if (shown == Shows::kValues && answer.json) return answer.json();
  std::vector<Table> tables;
  if (shown == Shows::kRows && answer.rows) {
    tables.push_back(answer.rows());
  } else if (answer.tables) {
    tables = answer.tables();
  }
  std::string text;
  for (const Table& table : tables) {
    text += (text.empty() ? "" : "\n") + write_table(table, context.format, context.style);
  }
  return text;
}

void print_warnings(const Forecast& forecast, const Context& context) {
  for (const std::string& warning : forecast.result.warnings) context.warn(warning);
  if (forecast.step.job.cluster.shares_links()) return;  // each change would need a simulation of the network
  for (const std::string& line : what_fits(forecast, read_file)) context.tell("  help: " + line);
}

void EmitOption::add_to(Form& form) {
  form.add_option("--emit", program_, "PROGRAM",
                  "print a launch script or config for megatron, torchrun, deepspeed or accelerate");
}

std::optional<LaunchProgram> EmitOption::program() const {
  if (!program_) return std::nullopt;
  return static_cast<LaunchProgram>(choice_of("--emit", *program_, names_of<LaunchProgram>()));
}

Answer EmitOption::answer(const LaunchFile& file, const Context& context) {
  for (const std::string& note : file.notes) context.tell("note: " + note);
  return {.text = [text = file.text] { return text; }};
}

void require_life(const std::optional<RunLife>& life, const Forecast& forecast) {
  if (life) return;
  throw ConfigError({"--life",
                     forecast.step.job.failures ? "has no run to draw: it never finishes" : "has no run to draw", "",
                     "add --failures NAME, such as llama3"});
}

namespace {

SvgOptions svg_options(const FigureStyle& style) {
  SvgOptions options;
  static_cast<FigureStyle&>(options) = style;
  return options;
}

}  // namespace

void add_timeline_files(const Forecast& forecast, std::function<PageParts()> parts, Answer& answer) {
  answer.figure = [&forecast](const FigureStyle& style) { return write_svg(forecast.timeline, svg_options(style)); };
  answer.page = [&forecast, parts = std::move(parts)](PageInfo info) {
    const Job& job = forecast.step.job;
    info.title = job.model.name + " on " + job.cluster.name;
    info.question = describe_job(job);
    return forecast_page(std::move(info), forecast, parts());
  };
  answer.trace = [&forecast](TraceData data) {
    TraceOptions options = trace_options_of(forecast);
    data.emplace_back("job", describe_job(forecast.step.job));
    options.other_data = std::move(data);
    return write_chrome_trace(forecast.timeline, options);
  };
}

void add_timeline_files(const std::vector<Timeline>& timelines, Answer& answer) {
  answer.figure = [&timelines](const FigureStyle& style) { return write_svg(timelines, svg_options(style)); };
  answer.page = [&timelines](PageInfo info) {
    info.title = "Pipeline schedules";
    info.command.clear();
    return timelines_page(info, timelines);
  };
  answer.trace = [&timelines](const TraceData&) {
    if (timelines.size() > 1) {
      throw ConfigError(
          {"--trace", fmt::format("a trace holds one timeline, not {}", timelines.size()), "", "give one schedule"});
    }
    return write_chrome_trace(timelines.front(), {});
  };
}

}  // namespace flopcast
