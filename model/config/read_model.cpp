#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/config/sections.hpp"

namespace flopcast {

namespace {

constexpr int kLargestLayers = 100'000;
constexpr int kLargestWidth = 10'000'000;
constexpr std::int64_t kLargestProjection = 1'000'000'000;  // heads · head_dim, so that shapes fit their integers

// The values to read: an inline object, a catalogue entry, or an entry with some keys replaced ({"name": …, "layers":
// 4}).
nlohmann::json resolve(ObjectReader& root, const Origins& origins) {
  const nlohmann::json* value = root.find("model");
  const std::vector<std::string> names = catalogue_names(CatalogueKind::kModels);
  if (value == nullptr) root.fail_missing("model", fmt::format("give --model NAME; {}", choices_help("", names)));
  if (!value->is_string() && !value->is_object()) {
    root.fail("model", fmt::format("{} is neither a name nor an object", value->dump()), choices_help("", names));
  }
  nlohmann::json values = nlohmann::json::object();
  if (value->is_string() || value->contains("name")) {
    const nlohmann::json& name = value->is_string() ? *value : value->at("name");
    const std::string text = name.is_string() ? name.get<std::string>() : name.dump();
    values = catalogue_values(CatalogueKind::kModels, text);
    // An inline model that says everything may carry a name of its own.
    const bool complete = value->is_object() && value->contains("layers") && value->contains("hidden") &&
                          value->contains("heads") && value->contains("vocab");
    if (values.is_null() && complete) values = nlohmann::json::object();
    if (values.is_null()) {
      const std::string field = value->is_string() ? "model" : "model.name";
      throw ConfigError(
          {field, fmt::format("unknown model \"{}\"", text), origins.where(field), choices_help(text, names)});
    }
  }
  if (value->is_object()) {
    for (const auto& item : value->items()) {
      // Of the parts of a model ("experts", "mla") single figures may be replaced too.
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

// {"count": 8, "top_k": 2, "ffn": 14336, "shared": 0, "shared_ffn": 0, "first_dense_layers": 0, "every": 1}
Experts read_experts(ObjectReader& reader, const Transformer& model, Job& job) {
  constexpr int kMostExperts = 1'000'000;
  Experts experts;
  const auto count = reader.whole("count", 1, kMostExperts);
  if (!count) reader.fail_missing("count", "the number of routed experts in a layer");
  experts.count = *count;
  const auto top_k = reader.whole("top_k", 1, kMostExperts);
  if (!top_k) reader.fail_missing("top_k", "how many experts each token goes to");
  experts.top_k = *top_k;
  if (experts.top_k > experts.count) {
    reader.fail("top_k", fmt::format("{} of {} experts", experts.top_k, experts.count),
                fmt::format("at most {}", experts.count));
  }
  const auto ffn = reader.whole("ffn", 1, kLargestWidth);
  if (!ffn) reader.fail_missing("ffn", "the MLP width of one expert");
  experts.ffn = *ffn;
  experts.shared = reader.whole("shared", 0, kMostExperts).value_or(0);
  const auto shared_ffn = reader.whole("shared_ffn", 0, kLargestWidth);
  experts.shared_ffn = shared_ffn.value_or(0) > 0 ? *shared_ffn : experts.ffn;
  if (experts.shared > 0 && shared_ffn.value_or(0) == 0) {
    job.assumptions.push_back(fmt::format("model.experts.shared_ffn is that of the others, {}", experts.ffn));
  }
  experts.first_dense_layers = reader.whole("first_dense_layers", 0, model.layers).value_or(0);
  constexpr double kLargestCapacity = 1000.0;
  experts.capacity_factor = reader.fraction("capacity_factor", kLargestCapacity);
  experts.every = reader.whole("every", 1, kLargestLayers).value_or(1);
  reader.refuse_unknown_keys();
  job.assumptions.emplace_back(experts.capacity_factor
                                   ? "experts are evenly loaded: capacity_factor pads them above 1, drops tokens below"
                                   : "experts are evenly loaded: no imbalance, no dropped tokens");
  return experts;
}

// {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}: the
// names of DeepSeek's configurations.
LatentAttention read_latent(ObjectReader& reader, const Transformer& model) {
  LatentAttention latent;
  const auto required = [&reader](std::string_view key) {
    const auto number = reader.whole(key, 1, kLargestWidth);
    if (!number) reader.fail_missing(key, "latent attention needs it");
    return *number;
  };
  latent.query_rank = reader.whole("q_lora_rank", 0, kLargestWidth).value_or(0);
  latent.key_value_rank = required("kv_lora_rank");
  latent.nope_dim = required("qk_nope_head_dim");
  latent.rope_dim = required("qk_rope_head_dim");
  latent.value_dim = required("v_head_dim");
  reader.refuse_unknown_keys();
  if (model.qk_norm || model.biases || model.attention_bias) {
    reader.fail("kv_lora_rank", "latent attention with qk_norm or biases is not modelled", "leave them out");
  }
  return latent;
}

}  // namespace

Transformer read_model(ObjectReader& root, Job& job, const Origins& origins) {
  const nlohmann::json values = resolve(root, origins);
  ObjectReader reader(values, "model", origins);
  Transformer model;
  const auto required = [&reader](std::string_view key, int largest) {
    const auto number = reader.whole(key, 1, largest);
    if (!number) reader.fail_missing(key, "an inline model needs layers, hidden, heads, vocab and sequence_length");
    return *number;
  };
  model.name = reader.text("name").value_or("inline");
  reader.find("description");
  model.layers = required("layers", kLargestLayers);
  model.hidden = required("hidden", kLargestWidth);
  model.heads = required("heads", kLargestWidth);
  model.vocab = required("vocab", kLargestWidth);
  model.sequence_length = required("sequence_length", kLargestWidth);
  model.kv_heads = reader.whole("kv_heads", 1, kLargestWidth).value_or(model.heads);
  const auto head_dim = reader.whole("head_dim", 1, kLargestWidth);
  if (!head_dim && model.hidden % model.heads != 0) {
    reader.fail("heads", fmt::format("{} does not divide hidden {}", model.heads, model.hidden),
                "give head_dim, or heads that divide hidden");
  }
  model.head_dim = head_dim.value_or(model.hidden / model.heads);
  if (model.heads % model.kv_heads != 0) {
    reader.fail("kv_heads", fmt::format("{} does not divide heads {}", model.kv_heads, model.heads),
                "give a divisor of heads, or leave it out for one a head");
  }
  if (static_cast<std::int64_t>(model.heads) * model.head_dim > kLargestProjection) {
    reader.fail("head_dim", fmt::format("heads {} · head_dim {} is too wide", model.heads, model.head_dim),
                fmt::format("at most {} together", kLargestProjection));
  }
  model.gated_mlp = reader.boolean("gated_mlp").value_or(false);
  if (const auto norm = reader.choice("norm", norm_names())) model.norm = static_cast<Norm>(*norm);
  if (const auto kind = reader.choice("positions", position_names())) model.positions = static_cast<Positions>(*kind);
  model.biases = reader.boolean("biases").value_or(model.norm == Norm::kLayerNorm);
  model.attention_bias = reader.boolean("attention_bias").value_or(model.biases);
  if (model.biases && !model.attention_bias) {
    reader.fail("attention_bias", "is false, but biases is true", "set biases to false: it means every linear");
  }
  model.qk_norm = reader.boolean("qk_norm").value_or(false);
  model.dropout = reader.boolean("dropout").value_or(model.norm == Norm::kLayerNorm);
  model.causal = reader.boolean("causal").value_or(true);
  model.embedding_norm = reader.boolean("embedding_norm").value_or(false);
  model.tied_embeddings = reader.boolean("tied_embeddings").value_or(true);
  if (auto experts = reader.object("experts")) model.experts = read_experts(*experts, model, job);
  if (auto latent = reader.object("mla")) model.latent = read_latent(*latent, model);
  const auto ffn = reader.whole("ffn", 1, kLargestWidth);
  model.ffn = ffn.value_or(4 * model.hidden);
  const bool has_dense_layers = model.expert_layers(0, model.layers) < model.layers;
  if (!ffn && has_dense_layers) job.assumptions.push_back(fmt::format("model.ffn is 4 · hidden = {}", model.ffn));
  reader.refuse_unknown_keys();
  return model;
}

}  // namespace flopcast
