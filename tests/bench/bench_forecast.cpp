// How long a forecast takes in process, and what it is made of: google-benchmark's flags apply (--benchmark_filter …).
// Before the benchmarks it prints the memory per action and the allocations of the engine's inner loop; with
// --chart FILE it also writes the time per action from 10^3 to 10^7 actions as an SVG.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "model/job/read_job.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"
#include "tests/bench/allocations.hpp"
#include "tests/bench/scaling_chart.hpp"

namespace flopcast {
namespace {

std::string no_files(const std::string& path) {
  throw EnvironmentError("unexpected read of " + path);
}

Job job_of(int nodes, const nlohmann::json& layout) {
  const nlohmann::json root = {{"model", "gpt3-175b"},
                               {"cluster", {{"name", "dgx-a100-80g"}, {"nodes", nodes}}},
                               {"layout", layout},
                               {"training", {{"stack", "megatron-2022"}, {"precision", "bf16"}}}};
  return read_job(root, Origins());
}

// GPT-3 175B, tp 8, pp 16, dp 8: 192 microbatches a pipeline.
Job large_job() {
  return job_of(128, {{"tp", 8}, {"pp", 16}, {"dp", 8}, {"global_batch_size", 1536}});
}

// What a planner walks over: every tp, pp and microbatch size on 1,024 devices, in no helpful order.
std::vector<Job> shuffled_jobs() {
  std::vector<Job> jobs;
  for (const int tp : {1, 2, 4, 8}) {
    for (const int pp : {1, 2, 4, 8, 16, 32}) {
      for (const int mbs : {1, 2, 4}) {
        if (1536 % (1024 / tp / pp * mbs) != 0) continue;
        for (const char* recompute : {"none", "selective", "full"}) {
          jobs.push_back(job_of(128, {{"tp", tp},
                                      {"pp", pp},
                                      {"micro_batch_size", mbs},
                                      {"recompute", recompute},
                                      {"sequence_parallel", tp > 1},
                                      {"global_batch_size", 1536}}));
        }
      }
    }
  }
  std::shuffle(jobs.begin(), jobs.end(), std::mt19937(7));
  return jobs;
}

void whole_forecast(benchmark::State& state) {
  const Job job = large_job();
  for (auto step : state) benchmark::DoNotOptimize(forecast(job, no_files).result.iteration.time_s);
}
BENCHMARK(whole_forecast)->Unit(benchmark::kMicrosecond);

void read_and_check_job(benchmark::State& state) {
  for (auto step : state) benchmark::DoNotOptimize(large_job());
}
BENCHMARK(read_and_check_job)->Unit(benchmark::kMicrosecond);

void prepare_step(benchmark::State& state) {
  const Job job = large_job();
  for (auto step : state) benchmark::DoNotOptimize(prepare(job, no_files));
}
BENCHMARK(prepare_step)->Unit(benchmark::kMicrosecond);

void price_one_layout(benchmark::State& state) {
  const PreparedStep prepared = prepare(large_job(), no_files);
  for (auto step : state) {
    benchmark::DoNotOptimize(price_step(prepared.job, prepared.stages, prepared.job.layout.stage_layers));
  }
}
BENCHMARK(price_one_layout)->Unit(benchmark::kMicrosecond);

void lower_and_run(benchmark::State& state) {
  const PreparedStep prepared = prepare(large_job(), no_files);
  LoweredStep lowered;
  EngineResult result;
  for (auto step : state) {
    lower(prepared.program, prepared.times, lowered);
    run(lowered.graph, result);
    benchmark::DoNotOptimize(result.makespan);
  }
}
BENCHMARK(lower_and_run)->Unit(benchmark::kMicrosecond);

void timeline_of_step(benchmark::State& state) {
  const PreparedStep prepared = prepare(large_job(), no_files);
  for (auto step : state) benchmark::DoNotOptimize(simulate(prepared.program, prepared.times));
}
BENCHMARK(timeline_of_step)->Unit(benchmark::kMicrosecond);

void measure_timeline(benchmark::State& state) {
  const PreparedStep prepared = prepare(large_job(), no_files);
  const Timeline timeline = simulate(prepared.program, prepared.times);
  for (auto step : state) benchmark::DoNotOptimize(measure(timeline));
}
BENCHMARK(measure_timeline)->Unit(benchmark::kMicrosecond);

// Caches and branch predictors cannot learn one layout by heart: the mean over a planner's walk.
void shuffled_layouts(benchmark::State& state) {
  const std::vector<Job> jobs = shuffled_jobs();
  std::size_t next = 0;
  for (auto step : state) {
    benchmark::DoNotOptimize(forecast(jobs[next], no_files).result.iteration.time_s);
    next = (next + 1) % jobs.size();
  }
  state.counters["layouts"] = static_cast<double>(jobs.size());
}
BENCHMARK(shuffled_layouts)->Unit(benchmark::kMicrosecond);

Program alternating(int ranks, int microbatches) {
  ScheduleRequest request;
  request.pipeline_ranks = ranks;
  request.microbatches = microbatches;
  return generate_schedule(*find_schedule("1f1b"), request);
}

StepTimes equal_stages(int stages) {
  StepTimes times;
  times.stages.assign(static_cast<std::size_t>(stages), StageTimes{1000, 2000, 0, 0, {}});
  times.boundaries.assign(static_cast<std::size_t>(stages - 1), BoundaryTimes{10, 10});
  return times;
}

double best_seconds_of_run(const LoweredStep& step, EngineResult& result, int repeats) {
  double best = 1e30;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    run(step.graph, result);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

// Returns whether the engine and the lowering allocate nothing once their memory has grown to its size.
bool report_memory() {
  constexpr int kRanks = 16;
  bool allocation_free = true;
  for (const int microbatches : {192, 65'536}) {
    const Program program = alternating(kRanks, microbatches);
    const StepTimes times = equal_stages(kRanks);
    LoweredStep step;
    EngineResult result;
    lower(program, times, step);
    run(step.graph, result);
    const std::size_t before = allocation_count();
    run(step.graph, result);
    const std::size_t in_engine = allocation_count() - before;
    lower(program, times, step);
    const std::size_t in_lowering = allocation_count() - before - in_engine;
    const auto actions = static_cast<double>(program.action_count());
    std::printf(
        "%d microbatches on %d ranks: %.1f bytes of graph and 16 of result per action; allocations of a further "
        "run: %zu in the engine, %zu in lowering (none per action)\n",
        microbatches, kRanks, static_cast<double>(step.graph.bytes()) / actions, in_engine, in_lowering);
    constexpr std::size_t kFewScratchVectors = 32;
    allocation_free = allocation_free && in_engine <= kFewScratchVectors && in_lowering <= kFewScratchVectors;
  }
  const Job job = large_job();
  const std::size_t before = allocation_count();
  benchmark::DoNotOptimize(forecast(job, no_files));
  std::printf("a whole forecast of %d actions: %zu allocations\n", 2 * 16 * 192, allocation_count() - before);
  return allocation_free;
}

std::vector<ScalingPoint> measure_scaling() {
  constexpr int kRanks = 16;
  std::vector<ScalingPoint> points;
  for (const int microbatches : {32, 100, 320, 1'000, 3'200, 10'000, 32'000, 100'000, 320'000}) {
    const Program program = alternating(kRanks, microbatches);
    LoweredStep step;
    EngineResult result;
    lower(program, equal_stages(kRanks), step);
    const auto actions = static_cast<double>(program.action_count());
    const int repeats = std::clamp(static_cast<int>(2e7 / actions), 5, 2000);
    points.push_back({actions, best_seconds_of_run(step, result, repeats) / actions * 1e9});
    std::printf("%10.0f actions: %5.2f ns each\n", actions, points.back().nanoseconds);
  }
  return points;
}

}  // namespace
}  // namespace flopcast

int main(int argc, char** argv) {
  using namespace flopcast;
  std::vector<char*> rest;
  std::string chart;
  for (int index = 0; index < argc; ++index) {
    if (std::string(argv[index]) == "--chart" && index + 1 < argc) {
      chart = argv[++index];
    } else {
      rest.push_back(argv[index]);
    }
  }
  const bool allocation_free = report_memory();
  if (!chart.empty()) {
    std::ofstream file(chart);
    file << scaling_chart(measure_scaling());
    if (!file) {
      std::fprintf(stderr, "cannot write %s\n", chart.c_str());
      return 4;
    }
  }
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return allocation_free ? 0 : 1;
}
