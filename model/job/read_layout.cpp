#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "model/job/fields.hpp"
#include "model/job/read_job.hpp"
#include "model/job/rules.hpp"

namespace flopcast {

namespace {

constexpr int kShardsEverything = 3;
constexpr double kMostSequences = 1e9;

// "1, 2, 4": those of 1 … most that `fit` accepts.
template <class Fit>
std::vector<int> fitting(int most, const Fit& fit) {
  std::vector<int> numbers;
  for (int number = 1; number <= most; ++number) {
    if (fit(number)) numbers.push_back(number);
  }
  return numbers;
}

std::string divisors_up_to(int number, int largest) {
  std::vector<int> divisors =
      fitting(std::min(number, largest), [number](int candidate) { return number % candidate == 0; });
  constexpr std::size_t kMostShown = 24;
  if (divisors.size() > kMostShown) divisors.resize(kMostShown);
  return fmt::format("{}", fmt::join(divisors, ", "));
}

/// The rules between the keys of a layout, told with the values that break them.
class LayoutCheck {
 public:
  LayoutCheck(const ObjectReader& reader, Job& job) : reader_(reader), job_(job), layout_(job.layout) {}

  void check() {
    check_forms();
    if (job_.profile) check_profile();
    check_context();
    check_tensor();
    check_sequence();
    check_ulysses();
    settle_replicas();
    check_experts();
    settle_batch();
    settle_shards();
    check_replication();
    note_assumptions();
  }

 private:
  static std::string list(const std::vector<int>& numbers) { return fmt::format("{}", fmt::join(numbers, ", ")); }

  bool is_1d() const { return layout_.tensor_parallel == TensorParallel::k1d; }
  std::string_view tensor_form() const { return name_of(layout_.tensor_parallel); }

  void check_forms() const {
    check_tensor_depth(reader_, layout_);
    if (layout_.data_parallel != DataParallel::kHsdp && layout_.shards > 1) {
      reader_.fail("shards", fmt::format("{} belongs to data_parallel hsdp", layout_.shards),
                   "valid: leave shards out");
    }
    if (broken_form_rule(job_) == LayoutRule::kProfileGrid) {
      reader_.fail("tensor_parallel", "a layer that is known by its time alone cannot be split", "valid: 1d");
    }
    if (!layout_.schedule_csv.empty() && layout_.schedule.rfind("file:", 0) != 0) {
      reader_.fail("schedule_csv", "is for a schedule in a file", "layout.schedule file:NAME, or leave it out");
    }
    check_checkpoints();
    check_compression();
    check_offload();
  }

  // Layers that are known by their time alone.
  void check_profile() const {
    const auto refuse_ranks = [this](std::string_view key, int ranks, std::string_view what) {
      reader_.fail(key, fmt::format("{} {} ranks cannot share a layer that is known by its time alone", ranks, what),
                   "valid for a layer profile: 1");
    };
    const auto inside = [this](std::string_view key, const auto& value, const char* valid) {
      reader_.fail(
          key, fmt::format("{} communicates inside the passes, whose operators a layer profile does not know", value),
          fmt::format("valid for a layer profile: {}", valid));
    };
    if (broken_tensor_rule(job_, layout_.tp)) refuse_ranks("tp", layout_.tp, "tensor-parallel");
    if (broken_context_rule(job_, layout_.tp, layout_.cp) == LayoutRule::kProfileContext) {
      refuse_ranks("cp", layout_.cp, "context-parallel");
    }
    check_profile_choices(reader_, job_);
    const auto form = broken_form_rule(job_);
    if (form == LayoutRule::kProfileReplication) {
      inside("data_parallel", name_of(layout_.data_parallel), "ddp, ps, byteps");
    }
    if (broken_sharding_rule(job_, 1, 1, 1, layout_.zero) == LayoutRule::kProfileSharding) {
      inside("zero", layout_.zero, "0, 1");
    }
    if (form == LayoutRule::kProfileOffload) {
      reader_.fail("offload", "activations of a layer profile cannot be offloaded",
                   "valid for a layer profile: none, optimizer");
    }
  }

  void check_checkpoints() const {
    const auto rule = broken_recompute_rule(job_, layout_.tp, layout_.sequence_parallel, layout_.recompute);
    if (rule == LayoutRule::kRecomputeParts) {
      if (layout_.recompute_layers && layout_.recompute_every) {
        reader_.fail("recompute_every", "stands beside recompute_layers",
                     "give one of them: the first layers, or every N-th");
      }
      const bool modules = layout_.recompute_modules.has_value();
      reader_.fail(modules                    ? "recompute_modules"
                   : layout_.recompute_layers ? "recompute_layers"
                                              : "recompute_every",
                   job_.profile ? "belongs to transformers, not to a layer profile"
                                : fmt::format("belongs to recompute {}, not {}", modules ? "selective" : "full",
                                              name_of(layout_.recompute)),
                   job_.profile ? "leave it out"
                   : modules    ? "give --recompute selective, or leave it out"
                                : "give --recompute full, or leave it out");
    }
    if (rule != LayoutRule::kCheckpoints) return;
    const char* reason =
        layout_.recompute != Recompute::kFull ? "true belongs to recompute full, which keeps block inputs alone"
        : layout_.tp == 1                     ? "true needs tensor-parallel ranks to cut block inputs over"
                          : "true changes nothing: block inputs are cut over the tensor-parallel ranks already";
    reader_.fail("partition_checkpoints", reason, "valid: false");
  }

  void check_compression() const {
    if (layout_.compression.kind == Compression::Kind::kNone) return;
    if (broken_sharding_rule(job_, 1, 1, 1, layout_.zero) == LayoutRule::kCompression) {
      reader_.fail("compression",
                   fmt::format("{} replaces an all-reduce of whole gradients", layout_.compression.text()),
                   "valid with data_parallel ddp and zero 0; otherwise none");
    }
    if (job_.profile && layout_.compression.kind == Compression::Kind::kPowerSgd) {
      reader_.fail("compression", "powersgd needs the shapes of weights, which a layer profile has not",
                   "valid for a layer profile: none, 8bit, 4bit, topk:F");
    }
  }

  void check_offload() const {
    if (layout_.offload == Offload::kNone) return;
    const Cluster& cluster = job_.cluster;
    const auto need = [&](BytesPerSecond rate, const char* key, const char* example) {
      if (rate.value() > 0.0) return;
      reader_.fail("offload", fmt::format("needs cluster.{}, which cluster {} does not say", key, cluster.name),
                   fmt::format("give cluster.{}, such as \"{}\", or use none", key, example));
    };
    need(cluster.host_bandwidth, "host_bandwidth", "32GB/s");
    if (!layout_.offloads_optimizer()) return;
    need(cluster.host_memory_bandwidth, "host_memory_bandwidth", "400GB/s");
    const Optimizer optimizer = job_.training.optimizer;
    if (optimizer != Optimizer::kMuon && optimizer != Optimizer::kGalore) return;
    reader_.fail("offload",
                 fmt::format("{} multiplies matrices, and products on the host are not modelled", name_of(optimizer)),
                 "valid with it: none, activations");
  }

  void check_context() const {
    if (broken_context_rule(job_, layout_.tp, layout_.cp) != LayoutRule::kSequence) return;
    const int length = job_.training.sequence_length;
    const std::string parts = layout_.zigzag ? "2 · " : "";
    reader_.fail("cp", fmt::format("{}{} does not divide the sequence length {}", parts, layout_.cp, length),
                 fmt::format("valid: {}", divisors_up_to(layout_.zigzag ? length / 2 : length, 64)));
  }

  void refuse_inner() const {
    const std::vector<int> valid =
        fitting(layout_.cp / 2, [this](int ranks) { return ranks > 1 && layout_.cp % ranks == 0; });
    if (!layout_.context_inner) {
      reader_.fail("context_parallel", "hierarchical needs context_inner, the ranks that exchange heads",
                   valid.empty() ? "use ring or ulysses" : fmt::format("valid: context_inner {}", list(valid)));
    }
    if (layout_.context_parallel != ContextParallel::kHierarchical) {
      reader_.fail("context_inner", fmt::format("stands beside context_parallel {}", name_of(layout_.context_parallel)),
                   "it is of hierarchical alone");
    }
    reader_.fail(
        "context_inner",
        fmt::format("{} does not divide {} context-parallel ranks in groups", *layout_.context_inner, layout_.cp),
        valid.empty() ? "use context_parallel ring or ulysses" : fmt::format("valid: {}", list(valid)));
  }

  // All-to-alls hand each rank whole heads, of queries and of keys and values.
  void check_ulysses() const {
    const auto rule = broken_context_rule(job_, layout_.tp, layout_.cp);
    if (rule == LayoutRule::kContextAlone) {
      reader_.fail("context_parallel", fmt::format("{} needs cp above 1", name_of(layout_.context_parallel)),
                   "valid: ring, or cp of at least 2");
    }
    if (rule == LayoutRule::kContextInner) refuse_inner();
    if (rule != LayoutRule::kUlyssesHeads) return;
    const RankHeads heads = rank_heads(job_.model, layout_.tp);
    const std::vector<int> valid = fitting(heads.keys, [&](int cp) { return cp > 1 && heads.shared_by(cp); });
    reader_.fail(layout_.context_inner ? "context_inner" : "cp",
                 fmt::format("{} ranks do not share {} heads and {} key/value heads of a tensor-parallel rank, as "
                             "{} needs",
                             layout_.ulysses_ranks(), heads.queries, heads.keys, name_of(layout_.context_parallel)),
                 valid.empty() ? "use context_parallel ring" : fmt::format("valid: {}", list(valid)));
  }

  // Of a dense model; what experts allow beside is told by themselves.
  bool cuts_model(int tp) const {
    const auto rule = broken_tensor_rule(job_, tp);
    return !rule || rule == LayoutRule::kExpertWidth;
  }

  std::vector<int> tensor_ranks_beside(int others, int most) const {
    const int devices = job_.cluster.devices();
    return fitting(std::min(devices, most),
                   [&](int tp) { return devices % (static_cast<std::int64_t>(tp) * others) == 0 && cuts_model(tp); });
  }

  void check_tensor() const {
    const Transformer& model = job_.model;
    const auto refuse = [&](int number, std::string_view what) {
      const int node = job_.cluster.devices_per_node;
      const std::vector<int> valid = tensor_ranks_beside(layout_.pp * layout_.cp, node);
      reader_.fail("tp", fmt::format("{} does not divide {} {}", layout_.tp, what, number),
                   valid.empty() ? "no tp fits beside this pp and cp"
                                 : fmt::format("valid for this model on {}-GPU nodes: {}", node, list(valid)));
    };
    const auto rule = broken_tensor_rule(job_, layout_.tp);
    if (rule == LayoutRule::kHeads) refuse(model.heads, "attention heads");
    if (rule == LayoutRule::kKeyValueHeads) refuse(model.kv_heads, "key/value heads");
    if (rule == LayoutRule::kMlp) refuse(model.ffn, "MLP width");
    if (is_1d()) return;
    check_grid(rule);
    if (broken_form_rule(job_) == LayoutRule::kGridModel) {
      const Training& training = job_.training;
      const char* const own = training.finetune     ? "training.finetune"
                              : training.preference ? "training.preference"
                                                    : "experts, latent attention and multi-token prediction";
      reader_.fail("tensor_parallel", fmt::format("{} is modelled without {}", tensor_form(), own),
                   "valid for this model: 1d");
    }
  }

  void check_grid(std::optional<LayoutRule> rule) const {
    if (rule == LayoutRule::kGrid) {
      constexpr std::string_view kShapes[] = {"", "q²", "q²·tensor_depth", "q³"};
      const int devices = job_.cluster.devices();
      reader_.fail("tp",
                   fmt::format("{} is no {}, as tensor_parallel {} needs", layout_.tp,
                               kShapes[static_cast<std::size_t>(layout_.tensor_parallel)], tensor_form()),
                   fmt::format("valid on {} devices: {}", devices,
                               list(tensor_grid_sizes(layout_.tensor_parallel, layout_.tensor_depth, devices))));
    }
    const TensorGrid grid = tensor_grid(layout_.tensor_parallel, layout_.tp, layout_.tensor_depth);
    const int parts = grid.weight_parts / grid.q;
    const auto need = [&](int number, int divisor, std::string_view what) {
      if (number % divisor == 0) return;
      reader_.fail("tp",
                   fmt::format("{} {} cannot be cut in {} parts, as tensor_parallel {} needs", what, number, divisor,
                               tensor_form()),
                   "");
    };
    if (rule == LayoutRule::kGridCut) {
      need(job_.model.heads, grid.q, "attention heads");
      need(job_.model.kv_heads, grid.q, "key/value heads");
      need(job_.model.ffn, parts, "MLP width");
      need(job_.model.hidden, parts, "hidden size");
    }
    if (broken_batch_rule(job_, layout_.tp, layout_.micro_batch_size)) {
      reader_.fail("micro_batch_size",
                   fmt::format("{} sequences cannot be cut in {} parts, as tensor_parallel {} with tp {} needs",
                               layout_.micro_batch_size, grid.token_parts, tensor_form(), layout_.tp),
                   fmt::format("valid: multiples of {}", grid.token_parts));
    }
  }

  void check_sequence() const {
    const auto rule = broken_sequence_rule(job_, layout_.tp, layout_.cp, layout_.sequence_parallel);
    if (rule == LayoutRule::kSequenceGrid) {
      reader_.fail("sequence_parallel", fmt::format("true does not exist with tensor_parallel {}", tensor_form()),
                   "valid: false; every activation is split already");
    }
    if (rule == LayoutRule::kSequenceTokens) {
      reader_.fail("sequence_parallel",
                   fmt::format("{} tokens of a sequence cannot be split over tp {}",
                               job_.training.sequence_length / layout_.cp, layout_.tp),
                   "valid: false, or a sequence length that tp divides");
    }
  }

  std::string context_ranks(int devices) const {
    constexpr int kMostShown = 64;
    const int length = job_.training.sequence_length;
    return list(fitting(std::max(1, std::min(devices, kMostShown)),
                        [&](int cp) { return cp == 1 || (devices % cp == 0 && length % (2 * cp) == 0); }));
  }

  // The axes that hold the model are too many; which of them can be mended depends on the others.
  [[noreturn]] void refuse_model_ranks(std::int64_t model_ranks) const {
    const int devices = job_.cluster.devices();
    const std::string problem = fmt::format("tp {} · pp {} · cp {} = {} ranks do not divide the cluster's {} devices",
                                            layout_.tp, layout_.pp, layout_.cp, model_ranks, devices);
    if (devices % (static_cast<std::int64_t>(layout_.tp) * layout_.cp) == 0) {
      const int rest = devices / (layout_.tp * layout_.cp);
      reader_.fail("pp", problem, fmt::format("valid pp: {}", divisors_up_to(rest, std::min(rest, job_.model.layers))));
    }
    const int heads = std::max(1, job_.model.heads);
    const std::vector<int> tps = tensor_ranks_beside(layout_.cp, heads);
    if (layout_.tp > 1 && !tps.empty()) reader_.fail("tp", problem, fmt::format("valid tp: {}", list(tps)));
    if (devices % layout_.tp == 0) {
      reader_.fail("cp", problem, fmt::format("valid cp: {}", context_ranks(devices / layout_.tp)));
    }
    reader_.fail("tp", problem,
                 fmt::format("no tp fits beside cp {}; valid tp with cp 1: {}", layout_.cp,
                             list(tensor_ranks_beside(1, heads))));
  }

  // dp is what the other axes leave over.
  void settle_replicas() {
    const int devices = job_.cluster.devices();
    const std::int64_t model_ranks = static_cast<std::int64_t>(layout_.tp) * layout_.pp * layout_.cp;
    if (model_ranks > devices || devices % model_ranks != 0) refuse_model_ranks(model_ranks);
    const int left_over = static_cast<int>(devices / model_ranks);
    if (reader_.has("dp") && layout_.dp != left_over) {
      reader_.fail("dp",
                   fmt::format("dp {} · tp {} · pp {} · cp {} = {} ranks, but the cluster has {} devices", layout_.dp,
                               layout_.tp, layout_.pp, layout_.cp, model_ranks * layout_.dp, devices),
                   fmt::format("valid: {}, or leave dp out", left_over));
    }
    layout_.dp = left_over;
  }

  void check_experts() const {
    const auto rule = broken_expert_rule(job_, layout_.tp, layout_.dp, layout_.cp, layout_.ep);
    if (rule == LayoutRule::kNoExperts) {
      if (layout_.ep == 1) reader_.fail("etp", "belongs to a model with experts", "leave it out");
      reader_.fail("ep", fmt::format("{} expert-parallel ranks for a model without experts", layout_.ep), "valid: 1");
    }
    if (!job_.model.experts) return;
    check_expert_tensor(rule);
    const Experts& experts = *job_.model.experts;
    if (broken_tensor_rule(job_, layout_.tp) == LayoutRule::kExpertWidth) {
      const bool own = experts.ffn % layout_.expert_tensor_ranks() != 0;
      reader_.fail(own && layout_.etp ? "etp" : "tp",
                   fmt::format("{} does not divide {} {}", own ? layout_.expert_tensor_ranks() : layout_.tp,
                               own ? "the width of an expert" : "the width of the shared experts",
                               own ? experts.ffn : experts.shared * experts.shared_ffn),
                   "");
    }
    if (!rule) return;
    const std::vector<int> valid = fitting(
        experts.count, [&](int ep) { return !broken_expert_rule(job_, layout_.tp, layout_.dp, layout_.cp, ep); });
    const std::string folded =
        layout_.folds_experts() ? fmt::format("tp {} / etp {} · ", layout_.tp, *layout_.etp) : "";
    reader_.fail("ep",
                 fmt::format("{} expert-parallel ranks do not split {} experts over {}dp {} · cp {} ranks", layout_.ep,
                             experts.count, folded, layout_.dp, layout_.cp),
                 fmt::format("valid: {}", list(valid)));
  }

  void check_expert_tensor(std::optional<LayoutRule> rule) const {
    if (rule == LayoutRule::kExpertTensor) {
      reader_.fail("etp", fmt::format("{} does not divide tp {}", *layout_.etp, layout_.tp),
                   fmt::format("valid: {}", divisors_up_to(layout_.tp, layout_.tp)));
    }
    const auto tokens = broken_sequence_rule(job_, layout_.tp, layout_.cp, layout_.sequence_parallel);
    if (rule != LayoutRule::kExpertFolding && tokens != LayoutRule::kExpertFolding) return;
    reader_.fail("etp",
                 fmt::format("{} beside tp {} needs sequence_parallel, and neither tensor_parallel {} nor hsdp",
                             *layout_.etp, layout_.tp, is_1d() ? "of a grid" : tensor_form()),
                 fmt::format("valid here: {}, or leave etp out", layout_.tp));
  }

  void settle_batch() {
    if (!reader_.has("global_batch_size")) layout_.global_batch_size = batch_of_accumulation();
    const std::int64_t slice = static_cast<std::int64_t>(layout_.dp) * layout_.micro_batch_size;
    if (layout_.global_batch_size % slice == 0) return;
    const std::int64_t below = layout_.global_batch_size / slice * slice;
    const std::string nearest = below > 0 ? fmt::format("{}, {}", below, below + slice) : fmt::format("{}", slice);
    reader_.fail("global_batch_size",
                 fmt::format("{} is no multiple of dp {} · micro_batch_size {} = {}", layout_.global_batch_size,
                             layout_.dp, layout_.micro_batch_size, slice),
                 fmt::format("nearest valid values: {}", nearest));
  }

  // Other programs say the accumulation and leave the batch to the number of devices.
  int batch_of_accumulation() {
    if (!layout_.accumulation) reader_.fail_missing("global_batch_size", "give --gbs N, the sequences per step");
    const double batch = static_cast<double>(layout_.dp) * layout_.micro_batch_size * *layout_.accumulation;
    if (batch > kMostSequences) {
      reader_.fail("accumulation", fmt::format("makes a batch of {:.0f} sequences", batch), "");
    }
    job_.assumptions.push_back(
        fmt::format("layout.global_batch_size is dp {} · micro_batch_size {} · accumulation {} = {}", layout_.dp,
                    layout_.micro_batch_size, *layout_.accumulation, batch));
    layout_.accumulation.reset();
    return static_cast<int>(batch);
  }

  // Groups of `shards` neighbours; by default those of one node.
  void settle_shards() {
    if (layout_.data_parallel != DataParallel::kHsdp) return;
    const int replicas = layout_.replicas();
    const std::vector<int> valid =
        fitting(replicas, [&](int shards) { return shards_fit(shards, layout_.dp, layout_.cp, layout_.ep); });
    if (reader_.has("shards")) {
      if (std::find(valid.begin(), valid.end(), layout_.shards) != valid.end()) return;
      reader_.fail("shards",
                   fmt::format("{} shards do not split {} replicas, cp {} and ep {}", layout_.shards, replicas,
                               layout_.cp, layout_.ep),
                   fmt::format("valid: {}", list(valid)));
    }
    const int on_node = std::max(1, job_.cluster.devices_per_node / layout_.tp);
    for (const int shards : valid) {
      if (shards <= on_node) layout_.shards = shards;
    }
    job_.assumptions.push_back(fmt::format("layout.shards is {}: the replicas of one node", layout_.shards));
  }

  void check_replication() const {
    const std::string_view form = name_of(layout_.data_parallel);
    const bool sharding = layout_.data_parallel == DataParallel::kFsdp || layout_.data_parallel == DataParallel::kHsdp;
    if (sharding && layout_.zero != 0 && layout_.zero != kShardsEverything) {
      reader_.fail("zero", fmt::format("{} contradicts data_parallel {}, which shards everything", layout_.zero, form),
                   "valid: leave zero out, or data_parallel ddp");
    }
    if (!sharding && layout_.data_parallel != DataParallel::kDdp && layout_.zero > 0) {
      reader_.fail("zero", fmt::format("{} does not exist with data_parallel {}", layout_.zero, form),
                   "valid: 0, or data_parallel ddp");
    }
    if (broken_replica_rule(job_, layout_.tp * layout_.pp * layout_.cp)) {
      reader_.fail("data_parallel", std::string(name_of(LayoutRule::kOneProcess)),
                   "valid here: ddp, fsdp, hsdp, ps, byteps");
    }
    const bool servers = layout_.data_parallel == DataParallel::kPs || layout_.data_parallel == DataParallel::kByteps;
    if (!servers && layout_.spare_hosts > 0) {
      reader_.fail("spare_hosts", fmt::format("{} serve nobody with data_parallel {}", layout_.spare_hosts, form),
                   "valid: 0, or data_parallel ps or byteps");
    }
    if (!sharding && !layout_.reshard_after_forward) {
      reader_.fail("reshard_after_forward", fmt::format("false does not exist with data_parallel {}", form),
                   "valid: true, or data_parallel fsdp or hsdp");
    }
  }

  void note_assumptions() const {
    const bool hidden = job_.training.stack.overlap_gradient_reduction;
    const bool in_buckets = hidden && layout_.replicas() > 1 && layout_.gradient_shards() == 1 && !job_.profile &&
                            layout_.data_parallel != DataParallel::kDataParallel;
    if (in_buckets && !layout_.bucket_mb) {
      job_.assumptions.push_back("layout.bucket_mb is 25, and 1 for the first bucket");
    }
    if (layout_.zero == 2 && layout_.microbatches() > 1) {
      job_.assumptions.push_back("zero 2 reduces the gradients of every microbatch");
    }
    const bool travels_beside = layout_.weight_shards() > 1 || (layout_.gradient_shards() > 1 && hidden);
    if (travels_beside && (layout_.microbatches() > 1 || layout_.vpp.value_or(1) > 1)) {
      job_.assumptions.push_back(
          "sharded weights and gradients travel beside the neighbouring passes of a rank; "
          "the ends of one pass a step are exposed");
    }
  }

  const ObjectReader& reader_;
  Job& job_;
  Layout& layout_;
};

}  // namespace

void check_profile_choices(const ObjectReader& reader, const Job& job) {
  const Layout& layout = job.layout;
  if (broken_sequence_rule(job, 1, 1, layout.sequence_parallel) == LayoutRule::kProfileSequence) {
    reader.fail("sequence_parallel", "true needs tensor parallelism, which a layer profile has not",
                "valid for a layer profile: false");
  }
  if (broken_recompute_rule(job, 1, false, layout.recompute) == LayoutRule::kProfileRecompute) {
    reader.fail("recompute", "selective recomputation is defined for transformer blocks, not for a layer profile",
                "valid for a layer profile: none, full");
  }
}

void check_tensor_depth(const ObjectReader& reader, const Layout& layout) {
  if (layout.tensor_parallel == TensorParallel::k25d || layout.tensor_depth == 1) return;
  reader.fail("tensor_depth", fmt::format("{} belongs to tensor_parallel 2.5d", layout.tensor_depth), "valid: 1");
}

void read_layout(ObjectReader& root, Job& job, const Origins& origins) {
  const nlohmann::json* section = root.find("layout");
  const nlohmann::json values = section == nullptr ? nlohmann::json::object() : *section;
  ObjectReader reader(values, "layout", origins);
  job.layout = {};
  read_fields(layout_fields(), reader, job.layout);
  reader.refuse_unknown_keys();
  LayoutCheck(reader, job).check();
}

}  // namespace flopcast
