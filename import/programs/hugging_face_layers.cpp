// Layer-dependent parts of a Hugging Face config.json (experts and windows), and latent attention.

#include "import/programs/hugging_face_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

namespace flopcast {
namespace {

constexpr int kMostConfiguredLayers = 100'000;

}  // namespace

const HuggingFaceFamilies& hugging_face_families() {
  static const HuggingFaceFamilies all = [] {
    HuggingFaceFamilies found;
    for (const EmbeddedFile& file : embedded_keys()) {
      if (file.path != "hugging_face.json") continue;
      const nlohmann::json table = parse_json(file.text, std::string(file.path));
      for (const auto& group : table.at("families").items()) {
        const nlohmann::json& said = group.value();
        HuggingFaceFamily family;
        family.gated = said.value("gated", true);
        family.layernorm = said.value("norm", "rmsnorm") == "layernorm";
        family.norm_key = said.value("norm_key", "");
        family.biases = said.value("biases", "none");
        family.positions = said.value("positions", "rotary");
        family.tied = said.value("tied", false);
        family.qk_norm = said.value("qk_norm", false);
        family.whole_qk_norm = said.value("whole_qk_norm", false);
        family.attention_sinks = said.value("attention_sinks", false);
        family.embedding_norm = said.value("embedding_norm", false);
        family.causal = said.value("causal", true);
        family.dropout = said.value("dropout", false);
        family.halved_ffn = said.value("halved_ffn", false);
        family.shared_routed = said.value("shared_routed", false);
        family.kv_heads = said.value("kv_heads", 0);
        family.length = said.value("length", 0);
        family.post_norms = said.value("post_norms", false);
        family.block = said.value("block", "sequential");
        family.block_key = said.value("block_key", "");
        family.has_windows = said.contains("window");
        family.window = said.value("window", 0);
        family.full_every = said.value("full_every", 0);
        family.windows_off = said.value("windows_off", false);
        family.defaults = said.value("defaults", nlohmann::json::object());
        std::istringstream names(group.key());
        for (std::string name; names >> name;) found.known[name] = family;
      }
      for (const auto& group : table.at("refused_families").items()) {
        std::istringstream names(group.value().get<std::string>());
        for (std::string name; names >> name;) found.refused[name] = group.key();
      }
    }
    return found;
  }();
  return all;
}

// Number of layers with a window: from lists and patterns if given, else from the family.
int HuggingFaceReader::windowed_layers(int layers) {
  const nlohmann::json* types = object_.find("layer_types");
  if (types != nullptr && types->is_array() && !types->empty()) {
    return static_cast<int>(std::count_if(types->begin(), types->end(), [](const nlohmann::json& type) {
      return type == "sliding_attention" || type == "chunked_attention";
    }));
  }
  // Llama 4: 1 marks layers with positions, whose attention is chunked.
  const nlohmann::json* rotated = object_.find("no_rope_layers");
  if (rotated != nullptr && rotated->is_array() && !rotated->empty() && object_.has("attention_chunk_size"))
    return static_cast<int>(std::count(rotated->begin(), rotated->end(), nlohmann::json(1)));
  // A repeating pattern such as "LLLG".
  const nlohmann::json* written = object_.find("sliding_window_pattern");
  if (written != nullptr && written->is_string() && !written->get<std::string>().empty()) {
    const std::string period = written->get<std::string>();
    int found = 0;
    for (int layer = 0; layer < layers; ++layer)
      found += period[static_cast<std::size_t>(layer) % period.size()] == 'L' ? 1 : 0;
    return found;
  }
  std::optional<int> every;
  for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern", "no_rope_layer_interval"}) {
    const nlohmann::json* value = object_.find(key);
    if (value != nullptr && value->is_number_integer() && !every) every = object_.whole(key, 1);
  }
  const int full_every = every.value_or(family_.full_every);
  const int from = whole({"max_window_layers"}, 0).value_or(0);
  if (family_.windows_off) return std::max(0, layers - from);
  return full_every > 0 ? layers - layers / full_every : layers;
}

void HuggingFaceReader::read_windows() {
  const Keys sliding = {"sliding_window", "sliding_window_size"};
  const auto written = whole(sliding, 0);
  const auto chunk = whole({"attention_chunk_size"}, 0);
  const bool used = boolean({"use_sliding_window"}).value_or(!family_.windows_off);
  const bool is_null = object_.values().contains("sliding_window") && !written;
  const int layers = std::clamp(out_.whole("model.layers"), 0, kMostConfiguredLayers);
  const int windowed = windowed_layers(layers);
  if (const nlohmann::json* local = object_.find("attention_types"); local != nullptr && type_ == "gpt_neo")
    return read_local_layers(*local, layers);
  const bool is_chunk = chunk.value_or(0) > 0;
  const int window = is_chunk ? *chunk : written.value_or(is_null ? 0 : family_.window);
  if (window == 0 || !used || windowed == 0 || out_.job["model"].value("causal", true) == false) return;
  const std::string key = is_chunk ? "attention_chunk_size" : key_of(sliding);
  if (!family_.has_windows) {
    warn_of(key, fmt::format("the layers of \"{}\" with a window of {} are not known: attention is counted over the "
                             "whole sequence; give --model.sliding_window {} and --model.windowed_layers N",
                             type_, window, window));
    return;
  }
  put(is_chunk ? "model.attention_chunk" : "model.sliding_window", window, key);
  if (windowed < layers)
    put("model.windowed_layers", windowed,
        key_of({"layer_types", "sliding_window_pattern", "max_window_layers", "model_type"}));
}

// GPT-Neo: [[["global", "local"], 12]], with a window of 256.
void HuggingFaceReader::read_local_layers(const nlohmann::json& types, int layers) {
  constexpr int kUsualWindow = 256;
  const int window = object_.whole("window_size", 1).value_or(kUsualWindow);
  std::int64_t local = 0;
  for (const nlohmann::json& group : types) {
    const bool is_group = group.is_array() && group.size() == 2 && group[0].is_array() && group[1].is_number_unsigned();
    if (!is_group || group[1] > kMostConfiguredLayers)
      object_.fail("attention_types", "must be a list of kinds and repetitions",
                   "expected [[[\"global\", \"local\"], 12]]");
    local += group[1].get<std::int64_t>() * std::count(group[0].begin(), group[0].end(), nlohmann::json("local"));
  }
  if (local == 0) return;
  put("model.sliding_window", window, key_of({"window_size"}));
  put("model.windowed_layers", std::min<std::int64_t>(local, layers), "attention_types");
}

void HuggingFaceReader::warn_multi_token() {
  for (const char* key : {"num_nextn_predict_layers", "mtp_num_hidden_layers"}) {
    const auto predicted = object_.whole(key, 0);
    if (predicted.value_or(0) > 0)
      warn_of(
          key,
          fmt::format("the {} layers for multi-token prediction are not counted; give --model.mtp_layers to count them",
                      *predicted));
  }
}

void HuggingFaceReader::read_expert_layers(ForeignExperts& experts) {
  const auto dense = whole({"first_k_dense_replace", "moe_layer_start_index"}, 0);
  experts.first_dense = dense.value_or(0);
  const auto step = whole({"decoder_sparse_step", "interleave_moe_layer_step"}, 1);
  experts.every = step.value_or(1);
  for (const char* key : {"moe_layer_freq", "mlp_layer_types"}) {
    const nlohmann::json* pattern = object_.find(key);
    if (pattern == nullptr) continue;
    if (pattern->is_number_integer()) {
      experts.every = std::max(1, pattern->get<int>());
      continue;
    }
    std::vector<int> layers;
    if (pattern->is_array()) {
      for (const nlohmann::json& layer : *pattern) layers.push_back(layer == 0 || layer == "dense" ? 0 : 1);
    }
    if (!put_layer_pattern(layers, experts)) {
      object_.fail(key, "has experts in layers that neither follow dense ones nor repeat (not modelled)",
                   "give --model.experts.first_dense_layers N or --model.experts.every N");
    }
  }
  // Lists of layer numbers, either without experts or with them.
  for (const char* key : {"mlp_only_layers", "moe_layers"}) {
    const nlohmann::json* listed = object_.find(key);
    if (listed == nullptr || !listed->is_array() || listed->empty()) continue;
    const bool is_dense = std::string_view(key) == "mlp_only_layers";
    const int count = out_.whole("model.layers");
    std::vector<int> layers(static_cast<std::size_t>(std::clamp(count, 0, kMostConfiguredLayers)), is_dense ? 1 : 0);
    for (const nlohmann::json& layer : *listed) {
      const bool inside = layer.is_number_integer() && layer >= 0 && layer < layers.size();
      if (inside) layers[layer.get<std::size_t>()] = is_dense ? 0 : 1;
    }
    if ((is_dense && experts.every > 1) || !put_layer_pattern(layers, experts))
      warn_of(key, "these layers are counted like the others");
  }
}

void HuggingFaceReader::read_experts() {
  ForeignExperts experts;
  const Keys counts = {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts",
                       "moe_num_routed_experts"};
  std::string key = key_of(counts);
  auto count = whole(counts, 0);
  if (mlp_ && !count) {
    count = mlp_->whole("moe_num_experts", 0);
    key = "ffn_config";
  }
  const Keys choices = {"num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk", "moe_k",
                        "experts_per_token"};
  auto top_k = whole(choices, 0);
  if (mlp_ && !top_k) top_k = mlp_->whole("moe_top_k", 0);
  experts.ffn = whole({"moe_intermediate_size"}, 0);
  const auto shared =
      whole({"n_shared_experts", "moe_num_shared_experts", "num_shared_experts", "num_shared_expert"}, 0);
  const auto shared_ffn =
      whole({"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"}, 0);
  experts.groups = whole({"n_group"}, 0).value_or(0);
  experts.group_top_k = whole({"topk_group"}, 0).value_or(experts.groups);
  // DeepSeek-V2-Lite's "greedy" chooses from all experts, regardless of n_group.
  if (object_.text("topk_method").value_or("") == "greedy" || experts.group_top_k == 0) experts.groups = 0;
  read_expert_layers(experts);
  // Files of these families with 0 or 1 experts describe dense models.
  if (count.value_or(0) <= 1 || (top_k && *top_k == 0)) return;
  if (!top_k) object_.fail_missing(*choices.begin(), "give the number of experts per token");
  if (*top_k > *count) {
    object_.fail(key_of(choices), fmt::format("{} exceeds the {} experts", *top_k, *count),
                 "a token can use at most all of them");
  }
  experts.count = *count;
  experts.top_k = *top_k;
  experts.shared = shared.value_or(0);
  if (shared_ffn.value_or(0) > 0) {
    experts.shared = std::max(experts.shared, 1);
    experts.shared_ffn = *shared_ffn / experts.shared;
  }
  if (family_.shared_routed) experts.shared = 1;
  if (!experts.ffn || *experts.ffn == 0) {
    const auto width = object_.has("intermediate_size_mlp") ? object_.whole("intermediate_size", 1) : std::nullopt;
    experts.ffn = width ? *width : out_.whole("model.ffn");
  }
  put_experts(experts, object_.place(key), out_);
  if (family_.attention_sinks) put("model.experts.router_bias", true, "model_type");
}

void HuggingFaceReader::read_latent_attention() {
  const auto kv_rank = object_.whole("kv_lora_rank", 1);
  if (!kv_rank) return;
  const auto required_width = [this](const char* key) {
    const auto width = object_.whole(key, 1);
    if (!width) object_.fail_missing(key, "required for latent attention (kv_lora_rank)");
    return *width;
  };
  ForeignLatentAttention attention;
  attention.kv_rank = *kv_rank;
  attention.q_rank = object_.whole("q_lora_rank", 1);
  attention.qk_nope_dim = required_width("qk_nope_head_dim");
  attention.qk_rope_dim = required_width("qk_rope_head_dim");
  attention.v_dim = object_.has("v_head_dim") ? required_width("v_head_dim") : attention.qk_nope_dim;
  // For this family transformers repeats the rotary width as head_dim, which is not the width of a head.
  out_.job["model"].erase("head_dim");
  out_.places.erase("model.head_dim");
  put_latent_attention(attention, object_.place("kv_lora_rank"), out_);
}

}  // namespace flopcast
