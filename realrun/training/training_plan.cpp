#include "realrun/training/training_plan.hpp"

#include <fmt/format.h>

#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "sim/program/validate.hpp"

namespace flopcast::realrun {

int TrainingPlan::microbatches_per_update() const {
  return dp * (updates.policy == WeightPolicy::kFlushed ? microbatches() : updates.accumulation);
}

namespace {

[[noreturn]] void refuse(const char* field, std::string problem, std::string help) {
  throw ConfigError({.field = field, .problem = std::move(problem), .where = {}, .help = std::move(help)});
}

void refuse_if(bool cannot, const char* field, std::string problem, std::string help) {
  if (cannot) refuse(field, std::move(problem), std::move(help));
}

void check_division(const char* field, int degree, int value, const char* what) {
  if (degree >= 1 && value % degree == 0) return;
  std::vector<int> divisors;
  for (int divisor = 1; divisor <= value; ++divisor) {
    if (value % divisor == 0) divisors.push_back(divisor);
  }
  refuse(field, fmt::format("{} does not divide {}, {}", degree, what, value),
         fmt::format("valid: {}", fmt::join(divisors, ", ")));
}

void check_program(const TrainingPlan& plan) {
  refuse_if(
      !plan.program.replicas_of_stage.empty(), "layout.schedule",
      fmt::format("{} replicates single stages, but a run replicates whole pipelines only", plan.program.schedule),
      "layout.dp");
  if (const std::optional<ScheduleFault> fault = find_fault(plan.program)) {
    refuse("layout.schedule", render_fault(*fault), {});
  }
  for (const Chain& chain : plan.program.chains) {
    const auto stages = static_cast<std::size_t>(chain.last_stage - chain.first_stage + 1);
    if (stages == plan.stage_blocks.size()) continue;
    refuse("layout.stage_layers",
           fmt::format("{} stages have layers, but the schedule has {}", plan.stage_blocks.size(), stages), {});
  }
  const int blocks = std::accumulate(plan.stage_blocks.begin(), plan.stage_blocks.end(), 0);
  refuse_if(blocks != plan.network.layers, "layout.stage_layers",
            fmt::format("the stages have {} layers, but the model has {}", blocks, plan.network.layers), {});
}

// A slice attends to earlier slices, and waits for the gradients from later ones.
void check_slices(const TrainingPlan& plan) {
  const int slices = plan.slices();
  if (slices == 1) return;
  refuse_if(plan.updates.policy != WeightPolicy::kFlushed, "layout.slices",
            fmt::format("{}: slices require a schedule with a flush", slices), "1");
  check_division("layout.slices", slices, plan.network.sequence, "the sequence length");
  for (const std::vector<Action>& actions : plan.program.ranks) {
    std::map<std::pair<int, std::uint32_t>, int> next;  // by stage and microbatch
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kWeightGradient) continue;
      const auto count = static_cast<std::uint32_t>(slices);
      const bool forward = action.kind == ActionKind::kForward;
      int& expected = next.try_emplace({action.stage, action.microbatch / count}, 0).first->second;
      if (!forward) --expected;
      refuse_if(static_cast<int>(action.microbatch % count) != expected, "layout.schedule",
                fmt::format("{} is out of turn: slices run forward in order, and backward in reverse order",
                            to_string(action)),
                {});
      if (forward) ++expected;
    }
  }
}

void check_updates(const TrainingPlan& plan) {
  if (plan.updates.policy == WeightPolicy::kFlushed) return;
  for (const Chain& chain : plan.program.chains) {
    check_division("layout.accumulation", plan.updates.accumulation, plan.program.microbatches_of(chain),
                   "the microbatches of the run");
  }
  // A table that two stages update at different times would have two values.
  refuse_if(plan.network.tied_embeddings, "model.tied_embeddings",
            fmt::format("true is incompatible with {}, which never flushes", plan.program.schedule), "false");
  refuse_if(plan.program.chains.size() > 1, "layout.schedule",
            "a bidirectional schedule without a flush cannot keep its two copies equal", {});
  refuse_if(plan.zero > 1, "layout.zero",
            fmt::format("{}{} is incompatible with {}, which keeps several versions of the weights", plan.zero,
                        plan.zero == 3 ? " (fsdp and hsdp)" : "", plan.program.schedule),
            "valid: 0, 1");
}

void check_sharding(const TrainingPlan& plan) {
  if (plan.served_ranks_per_node > 0) {
    refuse_if(plan.zero > 0, "layout.zero", fmt::format("{}: parameter servers return whole gradients", plan.zero),
              "valid: 0");
    refuse_if(plan.dp % plan.served_ranks_per_node != 0, "layout.data_parallel",
              fmt::format("servers require equally many replicas on every node: {} replicas cannot fill nodes of {}",
                          plan.dp, plan.served_ranks_per_node),
              {});
  }
  if (plan.shards == 0) return;
  FLOPCAST_CHECK(plan.zero == 3);
  check_division("layout.shards", plan.shards, plan.replicas(), "the replicas");
}

void check_compression(const TrainingPlan& plan) {
  const Compression::Kind kind = plan.compression.kind;
  if (kind == Compression::Kind::kNone) return;
  const std::string name = plan.compression.text();
  refuse_if(plan.zero > 0, "layout.compression",
            fmt::format("{} replaces an all-reduce of whole gradients, which ZeRO {} does not use", name, plan.zero),
            "valid with zero 0; otherwise none");
}

void check_heads(const TrainingPlan& plan) {
  const NetworkSpec& network = plan.network;
  const HeadLayout heads = network.head_layout();
  const auto kv_heads = static_cast<int>(heads.kv_heads);
  if (network.head_dim == 0) check_division("model.heads", network.heads, network.hidden, "the hidden size");
  check_division("model.kv_heads", kv_heads, network.heads, "the attention heads");
  check_division("layout.tp", plan.feature_parts(), network.heads, "the attention heads");
  check_division("layout.tp", plan.feature_parts(), kv_heads, "the key/value heads");
  refuse_if(network.positions == Positions::kRotary && heads.head_dim % 2 != 0, "model.head_dim",
            fmt::format("{}: rotary positions rotate pairs of features", heads.head_dim), "an even number");
  refuse_if(network.qk_norm && network.whole_qk_norm && plan.tp > 1, "layout.tp",
            fmt::format("{}: a norm over all heads (model.whole_qk_norm) cannot be split among ranks", plan.tp), "1");
  refuse_if(!network.causal && (network.windowed_layers > 0 || plan.slices() > 1), "model.causal",
            "false requires whole sequences and no windows", "true");
}

void check_context(const TrainingPlan& plan) {
  if (plan.cp == 1) return;
  refuse_if(plan.served_ranks_per_node > 0, "layout.cp",
            fmt::format("{}: parameter servers support replicas of whole sequences only", plan.cp), "1");
  check_division("layout.cp", plan.zigzag ? 2 * plan.cp : plan.cp, plan.network.sequence, "the sequence length");
  refuse_if(!plan.network.causal || plan.slices() > 1, "layout.cp",
            fmt::format("{}: context parallelism requires causal attention and no token slices", plan.cp), "1");
  const bool hierarchical = plan.context_parallel == ContextParallel::kHierarchical;
  if (hierarchical) check_division("layout.context_inner", plan.context_inner, plan.cp, "the context-parallel ranks");
  if (plan.context_parallel != ContextParallel::kUlysses && !hierarchical) return;
  const auto kv_heads = static_cast<int>(plan.network.head_layout(plan.feature_parts()).kv_heads);
  if (hierarchical) {
    return check_division("layout.context_inner", plan.context_inner, kv_heads, "the key/value heads of a rank");
  }
  check_division("layout.cp", plan.cp, kv_heads, "the key/value heads of a rank");
}

// The inputs of linears are split into q parts, the outputs into q as well, or into q² for 3d.
void check_grid(const TrainingPlan& plan) {
  if (plan.tensor_parallel == TensorParallel::k1d) return;
  const std::string form(name_of(plan.tensor_parallel));
  const TensorGrid grid = plan.grid();
  refuse_if(grid.q == 0, "layout.tp", fmt::format("{} ranks cannot form a {} grid", plan.tp, form), {});
  const NetworkSpec& network = plan.network;
  const int parts = grid.weight_parts / grid.q;
  const auto cut = [&](int value, const char* what) {
    if (value % parts == 0) return;
    refuse("layout.tp",
           fmt::format("{}: a {} grid splits {}, {}, into {} equal parts", plan.tp, form, what, value, parts),
           "another size, or tensor_parallel 1d");
  };
  cut(static_cast<int>(network.head_layout().width()), "the width of queries, keys and values");
  cut(network.ffn, "the MLP width");
  cut(network.hidden, "the hidden size");
  cut(network.vocab, "the vocabulary");
  check_division("layout.micro_batch_size", grid.token_parts, plan.micro_batch_size, "the sequences of a microbatch");
  if (plan.tp == 1) return;
  const auto need = [&](bool holds, const char* field, const char* problem, const char* help) {
    refuse_if(!holds, field, fmt::format("{} with tensor_parallel {}: {}", plan.tp, form, problem), help);
  };
  need(!network.experts, "layout.tp", "experts cannot be spread over a grid", "tensor_parallel 1d");
  need(plan.servers == 0, "layout.spare_hosts", "spare hosts support lines of ranks only", "0");
  need(!network.tied_embeddings, "layout.tp", "the table and the head are split differently",
       "model.tied_embeddings false");
  need(!network.recompute.partitioned, "layout.tp", "inputs of blocks are already split",
       "partition_checkpoints false");
  need((network.recompute.modules & ~bit_of(RecomputeModule::kCoreAttention)).none(), "layout.tp",
       "selective recomputation supports attention only", "recompute_modules: core_attn");
}

void check_experts(const TrainingPlan& plan) {
  if (!plan.network.experts) {
    check_division("layout.ep", plan.ep, 1, "the experts of a dense model");
    return;
  }
  const Experts& experts = *plan.network.experts;
  check_division("layout.ep", plan.ep, experts.count, "the experts");
  const int sharers = plan.expert_sharers();
  const bool folds = sharers != plan.tp;
  check_division("layout.etp", sharers, plan.tp, "the tensor-parallel ranks");
  check_division("layout.ep", plan.ep, plan.replicas() * plan.tp / sharers, "the groups of ranks that share experts");
  check_division(folds ? "layout.etp" : "layout.tp", sharers, experts.ffn, "the width of an expert");
  refuse_if(folds && !plan.sequence_parallel, "layout.etp",
            fmt::format("{} with tp {}: ranks route separate rows with sequence parallelism only", sharers, plan.tp),
            "layout.sequence_parallel true");
  refuse_if(folds && sharers > 1 && plan.network.biases, "model.biases",
            fmt::format("true: a run sums the biases of experts over tp {}, not over etp {}", plan.tp, sharers),
            "false, or etp 1");
  if (experts.shared > 0)
    check_division("layout.tp", plan.tp, experts.shared * experts.shared_ffn, "the width of the shared experts");
  refuse_if(experts.capacity_factor && (plan.slices() > 1 || plan.cp > 1 || plan.sequence_parallel),
            "model.experts.capacity_factor", "the capacity of experts applies to whole sequences, not to parts of them",
            "leave it out");
  refuse_if((plan.ep > 1 || folds) && plan.compression.kind != Compression::Kind::kNone, "layout.compression",
            fmt::format("{} sums over all replicas, which ep {} does not support", plan.compression.text(), plan.ep),
            "none");
  refuse_if(plan.served_ranks_per_node > 0, "layout.data_parallel",
            "a run does not support parameter servers with experts", "ddp or fsdp");
  refuse_if((plan.ep > 1 || folds) && plan.shards > 0, "layout.data_parallel",
            fmt::format("a run does not support hsdp with ep {}", plan.ep), "ddp, with ZeRO, or fsdp");
}

void check_finetune(const TrainingPlan& plan) {
  const std::optional<Finetune>& finetune = plan.network.finetune;
  if (!finetune) return;
  const std::string method(name_of(finetune->method));
  const auto need = [](bool holds, const char* field, const std::string& problem, const std::string& help) {
    refuse_if(!holds, field, problem, help);
  };
  need(plan.compression.kind == Compression::Kind::kNone, "layout.compression",
       fmt::format("{} compresses the gradients of all weights and does not support {}", plan.compression.text(),
                   method),
       "none");
  if (!finetune->adapts()) return;
  need(!plan.network.experts, "training.finetune",
       fmt::format("{}: a run does not support adapters with experts", method), "full or freeze");
  need(finetune->dropout == 0.0, "training.finetune.dropout",
       fmt::format("{}: a run does not support dropout", finetune->dropout), "0");
  need(finetune->rank % plan.tp == 0, "training.finetune.rank",
       fmt::format("{} is not a multiple of layout.tp, {}", finetune->rank, plan.tp),
       fmt::format("such as {}", (finetune->rank / plan.tp + 1) * plan.tp));
}

}  // namespace

void check_plan(const TrainingPlan& plan) {
  check_program(plan);
  check_sharding(plan);
  check_compression(plan);
  check_updates(plan);
  check_slices(plan);
  const NetworkSpec& network = plan.network;
  check_grid(plan);
  check_heads(plan);
  check_context(plan);
  check_experts(plan);
  check_finetune(plan);
  check_division("layout.tp", plan.feature_parts(), network.ffn, "the MLP width");
  check_division("layout.tp", plan.feature_parts(), network.vocab, "the vocabulary");
  if (plan.sequence_parallel) {
    check_division("layout.tp", plan.tp, plan.micro_batch_size * network.sequence / plan.slices() / plan.cp,
                   "the tokens of a pass");
  }
}

}  // namespace flopcast::realrun
