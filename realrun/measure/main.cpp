// flopcast-measure: times this machine, or its GPU. Started by `flopcast calibrate`; talks through the measurement
// file.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "model/error/error.hpp"
#include "realrun/measure/host.hpp"
#include "realrun/measure/measure_cpu.hpp"
#include "realrun/measure/measure_gpu.hpp"

namespace {

constexpr int kBug = 1;
constexpr int kBadInput = 2;
constexpr int kEnvironmentFailed = 4;

// The standard set of a GPU takes less than eight minutes, whatever the GPU.
constexpr double kGpuSeconds = 450.0;

struct Wishes {
  bool cuda = false;
  bool quick = false;
  std::vector<int> ranks;  // empty: not told
  double seconds = kGpuSeconds;
  std::string file;
};

std::vector<int> group_sizes(const std::string& text) {
  constexpr long kMostRanks = 64;
  std::vector<int> sizes;
  const char* rest = text.c_str();
  while (true) {
    char* end = nullptr;
    const long size = std::strtol(rest, &end, 10);
    if (end == rest || size < 2 || size > kMostRanks || (*end != ',' && *end != '\0')) {
      throw flopcast::ConfigError({"--ranks", fmt::format("\"{}\" is no list of group sizes", text), "--ranks",
                                   fmt::format("expected numbers from 2 to {}, such as 2,4", kMostRanks)});
    }
    sizes.push_back(static_cast<int>(size));
    if (*end == '\0') return sizes;
    rest = end + 1;
  }
}

double whole_seconds(const std::string& text) {
  constexpr std::size_t kMostDigits = 5;
  const bool whole = !text.empty() && text.size() <= kMostDigits &&
                     text.find_first_not_of("0123456789") == std::string::npos && std::stoi(text) > 0;
  if (whole) return std::stoi(text);
  throw flopcast::ConfigError(
      {"--seconds", fmt::format("\"{}\" is no number of seconds", text), "--seconds", "expected 1 to 99999"});
}

Wishes read(const std::vector<std::string>& arguments) {
  Wishes wishes;
  for (std::size_t index = 0; index < arguments.size(); ++index) {
    const std::string& flag = arguments[index];
    const bool has_value = flag == "-o" || flag == "--ranks" || flag == "--seconds";
    if (has_value && index + 1 == arguments.size()) {
      throw flopcast::ConfigError({flag, "needs a value", "", ""});
    }
    if (flag == "--quick") {
      wishes.quick = true;
    } else if (flag == "--cuda") {
      wishes.cuda = true;
    } else if (flag == "--seconds") {
      wishes.seconds = whole_seconds(arguments[++index]);
    } else if (flag == "-o") {
      wishes.file = arguments[++index];
    } else if (flag == "--ranks") {
      wishes.ranks = group_sizes(arguments[++index]);
    } else {
      throw flopcast::ConfigError(
          {"", fmt::format("unknown flag \"{}\"", flag), "",
           "flopcast-measure -o FILE [--cuda] [--quick] [--ranks N,N] [--seconds N]; see: flopcast "
           "calibrate --help"});
    }
  }
  if (wishes.file.empty()) throw flopcast::ConfigError({"-o", "is required", "", "give the measurement file"});
  return wishes;
}

/// A line on a terminal's standard error that tells how far it is, gone in the end.
class ProgressLine {
 public:
  ProgressLine() : terminal_(isatty(STDERR_FILENO) == 1) {}
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ProgressLine(ProgressLine&&) = delete;
  ProgressLine& operator=(ProgressLine&&) = delete;
  ~ProgressLine() {
    if (terminal_) std::fputs("\r\033[K", stderr);
  }

  void show(std::size_t done, std::size_t all, const flopcast::SampleKey& next) const {
    if (!terminal_) return;
    constexpr std::size_t kWidth = 20;
    constexpr std::size_t kLine = 79;  // a line that wraps could not be written over
    const std::size_t filled = all == 0 ? kWidth : done * kWidth / all;
    const std::string line = fmt::format("[{}{}] {}/{} {}", std::string(filled, '#'), std::string(kWidth - filled, '.'),
                                         done + 1, all, next.text());
    std::fputs(("\r\033[K" + line.substr(0, kLine)).c_str(), stderr);
  }

 private:
  bool terminal_;
};

void measure_host(const Wishes& wishes) {
  flopcast::MeasurementFile file(wishes.file, flopcast::describe_host());
  flopcast::CpuSet set;
  set.quick = wishes.quick;
  if (!wishes.ranks.empty()) set.ranks = wishes.ranks;
  const ProgressLine line;
  flopcast::measure_cpu(
      set, flopcast::this_host(), file,
      [&line](std::size_t done, std::size_t all, const flopcast::SampleKey& next) { line.show(done, all, next); });
}

void check_groups(const std::vector<int>& ranks, int gpus) {
  for (const int size : ranks) {
    if (size <= gpus) continue;
    throw flopcast::ConfigError(
        {"--ranks",
         fmt::format("a group of {} was asked for, and this node shows {} GPU{}", size, gpus, gpus == 1 ? "" : "s"),
         "--ranks", "ask for no more; CUDA_VISIBLE_DEVICES may hide GPUs"});
  }
}

void say(const std::string& sentence) {
  std::fputs(fmt::format("{}\n", sentence).c_str(), stderr);
}

void measure_cuda(const Wishes& wishes) {
  const std::unique_ptr<flopcast::MeasuredGpu> gpu = flopcast::open_measured_gpu();
  const flopcast::GpuFacts& facts = gpu->facts();
  check_groups(wishes.ranks, facts.gpus);
  flopcast::MeasurementFile file(wishes.file, flopcast::describe_gpu(facts, flopcast::describe_host()));
  flopcast::GpuOutcome outcome;
  {
    const ProgressLine line;
    outcome = flopcast::measure_gpu(
        {wishes.quick, wishes.ranks, wishes.seconds}, *gpu, flopcast::machine_clock().wall, file,
        [&line](std::size_t done, std::size_t all, const flopcast::SampleKey& next) { line.show(done, all, next); });
  }
  if (!facts.no_messages.empty()) say("note: messages between GPUs are left out: " + facts.no_messages);
  for (const std::string& refusal : outcome.refused) say("note: not measured: " + refusal);
  if (outcome.no_time.empty()) return;
  say(fmt::format("note: after {:.0f} s left out: {}; the same call again measures them", wishes.seconds,
                  fmt::join(outcome.no_time, ", ")));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Wishes wishes = read(std::vector<std::string>(argv + 1, argv + argc));
    if (wishes.cuda) {
      measure_cuda(wishes);
    } else {
      measure_host(wishes);
    }
    return 0;
  } catch (const flopcast::ConfigError& error) {
    std::fputs(fmt::format("{}\n", error.what()).c_str(), stderr);
    return kBadInput;
  } catch (const flopcast::EnvironmentError& error) {
    std::fputs(fmt::format("error: {}\n", error.what()).c_str(), stderr);
    return kEnvironmentFailed;
  } catch (const std::bad_alloc&) {
    std::fputs("error: out of memory\n", stderr);
    return kEnvironmentFailed;
  } catch (const std::exception& error) {
    std::fputs(fmt::format("internal error: {}\n", error.what()).c_str(), stderr);
    return kBug;
  }
}
