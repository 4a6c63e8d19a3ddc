#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "import/programs/foreign_keys.hpp"

namespace flopcast {

/// Defaults of a family for what its configuration omits.
struct HuggingFaceFamily {
  bool gated = true;
  bool layernorm = false;
  std::string norm_key;         ///< key that is true for RMSNorm
  std::string biases = "none";  ///< "attention", "all"
  std::string positions = "rotary";
  bool tied = false;
  bool qk_norm = false;
  bool whole_qk_norm = false;
  bool attention_sinks = false;  ///< with a router bias, as gpt-oss has both
  bool embedding_norm = false;
  bool causal = true;
  bool dropout = false;
  bool halved_ffn = false;     ///< intermediate_size is the width of both gates together (Qwen 1)
  bool shared_routed = false;  ///< a shared expert as wide as a routed one (Llama 4)
  int kv_heads = 0;
  int length = 0;
  bool post_norms = false;
  std::string block = "sequential";  ///< arrangement of attention and MLP in a layer
  std::string block_key;             ///< key that is true if they are parallel
  bool has_windows = false;          ///< attention has windows if the file gives one
  int window = 0;                    ///< default window
  int full_every = 0;                ///< every n-th layer has no window; 0: all have one
  bool windows_off = false;          ///< use_sliding_window enables them, from max_window_layers on
  JsonValue defaults;                ///< sizes that a part of another configuration may omit
};

/// The families of transformers that are supported, and those that are not, with the reason: the "families" of
/// import/keys/hugging_face.json.
struct HuggingFaceFamilies {
  std::map<std::string, HuggingFaceFamily> known;
  std::map<std::string, std::string> refused;
};
const HuggingFaceFamilies& hugging_face_families();

/// Reads a config.json, or the text part of one.
class HuggingFaceReader {
 public:
  HuggingFaceReader(const nlohmann::json& values, const std::string& pointer, const std::string& file,
                    const ImportContext& context)
      : object_(JsonReader::foreign(values, pointer, file)), context_(context) {}

  ImportedJob read();

 private:
  using Keys = std::initializer_list<const char*>;

  /// The first of these keys, alternative names of one size, that is set; nothing if all are absent or null.
  std::optional<int> whole(Keys keys, int smallest = 1);
  std::optional<int> unsaid(Keys keys);
  std::optional<bool> boolean(Keys keys);
  /// Like whole(), but falls back to flags and throws if they do not set it either.
  int required(Keys keys, const std::string& field);
  std::string key_of(Keys keys) const;
  void put(const std::string& field, nlohmann::json value, const std::string& key);
  void warn_of(const std::string& key, const std::string& how) {
    const std::string& pointer = object_.pointer();
    out_.warn_of(pointer.empty() ? key : pointer.substr(1) + "/" + key, object_.place(key), how);
  }

  void choose_family();
  void refuse_patterns();
  void read_attention();
  void read_key_value_heads(int heads);
  void read_mlp();
  void read_block();
  void read_biases();
  void read_norm_and_positions();
  void read_sequence_length();
  void read_experts();
  void read_expert_layers(ForeignExperts& experts);
  void read_latent_attention();
  void read_dropout();
  void read_windows();
  void read_local_layers(const nlohmann::json& types, int layers);
  int windowed_layers(int layers);
  void warn_multi_token();
  void warn_other_towers();

  JsonReader object_;
  const ImportContext& context_;
  ImportedJob out_;
  std::string type_;
  HuggingFaceFamily family_;
  std::optional<JsonReader> attention_;  ///< attn_config of MPT and DBRX
  std::optional<JsonReader> mlp_;        ///< ffn_config of DBRX
  int hidden_ = 0;
};

}  // namespace flopcast
