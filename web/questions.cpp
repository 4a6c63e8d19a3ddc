#include "web/questions.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "import/programs/imported_job.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/config/object_reader.hpp"
#include "model/job/fields.hpp"
#include "model/job/read_job.hpp"
#include "model/job/user_spelling.hpp"
#include "model/units/quantity.hpp"
#include "planner/plan/plan.hpp"
#include "planner/tables/tables.hpp"
#include "reports/html/page.hpp"
#include "reports/result/result_tables.hpp"
#include "reports/timeline/writers.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/run/run.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;
// Same unit as in the program, for equal figures: decimals of a unit are exact, and so are shares of up to ten chunks
// or slices.
constexpr Ticks kTicksPerUnit = 63'000'000;

// A time in units, rounded to six decimals as in the program's output.
double rounded(double units) {
  constexpr double kDecimals = 1e6;
  return std::round(units * kDecimals) / kDecimals;
}

// Larger views would freeze the page, which waits for answers, for seconds.
void refuse_too_many(std::int64_t actions) {
  constexpr std::int64_t kMostActions = 100'000;
  if (actions <= kMostActions) return;
  throw ConfigError({"microbatches",
                     fmt::format("{} actions are more than the {} that the page can draw", actions, kMostActions), "",
                     "use fewer microbatches, ranks or chunks; or the program, whose reports draw millions"});
}

// At least one forward and one backward pass per microbatch and stage; schedules may split them further.
std::int64_t least_actions(std::int64_t pipeline_ranks, int chunks, int microbatches) {
  return 2 * pipeline_ranks * chunks * microbatches;
}

std::string refuse_file(const std::string& path) {
  throw ConfigError({"", fmt::format("the page cannot read files such as \"{}\"", path), "",
                     "use the program, or a name from the catalogue"});
}

std::string text_of(const nlohmann::json& question, const char* key) {
  const auto value = question.find(key);
  if (value == question.end()) return "";
  if (!value->is_string()) throw ConfigError({key, fmt::format("{} is not a text", value->dump()), "", "give a text"});
  return value->get<std::string>();
}

// Values given by the job, which the config.json need not contain.
ImportContext context_of(const nlohmann::json& job) {
  ImportContext context;
  const auto training = job.find("training");
  if (training != job.end() && training->is_object() && training->contains("sequence_length"))
    context.given.emplace("training.sequence_length", "");
  return context;
}

// The job file of a question; a pasted config.json gives its model.
nlohmann::json root_of(const nlohmann::json& question, ImportedJob& imported) {
  nlohmann::json root = question.at("job");
  if (question.contains("config")) {
    if (!root.is_object()) throw ConfigError({"job", "is not a JSON object", "", "see web/questions.hpp"});
    const std::string text = text_of(question, "config");
    const ForeignFile file(text, "config.json");
    if (!format_of(file).is_model) {
      throw ConfigError({"model", "the text is not a config.json of a Hugging Face model", file.name(),
                         "paste the whole file, with its \"architectures\" or \"model_type\""});
    }
    imported = import_job(file, context_of(root));
    root["model"] = imported.job.at("model");
  }
  return root;
}

Job job_of(const nlohmann::json& question) {
  ImportedJob imported;
  const nlohmann::json root = root_of(question, imported);
  Origins origins;
  origins.places = imported.places;
  Job job = read_job(root, origins);
  job.assumptions.insert(job.assumptions.begin(), imported.notes.begin(), imported.notes.end());
  job.warnings.insert(job.warnings.begin(), imported.warnings.begin(), imported.warnings.end());
  return job;
}

Ticks ticks_of(ObjectReader& reader, const char* key, double otherwise) {
  constexpr double kLargest = 1e5;
  const double time = reader.quantity(key, Dimension::kCount).value_or(otherwise);
  if (!(time >= 0.0 && time <= kLargest)) reader.fail(key, fmt::format("{} is out of range", time), "give 0 to 1e5");
  return static_cast<Ticks>(std::llround(time * static_cast<double>(kTicksPerUnit)));
}

// Times that a rank takes for its share of a microbatch.
struct RankTimes {
  Ticks forward = 0;
  Ticks backward = 0;
  Ticks weight = 0;
  Ticks transfer = 0;
};

// Spreads a rank's times over its chunks and slices of a microbatch, as `flopcast schedule compare` does.
StepTimes spread(const RankTimes& rank, const Program& program) {
  const auto spread_over_stages = [&program](const char* key, Ticks time) {
    return spread_times(key, {time}, program, true);
  };
  const std::vector<Ticks> forward = spread_over_stages("forward", rank.forward);
  const std::vector<Ticks> backward = spread_over_stages("backward", rank.backward);
  const std::vector<Ticks> weight = spread_over_stages("weight", rank.weight);
  StepTimes times;
  for (std::size_t stage = 0; stage < forward.size(); ++stage) {
    times.stages.push_back({forward[stage], backward[stage], backward[stage] - weight[stage], weight[stage], {}});
  }
  times.boundaries.assign(forward.size() - 1, {rank.transfer, rank.transfer});
  return times;
}

// Activations in microbatches, as a curve: a stage's share of one counts as the same number of GiB.
Json activations(const Timeline& timeline, const Program& program) {
  const double parts = static_cast<double>(program.stages_per_chain()) / program.rank_count() *
                       static_cast<double>(program.slices_per_microbatch);
  const std::vector<double> held(static_cast<std::size_t>(program.stage_count()), kGibibyte / parts);
  std::vector<RankMemory> memory;
  for (int rank = 0; rank < timeline.rank_count(); ++rank)
    memory.push_back(memory_over_time(timeline, rank, 0.0, held));
  return pack_memory(timeline, memory, std::vector<double>(memory.size(), 0.0));
}

// Schedule of a question.
struct AskedSchedule {
  std::string text;
  ScheduleName name;
  ScheduleRequest request;
  RankTimes rank;

  StepTimes times(const Program& program) const { return spread(rank, program); }
};

AskedSchedule read_schedule(const nlohmann::json& question) {
  const Origins origins;
  ObjectReader reader(question.at("schedule"), "schedule", origins);
  constexpr int kMostRanks = 512;
  constexpr int kMostMicrobatches = 100'000;
  AskedSchedule asked;
  asked.text = reader.text("name").value_or("1f1b");
  asked.name = parse_schedule_name(asked.text);
  ScheduleRequest& request = asked.request;
  request.pipeline_ranks = reader.whole("pp", 1, kMostRanks).value_or(4);
  request.microbatches = reader.whole("microbatches", 1, kMostMicrobatches).value_or(4);
  const ScheduleInfo& info = *asked.name.info;
  const int chunks = reader.whole("vpp", 1, kMostRanks).value_or(info.default_chunks);
  request.chunks = asked.name.chunks.value_or(info.uses_chunks ? chunks : 1);
  request.variant = asked.name.variant;
  RankTimes& rank = asked.rank;
  rank.forward = ticks_of(reader, "forward", 1.0);
  rank.backward = ticks_of(reader, "backward", 2.0);
  rank.weight = std::min(ticks_of(reader, "weight", 1.0), rank.backward);
  rank.transfer = ticks_of(reader, "p2p", 0.0);
  reader.refuse_unknown_keys();
  refuse_too_many(least_actions(request.pipeline_ranks, request.chunks, request.microbatches));
  return asked;
}

Program program_of(const AskedSchedule& asked) {
  Program program =
      generate_schedule(*asked.name.info, asked.request, [&asked](const Program& of) { return asked.times(of); });
  refuse_too_many(static_cast<std::int64_t>(program.action_count()));
  return program;
}

Timeline timeline_of(const AskedSchedule& asked, const Program& program) {
  Timeline timeline = simulate(program, asked.times(program));
  timeline.units_per_tick = 1.0 / static_cast<double>(kTicksPerUnit);
  timeline.title =
      fmt::format("{}: {} ranks, {} microbatches", asked.text, program.rank_count(), program.microbatch_count());
  return timeline;
}

Json schedule_view(const nlohmann::json& question) {
  const AskedSchedule asked = read_schedule(question);
  const ScheduleInfo& info = *asked.name.info;
  const Program program = program_of(asked);
  const Timeline timeline = timeline_of(asked, program);
  const ScheduleFigures figures =
      figures_of(info, asked.request, [&asked](const Program& of) { return asked.times(of); });
  Json view = page_view(asked.text, timeline);
  for (const char* key : {"makespan", "span"}) view["metrics"][key] = rounded(view["metrics"][key].get<double>());
  view["memory"] = activations(timeline, program);
  view["figures"] = {{"activations", figures.largest_peak()},
                     {"weight_copies", *std::max_element(figures.weight_copies.begin(), figures.weight_copies.end())},
                     {"staleness", *std::max_element(figures.staleness.begin(), figures.staleness.end())},
                     {"messages", figures.messages}};
  if (figures.steady_idle) view["figures"]["steady_bubble"] = *figures.steady_idle;
  view["summary"] = info.summary;
  view["source"] = info.source;
  return view;
}

// Numbers of chunks per rank that a schedule accepts, among those that the slider offers.
Json accepted_chunks(const ScheduleInfo& info) {
  constexpr int kMostOffered = 12;
  Json accepted = Json::array();
  ScheduleRequest request;
  request.pipeline_ranks = 4;
  request.microbatches = 8;
  for (request.chunks = 1; request.chunks <= kMostOffered; ++request.chunks) {
    if (!refuse_request(info, request)) accepted.push_back(request.chunks);
  }
  return accepted;
}

Json names() {
  Json clusters = Json::array();
  for (const std::string& name : catalogue_names(CatalogueKind::kClusters)) {
    const nlohmann::json values = catalogue_values(CatalogueKind::kClusters, name);
    clusters.push_back({{"name", name},
                        {"description", values.value("description", "")},
                        {"devices_per_node", values.value("devices_per_node", 1)},
                        {"device", values.value("device", "")}});
  }
  Json words = Json::array();
  for (const Explanation& explanation : read_explanations()) {
    words.push_back({{"name", explanation.name}, {"what", explanation.what}, {"formulas", explanation.formulas}});
  }
  Json models = Json::array();
  for (const std::string& name : catalogue_names(CatalogueKind::kModels)) models.push_back(name);
  Json stacks = Json::array();
  for (const std::string& name : catalogue_names(CatalogueKind::kStacks)) stacks.push_back(name);
  Json schedules = Json::array();
  for (const ScheduleInfo& info : schedule_catalogue()) {
    schedules.push_back({{"name", info.name}, {"summary", info.summary}, {"chunks", accepted_chunks(info)}});
  }
  return {{"models", models},
          {"clusters", clusters},
          {"stacks", stacks},
          {"schedules", schedules},
          {"recompute", field_named(layout_fields(), "recompute").choices()},
          {"precisions", field_named(training_fields(), "precision").choices()},
          {"most_zero", static_cast<int>(field_named(layout_fields(), "zero").largest)},
          {"terms", page_terms()},
          {"words", words}};
}

constexpr const char* kTool = "flopcast " FLOPCAST_VERSION;

// Adds the flags of the command for the same job: every key in the job, by its shortest flag.
void add_flags(const nlohmann::json& value, const std::string& path, std::string& command) {
  if (value.is_object()) {
    for (const auto& item : value.items())
      add_flags(item.value(), path.empty() ? item.key() : path + "." + item.key(), command);
    return;
  }
  const auto key =
      std::find_if(job_keys().begin(), job_keys().end(), [&path](const JobKey& known) { return known.field == path; });
  std::string flag = "--" + path;
  if (key != job_keys().end() && !key->aliases.empty()) flag = key->aliases.front();
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  command += value.is_boolean() ? " " + flag + "=" + text : " " + flag + " " + shell_word(text);
}

std::string command_of(const nlohmann::json& root) {
  std::string command = "flopcast simulate";
  nlohmann::json rest = root;
  for (const std::string section : {"model", "cluster"}) {
    if (!rest.contains(section)) continue;
    nlohmann::json value = rest.at(section);
    rest.erase(section);
    // An object with a name becomes one flag.
    if (value.is_object() && value.contains("name")) {
      command += " --" + section + " " + shell_word(value.at("name").get<std::string>());
      value.erase("name");
    }
    add_flags(value, section, command);
  }
  add_flags(rest, "", command);
  return command;
}

// A timeline and related data in the formats that the program writes.
std::string exported(const nlohmann::json& question) {
  const std::string as = text_of(question, "as");
  const std::string command = text_of(question, "command");
  const Json answer = [&]() -> Json {
    if (question.contains("schedule")) {
      const AskedSchedule asked = read_schedule(question);
      const Timeline timeline = timeline_of(asked, program_of(asked));
      if (as == "svg") return write_svg(timeline, SvgOptions());
      if (as == "html") return timelines_page({"Pipeline schedules", kTool, ""}, {timeline});
      if (as == "trace") return write_chrome_trace(timeline, {});
      return nullptr;
    }
    if (!question.contains("job")) return nullptr;
    ImportedJob imported;
    const nlohmann::json root = root_of(question, imported);
    if (as == "job") return root.dump(2) + "\n";
    if (as == "command") return command_of(root);
    Forecast forecast = flopcast::forecast(job_of(question), refuse_file);
    if (as == "svg") return write_svg(forecast.timeline, SvgOptions());
    if (as == "html") {
      add_run(forecast, WithOptions::kYes);
      const Job& job = forecast.step.job;
      PageInfo info = {job.model.name + " on " + job.cluster.name, kTool, describe_job(job)};
      info.command = command;
      PageParts parts;
      parts.advice = advice_on(forecast, refuse_file);
      return forecast_page(std::move(info), forecast, std::move(parts));
    }
    if (as == "trace") {
      TraceOptions options = trace_options_of(forecast);
      options.other_data = {{"tool", kTool}, {"command", command}, {"job", describe_job(forecast.step.job)}};
      return write_chrome_trace(forecast.timeline, options);
    }
    return nullptr;
  }();
  if (answer.is_null()) {
    throw ConfigError(
        {"as", fmt::format("unknown format \"{}\"", as), "", "valid: svg, html, trace; for a job also job, command"});
  }
  return Json({{"text", answer}}).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string error_json(const Diagnostic& diagnostic) {
  const Json json = {{"error",
                      {{"field", diagnostic.field},
                       {"problem", diagnostic.problem},
                       {"where", diagnostic.where},
                       {"help", diagnostic.help}}}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Like `flopcast plan` with its defaults.
std::string planned(const nlohmann::json& question) {
  constexpr int kRanked = 10;
  ImportedJob imported;
  const nlohmann::json root = root_of(question, imported);
  if (!root.is_object()) throw ConfigError({"job", "is not a JSON object", "", "see web/questions.hpp"});
  PlanQuestion asked = read_question(root, Origins());
  const auto layout = root.find("layout");
  PlanAnswer answer;
  const std::vector<std::string> left_out = keep_runnable(
      asked.job, layout != root.end() && layout->is_object() && layout->contains("schedule"), asked.space);
  if (!left_out.empty()) {
    answer.notes.push_back(fmt::format("not searched, because {} does not support it: {}",
                                       asked.job.training.stack.name, fmt::join(left_out, ", ")));
  }
  answer.options.nodes = {asked.job.cluster.nodes};
  answer.options.interruptions = asked.job.failures ? interruptions_of(asked.job) : Interruptions();
  answer.options.search.ranked = kRanked;
  if (const auto endless = endless_run(asked.job, answer.options)) return error_json(*endless);
  const auto search = [&asked](const PlanOptions& options) {
    return plan(asked.job, asked.space, options, serial_for);
  };
  answer.search = *search_with_room(answer.options, std::nullopt, search, answer.notes);
  if (answer.search.ranked.empty()) {
    const Refusal refusal = nearest_feasible(asked.job, asked.space, answer.options, answer.search, serial_for);
    throw NegativeAnswer(fmt::format("no layout {}; {}", refusal.missed, fmt::join(refusal.changes, "; ")));
  }
  const auto entries_of = [&root](const std::vector<PlannedLayout>& layouts) {
    std::vector<PlanEntry> entries;
    for (const PlannedLayout& one : layouts) {
      entries.push_back({one, forecast_figures(read_job(job_file_of(root, one), Origins()), refuse_file)});
    }
    return entries;
  };
  answer.ranked = entries_of(answer.search.ranked);
  answer.pareto = entries_of(answer.search.pareto);
  return write_plan(answer, root);
}

std::string answer_valid(const nlohmann::json& question) {
  const std::string ask = text_of(question, "ask");
  if (ask == "names") return names().dump();
  if (ask == "view" && question.contains("schedule")) return schedule_view(question).dump();
  if ((ask == "view" || ask == "simulate") && question.contains("job")) {
    const Job job = job_of(question);
    const Layout& layout = job.layout;
    if (ask == "view") refuse_too_many(least_actions(layout.pp, layout.vpp.value_or(1), layout.microbatches()));
    Forecast forecast = flopcast::forecast(job, refuse_file);
    if (ask == "simulate") {
      add_run(forecast, WithOptions::kYes);
      return write_simulation(forecast);
    }
    Json view = page_view("forecast", forecast);
    view["advice"] = advice_on(forecast, refuse_file);
    return view.dump();
  }
  if (ask == "plan" && question.contains("job")) return planned(question);
  if (ask == "export") return exported(question);
  throw ConfigError(
      {"ask", fmt::format("unknown question \"{}\"", ask), "", "valid: simulate, view, plan, export, names"});
}

}  // namespace

std::string answer(std::string_view question) {
  try {
    const nlohmann::json json = parse_json(question, "question");
    if (!json.is_object()) throw ConfigError({"", "the question is not a JSON object", "", "see web/questions.hpp"});
    return answer_valid(json);
  } catch (const ConfigError& error) {
    return error_json(error.diagnostic());
  } catch (const NegativeAnswer& negative) {
    return error_json({"", negative.what(), "", ""});
  } catch (const InternalError& error) {
    return error_json(
        {"", fmt::format("a bug in flopcast: {}", error.what()), "", "please report it with the page's address"});
  } catch (const nlohmann::json::exception& error) {
    return error_json({"", fmt::format("the question is malformed: {}", error.what()), "", "see web/questions.hpp"});
  } catch (const std::bad_alloc&) {
    return error_json({"", "the browser ran out of memory", "", "use fewer microbatches or ranks"});
  }
}

}  // namespace flopcast
