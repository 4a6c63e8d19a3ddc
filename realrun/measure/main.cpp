// flopcast-measure: times this machine or its GPU. Started by `flopcast calibrate`; its results go to the measurement
// file.

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/host/command_line.hpp"
#include "base/host/guard.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "realrun/measure/measure_cpu.hpp"
#include "realrun/measure/measure_gpu.hpp"

namespace {

// The standard set takes less than eight minutes on any GPU.
constexpr double kGpuSeconds = 450.0;

struct MeasureOptions {
  bool cuda = false;
  bool quick = false;
  std::vector<int> ranks;  // empty if not specified
  double seconds = kGpuSeconds;
  std::string file;
};

std::vector<int> group_sizes(const std::string& text) {
  constexpr int kMostRanks = 64;
  std::vector<int> sizes;
  for (const std::string& part : flopcast::split(text)) {
    const std::optional<std::int64_t> size = flopcast::parse_whole(part);
    if (!size || *size < 2 || *size > kMostRanks) {
      throw flopcast::ConfigError({"--ranks", fmt::format("\"{}\" is not a list of group sizes", text), "--ranks",
                                   fmt::format("expected numbers from 2 to {}, such as 2,4", kMostRanks)});
    }
    sizes.push_back(static_cast<int>(*size));
  }
  return sizes;
}

double whole_seconds(const std::string& text) {
  constexpr int kLongest = 99'999;
  if (const std::optional<int> seconds = flopcast::parse_digits(text, 1, kLongest)) return *seconds;
  throw flopcast::ConfigError(
      {"--seconds", fmt::format("\"{}\" is not a number of seconds", text), "--seconds", "expected 1 to 99999"});
}

// Empty if help was requested and shown.
std::optional<MeasureOptions> parse_options(const std::vector<std::string>& arguments) {
  MeasureOptions wishes;
  std::optional<std::string> file;
  std::optional<std::string> ranks;
  std::optional<std::string> seconds;
  flopcast::CommandLine command_line(flopcast::standard_streams(), "", "flopcast-measure -o FILE [options]",
                                     "Times this machine or its GPU; started by `flopcast calibrate`.", {});
  command_line.add_option("-o", file, "FILE", "the measurement file; samples that it contains are not measured again");
  command_line.add_flag("--cuda", wishes.cuda, "measure the GPU, and messages between GPUs");
  command_line.add_flag("--quick", wishes.quick, "fewer samples");
  command_line.add_option("--ranks", ranks, "N,N", "sizes of the groups whose messages are timed");
  command_line.add_option("--seconds", seconds, "N", "with --cuda: budget, after which no sample begins (450)");
  if (!command_line.parse(arguments)) return std::nullopt;
  if (!file) throw flopcast::ConfigError({"-o", "is required", "", "give the measurement file"});
  wishes.file = *file;
  if (ranks) wishes.ranks = group_sizes(*ranks);
  if (seconds) wishes.seconds = whole_seconds(*seconds);
  return wishes;
}

void measure_host(const MeasureOptions& wishes) {
  flopcast::MeasurementFile file(wishes.file, flopcast::describe_host());
  flopcast::CpuSet set;
  set.quick = wishes.quick;
  if (!wishes.ranks.empty()) set.ranks = wishes.ranks;
  const flopcast::ProgressLine line;
  flopcast::measure_cpu(set, flopcast::this_host(), file,
                        [&line](std::size_t done, std::size_t all, const flopcast::SampleKey& next) {
                          line.show(done, all, next.text());
                        });
}

void check_groups(const std::vector<int>& ranks, int gpus) {
  for (const int size : ranks) {
    if (size <= gpus) continue;
    throw flopcast::ConfigError({"--ranks",
                                 fmt::format("a group of {} was requested, but this node has {} visible GPU{}", size,
                                             gpus, gpus == 1 ? "" : "s"),
                                 "--ranks", "use smaller groups; CUDA_VISIBLE_DEVICES may hide GPUs"});
  }
}

void print_note(const std::string& sentence) {
  std::fputs(fmt::format("{}\n", sentence).c_str(), stderr);
}

void measure_cuda(const MeasureOptions& wishes) {
  const std::unique_ptr<flopcast::MeasuredGpu> gpu = flopcast::open_measured_gpu();
  const flopcast::GpuFacts& facts = gpu->facts();
  check_groups(wishes.ranks, facts.gpus);
  flopcast::MeasurementFile file(wishes.file, flopcast::describe_gpu(facts, flopcast::describe_host()));
  flopcast::GpuOutcome outcome;
  {
    const flopcast::ProgressLine line;
    outcome = flopcast::measure_gpu({wishes.quick, wishes.ranks, wishes.seconds}, *gpu, flopcast::machine_clock().wall,
                                    file, [&line](std::size_t done, std::size_t all, const flopcast::SampleKey& next) {
                                      line.show(done, all, next.text());
                                    });
  }
  if (!facts.no_messages.empty()) print_note("note: messages between GPUs were not measured: " + facts.no_messages);
  for (const std::string& refusal : outcome.refused) print_note("note: not measured: " + refusal);
  if (outcome.no_time.empty()) return;
  print_note(fmt::format("note: not measured within {:.0f} s: {}; run the same command again to measure them",
                         wishes.seconds, fmt::join(outcome.no_time, ", ")));
}

}  // namespace

#ifndef FLOPCAST_HAS_CUDA
std::unique_ptr<flopcast::MeasuredGpu> flopcast::open_measured_gpu() {
  throw EnvironmentError(
      "flopcast-measure was built without CUDA: configure with -DFLOPCAST_WITH_CUDA=ON where nvcc is installed (CUDA "
      "12.5 or later), and build");
}
#endif

int main(int argc, char** argv) {
  return flopcast::exit_code_of(
      [&] {
        const std::optional<MeasureOptions> wishes = parse_options(std::vector<std::string>(argv + 1, argv + argc));
        if (wishes) wishes->cuda ? measure_cuda(*wishes) : measure_host(*wishes);
        return 0;
      },
      true, flopcast::standard_streams());
}
