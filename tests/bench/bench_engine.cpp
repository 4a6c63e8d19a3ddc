// Speed of the engine compared with the bare in-order loop, its scaling, and the time for all ranks of a large job.
// Each figure is the best of several runs, because other work on the machine can only slow it down.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "sim/lower/lower.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/bench/bare_loop.hpp"
#include "tests/support/lower_replicas.hpp"

namespace flopcast {
namespace {

constexpr Ticks kForward = 1000;
constexpr Ticks kBackward = 2000;
constexpr Ticks kLatency = 10;

double best_seconds(int repeats, const std::function<void()>& work) {
  double best = 1e30;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

Program schedule(const char* name, int ranks, int microbatches, int chunks = 1) {
  ScheduleRequest request;
  request.pipeline_ranks = ranks;
  request.microbatches = microbatches;
  request.chunks = chunks;
  return generate_schedule(*find_schedule(name), request);
}

StepTimes equal_stages(int stages) {
  StepTimes times;
  times.stages.assign(static_cast<std::size_t>(stages), StageTimes{kForward, kBackward, 0, 0, {}});
  times.boundaries.assign(static_cast<std::size_t>(stages - 1), BoundaryTimes{kLatency, kLatency});
  return times;
}

int repeats_for(std::size_t actions) {
  return static_cast<int>(std::clamp<std::size_t>(20'000'000 / actions, 5, 2000));
}

// Returns true if every start and end agrees with the bare loop's.
bool compare_with_bare_loop(int microbatches) {
  constexpr int kRanks = 16;
  BareLoop bare(kRanks, microbatches);
  const Program program = schedule("1f1b", kRanks, microbatches);
  const StepTimes times = equal_stages(kRanks);
  const LoweredStep step = lower(program, times);
  EngineResult result;
  run(step.graph, result);
  bare.run(kForward, kBackward, kLatency);
  bool agrees = program.action_count() == bare.action_count();
  for (std::size_t task = 0; agrees && task < bare.action_count(); ++task) {
    agrees = result.start[task] == bare.starts()[task] && result.end[task] == bare.ends()[task];
  }
  const int repeats = repeats_for(bare.action_count());
  const double loop = best_seconds(repeats, [&] { bare.run(kForward, kBackward, kLatency); });
  const double engine = best_seconds(repeats, [&] { run(step.graph, result); });
  LoweredStep reused;
  const double both = best_seconds(repeats, [&] {
    lower(program, times, reused);
    run(reused.graph, result);
  });
  const double fresh = best_seconds(repeats, [&] { static_cast<void>(run(lower(program, times).graph)); });
  const double actions = static_cast<double>(bare.action_count()) / 1e6;
  std::printf("bare loop, %d microbatches: %.0f M actions/s\n", microbatches, actions / loop);
  std::printf("engine / bare loop, %d microbatches: %.2f (target 0.50), %.0f M actions/s\n", microbatches,
              loop / engine, actions / engine);
  std::printf("lowering + engine / bare loop, %d microbatches: %.2f (target 0.14), %.0f M actions/s\n", microbatches,
              loop / both, actions / both);
  std::printf("  with memory allocated each time: %.2f, %.0f M actions/s\n", loop / fresh, actions / fresh);
  std::printf("  spans equal to the bare loop's: %s; %.1f bytes per action\n", agrees ? "all" : "NO",
              static_cast<double>(step.graph.bytes()) / static_cast<double>(bare.action_count()) + 16.0);
  return agrees;
}

// The bare loop is timed as well where it applies: both slow down when the arrays exceed the caches.
void scale(const char* name, int ranks, const std::vector<int>& microbatches, bool with_bare_loop) {
  std::printf("%s on %d ranks, time per action:\n", name, ranks);
  for (const int count : microbatches) {
    const Program program = schedule(name, ranks, count);
    const LoweredStep step = lower(program, equal_stages(ranks));
    EngineResult result;
    const std::size_t actions = program.action_count();
    const int repeats = repeats_for(actions);
    const double engine = best_seconds(repeats, [&] { run(step.graph, result); });
    std::printf("  %10zu actions: %5.2f ns", actions, engine / static_cast<double>(actions) * 1e9);
    if (with_bare_loop) {
      BareLoop bare(ranks, count);
      const double loop = best_seconds(repeats, [&] { bare.run(kForward, kBackward, kLatency); });
      std::printf(", bare loop %5.2f ns", loop / static_cast<double>(actions) * 1e9);
    }
    std::printf("\n");
  }
}

double peak_mebibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

void all_ranks(const char* title, int pipeline, int chunks, int microbatches, int data, int tensor,
               const char* target) {
  const Program program = schedule(chunks > 1 ? "interleaved" : "1f1b", pipeline, microbatches, chunks);
  const StepTimes times = equal_stages(pipeline * chunks);
  Replicas replicas;
  replicas.data_parallel = data;
  replicas.tensor_parallel = tensor;
  replicas.collectives.assign(times.stages.size(), StageTimes{100, 200, 100, 100, {}});
  std::size_t tasks = 0;
  std::size_t bytes = 0;
  const double seconds = best_seconds(3, [&] {
    const TaskGraph graph = lower_replicas(program, times, replicas);
    const EngineResult result = run(graph);
    tasks = graph.task_count();
    bytes = graph.bytes() + 2 * sizeof(Ticks) * tasks;
  });
  std::printf(
      "%s: %d ranks, %.2f M tasks: %.3f s, %.0f MB of graph and result, %.0f MiB peak of the process (target %s)\n",
      title, pipeline * data * tensor, static_cast<double>(tasks) / 1e6, seconds, static_cast<double>(bytes) / 1e6,
      peak_mebibytes(), target);
}

}  // namespace
}  // namespace flopcast

int main() {
  using namespace flopcast;
  all_ranks("GPT-3 175B, tp 8, pp 16, dp 8, 2 chunks, 192 microbatches", 16, 2, 192, 8, 8, "0.3 s, 200 MB");
  all_ranks("Llama-3 405B, tp 8, pp 16, dp 128, 4 chunks, 16 microbatches", 16, 4, 16, 128, 8, "1 s, 1024 MiB");
  const bool agrees = compare_with_bare_loop(192) & compare_with_bare_loop(65'536);
  scale("1f1b", 16, {32, 320, 3'200, 32'000, 320'000}, true);
  scale("naive", 64, {8, 80, 800, 8'000, 80'000}, false);
  return agrees ? 0 : 1;
}
