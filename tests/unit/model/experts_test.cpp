#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/cost/collectives.hpp"
#include "model/cost/compute.hpp"
#include "model/cost/expert_costs.hpp"
#include "model/cost/stage_costs.hpp"
#include "model/layout/rank_grid.hpp"
#include "model/workload/operators.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

std::string moe_job(const std::string& model, const std::string& layout) {
  return R"({"model": )" + model + R"(, "cluster": "4xdgx-h100", "layout": )" + layout +
         R"(, "training": {"sequence_length": 4096}})";
}

StepCosts costs_of(const Job& job, const std::vector<int>& layers) {
  StageMap map;
  map.model_stages = static_cast<int>(layers.size());
  for (int stage = 0; stage < map.model_stages; ++stage) map.rank_of_stage.push_back(stage);
  return price_step(job, map, layers);
}

// Two all-to-alls forward and two backward of b·s·k·h·(ep-1)/ep elements (notes of GShard 2006.16668). Prices must not
// depend on jobs priced earlier, here with the same model and other kinds of layers.
TEST(Experts, SharedPricesAreThoseOfTheJobAlone) {
  const Job job = job_from(moe_job(R"({"name": "deepseek-v3", "mtp_layers": 1})", R"({"ep": 8, "tp": 2,
                                       "etp": 1, "sequence_parallel": true, "recompute": "full", "global_batch_size": 64})"));
  StageMap map;
  map.rank_of_stage = {0};
  SharedPrices shared;
  SharedPrices of_memory;
  for (const int first_dense : {3, 61, 0, 61, 3}) {
    for (const int modules : {0, 1}) {
      Job other = job;
      other.model.experts->first_dense_layers = first_dense;
      other.model.mtp_layers = modules;
      const StageCosts alone = price_step(other, map, {61}).stages.front();
      const StageCosts with_others = price_step(other, map, {61}, &shared).stages.front();
      ASSERT_EQ(with_others.forward.total(), alone.forward.total()) << first_dense << " " << modules;
      ASSERT_EQ(with_others.input_gradient.total(), alone.input_gradient.total()) << first_dense << " " << modules;
      ASSERT_EQ(with_others.parameters, alone.parameters) << first_dense << " " << modules;
      const StageCosts memory = price_memory(other, of_memory);
      ASSERT_EQ(memory.activation, alone.activation) << first_dense << " " << modules;
      ASSERT_EQ(memory.parameters, alone.parameters) << first_dense << " " << modules;
      ASSERT_EQ(memory.expert_parameters, alone.expert_parameters) << first_dense << " " << modules;
    }
  }
}

TEST(Experts, LayersAreCountedAsTheyAre) {
  Transformer model;
  model.layers = 13;
  model.experts.emplace();
  for (int dense = 0; dense <= 14; ++dense) {
    for (int every = 1; every <= 14; ++every) {
      model.experts->first_dense_layers = dense;
      model.experts->every = every;
      for (int first = 0; first <= 13; ++first) {
        int found = 0;
        for (int count = 0; first + count <= 13; ++count) {
          ASSERT_EQ(model.expert_layers(first, count), found) << dense << " " << every << " " << first << " " << count;
          found += model.kind_of(first + count) == BlockKind::kExperts ? 1 : 0;
        }
      }
    }
  }
}

TEST(Experts, ExchangeWhatGShardCounts) {
  const Job job = job_from(moe_job(R"("mixtral-8x7b")", R"({"ep": 8, "global_batch_size": 32})"));
  const StepCosts costs = costs_of(job, {32});
  const double expected = 32.0 * 4 * (4096.0 * 2 * 4096 * 2) * 7 / 8;
  EXPECT_DOUBLE_EQ(costs.stages[0].sent.ep.sent_per_rank.value(), expected);
  EXPECT_DOUBLE_EQ(costs.stages[0].forward.comm.ep.value() + costs.stages[0].input_gradient.comm.ep.value(),
                   costs.stages[0].sent.ep.time.value());
  EXPECT_GT(costs.stages[0].forward.comm.ep.value(), 0.0);

  const Job apart = job_from(moe_job(R"("mixtral-8x7b")", R"({"tp": 2, "sequence_parallel": true, "ep": 8,
                                                              "global_batch_size": 16})"));
  EXPECT_DOUBLE_EQ(costs_of(apart, {32}).stages[0].sent.ep.sent_per_rank.value(), expected / 2);
  const Job alone = job_from(moe_job(R"("mixtral-8x7b")", R"({"global_batch_size": 32})"));
  EXPECT_EQ(costs_of(alone, {32}).stages[0].sent.ep.sent_per_rank.value(), 0.0);
}

// Modules that selective recomputation redoes entirely also communicate again: the MLP's gather and sum, which are half
// of a dense block's; for a block with experts, their exchange, and a gather and a sum if there are shared experts.
TEST(Experts, RedoneModulesSendAgain) {
  const auto inner_stage = [](const std::string& model, const std::string& layout) {
    const Job job = job_from(moe_job(R"(")" + model + R"(")", R"({"tp": 2, "pp": 4, "sequence_parallel": true, )" +
                                                                  layout + R"(, "global_batch_size": 64})"));
    return costs_of(job, even_stage_layers(job.model.layers, 4)).stages[1];
  };
  const auto redone = [&](const std::string& model, const std::string& ep, const std::string& module) {
    return inner_stage(model, ep + R"("recompute": "selective", "recompute_modules": [")" + module + R"("])");
  };
  const auto gather_and_sum = [](const StageCosts& costs, double hidden) {
    return costs.layers * 2.0 * (4096 * hidden * 2) * 1 / 2;
  };

  const StageCosts core = redone("llama3-8b", "", "core_attn");
  const StageCosts mlp = redone("llama3-8b", "", "mlp");
  EXPECT_EQ(core.recompute.comm.tp.value(), 0.0);
  EXPECT_DOUBLE_EQ(mlp.recompute.comm.tp.value(), mlp.forward.comm.tp.value() / 2);
  EXPECT_DOUBLE_EQ(mlp.sent.tp.sent_per_rank.value() - core.sent.tp.sent_per_rank.value(), gather_and_sum(mlp, 4096));

  const StageCosts attention = redone("mixtral-8x7b", R"("ep": 4, )", "core_attn");
  const StageCosts experts = redone("mixtral-8x7b", R"("ep": 4, )", "moe");
  EXPECT_EQ(attention.recompute.comm.ep.value(), 0.0);
  EXPECT_EQ(experts.recompute.comm.tp.value(), 0.0);
  EXPECT_DOUBLE_EQ(experts.sent.tp.sent_per_rank.value(), attention.sent.tp.sent_per_rank.value());
  EXPECT_GT(experts.recompute.comm.ep.value(), 0.0);
  EXPECT_DOUBLE_EQ(experts.recompute.comm.ep.value(), experts.forward.comm.ep.value());
  EXPECT_DOUBLE_EQ(experts.sent.ep.sent_per_rank.value(), attention.sent.ep.sent_per_rank.value() * 1.5);

  const StageCosts whole = inner_stage("mixtral-8x7b", R"("ep": 4, "recompute": "full")");
  // Gather and sum of attention, and of both copies of each token.
  EXPECT_DOUBLE_EQ(whole.sent.tp.sent_per_rank.value() - attention.sent.tp.sent_per_rank.value(),
                   3 * gather_and_sum(whole, 4096));

  for (const char* module : {"moe", "shared_experts"}) {
    const StageCosts shared = redone("deepseek-v3", R"("ep": 4, )", module);
    EXPECT_DOUBLE_EQ(shared.recompute.comm.tp.value(), shared.forward.comm.tp.value() / 2) << module;
    EXPECT_EQ(shared.recompute.comm.ep.value() > 0.0, module == std::string("moe")) << module;
  }
}

// A quarter more rows are sent, multiplied and kept, without more useful work (GShard 2006.16668 §2.2).
TEST(Experts, CapacityPadsAndDrops) {
  const auto with = [](const std::string& capacity) {
    Job job = job_from(moe_job(R"("mixtral-8x7b")", R"({"ep": 8, "global_batch_size": 32})"));
    job.training.stack.host_time_per_kernel = Seconds(0);  // waiting of the host is covered by another test
    if (!capacity.empty()) job.model.experts->capacity_factor = std::stod(capacity);
    return costs_of(job, {32}).stages[0];
  };
  const StageCosts plain = with("");
  const StageCosts padded = with("1.25");
  const StageCosts dropping = with("0.5");
  EXPECT_NEAR(padded.sent.ep.sent_per_rank / plain.sent.ep.sent_per_rank, 1.25, 1e-12);
  EXPECT_NEAR(padded.model_flops / plain.model_flops, 1.0, 1e-12);
  EXPECT_GT(padded.forward.compute.value(), plain.forward.compute.value());
  EXPECT_GT(padded.activation.value(), plain.activation.value());
  EXPECT_NEAR(dropping.sent.ep.sent_per_rank / plain.sent.ep.sent_per_rank, 0.5, 1e-12);
  EXPECT_LT(dropping.model_flops.value(), plain.model_flops.value());
  EXPECT_NEAR(with("1").forward.compute / plain.forward.compute, 1.0, 1e-12);
}

std::string moe_job_of(const std::string& layout, const std::string& training) {
  return R"({"model": "mixtral-8x7b", "cluster": "4xdgx-h100", "layout": )" + layout +
         R"(, "training": {"sequence_length": 4096, )" + training + "}}";
}

// Among 8 ranks on one node, two uniform choices hit 8·(1 - (7/8)²) distinct ranks; the share of the local rank stays.
TEST(Experts, TokensTravelOnceToEachRank) {
  const Job job =
      job_from(moe_job_of(R"({"ep": 8, "global_batch_size": 32})", R"("experts_dispatch": {"dispatcher": "deepep"})"));
  const StageCosts costs = costs_of(job, {32}).stages[0];
  const double distinct = 8 * (1 - 7.0 / 8 * 7 / 8);
  EXPECT_NEAR(costs.sent.ep.sent_per_rank.value(), 32.0 * 4 * (4096.0 * 4096 * 2) * distinct * 7 / 8, 1.0);
  const Job narrow = job_from(moe_job_of(R"({"ep": 8, "global_batch_size": 32})",
                                         R"("experts_dispatch": {"dispatcher": "deepep", "dtype": "fp8"})"));
  EXPECT_NEAR(costs_of(narrow, {32}).stages[0].sent.ep.sent_per_rank / costs.sent.ep.sent_per_rank, 0.75, 1e-12);
}

// Between nodes, k copies of a token cost more than one per node, and a limit on nodes costs less.
TEST(Experts, TokensTravelOnceToEachNode) {
  const auto exchange = [](const std::string& dispatch) {
    const Job job = job_from(
        R"({"model": {"name": "deepseek-v3", "experts": {"groups": 0}}, "cluster": "8xdgx-h100",
            "layout": {"ep": 64, "global_batch_size": 64}, "training": {"experts_dispatch": )" +
        dispatch + "}}");
    return costs_of(job, {61}).stages[0].forward.comm.ep;
  };
  const Seconds copies = exchange(R"({"dispatcher": "alltoall"})");
  const Seconds once = exchange(R"({"dispatcher": "deepep"})");
  const Seconds limited = exchange(R"({"dispatcher": "deepep", "node_limit": 4})");
  EXPECT_GT(copies.value(), once.value() * 1.2);
  EXPECT_GT(once.value(), limited.value() * 1.2);
  EXPECT_GT(exchange(R"({"dispatcher": "allgather"})").value(), 0.0);
}

// Number of places where tokens have experts when scores are drawn at random and DeepSeek-V3's rule is applied
// (2412.19437 §2.1.2): first the groups with the largest sum of their two best scores, then the best experts in these.
std::map<int, double> places_by_rule(const Experts& experts, const std::vector<int>& places) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> score(0.0, 1.0);
  const auto count = static_cast<std::size_t>(experts.count);
  const std::size_t in_group = count / static_cast<std::size_t>(experts.groups);
  constexpr int kTokens = 4000;
  std::map<int, double> reached;
  std::vector<double> scores(count);
  for (int token = 0; token < kTokens; ++token) {
    for (double& one : scores) one = score(random);
    std::vector<std::pair<double, std::size_t>> groups;
    for (std::size_t first = 0; first < count; first += in_group) {
      std::vector<double> of_group(scores.begin() + static_cast<std::ptrdiff_t>(first),
                                   scores.begin() + static_cast<std::ptrdiff_t>(first + in_group));
      std::partial_sort(of_group.begin(), of_group.begin() + 2, of_group.end(), std::greater<>());
      groups.emplace_back(of_group[0] + of_group[1], first);
    }
    std::sort(groups.rbegin(), groups.rend());
    std::vector<std::pair<double, std::size_t>> open;
    for (int group = 0; group < experts.group_top_k; ++group) {
      const std::size_t first = groups[static_cast<std::size_t>(group)].second;
      for (std::size_t expert = first; expert < first + in_group; ++expert) open.emplace_back(scores[expert], expert);
    }
    std::sort(open.rbegin(), open.rend());
    for (const int of : places) {
      std::set<std::size_t> hit;
      for (int chosen = 0; chosen < experts.top_k; ++chosen) {
        hit.insert(open[static_cast<std::size_t>(chosen)].second * static_cast<std::size_t>(of) / count);
      }
      reached[of] += static_cast<double>(hit.size()) / kTokens;
    }
  }
  return reached;
}

TEST(Experts, GroupsKeepTokensTogether) {
  const auto experts = [](const std::string& model, const std::string& figures) {
    return *job_from(R"({"model": {"name": ")" + model + R"(", "experts": {)" + figures +
                     R"(}}, "cluster": "dgx-h100", "layout": {"global_batch_size": 8}})")
                .model.experts;
  };
  const Experts v3 = experts("deepseek-v3", "");
  ASSERT_EQ(v3.groups, 8);
  const Experts v2 = experts("deepseek-v3", R"("count": 160, "top_k": 6, "groups": 8, "group_top_k": 3)");
  for (const Experts& grouped : {v3, v2}) {
    for (const auto& [places, by_rule] : places_by_rule(grouped, {1, 2, 4, 8, 16, 32})) {
      EXPECT_NEAR(grouped.places_of_token(places) / by_rule, 1.0, 0.05) << grouped.count << ", " << places << " places";
    }
  }
  EXPECT_NEAR(v3.places_of_token(4), 3.13, 0.005);
  EXPECT_NEAR(v3.places_of_token(8), 4.0, 0.05);
  const auto any = [](double places) { return places * (1 - std::pow(1 - 1 / places, 8)); };
  EXPECT_NEAR(v3.places_of_token(6), any(6), 1e-12) << "places are neither whole groups nor parts of one group";
  EXPECT_NEAR(experts("deepseek-v3", R"("groups": 8, "group_top_k": 8)").places_of_token(4), any(4), 1e-12);
  for (const char* none : {R"("groups": 0)", R"("groups": 1)"}) {
    const Experts from_all = experts("deepseek-v3", none);
    EXPECT_NEAR(from_all.places_of_token(4), any(4), 1e-12) << none;
    EXPECT_EQ(from_all.group_top_k, 0) << none;
  }
  const auto message_of = [](const std::string& figures) {
    return error_report(R"({"model": {"name": "deepseek-v3", "experts": {)" + figures +
                        R"(}}, "cluster": "dgx-h100", "layout": {"global_batch_size": 8}})")
        .field;
  };
  EXPECT_EQ(message_of(R"("groups": 7)"), "model.experts.groups");
  EXPECT_EQ(message_of(R"("group_top_k": 9)"), "model.experts.group_top_k");
  EXPECT_EQ(message_of(R"("groups": 64, "group_top_k": 1)"), "model.experts.group_top_k");
  EXPECT_EQ(error_report(R"({"model": {"name": "mixtral-8x7b", "experts": {"group_top_k": 2}}, "cluster": "dgx-h100",
                                "layout": {"global_batch_size": 8}})")
                .field,
            "model.experts.group_top_k");
}

// deepseek-ai/DeepEP, normal kernels: 4096 tokens of 7168 features to the top 8 experts on at most 4 nodes, dispatched
// in 8 bits; 8192 tokens in its second version. Bandwidth in terms of the tokens that reach a node, or a rank on one
// node, including the local one. The first version's 16 ranks are left out: 43 GB/s, while the second version reaches
// 90 and 81.
TEST(Experts, ExchangesAsDeepEpMeasured) {
  struct Measured {
    const char* cluster;
    int ranks;
    double tokens;
    double dispatch;  // GB/s
    double combine;
  };
  for (const Measured& row : {Measured{"hgx-h800", 8, 4096, 153, 158}, Measured{"hgx-h800", 32, 4096, 58, 57},
                              Measured{"hgx-h800", 64, 4096, 51, 50}, Measured{"dgx-h100", 16, 8192, 90, 81},
                              Measured{"dgx-h100", 32, 8192, 61, 61}, Measured{"dgx-b200", 8, 8192, 726, 740},
                              Measured{"dgx-b200", 16, 8192, 90, 91}}) {
    const Cluster cluster = job_from(R"({"model": "deepseek-v3", "cluster": "8x)" + std::string(row.cluster) +
                                     R"(", "layout": {"global_batch_size": 64}})")
                                .cluster;
    const CommunicationModel links(cluster);
    const GroupPlacement group{row.ranks, row.ranks / 8, 8, 1};
    const auto distinct = [](double places) { return places * (1 - std::pow(1 - 1 / places, 8)); };
    const double nodes = row.ranks / 8.0;
    const double to_nodes = std::min(4.0, distinct(nodes));
    const double to_ranks = distinct(row.ranks);
    for (const auto& [element, rate] : {std::pair{1.0, row.dispatch}, std::pair{2.0, row.combine}}) {
      const Bytes tokens(row.tokens * 7168 * element);
      const Seconds time =
          links.node_wise_exchange(tokens * (to_ranks * (1 - 1.0 / row.ranks)), tokens * (to_nodes * (1 - 1 / nodes)),
                                   node_wise_share(ExpertDispatcher::kDeepep), group);
      const double reached = row.ranks == 8 ? to_ranks : to_nodes;
      EXPECT_NEAR(tokens.value() * reached / time.value() / 1e9 / rate, 1.0, 0.15)
          << row.ranks << " ranks of " << row.cluster;
    }
  }
}

// First tables of deepseek-ai/DeepGEMM (H800, fp8, scales by blocks), groups of at least a thousand rows; TFLOP/s.
// Groups of 256 and 512 rows in the inference layout run at 0.7 to 0.85 of the forecast.
TEST(Experts, GroupedProductsAsDeepGemmMeasured) {
  struct Measured {
    int groups;
    int rows;  // per group
    int n;
    int k;
    double tflops;
  };
  const Job job = job_from(R"({"model": "deepseek-v3", "cluster": "hgx-h800", "layout": {"global_batch_size": 8},
                               "training": {"precision": "fp8"}})");
  Device device = job.cluster.device;
  device.gemm_efficiency = 0.757;  // of kernels timed alone, as dense GEMMs of these tables; less in steps
  const ComputeModel compute(device, Precision::kFp8);
  for (const Measured& row : {Measured{4, 8192, 4096, 7168, 1297}, Measured{4, 8192, 7168, 2048, 1099},
                              Measured{8, 4096, 4096, 7168, 1288}, Measured{1, 1024, 7168, 2048, 925}}) {
    const Seconds time = compute.gemm({row.rows, row.n, row.k, row.groups}, 2.0, true);
    const double flops = 2.0 * row.groups * row.rows * static_cast<double>(row.n) * row.k;
    EXPECT_NEAR(flops / time.value() / 1e12 / row.tflops, 1.0, 0.15) << row.groups << " groups, k " << row.k;
  }
}

ExpertLayer two_seconds_each() {
  ExpertLayer layer;
  for (Seconds* piece : {&layer.before, &layer.experts, &layer.experts_input, &layer.experts_weight,
                         &layer.before_input, &layer.before_weight}) {
    *piece = Seconds(2);
  }
  return layer;
}

// Worked out by hand for two streams. Exchanges of 1 s are hidden. With 3 s: combine B 0-3, so the experts' backward
// pass waits one second; dispatch F 3-6; dispatch B 6-9, overlapped with weight gradients and the next forward pass;
// combine F 9-12. If weight gradients are not delayed, dispatch B starts at 7 and the rest of B waits until 10.
TEST(ExpertPairs, RunTheirPiecesInOrder) {
  ExpertLayer layer = two_seconds_each();
  for (const bool delays : {true, false}) {
    layer.delays_weights = delays;
    layer.dispatch = layer.combine = Seconds(1);
    EXPECT_DOUBLE_EQ(paired_layers(layer, 1).time.value(), 12.0);
    EXPECT_DOUBLE_EQ(paired_layers(layer, 1).exposed.value(), 0.0);
    layer.dispatch = layer.combine = Seconds(3);
    const PairedLayers pair = paired_layers(layer, 1);
    EXPECT_DOUBLE_EQ(pair.time.value(), delays ? 13.0 : 14.0);
    EXPECT_DOUBLE_EQ(pair.exposed.value(), delays ? 1.0 : 2.0);
    ASSERT_EQ(pair.exchanges.size(), 4U);
    EXPECT_DOUBLE_EQ(pair.exchanges[2].start.value(), delays ? 6.0 : 7.0);
    EXPECT_FALSE(pair.exchanges[2].forward);
    EXPECT_FALSE(pair.exchanges[2].dispatches) << "the gradient of a dispatch comes back like a combine";
  }
}

// An exchange of 1 s takes 1.5 s when overlapped with computation, which does 1 s of work in that time.
TEST(ExpertPairs, SlowEachOtherDown) {
  ExpertLayer layer = two_seconds_each();
  layer.dispatch = layer.combine = Seconds(1);
  layer.slower = layer.exchange_slower = 0.5;
  const PairedLayers pair = paired_layers(layer, 1);
  EXPECT_NEAR(pair.time.value(), 12.0 + 4 * 0.5, 1e-9);
  for (const PairedLayers::Exchange& exchange : pair.exchanges) {
    EXPECT_NEAR((exchange.end - exchange.start).value(), 1.5, 1e-9);
  }
}

TEST(ExpertPairs, LieBetweenTheirWorkAndTheirSum) {
  ExpertLayer layer = two_seconds_each();
  layer.delays_weights = true;
  for (const double exchange : {0.1, 0.7, 2.0, 5.0, 40.0}) {
    layer.dispatch = Seconds(exchange);
    layer.combine = Seconds(exchange * 2);
    double before = 0.0;
    for (int layers = 1; layers < 7; ++layers) {
      const double time = paired_layers(layer, layers).time.value();
      EXPECT_GE(time, layers * std::max(12.0, 6 * exchange) * (1 - 1e-12));
      EXPECT_LE(time, layers * (12.0 + 6 * exchange) * (1 + 1e-12));
      EXPECT_GT(time, before);
      before = time;
    }
    const auto steady = [&layer](int layers) {
      return paired_layers(layer, layers + 1).time.value() - paired_layers(layer, layers).time.value();
    };
    EXPECT_NEAR(steady(2), steady(5), 1e-9) << "a sequence repeats from its second layer on";
  }
}

// Unpaired passes wait for their exchanges regardless of the overlap setting; pairs gain, but not more than the time
// they hide.
TEST(ExpertPairs, GainWhatTheyHide) {
  const auto stage = [](const std::string& overlap, const std::string& dispatcher) {
    const Job job = job_from(moe_job_of(R"({"ep": 8, "global_batch_size": 512})",
                                        R"("stack": {"name": "megatron-core", "host_time_per_kernel": "0us"},
                                           "experts_dispatch": {"dispatcher": ")" +
                                            dispatcher + R"("}, "overlap": {"experts": ")" + overlap + R"("})"));
    return costs_of(job, {32}).stages[0];
  };
  for (const char* dispatcher : {"alltoall", "deepep", "hybridep"}) {
    const StageCosts none = stage("none", dispatcher);
    const StageCosts with = stage("1f1b", dispatcher);
    const StageCosts delayed = stage("1f1b_delayed", dispatcher);
    EXPECT_EQ(none.pair_saved.value(), 0.0);
    EXPECT_EQ(none.pair_hidden.value(), 0.0);
    EXPECT_DOUBLE_EQ(with.forward.total().value(), none.forward.total().value());
    const double exchanged = none.sent.ep.time.value();
    EXPECT_GT(with.pair_saved.value(), 0.4 * exchanged) << dispatcher;
    EXPECT_GE(delayed.pair_saved.value(), with.pair_saved.value() * (1 - 1e-12));
    EXPECT_LT(delayed.pair_saved.value(), delayed.pair_hidden.value()) << "computation slows down during the exchange";
    EXPECT_LE(delayed.pair_hidden.value(), exchanged);
  }
}

// GEMMs on 112 of 132 multiprocessors take at least 132/112 times as long; memory-bound kernels are unaffected.
TEST(ExpertPairs, SlowProductsOnly) {
  const auto slower = [](const std::string& bandwidth) {
    const Job job = job_from(R"({"model": "mixtral-8x7b", "cluster": {"name": "dgx-h100", "nodes": 4, "device":
        {"name": "h100", "memory_bandwidth": ")" +
                             bandwidth + R"("}}, "layout": {"ep": 8, "global_batch_size": 512}, "training":
        {"sequence_length": 4096, "overlap": {"experts": "1f1b"}}})");
    return costs_of(job, {32}).stages[0].expert_layer.slower;
  };
  constexpr double kMissing = 132.0 / 112 - 1;
  EXPECT_GT(slower("3.35TB/s"), 0.8 * kMissing);
  EXPECT_GT(slower("3000TB/s"), kMissing * (1 - 1e-3));
  EXPECT_LT(slower("3000TB/s"), 1.5 * kMissing) << "waves of tiles";
  EXPECT_LT(slower("0.1TB/s"), 0.3 * kMissing);
}

// Without overlap, a layer waits for half of the host's launch time, and so does a pair, whose eight pieces take two
// launches each.
TEST(ExpertPairs, CostTheHostTheirPieces) {
  const auto saved = [](const std::string& overlap, const std::string& host) {
    const Job job = job_from(moe_job_of(R"({"ep": 8, "global_batch_size": 512})",
                                        R"("stack": {"name": "megatron-core", "host_time_per_kernel": ")" + host +
                                            R"("}, "experts_dispatch": {"dispatcher": "deepep"}, "overlap":
                                            {"experts": ")" +
                                            overlap + R"("})"));
    return costs_of(job, {32}).stages[0].pair_saved;
  };
  for (const char* overlap : {"1f1b", "1f1b_delayed"}) {
    EXPECT_NEAR((saved(overlap, "0us") - saved(overlap, "1us")).value(), 32 * 8 * 2 * 0.5 * 1e-6, 1e-9) << overlap;
  }
}

// deepseek-ai/profile-data, train.json: a pair of chunks of four layers, EP 64, 4096 tokens, on H800: 114.5 ms of
// exchanges and 118.2 ms of compute kernels in 129.0 ms.
TEST(ExpertPairs, HideAsTheTraceOfDeepSeekShows) {
  const Job job = job_from(R"({"model": "deepseek-v3", "cluster": "256xhgx-h800", "layout": {"pp": 16, "ep": 64,
      "schedule": "dualpipe", "global_batch_size": 15360}, "training": {"precision": "fp8", "fp8_recipe": "blockwise",
      "stack": "megatron-core", "grouped_kernel": "one",
      "experts_dispatch": {"dispatcher": "deepep", "dtype": "fp8", "node_limit": 4}}})");
  const StageCosts costs = costs_of(job, even_stage_layers(61, 16)).stages[5];
  ASSERT_EQ(costs.expert_layers, 4);
  const double hidden = costs.pair_hidden / costs.sent.ep.time;
  EXPECT_NEAR(hidden, (114.5 + 118.2 - 129.0) / 114.5, 0.1);
  EXPECT_NEAR(paired_layers(costs.expert_layer, 4).time.value(), 0.129, 0.129 * 0.15);
}

// DualPipe implies overlapped pairs without a setting.
TEST(ExpertPairs, AreDualPipesByThemselves) {
  const auto of = [](const std::string& training) {
    return costs_of(job_from(R"({"model": "deepseek-v3", "cluster": "32xdgx-h100", "layout": {"pp": 16, "ep": 16,
                                 "schedule": "dualpipe", "global_batch_size": 1024}, "training": {)" +
                             training + "}}"),
                    {61})
        .stages[0];
  };
  EXPECT_GT(of("").pair_saved.value(), 0.0);
  EXPECT_EQ(of(R"("overlap": {"experts": "none"})").pair_saved.value(), 0.0);
}

// 8 ranks with 16 of 128 experts each, whose loads vary by half: a rank's load varies by 0.5 √(8/128 · 7/8) = 0.117,
// and the largest of eight is 1.38 times that above the mean in the median (Φ⁻¹(0.5^(1/8)) = 1.382).
TEST(Experts, TheFullestRankIsWaitedFor) {
  const auto of = [](const std::string& experts) {
    return job_from(R"({"model": {"name": "qwen3-30b-a3b", "experts": {)" + experts + R"(}}, "cluster": "dgx-h100",
                        "layout": {"ep": 8, "global_batch_size": 64}, "training": {"stack": "nemo", "cuda_graphs": "full",
                        "experts_dispatch": {"dispatcher": "hybridep"}}})");
  };
  const Job even = of("");
  const Job uneven = of(R"("imbalance": 0.5)");
  const double fullest = uneven.model.experts->fullest_rank(8);
  EXPECT_NEAR(fullest, 1 + 0.5 * std::sqrt(8.0 / 128 * 7 / 8) * 1.382, 1e-3);
  EXPECT_GT(uneven.model.experts->fullest_rank(8, 0.95), fullest);
  EXPECT_EQ(uneven.model.experts->fullest_rank(1), 1.0);
  EXPECT_EQ(even.model.experts->fullest_rank(8), 1.0);
  const StageCosts before = costs_of(even, {48}).stages[0];
  const StageCosts after = costs_of(uneven, {48}).stages[0];
  EXPECT_NEAR((after.forward.comm.ep - Seconds(48 * 60e-6)) / (before.forward.comm.ep - Seconds(48 * 60e-6)), fullest,
              1e-6);
  EXPECT_GT(after.expert_layer.experts.value(), before.expert_layer.experts.value());
  EXPECT_LT(after.expert_layer.experts.value(), before.expert_layer.experts.value() * fullest * 1.05);
  EXPECT_DOUBLE_EQ(after.expert_layer.before.value(), before.expert_layer.before.value());
  EXPECT_GT(after.activation.value(), before.activation.value());
  EXPECT_NEAR(model_flops_per_step(uneven) / model_flops_per_step(even), 1.0, 1e-9)
      << "waiting does not add model FLOPs";
  EXPECT_EQ(error_report(R"({"model": {"name": "mixtral-8x7b", "experts": {"imbalance": 0.2, "capacity_factor": 1.5}},
                                "cluster": "dgx-h100", "layout": {"global_batch_size": 8}})")
                .field,
            "model.experts.imbalance");
}

// A multi-token-prediction module is a layer, a GEMM 2h -> h and a second head on the last stage; on a stage without
// the embedding it also has its own embedding table.
TEST(Experts, PredictFurtherTokens) {
  const auto of = [](int modules, const std::string& layout) {
    const Job job = job_from(R"({"model": {"name": "deepseek-v3", "mtp_layers": )" + std::to_string(modules) +
                             R"(}, "cluster": "8xdgx-h100", "layout": )" + layout + "}");
    const std::vector<int> layers = job.layout.pp == 1 ? std::vector<int>{61} : std::vector<int>{30, 31};
    return std::pair{costs_of(job, layers), model_flops_per_step(job).value()};
  };
  const std::string alone = R"({"ep": 64, "global_batch_size": 64})";
  const auto [none, flops] = of(0, alone);
  const auto [one, more_flops] = of(1, alone);
  const StageCosts& before = none.stages[0];
  const StageCosts& after = one.stages[0];
  const double module = 256.0 / 64 * 3 * 7168 * 2048 + 256 * 7168 + 3 * 7168.0 * 2048;
  EXPECT_NEAR(after.expert_parameters - before.expert_parameters, 256.0 / 64 * 3 * 7168 * 2048, 1.0);
  EXPECT_GT(after.parameters - before.parameters, module + 2.0 * 7168 * 7168);
  EXPECT_EQ(after.expert_layers, before.expert_layers + 1);
  const double per_layer = before.forward.total().value() / 61;
  EXPECT_GT(after.forward.total().value() - before.forward.total().value(), per_layer);
  EXPECT_LT(after.forward.total().value() - before.forward.total().value(), 2.5 * per_layer);
  EXPECT_GT(after.activation.value(), before.activation.value());
  // 6 FLOPs per token for each parameter that it passes, including the head, plus attention.
  const double tokens = 64.0 * 4096;
  const double passed = 2.0 * 7168 * 7168 + 129'280.0 * 7168 + 9 * 3 * 7168.0 * 2048;
  EXPECT_GT(more_flops - flops, 6 * tokens * passed);
  EXPECT_LT(more_flops - flops, 6 * tokens * passed * 1.5);

  const std::string two = R"({"pp": 2, "ep": 32, "global_batch_size": 64})";
  const StepCosts apart = of(1, two).first;
  const StepCosts apart_none = of(0, two).first;
  EXPECT_DOUBLE_EQ(apart.stages[1].embedding_parameters, 129'280.0 * 7168);
  EXPECT_DOUBLE_EQ(apart.stages[0].embedding_parameters, 129'280.0 * 7168);
  EXPECT_DOUBLE_EQ(apart.stages[0].parameters, apart_none.stages[0].parameters);
  EXPECT_GT(apart.ranks[0].embedding_reduction.value(), 0.0);
  EXPECT_EQ(apart_none.ranks[0].embedding_reduction.value(), 0.0);
}

// Launches of every expert, and the host's wait in each layer.
TEST(Experts, HostsThatWaitForRowsBind) {
  const auto forward = [](const std::string& training) {
    const Job job = job_from(R"({"model": {"name": "qwen3-30b-a3b"}, "cluster": "dgx-h100", "layout": {"ep": 8,
                                 "global_batch_size": 64}, "training": {"precision": "fp8", )" +
                             training + "}}");
    return costs_of(job, {48}).stages[0].forward;
  };
  const PassCost bound = forward(R"("stack": "nemo")");
  const PassCost graph = forward(R"("stack": "nemo", "cuda_graphs": "full")");
  const PassCost one = forward(R"("stack": "nemo", "grouped_kernel": "one")");
  EXPECT_GT(bound.compute.value(), graph.compute.value() * 1.2);
  EXPECT_LT(one.compute.value(), bound.compute.value());
}

// 32 expert ranks over tp 2 and dp 16, with no expert sharded (Megatron Core's parallel folding).
TEST(Experts, FoldOverTensorRanks) {
  const auto of = [](const std::string& layout) {
    return job_from(R"({"model": "qwen3-235b-a22b", "cluster": "32xdgx-h100", "layout": {"pp": 8, "tp": 2,
                        "sequence_parallel": true, "global_batch_size": 2048, )" +
                    layout + "}}");
  };
  const Job folded = of(R"("ep": 32, "etp": 1)");
  const Job cut = of(R"("ep": 16)");
  const std::vector<int> layers = {94};
  const StageCosts a = costs_of(folded, layers).stages[0];
  const StageCosts b = costs_of(cut, layers).stages[0];
  EXPECT_DOUBLE_EQ(a.expert_parameters, b.expert_parameters);  // 1/32 of them in either case
  EXPECT_NEAR(a.model_flops / b.model_flops, 1.0, 1e-12);
  EXPECT_LT(a.forward.comm.tp.value(), b.forward.comm.tp.value());
  EXPECT_EQ(RankGrid(folded.layout).folded_expert_placement(1, 32, folded.cluster).nodes, 4);
  EXPECT_EQ(RankGrid(folded.layout).folded_replica_placement(1, 32, folded.cluster).ranks, 1);
  const Diagnostic uneven = error_report(moe_job(
      R"("mixtral-8x7b")", R"({"tp": 4, "etp": 3, "ep": 2, "sequence_parallel": true, "global_batch_size": 32})"));
  EXPECT_EQ(uneven.field, "layout.etp");
  EXPECT_EQ(uneven.help, "valid: 1, 2, 4, or leave it out");
  const Diagnostic spread = error_report(R"({"model": "qwen3-235b-a22b", "cluster": "32xdgx-h100", "layout": {
      "pp": 8, "tp": 2, "ep": 32, "sequence_parallel": true, "global_batch_size": 2048}})");
  EXPECT_EQ(spread.field, "layout.ep");
  EXPECT_EQ(spread.help, "valid: 1, 2, 4, 8, 16, or --etp 1, or --tp 1");
  const Diagnostic whole =
      error_report(moe_job(R"("mixtral-8x7b")", R"({"tp": 4, "etp": 1, "ep": 8, "global_batch_size": 32})"));
  EXPECT_EQ(whole.field, "layout.etp");
  const Diagnostic dense = error_report(moe_job(R"("llama3-8b")", R"({"tp": 2, "etp": 1, "global_batch_size": 32})"));
  EXPECT_EQ(dense.field, "layout.etp");
}

TEST(Experts, AreSplitOverTheirRanks) {
  const std::string all = R"({"global_batch_size": 32})";
  const std::string split = R"({"ep": 4, "global_batch_size": 32})";
  const StageCosts whole = costs_of(job_from(moe_job(R"("mixtral-8x7b")", all)), {32}).stages[0];
  const StageCosts part = costs_of(job_from(moe_job(R"("mixtral-8x7b")", split)), {32}).stages[0];
  EXPECT_DOUBLE_EQ(part.expert_parameters * 4, whole.expert_parameters);
  EXPECT_DOUBLE_EQ(part.parameters - part.expert_parameters, whole.parameters - whole.expert_parameters);
  EXPECT_DOUBLE_EQ(whole.expert_parameters, 32.0 * 8 * 3 * 4096 * 14336);
  EXPECT_DOUBLE_EQ(part.model_flops.value(), whole.model_flops.value());  // the same tokens meet fewer experts
}

// 6 FLOPs per token and active parameter (without embedding), plus attention's 12·L·s·h.
TEST(Experts, ModelFlopsFollowTheActiveParameters) {
  const Job job = job_from(moe_job(R"("mixtral-8x7b")", R"({"ep": 8, "global_batch_size": 32})"));
  const ParameterCounts counts = count_parameters(job.model);
  const double norms = 65.0 * 4096;
  const double tokens = 32.0 * 4096;
  const double products = static_cast<double>(counts.active) - static_cast<double>(counts.embedding) - norms;
  const double attention = 12.0 * 32 * 4096 * 4096;
  EXPECT_NEAR(model_flops_per_step(job).value() / (tokens * (6 * products + attention)), 1.0, 1e-9);
}

TEST(Experts, EachStageKnowsItsKindsOfLayers) {
  const Job job = job_from(moe_job(R"("deepseek-v3")", R"({"pp": 4, "ep": 8, "global_batch_size": 32})"));
  EXPECT_EQ(job.model.expert_layers(0, 61), 58);
  EXPECT_EQ(job.model.kind_of(2), BlockKind::kDense);
  EXPECT_EQ(job.model.kind_of(3), BlockKind::kExperts);
  const StepCosts costs = costs_of(job, {2, 20, 20, 19});
  EXPECT_EQ(costs.stages[0].expert_parameters, 0.0);
  EXPECT_EQ(costs.stages[0].sent.ep.sent_per_rank.value(), 0.0);
  EXPECT_DOUBLE_EQ(costs.stages[1].expert_parameters / 19, costs.stages[2].expert_parameters / 20);
  double parameters = 0.0;
  for (const StageCosts& stage : costs.stages) parameters += stage.parameters + 7 * stage.expert_parameters;
  EXPECT_NEAR(parameters / static_cast<double>(count_parameters(job.model).total), 1.0, 1e-12);
}

TEST(Experts, EverySecondLayer) {
  const Job job = job_from(moe_job(R"({"name": "mixtral-8x7b", "experts": {"count": 8, "top_k": 2, "ffn": 1024,
                                       "every": 2}})",
                                   R"({"global_batch_size": 32})"));
  EXPECT_EQ(job.model.expert_layers(0, 32), 16);
  EXPECT_EQ(job.model.kind_of(0), BlockKind::kDense);
  EXPECT_EQ(job.model.kind_of(1), BlockKind::kExperts);
}

TEST(Experts, RefusesWhatDoesNotSplit) {
  const Diagnostic none = error_report(moe_job(R"("llama3-8b")", R"({"ep": 2, "global_batch_size": 32})"));
  EXPECT_EQ(none.field, "layout.ep");
  EXPECT_EQ(none.help, "valid: 1");
  const Diagnostic uneven = error_report(moe_job(R"("mixtral-8x7b")", R"({"ep": 16, "global_batch_size": 32})"));
  EXPECT_EQ(uneven.field, "layout.ep");
  EXPECT_EQ(uneven.help, "valid: 1, 2, 4, 8");
  const Diagnostic greedy = error_report(moe_job(
      R"({"name": "mixtral-8x7b", "experts": {"count": 4, "top_k": 5, "ffn": 8}})", R"({"global_batch_size": 32})"));
  EXPECT_EQ(greedy.field, "model.experts.top_k");
  const Diagnostic misspelt = error_report(moe_job(
      R"({"name": "mixtral-8x7b", "experts": {"count": 4, "topk": 2, "ffn": 8}})", R"({"global_batch_size": 32})"));
  EXPECT_EQ(misspelt.field, "model.experts.topk");
}

TEST(LatentAttention, HasTheShapesOfDeepSeek) {
  const Job job = job_from(moe_job(R"("deepseek-v3")", R"({"tp": 4, "global_batch_size": 32})"));
  const auto operators = block_operators(job.model, job.layout, job.training, BlockKind::kDense);
  const auto named = [&operators](std::string_view name) {
    return *std::find_if(operators.begin(), operators.end(), [name](const Operator& op) { return op.name == name; });
  };
  EXPECT_EQ(named("query down projection").shape.n, 1536);
  EXPECT_EQ(named("query down projection").parameter_copies, 4);
  EXPECT_EQ(named("query up projection").shape.n, 128 * 192 / 4);
  EXPECT_EQ(named("key-value down projection").shape.n, 576);
  EXPECT_EQ(named("key-value up projection").shape.n, 128 * 256 / 4);
  EXPECT_EQ(named("output projection").shape.k, 128 * 128 / 4);
  // 2·(qk + v) per score.
  EXPECT_DOUBLE_EQ(named("flash attention").full_attention_flops.value(), 2.0 * 32 * 4096 * 4096 * (192 + 128));
}

TEST(Transformer, BidirectionalAttentionVisitsEveryScore) {
  const Job job = job_from(R"({"model": "bert-large", "cluster": "one-gpu", "layout": {"global_batch_size": 1}})");
  for (const Operator& op : block_operators(job.model, job.layout, job.training, BlockKind::kDense)) {
    const bool fused = op.kind == OperatorKind::kFusedAttention;
    EXPECT_TRUE(!fused || op.attention_flops == op.full_attention_flops) << op.name;
  }
  EXPECT_FALSE(job.model.causal);
}

}  // namespace
}  // namespace flopcast
