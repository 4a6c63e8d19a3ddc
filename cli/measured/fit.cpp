#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "calibrate/runs/fit_runs.hpp"
#include "calibrate/tables/tables.hpp"
#include "cli/commands.hpp"
#include "cli/measured/sources.hpp"
#include "cli/options/output.hpp"

namespace flopcast {

namespace {

RunChoice run_choice(const std::optional<std::string>& text) {
  if (!text) return RunChoice::kRandom;
  const std::optional<RunChoice> choice = parse<RunChoice>(*text);
  if (!choice) {
    throw ConfigError(
        {"--choose", fmt::format("\"{}\" is no choice", *text), "", choices_help(*text, names_of<RunChoice>())});
  }
  return *choice;
}

std::vector<int> counts_of(const std::string& text) {
  constexpr double kMostCount = 1e6;
  std::vector<int> counts;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    const std::optional<double> count = parse_number(std::string(rest.substr(0, comma)));
    if (!count || *count < 1.0 || *count > kMostCount || *count != static_cast<int>(*count)) {
      throw ConfigError({"--held-out", fmt::format("\"{}\" is no list of counts", text), "", "such as 1,2,4"});
    }
    counts.push_back(static_cast<int>(*count));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return counts;
}

int repetitions_of(const std::optional<int>& repeat) {
  constexpr int kUsual = 20;
  constexpr int kMost = 1000;
  if (repeat && (*repeat < 1 || *repeat > kMost))
    throw ConfigError({"--repeat", fmt::format("{} is out of range", *repeat), "", fmt::format("1 to {}", kMost)});
  return repeat.value_or(kUsual);
}

// Answers name a run by its id.
void refuse_same_ids(const std::vector<OwnRun>& runs) {
  std::set<std::string> ids;
  for (const OwnRun& run : runs) {
    if (ids.insert(run.id).second) continue;
    throw ConfigError(
        {"id", fmt::format("\"{}\" is the id of two runs", run.id), "", "give each run an id of its own"});
  }
}

}  // namespace

int run_fit(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(
      streams, "fit", "flopcast fit RUNS… -o PROFILE [options]",
      "The few constants of device, links and software that steps of your own tell, from the catalogue's on: value and "
      "90 "
      "% interval of each, what the runs do not tell, and which run to make next. RUNS are JSON files of rows {\"id\", "
      "\"job\", \"measured\": {\"iteration_s\"}}; \"job\" may be a path, and \"measured\" may name a training \"log\". "
      "PROFILE is for --profile.",
      {"flopcast fit runs.json -o mine.json", "flopcast simulate job.json --profile mine.json"});
  std::vector<std::string> files;
  std::optional<std::string> profile;
  std::optional<std::string> name;
  std::optional<std::string> format_name;
  std::optional<std::string> held_out;
  std::optional<std::string> choose;
  std::optional<int> repeat;
  command_line.add_positional("RUNS", files, "files of rows {id, job, measured}");
  command_line.add_output("-o,--output", profile, "write the profile there");
  command_line.add_option("--held-out", held_out, "N[,N]",
                          "instead: fit so many of the runs, forecast the others, and tell how far off they are");
  command_line.add_option("--choose", choose, "random|advised", "which of them, with --held-out (default: random)");
  command_line.add_option("--repeat", repeat, "N", "choices that --held-out takes the mean of (default: 20)");
  command_line.add_option("--name", name, "NAME", "the profile's name (default: the device's)");
  command_line.add_option("--format", format_name, "FORMAT", listed_formats());
  if (!command_line.parse(arguments)) return 0;
  const Format format = format_name ? parse_format(*format_name) : Format::kTable;
  if (files.empty()) {
    throw ConfigError(
        {"fit", "needs runs", "", "flopcast fit RUNS… -o PROFILE, a JSON file of rows {id, job, measured}"});
  }
  if (held_out && (profile || name))
    throw ConfigError({"--held-out", "writes no profile", "", "leave -o and --name out"});
  if (!held_out && (choose || repeat)) {
    throw ConfigError({choose ? "--choose" : "--repeat", "goes with --held-out only", "", "give --held-out as well"});
  }
  std::vector<OwnRun> runs;
  for (const std::string& file : files) {
    for (OwnRun& run : read_own_runs(file)) runs.push_back(std::move(run));
  }
  refuse_same_ids(runs);
  constexpr std::size_t kMostTold = 5;
  const std::vector<std::string> contradictions = contradictions_of(runs);
  for (std::size_t index = 0; index < std::min(kMostTold, contradictions.size()); ++index) {
    warn(streams, contradictions[index]);
  }
  if (contradictions.size() > kMostTold) {
    warn(streams, fmt::format("and {} more pairs of runs contradict each other", contradictions.size() - kMostTold));
  }
  if (held_out) {
    const RunChoice choice = run_choice(choose);
    const std::vector<LearningPoint> curve =
        learning_curve(runs, counts_of(*held_out), choice, repetitions_of(repeat), read_file);
    write_output(streams, "", write_table(learning_table(curve, choice), format, table_style(streams)));
    return 0;
  }
  OwnFit fit = fit_own_runs(runs, read_file);
  if (name) fit.profile.name = *name;
  if (profile) {
    write_file(*profile, write_profile(fit.profile));
  } else {
    warn(streams, "no profile is written: give -o FILE");
  }
  if (format == Format::kJson) {
    write_output(streams, "", write_own_fit(fit) + "\n");
    return 0;
  }
  std::vector<Table> tables = own_fit_tables(fit);
  if (shown_by(format) != Shows::kPages) tables.resize(1);
  std::string text;
  for (const Table& table : tables)
    text += (text.empty() ? "" : "\n") + write_table(table, format, table_style(streams));
  write_output(streams, "", text);
  return 0;
}

}  // namespace flopcast
