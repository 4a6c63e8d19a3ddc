// Hugging Face config.json: field names as in the configuration classes of the transformers library
// (models/<family>/configuration_<family>.py).
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "import/programs/foreign_keys.hpp"
#include "import/programs/formats.hpp"

namespace flopcast {

namespace {

struct Family {
  std::string_view type;
  bool tied_default;  ///< of tie_word_embeddings
};

constexpr std::array<Family, 10> kLlamaLike = {{{"llama", false},
                                                {"mistral", false},
                                                {"qwen2", false},
                                                {"qwen3", false},
                                                {"mixtral", false},
                                                {"qwen2_moe", false},
                                                {"qwen3_moe", false},
                                                {"deepseek_v2", false},
                                                {"deepseek_v3", false},
                                                {"olmo2", false}}};

const Family* family_of(const std::string& type) {
  const auto match =
      std::find_if(kLlamaLike.begin(), kLlamaLike.end(), [&type](const Family& family) { return family.type == type; });
  return match == kLlamaLike.end() ? nullptr : &*match;
}

// max_position_embeddings says what the model can read, not what it is trained on; windows beyond this were reached
// by a later extension.
constexpr int kLongestTrainingWindow = 16'384;
constexpr int kUsualTrainingWindow = 4'096;

class HuggingFaceReader {
 public:
  HuggingFaceReader(const nlohmann::json& values, const std::string& pointer, const std::string& file,
                    const ImportContext& context)
      : object_(JsonReader::foreign(values, pointer, file)), context_(context) {}

  ImportedJob read();

 private:
  int required(std::string_view key, const std::string& field);
  void read_gpt2();
  void read_llama_like(const Family* family);
  void read_attention();
  void read_biases(const Family* family);
  void read_mlp();
  void read_sequence_length(std::string_view key, bool learned);
  void read_mixture();
  void read_latent_attention();
  void read_dropout(std::initializer_list<const char*> keys);
  void warn_about_windows();

  JsonReader object_;
  const ImportContext& context_;
  ImportedJob out_;
};

int HuggingFaceReader::required(std::string_view key, const std::string& field) {
  const auto number = object_.whole(key, 1);
  if (!number)
    object_.fail_missing(key, fmt::format("a config.json of this family has it; --{} would say it too", field));
  out_.put(field, *number, object_.place(key));
  return *number;
}

void HuggingFaceReader::read_dropout(std::initializer_list<const char*> keys) {
  bool any = false;
  std::string place;
  for (const char* key : keys) {
    const auto share = object_.number(key);
    if (!share) continue;
    any = any || *share > 0;
    if (place.empty() || *share > 0) place = object_.place(key);
  }
  if (place.empty()) place = object_.place("model_type");
  out_.put("model.dropout", any, place);
}

void HuggingFaceReader::read_sequence_length(std::string_view key, bool learned) {
  const auto positions = object_.whole(key, 1);
  const bool told = context_.given.count("training.sequence_length") > 0;
  if (!positions && !told && context_.given.count("model.sequence_length") == 0) {
    object_.fail_missing(key, "give --seq N, the tokens per sequence");
  }
  const int length = positions.value_or(kUsualTrainingWindow);
  const bool extended = !learned && length > kLongestTrainingWindow;
  const int taken = extended ? kUsualTrainingWindow : length;
  out_.put("model.sequence_length", taken, object_.place(key));
  if (told) return;
  if (extended) {
    out_.warnings.push_back(
        fmt::format("{} is {}, a window for reading rather than the training length: {} tokens per sequence are taken; "
                    "give --seq N",
                    object_.place(key), length, taken));
  } else {
    out_.notes.push_back(
        fmt::format("the sequence length {} is {}; give --seq N for another", taken, object_.place(key)));
  }
}

void HuggingFaceReader::read_attention() {
  const int hidden = required("hidden_size", "model.hidden");
  const int heads = required("num_attention_heads", "model.heads");
  const auto kv_heads = object_.whole("num_key_value_heads", 1);
  if (kv_heads) {
    out_.put("model.kv_heads", *kv_heads, object_.place("num_key_value_heads"));
    if (heads % *kv_heads != 0) {
      object_.fail("num_key_value_heads", fmt::format("{} does not divide num_attention_heads {}", *kv_heads, heads),
                   "");
    }
  } else {
    out_.notes.push_back(
        fmt::format("{} is absent: as many key/value heads as heads, {}", object_.place("num_key_value_heads"), heads));
  }
  const auto head_dim = object_.whole("head_dim", 1);
  if (head_dim) out_.put("model.head_dim", *head_dim, object_.place("head_dim"));
  if (!head_dim && !object_.has("kv_lora_rank") && hidden % heads != 0) {
    object_.fail("num_attention_heads", fmt::format("{} does not divide hidden_size {}", heads, hidden),
                 "the file may give head_dim");
  }
}

void HuggingFaceReader::read_mlp() {
  const auto act = object_.text("hidden_act");
  const bool mixture_only = object_.has("num_local_experts");
  required("intermediate_size", "model.ffn");
  const bool gated = !act || *act == "silu" || *act == "swish";
  out_.put("model.gated_mlp", gated, object_.place("hidden_act"));
  if (!act && !mixture_only)
    out_.notes.push_back(fmt::format("{} is absent: silu, gated", object_.place("hidden_act")));
}

void HuggingFaceReader::warn_about_windows() {
  const auto window = object_.whole("sliding_window", 1);
  const bool used = object_.boolean("use_sliding_window").value_or(true);
  const int length = out_.whole("model.sequence_length");
  object_.find("max_window_layers");
  if (window && used && *window < length) {
    out_.warnings.push_back(
        fmt::format("{}: a sliding window of {} is not modelled: attention is counted over the whole sequence",
                    object_.place("sliding_window"), *window));
  }
  const auto predicted = object_.whole("num_nextn_predict_layers", 0);
  if (predicted.value_or(0) > 0) {
    out_.warnings.push_back(fmt::format("{}: the {} layers that predict further tokens are not counted",
                                        object_.place("num_nextn_predict_layers"), *predicted));
  }
}

void HuggingFaceReader::read_mixture() {
  ForeignExperts experts;
  std::string count_key;
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    const auto count = object_.whole(key, 1);
    if (!count) continue;
    experts.count = *count;
    count_key = key;
  }
  if (count_key.empty()) return;
  const auto top_k = object_.whole("num_experts_per_tok", 1);
  if (!top_k) object_.fail_missing("num_experts_per_tok", "the experts each token visits");
  if (*top_k > experts.count) {
    object_.fail("num_experts_per_tok", fmt::format("{} is more than the {} experts", *top_k, experts.count), "");
  }
  experts.top_k = *top_k;
  experts.ffn = object_.whole("moe_intermediate_size", 1);
  if (!experts.ffn) experts.ffn = out_.whole("model.ffn");
  const auto shared = object_.whole("n_shared_experts", 0);
  const auto shared_ffn = object_.whole("shared_expert_intermediate_size", 0);
  experts.shared = shared.value_or(0);
  if (shared_ffn && *shared_ffn > 0) {
    experts.shared = 1;
    experts.shared_ffn = shared_ffn;
  }
  experts.first_dense = object_.whole("first_k_dense_replace", 0).value_or(0);
  experts.every = object_.whole("decoder_sparse_step", 1).value_or(object_.whole("moe_layer_freq", 1).value_or(1));
  const nlohmann::json* dense = object_.find("mlp_only_layers");
  if (dense != nullptr && dense->is_array() && !dense->empty()) {
    out_.warnings.push_back(fmt::format("{}: single dense layers are not modelled: every layer has experts",
                                        object_.place("mlp_only_layers")));
  }
  put_experts(experts, object_.place(count_key), out_);
}

void HuggingFaceReader::read_latent_attention() {
  const auto kv_rank = object_.whole("kv_lora_rank", 1);
  if (!kv_rank) return;
  const auto required_width = [this](const char* key) {
    const auto width = object_.whole(key, 1);
    if (!width) object_.fail_missing(key, "latent attention (kv_lora_rank) needs it");
    return *width;
  };
  ForeignLatentAttention attention;
  attention.kv_rank = *kv_rank;
  attention.q_rank = object_.whole("q_lora_rank", 1);
  attention.qk_nope_dim = required_width("qk_nope_head_dim");
  attention.qk_rope_dim = required_width("qk_rope_head_dim");
  attention.v_dim = required_width("v_head_dim");
  // transformers repeats the rotary width as head_dim for this family, which is no width of a head here.
  out_.job["model"].erase("head_dim");
  out_.places.erase("model.head_dim");
  put_latent_attention(attention, object_.place("kv_lora_rank"), out_);
}

// Qwen2 has biases on queries, keys and values, Qwen3 a norm over each of their heads, without a key that says so.
void HuggingFaceReader::read_biases(const Family* family) {
  const std::string type = family == nullptr ? "" : std::string(family->type);
  const bool attention = object_.boolean("attention_bias").value_or(type == "qwen2" || type == "qwen2_moe");
  const bool mlp = object_.boolean("mlp_bias").value_or(false);
  out_.put("model.biases", attention && mlp, object_.place("mlp_bias"));
  if (attention && !mlp) out_.put("model.attention_bias", true, object_.place("attention_bias"));
  if (mlp && !attention)
    out_.notes.push_back(fmt::format("{}: biases of the MLP alone are not counted", object_.place("mlp_bias")));
  if (type == "qwen3" || type == "qwen3_moe") out_.put("model.qk_norm", true, object_.place("model_type"));
}

void HuggingFaceReader::read_llama_like(const Family* family) {
  required("num_hidden_layers", "model.layers");
  read_attention();
  required("vocab_size", "model.vocab");
  read_mlp();
  out_.put("model.norm", "rmsnorm", object_.place("rms_norm_eps"));
  object_.number("rms_norm_eps");
  out_.put("model.positions", "rotary", object_.place("rope_theta"));
  object_.find("rope_theta");
  read_biases(family);
  read_dropout({"attention_dropout"});
  const auto tied = object_.boolean("tie_word_embeddings");
  out_.put("model.tied_embeddings", tied.value_or(family != nullptr && family->tied_default),
           object_.place("tie_word_embeddings"));
  if (!tied) out_.notes.push_back(fmt::format("{} is absent: not tied", object_.place("tie_word_embeddings")));
  read_sequence_length("max_position_embeddings", false);
  read_latent_attention();
  read_mixture();
  warn_about_windows();
}

void HuggingFaceReader::read_gpt2() {
  const auto layers = required("n_layer", "model.layers");
  const int hidden = required("n_embd", "model.hidden");
  const int heads = required("n_head", "model.heads");
  if (hidden % heads != 0) object_.fail("n_head", fmt::format("{} does not divide n_embd {}", heads, hidden), "");
  required("vocab_size", "model.vocab");
  const auto inner = object_.whole("n_inner", 1);
  constexpr int kUsualWidening = 4;
  out_.put("model.ffn", inner ? std::int64_t{*inner} : std::int64_t{kUsualWidening} * hidden, object_.place("n_inner"));
  object_.text("activation_function");
  object_.whole("n_ctx", 1);
  out_.put("model.gated_mlp", false, object_.place("activation_function"));
  out_.put("model.norm", "layernorm", object_.place("layer_norm_epsilon"));
  object_.number("layer_norm_epsilon");
  out_.put("model.positions", "learned", object_.place("n_positions"));
  out_.put("model.biases", true, object_.place("model_type"));
  read_dropout({"resid_pdrop", "attn_pdrop", "embd_pdrop"});
  out_.put("model.tied_embeddings", object_.boolean("tie_word_embeddings").value_or(true),
           object_.place("tie_word_embeddings"));
  read_sequence_length("n_positions", true);
  static_cast<void>(layers);
}

ImportedJob HuggingFaceReader::read() {
  const auto type = object_.text("model_type");
  const Family* family = type ? family_of(*type) : nullptr;
  if (type && *type == "gpt2") {
    read_gpt2();
  } else {
    read_llama_like(family);
    if (family == nullptr) {
      std::string known = "gpt2";
      for (const Family& each : kLlamaLike) known += fmt::format(", {}", each.type);
      out_.warnings.push_back(fmt::format("{}: \"{}\" is read as if it were a llama; known: {}",
                                          object_.place("model_type"), type.value_or(""), known));
    }
  }
  note_unread(object_, out_);
  return out_;
}

ImportedJob read_hugging_face(const ForeignFile& file, const ImportContext& context) {
  const nlohmann::json& values = file.values();
  const bool nested = values.is_object() && values.contains("text_config") && !values.contains("num_hidden_layers");
  if (!nested) return HuggingFaceReader(values, "", file.name(), context).read();
  ImportedJob imported = HuggingFaceReader(values.at("text_config"), "/text_config", file.name(), context).read();
  imported.warnings.push_back(fmt::format(
      "{}:/text_config is read; what the file holds beside it (vision, audio) is not counted", file.name()));
  return imported;
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
