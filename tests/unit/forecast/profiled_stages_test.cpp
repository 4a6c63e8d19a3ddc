// Passes of a stage compared with the profiled T_F, T_B and T_W of Qi et al. 2401.10241 (appendix), means over 8 stages
// of A100s, 24 microbatches: separate forward, input gradient and weight gradient times, which step times alone do not
// reveal.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "sim/forecast/forecast.hpp"
#include "sim/lower/lower.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

struct Profiled {
  int layers, hidden, heads, micro_batch;
  double forward_ms, input_gradient_ms, weight_gradient_ms, transfer_ms;
  double idle_share_1f1b, idle_share_zb_h1;  ///< computed by the paper from these times (Table 5)
};
constexpr Profiled kProfiled[] = {{22, 2304, 24, 6, 18.522, 18.086, 9.337, 0.601, 0.2431, 0.1585},
                                  {30, 4096, 32, 3, 29.718, 29.444, 19.927, 0.527, 0.2347, 0.1323}};
constexpr int kStages = 8;
constexpr int kMicrobatches = 24;

Forecast forecast_of(const Profiled& model) {
  const int each = (model.layers + 2) / kStages;  // embedding and head count as a layer
  std::string stages = fmt::format("{}", each - 1);
  for (int stage = 1; stage + 1 < kStages; ++stage) stages += fmt::format(", {}", each);
  stages += fmt::format(", {}", each - 1);
  const std::string job = fmt::format(
      R"({{"model": {{"layers": {}, "hidden": {}, "heads": {}, "vocab": 32000, "sequence_length": 1024}},
          "cluster": "dgx-a100-80g", "training": {{"precision": "fp16", "stack": "zero-bubble"}},
          "layout": {{"pp": {}, "schedule": "zb-h1", "micro_batch_size": {}, "global_batch_size": {},
                     "stage_layers": [{}]}}}})",
      model.layers, model.hidden, model.heads, kStages, model.micro_batch, model.micro_batch * kMicrobatches, stages);
  return forecast(job_from(job), no_files);
}

TEST(ProfiledStages, PassesTakeWhatWasMeasured) {
  for (const Profiled& model : kProfiled) {
    SCOPED_TRACE(model.hidden);
    const Forecast answer = forecast_of(model);
    double forward = 0.0;
    double input = 0.0;
    double weight = 0.0;
    for (const StageCosts& stage : answer.step.costs.stages) {
      constexpr double kMillisecond = 1e-3;
      forward += stage.forward.total().value() / kMillisecond / kStages;
      input += (stage.input_gradient.total() + stage.split_slowdown).value() / kMillisecond / kStages;
      weight += stage.weight_gradient.total().value() / kMillisecond / kStages;
    }
    constexpr double kNear = 0.06;
    constexpr double kNearer = 0.03;
    EXPECT_NEAR(forward / model.forward_ms, 1.0, kNear);
    EXPECT_NEAR(input / model.input_gradient_ms, 1.0, kNear);
    EXPECT_NEAR(weight / model.weight_gradient_ms, 1.0, kNearer);
    EXPECT_NEAR((forward + input + weight) / (model.forward_ms + model.input_gradient_ms + model.weight_gradient_ms),
                1.0, kNearer);
    const double transfer = answer.step.costs.boundaries.front().forward.value() / 1e-3;
    EXPECT_NEAR(transfer / model.transfer_ms, 1.0, 0.15);
  }
}

// The figures above are the paper's own: the idle shares computed from them match its four digits.
TEST(ProfiledStages, GiveTheIdleSharesOfThePaper) {
  for (const Profiled& model : kProfiled) {
    const auto microseconds = [](double ms) { return static_cast<Ticks>(std::llround(ms * 1e3)); };
    StageTimes passes;
    passes.forward = microseconds(model.forward_ms);
    passes.input_gradient = microseconds(model.input_gradient_ms);
    passes.weight_gradient = microseconds(model.weight_gradient_ms);
    passes.backward = passes.input_gradient + passes.weight_gradient;
    StepTimes times;
    times.stages.assign(kStages, passes);
    times.boundaries.assign(kStages - 1, {microseconds(model.transfer_ms), microseconds(model.transfer_ms)});
    const auto idle_share = [&](const char* schedule) {
      ScheduleRequest request;
      request.pipeline_ranks = kStages;
      request.microbatches = kMicrobatches;
      const Ticks makespan = run(lower(generate_schedule(*find_schedule(schedule), request), times).graph).makespan;
      const double busy = static_cast<double>(kMicrobatches * (passes.forward + passes.backward));
      return 1.0 - busy / static_cast<double>(makespan);
    };
    EXPECT_NEAR(idle_share("1f1b"), model.idle_share_1f1b, 5e-5);
    EXPECT_NEAR(idle_share("zb-h1"), model.idle_share_zb_h1, 5e-5);
  }
}

}  // namespace
}  // namespace flopcast
