#include "calibrate/device/imports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <tuple>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/numbers.hpp"
#include "base/text/words.hpp"

namespace flopcast {

namespace {

constexpr int kMostLoggedRanks = 1'000'000;

double logged_number(const std::string& text, const std::string& name, const std::string& where) {
  const std::optional<double> value = parse_number(text);
  if (!value || !std::isfinite(*value)) {
    refuse_at(where, fmt::format("\"{}\" of \"{}\" is not a number", text, name),
              "was the line cut or mixed with another?");
  }
  return *value;
}

int logged_count(const std::string& text, const std::string& name, const std::string& where) {
  constexpr double kMost = 1e9;
  const double value = logged_number(text, name, where);
  if (value < 0.0 || value > kMost || value != std::floor(value)) {
    refuse_at(where, fmt::format("\"{}\" of \"{}\" is no count", text, name), "expected a whole number");
  }
  return static_cast<int>(value);
}

// "a: 1 | b: 2 |" -> a -> 1, b -> 2; what follows the last "|" is dropped.
std::map<std::string, std::string> fields_of(std::string_view line) {
  std::map<std::string, std::string> fields;
  for (std::size_t bar = line.find('|'); bar != std::string_view::npos; bar = line.find('|')) {
    const std::string_view field = line.substr(0, bar);
    const std::size_t colon = field.find_last_of(':');
    if (colon != std::string_view::npos)
      fields[std::string(trim(field.substr(0, colon)))] = trim(field.substr(colon + 1));
    line.remove_prefix(bar + 1);
  }
  return fields;
}

class LogReader {
 public:
  explicit LogReader(const std::string& file) : file_(file) {}

  void read_line(std::string_view line, int number, bool whole) {
    where_ = fmt::format("{}:{}", file_, number);
    const std::size_t start = line.find("iteration ");
    if (start != std::string_view::npos && line.find("elapsed time per iteration") != std::string_view::npos) {
      if (!whole && trim(line).back() != '|') return;
      read_step(line.substr(start + std::string_view("iteration ").size()));
    } else {
      read_argument(line);
    }
  }

  TrainingLog finished() {
    if (log_.steps.empty()) {
      refuse_at(file_, fmt::format("{} holds no progress of a training", file_),
                "expected lines such as: iteration 5/ 100 | … | elapsed time per iteration (ms): 512.3 | …");
    }
    const auto world = log_.arguments.find("world_size");
    if (world != log_.arguments.end()) log_.ranks = logged_count(world->second, "world_size", file_);
    return std::move(log_);
  }

 private:
  void read_step(std::string_view line) {
    LoggedStep step;
    const std::size_t slash = line.find('/');
    if (slash == std::string_view::npos) {
      refuse_at(where_, "the iteration has no total", "expected iteration 5/ 100 |");
    }
    step.iteration = logged_count(std::string(trim(line.substr(0, slash))), "iteration", where_);
    const auto fields = fields_of(line.substr(slash + 1));
    const auto field = [&fields](const char* name) {
      const auto found = fields.find(name);
      return found == fields.end() ? nullptr : &found->second;
    };
    const std::string* milliseconds = field("elapsed time per iteration (ms)");
    const std::string* seconds = field("elapsed time per iteration (s)");
    if (milliseconds == nullptr && seconds == nullptr) {
      refuse_at(where_, "the elapsed time is cut off or has no unit",
                "expected elapsed time per iteration (ms): 512.3 |");
    }
    step.seconds = milliseconds != nullptr
                       ? logged_number(*milliseconds, "elapsed time per iteration (ms)", where_) * 1e-3
                       : logged_number(*seconds, "elapsed time per iteration (s)", where_);
    if (step.seconds <= 0.0) refuse_at(where_, "the elapsed time is not above zero", "was the clock set back?");
    const std::string* batch = field("global batch size");
    if (batch == nullptr) refuse_at(where_, "does not tell the global batch size", "expected global batch size: 64 |");
    step.global_batch_size = logged_count(*batch, "global batch size", where_);
    if (step.global_batch_size < 1) refuse_at(where_, "a global batch size of 0", "expected 1 or more");
    for (const char* name : {"throughput per GPU (TFLOP/s/GPU)", "TFLOPs"}) {
      if (const std::string* tflops = field(name)) step.tflops_per_gpu = logged_number(*tflops, name, where_);
    }
    const char* skipped = "number of skipped iterations";
    if (const std::string* count = field(skipped)) step.skipped = logged_count(*count, skipped, where_);
    add(step);
  }

  void add(LoggedStep step) {
    // Other ranks may print the line too.
    if (!seen_.emplace(step.iteration, step.seconds, step.global_batch_size).second) return;
    step.warm_up = log_.steps.empty() || step.iteration <= log_.steps.back().iteration;
    if (step.warm_up) ++log_.starts;
    log_.steps.push_back(step);
  }

  // "  world_size ...................................... 8"
  void read_argument(std::string_view line) {
    const std::size_t dots = line.find(" ...");
    if (dots == std::string_view::npos) return;
    const std::size_t value = line.find_first_not_of('.', dots + 1);
    const std::string name(trim(line.substr(0, dots)));
    const std::size_t last_word = name.find_last_of(" \t");
    const std::string key = last_word == std::string::npos ? name : name.substr(last_word + 1);
    if (value == std::string_view::npos || key.empty()) return;
    log_.arguments.emplace(key, trim(line.substr(value)));
  }

  std::string file_;
  std::string where_;
  std::set<std::tuple<long, double, int>> seen_;
  TrainingLog log_;
};

}  // namespace

TrainingLog read_training_log(std::string_view text, const std::string& file) {
  LogReader reader(file);
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    reader.read_line(text.substr(0, end), ++number, end != std::string_view::npos);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return reader.finished();
}

Measurement measurement_of(const TrainingLog& log, const std::string& file, std::optional<int> ranks) {
  if (!ranks) ranks = log.ranks;
  if (!ranks) refuse_at(file, fmt::format("{} does not tell how many ranks trained", file), "give them: --ranks N");
  if (*ranks < 1 || *ranks > kMostLoggedRanks) refuse_at(file, fmt::format("{} ranks", *ranks), "give them: --ranks N");
  std::map<int, std::vector<double>> by_batch;
  for (const LoggedStep& step : log.steps) {
    if (!step.warm_up && step.skipped == 0) by_batch[step.global_batch_size].push_back(step.seconds);
  }
  if (by_batch.empty()) {
    refuse_at(file, fmt::format("{} holds warm-up and skipped iterations alone", file), "log more iterations");
  }
  Measurement measurement;
  measurement.device = "unnamed";
  for (auto& [batch, seconds] : by_batch) {
    SampleKey key;
    key.kind = SampleKind::kTrainingStep;
    key.batch = batch;
    key.ranks = *ranks;
    measurement.samples.push_back({key, std::move(seconds), std::nullopt});
  }
  return measurement;
}

}  // namespace flopcast
