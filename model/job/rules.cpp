#include "model/job/rules.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace flopcast {

namespace {

using Rules = std::vector<LayoutRule>;

constexpr std::string_view kOfProfiles = "valid for a layer profile";
constexpr std::string_view kOnNodes = "valid for this model on {devices_per_node}-GPU nodes";

bool is_1d(const Layout& layout) {
  return layout.tensor_parallel == TensorParallel::k1d;
}

bool shards_everything(const Layout& layout) {
  return layout.data_parallel == DataParallel::kFsdp || layout.data_parallel == DataParallel::kHsdp;
}

bool has_servers(const Layout& layout) {
  return layout.data_parallel == DataParallel::kPs || layout.data_parallel == DataParallel::kByteps;
}

// --- forms that no search chooses ---

bool multiplies_on_host(const Job& job, const Layout& layout) {
  const Optimizer optimizer = job.training.optimizer;
  return layout.offloads_optimizer() && (optimizer == Optimizer::kMuon || optimizer == Optimizer::kGalore);
}

Rules form_rules() {
  constexpr std::string_view kGridModel =
      "grids of tensor_parallel are modelled without experts, latent attention and fine-tuning";
  constexpr std::string_view kOfModel = "valid for this model";
  return {
      {"tensor_depth belongs to tensor_parallel 2.5d", "tensor_depth tensor_parallel",
       [](auto&, auto& layout) { return layout.tensor_parallel != TensorParallel::k25d && layout.tensor_depth != 1; },
       "{tensor_depth} belongs to tensor_parallel 2.5d"},
      {"shards belongs to data_parallel hsdp", "shards data_parallel",
       [](auto&, auto& layout) { return layout.data_parallel != DataParallel::kHsdp && layout.shards > 1; },
       "{shards} belongs to data_parallel hsdp"},
      {"a layer profile cannot be split over a grid of tensor_parallel", "tensor_parallel",
       [](auto& job, auto& layout) { return job.profile && !is_1d(layout); },
       "a layer that is known by its time alone cannot be split"},
      {kGridModel, "tensor_parallel", [](auto& job, auto& layout) { return !is_1d(layout) && job.training.finetune; },
       "{tensor_parallel} is modelled without training.finetune", kOfModel},
      {kGridModel, "tensor_parallel", [](auto& job, auto& layout) { return !is_1d(layout) && job.training.preference; },
       "{tensor_parallel} is modelled without training.preference", kOfModel},
      {kGridModel, "tensor_parallel",
       [](auto& job, auto& layout) {
         return !is_1d(layout) && (job.model.experts || job.model.latent || job.model.mtp_layers > 0);
       },
       "{tensor_parallel} is modelled without experts, latent attention and multi-token prediction", kOfModel},
      {"schedule_csv is for a schedule in a file", "schedule_csv",
       [](auto&, auto& layout) { return !layout.schedule_csv.empty() && layout.schedule.rfind("file:", 0) != 0; },
       "is for a schedule in a file", "", "layout.schedule file:NAME, or leave it out"},
      {"recompute_layers and recompute_every are two ways to choose layers", "recompute_every recompute_layers",
       [](auto&, auto& layout) { return layout.recompute_layers && layout.recompute_every; },
       "is given with recompute_layers", "", "give one of them: the first layers, or every N-th"},
      {"a grid of tensor_parallel has cut checkpoints already", "partition_checkpoints tensor_parallel",
       [](auto&, auto& layout) { return layout.partition_checkpoints && !is_1d(layout); },
       "true changes nothing: block inputs are cut over the tensor-parallel ranks already"},
      {"powersgd needs the shapes of weights, which a layer profile has not", "compression",
       [](auto& job, auto& layout) { return job.profile && layout.compression.kind == Compression::Kind::kPowerSgd; },
       "powersgd needs the shapes of weights, which a layer profile has not", "",
       "valid for a layer profile: none, 8bit, 4bit, topk:F"},
      {"offload needs the rate of the host's link", "offload",
       [](auto& job, auto& layout) {
         return layout.offload != Offload::kNone && job.cluster.host_bandwidth.value() <= 0.0;
       },
       "needs cluster.host_bandwidth, which cluster {cluster} does not say", "",
       "give cluster.host_bandwidth, such as \"32GB/s\", or use none"},
      {"offload of the optimizer needs the rate of the host's memory", "offload",
       [](auto& job, auto& layout) {
         return layout.offloads_optimizer() && job.cluster.host_memory_bandwidth.value() <= 0.0;
       },
       "needs cluster.host_memory_bandwidth, which cluster {cluster} does not say", "",
       "give cluster.host_memory_bandwidth, such as \"400GB/s\", or use none"},
      {"products on the host are not modelled", "offload", &multiplies_on_host,
       "{optimizer} multiplies matrices, and products on the host are not modelled", "valid with it"},
      {"a layer profile cannot offload activations", "offload",
       [](auto& job, auto& layout) { return job.profile && layout.offloads_activations(); },
       "activations of a layer profile cannot be offloaded", kOfProfiles},
  };
}

// --- tensor parallelism ---

bool line_leaves(int number, const Layout& layout) {
  return is_1d(layout) && number % layout.tp != 0;
}

Rules grid_rules() {
  return {
      {"tp does not fill the grid of tensor_parallel", "tp tensor_depth",
       [](auto&, auto& layout) { return !is_1d(layout) && layout_grid(layout).q == 0; },
       "{tp} is no {grid_shape}, as tensor_parallel {tensor_parallel} needs", "valid on {devices} devices"},
      {"the grid of tensor_parallel does not cut heads, MLP and hidden size", "tp tensor_depth",
       [](auto& job, auto& layout) { return !is_1d(layout) && uncut_by_grid(job.model, layout).parts > 0; },
       "{uncut} parts, as tensor_parallel {tensor_parallel} needs"},
  };
}

Rules tensor_rules() {
  constexpr std::string_view kExpertWidth = "tp does not divide the width of the experts";
  return {
      {"a layer profile cannot be split over tp", "tp",
       [](auto& job, auto& layout) { return job.profile && layout.tp > 1; },
       "{tp} tensor-parallel ranks cannot share a layer that is known by its time alone", kOfProfiles},
      {"tp does not divide the attention heads", "tp",
       [](auto& job, auto& layout) { return line_leaves(job.model.heads, layout); },
       "{tp} does not divide attention heads {heads}", kOnNodes, "", true},
      {"tp does not divide the key/value heads", "tp",
       [](auto& job, auto& layout) { return line_leaves(job.model.kv_heads, layout); },
       "{tp} does not divide key/value heads {kv_heads}", kOnNodes, "", true},
      {"tp does not divide the MLP width", "tp",
       [](auto& job, auto& layout) { return line_leaves(job.model.ffn, layout); },
       "{tp} does not divide MLP width {ffn}", kOnNodes, "", true},
      {kExpertWidth, "tp", [](auto& job, auto& layout) { return line_leaves(shared_width(job.model), layout); },
       "{tp} does not divide the width of the shared experts {shared_width}"},
      {"etp does not divide tp", "etp tp",
       [](auto&, auto& layout) { return layout.tp % layout.expert_tensor_ranks() != 0; },
       "{etp} does not divide tp {tp}"},
      {kExpertWidth, "tp etp",
       [](auto& job, auto& layout) {
         return job.model.experts && is_1d(layout) && !layout.etp && job.model.experts->ffn % layout.tp != 0;
       },
       "{tp} does not divide the width of an expert {expert_width}"},
      {kExpertWidth, "etp tp",
       [](auto& job, auto& layout) {
         return job.model.experts && layout.etp && job.model.experts->ffn % *layout.etp != 0;
       },
       "{etp} does not divide the width of an expert {expert_width}"},
  };
}

// --- context parallelism ---

// The equal parts that context-parallel ranks cut a sequence in: two each with zigzag. Causal balance gives each rank
// an early and a late part (2310.01889 §4).
int sequence_parts(const Layout& layout) {
  return layout.zigzag ? 2 * layout.cp : layout.cp;
}

bool is_hierarchical(const Layout& layout) {
  return layout.context_parallel == ContextParallel::kHierarchical;
}

bool inner_is_uneven(const Job&, const Layout& layout) {
  if (!is_hierarchical(layout) || layout.cp == 1) return false;
  return layout.cp % *layout.context_inner != 0 || layout.cp == *layout.context_inner;
}

// All-to-alls hand each rank whole heads, of queries and of keys and values.
bool heads_are_cut(const Job& job, const Layout& layout) {
  const int ranks = layout.ulysses_ranks();
  return rank_heads(job) % ranks != 0 || rank_kv_heads(job) % ranks != 0;
}

bool uneven_sequence(const Job& job, const Layout& layout) {
  return layout.cp > 1 && job.training.sequence_length % sequence_parts(layout) != 0;
}

Rules context_rules() {
  constexpr std::string_view kInner =
      "context_inner is of context_parallel hierarchical, and cp a multiple of it beyond itself";
  constexpr std::string_view kSequence = "cp, with zigzag 2 cp, does not divide the sequence length";
  constexpr std::string_view kUlysses =
      "ulysses: cp (hierarchical: context_inner) does not divide the heads of a tensor rank";
  constexpr std::string_view kHeads =
      "{ulysses_ranks} ranks do not share {rank_heads} heads and {rank_kv_heads} key/value heads of a tensor-parallel "
      "rank, as {context_parallel} needs";
  return {
      {kInner, "context_parallel context_inner cp",
       [](auto&, auto& layout) { return is_hierarchical(layout) && !layout.context_inner; },
       "hierarchical needs context_inner, the ranks that exchange heads"},
      {kInner, "context_inner context_parallel cp",
       [](auto&, auto& layout) { return !is_hierarchical(layout) && layout.context_inner; },
       "is given with context_parallel {context_parallel}, and belongs to hierarchical alone"},
      {"a context_parallel other than ring needs cp above 1", "context_parallel cp",
       [](auto&, auto& layout) { return layout.cp == 1 && layout.context_parallel != ContextParallel::kRing; },
       "{context_parallel} needs cp above 1"},
      {"a layer profile cannot be split over cp", "cp",
       [](auto& job, auto& layout) { return job.profile && layout.cp > 1; },
       "{cp} context-parallel ranks cannot share a layer that is known by its time alone", kOfProfiles},
      {kInner, "context_inner context_parallel cp", &inner_is_uneven,
       "{context_inner} does not divide {cp} context-parallel ranks in groups"},
      {kSequence, "cp zigzag", [](auto& job, auto& layout) { return layout.zigzag && uneven_sequence(job, layout); },
       "2 · {cp} does not divide the sequence length {sequence_length}"},
      {kSequence, "cp", &uneven_sequence, "{cp} does not divide the sequence length {sequence_length}"},
      {kUlysses, "context_inner cp tp context_parallel",
       [](auto& job, auto& layout) { return layout.context_inner && heads_are_cut(job, layout); }, kHeads},
      {kUlysses, "cp tp context_parallel", &heads_are_cut, kHeads},
  };
}

// --- replicas and experts ---

bool leaves_devices(const Job& job, std::int64_t ranks) {
  return job.cluster.devices() % ranks != 0;
}

bool is_no_single_process(const Job& job, const Layout& layout) {
  const bool single = job.cluster.nodes == 1 && model_ranks(layout) == 1;
  return layout.data_parallel == DataParallel::kDataParallel && !single;
}

Rules replica_rules() {
  constexpr std::string_view kDevices = "tp cp pp do not divide the devices";
  constexpr std::string_view kRanks =
      "tp {tp} · pp {pp} · cp {cp} = {model_ranks} ranks do not divide the cluster's {devices} devices";
  return {
      // Which of the axes that hold the model can be mended depends on the others.
      {kDevices, "tp cp pp",
       [](auto& job, auto& layout) {
         return layout.tp > 1 && !leaves_devices(job, layout.cp) &&
                leaves_devices(job, std::int64_t{layout.tp} * layout.cp);
       },
       kRanks, "valid tp"},
      {kDevices, "cp tp pp",
       [](auto& job, auto& layout) { return leaves_devices(job, std::int64_t{layout.tp} * layout.cp); }, kRanks,
       "valid cp"},
      {kDevices, "pp tp cp", [](auto& job, auto& layout) { return leaves_devices(job, model_ranks(layout)); }, kRanks,
       "valid pp"},
      {"tp cp pp leave over another dp than asked for", "dp tp pp cp",
       [](auto& job, auto& layout) { return model_ranks(layout) * layout.dp != job.cluster.devices(); },
       "dp {dp} · tp {tp} · pp {pp} · cp {cp} = {ranks} ranks, but the cluster has {devices} devices"},
      {"dataparallel is one process on one node, without other parallelism", "data_parallel tp pp cp",
       &is_no_single_process, "dataparallel is one process on one node, without other parallelism", "valid here"},
  };
}

bool experts_leave_replicas(const Job& job, const Layout& layout) {
  if (!job.model.experts) return false;
  if (layout.folds_experts()) return layout.tp / *layout.etp * layout.cp * layout.dp % layout.ep != 0;
  const bool among_contexts = layout.cp % layout.ep == 0;
  const bool over_replicas = layout.ep % layout.cp == 0 && layout.dp % (layout.ep / layout.cp) == 0;
  return !among_contexts && !over_replicas;
}

Rules expert_rules() {
  constexpr std::string_view kNone = "ep needs a model with experts";
  constexpr std::string_view kFolding = "an etp other than tp needs sequence parallelism, and no grid and no hsdp";
  constexpr std::string_view kFolded =
      "{etp} with tp {tp} needs sequence_parallel, and neither tensor_parallel of a grid nor hsdp";
  constexpr std::string_view kReplicas =
      "{ep} expert-parallel ranks do not split {experts} experts over {folded}dp {dp} · cp {cp} ranks";
  return {
      {kNone, "ep", [](auto& job, auto& layout) { return !job.model.experts && layout.ep > 1; },
       "{ep} expert-parallel ranks for a model without experts"},
      {kNone, "etp ep", [](auto& job, auto& layout) { return !job.model.experts && layout.folds_experts(); },
       "belongs to a model with experts"},
      {kFolding, "etp tp data_parallel tensor_parallel",
       [](auto&, auto& layout) {
         return layout.folds_experts() && (!is_1d(layout) || layout.data_parallel == DataParallel::kHsdp);
       },
       kFolded},
      {"ep does not divide the experts", "ep",
       [](auto& job, auto& layout) { return job.model.experts && job.model.experts->count % layout.ep != 0; },
       kReplicas},
      {"ep does not divide the replicas dp cp", "ep etp tp cp dp", &experts_leave_replicas, kReplicas},
      {kFolding, "etp tp sequence_parallel",
       [](auto&, auto& layout) { return layout.folds_experts() && !layout.sequence_parallel; }, kFolded},
      {"shards does not divide the replicas", "shards cp ep dp",
       [](auto&, auto& layout) {
         return layout.data_parallel == DataParallel::kHsdp && !shards_fit(layout, layout.shards);
       },
       "{shards} shards do not split {replicas} replicas, cp {cp} and ep {ep}"},
  };
}

// --- the batch, and what a rank keeps ---

bool tokens_are_uneven(const Job& job, const Layout& layout) {
  return layout.sequence_parallel && job.training.sequence_length / layout.cp % layout.tp != 0;
}

Rules batch_rules() {
  return {
      {"the batch is no multiple of dp mbs", "global_batch_size micro_batch_size dp",
       [](auto&, auto& layout) {
         return layout.global_batch_size % (std::int64_t{layout.dp} * layout.micro_batch_size) != 0;
       },
       "{global_batch_size} is no multiple of dp {dp} · micro_batch_size {micro_batch_size} = {slice}",
       "nearest valid values"},
      {"the grid does not cut the microbatch", "micro_batch_size tp",
       [](auto&, auto& layout) {
         return !is_1d(layout) && layout.micro_batch_size % layout_grid(layout).token_parts != 0;
       },
       "{micro_batch_size} sequences cannot be cut in {token_parts} parts, as tensor_parallel {tensor_parallel} with "
       "tp {tp} needs"},
      {"a layer profile has no sequence parallelism", "sequence_parallel",
       [](auto& job, auto& layout) { return job.profile && layout.sequence_parallel; },
       "true needs tensor parallelism, which a layer profile has not", kOfProfiles},
      {"sequence parallelism is of tensor_parallel 1d", "sequence_parallel tensor_parallel",
       [](auto&, auto& layout) { return layout.sequence_parallel && !is_1d(layout); },
       "true does not exist with tensor_parallel {tensor_parallel}, which splits every activation already"},
      {"tp does not divide the tokens of a rank", "sequence_parallel tp cp", &tokens_are_uneven,
       "{tokens} tokens of a sequence cannot be split over tp {tp}"},
  };
}

Rules recompute_rules() {
  constexpr std::string_view kParts =
      "recompute_layers or recompute_every needs recompute full, recompute_modules selective, and a transformer";
  constexpr std::string_view kCheckpoints =
      "partition_checkpoints needs recompute full and tp above 1 without sequence parallelism";
  constexpr std::string_view kOfFull = "belongs to recompute full, not {recompute_of}";
  return {
      {"a layer profile has no selective recomputation", "recompute",
       [](auto& job, auto& layout) { return job.profile && layout.recompute == Recompute::kSelective; },
       "selective recomputation is defined for transformer blocks, not for a layer profile", kOfProfiles},
      {kParts, "recompute_modules recompute",
       [](auto& job, auto& layout) {
         return layout.recompute_modules && (job.profile || layout.recompute != Recompute::kSelective);
       },
       "belongs to recompute selective, not {recompute_of}"},
      {kParts, "recompute_layers recompute",
       [](auto& job, auto& layout) {
         return layout.recompute_layers && (job.profile || layout.recompute != Recompute::kFull);
       },
       kOfFull},
      {kParts, "recompute_every recompute",
       [](auto& job, auto& layout) {
         return layout.recompute_every && (job.profile || layout.recompute != Recompute::kFull);
       },
       kOfFull},
      {kCheckpoints, "partition_checkpoints recompute",
       [](auto&, auto& layout) { return layout.partition_checkpoints && layout.recompute != Recompute::kFull; },
       "true belongs to recompute full, which keeps block inputs alone"},
      {kCheckpoints, "partition_checkpoints tp recompute",
       [](auto&, auto& layout) { return layout.partition_checkpoints && layout.tp == 1; },
       "true needs tensor-parallel ranks to cut block inputs over"},
      {kCheckpoints, "partition_checkpoints sequence_parallel recompute",
       [](auto&, auto& layout) { return layout.partition_checkpoints && layout.sequence_parallel; },
       "true changes nothing: block inputs are cut over the tensor-parallel ranks already"},
  };
}

// --- how replicas keep their weights equal ---

Rules replication_rules() {
  return {
      {"a layer profile cannot communicate inside its passes", "data_parallel",
       [](auto& job, auto& layout) {
         return job.profile && layout.data_parallel != DataParallel::kDdp && !has_servers(layout);
       },
       "{data_parallel} communicates inside the passes, whose operators a layer profile does not know", kOfProfiles},
      {"sharding forms of data_parallel shard everything", "zero data_parallel",
       [](auto&, auto& layout) {
         return shards_everything(layout) && layout.zero != 0 && layout.zero != kShardsWeights;
       },
       "{zero} contradicts data_parallel {data_parallel}, which shards everything"},
      {"zero needs a form of data_parallel that shards", "zero data_parallel",
       [](auto&, auto& layout) {
         return layout.zero > 0 && !shards_everything(layout) && layout.data_parallel != DataParallel::kDdp;
       },
       "{zero} does not exist with data_parallel {data_parallel}"},
      {"compression needs zero 0", "compression zero data_parallel",
       [](auto&, auto& layout) {
         const bool whole_gradients = layout.data_parallel == DataParallel::kDdp && layout.zero == 0;
         return layout.compression.kind != Compression::Kind::kNone && !whole_gradients;
       },
       "{compression} replaces an all-reduce of whole gradients"},
      {"a layer profile cannot shard gradients", "zero",
       [](auto& job, auto& layout) { return job.profile && layout.zero > kShardsOptimizer; },
       "{zero} communicates inside the passes, whose operators a layer profile does not know", kOfProfiles},
      {"spare_hosts serve a parameter server", "spare_hosts data_parallel",
       [](auto&, auto& layout) { return layout.spare_hosts > 0 && !has_servers(layout); },
       "{spare_hosts} serve nobody with data_parallel {data_parallel}"},
      {"reshard_after_forward is of data_parallel fsdp and hsdp", "reshard_after_forward data_parallel",
       [](auto&, auto& layout) { return !layout.reshard_after_forward && !shards_everything(layout); },
       "false does not exist with data_parallel {data_parallel}"},
  };
}

}  // namespace

const std::vector<LayoutRule>& layout_rules() {
  static const Rules all = [] {
    Rules rules;
    for (Rules (*some)() : {&form_rules, &grid_rules, &tensor_rules, &context_rules, &replica_rules, &expert_rules,
                            &batch_rules, &recompute_rules, &replication_rules}) {
      Rules more = some();
      std::move(more.begin(), more.end(), std::back_inserter(rules));
    }
    return rules;
  }();
  return all;
}

std::vector<std::string_view> keys_of(const LayoutRule& rule) {
  std::vector<std::string_view> keys;
  for (std::size_t begin = 0; begin < rule.keys.size();) {
    const std::size_t end = std::min(rule.keys.find(' ', begin), rule.keys.size());
    keys.push_back(rule.keys.substr(begin, end - begin));
    begin = end + 1;
  }
  return keys;
}

const LayoutRule* first_broken(const Job& job) {
  for (const LayoutRule& rule : layout_rules()) {
    if (rule.broken(job, job.layout)) return &rule;
  }
  return nullptr;
}

UncutWidth uncut_by_grid(const Transformer& model, const Layout& layout) {
  const TensorGrid grid = layout_grid(layout);
  const int weight_parts = grid.weight_parts / grid.q;
  for (const UncutWidth& width : {UncutWidth{"attention heads", model.heads, grid.q},
                                  {"key/value heads", model.kv_heads, grid.q},
                                  {"MLP width", model.ffn, weight_parts},
                                  {"hidden size", model.hidden, weight_parts}}) {
    if (width.number % width.parts != 0) return width;
  }
  return {};
}

std::vector<int> divisors_of(int number, int largest) {
  std::vector<int> divisors;
  for (int divisor = 1; divisor <= number / divisor; ++divisor) {
    if (number % divisor == 0) divisors.push_back(divisor);
  }
  for (std::size_t index = divisors.size(); index-- > 0;) {
    const int other = number / divisors[index];
    if (other != divisors[index]) divisors.push_back(other);
  }
  const auto end = std::upper_bound(divisors.begin(), divisors.end(), largest);
  divisors.erase(end, divisors.end());
  return divisors;
}

bool shards_fit(const Layout& layout, int shards) {
  const auto fits = [shards](int ranks) { return shards % ranks == 0 || ranks % shards == 0; };
  return layout.replicas() % shards == 0 && fits(layout.cp) && fits(layout.ep);
}

}  // namespace flopcast
