#include "model/cost/stage_costs.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

std::string job_on(const std::string& nodes, const std::string& layout) {
  return R"({"model": "gpt2-355m", "cluster": {"name": "dgx-a100-80g", "nodes": )" + nodes + R"(}, "layout": )" +
         layout + R"(, "training": {"precision": "fp16"}})";
}

StepCosts costs_of(const Job& job) {
  StageMap map;
  map.model_stages = job.layout.pp;
  for (int stage = 0; stage < job.layout.pp; ++stage) map.rank_of_stage.push_back(stage);
  return price_step(job, map, even_stage_layers(job.model.layers, job.layout.pp));
}

TEST(UnevenNodes, AreReadAsAList) {
  const Job job = job_from(job_on(R"([{"devices": 4}, {"devices": 2, "device": "v100-32g"}, {"devices": 2}])",
                                  R"({"global_batch_size": 8})"));
  EXPECT_EQ(job.cluster.devices(), 8);
  EXPECT_EQ(job.cluster.nodes, 3);
  EXPECT_EQ(job.layout.dp, 8);
  ASSERT_EQ(job.cluster.node_devices.size(), 2u);
  EXPECT_EQ(job.cluster.device_of(3).name, "a100-80g");
  EXPECT_EQ(job.cluster.device_of(4).name, "v100-32g");
  EXPECT_EQ(job.cluster.device_of(6).name, "a100-80g");
  EXPECT_NEAR(mean_peak(job).value(), (6 * 312e12 + 2 * 125e12) / 8, 1.0);
}

TEST(UnevenNodes, MistakesAreLocated) {
  EXPECT_EQ(error_report(job_on("[]", "{}")).field, "cluster.nodes");
  EXPECT_EQ(error_report(job_on("[4, 3]", "{}")).field, "cluster.nodes");
  EXPECT_EQ(error_report(job_on(R"([{"device": "t4"}])", "{}")).field, "cluster.nodes.0.devices");
  EXPECT_EQ(error_report(job_on(R"([{"devices": 4}, {"devices": 3, "device": "t44"}])", "{}")).field,
            "cluster.nodes.1.device");
  EXPECT_EQ(error_report(job_on(R"([{"devices": 4, "gpu": "t4"}])", "{}")).field, "cluster.nodes.0.gpu");
}

TEST(UnevenNodes, AlikeNodesCostWhatACountCosts) {
  const std::string layout = R"({"tp": 4, "pp": 2, "global_batch_size": 8})";
  const StepCosts count = costs_of(job_from(job_on("2", layout)));
  const StepCosts list = costs_of(job_from(job_on(R"([{"devices": 8}, {"devices": 8}])", layout)));
  for (std::size_t stage = 0; stage < 2; ++stage) {
    EXPECT_EQ(count.stages[stage].forward.total(), list.stages[stage].forward.total());
  }
  EXPECT_EQ(count.ranks[0].gradient_reduction, list.ranks[0].gradient_reduction);
}

TEST(UnevenNodes, TheSlowestDevicePacesItsPipelineRank) {
  const std::string pipeline = R"({"pp": 4, "global_batch_size": 8})";
  const StepCosts fast = costs_of(job_from(job_on(R"([{"devices": 4}])", pipeline)));
  const StepCosts mixed =
      costs_of(job_from(job_on(R"([{"devices": 2}, {"devices": 2, "device": "v100-32g"}])", pipeline)));
  EXPECT_EQ(mixed.stages[1].forward.compute, fast.stages[1].forward.compute);
  EXPECT_GT(mixed.stages[2].forward.compute.value(), 1.5 * fast.stages[2].forward.compute.value());
  EXPECT_GT(mixed.ranks[3].optimizer.value(), fast.ranks[3].optimizer.value());

  // Among data-parallel peers, one slow device paces all.
  const Job one_slow = job_from(
      job_on(R"([{"devices": 3}, {"devices": 1, "device": "v100-32g"}])", R"({"dp": 4, "global_batch_size": 8})"));
  const Job all_slow = job_from(job_on(R"([{"devices": 4, "device": "v100-32g"}])", R"({"global_batch_size": 8})"));
  EXPECT_EQ(costs_of(one_slow).stages[0].forward.compute, costs_of(all_slow).stages[0].forward.compute);
  EXPECT_EQ(gibibytes(memory_capacity(one_slow, 0)), 32.0);
}

}  // namespace
}  // namespace flopcast
