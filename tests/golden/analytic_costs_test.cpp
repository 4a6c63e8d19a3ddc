// Every row of the published and re-derived cost formulas, computed by the functions that price a job.
#include <gtest/gtest.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "model/cost/axis_costs.hpp"
#include "model/cost/collectives.hpp"
#include "model/cost/data_parallel.hpp"
#include "model/cost/stage_costs.hpp"
#include "model/workload/operators.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/grid_volume.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

constexpr double kGiga = 1e9;
constexpr double kHalf = 2.0;  // bytes of an fp16 element

class AnalyticCosts : public testing::Test {
 protected:
  void SetUp() override {
    const auto folder = reference_folder();
    if (!folder) GTEST_SKIP() << "no reference folder: set FLOPCAST_REFERENCE";
    all_ = Json::parse(read_text(*folder / "goldens" / "analytic_costs.json"));
  }
  const Json& rows(const char* section) {
    const Json& list = all_.at(section).at("rows");
    EXPECT_FALSE(list.empty());
    std::cout << section << ": " << list.size() << " rows\n";
    return list;
  }

 private:
  Json all_;
};

Training half_precision() {
  Training training;
  training.precision = Precision::kFp16;
  training.flash_attention = false;
  training.stack.gradient_bytes = 2.0;
  training.stack.fused_bias_dropout_add = true;
  return training;
}

// The middle one of three stages of one layer each, which contains only a block.
StageCosts block_of(const Json& row, int tp, bool sequence_parallel, Recompute recompute) {
  Job job;
  job.training = half_precision();
  job.training.sequence_length = row.at("s");
  job.model.hidden = row.at("h");
  job.model.heads = row.value("a", 2 * tp);
  job.model.kv_heads = job.model.heads;
  job.model.head_dim = job.model.hidden / job.model.heads;
  job.model.ffn = 4 * job.model.hidden;
  job.model.layers = 3;
  job.model.vocab = 51'200;
  job.cluster.devices_per_node = 3 * tp;
  job.cluster.intra_bandwidth = BytesPerSecond(300e9);
  job.cluster.device.peak.fill(FlopsPerSecond(1e14));
  job.cluster.device.memory_bandwidth = BytesPerSecond(1e12);
  job.cluster.device.multiprocessors = 108;
  job.cluster.device.gemm_efficiency = job.cluster.device.memory_efficiency = 0.8;
  job.layout.tp = tp;
  job.layout.pp = 3;
  job.layout.sequence_parallel = sequence_parallel;
  job.layout.recompute = recompute;
  job.layout.micro_batch_size = job.layout.global_batch_size = row.at("b");
  StageMap map;
  map.rank_of_stage = {0, 1, 2};
  map.model_stages = 3;
  return price_step(job, map, {1, 1, 1}).stages.at(1);
}

TEST_F(AnalyticCosts, ZeroModelStates) {
  for (const Json& row : rows("zero_model_state")) {
    const double parameters = row.at("params_billion").get<double>() * kGiga;
    const char* const keys[] = {"baseline_GB", "stage1_GB", "stage2_GB", "stage3_GB"};
    for (int stage = 0; stage <= 3; ++stage) {
      Layout layout;
      layout.dp = row.at("N");
      layout.zero = stage;
      const ModelStates states = model_states(layout, half_precision(), parameters);
      EXPECT_NEAR(states.total().value() / kGiga / row.at(keys[stage]).get<double>(), 1.0, 1e-12) << row;
      if (stage == 0) continue;
      const double published = row.at("published_table").at(static_cast<std::size_t>(stage - 1));
      EXPECT_NEAR(states.total().value() / kGiga / published, 1.0, 0.05) << row;
    }
  }
}

TEST_F(AnalyticCosts, ActivationMemory) {
  for (const Json& row : rows("activation_memory")) {
    const int t = row.at("t");
    const Json& expected = row.at("per_layer_bytes");
    const auto saved = [&row](int tp, bool sequence_parallel, Recompute recompute) {
      return block_of(row, tp, sequence_parallel, recompute).activation.value();
    };
    EXPECT_DOUBLE_EQ(saved(1, false, Recompute::kNone), expected.at("none"));
    EXPECT_DOUBLE_EQ(saved(t, false, Recompute::kNone), expected.at("tp"));
    EXPECT_DOUBLE_EQ(saved(t, true, Recompute::kNone), expected.at("tp_sp"));
    EXPECT_DOUBLE_EQ(saved(t, false, Recompute::kSelective), expected.at("tp_selective"));
    EXPECT_DOUBLE_EQ(saved(t, true, Recompute::kSelective), expected.at("tp_sp_selective"));
    EXPECT_DOUBLE_EQ(saved(1, false, Recompute::kFull), expected.at("full"));
    const StageCosts selective = block_of(row, 1, false, Recompute::kSelective);
    const double none = saved(1, false, Recompute::kNone);
    const double core = none - selective.activation.value();
    const double sbh = row.at("s").get<double>() * row.at("b").get<double>() * row.at("h").get<double>();
    EXPECT_NEAR(core / none, row.at("attention_share"), 1e-12);
    EXPECT_NEAR(core / sbh, row.at("five_as_over_h"), 1e-9);
    // The published fraction is that of the recomputed attention in one forward pass.
    EXPECT_NEAR(selective.recompute_flops / selective.model_flops * 3.0, row.at("selective_flops_overhead"), 1e-12);
  }
}

TEST_F(AnalyticCosts, ParameterServers) {
  for (const Json& row : rows("byteps")) {
    const double n = row.at("n_gpu_machines");
    const double k = row.at("k_cpu_machines");
    const ServerShares shares = byteps_shares(n, k);
    EXPECT_NEAR(shares.time, row.at("t_over_M_over_B").get<double>(), 1e-9) << row;
    EXPECT_NEAR(shares.gpu_node, row.at("gpu_share_each").get<double>(), 1e-9) << row;
    if (!row.at("cpu_share_each").is_null()) {
      EXPECT_NEAR(shares.spare_host, row.at("cpu_share_each").get<double>(), 1e-9) << row;
    }
    EXPECT_NEAR(parameter_server_time(n, 0), row.at("allreduce").get<double>(), 1e-9) << row;
    if (!row.at("nonco_ps").is_null()) {
      EXPECT_NEAR(parameter_server_time(n, k), row.at("nonco_ps").get<double>(), 1e-9) << row;
    }
  }
}

TEST_F(AnalyticCosts, Collectives) {
  for (const Json& row : rows("collectives")) {
    const int n = row.at("N");
    const Bytes size(row.at("S").get<double>());
    const Json& reduce = row.at("ring_allreduce");
    EXPECT_EQ(ring_steps(CollectiveKind::kAllReduce, n), reduce.at("steps").get<int>());
    EXPECT_NEAR(bytes_sent_per_rank(CollectiveKind::kAllReduce, size, n).value(), reduce.at("bytes_per_rank"), 1e-3);
    const Json& half = row.at("ring_allgather_or_reducescatter");
    for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
      EXPECT_EQ(ring_steps(kind, n), half.at("steps").get<int>());
      EXPECT_NEAR(bytes_sent_per_rank(kind, size, n).value(), half.at("bytes_per_rank"), 1e-3);
    }
    EXPECT_NEAR(all_to_all_sent_per_rank(size, n).value(), row.at("alltoall").at("bytes_per_rank"), 1e-3);
  }
}

TEST_F(AnalyticCosts, TensorParallel1d) {
  for (const Json& row : rows("tensor_1d")) {
    const int t = row.at("t");
    const StageCosts plain = block_of(row, t, false, Recompute::kNone);
    EXPECT_DOUBLE_EQ(plain.sent.tp.messages, row.at("allreduce_fwd").get<int>() + row.at("allreduce_bwd").get<int>());
    EXPECT_NEAR(plain.sent.tp.sent_per_rank.value() / kHalf, row.at("ring_elements_sent_per_rank_per_layer"), 1e-3);
    const StageCosts split = block_of(row, t, true, Recompute::kNone);
    const Json& sp = row.at("sp");
    double messages = 0.0;
    for (const char* key : {"allgather_fwd", "reduce_scatter_fwd", "allgather_bwd", "reduce_scatter_bwd",
                            "extra_allgather_bwd_for_wgrad"}) {
      messages += sp.at(key).get<double>();
    }
    EXPECT_DOUBLE_EQ(split.sent.tp.messages, messages);
    const Bytes gathered(kHalf * row.at("elements_per_allreduce").get<double>());
    const Bytes extra = bytes_sent_per_rank(CollectiveKind::kAllGather, gathered, t) *
                        sp.at("extra_allgather_bwd_for_wgrad").get<double>();
    EXPECT_NEAR((split.sent.tp.sent_per_rank - extra).value() / kHalf, sp.at("ring_elements_sent_excl_extra"), 1e-3);
  }
}

Operator linear_of(const Json& row) {
  Operator op;
  op.kind = OperatorKind::kLinear;
  op.shape = {row.at("bs"), row.at("n"), row.at("h"), 1};
  op.parameters = row.at("h").get<double>() * row.at("n").get<double>();
  op.saved = Bytes(kHalf * row.at("bs").get<double>() * row.at("h").get<double>());
  return op;
}

TEST_F(AnalyticCosts, Summa2dAnd25d) {
  for (const Json& row : rows("summa_2d_25d")) {
    Layout layout;
    layout.tensor_depth = row.at("d");
    layout.tensor_parallel = layout.tensor_depth == 1 ? TensorParallel::k2d : TensorParallel::k25d;
    layout.tp = row.at("P");
    const TensorGrid grid = tensor_grid(layout.tensor_parallel, layout.tp, layout.tensor_depth);
    EXPECT_EQ(grid.q, row.at("q").get<int>());
    const Operator part = split_over_grid({linear_of(row)}, layout).front();
    EXPECT_DOUBLE_EQ(forward_flops(part).value(), row.at("flops_fwd_per_rank"));
    EXPECT_DOUBLE_EQ(2.0 * forward_flops(part).value(), row.at("flops_bwd_per_rank"));
    EXPECT_DOUBLE_EQ(part.parameters, row.at("param_elems"));
    EXPECT_DOUBLE_EQ(part.saved.value() / kHalf, row.at("act_elems_in"));
    EXPECT_DOUBLE_EQ(row.at("bs").get<double>() * row.at("n").get<double>() / grid.ranks(), row.at("act_elems_out"));
    const GridVolume volume = grid_volume(layout.tensor_parallel, grid, row.at("bs").get<double>(),
                                          row.at("h").get<double>(), row.at("n").get<double>());
    EXPECT_DOUBLE_EQ(volume.forward, row.at("fwd_elems"));
    EXPECT_DOUBLE_EQ(volume.input_gradient, row.at("bwd_dX_elems"));
    EXPECT_DOUBLE_EQ(volume.weight_gradient, row.at("bwd_dA_elems"));
    EXPECT_DOUBLE_EQ(volume.depth_reduction, row.at("dA_allreduce_over_depth_elems"));
    EXPECT_EQ(volume.steps, 6 * (grid.q - 1));
  }
}

TEST_F(AnalyticCosts, Tensor3d) {
  for (const Json& row : rows("tensor_3d")) {
    Layout layout;
    layout.tensor_parallel = TensorParallel::k3d;
    layout.tp = row.at("P");
    const TensorGrid grid = tensor_grid(layout.tensor_parallel, layout.tp, 1);
    EXPECT_EQ(grid.q, row.at("q").get<int>());
    const Operator part = split_over_grid({linear_of(row)}, layout).front();
    EXPECT_DOUBLE_EQ(forward_flops(part).value(), row.at("flops_fwd_per_rank"));
    const GridVolume volume = grid_volume(layout.tensor_parallel, grid, row.at("bs").get<double>(),
                                          row.at("h").get<double>(), row.at("n").get<double>());
    EXPECT_DOUBLE_EQ(volume.forward, row.at("fwd_elems"));
    EXPECT_DOUBLE_EQ(volume.input_gradient + volume.weight_gradient, row.at("bwd_elems"));
    EXPECT_EQ(volume.steps, 6 * (grid.q - 1));
  }
}

}  // namespace
}  // namespace flopcast
