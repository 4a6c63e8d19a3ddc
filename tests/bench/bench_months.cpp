// Time to draw runs of months: a thousand runs of 54 days on one thread, in processor time. Targets: less than 2 s for
// 16,384 GPUs, less than 10 s for 100,000. Measure with the release preset.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>

#include "model/workload/failures.hpp"
#include "sim/run/run.hpp"

namespace flopcast {
namespace {

constexpr Nanoseconds kSecond = 1'000'000'000;
constexpr int kRuns = 1'000;

// Llama 3's interruption rate with eighteen causes, as in its preset.
RunCase months_on(int gpus) {
  constexpr int kCauses = 18;
  RunCase run;
  run.step = 5 * kSecond;
  run.steps = 54 * 86'400 * kSecond / run.step;
  for (int number = 0; number < kCauses; ++number) {
    RunCause cause;
    cause.name = fmt::format("cause {}", number);
    cause.per_second = gpus / kGpuMtbf.value() / kCauses;
    cause.events = 23.0;
    cause.detection = 60 * kSecond;
    cause.repair = 86'400 * kSecond;
    cause.nodes = 1;
    run.causes.push_back(cause);
  }
  const double interval = best_checkpoint_interval(2.3, kGpuMtbf.value() / gpus);
  run.storage = {static_cast<std::int64_t>(interval / 5.0 + 0.5) * run.step, 23 * kSecond / 10, 0, 300 * kSecond};
  run.spares = gpus / 1'000;
  run.nodes = gpus / 8;
  return run;
}

double cpu_seconds() {
  std::timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void measure(const std::string& name, const RunCase& run) {
  const double begin = cpu_seconds();
  double clock = 0.0;
  std::int64_t interruptions = 0;
  for (int number = 0; number < kRuns; ++number) {
    const RunOutcome outcome = simulate_run(run, 1, number);
    clock += static_cast<double>(outcome.clock) * kNanosecond;
    interruptions += outcome.interruptions;
  }
  const double took = cpu_seconds() - begin;
  const double alone = static_cast<double>(run.steps * run.step) * kNanosecond;
  fmt::print("{:<44} {:>7.3f} s  {:>6.0f} ns per interruption  goodput {:.3f}\n", name, took,
             1e9 * took / static_cast<double>(interruptions), kRuns * alone / clock);
}

int run_bench() {
  measure("16,384 GPUs", months_on(16'384));
  measure("100,000 GPUs", months_on(100'000));
  RunCase crowded = months_on(16'384);
  crowded.memory = {10 * kSecond, kSecond / 100, 0, 200 * kSecond};
  crowded.slow_per_second = 1e-6;
  crowded.slow_mean = 4'000 * kSecond;
  crowded.slow_pace = 0.7;
  crowded.slow_node_share = 0.0005;
  crowded.slow_node_pace = 0.95;
  crowded.slow_node_evict = 3'600 * kSecond;
  measure("16,384 GPUs, a copy in memory every 2 steps", crowded);
  return 0;
}

}  // namespace
}  // namespace flopcast

int main() {
  return flopcast::run_bench();
}
