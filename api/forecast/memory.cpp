#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "api/options/job_options.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "planner/tables/tables.hpp"
#include "reports/result/result_tables.hpp"
#include "reports/svg/charts.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/variation/step_distribution.hpp"

namespace flopcast {

namespace {

std::string memory_figure(const Forecast& answer, const FigureStyle& style) {
  SeriesSvgOptions options;
  static_cast<FigureStyle&>(options) = style;
  return write_series_svg(memory_charts(answer), options);
}

// Fine-tuning without a pipeline holds one microbatch at a time, so its memory does not depend on the batch.
LoadedJob with_one_microbatch(LoadedJob loaded) {
  nlohmann::json& root = *loaded.root;
  const bool tuned = root.contains("training") && root["training"].is_object() && root["training"].contains("finetune");
  if (!tuned) return loaded;
  nlohmann::json& layout = root["layout"];
  if (layout.is_null()) layout = nlohmann::json::object();
  if (!layout.is_object() || layout.contains("global_batch_size") || layout.contains("accumulation")) return loaded;
  // With a pipeline, the schedule and the batch determine how many microbatches are held.
  if (layout.value("pp", nlohmann::json(1)) != 1) return loaded;
  layout["accumulation"] = 1;
  loaded.notes.emplace_back("layout.accumulation is 1; to change it, give --gbs N");
  return loaded;
}

// "qlora fits: 14.7 of 24 GiB" for fine-tuning; empty otherwise.
std::string tuning_answer(const Forecast& answer) {
  const std::optional<Finetune>& finetune = answer.step.job.training.finetune;
  if (!finetune) return "";
  const MemoryResult& memory = answer.result.memory;
  return fmt::format("{} {}: {:.1f} of {:.0f} GiB\n", name_of(finetune->method), memory.fits ? "fits" : "does not fit",
                     memory.shown_gib, memory.capacity_gib);
}

class Memory final : public Question {
 public:
  void declare(Form& form) override {
    job_.add_to(form);
    job_.add_more_files(form);
    form.place_output();
    form.add_flag("--over-time", over_time_, "show every change during the step instead of the peak");
    form.add_flag("--explain", tensors_, "list the tensors of the fullest rank at its peak");
    form.add_flag("--check", check_, "exit with status 3 if the job does not fit");
    variation_.add_lengths_to(form);
    form.place_figure("draw every rank's memory over time");
    form.place_page();
  }

  Answer ask(const Context& context) override {
    if (over_time_ && tensors_) {
      throw ConfigError({"--explain", "conflicts with --over-time", "", "give only one of them"});
    }
    if (std::optional<Answer> config = job_.config_answer(context)) return std::move(*config);
    forecast_ = forecast(JobOptions::read(with_one_microbatch(job_.load())), read_file);
    if (const auto lengths = variation_.sequence_lengths(forecast_.step.job.training.sequence_length)) {
      add_packing(*lengths, forecast_);
    }
    return {.tables = [this, format = context.format] { return tables(format); },
            .json = [this] { return write_memory(forecast_, view()); },
            .figure = [this](const FigureStyle& style) { return memory_figure(forecast_, style); },
            .page = [this](PageInfo info) { return page(std::move(info)); },
            .finish = [this, &context] { finish(context); }};
  }

 private:
  MemoryView view() const {
    return over_time_ ? MemoryView::kOverTime : tensors_ ? MemoryView::kTensors : MemoryView::kPeak;
  }

  Table table() const {
    if (over_time_) return memory_over_time_table(forecast_);
    Table table = tensors_ ? memory_parts_table(forecast_) : memory_table(forecast_);
    table.title = describe_job(forecast_.step.job);
    if (tensors_) return table;
    table.title = tuning_answer(forecast_) + table.title;
    double states_gib = 0.0;
    for (const RankMemoryResult& rank : forecast_.result.memory.per_pipeline_rank) {
      states_gib = std::max(states_gib, rank.weights_gib + rank.gradients_gib + rank.optimizer_gib);
    }
    table.notes.push_back(fmt::format("weights, gradients and optimizer of the fullest rank: {:.4g} GB (1e9 bytes)",
                                      states_gib * kGibibyte / 1e9));
    return table;
  }

  std::vector<Table> tables(Format format) const {
    std::vector<Table> tables;
    if (forecast_.result.packing && shown_by(format) == Shows::kPages)
      tables.push_back(packing_table(forecast_.result));
    tables.push_back(table());
    return tables;
  }

  // Memory of every rank, tensors of the fullest rank, and memory over time.
  std::string page(PageInfo info) const {
    const Job& job = forecast_.step.job;
    info.title = fmt::format("Memory: {} on {}", job.model.name, job.cluster.name);
    info.question = describe_job(job);
    info.answer = answer_line(forecast_.result);
    PageParts parts;
    parts.tables = {memory_table(forecast_), memory_parts_table(forecast_)};
    parts.tables.front().title = "Memory of each rank, GiB";
    parts.figures.push_back({"Memory over time", memory_figure(forecast_, {})});
    return forecasts_page(info, {{"forecast", &forecast_}}, parts);
  }

  void finish(const Context& context) const {
    const MemoryResult& memory = forecast_.result.memory;
    if (!check_ || memory.fits) return print_warnings(forecast_, context);
    std::string text = fmt::format("does not fit: the fullest rank needs {:.1f} GiB but its device has {:.1f} GiB",
                                   memory.shown_gib, memory.capacity_gib);
    for (const std::string& line : what_fits(forecast_, read_file)) text += "\n  help: " + line;
    throw NegativeAnswer(text);
  }

  JobOptions job_;
  VariationOptions variation_;
  bool over_time_ = false;
  bool check_ = false;
  bool tensors_ = false;

  Forecast forecast_;
};

}  // namespace

QuestionInfo memory_question() {
  return {"memory",
          "memory of each pipeline rank, peak and over time",
          "flopcast memory [JOB] [FILE…] [options]",
          "Forecasts the memory of each pipeline rank: weights, gradients, optimizer, activations, workspace.",
          {"flopcast memory job.json", "flopcast memory job.json --check && sbatch train.sh",
           "flopcast memory job.json --explain", "flopcast memory job.json --over-time --format csv -o memory.csv"},
          make_question<Memory>};
}

}  // namespace flopcast
