#include "calibrate/device/imports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "calibrate/device/fits.hpp"

namespace flopcast {

namespace {

constexpr int kMostLoggedRanks = 1'000'000;

double logged_number(const std::string& text, const std::string& name, const std::string& where) {
  const std::optional<double> value = parse_number(text);
  if (!value || !std::isfinite(*value)) {
    refuse_at(where, fmt::format("\"{}\" of \"{}\" is not a number", text, name),
              "was the line truncated or mixed with another one?");
  }
  return *value;
}

int logged_count(const std::string& text, const std::string& name, const std::string& where) {
  constexpr double kMost = 1e9;
  const double value = logged_number(text, name, where);
  if (value < 0.0 || value > kMost || value != std::floor(value)) {
    refuse_at(where, fmt::format("\"{}\" of \"{}\" is not a count", text, name), "expected a whole number");
  }
  return static_cast<int>(value);
}

// "a: 1 | b: 2 |" -> a -> 1, b -> 2; text after the last "|" is dropped.
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
    } else if (!read_timer(line)) {
      if (whole) read_other(line);
      read_memory(line);
      read_argument(line);
    }
  }

  TrainingLog finished() {
    if (log_.steps.empty()) {
      for (const LoggedStep& step : others_) add(step);
    }
    if (log_.steps.empty()) {
      refuse_at(
          file_, fmt::format("{} contains no training progress", file_),
          "expected lines such as: iteration 5/ 100 | … | elapsed time per iteration (ms): 512.3 | …, or those of "
          "NeMo, DeepSpeed, nanotron, torchtitan, Composer or Lightning");
    }
    const auto world = log_.arguments.find("world_size");
    if (world != log_.arguments.end()) log_.ranks = logged_count(world->second, "world_size", file_);
    for (const auto& [name, times] : timers_) {
      LoggedTimer& timer = log_.timers[name];
      timer.longest_s = upper_median(times.longest);
      if (!times.shortest.empty()) timer.shortest_s = upper_median(times.shortest);
    }
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
      refuse_at(where_, "the elapsed time is truncated or has no unit",
                "expected elapsed time per iteration (ms): 512.3 |");
    }
    step.seconds = milliseconds != nullptr
                       ? logged_number(*milliseconds, "elapsed time per iteration (ms)", where_) * 1e-3
                       : logged_number(*seconds, "elapsed time per iteration (s)", where_);
    if (step.seconds <= 0.0) refuse_at(where_, "the elapsed time is not above zero", "was the clock set back?");
    const std::string* batch = field("global batch size");
    if (batch == nullptr) refuse_at(where_, "the global batch size is missing", "expected global batch size: 64 |");
    step.global_batch_size = logged_count(*batch, "global batch size", where_);
    if (step.global_batch_size < 1) refuse_at(where_, "the global batch size is 0", "expected 1 or more");
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

  // The number after a word, including "1,234", "4.78K" and "1.05M"; absent if there is none.
  static std::optional<double> number_behind(std::string_view line, std::string_view word) {
    const std::size_t at = line.find(word);
    if (at == std::string_view::npos) return std::nullopt;
    std::string_view rest = line.substr(at + word.size());
    const std::size_t start = rest.find_first_not_of(" :=\t");
    if (start == std::string_view::npos) return std::nullopt;
    rest = rest.substr(start);
    // Skips terminal colours.
    if (rest.front() == '\x1b' && rest.find('m') != std::string_view::npos) rest = rest.substr(rest.find('m') + 1);
    const std::size_t end = std::min(rest.find_first_not_of("0123456789.,eE+-"), rest.size());
    std::string digits(rest.substr(0, end));
    while (!digits.empty() && digits.back() == ',') digits.pop_back();
    std::erase(digits, ',');
    const std::optional<double> number = parse_number(digits);
    if (!number || !std::isfinite(*number)) return std::nullopt;
    const char suffix = end < rest.size() ? rest[end] : ' ';
    return *number * (suffix == 'K' ? 1e3 : suffix == 'M' ? 1e6 : suffix == 'B' ? 1e9 : 1.0);
  }

  static int count_or_none(const std::optional<double>& number) {
    constexpr double kMostCounted = 1e9;
    return number && *number >= 1.0 && *number <= kMostCounted ? static_cast<int>(std::lround(*number)) : 0;
  }

  // The number before a word, as in "50/1000 [01:20<25:00,  1.63s/it".
  static std::optional<double> number_before(std::string_view line, std::string_view word) {
    const std::size_t at = line.find(word);
    if (at == std::string_view::npos || at == 0) return std::nullopt;
    const std::size_t before = line.find_last_not_of("0123456789.", at - 1);
    const std::size_t first = before == std::string_view::npos ? 0 : before + 1;
    return parse_number(std::string(line.substr(first, at - first)));
  }

  // Reads a step from the log of a program other than Megatron.
  void read_other(std::string_view line) {
    LoggedStep step;
    step.iteration = static_cast<long>(others_.size()) + 1;
    if (const auto nemo = number_behind(line, "train_step_timing in s")) {
      step.seconds = *nemo;
      step.global_batch_size = count_or_none(number_behind(line, "global_batch_size"));
      const auto consumed = number_behind(line, "consumed_samples");
      if (step.global_batch_size == 0 && consumed && consumed_ && *consumed > *consumed_) {
        step.global_batch_size = count_or_none(*consumed - *consumed_);
      }
      if (consumed) consumed_ = consumed;
    } else if (const auto deepspeed = number_behind(line, "iter time (s)")) {
      step.seconds = *deepspeed;
      const auto rate = number_behind(line, "samples/sec");
      if (rate) step.global_batch_size = count_or_none(*rate * *deepspeed);
    } else if (const auto nanotron = number_behind(line, "elapsed_time_per_iteration_ms")) {
      step.seconds = *nanotron * 1e-3;
      step.batch_tokens = number_behind(line, "global_batch_size").value_or(0.0);
    } else if (const auto batches = number_behind(line, "throughput/batches_per_sec"); batches && *batches > 0.0) {
      step.seconds = 1.0 / *batches;
    } else if (const auto titan = number_behind(line, "tps:"); titan && line.find("step:") != std::string_view::npos) {
      step.tokens_per_s_per_gpu = *titan;
    } else if (const auto lightning = number_before(line, "s/it")) {
      step.seconds = *lightning;
    }
    if (const auto samples = number_behind(line, "throughput/samples_per_sec")) {
      // Composer prints it on a separate line, either alongside or below the batches.
      LoggedStep* of = step.seconds > 0.0 ? &step : others_.empty() ? nullptr : &others_.back();
      if (of != nullptr) of->global_batch_size = count_or_none(*samples * of->seconds);
    }
    if (step.seconds > 0.0 || step.tokens_per_s_per_gpu > 0.0) others_.push_back(step);
  }

  // "    forward-compute ......................: (4012.33, 4100.10)", or a single number.
  bool read_timer(std::string_view line) {
    const std::size_t end = line.find("..: ");
    if (end == std::string_view::npos) return false;
    const std::size_t dots = line.find(" ..");
    const std::string name(trim(line.substr(0, std::min(dots, end))));
    std::string_view value = trim(line.substr(end + std::string_view("..: ").size()));
    if (name.empty() || value.empty()) return false;
    const bool both = value.front() == '(';
    if (both) value = value.substr(1, value.find(')') == std::string_view::npos ? value.size() : value.find(')') - 1);
    const std::size_t comma = value.find(',');
    const auto first = parse_number(std::string(trim(value.substr(0, comma))));
    const auto second =
        comma == std::string_view::npos ? first : parse_number(std::string(trim(value.substr(comma + 1))));
    if (!first || !second || both != (comma != std::string_view::npos) || *first < 0.0 || *second < *first)
      return false;
    constexpr double kMillisecond = 1e-3;
    Times& times = timers_[name.substr(name.find_last_of(" \t") + 1)];
    times.longest.push_back(*second * kMillisecond);
    if (both) times.shortest.push_back(*first * kMillisecond);
    return true;
  }

  // "[Rank 0] (after 2 iterations) memory (MB) | allocated: 1.0 | max allocated: 2.0 | … | max reserved: 4.0"
  void read_memory(std::string_view line) {
    constexpr std::string_view kWords = "max reserved:";
    const std::size_t at = line.find(kWords);
    if (at == std::string_view::npos || line.find("memory (MB)") == std::string_view::npos) return;
    std::string_view value = line.substr(at + kWords.size());
    const auto megabytes = parse_number(std::string(trim(value.substr(0, value.find('|')))));
    constexpr double kMebibytesPerGib = 1024.0;
    if (!megabytes || *megabytes < 0.0) return;
    log_.max_reserved_gib = std::max(log_.max_reserved_gib.value_or(0.0), *megabytes / kMebibytesPerGib);
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

  struct Times {
    std::vector<double> shortest;
    std::vector<double> longest;
  };

  std::string file_;
  std::string where_;
  std::map<std::string, Times> timers_;
  std::vector<LoggedStep> others_;  // of programs other than Megatron
  std::optional<double> consumed_;
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
  if (!ranks) refuse_at(file, fmt::format("{} does not state the number of ranks", file), "specify it: --ranks N");
  if (*ranks < 1 || *ranks > kMostLoggedRanks)
    refuse_at(file, fmt::format("{} ranks", *ranks), "specify the number of ranks: --ranks N");
  std::map<int, std::vector<double>> by_batch;
  for (const LoggedStep& step : log.steps) {
    if (step.global_batch_size == 0 || step.seconds <= 0.0) {
      refuse_at(file, fmt::format("{} does not give both time and global batch size of its steps", file),
                "flopcast compare JOB --log FILE takes missing values from the job");
    }
    if (!step.warm_up && step.skipped == 0) by_batch[step.global_batch_size].push_back(step.seconds);
  }
  if (by_batch.empty()) {
    refuse_at(file, fmt::format("{} contains only warm-up and skipped iterations", file), "log more iterations");
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
