#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/job/fields.hpp"
#include "model/job/read_job.hpp"

namespace flopcast {

namespace {

constexpr std::int64_t kLargestProjection = 1'000'000'000;  // heads · head_dim, so that shapes fit their integers

// The values to read: an inline object, a catalogue entry, or an entry with some keys overridden ({"name": …, "layers":
// 4}).
nlohmann::json model_values(ObjectReader& root, const Origins& origins) {
  const nlohmann::json* value = root.find("model");
  const std::vector<std::string> names = catalogue_names(CatalogueKind::kModels);
  if (value == nullptr)
    root.fail_missing("model", "give --model NAME, such as llama3-70b or gpt3-175b; see: flopcast catalog models");
  if (!value->is_string() && !value->is_object()) {
    root.fail("model", fmt::format("{} is neither a name nor an object", value->dump()), choices_help("", names));
  }
  nlohmann::json values = nlohmann::json::object();
  if (value->is_string() || value->contains("name")) {
    const nlohmann::json& name = value->is_string() ? *value : value->at("name");
    const std::string text = name.is_string() ? name.get<std::string>() : name.dump();
    values = catalogue_values(CatalogueKind::kModels, text);
    // An inline model with a complete shape may have a new name.
    if (values.is_null() && is_complete_model(*value)) values = nlohmann::json::object();
    if (values.is_null()) {
      const std::string field = value->is_string() ? "model" : "model.name";
      throw ConfigError(
          {field, fmt::format("unknown model \"{}\"", text), origins.where(field), choices_help(text, names)});
    }
  }
  if (value->is_object()) {
    for (const auto& item : value->items()) {
      // Single figures within the parts of a model ("experts", "mla") may be overridden too.
      const bool part = item.value().is_object() && values.contains(item.key()) && values[item.key()].is_object();
      if (part) {
        values[item.key()].update(item.value());
      } else {
        values[item.key()] = item.value();
      }
    }
  }
  return values;
}

// Zero or one group means no group routing, even if the catalogue's model chooses a group_top_k.
void settle_groups(const ObjectReader& reader, Experts& experts) {
  if (experts.groups <= 1) {
    if (experts.group_top_k > 0 && !reader.has("groups")) {
      reader.fail("group_top_k", "has no effect without groups", "give groups as well");
    }
    experts.groups = experts.group_top_k = 0;
    return;
  }
  if (experts.count % experts.groups != 0) {
    reader.fail("groups", fmt::format("{} groups do not divide {} experts", experts.groups, experts.count),
                "expected a divisor of count");
  }
  if (experts.group_top_k < 1 || experts.group_top_k > experts.groups) {
    reader.fail("group_top_k", fmt::format("cannot choose {} of {} groups", experts.group_top_k, experts.groups),
                fmt::format("expected a whole number from 1 to {}", experts.groups));
  }
  const int left = experts.count / experts.groups * experts.group_top_k;
  if (experts.top_k > left) {
    reader.fail("group_top_k", fmt::format("leaves only {} experts to choose {} from", left, experts.top_k),
                fmt::format("expected a larger group_top_k, or a top_k of at most {}", left));
  }
}

// {"count": 8, "top_k": 2, "ffn": 14336, "shared": 0, "shared_ffn": 0, "first_dense_layers": 0, "every": 1}
Experts read_experts(ObjectReader& reader, const Transformer& model, Job& job) {
  Experts experts;
  read_fields(experts_fields(), reader, experts);
  reader.refuse_unknown_keys();
  if (experts.top_k > experts.count) {
    reader.fail("top_k", fmt::format("cannot choose {} of {} experts", experts.top_k, experts.count),
                fmt::format("expected at most {}", experts.count));
  }
  if (experts.first_dense_layers > model.layers) {
    reader.fail("first_dense_layers", fmt::format("{} is out of range", experts.first_dense_layers),
                fmt::format("expected a whole number from 0 to {}", model.layers));
  }
  settle_groups(reader, experts);
  if (experts.shared_ffn == 0) {
    experts.shared_ffn = experts.ffn;
    if (experts.shared > 0) {
      job.assumptions.push_back(fmt::format("model.experts.shared_ffn is that of the routed experts, {}", experts.ffn));
    }
  }
  if (experts.capacity_factor && experts.imbalance > 0.0) {
    reader.fail("imbalance", "conflicts with capacity_factor, which fixes the rows per expert", "omit one of the two");
  }
  if (experts.imbalance > 0.0) {
    job.assumptions.push_back(fmt::format(
        "the loads of experts vary by {:.0f} %: each layer waits for the fullest rank", 1e2 * experts.imbalance));
  } else {
    job.assumptions.emplace_back(
        experts.capacity_factor
            ? "experts are evenly loaded: capacity_factor adds padding if above 1 and drops tokens if below"
            : "experts are evenly loaded: no imbalance, no dropped tokens");
  }
  return experts;
}

// {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}, with
// the key names of DeepSeek's configurations.
LatentAttention read_latent(ObjectReader& reader, const Transformer& model) {
  LatentAttention latent;
  read_fields(latent_fields(), reader, latent);
  reader.refuse_unknown_keys();
  if (model.qk_norm || model.biases || model.attention_bias) {
    reader.fail("kv_lora_rank", "latent attention with qk_norm or biases is not modelled", "leave them out");
  }
  return latent;
}

void settle_windows(const ObjectReader& reader, Transformer& model) {
  const bool has_window = model.sliding_window > 0 || model.attention_chunk > 0;
  if (model.sliding_window > 0 && model.attention_chunk > 0) {
    reader.fail("attention_chunk", "conflicts with sliding_window",
                "give only one: a layer has either a window or chunks");
  }
  if (has_window && !model.causal) {
    reader.fail(model.sliding_window > 0 ? "sliding_window" : "attention_chunk",
                "is not modelled for non-causal attention", "leave it out, or set causal to true");
  }
  if (!reader.has("windowed_layers") && has_window) model.windowed_layers = model.layers;
  if (model.windowed_layers == 0) return;
  if (!has_window) {
    reader.fail("windowed_layers", "needs a window or chunks", "give sliding_window or attention_chunk, in tokens");
  }
  if (model.windowed_layers > model.layers) {
    reader.fail("windowed_layers", fmt::format("{} is out of range", model.windowed_layers),
                fmt::format("expected a whole number from 0 to {}", model.layers));
  }
}

}  // namespace

bool is_complete_model(const nlohmann::json& model) {
  return lists_measured_layers(model) || (model.is_object() && model.contains("layers") && model.contains("hidden") &&
                                          model.contains("heads") && model.contains("vocab"));
}

Transformer read_model(ObjectReader& root, Job& job, const Origins& origins) {
  const nlohmann::json values = model_values(root, origins);
  ObjectReader reader(values, "model", origins);
  Transformer model;
  model.name = "inline";
  read_fields(transformer_fields(), reader, model);
  reader.refuse_unknown_keys();
  const auto otherwise = [&reader](const char* key, auto& member, auto value) {
    if (!reader.has(key)) member = value;
  };
  otherwise("kv_heads", model.kv_heads, model.heads);
  if (!reader.has("head_dim") && model.hidden % model.heads != 0) {
    reader.fail("heads", fmt::format("{} does not divide hidden {}", model.heads, model.hidden),
                "give head_dim, or a number of heads that divides hidden");
  }
  otherwise("head_dim", model.head_dim, model.hidden / model.heads);
  if (model.heads % model.kv_heads != 0) {
    reader.fail("kv_heads", fmt::format("{} does not divide heads {}", model.kv_heads, model.heads),
                "give a divisor of heads, or leave it out for one per head");
  }
  if (static_cast<std::int64_t>(model.heads) * model.head_dim > kLargestProjection) {
    reader.fail("head_dim", fmt::format("heads {} · head_dim {} is too wide", model.heads, model.head_dim),
                fmt::format("the product may be at most {}", kLargestProjection));
  }
  otherwise("biases", model.biases, model.norm == Norm::kLayerNorm);
  otherwise("attention_bias", model.attention_bias, model.biases);
  if (model.biases && !model.attention_bias) {
    reader.fail("attention_bias", "is false, but biases is true",
                "set biases to false: true means biases on every linear");
  }
  if (model.whole_qk_norm && !model.qk_norm) {
    reader.fail("whole_qk_norm", "is true, but qk_norm is false", "set qk_norm to true as well");
  }
  otherwise("dropout", model.dropout, model.norm == Norm::kLayerNorm);
  settle_windows(reader, model);
  if (auto experts = reader.object("experts")) model.experts = read_experts(*experts, model, job);
  if (auto latent = reader.object("mla")) model.latent = read_latent(*latent, model);
  otherwise("ffn", model.ffn, 4 * model.hidden);
  const bool has_dense_layers = model.expert_layers(0, model.layers) < model.layers;
  if (!reader.has("ffn") && has_dense_layers) {
    job.assumptions.push_back(fmt::format("model.ffn is 4 · hidden = {}", model.ffn));
  }
  return model;
}

}  // namespace flopcast
