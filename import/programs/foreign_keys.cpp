#include "import/programs/foreign_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text/error.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

void has_no_effect(JsonReader& object, std::string_view key, const std::string& why, ImportedJob& imported) {
  if (object.find(key) == nullptr) return;
  imported.notes.push_back(fmt::format("{}: no effect: {}", object.place(key), why));
}

void note_unread(const JsonReader& object, ImportedJob& imported) {
  const std::vector<std::string> unread = object.unread();
  for (const std::string& key : unread) {
    // A slip of the pen in an optional key must not go by as one of many without effect.
    const std::vector<std::string> near = nearest_choices(key, object.asked());
    const auto slip = std::find_if(near.begin(), near.end(), [&](const std::string& name) {
      const std::size_t longer = std::max(name.size(), key.size());
      const std::size_t shorter = std::min(name.size(), key.size());
      constexpr std::size_t kLongestSlip = 2;
      constexpr std::size_t kSameStart = 2;
      return longer - shorter <= kLongestSlip && name.substr(0, kSameStart) == key.substr(0, kSameStart) &&
             !object.values().contains(name);
    });
    if (slip != near.end()) {
      imported.warnings.push_back(fmt::format("{}: unknown key; is \"{}\" meant?", object.place(key), *slip));
    }
  }
  if (unread.empty()) return;
  imported.notes.push_back(fmt::format("{}: no effect on the forecast: {}", object.place(), fmt::join(unread, ", ")));
}

void note_auto(const JsonReader& object, ImportedJob& imported) {
  std::vector<std::string> keys;
  for (const auto& item : object.values().items()) {
    if (item.value() == "auto") keys.push_back(item.key());
  }
  if (keys.empty()) return;
  imported.notes.push_back(fmt::format("{}: \"auto\" counts as not set: {}", object.place(), fmt::join(keys, ", ")));
}

void put_stack(const std::string& stack, const std::string& program, const std::string& place, ImportedJob& imported) {
  imported.put("training.stack", stack, place);
  imported.notes.push_back(fmt::format("training.stack is {}, for {}; give --stack NAME for another", stack, program));
}

void put_offload(const std::optional<std::string>& optimizer, const std::optional<std::string>& weights,
                 const std::string& place, ImportedJob& imported) {
  const auto is_on = [](const std::optional<std::string>& device) { return device && *device != "none"; };
  if (is_on(weights)) {
    imported.warnings.push_back(
        fmt::format("{}: weights in host memory are not modelled: the device keeps them", place));
  }
  if (is_on(optimizer)) {
    const bool activations = imported.has("layout.offload") && imported.job["layout"]["offload"] != "optimizer";
    imported.put("layout.offload", activations ? "all" : "optimizer", place);
  }
  if ((optimizer && *optimizer == "nvme") || (weights && *weights == "nvme")) {
    imported.warnings.push_back(fmt::format("{}: nvme is forecast as host memory", place));
  }
}

void put_activation_offload(const std::string& place, ImportedJob& imported) {
  const bool optimizer = imported.has("layout.offload") && imported.job["layout"]["offload"] != "activations";
  imported.put("layout.offload", optimizer ? "all" : "activations", place);
}

void put_bucket(double bytes, const std::string& place, ImportedJob& imported) {
  constexpr double kMebibyte = 1 << 20;
  constexpr double kLargest = 1e6;
  imported.put("layout.bucket_mb", static_cast<int>(std::min(kLargest, std::max(1.0, std::round(bytes / kMebibyte)))),
               place);
}

void put_optimizer(JsonReader& object, const std::string& key, ImportedJob& imported) {
  const auto name = object.text(key);
  if (!name) return;
  const std::string lower = lower_case(*name);
  const auto starts_with = [&lower](const char* start) { return lower.rfind(start, 0) == 0; };
  const bool compressed = starts_with("onebit") || starts_with("zeroone");
  if (starts_with("sgd")) {
    imported.put("training.optimizer", "sgd", object.place(key));
  } else if (!compressed && (starts_with("adam") || starts_with("fusedadam") || starts_with("deepspeedcpuadam") ||
                             starts_with("fused_adam") || starts_with("lamb"))) {
    const bool quantized = lower.find("8bit") != std::string::npos || lower.find("4bit") != std::string::npos;
    if (quantized) {
      imported.warnings.push_back(
          fmt::format("{}: \"{}\" is forecast with full Adam states", object.place(key), *name));
    }
    imported.put("training.optimizer", "adam", object.place(key));
  } else {
    object.fail(key, fmt::format("\"{}\" is not modelled", *name), "valid: Adam, AdamW, Lamb, SGD");
  }
}

void put_experts(const ForeignExperts& experts, const std::string& place, ImportedJob& imported) {
  if (experts.count == 0) return;
  nlohmann::json values = {{"count", experts.count}, {"top_k", experts.top_k}};
  if (experts.ffn) values["ffn"] = *experts.ffn;
  if (experts.shared > 0) values["shared"] = experts.shared;
  if (experts.shared > 0 && experts.shared_ffn) values["shared_ffn"] = *experts.shared_ffn;
  if (experts.first_dense > 0) values["first_dense_layers"] = experts.first_dense;
  if (experts.every != 1) values["every"] = experts.every;
  imported.put("model.experts", values, place);
}

void put_latent_attention(const ForeignLatentAttention& attention, const std::string& place, ImportedJob& imported) {
  nlohmann::json values = {{"kv_lora_rank", attention.kv_rank},
                           {"qk_nope_head_dim", attention.qk_nope_dim},
                           {"qk_rope_head_dim", attention.qk_rope_dim},
                           {"v_head_dim", attention.v_dim}};
  if (attention.q_rank) values["q_lora_rank"] = *attention.q_rank;
  imported.put("model.mla", values, place);
}

}  // namespace flopcast
