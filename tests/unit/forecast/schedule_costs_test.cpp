// Effects of a schedule on a job's costs: gathers of sharded weights, two copies of the model, token slices.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "sim/forecast/forecast.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

// 32 GPUs in 4 nodes, a model of 32 layers and 1024 features; without tied tables, so that stages add up.
Forecast forecast_of_layers(const std::string& layout, const std::string& model = R"(, "tied_embeddings": false)",
                            const std::string& cluster = "") {
  const std::string job = R"({"model": {"layers": 32, "hidden": 1024, "heads": 16, "vocab": 51200,
      "sequence_length": 1024)" +
                          model + R"(}, "cluster": {"name": "dgx-a100-80g", "nodes": 4)" + cluster + R"(},
      "training": {"precision": "fp16", "stack": "deepspeed"}, "layout": {)" +
                          layout + "}}";
  return forecast(job_from(job), no_files);
}

double parameters(const Forecast& answer) {
  double sum = 0.0;
  for (const FlushCosts& rank : answer.step.costs.ranks) sum += rank.parameters;
  return sum;
}

constexpr double kBytes = 2.0;  // per weight or gradient
constexpr double kRanks = 4.0;
constexpr double kReplicas = 8.0;

// 8 microbatches on 4 pipeline ranks with 8 replicas of sharded weights.
Forecast sharded(const std::string& schedule, const std::string& cluster = "") {
  return forecast_of_layers(
      R"("data_parallel": "fsdp", "pp": 4, "global_batch_size": 64, "schedule": ")" + schedule + "\"",
      R"(, "tied_embeddings": false)", cluster);
}

// In units of the bytes sent by one gather of a rank's weights.
double gathers_and_scatters(const Forecast& answer) {
  const double once = parameters(answer) / kRanks * kBytes * (kReplicas - 1) / kReplicas;
  return answer.result.communication.dp.bytes_sent_per_rank / once;
}

TEST(ShardedWeights, AreGatheredOncePerDirectionWhereMicrobatchesRunInARow) {
  // Two gathers and a reduce-scatter for each microbatch, or for each stage.
  EXPECT_NEAR(gathers_and_scatters(sharded("1f1b")), 3.0 * 8, 1e-3);
  EXPECT_NEAR(gathers_and_scatters(sharded("interleaved:2")), 3.0 * 8, 1e-3);
  EXPECT_NEAR(gathers_and_scatters(sharded("dualpipev")), 3.0 * 8, 1e-3);
  EXPECT_NEAR(gathers_and_scatters(sharded("bfs:2")), 3.0, 1e-3);
  EXPECT_NEAR(gathers_and_scatters(sharded("bfs:4:fifo")), 3.0, 1e-3);
  EXPECT_NEAR(gathers_and_scatters(sharded("gpipe")), 3.0, 1e-3);
  EXPECT_NEAR(gathers_and_scatters(sharded("terapipe")), 3.0, 1e-3) << "slices are not microbatches";
  EXPECT_NEAR(
      gathers_and_scatters(forecast_of_layers(R"("data_parallel": "fsdp", "reshard_after_forward": false, "pp": 4,
      "global_batch_size": 64, "schedule": "bfs")")),
      2.0, 1e-3);
}

TEST(ShardedWeights, AreWholeInMemoryForARowOfMicrobatches) {
  const Forecast row = sharded("bfs:2");
  const Forecast each = sharded("interleaved:2");
  const StageCosts& last = row.step.costs.stages.back();
  EXPECT_DOUBLE_EQ(last.gathered_weights.value(), 2 * kBytes * last.parameters) << "in use and being gathered";
  EXPECT_DOUBLE_EQ(last.gathered_gradients.value(), 2 * kBytes * last.parameters);
  EXPECT_LT(each.step.costs.stages.back().gathered_weights, last.gathered_weights);
  EXPECT_DOUBLE_EQ(sharded("gpipe").step.costs.stages.back().gathered_weights.value(),
                   kBytes * sharded("gpipe").step.costs.stages.back().parameters);
}

TEST(ShardedWeights, HideBehindARowOfMicrobatches) {
  const std::string slow_links = R"(, "intra_bandwidth": "5 GB/s")";
  const Forecast row = sharded("bfs:2", slow_links);
  const Forecast each = sharded("interleaved:2", slow_links);
  EXPECT_LT(row.result.breakdown.dp_comm_s, 0.5 * each.result.breakdown.dp_comm_s);
  EXPECT_LT(row.result.iteration.time_s, each.result.iteration.time_s);
}

TEST(ShardedWeights, OfARowAreExposedLikeOnePass) {
  // Links so slow that nothing hides: a row exposes as much as it sends, minus what its own passes cover.
  const std::string slow_links = R"(, "intra_bandwidth": "20 MB/s")";
  for (const char* schedule : {"bfs:2", "bfs:4", "gpipe", "1f1b"}) {
    const Forecast answer = sharded(schedule, slow_links);
    const AxisCommunication& sent = answer.result.communication.dp;
    EXPECT_LE(sent.exposed_s, sent.total_s) << schedule;
    EXPECT_GE(sent.exposed_s, 0.9 * sent.total_s) << schedule;
  }
}

TEST(ShardedWeights, OfOneMicrobatchAreGatheredByLayers) {
  const auto one = [](const std::string& schedule) {
    return forecast_of_layers(R"("data_parallel": "fsdp", "pp": 4, "global_batch_size": 8, "schedule": ")" + schedule +
                              "\"");
  };
  EXPECT_EQ(one("gpipe").step.costs.stages.back().gathered_weights,
            one("1f1b").step.costs.stages.back().gathered_weights);
  EXPECT_DOUBLE_EQ(one("gpipe").result.iteration.time_s, one("1f1b").result.iteration.time_s);
  // Two of 1f1b's microbatches run in a row on the first ranks, but not on the last.
  const Forecast few =
      forecast_of_layers(R"("data_parallel": "fsdp", "pp": 4, "global_batch_size": 16, "schedule": "1f1b")");
  EXPECT_NEAR(gathers_and_scatters(few), 3.0 * 2, 1e-3);
}

class TwoCopies : public testing::TestWithParam<std::string> {
 protected:
  static Forecast of(const std::string& schedule, const std::string& layout = R"("tp": 8)",
                     const std::string& model = R"(, "tied_embeddings": false)") {
    return forecast_of_layers(layout + R"(, "pp": 4, "global_batch_size": 32, "schedule": ")" + schedule + "\"", model);
  }
};

TEST_P(TwoCopies, HoldEveryParameterTwice) {
  for (const std::string model : {R"(, "tied_embeddings": false)", ""}) {
    const Forecast two = of(GetParam(), R"("tp": 8)", model);
    const Forecast one = of("1f1b", R"("tp": 8)", model);
    // Tied: 1f1b has the table on its first and its last rank; each copy's rank has it for both its ends.
    const double table = model.empty() ? one.step.costs.stages.front().embedding_parameters : 0.0;
    EXPECT_NEAR(parameters(two), 2 * parameters(one) - 2 * table, 1.0);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      EXPECT_NEAR(two.step.costs.ranks[rank].parameters, two.step.costs.ranks[3 - rank].parameters, 1.0);
      EXPECT_DOUBLE_EQ(two.step.costs.ranks[rank].embedding_reduction.value(), 0.0);
      const RankMemoryResult& memory = two.result.memory.per_pipeline_rank[rank];
      EXPECT_NEAR(memory.weights_gib, gibibytes(Bytes(kBytes * two.step.costs.ranks[rank].parameters)), 1e-9);
    }
  }
}

TEST_P(TwoCopies, AddUpTheirGradients) {
  const Forecast two = of(GetParam());
  // One replica: an all-reduce over the two ranks that hold a stage sends 2 (2 - 1) / 2 of the gradients.
  const double norm = of("1f1b").result.communication.dp.bytes_sent_per_rank;
  EXPECT_NEAR(two.result.communication.dp.bytes_sent_per_rank - norm, kBytes * parameters(two) / kRanks, 1.0);
  for (const FlushCosts& rank : two.step.costs.ranks) EXPECT_GT(rank.gradient_reduction.value(), 0.0);
  // Replicas reduce first: 2 (n - 1) / n, or, with sharded optimizer state, half of it and 1/n between the copies.
  const Forecast plain = of(GetParam(), R"("tp": 2)");
  EXPECT_NEAR(plain.result.communication.dp.bytes_sent_per_rank / (kBytes * parameters(plain) / kRanks),
              2.0 * 3 / 4 + 1.0, 1e-6);
  const Forecast zero1 = of(GetParam(), R"("tp": 2, "zero": 1)");
  EXPECT_NEAR(zero1.result.communication.dp.bytes_sent_per_rank / (kBytes * parameters(zero1) / kRanks),
              3.0 / 4 + 3.0 / 4 + 1.0 / 4, 1e-6);
}

TEST_P(TwoCopies, ShareTheMicrobatches) {
  const Forecast two = of(GetParam());
  const Forecast one = of("1f1b");
  EXPECT_NEAR(two.result.iteration.model_tflops_per_gpu * two.result.iteration.time_s,
              one.result.iteration.model_tflops_per_gpu * one.result.iteration.time_s, 1e-9);
  EXPECT_NEAR(two.result.communication.pp.bytes_sent_per_rank, one.result.communication.pp.bytes_sent_per_rank, 1e-3);
  EXPECT_NEAR(two.result.breakdown.compute_s, one.result.breakdown.compute_s, 1e-9);
  EXPECT_LT(two.result.breakdown.bubble_s, one.result.breakdown.bubble_s);
}

INSTANTIATE_TEST_SUITE_P(Schedules, TwoCopies, testing::Values("dualpipe", "chimera", "chimera:doubling"));

TEST(CopiesOfTheModel, NeedAnEvenNumberOfMicrobatches) {
  try {
    forecast_of_layers(R"("tp": 8, "pp": 4, "global_batch_size": 15, "schedule": "chimera")");
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.diagnostic().field, "layout.schedule");
    EXPECT_NE(error.diagnostic().help.find("14 or 16 microbatches"), std::string::npos) << error.what();
  }
}

TEST(TokenSlices, TakeTheirShareOfTheMicrobatch) {
  const auto of = [](const std::string& schedule) {
    return forecast_of_layers(R"("tp": 8, "pp": 4, "global_batch_size": 8, )" + schedule);
  };
  const Forecast whole = of(R"("schedule": "gpipe:lifo")");
  const Forecast sliced = of(R"("schedule": "terapipe", "slices": 8)");
  for (std::size_t stage = 0; stage < 4; ++stage) {
    EXPECT_NEAR(static_cast<double>(sliced.step.times.stages[stage].forward) * 8,
                static_cast<double>(whole.step.times.stages[stage].forward), 8.0);
    EXPECT_NEAR(static_cast<double>(sliced.step.times.stages[stage].backward) * 8,
                static_cast<double>(whole.step.times.stages[stage].backward), 8.0);
    EXPECT_NEAR(sliced.result.memory.per_pipeline_rank[stage].activations_gib,
                whole.result.memory.per_pipeline_rank[stage].activations_gib, 1e-9);
    EXPECT_EQ(sliced.result.memory.per_pipeline_rank[stage].peak_in_flight, 8) << "in microbatches";
  }
  EXPECT_NEAR(sliced.result.breakdown.compute_s, whole.result.breakdown.compute_s, 1e-9);
  EXPECT_LT(sliced.result.breakdown.bubble_s, 0.25 * whole.result.breakdown.bubble_s);
  const AxisCommunication& few = whole.result.communication.pp;
  const AxisCommunication& many = sliced.result.communication.pp;
  EXPECT_NEAR(many.bytes_sent_per_rank, few.bytes_sent_per_rank, 1e-3);
  EXPECT_DOUBLE_EQ(many.messages, 8 * few.messages);
  EXPECT_GT(many.total_s, few.total_s) << "every message has its latency";
  const auto says = [](const Forecast& answer, const std::string& words) {
    return std::any_of(answer.result.assumptions.begin(), answer.result.assumptions.end(),
                       [&](const std::string& text) { return text.find(words) != std::string::npos; });
  };
  EXPECT_TRUE(says(sliced, "each of 8 token slices takes an equal share"));
  EXPECT_FALSE(says(whole, "token slices"));
  EXPECT_TRUE(says(of(R"("schedule": "terapipe")"), "each of 4 token slices"));
}

// A stack whose split passes are slower: schedules with whole backward passes are unaffected.
TEST(SplitBackward, IsSlowerByTheStacksShareOfTheInputGradient) {
  const auto stage = [](const std::string& schedule, const std::string& share) {
    const std::string job = R"({"model": {"layers": 8, "hidden": 1024, "heads": 16, "vocab": 51200,
        "sequence_length": 1024}, "cluster": "dgx-a100-80g", "layout": {"pp": 8, "global_batch_size": 32, "schedule": ")" +
                            schedule + R"("}, "training": {"precision": "fp16", "stack": {"name": "deepspeed")" +
                            share + "}}}";
    return forecast(job_from(job), no_files).result.iteration.time_s;
  };
  const std::string slower = R"(, "split_backward_slowdown": 0.5)";
  EXPECT_EQ(stage("1f1b", slower), stage("1f1b", ""));
  EXPECT_GT(stage("zb-h1", slower), 1.05 * stage("zb-h1", ""));
}

}  // namespace
}  // namespace flopcast
