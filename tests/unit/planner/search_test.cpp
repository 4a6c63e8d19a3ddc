// The search finds the same as simulating everything, and counts every layout once.
#include "planner/search/search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "model/job/read_job.hpp"
#include "planner/compare/compare.hpp"
#include "planner/plan/plan.hpp"
#include "planner/shared/crew.hpp"
#include "sim/forecast/forecast.hpp"
#include "tests/unit/planner/questions.hpp"

namespace flopcast {
namespace {

SearchResult search(const PlanQuestion& question, bool everything,
                    double longest_step_s = std::numeric_limits<double>::infinity()) {
  SearchOptions options;
  options.simulate_everything = everything;
  LayoutSearch search(question.space, options, serial_for);
  search.explore(question.job, longest_step_s, "too slow");
  return search.result();
}

std::vector<std::uint64_t> orders(const std::vector<PlannedLayout>& layouts) {
  std::vector<std::uint64_t> list;
  for (const PlannedLayout& one : layouts) list.push_back(one.order);
  return list;
}

std::int64_t rejected(const SearchResult& result) {
  return std::accumulate(result.rejected.begin(), result.rejected.end(), std::int64_t{0},
                         [](std::int64_t sum, const RejectedLayouts& one) { return sum + one.count; });
}

void expect_same_answer(const PlanQuestion& question) {
  const SearchResult bounded = search(question, false);
  const SearchResult whole = search(question, true);
  ASSERT_FALSE(whole.ranked.empty());
  EXPECT_EQ(orders(bounded.ranked), orders(whole.ranked));
  EXPECT_EQ(orders(bounded.pareto), orders(whole.pareto));
  EXPECT_EQ(bounded.ranked.front().time_s, whole.ranked.front().time_s);
  EXPECT_LT(bounded.space.simulated, whole.space.simulated);
  for (const SearchResult* result : {&bounded, &whole}) {
    EXPECT_EQ(result->space.enumerated, result->space.pruned + result->space.simulated + rejected(*result));
  }
  EXPECT_EQ(bounded.space.enumerated, whole.space.enumerated);
}

TEST(Search, FindsWhatSimulatingEverythingFinds) {
  expect_same_answer(small_question());
}

TEST(Search, FindsItWhereMemoryIsTheLimit) {
  PlanQuestion question = small_question(R"("global_batch_size": 64)", R"("sequence_length": 4096)");
  question.job.cluster.device.memory_capacity = Bytes(3.5 * kGibibyte);
  const SearchResult result = search(question, false);
  std::int64_t misfits = 0;
  for (const RejectedLayouts& one : result.rejected) {
    if (one.reason == "does not fit in memory") misfits = one.count;
  }
  EXPECT_GT(misfits, 0);
  expect_same_answer(question);
}

TEST(Search, FindsItWithExpertsAndWithEverySplit) {
  expect_same_answer(small_expert_question());
  PlanQuestion paired = small_expert_question();
  paired.job.training.stack.overlap_experts = ExpertOverlap::k1f1bDelayed;
  expect_same_answer(paired);
  PlanQuestion wide = small_question(R"("global_batch_size": 8, "tp": 2, "recompute": "none")");
  wide.space.splits = all_splits();
  wide.space.uneven_chunks = true;
  expect_same_answer(wide);
}

TEST(Search, FindsItAmongAsynchronousAndBidirectionalSchedules) {
  PlanQuestion question = small_question(R"("global_batch_size": 16, "recompute": "none", "zero": 0)");
  question.space.schedules.clear();
  for (const char* name : {"1f1b", "pipedream-2bw", "chimera", "dualpipev", "hanayo", "zb-h2"}) {
    question.space.schedules.push_back(schedule_choice(name));
  }
  expect_same_answer(question);
}

TEST(Search, TiesGoToLessMemoryAndThenToTheEnumeration) {
  PlannedLayout a;
  a.score = {1.0, 1.0};
  a.memory_share = 0.5;
  a.order = 7;
  PlannedLayout b = a;
  b.order = 8;
  EXPECT_TRUE(ranks_before(a, b));
  EXPECT_FALSE(ranks_before(b, a));
  b.memory_share = 0.4;
  EXPECT_TRUE(ranks_before(b, a));
  a.score = {1.0, 0.9};
  EXPECT_TRUE(ranks_before(a, b));
}

TEST(Search, StepsThatAreTooLongAreRejected) {
  const PlanQuestion question = small_question();
  const double best = search(question, false).ranked.front().time_s;
  const SearchResult limited = search(question, false, best * 1.001);
  ASSERT_FALSE(limited.ranked.empty());
  for (const PlannedLayout& one : limited.ranked) EXPECT_LE(one.time_s, best * 1.001);
  EXPECT_TRUE(search(question, false, best * 0.999).ranked.empty());
  EXPECT_EQ(limited.space.enumerated, limited.space.pruned + limited.space.simulated + rejected(limited));
}

TEST(Plan, TheFewestGpusAreTheFirstThatFit) {
  PlanQuestion question = small_question(R"("global_batch_size": 48)", R"("sequence_length": 2048)");
  question.job.cluster.device.memory_capacity = Bytes(0.22 * kGibibyte);
  PlanOptions options;
  options.search.objective = Objective::kGpus;
  options.nodes = {1, 2, 3, 4, 5, 6};
  const SearchResult result = plan(question.job, question.space, options, serial_for);
  ASSERT_FALSE(result.ranked.empty());
  const int nodes = result.ranked.front().nodes;
  EXPECT_GT(nodes, 1);
  for (const PlannedLayout& one : result.ranked) EXPECT_EQ(one.nodes, nodes);
  PlanOptions fewer = options;
  fewer.nodes.clear();
  for (int count = 1; count < nodes; ++count) fewer.nodes.push_back(count);
  EXPECT_TRUE(plan(question.job, question.space, fewer, serial_for).ranked.empty());
}

TEST(Plan, SizesAreRankedByTheTimeOnTheClock) {
  PlanQuestion question = small_question();
  question.job.training.tokens = 1e9;
  PlanOptions options;
  options.nodes = {1, 2, 4};
  Interruptions interruptions;
  interruptions.gpu_mtbf_s = 16 * 150.0;
  options.interruptions = interruptions;
  for (const Objective objective : {Objective::kTime, Objective::kCost}) {
    options.search.objective = objective;
    options.search.simulate_everything = false;
    const SearchResult bounded = plan(question.job, question.space, options, serial_for);
    options.search.simulate_everything = true;
    const SearchResult whole = plan(question.job, question.space, options, serial_for);
    EXPECT_EQ(orders(bounded.ranked), orders(whole.ranked));
    EXPECT_EQ(orders(bounded.pareto), orders(whole.pareto));
    const auto days = [&](const PlannedLayout& one) {
      return run_length(question.job, one.time_s, one.devices, options.interruptions)->days;
    };
    const double weight = objective == Objective::kCost ? 1.0 : 0.0;
    for (const PlannedLayout& one : whole.ranked) {
      EXPECT_GE(days(one) * std::pow(one.devices, weight) * (1 + 1e-12),
                days(bounded.ranked.front()) * std::pow(bounded.ranked.front().devices, weight));
    }
    EXPECT_EQ(bounded.ranked.front().nodes, 1);
  }
  // Without failures more GPUs are faster.
  options.search.objective = Objective::kTime;
  options.search.simulate_everything = false;
  options.interruptions.reset();
  EXPECT_GT(plan(question.job, question.space, options, serial_for).ranked.front().nodes, 1);
}

// Every layout of every size that is not dominated, however slow.
TEST(Plan, TheWholeFrontIsThatOfEverything) {
  const PlanQuestion question = small_question();
  PlanOptions options;
  options.nodes = {1, 2, 4};
  options.search.ranked = 3;
  options.search.pareto_reach = std::numeric_limits<double>::infinity();
  const SearchResult bounded = plan(question.job, question.space, options, serial_for);
  options.search.simulate_everything = true;
  options.search.ranked = 100'000;
  const SearchResult whole = plan(question.job, question.space, options, serial_for);
  ASSERT_EQ(static_cast<std::int64_t>(whole.ranked.size()), whole.space.simulated);
  std::set<std::uint64_t> front;
  const auto same = [](const PlannedLayout& a, const PlannedLayout& b) {
    return a.time_s == b.time_s && a.memory_share == b.memory_share && a.devices == b.devices;
  };
  for (const PlannedLayout& one : whole.ranked) {
    const bool beaten =
        std::any_of(whole.ranked.begin(), whole.ranked.end(), [&one, &same](const PlannedLayout& other) {
          if (same(one, other)) return other.order < one.order;
          return other.time_s <= one.time_s && other.memory_share <= one.memory_share && other.devices <= one.devices;
        });
    if (!beaten) front.insert(one.order);
  }
  const std::vector<std::uint64_t> found = orders(bounded.pareto);
  EXPECT_EQ(std::set<std::uint64_t>(found.begin(), found.end()), front);
  EXPECT_EQ(found.size(), front.size());
  EXPECT_LT(bounded.space.simulated, whole.space.simulated);
  EXPECT_EQ(bounded.pareto.front().nodes, 1);
  EXPECT_EQ(bounded.pareto.back().nodes, 4);
}

// On shared links bounds remain valid, in both orders of the axes; layouts with equivalent orders are listed once.
TEST(Plan, FindsTheBestPlacementOnANetwork) {
  const PlanQuestion question =
      question_of(R"({"model": {"layers": 8, "hidden": 1024, "heads": 16, "vocab": 51200, "sequence_length": 512},
      "cluster": {"name": "dgx-a100-80g", "nodes": 8,
                  "network": {"tiers": [{"nodes": 2, "oversubscription": 16}]}},
      "layout": {"global_batch_size": 32, "cp": 1, "recompute": "none"}, "training": {"sequence_length": 512}})");
  ASSERT_EQ(question.space.placements.size(), 2U);
  PlanOptions options;
  options.nodes = {8};
  const SearchResult bounded = plan(question.job, question.space, options, serial_for);
  options.search.simulate_everything = true;
  const SearchResult whole = plan(question.job, question.space, options, serial_for);
  EXPECT_EQ(orders(bounded.ranked), orders(whole.ranked));
  EXPECT_EQ(bounded.space.enumerated, whole.space.enumerated);
  EXPECT_EQ(bounded.space.enumerated, bounded.space.pruned + bounded.space.simulated + rejected(bounded));
  PlanQuestion usual = question;
  usual.space.placements.clear();
  const SearchResult one_order = plan(usual.job, usual.space, options, serial_for);
  EXPECT_LE(bounded.ranked.front().time_s, one_order.ranked.front().time_s);
  options.search.ranked = 100'000;
  const SearchResult all = plan(question.job, question.space, options, serial_for);
  std::size_t turned = 0;
  std::size_t faster = 0;
  for (const PlannedLayout& planned : all.ranked) {
    if (planned.layout.placement == usual_placements().front()) continue;
    ++turned;
    EXPECT_GT(planned.layout.pp, 1);
    EXPECT_GT(planned.layout.dp, 1);
    Job job = question.job;
    job.layout = planned.layout;
    job.layout.placement = usual_placements().front();
    if (planned.time_s < evaluate_layout(job).time_s) ++faster;
    EXPECT_EQ(layout_section_of(nlohmann::json::object(), planned).at("placement"), "tp-cp-pp-dp");
  }
  EXPECT_GT(turned, 0U);
  EXPECT_GT(faster, 0U) << "a pipeline in a rack, its replicas across";
}

// Two racks of four nodes with alternating free ones, half of which are requested: each layout is listed once, on its
// best nodes.
TEST(Plan, TakesTheBestOfTheFreeNodes) {
  const auto asked = [](const char* allocation) {
    return question_of(R"({"model": {"layers": 8, "hidden": 1024, "heads": 16, "vocab": 51200, "sequence_length": 512},
      "cluster": {"name": "dgx-a100-80g", "nodes": 4,
                  "network": {"nodes": 8, "tiers": [{"nodes": 4, "oversubscription": 16}])" +
                       std::string(allocation) + R"(}},
      "layout": {"global_batch_size": 32, "cp": 1, "vpp": 1, "recompute": "none", "sequence_parallel": false,
                 "schedule": "1f1b"},
      "training": {"sequence_length": 512, "stack": {"name": "megatron-core", "host_time_per_kernel": "0us"}}})");
  };
  const PlanQuestion question = asked(R"(, "allocation": [0, 4, 1, 5, 2, 6, 3, 7])");
  EXPECT_EQ(question.space.free_nodes.size(), 8U);
  PlanOptions options;
  options.nodes = {4};
  const SearchResult bounded = plan(question.job, question.space, options, serial_for);
  const Allocation& best = *bounded.ranked.front().allocation;
  EXPECT_EQ(best.name, "packed");
  EXPECT_EQ(best.nodes, std::vector<int>({0, 1, 2, 3}));
  options.search.simulate_everything = true;
  const SearchResult whole = plan(question.job, question.space, options, serial_for);
  EXPECT_EQ(orders(bounded.ranked), orders(whole.ranked));
  std::size_t better = 0;
  for (const PlannedLayout& planned : whole.ranked) {
    Job job = question.job;
    job.layout = planned.layout;
    for (const Allocation& other : standard_allocations(job.cluster, question.space.free_nodes)) {
      const double time_s = evaluate_layout(job, {other}).time_s;
      EXPECT_GE(time_s, planned.time_s);
      EXPECT_TRUE(time_s == planned.time_s || other.nodes != planned.allocation->nodes);
      if (time_s > planned.time_s) ++better;
    }
  }
  EXPECT_GT(better, 0U);
  const nlohmann::json root = {{"cluster", {{"name", "dgx-a100-80g"}, {"nodes", 4}, {"network", "two-tier-2to1"}}}};
  EXPECT_EQ(job_file_of(root, bounded.ranked.front()).at("cluster").at("network"),
            nlohmann::json({{"preset", "two-tier-2to1"}, {"allocation", {0, 1, 2, 3}}, {"nodes", 8}}));
  // Layouts found by another process return with their nodes, whatever the job lists.
  nlohmann::json many = root;
  many["model"] = "gpt3-125m";
  many["layout"] = {{"global_batch_size", 32}};
  many["cluster"]["network"] = {{"tiers", {{{"nodes", 4}}}},
                                {"allocation", {0, 4, 1, 5, 2, 13}},
                                {"degraded", {{{"link", "tier0.3.up"}, {"share", 0.5}}}}};
  const std::optional<SearchResult> back = read_part(many, write_part(many, bounded));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->ranked.front().allocation->nodes, best.nodes);
  EXPECT_EQ(back->ranked.front().allocation->of, 8);
  EXPECT_EQ(asked("").space.free_nodes.size(), 8U) << "in a larger fabric all are free";
  EXPECT_TRUE(asked(R"(, "allocation": "compact")").space.free_nodes.empty());
  const PlanQuestion uneven = question_of(R"({"model": "gpt3-125m", "cluster": {"name": "dgx-a100-80g",
      "nodes": [{"devices": 8}, {"devices": 8, "device": "a100-40g"}], "network": {"allocation": [5, 2]}},
      "layout": {"global_batch_size": 32}})");
  EXPECT_TRUE(uneven.space.free_nodes.empty());
  EXPECT_EQ(uneven.job.cluster.network->allocated, std::vector<int>({5, 2})) << "allocation of the nodes";
  try {
    asked(R"(, "allocation": [0, 1, 1, 2, 3])");
    ADD_FAILURE() << "a node listed twice should be refused";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.diagnostic().field, "cluster.network.allocation");
  }
}

// Published layouts of mixtures, under their own software, compared with the proposals of plan. Each is as stated by
// its source; plan is given everything but the layout.
struct PublishedLayout {
  const char* source;
  const char* question;  ///< "layout" ends in what the source and plan share
  const char* layout;
  double at_least;      ///< lower limit of plan's step relative to the published one's
  const char* because;  ///< the first term in docs/planning.md
};

const std::vector<PublishedLayout>& published_layouts() {
  constexpr const char* kDeepSeek = R"({"model": {"name": "deepseek-v3", "mtp_layers": 1}, "cluster": "256xhgx-h800",
      "training": {"sequence_length": 4096, "precision": "fp8", "fp8_recipe": "blockwise", "moment_dtype": "bf16",
                   "grouped_kernel": "one", "stack": {"name": "megatron-core", "host_time_per_kernel": "0us"},
                   "experts_dispatch": {"dispatcher": "deepep", "dtype": "fp8"}},
      "layout": {"global_batch_size": 15360, "recompute": "selective", "schedule": "dualpipe",
                 "recompute_modules": ["layernorm", "mla_up_proj", "moe_act"]}})";
  static const std::vector<PublishedLayout> all = {
      {"DeepSeek-V3, 2412.19437 §3.2", kDeepSeek,
       R"({"tp": 1, "pp": 16, "ep": 64, "zero": 1, "micro_batch_size": 1, "stage_layers": "balanced"})", 0.85,
       "bubble: uneven stages"},
      {"Qwen3-235B, yanring/Megatron-MoE-ModelZoo, best_practice/qwen3/run_h100_235b.sh",
       R"({"model": "qwen3-235b-a22b", "cluster": "32xdgx-h100",
           "training": {"sequence_length": 4096, "precision": "bf16", "stack": "megatron-core",
                        "experts_dispatch": {"dispatcher": "deepep"}, "overlap": {"experts": "1f1b"}},
           "layout": {"global_batch_size": 2048, "recompute": "selective",
                      "recompute_modules": ["moe_act", "layernorm"]}})",
       R"({"tp": 2, "pp": 8, "vpp": 4, "ep": 32, "etp": 1, "zero": 1, "sequence_parallel": true, "micro_batch_size": 1,
           "schedule": "interleaved"})",
       0.9, "expert-parallel communication"},
      {"Mixtral 8x7B, yanring/Megatron-MoE-ModelZoo, runtime_configs/benchmarking/runtime.conf",
       R"({"model": "mixtral-8x7b", "cluster": "8xdgx-h100",
           "training": {"sequence_length": 4096, "precision": "bf16", "stack": "megatron-core"},
           "layout": {"global_batch_size": 256, "recompute": "none"}})",
       R"({"tp": 1, "pp": 4, "vpp": 8, "ep": 8, "zero": 1, "micro_batch_size": 1, "schedule": "interleaved"})", 0.9,
       "compute"}};
  return all;
}

// No slower than the published layout, and not so much faster that the published one would be a bad layout; terms of
// the step explain differences.
TEST(Plan, ProposesLayoutsAsFastAsThePublishedOnesOfMixtures) {
  const auto best_of = [](const nlohmann::json& job) {
    PlanQuestion question = question_of(job.dump());
    keep_runnable(question.job, job.at("layout").contains("schedule"), question.space);
    PlanOptions options;
    options.nodes = {question.job.cluster.nodes};
    options.search.memory_limit = 0.95;  // as the program, which keeps some memory free
    return plan(question.job, question.space, options, serial_for).ranked.front();
  };
  const ReadFile no_files = [](const std::string& path) { return path; };
  for (const PublishedLayout& published : published_layouts()) {
    const nlohmann::json asked = nlohmann::json::parse(published.question);
    nlohmann::json known = asked;
    known["layout"].update(nlohmann::json::parse(published.layout));
    const Job job = read_job(known, Origins{});
    const PlannedLayout best = best_of(asked);
    Job proposed = job;
    proposed.layout = best.layout;
    const Forecast theirs = forecast(job, no_files);
    const Forecast ours = forecast(proposed, no_files);
    const double share = best.time_s / theirs.result.iteration.time_s;
    const Reasons reasons = reasons_for(ours.result, theirs.result, 0.001);
    std::cout << published.source << ": published " << theirs.result.iteration.time_s << " s, tp " << best.layout.tp
              << " pp " << best.layout.pp << " ep " << best.layout.ep << " " << best.time_s << " s";
    for (const ComparedTerm& term : reasons.in_favour) std::cout << ", " << term.name << " " << term.delta_s();
    std::cout << "\n";
    EXPECT_LE(share, 1.0) << published.source;
    EXPECT_GE(share, published.at_least) << published.source;
    ASSERT_FALSE(reasons.in_favour.empty()) << published.source;
    EXPECT_EQ(reasons.in_favour.front().name, published.because) << published.source;
    EXPECT_TRUE(theirs.result.memory.fits) << published.source;
    if (known["layout"]["schedule"] != "dualpipe") continue;
    // Its authors did not want tensor parallelism, §3.2.
    nlohmann::json without_tensors = asked;
    without_tensors["layout"]["tp"] = 1;
    const double alike = best_of(without_tensors).time_s / theirs.result.iteration.time_s;
    EXPECT_LE(alike, 1.0) << "the published layout is among them";
    EXPECT_GE(alike, 0.9);
  }
}

TEST(Allocations, PackAndSpread) {
  const auto ways = [](Topology topology, std::vector<NetworkTier> tiers, std::vector<int> shape, int nodes,
                       const std::vector<int>& free) {
    Cluster cluster;
    cluster.nodes = nodes;
    cluster.network = Network();
    cluster.network->topology = topology;
    cluster.network->tiers = std::move(tiers);
    cluster.network->shape = std::move(shape);
    std::map<std::string, std::vector<int>> found;
    for (const Allocation& way : standard_allocations(cluster, free)) found[way.name] = way.nodes;
    return found;
  };
  using Nodes = std::vector<int>;
  // Leaves of four, pods of eight: the second pod has room for all, on its full leaf and two nodes of another.
  const Nodes free = {1, 3, 5, 6, 7, 8, 9, 10, 11, 13, 15};
  auto found = ways(Topology::kTree, {{4, 1.0}, {8, 2.0}}, {}, 6, free);
  EXPECT_EQ(found.at("as listed"), Nodes({1, 3, 5, 6, 7, 8}));
  EXPECT_EQ(found.at("packed"), Nodes({8, 9, 10, 11, 13, 15}));
  EXPECT_EQ(found.at("spread"), Nodes({1, 3, 5, 6, 8, 13}));
  // On the leaf with exactly three free nodes, not on the full one.
  EXPECT_EQ(ways(Topology::kTree, {{4, 1.0}, {8, 2.0}}, {}, 3, free).at("packed"), Nodes({5, 6, 7}));
  EXPECT_EQ(ways(Topology::kTorus, {}, {4, 4}, 4, free).at("packed"), Nodes({8, 9, 10, 11}));
  EXPECT_EQ(ways(Topology::kDragonfly, {}, {2, 2, 2, 2}, 4, free).at("packed"), Nodes({8, 9, 10, 11}));
  EXPECT_EQ(ways(Topology::kStar, {}, {}, 2, free).size(), 1U);
  EXPECT_EQ(ways(Topology::kTree, {{4, 1.0}}, {}, 4, {0, 1, 2, 3, 8}).size(), 2U) << "each listed once";
  EXPECT_EQ(ways(Topology::kTree, {{2, 1.0}}, {}, 4, {0, 2, 1, 3}).size(), 1U) << "keeps the user's order";
  EXPECT_THROW(ways(Topology::kTree, {{2, 1.0}}, {}, 4, {0, 2, 1}), ConfigError);
}

TEST(Plan, ThePlacementIsTheJobsWhereItIsGivenOrNothingIsShared) {
  const auto placements = [](const char* network, const char* layout) {
    return question_of(std::string(R"({"model": "gpt3-125m", "cluster": {"name": "dgx-a100-80g", "nodes": 8)") +
                       network + R"(}, "layout": {"global_batch_size": 32)" + layout + "}}")
        .space.placements.size();
  };
  EXPECT_EQ(placements("", ""), 0U);
  EXPECT_EQ(placements(R"(, "network": "none")", ""), 0U);
  EXPECT_EQ(placements(R"(, "network": "two-tier-2to1")", R"(, "placement": "tp-cp-dp-pp")"), 0U);
  EXPECT_EQ(placements(R"(, "network": "two-tier-2to1")", ""), 2U);
}

TEST(Plan, CostWeighsGpusAgainstTime) {
  const PlanQuestion question = small_question();
  PlanOptions options;
  options.search.objective = Objective::kCost;
  options.nodes = {1, 2};
  const SearchResult result = plan(question.job, question.space, options, serial_for);
  for (const PlannedLayout& one : result.ranked) {
    EXPECT_DOUBLE_EQ(one.score.primary, one.time_s * one.devices);
    EXPECT_GE(one.score.primary, result.ranked.front().score.primary);
  }
}

}  // namespace
}  // namespace flopcast
