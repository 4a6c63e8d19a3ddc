#include "model/job/read_profile.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "model/job/fields.hpp"

namespace flopcast {

namespace {

constexpr std::size_t kMostLayers = 65'535;

// A backward time in one goes by halves to its parts where the layer has parameters.
void settle_backward(ObjectReader& reader, ProfiledLayer& layer) {
  constexpr const char* kForms = "give backward_s, or input_gradient_s and weight_gradient_s";
  const auto whole = reader.amount("backward_s");
  const bool has_input = reader.has("input_gradient_s");
  if (whole && (has_input || reader.has("weight_gradient_s"))) {
    reader.fail("backward_s", "is given beside one of its parts", kForms);
  }
  if (!whole && !has_input) reader.fail_missing("backward_s", kForms);
  if (has_input) return;
  layer.weight_gradient = Seconds(layer.parameters > 0 ? 0.5 * *whole : 0.0);
  layer.input_gradient = Seconds(*whole) - layer.weight_gradient;
}

ProfiledLayer read_layer(const nlohmann::json& value, const std::string& field, Precision precision,
                         const Origins& origins) {
  ObjectReader reader(value, field, origins);
  ProfiledLayer layer;
  read_fields(profiled_layer_fields(), reader, &layer);
  layer.parameters = reader.amount("parameter_bytes").value_or(0.0) / element_size(precision).value();
  settle_backward(reader, layer);
  reader.refuse_unknown_keys();
  return layer;
}

}  // namespace

bool lists_measured_layers(const nlohmann::json& model) {
  const auto layers = model.is_object() ? model.find("layers") : model.end();
  return layers != model.end() && layers->is_array();
}

LayerProfile read_profile(const nlohmann::json& model, Job& job, const Origins& origins) {
  ObjectReader reader(model, "model", origins);
  LayerProfile profile;
  job.model.name = reader.text("name").value_or("inline");
  read_fields(layer_profile_fields(), reader, &profile);
  if (!reader.has("precision")) job.assumptions.push_back("model.precision of the profile is fp32");
  const nlohmann::json& layers = *reader.find("layers");
  reader.refuse_unknown_keys();
  if (layers.empty() || layers.size() > kMostLayers) {
    reader.fail("layers", fmt::format("lists {} layers", layers.size()), fmt::format("expected 1 to {}", kMostLayers));
  }
  for (std::size_t index = 0; index < layers.size(); ++index) {
    profile.layers.push_back(
        read_layer(layers[index], fmt::format("model.layers.{}", index), profile.precision, origins));
  }
  job.model.layers = static_cast<int>(profile.layers.size());
  job.assumptions.push_back(fmt::format("compute times are the profile's{}{}, whatever the cluster's device",
                                        profile.measured_on.empty() ? "" : ", measured on ", profile.measured_on));
  job.assumptions.push_back(
      profile.micro_batch_size
          ? fmt::format("times and bytes grow with the microbatch, from the {} samples that were measured",
                        *profile.micro_batch_size)
          : "the profile names no micro_batch_size: what it measured counts as one microbatch of this layout");
  job.assumptions.push_back("a profile has no FLOP count: TFLOP/s, MFU and HFU are given as 0");
  return profile;
}

void check_profile_training(const ObjectReader& training_reader, int sequence_length, const LayerProfile& profile,
                            Job& job) {
  if (sequence_length != profile.sequence_length) {
    training_reader.fail("sequence_length",
                         fmt::format("{} is not the profile's {}", sequence_length, profile.sequence_length),
                         "leave it out: what was measured cannot be stretched");
  }
  if (sequence_length == 1) job.assumptions.push_back("a sample of the profile counts as one token");
}

Precision profile_precision(const ObjectReader& training_reader, std::optional<Precision> given,
                            const LayerProfile& profile) {
  if (given && *given != profile.precision) {
    training_reader.fail(
        "precision",
        fmt::format("the profile was measured in {}, not in {}", name_of(profile.precision), name_of(*given)),
        "leave it out: times that were measured do not change with it");
  }
  return profile.precision;
}

}  // namespace flopcast
