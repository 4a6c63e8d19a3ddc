// Time to generate each schedule of the catalogue for 64 pipeline ranks and 1,024 microbatches, or for the nearest
// request that it accepts: google-benchmark's flags apply (--benchmark_filter …).
#include <benchmark/benchmark.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "sim/schedules/catalogue.hpp"

namespace flopcast {
namespace {

constexpr int kRanks = 64;
constexpr int kMicrobatches = 1024;

// Tries more microbatches, then fewer ranks, until the schedule accepts the request.
std::optional<ScheduleRequest> nearest_request(const ScheduleInfo& info, const std::string& variant) {
  for (int ranks = kRanks; ranks > 0; --ranks) {
    for (int microbatches = kMicrobatches; microbatches <= 2 * kMicrobatches; ++microbatches) {
      ScheduleRequest request;
      request.pipeline_ranks = ranks;
      request.microbatches = microbatches;
      request.chunks = info.default_chunks;
      request.variant = variant;
      if (!refuse_request(info, request)) return request;
    }
  }
  return std::nullopt;
}

void generate(benchmark::State& state, const ScheduleInfo& info, const ScheduleRequest& request) {
  std::size_t actions = 0;
  for (auto _ : state) {
    const Program program = info.generate(request);
    actions = program.action_count();
    benchmark::DoNotOptimize(program.ranks.data());
  }
  state.counters["actions"] = static_cast<double>(actions);
  state.counters["ranks"] = request.pipeline_ranks;
  state.counters["microbatches"] = request.microbatches;
}

void register_all() {
  for (const ScheduleInfo& info : schedule_catalogue()) {
    std::vector<std::string> variants(info.variants.begin(), info.variants.end());
    if (variants.empty()) variants.emplace_back();
    for (const std::string& variant : variants) {
      const std::string name = std::string(info.name) + (variant.empty() ? "" : ":" + variant);
      const std::optional<ScheduleRequest> request = nearest_request(info, variant);
      benchmark::RegisterBenchmark(name.c_str(), [&info, request](benchmark::State& state) {
        if (request) {
          generate(state, info, *request);
        } else {
          state.SkipWithError("no request near 64 ranks and 1,024 microbatches");
        }
      })->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace
}  // namespace flopcast

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  flopcast::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
