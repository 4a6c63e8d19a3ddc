// Accuracy of forecasting real runs on this machine from a calibration taken in the same minute: two ranks that
// compute, and more sleeping ranks than processors. Prints one line per run; needs an otherwise idle machine.

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/run_command.hpp"

namespace {

struct Run {
  std::string name;
  double target_percent = 0.0;
  std::vector<std::string> words;
};

const std::vector<std::string>& common() {
  static const std::vector<std::string> words = {"run",   "--model.layers",
                                                 "8",     "--model.hidden",
                                                 "128",   "--model.heads",
                                                 "4",     "--model.vocab",
                                                 "256",   "--model.sequence_length",
                                                 "64",    "--model.tied_embeddings",
                                                 "false", "--precision",
                                                 "fp32",  "--format",
                                                 "json"};
  return words;
}

std::vector<Run> runs() {
  constexpr double kComputing = 5.0;
  constexpr double kFourRanks = 3.0;
  constexpr double kEightRanks = 5.0;
  std::vector<Run> all;
  for (const char* schedule : {"gpipe", "1f1b", "interleaved:2", "zb-h1", "pipedream-2bw"}) {
    all.push_back({fmt::format("2 ranks, GEMMs, {}", schedule),
                   kComputing,
                   {"--cluster", "2xone-gpu", "--pp", "2", "--gbs", "8", "--schedule", schedule}});
  }
  for (const auto& [ranks, target] : {std::pair(4, kFourRanks), std::pair(8, kEightRanks)}) {
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "pipedream-2bw"}) {
      all.push_back({fmt::format("{} ranks, sleeping, {}", ranks, schedule),
                     target,
                     {"--cluster", fmt::format("{}xone-gpu", ranks), "--pp", fmt::format("{}", ranks), "--gbs", "16",
                      "--schedule", schedule, "--compute", "sleep", "--forward", "5ms", "--backward", "10ms"}});
    }
  }
  return all;
}

flopcast::CommandResult start(const Run& run) {
  std::vector<std::string> words = common();
  words.insert(words.end(), run.words.begin(), run.words.end());
  flopcast::CommandOptions options;
  options.timeout = std::chrono::minutes(5);
  return flopcast::start_flopcast(words, options);
}

bool calibrations_agree(const flopcast::CommandResult& result) {
  return nlohmann::json::parse(result.standard_output).at("calibration").at("agrees").get<bool>();
}

// Returns true if the run met its target.
bool report(const Run& run) {
  constexpr int kMostAttempts = 3;
  int attempts = 1;
  flopcast::CommandResult result = start(run);
  while (result.exit_code == 0 && attempts < kMostAttempts && !calibrations_agree(result)) {
    result = start(run);
    ++attempts;
  }
  if (result.exit_code != 0) {
    std::printf("%-32s exit code %d: %s", run.name.c_str(), result.exit_code, result.standard_error.c_str());
    return false;
  }
  const nlohmann::json answer = nlohmann::json::parse(result.standard_output);
  const nlohmann::json& disturbed = answer.at("disturbed");
  const double error = answer.at("error").at("time_percent").get<double>();
  const bool met = std::abs(error) <= run.target_percent;
  const auto milliseconds = [](const nlohmann::json& seconds) { return 1e3 * seconds.get<double>(); };
  std::printf("%-32s %9.2f %9.2f %9.2f-%-9.2f %+8.2f %7.1f  %-4s %4d of %-3zu %6.0f %% %6d%s\n", run.name.c_str(),
              milliseconds(answer.at("forecast").at("iteration").at("time_s")),
              milliseconds(answer.at("measured").at("iteration").at("time_s")),
              milliseconds(answer.at("repetitions").at("lower_quartile_s")),
              milliseconds(answer.at("repetitions").at("upper_quartile_s")), error, run.target_percent,
              met ? "met" : "no", disturbed.at("repetitions").get<int>(), answer.at("repetitions").at("time_s").size(),
              100.0 * disturbed.at("others_cpu_share").get<double>(), attempts,
              calibrations_agree(result) ? "" : ", calibrations disagree");
  std::fflush(stdout);
  return met;
}

}  // namespace

int main() {
  std::printf("%-32s %9s %9s %19s %8s %7s  %-4s %11s %8s %6s\n", "run", "forecast", "measured", "quartiles", "error %",
              "target", "", "disturbed", "others", "runs");
  std::printf("%-32s %9s %9s %19s\n", "", "ms", "ms", "ms");
  int met = 0;
  const std::vector<Run> all = runs();
  for (const Run& run : all) met += report(run) ? 1 : 0;
  std::printf("%d of %zu within their targets; medians of 15 repetitions, including disturbed ones\n", met, all.size());
  return 0;
}
