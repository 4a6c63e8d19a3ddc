// Hugging Face config.json: field names as in the configuration classes of the transformers library
// (models/<family>/configuration_<family>.py); family properties without a key are in import/keys/hugging_face.json.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "import/programs/hugging_face_reader.hpp"
#include "import/programs/imported_job.hpp"

namespace flopcast {

namespace {

// max_position_embeddings is the context that the model can read, not its training length; larger windows come from a
// later extension.
constexpr int kLongestTrainingWindow = 16'384;
constexpr int kUsualTrainingWindow = 4'096;
constexpr const char* kForecastable =
    "flopcast forecasts transformers with attention and dense or expert layers; see: flopcast catalog models";

}  // namespace

void HuggingFaceReader::put(const std::string& field, nlohmann::json value, const std::string& key) {
  out_.put(field, std::move(value), object_.place(key));
}

std::string HuggingFaceReader::key_of(Keys keys) const {
  for (const char* key : keys) {
    if (object_.has(key)) return key;
  }
  return *keys.begin();
}

// A number, or a list with one number per layer if all are equal.
std::optional<int> HuggingFaceReader::whole(Keys keys, int smallest) {
  std::optional<int> found;
  for (const char* key : keys) {
    const nlohmann::json* value = object_.find(key);
    const bool by_layer =
        value != nullptr && value->is_array() && !value->empty() && value->front().is_number_integer() &&
        std::count(value->begin(), value->end(), value->front()) == static_cast<std::ptrdiff_t>(value->size());
    const bool fits = by_layer && value->front() >= smallest && value->front() <= std::numeric_limits<int>::max();
    const auto number = fits ? std::optional<int>(value->front().get<int>()) : object_.whole(key, smallest);
    if (!found) found = number;
  }
  return found;
}

// The family's default size, which a text_config may omit.
std::optional<int> HuggingFaceReader::unsaid(Keys keys) {
  for (const char* key : keys) {
    if (object_.pointer().empty() || !family_.defaults.contains(key)) continue;
    const int size = family_.defaults.at(key).get<int>();
    out_.notes.push_back(fmt::format("{} is absent: uses {}, the default of transformers", object_.place(key), size));
    return size;
  }
  return std::nullopt;
}

std::optional<bool> HuggingFaceReader::boolean(Keys keys) {
  std::optional<bool> found;
  for (const char* key : keys) {
    const nlohmann::json* value = object_.find(key);
    if (value == nullptr || !value->is_boolean()) continue;
    if (!found) found = value->get<bool>();
  }
  return found;
}

int HuggingFaceReader::required(Keys keys, const std::string& field) {
  const auto number = whole(keys);
  if (number) {
    put(field, *number, key_of(keys));
    return *number;
  }
  if (const auto size = unsaid(keys)) {
    put(field, *size, *keys.begin());
    return *size;
  }
  if (!context_.has(field))
    object_.fail_missing(*keys.begin(),
                         fmt::format("config.json files of this family have this key; or give --{} N", field));
  return context_.whole(field);
}

void HuggingFaceReader::choose_family() {
  type_ = object_.text("model_type").value_or("");
  const nlohmann::json* written = object_.find("architectures");
  const std::string architecture =
      written != nullptr && written->is_array() && !written->empty() && written->front().is_string()
          ? written->front().get<std::string>()
          : "";
  // Files older than model_type use llama's names or BERT's.
  if (type_.empty() && lower_case(architecture).starts_with("bert")) type_ = "bert";
  const bool has_other_head = architecture.find("Classification") != std::string::npos ||
                              architecture.find("Reward") != std::string::npos ||
                              architecture.find("QuestionAnswering") != std::string::npos;
  if (has_other_head)
    warn_of("architectures",
            fmt::format("{} has a different head: a head over the vocabulary is counted", architecture));
  const bool of_bert = type_.empty() && architecture.empty() && object_.has("type_vocab_size");
  if (of_bert) type_ = "bert";
  if (type_.empty()) {
    for (const auto& [name, family] : hugging_face_families().known) {
      const bool same = !architecture.empty() && lower_case(architecture).starts_with(name + "for");
      if (same) type_ = name;
    }
  }
  const auto refused = hugging_face_families().refused.find(type_);
  if (refused != hugging_face_families().refused.end() || object_.boolean("is_encoder_decoder").value_or(false)) {
    const std::string what =
        refused != hugging_face_families().refused.end() ? refused->second : "an encoder-decoder model";
    object_.fail("model_type", fmt::format("\"{}\" requires {} (not modelled)", type_, what), kForecastable);
  }
  const auto known = hugging_face_families().known.find(type_);
  if (known != hugging_face_families().known.end()) {
    family_ = known->second;
    return;
  }
  std::vector<std::string> names;
  for (const auto& [name, family] : hugging_face_families().known) names.push_back(name);
  const std::vector<std::string> near = nearest_choices(type_, names);
  object_.fail(
      "model_type",
      type_.empty() ? std::string("is absent, and no other key identifies the family")
                    : fmt::format("\"{}\" is an unknown family", type_),
      fmt::format("{}set the nearest family in a copy of the file (\"model_type\": \"llama\" has a gated MLP, "
                  "RMSNorm, rotary positions and no biases), "
                  "or omit the file and give the sizes as flags: --model.layers N --model.hidden N --model.heads N …",
                  near.empty() ? "" : fmt::format("did you mean {}? ", near.front())));
}

// Refuses keys that imply another architecture in any family.
void HuggingFaceReader::refuse_patterns() {
  for (const char* key : {"layer_types", "layers_block_type", "attn_type_list"}) {
    const nlohmann::json* layers = object_.find(key);
    if (layers == nullptr || !layers->is_array()) continue;
    for (const nlohmann::json& layer : *layers) {
      const std::string name = layer.is_string() ? layer.get<std::string>()
                               : layer == 0      ? "linear_attention"
                                                 : "attention";
      const bool other = name.find("linear") != std::string::npos || name.find("mamba") != std::string::npos ||
                         name.find("recurrent") != std::string::npos || name.find("conv") != std::string::npos;
      if (other) object_.fail(key, fmt::format("has layers of type \"{}\" (not modelled)", name), kForecastable);
    }
  }
}

void HuggingFaceReader::read_dropout() {
  bool any = false;
  std::string place;
  for (const char* key :
       {"attention_dropout", "resid_pdrop", "attn_pdrop", "embd_pdrop", "emb_pdrop", "dropout", "hidden_dropout",
        "attention_probs_dropout_prob", "hidden_dropout_prob", "residual_dropout"}) {
    const auto share = object_.number(key);
    if (!share) continue;
    any = any || *share > 0;
    if (place.empty() || *share > 0) place = object_.place(key);
  }
  if (place.empty()) any = family_.dropout;
  out_.put("model.dropout", any, place.empty() ? object_.place("model_type") : place);
}

void HuggingFaceReader::read_sequence_length() {
  const Keys keys = {"max_position_embeddings", "n_positions", "max_seq_len",     "seq_length",
                     "max_sequence_length",     "n_ctx",       "model_max_length"};
  const auto positions = whole(keys);
  const std::string key = key_of(keys);
  const bool told = context_.has("training.sequence_length");
  if (!positions && family_.length == 0 && !told && !context_.has("model.sequence_length")) {
    object_.fail_missing(key, "give --seq N, the tokens per sequence");
  }
  const int length = positions.value_or(family_.length > 0 ? family_.length : kUsualTrainingWindow);
  const bool extended = family_.positions != "learned" && length > kLongestTrainingWindow;
  const int taken = extended ? kUsualTrainingWindow : length;
  put("model.sequence_length", taken, key);
  if (told) return;
  if (extended) {
    out_.warnings.push_back(fmt::format(
        "{} is {}, a context for inference rather than the training length: assumes {} tokens per sequence; "
        "give --seq N",
        object_.place(key), length, taken));
  } else {
    out_.notes.push_back(
        fmt::format("the sequence length {} comes from {}; to change it, give --seq N", taken, object_.place(key)));
  }
}

void HuggingFaceReader::read_key_value_heads(int heads) {
  const Keys keys = {"num_key_value_heads", "n_head_kv", "num_kv_heads"};
  auto kv_heads = whole(keys);
  std::string key = key_of(keys);
  if (attention_ && !kv_heads) kv_heads = attention_->whole("kv_n_heads", 1);
  // Falcon's new architecture uses num_kv_heads, the old one a single head; ChatGLM counts groups.
  const bool single = boolean({"multi_query"}).value_or(family_.kv_heads == 1);
  const bool new_layout = boolean({"new_decoder_architecture"}).value_or(false);
  const bool grouped = boolean({"multi_query_attention"}).value_or(false);
  const auto groups = whole({"multi_query_group_num"});
  if (single && !new_layout) {
    kv_heads = 1;
    key = "multi_query";
  } else if (grouped && groups) {
    kv_heads = groups;
    key = "multi_query_group_num";
  }
  if (!kv_heads) kv_heads = unsaid(keys);
  if (!kv_heads) {
    out_.notes.push_back(fmt::format("{} is absent: uses one key/value head per head, {}", object_.place(key), heads));
    return;
  }
  put("model.kv_heads", *kv_heads, key);
  if (heads > 0 && heads % *kv_heads != 0) {
    object_.fail(key, fmt::format("{} does not divide num_attention_heads {}", *kv_heads, heads),
                 "it must divide the number of heads");
  }
}

void HuggingFaceReader::read_attention() {
  const Keys width_keys = {"hidden_size", "n_embd", "n_embed", "d_model"};
  const Keys head_keys = {"num_attention_heads", "n_head", "n_heads", "num_heads"};
  hidden_ = required(width_keys, "model.hidden");
  const int heads = required(head_keys, "model.heads");
  read_key_value_heads(heads);
  const Keys keys = {"head_dim", "kv_channels"};
  auto head_dim = whole(keys);
  if (!head_dim) head_dim = unsaid(keys);
  if (head_dim) put("model.head_dim", *head_dim, key_of(keys));
  if (!head_dim && !object_.has("kv_lora_rank") && heads > 0 && hidden_ % heads != 0) {
    object_.fail(key_of(head_keys), fmt::format("{} does not divide {} {}", heads, key_of(width_keys), hidden_),
                 "add head_dim to a copy of the file");
  }
}

void HuggingFaceReader::read_mlp() {
  put("model.gated_mlp", family_.gated, "model_type");
  const Keys keys = {"intermediate_size", "ffn_dim", "n_inner", "inner_dim", "ffn_hidden_size", "inner_hidden_size"};
  // Llama 4 has a separate key for the width of dense layers.
  const auto dense = whole({"intermediate_size_mlp"});
  auto width = whole(keys);
  if (mlp_ && !width) width = mlp_->whole("ffn_hidden_size", 1);
  const auto ratio = object_.number(object_.has("expansion_ratio") ? "expansion_ratio" : "mlp_ratio");
  if (!width && ratio && *ratio > 0) width = static_cast<int>(*ratio * hidden_);
  if (width && family_.halved_ffn) *width /= 2;
  const auto embedding = whole({"word_embed_proj_dim"});
  if (embedding && *embedding != hidden_) {
    object_.fail("word_embed_proj_dim",
                 fmt::format("embeddings of {} projected to {} are not modelled", *embedding, hidden_),
                 "remove the key in a copy of the file to count embeddings as wide as the layers");
  }
  if (dense) return put("model.ffn", *dense, "intermediate_size_mlp");
  if (width) return put("model.ffn", *width, key_of(keys));
  const auto expert = whole({"moe_intermediate_size"});
  if (expert) return put("model.ffn", *expert, "moe_intermediate_size");
  constexpr std::int64_t kUsualWidening = 4;
  if (!family_.gated) return put("model.ffn", kUsualWidening * hidden_, key_of(keys));
  required({"intermediate_size"}, "model.ffn");
}

void HuggingFaceReader::read_block() {
  if (family_.post_norms) put("model.post_norms", true, "model_type");
  const bool parallel = family_.block_key.empty() ||
                        boolean({family_.block_key.c_str()})
                            .value_or(family_.block_key != "use_parallel_residual" || type_.starts_with("gpt_neox"));
  if (family_.block == "sequential" || !parallel) return;
  // Falcon's new architecture gives attention and MLP a norm each, except in Falcon 2.
  const bool own_norms =
      boolean({"new_decoder_architecture"}).value_or(false) && whole({"num_ln_in_parallel_attn"}, 0).value_or(2) == 2;
  put("model.block", own_norms ? "parallel" : family_.block,
      key_of({"parallel_attn", "use_parallel_residual", "model_type"}));
}

void HuggingFaceReader::read_biases() {
  const auto attention_key = boolean({"attention_bias", "use_qkv_bias", "qkv_bias", "add_qkv_bias"});
  auto everywhere = boolean({"use_bias", "add_bias_linear"});
  const auto plain = boolean({"bias"});
  const auto none = boolean({"no_bias"});
  if (none && !everywhere) everywhere = !*none;
  const auto mlp_key = boolean({"mlp_bias"});
  if (type_ == "falcon" || type_.starts_with("RefinedWeb")) everywhere = everywhere ? everywhere : plain;
  const bool all = everywhere.value_or(family_.biases == "all");
  const bool attention = attention_key.value_or(all || (family_.biases == "attention" && plain.value_or(true)));
  const bool mlp = mlp_key.value_or(all);
  put("model.biases", attention && mlp, key_of({"mlp_bias", "use_bias", "bias", "attention_bias"}));
  if (attention && !mlp)
    put("model.attention_bias", true, key_of({"attention_bias", "use_qkv_bias", "qkv_bias", "add_qkv_bias", "bias"}));
  if (mlp && !attention)
    out_.notes.push_back(fmt::format("{}: biases of the MLP only are not counted", object_.place("mlp_bias")));
  if (boolean({"qk_norm", "use_qk_norm", "qk_layernorm"}).value_or(family_.qk_norm)) {
    put("model.qk_norm", true, key_of({"qk_norm", "use_qk_norm", "qk_layernorm", "model_type"}));
    if (family_.whole_qk_norm) put("model.whole_qk_norm", true, "model_type");
  }
  if (family_.attention_sinks) put("model.attention_sinks", true, "model_type");
}

void HuggingFaceReader::read_norm_and_positions() {
  bool layernorm = family_.layernorm;
  if (!family_.norm_key.empty()) layernorm = !object_.boolean(family_.norm_key).value_or(true);
  put("model.norm", layernorm ? "layernorm" : "rmsnorm", "model_type");
  const nlohmann::json* alibi = object_.find("alibi");
  const nlohmann::json* inner = attention_ ? attention_->find("alibi") : nullptr;
  std::string positions = family_.positions;
  if (inner != nullptr) alibi = inner;
  if (alibi != nullptr && alibi->is_boolean()) {
    if (*alibi == true) positions = "alibi";
    if (*alibi == false && positions == "alibi")
      positions =
          attention_ && attention_->has("rope") && attention_->values().at("rope") == true ? "rotary" : "learned";
  }
  const auto named =
      object_.text(object_.has("position_embedding_type") ? "position_embedding_type" : "positional_embedding");
  if (named && (*named == "alibi" || *named == "ALIBI")) positions = "alibi";
  if (named && (*named == "rope" || *named == "rotary")) positions = "rotary";
  put("model.positions", positions, key_of({"alibi", "n_positions", "model_type"}));
  if (family_.embedding_norm) put("model.embedding_norm", true, "model_type");
  if (!family_.causal && !object_.boolean("is_decoder").value_or(false)) put("model.causal", false, "model_type");
}

void HuggingFaceReader::warn_other_towers() {
  for (const char* key : {"vision_config", "audio_config", "img_processor"}) {
    const nlohmann::json* tower = object_.find(key);
    if (tower == nullptr || tower->is_null()) continue;
    warn_of(key, "only the text part is read; its vision or audio tower is not counted");
  }
}

ImportedJob HuggingFaceReader::read() {
  choose_family();
  refuse_patterns();
  if (object_.has("attn_config")) attention_.emplace(*object_.object("attn_config"));
  if (object_.has("ffn_config")) mlp_.emplace(*object_.object("ffn_config"));
  required({"num_hidden_layers", "n_layer", "n_layers", "num_layers"}, "model.layers");
  read_attention();
  required({"vocab_size", "padded_vocab_size"}, "model.vocab");
  read_mlp();
  read_block();
  read_norm_and_positions();
  read_biases();
  read_dropout();
  const auto tied = boolean({"tie_word_embeddings"});
  put("model.tied_embeddings", tied.value_or(family_.tied), "tie_word_embeddings");
  if (!tied) {
    out_.notes.push_back(fmt::format("{} is absent: {}tied, the default of {}", object_.place("tie_word_embeddings"),
                                     family_.tied ? "" : "not ", type_));
  }
  read_sequence_length();
  read_latent_attention();
  read_experts();
  read_windows();
  warn_multi_token();
  warn_other_towers();
  for (auto* part : {&attention_, &mlp_}) {
    if (*part) judge_keys(**part, "hugging_face", out_);
  }
  judge_keys(object_, "hugging_face", out_);
  return out_;
}

namespace {

// The language model inside a multimodal model.
ImportedJob read_hugging_face(const ForeignFile& file, const ImportContext& context) {
  const nlohmann::json& values = file.values();
  const bool has_own = values.is_object() && (values.contains("num_hidden_layers") || values.contains("n_layer"));
  for (const char* key : {"text_config", "llm_config", "language_config", "thinker_config"}) {
    if (has_own || !values.is_object() || !values.contains(key) || !values.at(key).is_object()) continue;
    const nlohmann::json& inside = values.at(key);
    std::string pointer = std::string("/") + key;
    const bool deeper = inside.contains("text_config") && inside.at("text_config").is_object();
    if (deeper) pointer += "/text_config";
    ImportedJob imported =
        HuggingFaceReader(deeper ? inside.at("text_config") : inside, pointer, file.name(), context).read();
    imported.warn_of("vision_config", fmt::format("{}:{} is read", file.name(), pointer),
                     "the vision or audio tower in the same file is not counted");
    return imported;
  }
  return HuggingFaceReader(values, "", file.name(), context).read();
}

bool is_hugging_face_config(const ForeignFile& file) {
  return file.has_any({"model_type", "architectures", "num_hidden_layers", "hidden_size", "n_layer", "n_embd"});
}

}  // namespace

const JobFormat& hugging_face_format() {
  static constexpr JobFormat kFormat = {.name = "Hugging Face config.json",
                                        .detect = is_hugging_face_config,
                                        .read = read_hugging_face,
                                        .is_model = true};
  return kFormat;
}

}  // namespace flopcast
