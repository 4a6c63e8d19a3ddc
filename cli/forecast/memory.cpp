#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "cli/commands.hpp"
#include "cli/options/figure_options.hpp"
#include "cli/options/job_options.hpp"
#include "cli/options/output.hpp"
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

// Fine-tuning without a pipeline holds one microbatch at a time: its memory asks for no batch.
LoadedJob with_one_microbatch(LoadedJob loaded) {
  nlohmann::json& root = *loaded.root;
  const bool tuned = root.contains("training") && root["training"].is_object() && root["training"].contains("finetune");
  if (!tuned) return loaded;
  nlohmann::json& layout = root["layout"];
  if (layout.is_null()) layout = nlohmann::json::object();
  if (!layout.is_object() || layout.contains("global_batch_size") || layout.contains("accumulation")) return loaded;
  // How many a pipeline holds at a time is its schedule's, up to the batch.
  if (layout.value("pp", nlohmann::json(1)) != 1) return loaded;
  layout["accumulation"] = 1;
  loaded.notes.emplace_back("layout.accumulation is 1: give --gbs N for another");
  return loaded;
}

// "qlora fits: 14.7 of 24 GiB" of who fine-tunes; empty for others.
std::string tuning_answer(const Forecast& answer) {
  const std::optional<Finetune>& finetune = answer.step.job.training.finetune;
  if (!finetune) return "";
  const MemoryResult& memory = answer.result.memory;
  return fmt::format("{} {}: {:.1f} of {:.0f} GiB\n", name_of(finetune->method), memory.fits ? "fits" : "does not fit",
                     memory.shown_gib, memory.capacity_gib);
}

// What every rank holds, what the fullest holds it for, and when.
void write_memory_page(const PageOption& page, const Forecast& answer) {
  const Job& job = answer.step.job;
  PageParts parts;
  parts.tables = {memory_table(answer), memory_parts_table(answer)};
  parts.tables.front().title = "Memory of each rank, GiB";
  parts.figures.push_back({"Memory over time", memory_figure(answer, {})});
  page.write(fmt::format("Memory: {} on {}", job.model.name, job.cluster.name), describe_job(job),
             answer_line(answer.result), parts, {{"forecast", &answer}});
}

}  // namespace

int run_memory(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(
      streams, "memory", "flopcast memory [JOB] [FILE…] [options]",
      "Memory of each pipeline rank: weights, gradients, optimizer, activations, workspace.",
      {"flopcast memory job.json", "flopcast memory job.json --check && sbatch train.sh",
       "flopcast memory job.json --explain", "flopcast memory job.json --over-time --format csv -o memory.csv"});
  JobOptions job;
  OutputOptions output;
  bool over_time = false;
  bool check = false;
  bool tensors = false;
  VariationOptions doubt;
  FigureOptions figure;
  PageOption page;
  job.add_to(command_line);
  job.add_more_files(command_line);
  output.add_to(command_line);
  command_line.add_flag("--over-time", over_time, "every change over the step instead of the peak");
  command_line.add_flag("--explain", tensors, "the tensors of the fullest rank at its fullest moment");
  command_line.add_flag("--check", check, "exit with 3 when it does not fit");
  doubt.add_lengths_to(command_line);
  figure.add_to(command_line, "draw every rank's memory over time");
  page.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;

  const Format format = output.format();
  if (over_time && tensors) throw ConfigError({"--explain", "contradicts --over-time", "", "give one of the two"});
  const MemoryView view = over_time ? MemoryView::kOverTime : tensors ? MemoryView::kTensors : MemoryView::kPeak;
  if (job.show_config(output)) return 0;
  figure.check();
  Forecast answer = forecast(JobOptions::read(with_one_microbatch(job.load())), read_file);
  if (const auto lengths = doubt.sequence_lengths(answer.step.job.training.sequence_length)) {
    add_packing(*lengths, answer);
  }
  if (figure.file()) figure.write(memory_figure(answer, figure.style()));
  if (page.wanted()) write_memory_page(page, answer);
  const auto table_of_view = [&] {
    Table table = over_time ? memory_over_time_table(answer)
                  : tensors ? memory_parts_table(answer)
                            : memory_table(answer);
    if (tensors) table.title = describe_job(answer.step.job);
    if (view == MemoryView::kPeak) {
      table.title = tuning_answer(answer) + describe_job(answer.step.job);
      double states_gib = 0.0;
      for (const RankMemoryResult& rank : answer.result.memory.per_pipeline_rank) {
        states_gib = std::max(states_gib, rank.weights_gib + rank.gradients_gib + rank.optimizer_gib);
      }
      table.notes.push_back(fmt::format("weights, gradients and optimizer of the fullest rank: {:.4g} GB (1e9 bytes)",
                                        states_gib * kGibibyte / 1e9));
    }
    std::vector<Table> tables;
    if (answer.result.packing && shown_by(format) == Shows::kPages) tables.push_back(packing_table(answer.result));
    tables.push_back(std::move(table));
    return tables;
  };
  output.write({.tables = table_of_view, .json = [&] { return write_memory(answer, view); }}, format);
  const MemoryResult& memory = answer.result.memory;
  if (check && !memory.fits) {
    std::string text = fmt::format("does not fit: the fullest rank needs {:.1f} GiB of {:.1f} GiB", memory.shown_gib,
                                   memory.capacity_gib);
    for (const std::string& line : what_fits(answer, read_file)) text += "\n  help: " + line;
    throw NegativeAnswer(text);
  }
  warn_of(answer, streams);
  return 0;
}

}  // namespace flopcast
