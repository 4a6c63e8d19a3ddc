#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "cli/commands.hpp"
#include "cli/options/job_options.hpp"
#include "cli/options/output.hpp"
#include "planner/tables/tables.hpp"
#include "reports/result/result_tables.hpp"
#include "reports/svg/charts.hpp"
#include "reports/timeline/writers.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/run/run.hpp"
#include "sim/variation/step_distribution.hpp"

namespace flopcast {

namespace {

ShownMfu shown_mfu(const std::optional<std::string>& text) {
  if (!text) return ShownMfu::kBoth;
  const std::optional<ShownMfu> mfu = parse<ShownMfu>(*text);
  if (!mfu || *mfu == ShownMfu::kBoth) {
    throw ConfigError({"--mfu", fmt::format("\"{}\" is not a way to count attention", *text), "",
                       "expected full (all products) or causal (half of them, which a causal kernel visits)"});
  }
  return *mfu;
}

std::vector<Table> tables_of(const Forecast& answer, bool verbose, ShownMfu mfu) {
  std::vector<Table> tables = result_tables(answer, verbose, mfu);
  if (verbose) tables.insert(tables.end() - 1, critical_path_table(answer.timeline, critical_path(answer.timeline)));
  return tables;
}

// What is drawn of a job's failures, by the ending of the file.
void write_life(const std::string& file, const std::optional<RunLife>& life, const Forecast& answer) {
  if (!life) {
    throw ConfigError(
        {"--life", answer.step.job.failures ? "there is no run to draw: it never finishes" : "there is no run to draw",
         "", "give --failures NAME, such as llama3"});
  }
  const std::string title = answer.step.job.model.name + " on " + answer.step.job.cluster.name;
  const bool page = file.ends_with(".html");
  if (!page && !file.ends_with(".svg")) {
    throw ConfigError({"--life", fmt::format("\"{}\" ends in neither .svg nor .html", file), "", "such as run.svg"});
  }
  write_file(file, page ? write_life_page(*life, title, answer_line(answer.result)) : write_life_svg(*life, title));
}

// --hot-links and --path-samples.
void show_network(std::optional<int> hot_links, std::optional<int> path_samples, Forecast& answer) {
  const auto need = [](bool holds, const char* flag, const std::string& problem, const char* help) {
    if (!holds) throw ConfigError({flag, problem, "", help});
  };
  std::optional<NetworkResult>& network = answer.result.network;
  const char* const of_network = "is of a cluster with a network";
  const char* const give = "give --network NAME, --oversubscription RATIO or cluster.network in the job";
  if (hot_links) {
    need(*hot_links >= 1, "--hot-links", fmt::format("{} is no number of links", *hot_links), "1 or more");
    need(network.has_value(), "--hot-links", of_network, give);
    if (!network) return;
    const auto count = std::min(answer.links.size(), static_cast<std::size_t>(*hot_links));
    network->hot_links.assign(answer.links.begin(), answer.links.begin() + static_cast<std::ptrdiff_t>(count));
  }
  if (path_samples) {
    constexpr int kMostSamples = 100'000;
    need(*path_samples >= 1 && *path_samples <= kMostSamples, "--path-samples",
         fmt::format("{} is not from 1 to {}", *path_samples, kMostSamples), "such as 100");
    need(network.has_value(), "--path-samples", of_network, give);
    if (!network) return;
    const std::optional<Network>& described = answer.step.job.cluster.network;
    need(described && described->routing == Routing::kHash, "--path-samples", "draws paths that are hashed",
         "give --routing hash:SEED");
    network->paths = sample_paths(answer.step, *path_samples);
  }
}

}  // namespace

int run_simulate(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(streams, "simulate", "flopcast simulate [JOB] [FILE…] [options]",
                           "Forecasts one training step: time, MFU, bubble, communication, memory.",
                           {"flopcast simulate job.json --svg timeline.svg --trace timeline.trace.json",
                            "flopcast simulate --model gpt3-175b --cluster 8xdgx-a100-80g --tp 8 --pp 8 --gbs 64",
                            "flopcast simulate job.json --recompute full --format json",
                            "flopcast simulate job.json --jitter 3% --straggler 0.1%:1.5",
                            "flopcast simulate job.json --failures llama3 --tokens 15T --spares 16 --life run.svg"});
  JobOptions job;
  OutputOptions output;
  TimelineFiles files;
  VariationOptions doubt;
  std::optional<std::string> roofline;
  std::optional<std::string> life_file;
  bool verbose = false;
  std::optional<std::string> mfu;
  std::optional<int> hot_links;
  std::optional<int> path_samples;
  job.add_to(command_line);
  job.add_more_files(command_line);
  output.add_to(command_line);
  files.add_to(command_line);
  command_line.add_output("--roofline", roofline, "draw a block's operators below the device's roof, as SVG");
  command_line.add_output("--life", life_file, "draw the months of the median run: FILE.svg or FILE.html (--failures)");
  command_line.add_flag("--verbose,-v", verbose, "memory of every rank, all assumptions, the critical path");
  doubt.add_to(command_line);
  command_line.add_option(
      "--mfu", mfu, "full|causal",
      "count attention's products in full or, where causal, by half (default: both where they differ "
      "by a point)");
  command_line.begin_group("Links between nodes");
  command_line.add_option("--hot-links", hot_links, "N", "links shown, fullest first (default 10)");
  command_line.add_option("--path-samples", path_samples, "N", "step times over so many draws of hashed paths");
  if (!command_line.parse(arguments)) return 0;

  const Format format = output.format();
  const ShownMfu shown = shown_mfu(mfu);
  if (job.show_config(output)) return 0;
  files.check(roofline.has_value());
  if (roofline) FigureOptions::check_file("--roofline", *roofline);
  const std::optional<Variation> variation = doubt.variation();
  Forecast answer = forecast(job.read(), read_file);
  const std::optional<std::vector<int>> lengths = doubt.sequence_lengths(answer.step.job.training.sequence_length);
  show_network(hot_links, path_samples, answer);
  if (answer.result.network && (variation || lengths)) {
    throw ConfigError({variation ? "--jitter" : "--sequence-lengths",
                       "is of a step whose groups have their links alone", "", "give --network none beside it"});
  }
  if (variation) add_distribution(*variation, answer);
  if (lengths) add_packing(*lengths, answer);
  const std::optional<RunLife> life = add_run(answer, WithOptions::kYes);
  if (life_file) write_life(*life_file, life, answer);
  PageParts parts;
  if (files.has_page()) parts = run_parts(answer, life);
  if (files.has_page()) parts.advice = advice_on(answer, read_file);
  files.write(answer, command_line.typed(), parts);
  if (roofline) {
    SeriesSvgOptions drawn;
    static_cast<FigureStyle&>(drawn) = files.figure().style();
    files.figure().write_to(*roofline, write_series_svg({roofline_chart(answer.step.job)}, drawn));
  }
  output.write({.tables = [&] { return tables_of(answer, verbose, shown); },
                .rows = [&] { return result_row(answer); },
                .json = [&] { return write_simulation(answer); }},
               format);
  warn_of(answer, streams);
  return 0;
}

}  // namespace flopcast
