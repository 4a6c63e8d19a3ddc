#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "sim/forecast/forecast.hpp"
#include "sim/forecast/terms.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/program/validate.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

Forecast forecast_of(const std::string& layout, const std::string& overlap) {
  return forecast(job_from(R"({"model": "mixtral-8x7b", "cluster": "4xdgx-h100", "layout": )" + layout +
                           R"(, "training": {"sequence_length": 4096, "stack": "nemo", "overlap": {"experts": ")" +
                           overlap + R"("}}})"),
                  no_files);
}

bool warns(const Forecast& answer, const std::string& words) {
  return std::any_of(answer.result.warnings.begin(), answer.result.warnings.end(),
                     [&words](const std::string& warning) { return warning.find(words) != std::string::npos; });
}

double sum(const Breakdown& breakdown) {
  double total = 0.0;
  for (const StepTerm& term : breakdown_terms()) total += breakdown.*term.spent;
  return total;
}

constexpr const char* kOneRank = R"({"ep": 8, "global_batch_size": 256})";
constexpr const char* kInterleaved =
    R"({"pp": 4, "vpp": 2, "ep": 8, "schedule": "interleaved", "global_batch_size": 256})";

TEST(ExpertPairs, ShortenAStep) {
  for (const char* layout : {kOneRank, kInterleaved}) {
    const Forecast none = forecast_of(layout, "none");
    const Forecast paired = forecast_of(layout, "1f1b");
    const Result& before = none.result;
    const Result& after = paired.result;
    EXPECT_FALSE(find_fault(paired.step.program));
    EXPECT_LT(after.iteration.time_s, before.iteration.time_s);
    EXPECT_LT(after.breakdown.ep_comm_s, 0.6 * before.breakdown.ep_comm_s);
    EXPECT_GT(after.breakdown.ep_comm_s, 0.0) << "the first and the last pass have no partner";
    EXPECT_GT(after.breakdown.compute_s, before.breakdown.compute_s) << "the exchanges occupy multiprocessors";
    EXPECT_DOUBLE_EQ(after.communication.ep.total_s, before.communication.ep.total_s);
    for (const Result* result : {&before, &after}) {
      EXPECT_NEAR(sum(result->breakdown), result->iteration.time_s, 1e-9 * result->iteration.time_s);
    }
    // Layer by layer, the forward pass fills what the backward pass frees.
    EXPECT_GE(after.memory.peak_gib, before.memory.peak_gib);
    EXPECT_LT(after.memory.peak_gib, before.memory.peak_gib * 1.1);
  }
}

// Pairs of neighbouring ranks would wait for each other alternately; Megatron Core refuses them.
TEST(ExpertPairs, NeedVirtualStagesInAPipeline) {
  const std::string plain = R"({"pp": 4, "ep": 8, "global_batch_size": 256})";
  const Forecast none = forecast_of(plain, "none");
  const Forecast asked = forecast_of(plain, "1f1b");
  EXPECT_DOUBLE_EQ(asked.result.iteration.time_s, none.result.iteration.time_s);
  EXPECT_TRUE(warns(asked, "training.overlap.experts 1f1b hides nothing"));
  EXPECT_FALSE(warns(none, "hides nothing"));
  EXPECT_FALSE(warns(forecast_of(kInterleaved, "1f1b"), "hides nothing"));
  EXPECT_TRUE(warns(forecast_of(R"({"ep": 8, "global_batch_size": 32})", "1f1b"), "hides nothing")) << "one microbatch";
}

// A dispatch and a combine for each layer, microbatch and direction, each as long as it takes alone, or longer if
// overlapped with computation, and none before the one it follows.
TEST(ExpertPairs, ShowTheirExchanges) {
  for (const char* overlap : {"none", "1f1b", "1f1b_delayed"}) {
    const Forecast answer = forecast_of(kInterleaved, overlap);
    const ExpertLayer& layer = answer.step.costs.stages[1].expert_layer;
    int dispatches = 0;
    int combines = 0;
    for (const std::vector<Span>& spans : answer.timeline.ranks) {
      Ticks free_from = 0;
      for (const Span& span : spans) {
        if (span.stream != StreamKind::kExperts) continue;
        ASSERT_TRUE(is_exchange(span.kind));
        EXPECT_GE(span.start, free_from - 2) << "one at a time";
        free_from = span.end;
        const bool dispatch = span.kind == SpanKind::kDispatch;
        (dispatch ? dispatches : combines) += 1;
        const double alone = (dispatch ? layer.dispatch : layer.combine).value() * kTicksPerSecond;
        EXPECT_GE(static_cast<double>(span.end - span.start), alone * 0.999);
        EXPECT_LE(static_cast<double>(span.end - span.start), alone * (1.001 + layer.exchange_slower));
      }
    }
    // 32 layers, forward and backward, of 32 microbatches.
    EXPECT_EQ(dispatches, 32 * 2 * 32) << overlap;
    EXPECT_EQ(combines, 32 * 2 * 32) << overlap;
    EXPECT_EQ(measure(answer.timeline).makespan, answer.timeline.makespan());
    EXPECT_NEAR(static_cast<double>(answer.timeline.makespan()) * kSecondsPerTick, answer.result.iteration.time_s,
                1e-9);
  }
}

// A pass with a partner computes while its tokens are sent; a pass alone does not.
TEST(ExpertPairs, LieInsideTheirPasses) {
  const Forecast answer = forecast_of(kOneRank, "1f1b");
  const std::vector<Span>& spans = answer.timeline.ranks.front();
  for (const Span& span : spans) {
    if (!is_exchange(span.kind)) continue;
    const bool inside = std::any_of(spans.begin(), spans.end(), [&span](const Span& pass) {
      const bool same = is_action(pass.kind) && pass.action.microbatch == span.action.microbatch &&
                        (pass.kind == SpanKind::kForward) == (span.action.kind == ActionKind::kForward);
      return same && pass.start <= span.start && span.end <= pass.end;
    });
    EXPECT_TRUE(inside) << name_of(span.kind) << " of " << to_string(span.action);
  }
}

}  // namespace
}  // namespace flopcast
