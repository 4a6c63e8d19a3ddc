// The layout in the arguments of Megatron-LM and its descendants.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "import/programs/megatron_reader.hpp"
#include "model/layout/layout.hpp"

namespace flopcast {

// 'Et*3|(tt|)*29,m|L': stages of decoder layers t, with the embedding E, the loss L and multi-token prediction m.
void MegatronReader::read_stage_string() {
  const auto text = arguments_.text("pipeline-model-parallel-layout", "layout.stage_layers");
  if (!text) return;
  const auto stages = stages_of_string(*text);
  if (!stages || stages->size() % static_cast<std::size_t>(pp_) != 0) {
    arguments_.fail("pipeline-model-parallel-layout",
                    stages ? fmt::format("{} stages are not a multiple of {} pipeline ranks", stages->size(), pp_)
                           : fmt::format("\"{}\" cannot be parsed", *text),
                    "give the layers of each stage with --layout.stage_layers N,N,…");
  }
  vpp_ = static_cast<int>(stages->size()) / pp_;
  if (vpp_ > 1) put("layout.vpp", vpp_, "pipeline-model-parallel-layout");
  put("layout.stage_layers", *stages, "pipeline-model-parallel-layout");
}

// The embedding and the loss count as one layer each, in the first and the last stage.
void MegatronReader::read_counted_stages() {
  const bool embedding = arguments_.has("account-for-embedding-in-pipeline-split");
  const bool loss = arguments_.has("account-for-loss-in-pipeline-split");
  const int stages = pp_ * vpp_;
  if ((!embedding && !loss) || layers_ == 0 || stages == 1 || given("layout.stage_layers")) return;
  const char* name = embedding ? "account-for-embedding-in-pipeline-split" : "account-for-loss-in-pipeline-split";
  const std::int64_t slots = std::int64_t{layers_} + (embedding ? 1 : 0) + (loss ? 1 : 0);
  if (slots % stages != 0 || slots / stages < 2 || stages > layers_) {
    arguments_.fail(name,
                    fmt::format("{} layers and {} do not divide evenly over {} stages", layers_,
                                embedding && loss ? "two more" : "one more", stages),
                    "give the layers of each stage with --layout.stage_layers N,N,…");
  }
  std::vector<int> layers(static_cast<std::size_t>(stages), static_cast<int>(slots / stages));
  if (embedding) --layers.front();
  if (loss) --layers.back();
  put("layout.stage_layers", layers, name);
}

void MegatronReader::read_pipeline() {
  const auto per_stage = arguments_.whole("num-layers-per-virtual-pipeline-stage", 1, "layout.vpp");
  const auto stages = arguments_.whole("num-virtual-stages-per-pipeline-rank", 1, "layout.vpp");
  std::string name = "num-virtual-stages-per-pipeline-rank";
  vpp_ = stages.value_or(1);
  const bool counts_ends =
      arguments_.has("account-for-embedding-in-pipeline-split") || arguments_.has("account-for-loss-in-pipeline-split");
  if (per_stage) {
    name = "num-layers-per-virtual-pipeline-stage";
    const std::int64_t slice = std::int64_t{*per_stage} * pp_;
    const std::int64_t slots = std::int64_t{layers_} +
                               (arguments_.has("account-for-embedding-in-pipeline-split") ? 1 : 0) +
                               (arguments_.has("account-for-loss-in-pipeline-split") ? 1 : 0);
    if (layers_ > 0 && slots % slice != 0) {
      arguments_.fail(name,
                      fmt::format("{} layers · {} pipeline ranks do not divide {} layers{}", *per_stage, pp_, layers_,
                                  counts_ends ? " plus embedding and loss" : ""),
                      "give a divisor, or the layers of each stage with --layout.stage_layers N,N,…");
    }
    if (layers_ > 0) vpp_ = static_cast<int>(slots / slice);
  }
  if (vpp_ > 1) put("layout.vpp", vpp_, name);
  read_stage_string();
  if (pp_ > 1)
    put("layout.schedule", vpp_ > 1 ? "interleaved" : "1f1b", vpp_ > 1 ? name : "pipeline-model-parallel-size");
  if (const auto group = arguments_.whole("microbatch-group-size-per-virtual-pipeline-stage", 1, "layout.group_size")) {
    if (vpp_ > 1) put("layout.group_size", *group, "microbatch-group-size-per-virtual-pipeline-stage");
  }
  // Flags of sail-sg's zero-bubble, and of ZB-H1 in Megatron-DeepSpeed.
  const bool v_shape = arguments_.has("zero-bubble-v-schedule");
  const bool split = arguments_.has("enable-zero-bubble");
  const auto memory = arguments_.text("zero-bubble-v-schedule-mem-setup", "layout.schedule").value_or("zb");
  const auto pending = arguments_.whole("zero-bubble-max-pending-backward", 0, "layout.schedule");
  const bool first_half = arguments_.has("enable-zbh1-pipeline");
  const bool v_fused = arguments_.has("enable-1f1b-v");
  if (pp_ == 1) return;
  if (v_shape) {
    put("layout.schedule", memory == "half" ? "v-half" : memory == "min" ? "v-min" : "zbv", "zero-bubble-v-schedule");
  } else if (v_fused) {
    put("layout.schedule", "1f1b-v", "enable-1f1b-v");
  } else if (split) {
    put("layout.schedule", pending.value_or(pp_) > pp_ ? "zb-h2" : "zb-h1", "enable-zero-bubble");
  } else if (first_half) {
    put("layout.schedule", "zb-h1", "enable-zbh1-pipeline");
  }
}

void MegatronReader::read_uneven_stages() {
  const auto first = arguments_.whole("decoder-first-pipeline-num-layers", 1, "layout.stage_layers");
  const auto last = arguments_.whole("decoder-last-pipeline-num-layers", 1, "layout.stage_layers");
  // The number of layers of a named model is not known here.
  if ((!first && !last) || given("layout.stage_layers")) return;
  const std::string name = first ? "decoder-first-pipeline-num-layers" : "decoder-last-pipeline-num-layers";
  if (layers_ == 0 && names_a_model())
    return warn_of(name, "the stages are split evenly: give --layout.stage_layers N,N,…");
  if (arguments_.is_missing("num-layers")) return;
  const int inner = pp_ - (first ? 1 : 0) - (last ? 1 : 0);
  const int rest = layers_ - first.value_or(0) - last.value_or(0);
  if (vpp_ > 1 || inner < 1 || inner > layers_ || rest < inner || rest % inner != 0) {
    arguments_.fail(name, fmt::format("{} layers cannot be split over {} pipeline ranks in this way", layers_, pp_),
                    "the other ranks need the same number of layers and one stage each");
  }
  std::vector<int> stages(static_cast<std::size_t>(pp_), rest / inner);
  if (first) stages.front() = *first;
  if (last) stages.back() = *last;
  put("layout.stage_layers", stages, name);
}

void MegatronReader::read_recompute() {
  const auto granularity = arguments_.text("recompute-granularity", "layout.recompute");
  const std::vector<std::string> granularities = {"full", "selective", "none"};
  if (granularity && std::find(granularities.begin(), granularities.end(), *granularity) == granularities.end()) {
    arguments_.fail("recompute-granularity", fmt::format("unknown value \"{}\"", *granularity),
                    "valid: full, selective, none");
  }
  const auto method = arguments_.text("recompute-method", "layout.recompute");
  const auto layers = arguments_.whole("recompute-num-layers", 1, "layout.recompute");
  const bool old_method = arguments_.is_written_as("recompute-method", "activations-checkpoint-method");
  const bool checkpoints = arguments_.has("checkpoint-activations");
  const bool by_deepspeed = arguments_.has("deepspeed-activation-checkpointing");
  const bool full = granularity ? *granularity == "full" : checkpoints || by_deepspeed || old_method;
  if (granularity) put("layout.recompute", *granularity, "recompute-granularity");
  if (!granularity && full) {
    put("layout.recompute", "full",
        checkpoints    ? "checkpoint-activations"
        : by_deepspeed ? "deepspeed-activation-checkpointing"
                       : "recompute-method");
  }
  const bool core = arguments_.has("recompute-activations");
  if (core && !granularity && !full) put("layout.recompute", "selective", "recompute-activations");
  const bool sequence = arguments_.has("sequence-parallel");
  const bool cuts = arguments_.has("distribute-saved-activations");
  const bool partitions = arguments_.has("partition-activations");
  if ((cuts || (partitions && full)) && tp_ > 1 && !sequence)
    put("layout.partition_checkpoints", true, cuts ? "distribute-saved-activations" : "partition-activations");
  if (arguments_.has("checkpoint-in-cpu") && full) put_activation_offload(arguments_.place("checkpoint-in-cpu"), out_);
  if (method && *method == "block" && layers && full) {
    put("layout.recompute_layers", *layers, "recompute-num-layers");
  } else if (layers && *layers > 1 && full) {
    warn_of("recompute-num-layers",
            fmt::format("groups of {} layers: forecast as if each layer keeps its input", *layers));
  }
  const std::string modules = arguments_.all_text("recompute-modules");
  const bool selective = granularity ? *granularity == "selective" : core && !full;
  if (!modules.empty() && !selective) {
    warn_of("recompute-modules", "only has an effect with recompute-granularity selective");
  } else if (!modules.empty() && modules != "core_attn") {
    put("layout.recompute_modules", split(modules, ' '), "recompute-modules");
  }
}

void MegatronReader::read_sharding() {
  if (is_deepspeed_ && !given("training.stack"))
    put_stack("megatron-deepspeed", "Megatron-DeepSpeed", arguments_.place("deepspeed"), out_);
  const auto stage = arguments_.number("zero-stage", "layout.zero");
  if (stage && (*stage < 0 || *stage > 3 || *stage != std::floor(*stage)))
    arguments_.fail("zero-stage", fmt::format("{} is out of range", *stage), "valid: 0, 1, 2, 3");
  if (stage && is_deepspeed_) put("layout.zero", static_cast<int>(*stage), "zero-stage");
  read_deepspeed_file();
  const auto strategy = arguments_.text("data-parallel-sharding-strategy", "layout.zero");
  const bool sharded = arguments_.has("use-megatron-fsdp");
  if (strategy) {
    const std::vector<std::string> names = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
    const auto match = std::find(names.begin(), names.end(), *strategy);
    if (match == names.end()) {
      arguments_.fail("data-parallel-sharding-strategy", fmt::format("unknown value \"{}\"", *strategy),
                      choices_help(*strategy, names));
    }
    if (sharded) put("layout.zero", match - names.begin(), "data-parallel-sharding-strategy");
  }
  const bool distributed = arguments_.has("use-distributed-optimizer");
  if (distributed && !(strategy && sharded)) put("layout.zero", 1, "use-distributed-optimizer");
  if (sharded && !strategy && !distributed)
    note("--use-megatron-fsdp has no effect without --data-parallel-sharding-strategy");
  if (arguments_.has("use-torch-fsdp2")) put("layout.data_parallel", "fsdp", "use-torch-fsdp2");
  if (arguments_.has("optimizer-cpu-offload"))
    put_offload("cpu", std::nullopt, arguments_.place("optimizer-cpu-offload"), out_);
  const auto share = arguments_.number("optimizer-offload-fraction");
  if (share && *share < 1.0 && *share > 0.0)
    warn_of("optimizer-offload-fraction", "all optimizer states are forecast in host memory");
}

void MegatronReader::read_context_parallel() {
  cp_ = put_whole("context-parallel-size", "layout.cp").value_or(1);
  const auto ulysses = arguments_.whole("ds-sequence-parallel-size", 1, "layout.cp");
  if (ulysses && *ulysses > 1) {
    cp_ = *ulysses;
    put("layout.cp", cp_, "ds-sequence-parallel-size");
    put("layout.context_parallel", "ulysses", "ds-sequence-parallel-size");
  }
  const auto exchange = arguments_.text("cp-comm-type", "layout.context_parallel");
  if (!exchange || cp_ == 1) return;
  const auto form = std::find(std::begin(kMegatronExchanges), std::end(kMegatronExchanges), *exchange);
  if (form == std::end(kMegatronExchanges)) {
    warn_of("cp-comm-type", fmt::format("{} is forecast as a ring (p2p)", *exchange));
  } else {
    const auto chosen = static_cast<ContextParallel>(form - std::begin(kMegatronExchanges));
    if (chosen == ContextParallel::kHierarchical && !read_context_inner()) return;
    put("layout.context_parallel", name_of(chosen), "cp-comm-type");
  }
}

// Ranks per level; the first level exchanges heads.
bool MegatronReader::read_context_inner() {
  const std::string sizes = arguments_.all_text("hierarchical-context-parallel-sizes");
  const std::size_t blank = sizes.find(' ');
  const auto size = [this](std::string_view text) { return parse_digits(text, 2, cp_).value_or(0); };
  const int inner = blank == std::string::npos ? 0 : size(std::string_view(sizes).substr(0, blank));
  const int ring = inner == 0 ? 0 : size(std::string_view(sizes).substr(blank + 1));
  if (ring == 0 || cp_ % inner != 0 || cp_ / inner != ring) {
    warn_of("cp-comm-type", "a2a+p2p without two --hierarchical-context-parallel-sizes is forecast as a ring (p2p)");
    return false;
  }
  put("layout.context_inner", inner, "hierarchical-context-parallel-sizes");
  return true;
}

void MegatronReader::read_batch() {
  put_whole("micro-batch-size", "layout.micro_batch_size");
  const auto batch = put_whole("global-batch-size", "layout.global_batch_size");
  const auto steps = arguments_.whole("gas", 1, "layout.accumulation");
  const bool open = arguments_.is_missing("global-batch-size");
  // One microbatch per replica is the default of Megatron.
  if (!batch && !open && !given("layout.global_batch_size") && arguments_.has("micro-batch-size")) {
    put("layout.accumulation", steps.value_or(1), steps ? "gas" : "micro-batch-size");
    if (!steps) note("--global-batch-size is absent: uses one microbatch per replica, Megatron's default");
  }
  if (arguments_.has("rampup-batch-size")) note("--rampup-batch-size: the full batch is forecast, without the ramp-up");
}

void MegatronReader::read_layout() {
  tp_ = put_whole("tensor-model-parallel-size", "layout.tp").value_or(std::max(1, context_.whole("layout.tp")));
  pp_ = put_whole("pipeline-model-parallel-size", "layout.pp").value_or(std::max(1, context_.whole("layout.pp")));
  if (arguments_.has("no-pipeline-parallel") && pp_ > 1) {
    pp_ = 1;
    put("layout.pp", 1, "no-pipeline-parallel");
  }
  read_context_parallel();
  put_whole("expert-model-parallel-size", "layout.ep");
  if (arguments_.has("sequence-parallel") && tp_ > 1) put("layout.sequence_parallel", true, "sequence-parallel");
  read_batch();
}

// Megatron folds experts over tensor ranks only under sequence parallelism.
void MegatronReader::read_expert_tensor() {
  if (!arguments_.has("expert-tensor-parallel-size")) return;
  const bool in_catalogue = given("model") || (out_.has("model") && out_.job["model"].is_string());
  const bool has_experts = given("model.experts.count") ||
                           (out_.job["model"].is_object() && out_.job["model"].contains("experts")) ||
                           (in_catalogue && out_.whole("layout.ep") > 1);
  const bool in_sequence = out_.has("layout.sequence_parallel");
  if (has_experts && in_sequence) {
    put_whole("expert-tensor-parallel-size", "layout.etp");
    return;
  }
  const auto told = arguments_.whole("expert-tensor-parallel-size", 1, "layout.etp");
  if (!told || *told == tp_) return;
  const char* what = in_catalogue && !has_experts ? "is ignored for a named model with ep 1: give --etp N"
                     : has_experts                ? "has no effect without --sequence-parallel and tp"
                                                  : "has no effect without experts";
  note(fmt::format("--expert-tensor-parallel-size {}", what));
}

}  // namespace flopcast
