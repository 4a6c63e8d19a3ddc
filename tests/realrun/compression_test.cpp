// Training with compressed gradients, compared with a serial reference without ranks, messages or buckets: it computes
// each replica's gradients, applies the definition of the compression to plain vectors, and updates.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/network/network.hpp"
#include "tests/realrun/compression_reference.hpp"
#include "tests/realrun/plans.hpp"

namespace flopcast::realrun {
namespace {

class SerialReplicas {
 public:
  explicit SerialReplicas(const TrainingPlan& plan) : plan_(plan) {
    for (const StagePart& part : split_network(plan.stage_blocks)) {
      Stage stage;
      stage.layers = std::make_unique<Sequence<float>>(build_stage<float>(plan.network, part, {.group = &alone_}));
      stage.layers->declare(stage.list);
      stage.weights.resize(stage.list.size());
      initialise(stage.list, plan.network.seed, stage.weights.data());
      stage.velocity.resize(stage.weights.size());
      stage.kept.resize(static_cast<std::size_t>(plan.dp));
      stages_.push_back(std::move(stage));
    }
  }

  // Returns the mean loss of the step.
  double run_step(int step) {
    double loss = 0;
    for (Stage& stage : stages_) stage.gradients.clear();
    for (int replica = 0; replica < plan_.dp; ++replica) {
      for (Stage& stage : stages_) stage.gradients.emplace_back(stage.weights.size());
      for (int microbatch = 0; microbatch < plan_.microbatches(); ++microbatch) {
        const int sample = ((step * plan_.dp + replica) * plan_.microbatches() + microbatch) * plan_.micro_batch_size;
        const Corpus corpus{plan_.network.vocab, plan_.network.sequence, plan_.network.seed};
        loss += run(corpus.microbatch(static_cast<std::uint64_t>(sample), plan_.micro_batch_size));
      }
    }
    for (Stage& stage : stages_) update(stage);
    return loss / plan_.microbatches_per_update();
  }

  std::map<std::string, Values> weights() const {
    std::map<std::string, Values> named;
    for (const Stage& stage : stages_) {
      for (const Parameter& parameter : stage.list.parameters()) {
        const float* first = stage.weights.data() + parameter.offset;
        named[parameter.name] = {first, first + parameter.shard.count()};
      }
    }
    return named;
  }

 private:
  struct Stage {
    LayerPointer<float> layers;
    ParameterList list;
    Values weights;
    Values velocity;
    std::vector<Values> gradients;  // by replica
    std::vector<Values> kept;       // by replica
    std::map<std::string, LowRankSum> low_rank;
    Saved<float> saved;
  };

  double run(const Microbatch& data) {
    Loss loss;
    const auto pass = [&](Stage& stage) {
      return Pass<float>{.weights = stage.weights.data(),
                         .gradients = stage.gradients.back().data(),
                         .data = &data,
                         .loss_weight = 1.0F / static_cast<float>(plan_.microbatches_per_update()),
                         .loss = &loss};
    };
    Tensor<float> flow;
    for (Stage& stage : stages_) {
      stage.saved = {};
      flow = stage.layers->forward(flow, pass(stage), stage.saved);
    }
    for (std::size_t index = stages_.size(); index-- > 0;) {
      Stage& stage = stages_[index];
      flow = stage.layers->input_gradient(flow, pass(stage), stage.saved);
      stage.layers->weight_gradient(pass(stage), stage.saved);
    }
    return loss();
  }

  Values sum_of(Stage& stage) const {
    const Compression& compression = plan_.compression;
    switch (compression.kind) {
      case Compression::Kind::kQuantized:
        return quantized_sum(stage.gradients, compression.bits);
      case Compression::Kind::kTopK:
        return sparse_sum(stage.gradients, stage.kept, compression.fraction);
      default:
        return low_rank_sum(stage);
    }
  }

  Values low_rank_sum(Stage& stage) const {
    Values sum(stage.weights.size());
    for (const Parameter& parameter : stage.list.parameters()) {
      const auto first = static_cast<std::ptrdiff_t>(parameter.offset);
      const auto last = first + static_cast<std::ptrdiff_t>(parameter.shard.count());
      std::vector<Values> gradients;
      for (const Values& replica : stage.gradients)
        gradients.emplace_back(replica.begin() + first, replica.begin() + last);
      const std::size_t rows = parameter.shard.rows;
      const std::size_t columns = parameter.shard.columns;
      const auto rank = static_cast<std::size_t>(plan_.compression.rank);
      Values summed(parameter.shard.count());
      // Only matrices multiplied with activations have two factors, and only if these are smaller.
      const bool table = parameter.name.rfind("embedding.", 0) == 0;
      if (rows > 1 && !table && rank * (rows + columns) < rows * columns) {
        summed = stage.low_rank.try_emplace(parameter.name, rows, columns, plan_.compression.rank, gradients.size())
                     .first->second(gradients);
      } else {
        for (const Values& replica : gradients) {
          for (std::size_t index = 0; index < summed.size(); ++index) summed[index] += replica[index];
        }
      }
      std::copy(summed.begin(), summed.end(), sum.begin() + first);
    }
    return sum;
  }

  void update(Stage& stage) const {
    const Values gradients = sum_of(stage);
    for (std::size_t index = 0; index < gradients.size(); ++index) {
      stage.velocity[index] = plan_.optimizer.momentum * stage.velocity[index] + gradients[index];
      stage.weights[index] -= plan_.optimizer.rate * stage.velocity[index];
    }
  }

  const TrainingPlan& plan_;
  TensorGroup alone_;
  std::vector<Stage> stages_;
};

TrainingPlan replicated(int dp, int pipeline_ranks, const Compression& compression) {
  ScheduleRequest request;
  request.pipeline_ranks = pipeline_ranks;
  request.microbatches = 3;
  TrainingPlan plan = plan_for(tiny_transformer(4), *find_schedule("1f1b"), request);
  plan.dp = dp;
  plan.compression = compression;
  plan.steps = 5;
  return plan;
}

TEST(CompressedRun, EqualsItsSerialDefinitionBitByBit) {
  int runs = 0;
  for (const Compression& compression : {quantized(8), quantized(4), top(0.01), top(0.3)}) {
    for (const int dp : {2, 3}) {
      for (const int pipeline_ranks : {1, 2, 4}) {
        const TrainingPlan plan = replicated(dp, pipeline_ranks, compression);
        const std::string what = fmt::format("{} dp={} pp={}", compression.text(), dp, pipeline_ranks);
        const std::vector<RankResult> ranks = train_on_threads(plan, {});
        SerialReplicas serial(plan);
        const std::vector<double> losses = mean_losses(ranks);
        for (int step = 0; step < plan.steps; ++step) {
          EXPECT_NEAR(losses[static_cast<std::size_t>(step)], serial.run_step(step), 1e-12) << what;
        }
        EXPECT_EQ(whole_weights(ranks), serial.weights()) << what;
        ++runs;
      }
    }
  }
  std::cout << runs << " runs equal to their reference\n";
}

// 32-bit products compared with 64-bit sums.
TEST(CompressedRun, PowerSgdEqualsItsSerialDefinition) {
  int runs = 0;
  for (const int rank : {1, 2, 3}) {
    for (const int dp : {2, 3}) {
      for (const int pipeline_ranks : {1, 2}) {
        for (const int bucket_bytes : {700, 1 << 20}) {
          TrainingPlan plan = replicated(dp, pipeline_ranks, {.kind = Compression::Kind::kPowerSgd, .rank = rank});
          plan.bucket_bytes = bucket_bytes;
          const std::string what = fmt::format("rank {} dp={} pp={}", rank, dp, pipeline_ranks);
          const std::vector<RankResult> ranks = train_on_threads(plan, {});
          SerialReplicas serial(plan);
          const std::vector<double> losses = mean_losses(ranks);
          for (int step = 0; step < plan.steps; ++step) {
            EXPECT_NEAR(losses[static_cast<std::size_t>(step)], serial.run_step(step), 1e-5) << what;
          }
          const std::map<std::string, Values> expected = serial.weights();
          for (const auto& [name, values] : whole_weights(ranks)) {
            for (std::size_t index = 0; index < values.size(); ++index) {
              ASSERT_NEAR(values[index], expected.at(name)[index], kRounding) << what << ", " << name;
            }
          }
          ++runs;
        }
      }
    }
  }
  EXPECT_EQ(runs, 24);
}

// This would fail without error feedback, or with factors that keep their initial values.
TEST(CompressedRun, PowerSgdLeavesOutLittleInTheLongRun) {
  TrainingPlan plan = replicated(2, 2, {.kind = Compression::Kind::kPowerSgd, .rank = 1});
  plan.steps = 30;
  const double compressed = mean_losses(train_on_threads(plan, {})).back();
  plan.compression = {};
  const std::vector<double> plain = mean_losses(train_on_threads(plan, {}));
  EXPECT_LT(std::abs(compressed - plain.back()), 0.2 * (plain.front() - plain.back()));
}

TEST(CompressedRun, SendingEverythingIsNoCompression) {
  const auto expect_equal = [](TrainingPlan plan, const std::string& what) {
    plan.bucket_bytes = 700;
    const std::vector<RankResult> compressed = train_on_threads(plan, {});
    plan.compression = {};
    const std::vector<RankResult> plain = train_on_threads(plan, {});
    EXPECT_EQ(whole_weights(compressed), whole_weights(plain)) << what;
    EXPECT_EQ(mean_losses(compressed), mean_losses(plain)) << what;
  };
  for (const bool tied : {false, true}) {
    for (const bool sequence_parallel : {false, true}) {
      TrainingPlan plan = replicated(2, 2, top(1.0));
      plan.network.tied_embeddings = tied;
      plan.tp = 2;
      plan.sequence_parallel = sequence_parallel;
      expect_equal(plan, fmt::format("tied {}, sequence parallel {}", tied, sequence_parallel));
    }
  }
  for (const char* name : {"pipedream", "pipedream-2bw", "interleaved"}) {
    ScheduleRequest request;
    request.pipeline_ranks = 2;
    request.microbatches = 4;
    const ScheduleInfo& info = *find_schedule(name);
    if (std::string(name) == "interleaved") request.chunks = 2;
    if (std::string(name) == "pipedream-2bw") request.accumulation = 2;
    TrainingPlan plan = plan_for(tiny_transformer(4), info, request);
    plan.dp = 2;
    plan.compression = top(1.0);
    expect_equal(plan, name);
  }
}

TEST(CompressedRun, CopiesStayEqualInEveryLayout) {
  const Compression low_rank = {.kind = Compression::Kind::kPowerSgd, .rank = 2};
  for (const Compression& compression : {quantized(8), quantized(4), top(0.05), low_rank}) {
    for (const bool tied : {false, true}) {
      TrainingPlan plan = replicated(2, 2, compression);
      plan.network.tied_embeddings = tied;
      plan.tp = 2;
      plan.bucket_bytes = 600;
      EXPECT_FALSE(whole_weights(train_on_threads(plan, {})).empty());
    }
  }
}

TEST(CompressedRun, LearnsTheTextAllTheSame) {
  for (const Compression& compression : {quantized(8), quantized(4), top(0.05)}) {
    TrainingPlan plan = replicated(2, 2, compression);
    plan.steps = 60;
    plan.micro_batch_size = 4;
    plan.network.layers = 2;
    plan.stage_blocks = {1, 1};
    plan.optimizer = {.kind = Optimizer::kAdam, .rate = 0.02F};
    const std::vector<double> losses = mean_losses(train_on_threads(plan, {}));
    EXPECT_GT(losses.front(), 2.0);
    EXPECT_LT(losses.back(), 1.3) << compression.text();
  }
}

TEST(CompressedRun, OneReplicaSendsAndChangesNothing) {
  TrainingPlan plan = replicated(1, 2, quantized(4));
  const std::vector<RankResult> compressed = train_on_threads(plan, {});
  EXPECT_EQ(compressed.front().steps.front().traffic.bytes_of(Axis::kData), 0U);
  plan.compression = {};
  EXPECT_EQ(whole_weights(compressed), whole_weights(train_on_threads(plan, {})));
}

TEST(CompressedRun, ReductionsAreSpansOfTheGradientStream) {
  for (const Compression& compression : {quantized(8), top(0.05)}) {
    const std::vector<RankResult> ranks = train_on_threads(replicated(2, 2, compression), {});
    const Timeline timeline = timeline_of(ranks, 0);
    for (const std::vector<Span>& spans : timeline.ranks) {
      const auto count = std::count_if(spans.begin(), spans.end(),
                                       [](const Span& span) { return span.kind == SpanKind::kGradientReduction; });
      EXPECT_EQ(count, compression.kind == Compression::Kind::kQuantized ? 2 : 1);
    }
  }
}

void expect_refusal(const TrainingPlan& plan, const std::string& text) {
  try {
    check_plan(plan);
    FAIL() << "accepted instead of refused with: " << text;
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(CompressedRun, RefusesZero) {
  for (const int zero : {1, 2, 3}) {
    TrainingPlan plan = replicated(2, 2, quantized(8));
    plan.zero = zero;
    expect_refusal(plan, "layout.compression: 8bit replaces an all-reduce of whole gradients");
  }
  EXPECT_NO_THROW(check_plan(replicated(2, 2, top(0.5))));
}

}  // namespace
}  // namespace flopcast::realrun
