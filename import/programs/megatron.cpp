// Megatron-LM's argument lists and those of its descendants: names, defaults and meanings as in the sources that
// import/keys/megatron.json names.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/error.hpp"
#include "import/programs/foreign_keys.hpp"
#include "import/programs/formats.hpp"
#include "import/programs/imported_job.hpp"
#include "import/programs/launch_arguments.hpp"
#include "model/workload/stack.hpp"

namespace flopcast {

namespace {

constexpr int kGpt2Vocabulary = 50'257;
constexpr int kStackVocabularyDivisor = 128;
constexpr double kMegatronDropout = 0.1;
constexpr int kGateless = 4;  // times as wide as the model is the MLP

// Without the marks of what the script does not set.
std::string shown_path(const std::string& path) {
  std::string plain;
  for (const char c : path) {
    if (c != kUnset) plain += c;
  }
  return plain;
}

class MegatronReader {
 public:
  MegatronReader(std::string_view text, const std::string& file, const ImportContext& context)
      : arguments_(text, file, context, out_), file_(file), context_(context) {}

  ImportedJob read();

 private:
  bool given(const std::string& field) const { return context_.has(field); }
  bool names_a_model() const { return given("model") || out_.has("model"); }
  std::optional<int> put_whole(const std::string& name, const std::string& field);
  int required(const std::string& name, const std::string& field);
  void put(const std::string& field, nlohmann::json value, const std::string& name) {
    out_.put(field, std::move(value), arguments_.place(name));
  }
  void note(const std::string& text) { out_.notes.push_back(fmt::format("{}: {}", file_, text)); }
  void warn_of(const std::string& name, const std::string& how) { arguments_.warn_of(name, how, out_); }

  void read_program();
  void read_named_model();
  void read_cluster();
  void read_model();
  void read_ffn(int hidden);
  void read_key_value_heads(int heads);
  void read_norm_and_positions();
  void read_dropout();
  void read_vocabulary();
  void read_experts();
  void read_expert_layers(ForeignExperts& experts);
  void read_latent();
  void read_layout();
  void read_context_parallel();
  void read_batch();
  void read_pipeline();
  void read_stage_string();
  void read_uneven_stages();
  void read_counted_stages();
  void read_recompute();
  void read_sharding();
  void read_deepspeed_file();
  void read_precision();
  void read_overlap();
  void read_optimizer();
  void read_length();
  void fit_nodes();

  ImportedJob out_;
  LaunchArguments arguments_;
  const std::string& file_;
  const ImportContext& context_;
  bool is_swift_ = false;
  bool is_slime_ = false;
  bool is_deepspeed_ = false;
  int tp_ = 1;
  int pp_ = 1;
  int cp_ = 1;
  int vpp_ = 1;
  int layers_ = 0;
};

std::optional<int> MegatronReader::put_whole(const std::string& name, const std::string& field) {
  const auto number = arguments_.whole(name, 1, field);
  if (number) put(field, *number, name);
  return number;
}

// The flag's value counts where the script is silent.
int MegatronReader::required(const std::string& name, const std::string& field) {
  const auto number = put_whole(name, field);
  if (!number && !arguments_.is_open(name)) arguments_.lack(name, field);
  return number ? *number : context_.whole(field);
}

void MegatronReader::read_program() {
  const std::string& program = arguments_.program();
  const std::string refused = KeyTable::of("megatron").program_reason(program, "refused");
  if (!refused.empty()) {
    throw ConfigError(
        {"", fmt::format("{} starts {}, which trains {}: not modelled", file_, program, refused), file_,
         "transformers of attention and of dense or expert layers are forecast; see: flopcast catalog models"});
  }
  const std::string layers = arguments_.has("spec") ? arguments_.all_text("spec") : "";
  const std::string foreign = KeyTable::of("megatron").program_reason(layers, "refused");
  if (!foreign.empty()) {
    arguments_.fail(
        "spec", fmt::format("\"{}\" stands for {}, not modelled", layers, foreign),
        "transformers of attention and of dense or expert layers are forecast; see: flopcast catalog models");
  }
  if (!layers.empty() && layers != "local")
    arguments_.warn_of("spec", "GPT's layers are forecast, not a specification of one's own", out_);
  // tasks/main.py of Megatron-LM: MNLI, RACE, MSDP-EVAL-F1, RET-FINETUNE-NQ.
  if (arguments_.has("task")) {
    arguments_.fail("task",
                    fmt::format("\"{}\" evaluates a model or trains one with a head of its own: not modelled",
                                shown_path(arguments_.all_text("task"))),
                    "give the script of the pretraining");
  }
  is_swift_ = program.starts_with("megatron ");
  is_slime_ = arguments_.has("actor-num-nodes") || arguments_.has("actor-num-gpus-per-node");
  is_deepspeed_ = arguments_.has("deepspeed");
  // swift/megatron/arguments/megatron_args.py; slime takes bf16 unless told fp16.
  if (is_swift_) {
    for (const auto& [name, value] :
         {std::pair("micro-batch-size", "1"), std::pair("global-batch-size", "16"),
          std::pair("recompute-granularity", "selective"), std::pair("use-distributed-optimizer", "true"),
          std::pair("attention-dropout", "0"), std::pair("hidden-dropout", "0")}) {
      arguments_.set_default(name, value);
    }
  }
  if ((is_swift_ || is_slime_) && !arguments_.has("fp16")) arguments_.set_default("bf16", "true");
  const auto tuner = arguments_.text("tuner-type");
  if (tuner && *tuner != "full") {
    arguments_.fail("tuner-type", fmt::format("\"{}\" trains a part of the weights, which is not modelled", *tuner),
                    "valid: full");
  }
}

// ms-swift takes a hub's name or a folder, and no sizes.
void MegatronReader::read_named_model() {
  const auto name = is_swift_ ? arguments_.text("model", "model") : std::nullopt;
  if (!name || given("model") || given("model.layers")) return;
  if (put_hub_model(*name, file_, arguments_.place("model"), context_, out_)) return;
  arguments_.fail("model", fmt::format("\"{}\" is neither in the catalogue nor a folder with a config.json", *name),
                  hub_help(*name));
}

void MegatronReader::read_cluster() {
  const auto counts = [this](const std::string& name) -> std::optional<std::string> {
    if (!arguments_.has(name)) return std::nullopt;
    std::string value = arguments_.all_text(name);
    const std::string unset = unset_name(value);
    if (!unset.empty()) {
      if (!given("cluster") && !given("cluster.name"))
        note(fmt::format("--{} takes its value from {}, which is not set: left to --cluster", name, unset));
      return std::nullopt;
    }
    value = value.substr(0, value.find(' '));
    if (name == "gres") value = value.substr(value.rfind(':') + 1);
    // "gpu", "auto" and "1:4" are for the launcher to work out.
    const bool is_number =
        !value.empty() && value.size() < 8 && value.find_first_not_of("0123456789") == std::string::npos;
    return is_number && std::stoi(value) > 0 ? std::optional<std::string>(value) : std::nullopt;
  };
  const auto first_of = [&](const std::string& field, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const auto value = counts(name);
      if (!value || out_.has(field)) continue;
      put(field, std::stoi(*value), name);
    }
  };
  first_of("cluster.devices_per_node",
           {"nproc-per-node", "actor-num-gpus-per-node", "gres", "gpus-per-node", "num-gpus"});
  const std::string processes = is_swift_ ? arguments_.variable("NPROC_PER_NODE") : "";
  if (!processes.empty() && processes.find_first_not_of("0123456789") == std::string::npos && processes.size() < 5) {
    out_.put("cluster.devices_per_node", std::max(1, std::stoi(processes)), fmt::format("{}: NPROC_PER_NODE", file_));
  }
  // With torchrun one task starts all ranks of a node.
  first_of("cluster.devices_per_node", {"ntasks-per-node"});
  first_of("cluster.nodes", {"nnodes", "actor-num-nodes", "num-nodes", "num-machines", "nodes"});
  // Accelerate counts the processes of all machines.
  const auto all = counts("num-processes");
  const int nodes = std::max(1, out_.whole("cluster.nodes"));
  if (all && !out_.has("cluster.devices_per_node"))
    put("cluster.devices_per_node", std::max(1, std::stoi(*all) / nodes), "num-processes");
}

void MegatronReader::read_norm_and_positions() {
  auto norm = arguments_.text("normalization", "model.norm").value_or("layernorm");
  std::transform(norm.begin(), norm.end(), norm.begin(), [](unsigned char c) { return std::tolower(c); });
  if (norm != "layernorm" && norm != "rmsnorm") {
    arguments_.fail("normalization", fmt::format("unknown value \"{}\"", norm), "valid: LayerNorm, RMSNorm");
  }
  put("model.norm", norm, "normalization");
  const auto positions = arguments_.text("position-embedding-type", "model.positions").value_or("learned_absolute");
  const bool rotary = arguments_.has("use-rotary-position-embeddings");
  const bool alibi = arguments_.has("use-alibi-mask");
  const bool none = arguments_.has("no-position-embedding");
  const std::vector<std::string> names = {
      "learned_absolute", "absolute", "rope", "rotary", "none", "yarn", "mrope", "alibi"};
  if (std::find(names.begin(), names.end(), positions) == names.end()) {
    arguments_.fail("position-embedding-type", fmt::format("unknown value \"{}\"", positions),
                    choices_help(positions, names));
  }
  const bool learned = positions == "learned_absolute" || positions == "absolute";
  const char* kind = alibi || positions == "alibi"                 ? "alibi"
                     : rotary || (!learned && positions != "none") ? "rotary"
                     : learned && !none                            ? "learned"
                                                                   : "none";
  put("model.positions", kind, "position-embedding-type");
  if (arguments_.has("embed-layernorm")) put("model.embedding_norm", true, "embed-layernorm");
}

void MegatronReader::read_dropout() {
  bool any = false;
  bool all_told = true;
  for (const char* name : {"attention-dropout", "hidden-dropout"}) {
    const auto share = arguments_.number(name, "model.dropout");
    all_told = all_told && share.has_value();
    any = any || share.value_or(kMegatronDropout) > 0;
  }
  put("model.dropout", any, "hidden-dropout");
  if (!all_told) note(fmt::format("dropout not given is Megatron's {}", kMegatronDropout));
}

void MegatronReader::read_vocabulary() {
  auto vocab = arguments_.whole("vocab-size", 1, "model.vocab");
  const auto padded = arguments_.whole("padded-vocab-size", 1, "model.vocab");
  const auto tokenizer = arguments_.text("tokenizer-type", "model.vocab");
  const bool bpe_files = arguments_.has("vocab-file") && arguments_.has("merge-file");
  const auto divisor = arguments_.whole("make-vocab-size-divisible-by", 1).value_or(kStackVocabularyDivisor);
  const auto extra = arguments_.whole("extra-vocab-size", 0, "model.vocab");
  if (padded) return put("model.vocab", *padded, "padded-vocab-size");
  std::string name = "vocab-size";
  if (!vocab && !given("model.vocab")) {
    name = tokenizer ? "tokenizer-type" : "merge-file";
    if (tokenizer ? *tokenizer != "GPT2BPETokenizer" && *tokenizer != "BertWordPieceLowerCase" &&
                        *tokenizer != "BertWordPieceCase"
                  : !bpe_files) {
      return arguments_.lack("vocab-size", "model.vocab");
    }
    constexpr int kBertLower = 30'522;
    constexpr int kBertCased = 28'996;
    vocab = tokenizer && *tokenizer == "BertWordPieceLowerCase" ? kBertLower
            : tokenizer && *tokenizer == "BertWordPieceCase"    ? kBertCased
                                                                : kGpt2Vocabulary;
    note(fmt::format("the vocabulary is {}'s {} (from --{}); give --vocab-size N for another",
                     *vocab == kGpt2Vocabulary ? "GPT-2" : "BERT", *vocab, name));
  }
  if (!vocab) return;
  std::int64_t stored = std::int64_t{*vocab} + extra.value_or(0);
  if (divisor != kStackVocabularyDivisor) {
    const std::int64_t multiple = std::int64_t{divisor} * tp_;
    stored = (stored + multiple - 1) / multiple * multiple;
    note(fmt::format("the vocabulary is padded to a multiple of {} · tp {}: {}", divisor, tp_, stored));
  }
  if (stored > std::numeric_limits<int>::max())
    arguments_.fail(name, fmt::format("{} is out of range", stored), "give a smaller --vocab-size");
  put("model.vocab", stored, name);
}

// A number N, every N-th layer, or a list of layers in Python: ([0]*3+[1]*58), [0,1,1].
void MegatronReader::read_expert_layers(ForeignExperts& experts) {
  if (!arguments_.has("moe-layer-freq")) return;
  const std::string frequency = arguments_.all_text("moe-layer-freq");
  if (!unset_name(frequency).empty()) {
    arguments_.text("moe-layer-freq", "model.experts.every");
    return;
  }
  const bool number =
      !frequency.empty() && frequency.size() < 6 && frequency.find_first_not_of("0123456789") == std::string::npos;
  if (number) {
    experts.every = std::max(1, std::stoi(frequency));
    return;
  }
  const auto layers = layers_of_pattern(frequency);
  if (!layers || !put_layer_pattern(*layers, experts)) {
    arguments_.fail("moe-layer-freq", fmt::format("\"{}\" is not modelled", frequency),
                    "valid: N, or a list that begins with dense layers or repeats: ([0]*N+[1]*M)");
  }
}

void MegatronReader::read_experts() {
  const auto count = arguments_.whole("num-experts", 1, "model.experts.count");
  ForeignExperts experts;
  experts.top_k = arguments_.whole("moe-router-topk", 1, "model.experts.top_k").value_or(is_deepspeed_ ? 1 : 2);
  experts.ffn = arguments_.whole("moe-ffn-hidden-size", 1, "model.experts.ffn");
  const auto shared = arguments_.whole("moe-shared-expert-intermediate-size", 0, "model.experts.shared_ffn");
  const auto number_shared = arguments_.whole("num-shared-experts", 0, "model.experts.shared");
  const bool enabled = arguments_.has("enable-shared-expert");
  read_expert_layers(experts);
  const auto capacity = arguments_.number("moe-expert-capacity-factor", "model.experts.capacity_factor");
  const bool drops = !arguments_.has("disable-moe-token-dropping");
  if (!count || *count == 1) return;
  if (shared.value_or(0) > 0) {
    experts.shared = 1;
    experts.shared_ffn = shared;
  } else if (number_shared.value_or(0) > 0 || enabled) {
    experts.shared = number_shared.value_or(1);
  }
  experts.count = *count;
  if (!experts.ffn) experts.ffn = out_.whole("model.ffn") > 0 ? out_.whole("model.ffn") : context_.whole("model.ffn");
  put_experts(experts, arguments_.place("num-experts"), out_);
  // Megatron-DeepSpeed drops what is beyond the capacity unless told not to.
  if (capacity && drops) out_.job["model"]["experts"]["capacity_factor"] = *capacity;
}

void MegatronReader::read_latent() {
  ForeignLatentAttention latent;
  latent.q_rank = arguments_.whole("q-lora-rank", 1);
  constexpr int kRank = 32;
  constexpr int kWidth = 128;
  constexpr int kRotaryWidth = 64;
  const auto kv_rank = arguments_.whole("kv-lora-rank", 1);
  latent.kv_rank = kv_rank.value_or(kRank);
  latent.qk_nope_dim = arguments_.whole("qk-head-dim", 1).value_or(kWidth);
  latent.qk_rope_dim = arguments_.whole("qk-pos-emb-head-dim", 1).value_or(kRotaryWidth);
  latent.v_dim = arguments_.whole("v-head-dim", 1).value_or(kWidth);
  // Pai's DeepSeek has no flag beside the rank.
  if (!arguments_.has("multi-latent-attention") &&
      !(kv_rank && arguments_.is_written_as("qk-head-dim", "qk-nope-head-dim")))
    return;
  out_.job["model"].erase("head_dim");
  out_.places.erase("model.head_dim");
  put_latent_attention(latent, arguments_.place("kv-lora-rank"), out_);
}

// Megatron's default is 4h, or 4h·2/3 rounded down to a multiple of 64 with a gate.
void MegatronReader::read_ffn(int hidden) {
  const bool gated = arguments_.has("swiglu");
  put("model.gated_mlp", gated, "swiglu");
  if (put_whole("ffn-hidden-size", "model.ffn") || hidden == 0 || arguments_.is_open("ffn-hidden-size")) return;
  constexpr std::int64_t kGranule = 64;
  const std::int64_t wide = std::int64_t{kGateless} * hidden;
  put("model.ffn", gated ? wide * 2 / 3 / kGranule * kGranule : wide, "hidden-size");
}

void MegatronReader::read_key_value_heads(int heads) {
  const auto groups = arguments_.whole("num-query-groups", 1, "model.kv_heads");
  const bool told = arguments_.has("group-query-attention") ||
                    arguments_.is_written_as("num-query-groups", "num-key-value-heads") ||
                    arguments_.is_written_as("num-query-groups", "n-head-kv");
  if (arguments_.text("attention-head-type").value_or("") == "multiquery") {
    put("model.kv_heads", 1, "attention-head-type");
  } else if (told && !arguments_.is_open("num-query-groups") && !(given("model.kv_heads") && !groups)) {
    put("model.kv_heads", groups.value_or(1), groups ? "num-query-groups" : "group-query-attention");
  } else if (groups && *groups != heads && *groups != 1) {
    out_.warnings.push_back(
        fmt::format("{}: no effect without --group-query-attention", arguments_.place("num-query-groups")));
  }
}

void MegatronReader::read_model() {
  if (names_a_model()) {
    if (given("model")) note("--model replaces the model that the file describes");
    layers_ = context_.whole("model.layers");
    return;
  }
  layers_ = required("num-layers", "model.layers");
  const int hidden = required("hidden-size", "model.hidden");
  const int heads = required("num-attention-heads", "model.heads");
  read_ffn(hidden);
  put_whole("kv-channels", "model.head_dim");
  read_key_value_heads(heads);
  read_norm_and_positions();
  put("model.biases", !arguments_.has("disable-bias-linear"), "disable-bias-linear");
  if (arguments_.has("add-qkv-bias")) put("model.attention_bias", true, "add-qkv-bias");
  if (arguments_.has("qk-layernorm")) put("model.qk_norm", true, "qk-layernorm");
  if (!KeyTable::of("megatron").program_reason(arguments_.program(), "bidirectional").empty()) {
    out_.put("model.causal", false, file_);
  }
  read_dropout();
  put("model.tied_embeddings", !arguments_.has("untie-embeddings-and-output-weights"),
      "untie-embeddings-and-output-weights");
  read_vocabulary();
  read_experts();
  read_latent();
}

// 'Et*3|(tt|)*29,m|L': stages of decoder layers t, beside the embedding E, the loss L and further predictions m.
void MegatronReader::read_stage_string() {
  const auto text = arguments_.text("pipeline-model-parallel-layout", "layout.stage_layers");
  if (!text) return;
  const auto stages = stages_of_string(*text);
  if (!stages || stages->size() % static_cast<std::size_t>(pp_) != 0) {
    arguments_.fail("pipeline-model-parallel-layout",
                    stages ? fmt::format("{} stages are no multiple of {} pipeline ranks", stages->size(), pp_)
                           : fmt::format("\"{}\" is not understood", *text),
                    "give the layers of each stage with --layout.stage_layers N,N,…");
  }
  vpp_ = static_cast<int>(stages->size()) / pp_;
  if (vpp_ > 1) put("layout.vpp", vpp_, "pipeline-model-parallel-layout");
  put("layout.stage_layers", *stages, "pipeline-model-parallel-layout");
}

// The embedding and the loss count as a layer each of the first and the last stage.
void MegatronReader::read_counted_stages() {
  const bool embedding = arguments_.has("account-for-embedding-in-pipeline-split");
  const bool loss = arguments_.has("account-for-loss-in-pipeline-split");
  const int stages = pp_ * vpp_;
  if ((!embedding && !loss) || layers_ == 0 || stages == 1 || given("layout.stage_layers")) return;
  const char* name = embedding ? "account-for-embedding-in-pipeline-split" : "account-for-loss-in-pipeline-split";
  const std::int64_t slots = std::int64_t{layers_} + (embedding ? 1 : 0) + (loss ? 1 : 0);
  if (slots % stages != 0 || slots / stages < 2 || stages > layers_) {
    arguments_.fail(name,
                    fmt::format("{} layers and {} do not spread over {} stages", layers_,
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
                                  counts_ends ? " and what counts as one" : ""),
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
  // sail-sg's zero-bubble, and ZB-H1 of Megatron-DeepSpeed.
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
  // A named model's layers are not known here.
  if ((!first && !last) || given("layout.stage_layers")) return;
  const std::string name = first ? "decoder-first-pipeline-num-layers" : "decoder-last-pipeline-num-layers";
  if (layers_ == 0 && names_a_model())
    return warn_of(name, "the stages are split evenly: give --layout.stage_layers N,N,…");
  if (arguments_.is_open("num-layers")) return;
  const int inner = pp_ - (first ? 1 : 0) - (last ? 1 : 0);
  const int rest = layers_ - first.value_or(0) - last.value_or(0);
  if (vpp_ > 1 || inner < 1 || inner > layers_ || rest < inner || rest % inner != 0) {
    arguments_.fail(name, fmt::format("{} layers do not spread over {} pipeline ranks in this way", layers_, pp_),
                    "the other ranks need equally many layers, and one stage each");
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
    warn_of("recompute-method", fmt::format("recomputing {} layers of each stage: all of them are", *layers));
  } else if (layers && *layers > 1 && full) {
    warn_of("recompute-num-layers", fmt::format("groups of {} layers: each layer keeps its input", *layers));
  }
  const std::string modules = arguments_.all_text("recompute-modules");
  if (!modules.empty() && modules != "core_attn")
    warn_of("recompute-modules", "selective recomputes the core attention");
}

// What --deepspeed_config names, a file or a here-document of the script: its stage and its offloading, beneath what
// the arguments say.
void MegatronReader::read_deepspeed_file() {
  const bool told = arguments_.has("deepspeed-config");
  const std::string path = arguments_.all_text("deepspeed-config");
  if (!told || !is_deepspeed_) return;
  // A path with the job's number in it is as the here-document has it.
  std::optional<std::string> text = arguments_.written_file(path);
  for (const std::string& each : {path, path_beside(file_, path)}) {
    if (!text && context_.files != nullptr && context_.files->kind_of(each) == Files::Kind::kFile)
      text = context_.files->try_read(each);
  }
  if (!text)
    return warn_of("deepspeed-config", "the file is not here: ZeRO and offloading are forecast as the arguments say");
  ImportContext context = context_;
  for (const char* field : {"layout.global_batch_size", "layout.tp", "training.precision"})
    context.given.emplace(field, "");
  const std::string values = without_open_values(*text);
  const ImportedJob inside =
      import_job(ForeignFile(values, fmt::format("{}: {}.json", file_, shown_path(path))), context);
  if (inside.format->name != deepspeed_format().name)
    return warn_of("deepspeed-config", "it is no DeepSpeed configuration");
  for (const char* field : {"layout.zero", "layout.offload", "layout.bucket_mb"}) {
    const auto& layout = inside.job.value("layout", nlohmann::json::object());
    const std::string key = std::string(field).substr(7);
    if (layout.contains(key)) out_.put(field, layout.at(key), inside.places.at(field));
  }
  out_.notes.insert(out_.notes.end(), inside.notes.begin(), inside.notes.end());
  out_.warnings.insert(out_.warnings.end(), inside.warnings.begin(), inside.warnings.end());
  out_.keys.add(inside.keys);
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
    put("layout.zero", match - names.begin(), "data-parallel-sharding-strategy");
  }
  const bool distributed = arguments_.has("use-distributed-optimizer");
  if (distributed && !strategy) put("layout.zero", 1, "use-distributed-optimizer");
  if (sharded && !strategy && !distributed)
    note("--use-megatron-fsdp shards nothing without --data-parallel-sharding-strategy");
  if (arguments_.has("use-torch-fsdp2")) put("layout.data_parallel", "fsdp", "use-torch-fsdp2");
  if (arguments_.has("optimizer-cpu-offload"))
    put_offload("cpu", std::nullopt, arguments_.place("optimizer-cpu-offload"), out_);
  const auto share = arguments_.number("optimizer-offload-fraction");
  if (share && *share < 1.0 && *share > 0.0)
    warn_of("optimizer-offload-fraction", "all of the optimizer's states are forecast in host memory");
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
  const bool known = *exchange == "p2p" || *exchange == "a2a";
  if (known) put("layout.context_parallel", *exchange == "a2a" ? "ulysses" : "ring", "cp-comm-type");
  if (!known) warn_of("cp-comm-type", fmt::format("{}: forecast as a ring, p2p", *exchange));
}

void MegatronReader::read_batch() {
  put_whole("micro-batch-size", "layout.micro_batch_size");
  const auto batch = put_whole("global-batch-size", "layout.global_batch_size");
  const auto steps = arguments_.whole("gas", 1, "layout.accumulation");
  const bool open = arguments_.is_open("global-batch-size");
  // Without it Megatron takes one microbatch per replica.
  if (!batch && !open && !given("layout.global_batch_size") && arguments_.has("micro-batch-size")) {
    put("layout.accumulation", steps.value_or(1), steps ? "gas" : "micro-batch-size");
    if (!steps) note("--global-batch-size is absent: one microbatch per replica, as Megatron does");
  }
  if (arguments_.has("rampup-batch-size"))
    note("--rampup-batch-size: the full batch is forecast, not the smaller ones before");
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

void MegatronReader::read_precision() {
  const bool bf16 = arguments_.has("bf16");
  const bool fp16 = arguments_.has("fp16");
  if (bf16 && fp16) arguments_.fail("fp16", "is given together with --bf16", "keep one of the two");
  const bool fp8 = arguments_.has("fp8-format");
  const char* name = fp8 ? "fp8-format" : bf16 ? "bf16" : "fp16";
  put("training.precision", fp8 ? "fp8" : bf16 ? "bf16" : fp16 ? "fp16" : "fp32", name);
  if (!fp8 && !bf16 && !fp16) note("neither --bf16 nor --fp16: Megatron computes in fp32");
  const auto recipe = fp8 ? arguments_.text("fp8-recipe", "training.fp8_recipe") : std::nullopt;
  const auto& recipes = names_of<Fp8Recipe>();
  if (recipe && std::find(recipes.begin(), recipes.end(), *recipe) != recipes.end()) {
    put("training.fp8_recipe", *recipe, "fp8-recipe");
  } else if (recipe) {
    note(fmt::format("--fp8-recipe {} is not modelled: the stack's own recipe is forecast", *recipe));
  }
  const auto gradients = arguments_.text("main-grads-dtype", "training.gradient_dtype");
  const char* const by = gradients ? "main-grads-dtype" : "grad-reduce-in-bf16";
  if ((gradients && *gradients == "bf16") || (bf16 && arguments_.has("grad-reduce-in-bf16")))
    put("training.gradient_dtype", "bf16", by);
  const auto attention = arguments_.text("attention-backend", "training.attention");
  if (arguments_.has("use-flash-attn")) put("training.attention", "flash", "use-flash-attn");
  if (attention && (*attention == "flash" || *attention == "fused"))
    put("training.attention", "flash", "attention-backend");
  if (attention && (*attention == "unfused" || *attention == "local"))
    put("training.attention", "unfused", "attention-backend");
}

// Megatron overlaps nothing between replicas unless told to; a sharded form prefetches by itself.
void MegatronReader::read_overlap() {
  if (is_deepspeed_) return;
  const bool sharded = arguments_.has("use-megatron-fsdp") || arguments_.has("use-torch-fsdp2");
  const bool reduces = arguments_.has("overlap-grad-reduce");
  if (reduces || !sharded) put("training.overlap.gradients", reduces, "overlap-grad-reduce");
  if (arguments_.has("overlap-param-gather")) put("training.overlap.parameters", true, "overlap-param-gather");
  if (arguments_.has("tp-comm-overlap")) put("training.overlap.tp", true, "tp-comm-overlap");
  if (arguments_.has("no-overlap-p2p-communication"))
    put("training.overlap.p2p", false, "no-overlap-p2p-communication");
}

void MegatronReader::read_optimizer() {
  const auto optimizer = arguments_.text("optimizer", "training.optimizer");
  if (!optimizer) return;
  const std::string lower = lower_case(*optimizer);
  if (lower != "adam" && lower != "adamw" && lower != "sgd" && lower != "cpu_adam" && lower != "ds_fused_adam") {
    arguments_.fail("optimizer", fmt::format("\"{}\" is not modelled", *optimizer),
                    "valid: adam, sgd; --training.optimizer adam forecasts Adam instead");
  }
  put("training.optimizer", lower == "sgd" ? "sgd" : "adam", "optimizer");
}

void MegatronReader::read_length() {
  const auto sequence = put_whole("seq-length", "training.sequence_length");
  if (!sequence && !arguments_.is_open("seq-length") && !names_a_model())
    arguments_.lack("seq-length", "training.sequence_length");
  const auto positions = arguments_.whole("max-position-embeddings", 1, "model.sequence_length");
  if (!names_a_model() && (positions || sequence)) {
    put("model.sequence_length", positions ? *positions : *sequence,
        positions ? "max-position-embeddings" : "seq-length");
  }
  // The length of the run is not needed for a step.
  const auto count = [this](const char* name) -> std::optional<double> {
    if (!arguments_.has(name) || given("training.tokens")) return std::nullopt;
    if (!unset_name(arguments_.all_text(name)).empty()) {
      note(fmt::format("--{} is not set: the length of the run is left open, give --tokens T", name));
      return std::nullopt;
    }
    const auto number = arguments_.number(name, "training.tokens");
    return number && *number >= 1.0 ? number : std::nullopt;
  };
  const auto tokens = count("train-tokens");
  const auto samples = count("train-samples");
  const auto iterations = count("train-iters");
  const int batch = out_.whole("layout.global_batch_size");
  if (tokens) return put("training.tokens", *tokens, "train-tokens");
  if (!sequence) return;
  if (samples) return put("training.tokens", *samples * *sequence, "train-samples");
  if (iterations && batch > 0) put("training.tokens", *iterations * batch * *sequence, "train-iters");
}

// A script that is to be edited for the cluster at hand often names a single node.
void MegatronReader::fit_nodes() {
  if (!out_.has("cluster.devices_per_node") || given("cluster.nodes")) return;
  const std::int64_t per_node = out_.job["cluster"]["devices_per_node"].get<int>();
  const std::int64_t nodes = out_.has("cluster.nodes") ? out_.job["cluster"]["nodes"].get<std::int64_t>() : 1;
  const double ranks = static_cast<double>(tp_) * pp_ * cp_;
  if (static_cast<double>(per_node) * static_cast<double>(nodes) >= ranks) return;
  const double needed = std::ceil(ranks / static_cast<double>(per_node));
  if (needed > 1'000'000) return;  // the layout's reader refuses it
  const std::string place =
      out_.has("cluster.nodes") ? out_.places["cluster.nodes"] : out_.places["cluster.devices_per_node"];
  out_.put("cluster.nodes", static_cast<int>(needed), place);
  out_.warnings.push_back(
      fmt::format("{}: {} devices hold no replica of tp {} · pp {} · cp {} = {} ranks; {} nodes are taken, give "
                  "--cluster Nx… for more",
                  place, per_node * nodes, tp_, pp_, cp_, ranks, static_cast<int>(needed)));
}

ImportedJob MegatronReader::read() {
  read_program();
  read_cluster();
  read_layout();
  read_named_model();
  read_model();
  read_pipeline();
  read_uneven_stages();
  read_counted_stages();
  read_recompute();
  read_sharding();
  read_precision();
  read_overlap();
  read_optimizer();
  read_length();
  fit_nodes();
  if (arguments_.has("mtp-num-layers") && arguments_.whole("mtp-num-layers", 0).value_or(0) > 0)
    warn_of("mtp-num-layers", "layers that predict further tokens are not counted");
  arguments_.finish(out_);
  arguments_.refuse_open();
  if (arguments_.is_part()) note("holds arguments, and no command that takes them: a part of a job");
  if (given("model")) out_.job.erase("model");
  return std::move(out_);
}

bool is_launch_script(const ForeignFile& file) {
  return file.syntax() == ForeignFile::Syntax::kShell;
}

ImportedJob read_megatron(const ForeignFile& file, const ImportContext& context) {
  return MegatronReader(file.text(), file.name(), context).read();
}

}  // namespace

const JobFormat& megatron_format() {
  static constexpr JobFormat kFormat = {
      .name = "Megatron-LM arguments", .detect = is_launch_script, .read = read_megatron};
  return kFormat;
}

}  // namespace flopcast
