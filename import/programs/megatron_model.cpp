// The model in the arguments of Megatron-LM and its descendants.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "import/programs/megatron_reader.hpp"

namespace flopcast {

namespace {

constexpr int kGpt2Vocabulary = 50'257;
constexpr int kStackVocabularyDivisor = 128;
constexpr double kMegatronDropout = 0.1;
constexpr int kGateless = 4;  // width of the MLP without a gate, in model widths
constexpr std::int64_t kLongestWindow = 10'000'000;

}  // namespace

void MegatronReader::read_norm_and_positions() {
  auto norm = arguments_.text("normalization", "model.norm").value_or("layernorm");
  std::transform(norm.begin(), norm.end(), norm.begin(), [](unsigned char c) { return std::tolower(c); });
  if (norm != "layernorm" && norm != "rmsnorm") {
    arguments_.fail("normalization", fmt::format("unknown value \"{}\"", norm), "valid: LayerNorm, RMSNorm");
  }
  put("model.norm", norm, "normalization");
  const std::string positions =
      lower_case(arguments_.text("position-embedding-type", "model.positions").value_or("learned_absolute"));
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
  bool all_given = true;
  for (const char* name : {"attention-dropout", "hidden-dropout"}) {
    const auto share = arguments_.number(name, "model.dropout");
    all_given = all_given && share.has_value();
    any = any || share.value_or(kMegatronDropout) > 0;
  }
  put("model.dropout", any, "hidden-dropout");
  if (!all_given) note(fmt::format("unset dropout uses Megatron's default {}", kMegatronDropout));
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
      return arguments_.report_missing("vocab-size", "model.vocab");
    }
    constexpr int kBertLower = 30'522;
    constexpr int kBertCased = 28'996;
    vocab = tokenizer && *tokenizer == "BertWordPieceLowerCase" ? kBertLower
            : tokenizer && *tokenizer == "BertWordPieceCase"    ? kBertCased
                                                                : kGpt2Vocabulary;
    note(fmt::format("the vocabulary is {}'s {} (from --{}); to change it, give --vocab-size N",
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

// A number N (every N-th layer) or a Python list of layers: ([0]*3+[1]*58), [0,1,1].
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
                    "valid: N, or a list that starts with dense layers or repeats: ([0]*N+[1]*M)");
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
  experts.groups = arguments_.whole("moe-router-num-groups", 0, "model.experts.groups").value_or(0);
  experts.group_top_k =
      arguments_.whole("moe-router-group-topk", 0, "model.experts.group_top_k").value_or(experts.groups);
  if (experts.group_top_k == 0) experts.groups = 0;
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
  // Megatron-DeepSpeed drops tokens beyond the capacity by default.
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
  // Pai's DeepSeek has no flag other than the rank.
  if (!arguments_.has("multi-latent-attention") &&
      !(kv_rank && arguments_.is_written_as("qk-head-dim", "qk-nope-head-dim")))
    return;
  out_.job["model"].erase("head_dim");
  out_.places.erase("model.head_dim");
  put_latent_attention(latent, arguments_.place("kv-lora-rank"), out_);
}

// Megatron's default is 4h, or with a gate 4h·2/3 rounded down to a multiple of 64.
void MegatronReader::read_ffn(int hidden) {
  const bool gated = arguments_.has("swiglu");
  put("model.gated_mlp", gated, "swiglu");
  if (put_whole("ffn-hidden-size", "model.ffn") || hidden == 0 || arguments_.is_missing("ffn-hidden-size")) return;
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
  } else if (told && !arguments_.is_missing("num-query-groups") && !(given("model.kv_heads") && !groups)) {
    put("model.kv_heads", groups.value_or(1), groups ? "num-query-groups" : "group-query-attention");
  } else if (groups && *groups != heads && *groups != 1) {
    out_.warnings.push_back(
        fmt::format("{}: has no effect without --group-query-attention", arguments_.place("num-query-groups")));
  }
}

// --window-size "(127,0)": tokens before and after the current one; --window-attn-skip-freq N exempts every N-th layer
// from the window, or lists the layers that have it.
void MegatronReader::read_windows() {
  if (!arguments_.has("window-size")) return;
  const std::string size = arguments_.all_text("window-size");
  const std::string frequency =
      arguments_.has("window-attn-skip-freq") ? arguments_.all_text("window-attn-skip-freq") : "";
  std::string digits;
  for (const char c : size) digits += c >= '0' && c <= '9' ? c : ' ';
  std::istringstream numbers(digits);
  std::int64_t before = 0;
  std::int64_t after = 0;
  if (!unset_name(size).empty() || !(numbers >> before >> after) || before >= kLongestWindow || after != 0) {
    return warn_of("window-size", "attention is counted over the whole sequence; give --model.sliding_window N");
  }
  int windowed = layers_;
  const bool number =
      !frequency.empty() && frequency.size() < 6 && frequency.find_first_not_of("0123456789") == std::string::npos;
  if (number) {
    windowed = layers_ - layers_ / std::max(1, std::stoi(frequency));
  } else if (!frequency.empty()) {
    const auto layers = layers_of_pattern(frequency);
    if (!layers) return warn_of("window-attn-skip-freq", "all layers are counted with the window");
    windowed = static_cast<int>(std::count_if(layers->begin(), layers->end(), [](int layer) { return layer != 0; }));
  }
  if (windowed == 0) return;
  put("model.sliding_window", before + 1, "window-size");
  if (windowed < layers_) put("model.windowed_layers", windowed, "window-attn-skip-freq");
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
  const std::string told = KeyTable::of("megatron").program_reason(arguments_.program(), "told");
  if (!told.empty()) out_.warnings.push_back(fmt::format("{}: {}: {}", file_, arguments_.program(), told));
  read_dropout();
  put("model.tied_embeddings", !arguments_.has("untie-embeddings-and-output-weights"),
      "untie-embeddings-and-output-weights");
  read_vocabulary();
  read_experts();
  read_windows();
  read_latent();
}

}  // namespace flopcast
