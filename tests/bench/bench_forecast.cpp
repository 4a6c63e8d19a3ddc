// Time of an in-process forecast and its parts: google-benchmark's flags apply (--benchmark_filter …). Before the
// benchmarks it prints the memory per action, the allocations of the engine's inner loop, and a whole forecast next to
// the pricing of time and memory of a layout. With --chart FILE it also writes the time per action from 10^3 to 10^7
// actions as an SVG. If FLOPCAST_ZHEBRAK is a checkout of github.com/zhebrak/llm-cluster-simulator after `npm ci`, that
// program prices the same layouts in the same run (zhebrak_queries.mjs).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "api/flopcast.hpp"
#include "model/job/read_job.hpp"
#include "sim/forecast/evaluate.hpp"
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

// GPT-3 175B, tp 8, pp 16, dp 8: 192 microbatches per pipeline.
Job large_job() {
  return job_of(128, {{"tp", 8}, {"pp", 16}, {"dp", 8}, {"global_batch_size", 1536}});
}

// One layout of GPT-3 175B on 1,024 GPUs, as columns of LayoutPricer.
struct PricedLayout {
  std::vector<std::pair<std::string, int>> columns;
  std::string schedule;
};

// Distinct layouts of a planner's walk in random order, with `microbatches` per pipeline or (0) as many as a batch of
// 1,536 sequences gives.
std::vector<PricedLayout> shuffled_layouts(const std::string& schedule, int microbatches) {
  constexpr std::size_t kCount = 480;
  std::vector<PricedLayout> layouts;
  const auto add = [&](int tp, int pp, int mbs) {
    const int replicas = 1024 / tp / pp;
    const int batch = microbatches > 0 ? microbatches * replicas * mbs : 1536;
    const bool interleaves = schedule != "1f1b";
    if (batch % (replicas * mbs) != 0 || (interleaves && (pp == 1 || batch / replicas / mbs % pp != 0))) return;
    for (const int recompute : {0, 1, 2}) {
      for (const int zero : {0, 1}) {
        for (const int sequence_parallel : {0, 1}) {
          if (tp == 1 && sequence_parallel == 1) continue;
          layouts.push_back({{{"tp", tp},
                              {"pp", pp},
                              {"micro_batch_size", mbs},
                              {"global_batch_size", batch},
                              {"recompute", recompute},
                              {"sequence_parallel", sequence_parallel},
                              {"zero", zero}},
                             schedule});
        }
      }
    }
  };
  for (const int tp : {1, 2, 4, 8}) {
    for (const int pp : {1, 2, 4, 8, 16, 32}) {
      for (const int mbs : {1, 2, 3, 4, 6}) add(tp, pp, mbs);
    }
  }
  std::shuffle(layouts.begin(), layouts.end(), std::mt19937(7));
  if (layouts.size() > kCount) layouts.resize(kCount);
  return layouts;
}

nlohmann::json keys_of(const PricedLayout& layout) {
  nlohmann::json given;
  for (const auto& [name, value] : layout.columns) given[name] = value;
  given["recompute"] = std::vector<const char*>{"none", "selective", "full"}[given["recompute"].get<std::size_t>()];
  given["sequence_parallel"] = given["sequence_parallel"] == 1;
  given["schedule"] = layout.schedule;
  given["dp"] = 1024 / given["tp"].get<int>() / given["pp"].get<int>();
  return given;
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

double microseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

struct Costs {
  std::vector<double> microseconds;
  std::size_t allocations = 0;
};

template <class Question>
Costs cost_of_each(std::size_t count, const Question& ask) {
  Costs costs;
  costs.microseconds.reserve(count);
  const std::size_t before = allocation_count();
  for (std::size_t index = 0; index < count; ++index) {
    const auto begin = std::chrono::steady_clock::now();
    ask(index);
    costs.microseconds.push_back(microseconds_since(begin));
  }
  costs.allocations = (allocation_count() - before) / count;
  return costs;
}

double print_row(const char* name, Costs costs, double other) {
  std::sort(costs.microseconds.begin(), costs.microseconds.end());
  const double median = costs.microseconds[costs.microseconds.size() / 2];
  std::printf("%-66s %4zu %9.1f %9.1f %8zu", name, costs.microseconds.size(), median, costs.microseconds.back(),
              costs.allocations);
  if (other > 0.0) std::printf(" %8.2f", other / median);
  std::printf("\n");
  return median;
}

JobInput job_to_price() {
  JobInput input;
  input.text = nlohmann::json({{"model", "gpt3-175b"},
                               {"cluster", {{"name", "dgx-a100-80g"}, {"nodes", 128}}},
                               {"layout", {{"global_batch_size", 1536}}},
                               {"training", {{"stack", "megatron-2022"}, {"precision", "bf16"}}}})
                   .dump();
  return input;
}

// zhebrak's simulator on the same layouts; empty if it is not installed or cannot run.
Costs costs_of_zhebrak(const std::vector<PricedLayout>& layouts) {
  Costs costs;
  const char* checkout = std::getenv("FLOPCAST_ZHEBRAK");
  if (checkout == nullptr) return costs;
  nlohmann::json list = nlohmann::json::array();
  for (const PricedLayout& layout : layouts) list.push_back(keys_of(layout));
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "flopcast_bench_layouts.json";
  std::ofstream(file) << list;
  const std::string command =
      std::string("node " FLOPCAST_BENCH_FOLDER "/zhebrak_queries.mjs '") + checkout + "' '" + file.string() + "'";
  std::FILE* output = popen(command.c_str(), "r");
  if (output == nullptr) return costs;
  for (double microseconds = 0.0; std::fscanf(output, "%lf", &microseconds) == 1;) {
    if (!std::isnan(microseconds)) costs.microseconds.push_back(microseconds);
  }
  if (pclose(output) != 0) costs.microseconds.clear();
  return costs;
}

// Each layout is priced once, so that caches and branch predictors cannot learn it.
void compare_forecast_and_price() {
  constexpr int kManyMicrobatches = 8192;
  std::printf("%-66s %4s %9s %9s %8s %8s\n", "GPT-3 175B on 1,024 GPUs, each layout once, read before", "of",
              "median us", "most us", "allocs", "ratio");
  std::vector<Job> jobs;
  const std::vector<PricedLayout> plain = shuffled_layouts("1f1b", 0);
  for (const PricedLayout& layout : plain) jobs.push_back(job_of(128, keys_of(layout)));
  const double whole =
      print_row("1f1b: forecast with timeline",
                cost_of_each(jobs.size(),
                             [&](std::size_t index) {
                               benchmark::DoNotOptimize(forecast(jobs[index], no_files).result.iteration.time_s);
                             }),
                0.0);
  print_row("1f1b: time and memory, nothing cached from other layouts",
            cost_of_each(jobs.size(),
                         [&](std::size_t index) {
                           PreparedStep step = prepare_periodic(jobs[index], no_files);
                           price(step);
                           benchmark::DoNotOptimize(evaluate(step, Detail::kTime).time_s);
                         }),
            whole);
  if (const Costs zhebrak = costs_of_zhebrak(plain); zhebrak.microseconds.empty()) {
    std::printf("zhebrak's simulator did not run: FLOPCAST_ZHEBRAK is not a usable checkout\n");
  } else {
    print_row("1f1b: zhebrak's simulator, second pass, Node.js", zhebrak, whole);
  }
  for (const char* schedule : {"1f1b", "interleaved:3"}) {
    for (const int microbatches : {0, kManyMicrobatches}) {
      const std::vector<PricedLayout> layouts = shuffled_layouts(schedule, microbatches);
      LayoutPricer pricer(job_to_price());
      const std::string name =
          std::string(schedule) + ": time and memory, schedule orders cached" + (microbatches > 0 ? ", m 8,192" : "");
      print_row(
          name.c_str(),
          cost_of_each(layouts.size(),
                       [&](std::size_t index) {
                         benchmark::DoNotOptimize(pricer.price(layouts[index].columns, layouts[index].schedule).time_s);
                       }),
          whole);
    }
  }
}

// Schedules whose time is not extrapolated from fewer microbatches: they are simulated entirely.
void list_schedules_played_whole() {
  std::printf("simulated entirely, because the period of their order is unknown:");
  for (const ScheduleInfo& info : schedule_catalogue()) {
    Job job = large_job();
    job.layout.schedule = info.name;
    job.layout.global_batch_size = 512 * job.layout.dp * job.layout.micro_batch_size;
    if (!prepare_periodic(std::move(job), no_files).repetition) std::printf(" %s", std::string(info.name).c_str());
  }
  std::printf("\n");
}

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

// Returns true if the engine and the lowering allocate nothing once their buffers have grown.
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
        "%d microbatches on %d ranks: %.1f bytes of graph and 16 of result per action; allocations of another "
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
  compare_forecast_and_price();
  list_schedules_played_whole();
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
