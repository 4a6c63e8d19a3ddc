#include "tests/realrun/loss_matrix.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <tuple>

namespace flopcast::realrun {

namespace {

struct Degrees {
  int pp = 1;
  int dp = 1;
  int tp = 1;
};

struct Want {
  std::string schedule;
  std::string variant = {};
  int chunks = 0;  // 0: the schedule's default, or 2 if it supports several
  std::optional<int> microbatches = std::nullopt;
  Degrees degrees = {};
  int zero = 0;
  bool sequence_parallel = false;
  bool tied = false;
  std::vector<int> stage_blocks = {};
  std::optional<int> accumulation = std::nullopt;
};

int default_chunks(const ScheduleInfo& info) {
  if (info.default_chunks > 1) return info.default_chunks;
  return info.uses_chunks ? 2 : 1;
}

// The wanted number of microbatches, or the next that the schedule accepts: preferably not a multiple of the ranks.
std::optional<ScheduleRequest> request_for(const ScheduleInfo& info, const Want& want) {
  ScheduleRequest request;
  request.pipeline_ranks = want.degrees.pp;
  request.chunks = want.chunks > 0 ? want.chunks : default_chunks(info);
  request.variant = want.variant;
  request.accumulation = want.accumulation;
  if (std::find(info.reads.begin(), info.reads.end(), &ScheduleRequest::slices) != info.reads.end()) request.slices = 2;
  const int ranks = want.degrees.pp;
  std::vector<int> candidates = {2 * ranks + 1, 2 * ranks + 2, 2 * ranks, 4 * ranks};
  if (info.asynchronous) candidates = {4 * want.accumulation.value_or(info.weights.accumulation(request))};
  if (want.microbatches) candidates = {*want.microbatches};
  for (const int microbatches : candidates) {
    request.microbatches = microbatches;
    if (!refuse_request(info, request)) return request;
  }
  return std::nullopt;
}

std::string name_of_case(const Want& want, const ScheduleRequest& request) {
  std::string name = fmt::format("{}{}{} pp={} m={} v={}", want.schedule, want.variant.empty() ? "" : ":", want.variant,
                                 want.degrees.pp, request.microbatches, request.chunks);
  if (want.degrees.dp > 1) name += fmt::format(" dp={}", want.degrees.dp);
  if (want.degrees.tp > 1) name += fmt::format(" tp={}", want.degrees.tp);
  if (want.zero > 0) name += fmt::format(" zero={}", want.zero);
  if (want.sequence_parallel) name += " sp";
  if (want.tied) name += " tied";
  if (!want.stage_blocks.empty()) name += fmt::format(" layers={}", fmt::join(want.stage_blocks, ","));
  if (want.accumulation) name += fmt::format(" accumulation={}", *want.accumulation);
  return name;
}

// Adds the case unless the schedule refuses its counts.
bool add(std::vector<MatrixCase>& cases, const Want& want) {
  const ScheduleInfo* info = find_schedule(want.schedule);
  if (info == nullptr) {
    ADD_FAILURE() << want.schedule << " is not in the catalogue";
    return false;
  }
  const std::optional<ScheduleRequest> request = request_for(*info, want);
  if (!request) return false;
  TrainingPlan plan = plan_for(tiny_transformer(), *info, *request);
  plan.dp = want.degrees.dp;
  plan.tp = want.degrees.tp;
  plan.zero = want.zero;
  plan.sequence_parallel = want.sequence_parallel;
  plan.network.tied_embeddings = want.tied;
  plan.bucket_bytes = 600;
  if (!want.stage_blocks.empty()) plan.stage_blocks = want.stage_blocks;
  if (info->asynchronous) {
    plan.steps = 1;
    // If the two passes of a microbatch see different weights, large updates amplify rounding.
    plan.optimizer.rate = plan.updates.policy == WeightPolicy::kNewest ? 0.05F : 0.2F;
    plan.optimizer.momentum = 0.5F;
  }
  cases.push_back({name_of_case(want, *request), plan});
  return true;
}

void expect_added(std::vector<MatrixCase>& cases, const Want& want) {
  EXPECT_TRUE(add(cases, want)) << want.schedule << " refuses pp=" << want.degrees.pp;
}

// Properties that a run on one rank depends on.
using ReferenceKey = std::tuple<int, int, int, bool, std::string>;

}  // namespace

std::vector<MatrixCase> schedules_by_layouts() {
  const Degrees layouts[] = {{2, 1, 1}, {4, 1, 1}, {2, 2, 1}, {2, 1, 2}, {2, 2, 2}};
  std::vector<MatrixCase> cases;
  for (const char* schedule :
       {"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zbv", "dualpipev", "pipedream", "pipedream-2bw"}) {
    for (const Degrees& degrees : layouts) {
      for (const int zero : {0, 1}) {
        if (zero > 0 && degrees.dp == 1) continue;  // nothing to shard
        expect_added(cases, {.schedule = schedule, .degrees = degrees, .zero = zero});
      }
    }
  }
  return cases;
}

std::vector<MatrixCase> whole_catalogue() {
  std::vector<MatrixCase> cases;
  for (const ScheduleInfo& info : schedule_catalogue()) {
    std::vector<std::string> variants(info.variants.begin(), info.variants.end());
    if (variants.empty()) variants.emplace_back();
    const std::size_t before = cases.size();
    for (const std::string& variant : variants) {
      for (const int chunks : {1, 2, 3, 4}) {
        if (chunks > 1 && !info.uses_chunks && chunks != info.default_chunks) continue;
        Want want{.schedule = std::string(info.name), .variant = variant, .chunks = chunks};
        for (const int pp : {2, 4}) {
          want.degrees = {pp, 1, 1};
          want.tied = !info.asynchronous && pp == 4;
          add(cases, want);
        }
        want.degrees = {2, 2, 1};
        want.tied = !info.asynchronous;
        add(cases, want);
      }
    }
    EXPECT_GE(cases.size(), before + 2) << info.name << " is hardly tested";
  }
  return cases;
}

namespace {

void add_sharded(std::vector<MatrixCase>& cases) {
  for (const char* schedule :
       {"gpipe", "1f1b", "interleaved", "bfs", "zb-h1", "zbv", "chimera", "dualpipe", "dualpipev", "terapipe"}) {
    for (const int zero : {2, 3}) {
      expect_added(cases, {.schedule = schedule, .degrees = {2, 2, 1}, .zero = zero});
      expect_added(cases,
                   {.schedule = schedule, .degrees = {2, 2, 2}, .zero = zero, .sequence_parallel = true, .tied = true});
    }
    expect_added(cases, {.schedule = schedule, .degrees = {2, 1, 2}, .sequence_parallel = true});
    expect_added(cases, {.schedule = schedule, .degrees = {2, 2, 2}, .zero = 1, .sequence_parallel = true});
  }
}

void add_shapes(std::vector<MatrixCase>& cases) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "chimera", "dualpipe"}) {
    expect_added(cases, {.schedule = schedule, .degrees = {4, 1, 1}, .tied = true, .stage_blocks = {1, 4, 0, 3}});
  }
  for (const char* schedule : {"interleaved", "zbv", "dualpipev"}) {
    expect_added(cases, {.schedule = schedule, .chunks = 2, .degrees = {2, 1, 1}, .stage_blocks = {0, 3, 1, 4}});
  }
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    expect_added(cases, {.schedule = schedule, .degrees = {4, 1, 1}, .stage_blocks = {1, 4, 0, 3}});
  }
  for (const int microbatches : {1, 2, 3, 5, 7}) {
    for (const char* schedule : {"naive", "gpipe", "1f1b", "zb-h1"}) {
      expect_added(cases, {.schedule = schedule, .microbatches = microbatches, .degrees = {4, 1, 1}});
    }
  }
  expect_added(cases, {.schedule = "interleaved", .chunks = 2, .microbatches = 10, .degrees = {4, 1, 1}});
  expect_added(cases, {.schedule = "interleaved", .chunks = 3, .microbatches = 6, .degrees = {2, 2, 1}, .zero = 1});
  expect_added(cases, {.schedule = "pipedream", .microbatches = 11, .degrees = {4, 2, 1}, .zero = 1});
  expect_added(cases, {.schedule = "pipedream-2bw", .degrees = {2, 2, 1}, .accumulation = 5});
  for (const int accumulation : {1, 3, 8}) {
    expect_added(cases, {.schedule = "pipemare", .degrees = {4, 1, 1}, .accumulation = accumulation});
    expect_added(cases, {.schedule = "pipemare", .degrees = {2, 2, 2}, .zero = 1, .accumulation = accumulation});
  }
}

// The largest values are all values: compressed, and yet exact.
void add_compressed(std::vector<MatrixCase>& cases) {
  for (const char* schedule :
       {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv", "chimera", "dualpipev", "pipedream", "pipedream-2bw"}) {
    const Degrees layouts[] = {{2, 2, 1}, {2, 2, 2}};
    for (const Degrees& degrees : layouts) {
      expect_added(cases, {.schedule = schedule, .degrees = degrees});
      cases.back().plan.compression = {.kind = Compression::Kind::kTopK, .fraction = 1.0};
      cases.back().name += ", compressed";
    }
  }
}

void add_recomputed(std::vector<MatrixCase>& cases) {
  const RecomputeModules every_module =
      bit_of(RecomputeModule::kCoreAttention) | bit_of(RecomputeModule::kLayernorm) | bit_of(RecomputeModule::kMlp);
  const std::pair<const char*, Recomputation> forms[] = {
      {"full", {.first_blocks = 8}},
      {"full, first", {.first_blocks = 1}},
      {"full, every other", {.every = 2}},
      {"full, partitioned", {.first_blocks = 8, .partitioned = true}},
      {"core_attn", {.modules = bit_of(RecomputeModule::kCoreAttention)}},
      {"all modules", {.modules = every_module}}};
  const Degrees layouts[] = {{2, 1, 1}, {2, 2, 1}, {2, 1, 2}, {2, 2, 2}};
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zbv", "dualpipev", "terapipe", "pipedream-2bw"}) {
    for (const auto& [name, again] : forms) {
      for (const Degrees& degrees : layouts) {
        const bool asynchronous = find_schedule(schedule)->asynchronous;
        const int zero = degrees.dp == 1 ? 0 : asynchronous ? 1 : 3;
        expect_added(cases, {.schedule = schedule,
                             .degrees = degrees,
                             .zero = zero,
                             .sequence_parallel = degrees.dp > 1 && degrees.tp > 1 && !again.partitioned});
        cases.back().plan.network.recompute = again;
        cases.back().name += fmt::format(", recompute {}", name);
      }
    }
  }
}

// Prefetching ZeRO 3 over some or all replicas, with weights released or kept after the forward pass.
void add_fully_sharded(std::vector<MatrixCase>& cases) {
  struct Cut {
    Degrees degrees;
    int shards = 0;
  };
  const Cut cuts[] = {{{1, 4, 1}, 0}, {{2, 3, 1}, 0}, {{1, 4, 1}, 2}, {{2, 4, 1}, 2},
                      {{2, 2, 2}, 0}, {{1, 4, 2}, 2}, {{1, 6, 1}, 3}, {{1, 4, 1}, 4}};
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "bfs", "zb-h1", "zbv", "chimera", "dualpipev"}) {
    for (const Cut& cut : cuts) {
      for (const bool reshards : {true, false}) {
        const bool added = add(cases, {.schedule = schedule,
                                       .degrees = cut.degrees,
                                       .zero = 3,
                                       .sequence_parallel = cut.degrees.tp > 1,
                                       .tied = !reshards});
        if (!added) continue;
        cases.back().plan.shards = cut.shards;
        cases.back().plan.steps = 2;  // twenty microbatches are summed in a different order
        cases.back().plan.reshard_after_forward = reshards;
        cases.back().name += fmt::format(", {} shards{}", cut.shards, reshards ? "" : ", weights held");
      }
    }
  }
}

// Servers on the ranks, on spare hosts or on both; for replicas on one node, on several, or each on its own node.
void add_served(std::vector<MatrixCase>& cases) {
  struct Servers {
    int ranks_per_node = 1;
    int servers = 0;
    double rank_share = 0;
  };
  const Servers forms[] = {{4, 0, 0}, {2, 0, 0}, {1, 0, 0}, {2, 1, 0}, {1, 3, 0}, {1, 1, 0.2}, {2, 2, 0.1}};
  for (const char* schedule :
       {"gpipe", "1f1b", "interleaved", "zbv", "chimera", "dualpipev", "pipedream", "pipedream-2bw", "pipemare"}) {
    for (const Servers& form : forms) {
      const bool asynchronous = find_schedule(schedule)->asynchronous;
      if (!add(cases, {.schedule = schedule, .degrees = {2, 4, 1}, .tied = !asynchronous})) continue;
      TrainingPlan& plan = cases.back().plan;
      plan.served_ranks_per_node = form.ranks_per_node;
      plan.servers = form.servers;
      plan.rank_share = form.rank_share;
      if (!asynchronous) plan.steps = 2;
      cases.back().name += fmt::format(", {} ranks per node, {} servers, rank share {}", form.ranks_per_node,
                                       form.servers, form.rank_share);
    }
  }
}

}  // namespace

std::vector<MatrixCase> served_layouts() {
  std::vector<MatrixCase> cases;
  add_served(cases);
  return cases;
}

std::vector<MatrixCase> fully_sharded_layouts() {
  std::vector<MatrixCase> cases;
  add_fully_sharded(cases);
  return cases;
}

std::vector<MatrixCase> recomputed_layouts() {
  std::vector<MatrixCase> cases;
  add_recomputed(cases);
  return cases;
}

std::vector<MatrixCase> further_layouts() {
  std::vector<MatrixCase> cases;
  add_sharded(cases);
  add_shapes(cases);
  add_compressed(cases);
  return cases;
}

std::vector<MatrixCase> network_forms_by_layouts() {
  std::vector<MatrixCase> cases;
  for (const NamedNetwork& form : network_forms(4)) {
    const auto add_form = [&](Want want) {
      want.tied = form.network.tied_embeddings;
      expect_added(cases, want);
      cases.back().plan.network = form.network;
      cases.back().plan.stage_blocks =
          even_stage_layers(form.network.layers, static_cast<int>(cases.back().plan.stage_blocks.size()));
      cases.back().name = fmt::format("{}: {}", form.name, cases.back().name);
      cases.back().network = form.name;
    };
    add_form({.schedule = "1f1b", .degrees = {4, 1, 1}});
    add_form({.schedule = "zb-h1", .degrees = {2, 1, 2}});
    const bool parts = !form.network.experts;
    add_form({.schedule = "1f1b", .degrees = {2, 1, 2}, .sequence_parallel = parts});
    add_form({.schedule = "interleaved", .chunks = 2, .degrees = {2, 2, 1}, .zero = 1});
    add_form({.schedule = "gpipe", .degrees = {1, 2, 2}, .zero = 2, .sequence_parallel = parts});
    add_form({.schedule = "1f1b", .degrees = {2, 2, 2}, .zero = 3});
    add_form({.schedule = "dualpipev", .degrees = {2, 2, 1}, .zero = 3});
    const bool sliced = form.network.causal && (parts || !form.network.experts->capacity_factor);
    if (!parts) {
      const auto add_expert_parallel = [&](const Want& want, int ep) {
        add_form(want);
        cases.back().plan.ep = ep;
        cases.back().name += fmt::format(" ep={}", ep);
      };
      add_expert_parallel({.schedule = "1f1b", .degrees = {2, 2, 1}}, 2);
      add_expert_parallel({.schedule = "zb-h1", .degrees = {2, 2, 2}, .zero = 1}, 2);
      add_expert_parallel({.schedule = "gpipe", .degrees = {1, 4, 1}, .zero = 2}, 2);
      add_expert_parallel({.schedule = "1f1b", .degrees = {1, 4, 1}, .zero = 3}, 4);
      add_expert_parallel({.schedule = "dualpipev", .degrees = {2, 2, 1}}, 2);
      add_expert_parallel({.schedule = "chimera", .degrees = {2, 4, 1}, .zero = 1}, 2);
    }
    if (sliced) add_form({.schedule = "terapipe", .degrees = {2, 1, 2}});
  }
  return cases;
}

std::vector<MatrixCase> context_layouts() {
  struct Shape {
    ContextParallel form;
    bool zigzag;
    int cp;
    Degrees degrees;
    int zero;
    const char* schedule;
  };
  const Shape shapes[] = {{ContextParallel::kRing, true, 2, {1, 1, 1}, 0, "gpipe"},
                          {ContextParallel::kRing, false, 4, {1, 1, 1}, 1, "1f1b"},
                          {ContextParallel::kRing, true, 4, {2, 1, 1}, 3, "1f1b"},
                          {ContextParallel::kRing, true, 2, {2, 2, 2}, 1, "zb-h1"},
                          {ContextParallel::kAllGather, true, 2, {2, 1, 2}, 0, "1f1b"},
                          {ContextParallel::kAllGather, false, 4, {1, 2, 1}, 2, "gpipe"},
                          {ContextParallel::kUlysses, false, 2, {2, 1, 1}, 0, "interleaved"},
                          {ContextParallel::kUlysses, false, 2, {1, 2, 1}, 3, "gpipe"}};
  std::vector<MatrixCase> cases;
  for (const NamedNetwork& form : network_forms(4)) {
    const NetworkSpec& network = form.network;
    if (!network.causal || (network.experts && network.experts->capacity_factor)) continue;
    for (const Shape& shape : shapes) {
      expect_added(cases, {.schedule = shape.schedule,
                           .degrees = shape.degrees,
                           .zero = shape.zero,
                           .sequence_parallel = shape.degrees.tp > 1 && !network.experts,
                           .tied = network.tied_embeddings});
      MatrixCase& entry = cases.back();
      entry.plan.network = network;
      entry.plan.network.sequence = 8;
      entry.plan.stage_blocks = even_stage_layers(network.layers, static_cast<int>(entry.plan.stage_blocks.size()));
      entry.plan.cp = shape.cp;
      entry.plan.context_parallel = shape.form;
      entry.plan.zigzag = shape.zigzag;
      if (network.experts) entry.plan.ep = 2;
      entry.network = fmt::format("{} of 8 tokens", form.name);
      entry.name = fmt::format("{}: {} {} cp={}{}", form.name, entry.name, name_of(shape.form), shape.cp,
                               shape.zigzag ? " zigzag" : "");
    }
  }
  return cases;
}

std::vector<MatrixCase> random_networks(std::uint64_t first_seed, int count) {
  std::vector<MatrixCase> cases;
  for (std::uint64_t seed = first_seed; cases.size() < static_cast<std::size_t>(count); ++seed) {
    std::uint64_t state = mix(seed ^ 0x51U);
    const auto draw = [&state](int choices) {
      state = mix(state);
      return static_cast<int>(state % static_cast<std::uint64_t>(choices));
    };
    const NetworkSpec network = random_network(seed);
    constexpr const char* kSchedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv", "chimera", "terapipe"};
    Want want{.schedule = kSchedules[draw(network.causal ? 7 : 6)]};
    want.degrees = {1 + draw(2), 1 + draw(3), 1 + draw(2)};
    if (want.schedule == "chimera") want.degrees.pp = 2;
    want.zero = draw(4);
    want.sequence_parallel = want.degrees.tp > 1 && draw(2) == 0 && !network.experts;
    if (network.experts && network.experts->capacity_factor && want.schedule == "terapipe") continue;
    want.tied = network.tied_embeddings;
    if (!add(cases, want)) continue;
    MatrixCase& entry = cases.back();
    entry.plan.network = network;
    constexpr RecomputeModule kModules[] = {RecomputeModule::kCoreAttention, RecomputeModule::kLayernorm,
                                            RecomputeModule::kMlp};
    if (network.experts && want.degrees.dp == 2 && draw(4) > 0) entry.plan.ep = 2;
    // Tokens in two parts, or with an early and a late part per rank.
    const bool has_capacity = network.experts && network.experts->capacity_factor;
    const bool parts = network.causal && !has_capacity && entry.plan.slices() == 1;
    if (parts && draw(3) == 0) {
      constexpr ContextParallel kForms[] = {ContextParallel::kRing, ContextParallel::kAllGather,
                                            ContextParallel::kUlysses};
      entry.plan.cp = 2;
      entry.plan.context_parallel = kForms[draw(network.kv_heads / want.degrees.tp % 2 == 0 ? 3 : 2)];
      entry.plan.zigzag = entry.plan.context_parallel != ContextParallel::kUlysses && draw(2) == 0;
    }
    Recomputation& again = entry.plan.network.recompute;
    const int recomputed = draw(4);
    if (recomputed == 1) again.first_blocks = 1 + draw(2);
    if (recomputed == 2) again.every = 1 + draw(2);
    if (recomputed == 3) again.modules = bit_of(kModules[draw(3)]) | bit_of(kModules[draw(3)]);
    again.partitioned = !want.sequence_parallel && draw(2) == 0;
    if (want.zero == 3) entry.plan.reshard_after_forward = draw(2) == 0;
    // Norms of the small rows of a table have large gradients: larger steps would amplify rounding.
    entry.plan.optimizer.rate = 0.001F;
    entry.plan.stage_blocks = even_stage_layers(network.layers, static_cast<int>(entry.plan.stage_blocks.size()));
    entry.network = fmt::format("network {}", seed);
    entry.name = fmt::format("{}: {}{}", entry.network, entry.name,
                             recomputed > 0 ? fmt::format(", recompute {}", recomputed) : "");
    if (entry.plan.ep > 1) entry.name += " ep=2";
    if (entry.plan.cp > 1) entry.name += fmt::format(" {} cp=2", name_of(entry.plan.context_parallel));
  }
  return cases;
}

int compare_with_references(const std::vector<MatrixCase>& cases, const Trainer& train) {
  std::map<ReferenceKey, std::vector<RankResult>> serial;
  int compared = 0;
  for (const auto& [name, plan, network] : cases) {
    const std::vector<RankResult> actual = train(plan);
    if (actual.empty()) continue;
    ++compared;
    if (plan.updates.policy != WeightPolicy::kFlushed) {
      expect_delayed_training(train_with_delays(plan), actual, name);
      continue;
    }
    const TrainingPlan alone = serial_plan(plan);
    std::vector<RankResult>& expected =
        serial[{alone.microbatches(), alone.micro_batch_size, alone.steps, alone.network.tied_embeddings, network}];
    if (expected.empty()) expected = train_on_threads(alone, {});
    expect_same_training(expected, actual, name);
  }
  if (compared > 0) std::cout << compared << " runs equal to their references\n";
  return compared;
}

}  // namespace flopcast::realrun
