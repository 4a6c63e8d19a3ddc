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

// --- forms that searches never choose ---

bool multiplies_on_host(const Job& job, const Layout& layout) {
  const Optimizer optimizer = job.training.optimizer;
  return layout.offloads_optimizer() && (optimizer == Optimizer::kMuon || optimizer == Optimizer::kGalore);
}

Rules form_rules() {
  constexpr std::string_view kGridModel =
      "tensor_parallel grids with experts, latent attention or fine-tuning are not modelled";
  constexpr std::string_view kOfModel = "valid for this model";
  return {
      {"tensor_depth needs tensor_parallel 2.5d", "tensor_depth tensor_parallel",
       [](auto&, auto& layout) { return layout.tensor_parallel != TensorParallel::k25d && layout.tensor_depth != 1; },
       "{tensor_depth} needs tensor_parallel 2.5d"},
      {"shards needs data_parallel hsdp", "shards data_parallel",
       [](auto&, auto& layout) { return layout.data_parallel != DataParallel::kHsdp && layout.shards > 1; },
       "{shards} needs data_parallel hsdp"},
      {"a layer profile cannot be split over a tensor_parallel grid", "tensor_parallel",
       [](auto& job, auto& layout) { return job.profile && !is_1d(layout); },
       "measured layers of a profile cannot be split"},
      {kGridModel, "tensor_parallel", [](auto& job, auto& layout) { return !is_1d(layout) && job.training.finetune; },
       "{tensor_parallel} with training.finetune is not modelled", kOfModel},
      {kGridModel, "tensor_parallel", [](auto& job, auto& layout) { return !is_1d(layout) && job.training.preference; },
       "{tensor_parallel} with training.preference is not modelled", kOfModel},
      {kGridModel, "tensor_parallel",
       [](auto& job, auto& layout) {
         return !is_1d(layout) && (job.model.experts || job.model.latent || job.model.mtp_layers > 0);
       },
       "{tensor_parallel} with experts, latent attention or multi-token prediction is not modelled", kOfModel},
      {"schedule_csv needs a schedule given as a file", "schedule_csv",
       [](auto&, auto& layout) { return !layout.schedule_csv.empty() && layout.schedule.rfind("file:", 0) != 0; },
       "needs a schedule given as a file", "", "set layout.schedule to file:NAME, or leave it out"},
      {"recompute_layers and recompute_every exclude each other", "recompute_every recompute_layers",
       [](auto&, auto& layout) { return layout.recompute_layers && layout.recompute_every; },
       "is given together with recompute_layers", "",
       "give only one: recompute_layers for the first layers, or recompute_every for every N-th"},
      {"a tensor_parallel grid already splits checkpoints", "partition_checkpoints tensor_parallel",
       [](auto&, auto& layout) { return layout.partition_checkpoints && !is_1d(layout); },
       "true has no effect: block inputs are already split over the tensor-parallel ranks"},
      {"powersgd needs the shapes of weights, which a layer profile does not have", "compression",
       [](auto& job, auto& layout) { return job.profile && layout.compression.kind == Compression::Kind::kPowerSgd; },
       "powersgd needs the shapes of weights, which a layer profile does not have", "",
       "valid for a layer profile: none, 8bit, 4bit, topk:F"},
      {"offload needs host_bandwidth", "offload",
       [](auto& job, auto& layout) {
         return layout.offload != Offload::kNone && job.cluster.host_bandwidth.value() <= 0.0;
       },
       "needs cluster.host_bandwidth, which cluster {cluster} does not specify", "",
       "give cluster.host_bandwidth, such as \"32GB/s\", or use none"},
      {"offload of the optimizer needs host_memory_bandwidth", "offload",
       [](auto& job, auto& layout) {
         return layout.offloads_optimizer() && job.cluster.host_memory_bandwidth.value() <= 0.0;
       },
       "needs cluster.host_memory_bandwidth, which cluster {cluster} does not specify", "",
       "give cluster.host_memory_bandwidth, such as \"400GB/s\", or use none"},
      {"matrix products on the host are not modelled", "offload", &multiplies_on_host,
       "{optimizer} needs matrix products, which are not modelled on the host", "valid for it"},
      {"a layer profile cannot offload activations", "offload",
       [](auto& job, auto& layout) { return job.profile && layout.offloads_activations(); },
       "the activations of a layer profile cannot be offloaded", kOfProfiles},
  };
}

// --- tensor parallelism ---

bool line_leaves(int number, const Layout& layout) {
  return is_1d(layout) && number % layout.tp != 0;
}

Rules grid_rules() {
  return {
      {"tp does not fill the tensor_parallel grid", "tp tensor_depth",
       [](auto&, auto& layout) { return !is_1d(layout) && layout_grid(layout).q == 0; },
       "{tp} is not of the form {grid_shape}, as tensor_parallel {tensor_parallel} requires",
       "valid on {devices} devices"},
      {"the tensor_parallel grid does not divide heads, MLP and hidden size", "tp tensor_depth",
       [](auto& job, auto& layout) { return !is_1d(layout) && uncut_by_grid(job.model, layout).parts > 0; },
       "{uncut}, as tensor_parallel {tensor_parallel} requires"},
  };
}

Rules tensor_rules() {
  constexpr std::string_view kExpertWidth = "tp does not divide the width of the experts";
  return {
      {"a layer profile cannot be split over tp", "tp",
       [](auto& job, auto& layout) { return job.profile && layout.tp > 1; },
       "{tp} tensor-parallel ranks cannot split the measured layers of a profile", kOfProfiles},
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
       "{tp} does not divide the shared experts' width {shared_width}"},
      {"etp does not divide tp", "etp tp",
       [](auto&, auto& layout) { return layout.tp % layout.expert_tensor_ranks() != 0; },
       "{etp} does not divide tp {tp}"},
      {kExpertWidth, "tp etp",
       [](auto& job, auto& layout) {
         return job.model.experts && is_1d(layout) && !layout.etp && job.model.experts->ffn % layout.tp != 0;
       },
       "{tp} does not divide the expert width {expert_width}"},
      {kExpertWidth, "etp tp",
       [](auto& job, auto& layout) {
         return job.model.experts && layout.etp && job.model.experts->ffn % *layout.etp != 0;
       },
       "{etp} does not divide the expert width {expert_width}"},
  };
}

// --- context parallelism ---

// Number of equal parts into which context-parallel ranks split a sequence: with zigzag each rank has two, an early and
// a late one, which balances causal attention (2310.01889 §4).
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

// All-to-alls give each rank whole heads, of queries as well as of keys and values.
bool heads_are_cut(const Job& job, const Layout& layout) {
  const int ranks = layout.ulysses_ranks();
  return rank_heads(job) % ranks != 0 || rank_kv_heads(job) % ranks != 0;
}

bool uneven_sequence(const Job& job, const Layout& layout) {
  return layout.cp > 1 && job.training.sequence_length % sequence_parts(layout) != 0;
}

Rules context_rules() {
  constexpr std::string_view kInner =
      "context_inner needs context_parallel hierarchical, and cp must be a larger multiple of it";
  constexpr std::string_view kSequence = "cp (2 cp with zigzag) does not divide the sequence length";
  constexpr std::string_view kUlysses =
      "cp (hierarchical: context_inner) does not divide the heads of a tensor-parallel rank for ulysses";
  constexpr std::string_view kHeads =
      "{ulysses_ranks} ranks cannot evenly share the {rank_heads} heads and {rank_kv_heads} key/value heads of a "
      "tensor-parallel rank, as {context_parallel} requires";
  return {
      {kInner, "context_parallel context_inner cp",
       [](auto&, auto& layout) { return is_hierarchical(layout) && !layout.context_inner; },
       "hierarchical needs context_inner, the number of ranks that exchange heads"},
      {kInner, "context_inner context_parallel cp",
       [](auto&, auto& layout) { return !is_hierarchical(layout) && layout.context_inner; },
       "needs context_parallel hierarchical, not {context_parallel}"},
      {"a context_parallel other than ring needs cp above 1", "context_parallel cp",
       [](auto&, auto& layout) { return layout.cp == 1 && layout.context_parallel != ContextParallel::kRing; },
       "{context_parallel} needs cp above 1"},
      {"a layer profile cannot be split over cp", "cp",
       [](auto& job, auto& layout) { return job.profile && layout.cp > 1; },
       "{cp} context-parallel ranks cannot split the measured layers of a profile", kOfProfiles},
      {kInner, "context_inner context_parallel cp", &inner_is_uneven,
       "{context_inner} does not divide {cp} context-parallel ranks into several groups"},
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
      // Which of tp, cp and pp a change of value can fix depends on the other axes.
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
      {"tp cp pp leave a different dp than requested", "dp tp pp cp",
       [](auto& job, auto& layout) { return model_ranks(layout) * layout.dp != job.cluster.devices(); },
       "dp {dp} · tp {tp} · pp {pp} · cp {cp} = {ranks} ranks, but the cluster has {devices} devices"},
      {"dataparallel needs one node and no other parallelism", "data_parallel tp pp cp", &is_no_single_process,
       "dataparallel is a single process: it needs one node and no other parallelism", "valid for this job"},
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
  constexpr std::string_view kFolding =
      "an etp other than tp needs sequence parallelism, tensor_parallel 1d and no hsdp";
  constexpr std::string_view kFolded =
      "{etp} with tp {tp} needs sequence_parallel, tensor_parallel 1d and a data_parallel other than hsdp";
  constexpr std::string_view kReplicas =
      "{ep} expert-parallel ranks cannot evenly split {experts} experts over {folded}dp {dp} · cp {cp} ranks";
  return {
      {kNone, "ep", [](auto& job, auto& layout) { return !job.model.experts && layout.ep > 1; },
       "{ep} expert-parallel ranks need a model with experts"},
      {kNone, "etp ep", [](auto& job, auto& layout) { return !job.model.experts && layout.folds_experts(); },
       "needs a model with experts"},
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
       "{shards} shards do not evenly divide {replicas} replicas, cp {cp} and ep {ep}"},
  };
}

// --- the batch, and what a rank keeps ---

bool tokens_are_uneven(const Job& job, const Layout& layout) {
  return layout.sequence_parallel && job.training.sequence_length / layout.cp % layout.tp != 0;
}

Rules batch_rules() {
  return {
      {"the batch is not a multiple of dp mbs", "global_batch_size micro_batch_size dp",
       [](auto&, auto& layout) {
         return layout.global_batch_size % (std::int64_t{layout.dp} * layout.micro_batch_size) != 0;
       },
       "{global_batch_size} is not a multiple of dp {dp} · micro_batch_size {micro_batch_size} = {slice}",
       "nearest valid values"},
      {"the grid does not divide the microbatch", "micro_batch_size tp",
       [](auto&, auto& layout) {
         return !is_1d(layout) && layout.micro_batch_size % layout_grid(layout).token_parts != 0;
       },
       "{micro_batch_size} sequences are not divisible into {token_parts} parts, as tensor_parallel {tensor_parallel} "
       "with tp {tp} requires"},
      {"a layer profile has no sequence parallelism", "sequence_parallel",
       [](auto& job, auto& layout) { return job.profile && layout.sequence_parallel; },
       "true needs tensor parallelism, which is impossible with a layer profile", kOfProfiles},
      {"sequence parallelism needs tensor_parallel 1d", "sequence_parallel tensor_parallel",
       [](auto&, auto& layout) { return layout.sequence_parallel && !is_1d(layout); },
       "true is invalid with tensor_parallel {tensor_parallel}, which already splits every activation"},
      {"tp does not divide the tokens of a rank", "sequence_parallel tp cp", &tokens_are_uneven,
       "{tokens} tokens per sequence are not divisible by tp {tp}"},
  };
}

Rules recompute_rules() {
  constexpr std::string_view kParts =
      "recompute_layers and recompute_every need recompute full, recompute_modules needs selective, all need a "
      "transformer";
  constexpr std::string_view kCheckpoints =
      "partition_checkpoints needs recompute full and tp above 1 without sequence parallelism";
  constexpr std::string_view kOfFull = "applies only to recompute full, not {recompute_of}";
  return {
      {"a layer profile has no selective recomputation", "recompute",
       [](auto& job, auto& layout) { return job.profile && layout.recompute == Recompute::kSelective; },
       "selective recomputation is defined only for transformer blocks, not for a layer profile", kOfProfiles},
      {kParts, "recompute_modules recompute",
       [](auto& job, auto& layout) {
         return layout.recompute_modules && (job.profile || layout.recompute != Recompute::kSelective);
       },
       "applies only to recompute selective, not {recompute_of}"},
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
       "true needs recompute full, which keeps only block inputs"},
      {kCheckpoints, "partition_checkpoints tp recompute",
       [](auto&, auto& layout) { return layout.partition_checkpoints && layout.tp == 1; },
       "true needs tensor-parallel ranks over which to split block inputs"},
      {kCheckpoints, "partition_checkpoints sequence_parallel recompute",
       [](auto&, auto& layout) { return layout.partition_checkpoints && layout.sequence_parallel; },
       "true has no effect: block inputs are already split over the tensor-parallel ranks"},
  };
}

// --- how replicas keep their weights equal ---

Rules replication_rules() {
  return {
      {"a layer profile cannot communicate inside its passes", "data_parallel",
       [](auto& job, auto& layout) {
         return job.profile && layout.data_parallel != DataParallel::kDdp && !has_servers(layout);
       },
       "{data_parallel} communicates during the passes, which needs operators that a layer profile does not have",
       kOfProfiles},
      {"fsdp and hsdp already shard everything", "zero data_parallel",
       [](auto&, auto& layout) {
         return shards_everything(layout) && layout.zero != 0 && layout.zero != kShardsWeights;
       },
       "{zero} conflicts with data_parallel {data_parallel}, which shards everything"},
      {"zero needs data_parallel ddp, fsdp or hsdp", "zero data_parallel",
       [](auto&, auto& layout) {
         return layout.zero > 0 && !shards_everything(layout) && layout.data_parallel != DataParallel::kDdp;
       },
       "{zero} is invalid with data_parallel {data_parallel}"},
      {"compression needs data_parallel ddp with zero 0", "compression zero data_parallel",
       [](auto&, auto& layout) {
         const bool whole_gradients = layout.data_parallel == DataParallel::kDdp && layout.zero == 0;
         return layout.compression.kind != Compression::Kind::kNone && !whole_gradients;
       },
       "{compression} replaces an all-reduce of whole gradients"},
      {"a layer profile cannot shard gradients", "zero",
       [](auto& job, auto& layout) { return job.profile && layout.zero > kShardsOptimizer; },
       "{zero} communicates during the passes, which needs operators that a layer profile does not have", kOfProfiles},
      {"spare_hosts needs data_parallel ps or byteps", "spare_hosts data_parallel",
       [](auto&, auto& layout) { return layout.spare_hosts > 0 && !has_servers(layout); },
       "{spare_hosts} has no effect with data_parallel {data_parallel}"},
      {"reshard_after_forward needs data_parallel fsdp or hsdp", "reshard_after_forward data_parallel",
       [](auto&, auto& layout) { return !layout.reshard_after_forward && !shards_everything(layout); },
       "false is invalid with data_parallel {data_parallel}"},
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

IndivisibleWidth uncut_by_grid(const Transformer& model, const Layout& layout) {
  const TensorGrid grid = layout_grid(layout);
  const int weight_parts = grid.weight_parts / grid.q;
  for (const IndivisibleWidth& width : {IndivisibleWidth{"attention heads", model.heads, grid.q},
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
