// Layouts drawn from everything that a run supports, compared with one rank and with the model's traffic. 200 of them;
// FLOPCAST_LAYOUTS=1000 draws more, FLOPCAST_LAYOUTS_SEED others.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "calibrate/verdict/verdict.hpp"
#include "model/cost/data_parallel.hpp"
#include "model/layout/rank_grid.hpp"
#include "realrun/launch/plan_from_job.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/realrun/plans.hpp"
#include "tests/realrun/step_volumes.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast::realrun {
namespace {

/// Draws equally on every machine, unlike distributions of the standard library.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : random_(seed) {}
  int between(int first, int last) {
    return first + static_cast<int>(random_() % static_cast<std::uint64_t>(last - first + 1));
  }
  bool one_in(int chances) { return between(1, chances) == 1; }
  template <class T>
  const T& of(const std::vector<T>& choices) {
    return choices[static_cast<std::size_t>(between(0, static_cast<int>(choices.size()) - 1))];
  }

 private:
  std::mt19937_64 random_;
};

std::string drawn_schedule(Draws& draw, int pp) {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const ScheduleInfo& info : schedule_catalogue()) {
      names.emplace_back(info.name);
      for (const std::string_view variant : info.variants) names.push_back(fmt::format("{}:{}", info.name, variant));
    }
    return names;
  }();
  return pp == 1 ? draw.of<std::string>({"gpipe", "1f1b"}) : draw.of(kNames);
}

// Often without spare hosts; half a host per node is as much as all ranks together can use.
std::string served(Draws& draw, int nodes) {
  const int hosts = nodes * draw.between(0, 3) / 2;
  return fmt::format(R"("spare_hosts": {}, "data_parallel": "{}")", hosts, draw.one_in(2) ? "ps" : "byteps");
}

std::string drawn_replicas(Draws& draw, int dp, int nodes) {
  switch (draw.between(0, dp == 1 ? 0 : 4)) {
    case 0:
      return fmt::format(R"("zero": {})", draw.between(0, 3));
    case 1:
      return fmt::format(R"("data_parallel": "fsdp", "reshard_after_forward": {})", draw.one_in(2));
    case 2:
      return fmt::format(R"("data_parallel": "hsdp", "shards": {}, "reshard_after_forward": {})", dp % 2 == 0 ? 2 : dp,
                         draw.one_in(2));
    case 3:
      return served(draw, nodes);
    default:
      return fmt::format(R"("compression": "{}")", draw.of<std::string>({"none", "topk:1", "powersgd:64"}));
  }
}

std::string drawn_recomputation(Draws& draw, int tp, bool sequence_parallel) {
  switch (draw.between(0, 6)) {
    case 0:
      return fmt::format(R"(, "recompute": "full", "partition_checkpoints": {})", tp > 1 && !sequence_parallel);
    case 1:
      return fmt::format(R"(, "recompute": "full", "recompute_layers": {})", draw.between(1, 3));
    case 2:
      return fmt::format(R"(, "recompute": "full", "recompute_every": {})", draw.between(1, 3));
    case 3:
      return R"(, "recompute": "selective")";
    case 4:
      return fmt::format(R"(, "recompute": "selective", "recompute_modules": [{}])",
                         draw.of<std::string>({R"("mlp")", R"("layernorm")", R"("core_attn", "layernorm")",
                                               R"("core_attn", "layernorm", "mlp")"}));
    default:
      return "";
  }
}

// GPT's network, or a random subset of Llama's properties.
std::string drawn_network(Draws& draw, int heads, int tp) {
  if (draw.one_in(2)) return "";
  const int kv_heads = draw.one_in(2) ? tp : heads;
  const bool rms = draw.one_in(2);
  const bool rotary = draw.one_in(2);
  const bool gated = draw.one_in(2);
  return fmt::format(R"(, "kv_heads": {}, "norm": "{}", "positions": "{}", "gated_mlp": {}, "biases": {})", kv_heads,
                     rms ? "rmsnorm" : "layernorm", rotary ? "rotary" : "learned", gated, draw.one_in(2));
}

// Mostly all weights.
std::string drawn_finetune(Draws& draw) {
  switch (draw.between(0, 9)) {
    case 0:
      return fmt::format(R"(, "finetune": {{"method": "lora", "rank": {}, "alpha": 64}})", 4 * draw.between(1, 2));
    case 1:
      return fmt::format(
          R"(, "finetune": {{"method": "lora", "rank": 4, "alpha": 64, "targets": [{}], "embeddings": {}}})",
          draw.of<std::string>({R"("q_proj", "v_proj")", R"("linear_qkv", "linear_fc1")", R"("k_proj")",
                                R"("o_proj", "up_proj", "down_proj")"}),
          draw.one_in(2));
    case 2:
      return fmt::format(R"(, "finetune": {{"method": "freeze", "trainable_layers": {}, "embeddings": {}}})",
                         draw.of<int>({-2, -1, 1, 2, 3}), draw.one_in(2));
    default:
      return "";
  }
}

// Returns a job that may be refused.
std::string drawn_job(Draws& draw) {
  const int pp = draw.of<int>({1, 2, 2, 3, 4});
  const int tp = draw.of<int>({1, 1, 2, pp > 2 ? 1 : 4});
  const int dp = draw.between(1, std::max(1, 8 / (pp * tp)));
  const int heads = tp * draw.between(1, 2);
  // Norms of rows with few features amplify rounding.
  const int head_dim = 2 * draw.between(2, 4) * (heads == 1 ? 3 : 2);
  const bool sequence_parallel = tp > 1 && draw.one_in(2);
  const int sequence = 4 * draw.between(1, 3);
  const int micro_batch = draw.between(1, 2);
  const int microbatches = draw.between(1, 8);
  const int on_node = dp % 2 == 0 && draw.one_in(2) ? 2 * tp : tp;
  const std::string schedule = drawn_schedule(draw, pp);
  const std::string slices = schedule.rfind("terapipe", 0) == 0 ? R"(, "slices": 2)" : "";
  // Separate statements, because the order within one expression depends on the compiler.
  const int layers = draw.between(4, 9);
  const int ffn = tp * draw.between(2, 9);
  const int vocab = tp * draw.between(4, 11);
  const bool tied = draw.one_in(3);
  const std::string network = drawn_network(draw, heads, tp);
  const std::string replicas = drawn_replicas(draw, dp, pp * tp * dp / on_node);
  const std::string recomputation = drawn_recomputation(draw, tp, sequence_parallel);
  const auto offload = draw.of<std::string>({"none", "none", "optimizer", "activations", "all"});
  const auto stack = draw.of<std::string>({"pytorch-ddp", "megatron-core", "deepspeed"});
  const std::string finetune = drawn_finetune(draw);
  return fmt::format(
      R"({{"model": {{"layers": {}, "hidden": {}, "heads": {}, "ffn": {}, "vocab": {}, "sequence_length": {},
                      "tied_embeddings": {}{}}},
           "cluster": {{"name": "one-gpu", "devices_per_node": {}, "nodes": {}}},
           "layout": {{"pp": {}, "tp": {}, "dp": {}, "sequence_parallel": {}, "micro_batch_size": {},
                       "global_batch_size": {}, "schedule": "{}", "offload": "{}", {}{}{}}},
           "training": {{"precision": "fp32", "optimizer": "sgd", "stack": "{}"{}}}}})",
      layers, heads * head_dim, heads, ffn, vocab, sequence, tied, network, on_node, pp * tp * dp / on_node, pp, tp, dp,
      sequence_parallel, micro_batch, dp * micro_batch * microbatches, schedule, offload, replicas, recomputation,
      slices, stack, finetune);
}

// A grid of tensor-parallel ranks, or none.
std::string drawn_grid(Draws& draw, int& tp, int& token_parts) {
  switch (draw.between(0, 8)) {
    case 0:
      tp = 4;
      token_parts = 2;
      return R"(, "tensor_parallel": "2d")";
    case 1:
      tp = 8;
      token_parts = 4;
      return R"(, "tensor_parallel": "2.5d", "tensor_depth": 2)";
    case 2:
      tp = 8;
      token_parts = 4;
      return R"(, "tensor_parallel": "3d")";
    default:
      return "";
  }
}

std::string drawn_context(Draws& draw, int cp) {
  if (cp == 1) return "";
  const bool zigzag = draw.one_in(2);
  const auto form = draw.of<std::string>({"ring", "allgather", "ulysses", cp == 4 ? "hierarchical" : "ring"});
  return fmt::format(R"(, "cp": {}, "context_parallel": "{}", "zigzag": {}{})", cp, form, zigzag,
                     form == "hierarchical" ? R"(, "context_inner": 2)" : "");
}

// Tensor grids, context-parallel ranks and experts, in sizes that every degree divides. The job may be refused.
std::string drawn_wide_job(Draws& draw) {
  int tp = draw.of<int>({1, 2, 2});
  int token_parts = 1;
  const std::string grid = drawn_grid(draw, tp, token_parts);
  const bool line = grid.empty();
  const int pp = draw.between(1, 2);
  const int dp = draw.between(1, 2);
  const int cp = line ? draw.of<int>({1, 2, 4}) : 1;
  const bool has_experts = line && draw.one_in(2);
  const bool sequence_parallel = line && tp > 1 && draw.one_in(2);
  const bool folds = has_experts && sequence_parallel && draw.one_in(2);
  const int ep = has_experts ? draw.of<int>({1, 2, 4}) : 1;
  const std::string context = drawn_context(draw, cp);
  const auto schedule =
      draw.of<std::string>(pp == 1 ? std::vector<std::string>{"gpipe", "1f1b"}
                                   : std::vector<std::string>{"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"});
  // Routed in turn, at least four rows per rank reach all experts equally.
  const int top_k = draw.between(1, 3);
  const int count = top_k == 2 && draw.one_in(2) ? 8 : 4;
  const std::string experts =
      has_experts
          ? fmt::format(R"(, "experts": {{"count": {}, "top_k": {}, "ffn": 16, "shared": {}, "shared_ffn": 16}})",
                        count, top_k, draw.between(0, 1))
          : "";
  const auto recomputation =
      draw.of<std::string>({"", "", R"(, "recompute": "full")", R"(, "recompute": "full", "recompute_layers": 1)",
                            R"(, "recompute": "selective")"});
  const std::string replicas = dp * cp > 1 && draw.one_in(4) ? std::string(R"("data_parallel": "fsdp")")
                                                             : fmt::format(R"("zero": {})", draw.between(0, 3));
  const int micro_batch = token_parts * draw.between(1, 2);
  const bool llama = draw.one_in(2);
  const std::string finetune = drawn_finetune(draw);
  return fmt::format(
      R"({{"model": {{"layers": 4, "hidden": 32, "heads": 8, "ffn": 32, "vocab": 48, "sequence_length": {},
                      "tied_embeddings": false{}{}}},
           "cluster": {{"name": "one-gpu", "nodes": {}}},
           "layout": {{"pp": {}, "tp": {}, "dp": {}, "sequence_parallel": {}, "micro_batch_size": {},
                       "global_batch_size": {}, "schedule": "{}", "ep": {}{}{}{}{}, {}}},
           "training": {{"precision": "fp32", "optimizer": "sgd", "stack": "pytorch-ddp"{}}}}})",
      8 * cp, llama ? R"(, "norm": "rmsnorm", "positions": "rotary", "gated_mlp": true, "biases": false)" : "", experts,
      pp * tp * dp * cp, pp, tp, dp, sequence_parallel, micro_batch, micro_batch * dp * draw.between(1, 4), schedule,
      ep, folds ? R"(, "etp": 1)" : "", grid, context, recomputation, replicas, finetune);
}

struct AxisBytes {
  double context = 0;
  double expert = 0;
  double tensor = 0;
  double data = 0;
  double pipeline = 0;
};

std::vector<int> stages_of(const PreparedStep& step, int pipeline_rank) {
  std::vector<int> stages;
  for (int stage = 0; stage < step.stages.stages(); ++stage) {
    if (step.program.rank_of_stage[static_cast<std::size_t>(stage)] == pipeline_rank) stages.push_back(stage);
  }
  return stages;
}

// Bytes that the model counts for a pipeline rank, over a step.
AxisBytes model_bytes(const PreparedStep& step, int pipeline_rank) {
  AxisBytes bytes;
  bytes.data = step.costs.ranks[static_cast<std::size_t>(pipeline_rank)].dp.sent_per_rank.value() * updates_of(step);
  for (const int stage : stages_of(step, pipeline_rank)) {
    const StagePasses passes = passes_of(step, stage);
    const StageCosts& costs = step.costs.stages[static_cast<std::size_t>(stage)];
    bytes.tensor += passes.microbatches * costs.sent.tp.sent_per_rank.value();
    bytes.context += passes.microbatches * costs.sent.cp.sent_per_rank.value();
    bytes.expert += passes.microbatches * costs.sent.ep.sent_per_rank.value();
    bytes.data += passes.microbatches * costs.sent.dp.sent_per_rank.value();
  }
  bytes.pipeline = predicted_point_to_point(step, pipeline_rank);
  return bytes;
}

// Additional bytes that replicas send in a step if a rank's stages have `parameters` more parameters.
double replica_bytes(const PreparedStep& step, double parameters, double rows) {
  const Layout& layout = step.job.layout;
  const double bytes = parameters * kFloatBytes;
  const double share = (layout.dp - 1.0) / layout.dp;
  const double updates = updates_of(step);
  if (layout.weight_shards() > 1) {
    const double shards = layout.weight_shards();
    const double copies = layout.dp / shards;
    const double inside = (layout.reshard_after_forward ? 3.0 : 2.0) * (shards - 1.0) / shards;
    return bytes * rows * (inside + 2.0 / shards * (copies - 1.0) / copies);
  }
  if (layout.gradient_shards() > 1) return bytes * share * (rows + updates);
  if (layout.spare_hosts > 0) {
    const GroupPlacement replicas = RankGrid(layout).placement(Axis::kData, step.job.cluster);
    const double on_node = replicas.ranks_per_node;
    const double hosts = static_cast<double>(layout.spare_hosts) * replicas.nodes / step.job.cluster.nodes;
    const double beyond = layout.data_parallel == DataParallel::kPs ? 1.0 : byteps_shares(replicas.nodes, hosts).time;
    const double inside = 2.0 * (on_node - 1.0) / on_node;
    return updates * bytes * (inside + (replicas.nodes > 1 ? beyond / on_node : 0.0));
  }
  const bool sparse = layout.compression.kind == Compression::Kind::kTopK;
  return updates * bytes * (sparse ? 2.0 * (layout.dp - 1.0) : 2.0 * share);
}

// The same for frozen parameters: they are only gathered, by ranks that shard weights.
double frozen_replica_bytes(const PreparedStep& step, double parameters, double rows) {
  const Layout& layout = step.job.layout;
  const double shards = layout.weight_shards();
  return parameters * kFloatBytes * rows * (layout.reshard_after_forward ? 2.0 : 1.0) * (shards - 1.0) / shards;
}

double padded(std::size_t count, int parts) {
  const auto whole = static_cast<std::size_t>(parts);
  return static_cast<double>((count + whole - 1) / whole * whole - count);
}

/// Traffic of a run that the model's figures omit, each with its reason; listed in realrun/README.md.
class Exceptions {
 public:
  Exceptions(const PreparedStep& step, const RankResult& rank) : step_(step), rank_(rank) {
    const std::vector<int> stages = stages_of(step, rank.pipeline_rank);
    rows_ = passes_of(step, stages.front()).rows;
    partial_gradients();
    vectors_on_a_grid(stages);
    counts_of_rows(stages);
    redone_exchanges(stages);
    second_table(stages);
    padding(stages);
  }
  const AxisBytes& bytes() const { return bytes_; }
  const std::set<std::string>& reasons() const { return reasons_; }

 private:
  void partial_gradients() {
    const double bytes = partial_bytes(step_, rank_);
    if (bytes == 0) return;
    bytes_.tensor += bytes;
    reasons_.insert("gradients of norms, row biases and positions under sequence parallelism");
  }

  void vectors_on_a_grid(const std::vector<int>& stages) {
    if (step_.job.layout.tensor_parallel == TensorParallel::k1d) return;
    const GridVectors vectors = vectors_on_grid(step_, rank_);
    bytes_.tensor += vectors.sent * passes_of(step_, stages.front()).microbatches;
    bytes_.data += replica_bytes(step_, vectors.repeated, rows_);
    reasons_.insert("norms, biases and positions replicated on ranks of a grid");
  }

  // Number of blocks, starting at layer `first`, that are recomputed; those below all trained layers are not.
  int redone(int first, int layers) const {
    const Layout& layout = step_.job.layout;
    const Transformer& model = step_.job.model;
    int count = 0;
    for (int index = 0; index < layers; ++index) {
      const bool again =
          layout.recompute_every ? (index + 1) % *layout.recompute_every == 0 : index < layout.recomputed(layers);
      const LayerState state = layer_state(step_.job.training.finetune, model.layers, (first + index) % model.layers);
      count += again && state != LayerState::kFrozenNoGradient ? 1 : 0;
    }
    return count;
  }

  void counts_of_rows(const std::vector<int>& stages) {
    const Layout& layout = step_.job.layout;
    if (!step_.job.model.experts) return;
    const double counts = kFloatBytes * step_.job.model.experts->count;
    for (const int stage : stages) {
      int first = 0;  // first layer of the stage
      for (int before = 0; before < stage; ++before)
        first += step_.costs.stages[static_cast<std::size_t>(before)].layers;
      const int layers = step_.costs.stages[static_cast<std::size_t>(stage)].layers;
      const double passes = passes_of(step_, stage).microbatches * (layers + redone(first, layers));

      bytes_.expert += passes * counts * (layout.ep - 1) / layout.ep;
      if (layout.sequence_parallel) bytes_.tensor += passes * counts * (layout.expert_tensor_ranks() - 1);
    }
    reasons_.insert("row counts, 4 bytes per expert");
  }

  // Recomputed core attention repeats the exchanges of context-parallel ranks, which the model counts for whole blocks
  // only.
  void redone_exchanges(const std::vector<int>& stages) {
    const Layout& layout = step_.job.layout;
    const bool recomputes =
        layout.recompute == Recompute::kSelective &&
        (!layout.recompute_modules || (*layout.recompute_modules & bit_of(RecomputeModule::kCoreAttention)).any());
    if (layout.cp == 1 || !recomputes) return;
    const auto sent_with = [&](Recompute again, int stage) {
      Job job = step_.job;
      job.layout.recompute = again;
      job.layout.recompute_modules.reset();
      return prepare(job, no_files).costs.stages[static_cast<std::size_t>(stage)].sent.cp.sent_per_rank.value();
    };
    for (const int stage : stages) {
      bytes_.context += passes_of(step_, stage).microbatches *
                        (sent_with(Recompute::kFull, stage) - sent_with(Recompute::kNone, stage));
    }
    reasons_.insert("exchanges of context-parallel ranks in recomputed core attention");
  }

  void second_table(const std::vector<int>& stages) {
    if (!step_.job.model.tied_embeddings) return;
    int tables = 0;
    for (const int stage : stages) {
      const StageCosts& costs = step_.costs.stages[static_cast<std::size_t>(stage)];
      tables += (costs.has_embedding ? 1 : 0) + (costs.has_head ? 1 : 0);
    }
    const Layout& layout = step_.job.layout;
    if (tables < 2 || layout.dp == 1) return;
    const double table = static_cast<double>(step_.job.model.vocab) * step_.job.model.hidden / layout.tp;
    const bool trained = embedding_state(step_.job.training) == LayerState::kTrained;
    bytes_.data += trained ? replica_bytes(step_, table, rows_) : frozen_replica_bytes(step_, table, rows_);
    reasons_.insert("a second copy of the tied table on a rank with both ends");
  }

  void padding(const std::vector<int>& stages) {
    const Layout& layout = step_.job.layout;
    const bool served = layout.data_parallel == DataParallel::kPs || layout.data_parallel == DataParallel::kByteps;
    if (layout.optimizer_shards() == 1 && !served) return;
    double gaps = 0;
    double frozen_gaps = 0;
    double table_gap = 0;
    int tables = 0;
    for (const TrainedParameter& part : rank_.weights) {
      const double gap = padded(part.parameter.shard.count(), layout.dp);
      (part.parameter.frozen ? frozen_gaps : gaps) += gap;
      if (part.parameter.frozen) continue;
      if (part.parameter.name != tied_parameter()) continue;
      table_gap = gap;
      ++tables;
    }
    const double frozen = frozen_replica_bytes(step_, frozen_gaps, rows_);
    bytes_.data += frozen;
    if (gaps + frozen > 0) reasons_.insert("parameters aligned to the replicas");
    if (gaps == 0) return;
    bytes_.data += replica_bytes(step_, gaps, rows_);
    const StageMap& map = step_.stages;
    const int twin = (stages.front() + map.model_stages) % map.stages();
    const bool twins = map.copies() > 1 && map.rank_of_stage[static_cast<std::size_t>(twin)] != rank_.pipeline_rank;
    const bool shares_table = map.copies() == 1 && step_.job.model.tied_embeddings && layout.pp > 1 &&
                              map.rank_of_stage.front() != map.rank_of_stage.back();
    // Two copies on a rank are summed beforehand.
    const double summed = twins ? gaps - std::max(0, tables - 1) * table_gap : shares_table ? table_gap : 0.0;
    bytes_.data += summed * kFloatBytes / layout.optimizer_shards();
  }

  const PreparedStep& step_;
  const RankResult& rank_;
  double rows_ = 0;
  AxisBytes bytes_;
  std::set<std::string> reasons_;
};

/// Totals over all layouts.
struct Findings {
  int runs = 0;
  int figures = 0;
  int ties = 0;
  double worst_loss = 0;
  std::string worst;
  std::map<std::string, int> exceptions;  // number of layouts, by reason
  std::map<std::string, int> forms;
};

void compare_layout_bytes(const PreparedStep& step, const std::vector<RankResult>& ranks, const std::string& what,
                          Findings& findings) {
  std::set<std::string> reasons;
  std::map<std::pair<int, int>, std::pair<double, double>> of_replicas;  // measured and expected
  const Layout& layout = step.job.layout;
  const bool shares_whole_elements = layout.data_parallel == DataParallel::kByteps && layout.spare_hosts > 0;
  double rounding = 0;
  for (const RankResult& rank : ranks) {
    const Exceptions beyond(step, rank);
    reasons.insert(beyond.reasons().begin(), beyond.reasons().end());
    const AxisBytes forecast = model_bytes(step, rank.pipeline_rank);
    const SentTraffic& traffic = rank.steps.back().traffic;
    const auto compare = [&](const char* axis, Axis sent, double expected, double tolerance) {
      const auto measured = static_cast<double>(traffic.bytes_of(sent));
      EXPECT_NEAR(measured, expected, tolerance) << what << "\nrank " << rank.rank << ", axis " << axis;
      ++findings.figures;
    };
    compare("tp", Axis::kTensor, forecast.tensor + beyond.bytes().tensor, 1e-3);
    compare("cp", Axis::kContext, forecast.context + beyond.bytes().context, 1e-3);
    compare("ep", Axis::kExpert, forecast.expert + beyond.bytes().expert, 1e-3);
    compare("pp", Axis::kPipeline, forecast.pipeline, 1e-3);
    // An all-reduce splits its data into nearly equal parts: for each other member, a member sends up to one element
    // per message more or less; together they send the forecast.
    double messages = 0;
    for (const auto& [key, count] : traffic.collectives) {
      const bool in_parts = key.first == CollectiveKind::kAllReduce || key.first == CollectiveKind::kBroadcast;
      if (in_parts && key.second == Axis::kData) messages += static_cast<double>(count.messages);
    }
    if (shares_whole_elements) {
      reasons.insert("BytePS's shares of a gradient in whole elements, with spare hosts");
      rounding += kFloatBytes * layout.dp * messages;
    }
    const double data = forecast.data + beyond.bytes().data;
    compare("dp", Axis::kData, data, 1e-3 + kFloatBytes * layout.dp * messages);
    auto& [measured, expected] = of_replicas[{rank.pipeline_rank, rank.tensor_index}];
    measured += static_cast<double>(traffic.bytes_of(Axis::kData));
    expected += data;
  }
  for (const auto& [place, sums] : of_replicas) {
    EXPECT_NEAR(sums.first, sums.second, 1e-2 + rounding) << what << "\nreplicas of pipeline rank " << place.first;
  }
  for (const std::string& reason : reasons) ++findings.exceptions[reason];
}

double worst_difference(const TrainingPlan& plan, const std::vector<RankResult>& ranks) {
  std::vector<double> expected;
  if (plan.updates.policy == WeightPolicy::kFlushed) {
    expected = mean_losses(train_on_threads(serial_plan(plan), {}));
  } else {
    expected = {train_with_delays(plan).mean_loss};
  }
  const std::vector<double> losses = mean_losses(ranks);
  EXPECT_EQ(losses.size(), expected.size());
  double worst = 0;
  for (std::size_t step = 0; step < std::min(losses.size(), expected.size()); ++step) {
    worst = std::max(worst, std::abs(losses[step] - expected[step]) / expected[step]);
  }
  return worst;
}

TrainingPlan with_balanced_routing(TrainingPlan plan) {
  plan.network.balanced_routing = true;
  return plan;
}

// If two scores of a router differ only by rounding, ranks may send a row to another expert than one rank does: the
// layout must then agree if nothing is selected, and with other weights.
void compare_layout_losses(const TrainingPlan& plan, const std::vector<RankResult>& ranks, const std::string& what,
                           Findings& findings) {
  constexpr double kAgrees = 2e-5;
  const double difference = worst_difference(plan, ranks);
  if (difference >= kAgrees && plan.network.experts) {
    TrainingPlan others = plan;
    others.network.seed += 1;
    for (const TrainingPlan& again : {with_balanced_routing(plan), others}) {
      EXPECT_LT(worst_difference(again, train_on_threads(again, {})), kAgrees)
          << what << "\napart from a tie: " << difference;
    }
    ++findings.ties;
    std::cout << fmt::format("a tie of a router, {:.1e}: {}\n", difference, what);
    return;
  }
  EXPECT_LT(difference, kAgrees) << what;
  if (difference <= findings.worst_loss) return;
  findings.worst_loss = difference;
  findings.worst = what;
}

// Returns false if the job is refused.
bool compare_layout(std::uint64_t seed, Findings& findings) {
  Draws draw(seed);
  const std::string text = draw.one_in(4) ? drawn_wide_job(draw) : drawn_job(draw);
  PreparedStep step;
  TrainingPlan plan;
  try {
    step = prepare(job_as_run(job_from(text), false), no_files);
    plan = plan_from_job(step, {.steps = step.program.asynchronous ? 1 : 3, .learning_rate = 0.02});
  } catch (const ConfigError&) {
    return false;
  }
  const std::string what = fmt::format("seed {}: {}", seed, text);
  const std::vector<RankResult> ranks = train_on_threads(plan, {});
  // The model assumes equally loaded experts.
  compare_layout_bytes(step, plan.network.experts ? train_on_threads(with_balanced_routing(plan), {}) : ranks, what,
                       findings);
  compare_layout_losses(plan, ranks, what, findings);
  ++findings.runs;
  const Layout& layout = step.job.layout;
  ++findings.forms[fmt::format("{}{}", name_of(layout.data_parallel), layout.spare_hosts > 0 ? ", spare hosts" : "")];
  if (layout.tensor_parallel != TensorParallel::k1d) {
    ++findings.forms[fmt::format("tensor grids {}", name_of(layout.tensor_parallel))];
  }
  if (layout.cp > 1) ++findings.forms[fmt::format("context parallel {}", name_of(layout.context_parallel))];
  if (step.job.model.experts) ++findings.forms[layout.folds_experts() ? "experts, folded" : "experts"];
  if (layout.zero > 0) ++findings.forms[fmt::format("zero {}", layout.zero)];
  const Transformer& model = step.job.model;
  if (model.gated_mlp) ++findings.forms["gated MLPs"];
  if (model.norm == Norm::kRmsNorm) ++findings.forms["RMSNorm"];
  if (model.positions == Positions::kRotary) ++findings.forms["rotary positions"];
  if (model.kv_heads < model.heads) ++findings.forms["grouped queries"];
  ++findings.forms[fmt::format("recompute {}", name_of(layout.recompute))];
  if (layout.offload != Offload::kNone) ++findings.forms[fmt::format("offload {}", name_of(layout.offload))];
  if (layout.compression.kind != Compression::Kind::kNone) ++findings.forms[layout.compression.text()];
  if (const auto& finetune = step.job.training.finetune) ++findings.forms[std::string(name_of(finetune->method))];
  return true;
}

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(RandomLayouts, TrainAsOneRankAndSendWhatIsForecast) {
  const std::uint64_t layouts = from_environment("FLOPCAST_LAYOUTS", 200);
  const std::uint64_t first = from_environment("FLOPCAST_LAYOUTS_SEED", 1);
  Findings findings;
  std::uint64_t seed = first;
  for (; static_cast<std::uint64_t>(findings.runs) < layouts; ++seed) {
    ASSERT_LT(seed, first + 20 * layouts + 200) << "nearly all jobs are refused";
    compare_layout(seed, findings);
  }
  EXPECT_LE(findings.ties, 1 + static_cast<int>(layouts / 250)) << "more ties than chance explains";
  std::cout << fmt::format(
      "{} layouts of {} drawn, seeds {} to {}: worst relative difference of losses {:.1e}, {} "
      "figures of bytes\n  {}\n",
      findings.runs, seed - first, first, seed - 1, findings.worst_loss, findings.figures, findings.worst);
  for (const auto& [form, count] : findings.forms) std::cout << fmt::format("  {}: {}\n", form, count);
  for (const auto& [reason, count] : findings.exceptions) {
    std::cout << fmt::format("  exact with a named exception in {}: {}\n", count, reason);
  }
}

}  // namespace
}  // namespace flopcast::realrun
