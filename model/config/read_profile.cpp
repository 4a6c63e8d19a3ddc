#include "model/config/read_profile.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

constexpr int kLargestBatch = 1'000'000'000;
constexpr int kLongestSequence = 100'000'000;
constexpr std::size_t kMostLayers = 65'535;

std::optional<double> amount(ObjectReader& reader, std::string_view key) {
  const nlohmann::json* value = reader.find(key);
  if (value == nullptr) return std::nullopt;
  const std::string expected = "expected a number of 0 or more, in the unit the key names";
  if (!value->is_number()) reader.fail(key, fmt::format("{} is not a number", value->dump()), expected);
  const double number = value->get<double>();
  if (!std::isfinite(number) || number < 0) reader.fail(key, fmt::format("{} is out of range", number), expected);
  return number;
}

void read_backward(ObjectReader& reader, ProfiledLayer& layer) {
  const auto whole = amount(reader, "backward_s");
  const auto input = amount(reader, "input_gradient_s");
  const auto weight = amount(reader, "weight_gradient_s");
  if (whole && (input || weight)) {
    reader.fail("backward_s", "is given beside one of its parts",
                "give backward_s, or input_gradient_s and weight_gradient_s");
  }
  if (!whole && !input) reader.fail_missing("backward_s", "give backward_s, or input_gradient_s and weight_gradient_s");
  if (input) {
    layer.input_gradient = Seconds(*input);
    layer.weight_gradient = Seconds(weight.value_or(0.0));
    return;
  }
  layer.weight_gradient = Seconds(layer.parameters > 0 ? 0.5 * *whole : 0.0);
  layer.input_gradient = Seconds(*whole) - layer.weight_gradient;
}

ProfiledLayer read_layer(const nlohmann::json& value, const std::string& field, Precision precision,
                         const Origins& origins) {
  ObjectReader reader(value, field, origins);
  ProfiledLayer layer;
  layer.name = reader.text("name").value_or("");
  const auto forward = amount(reader, "forward_s");
  if (!forward) reader.fail_missing("forward_s", "the forward time of one microbatch in seconds");
  layer.forward = Seconds(*forward);
  layer.activation = Bytes(amount(reader, "activation_bytes").value_or(0.0));
  layer.output = Bytes(amount(reader, "output_bytes").value_or(0.0));
  layer.parameters = amount(reader, "parameter_bytes").value_or(0.0) / element_size(precision).value();
  read_backward(reader, layer);
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
  profile.measured_on = reader.text("measured_on").value_or("");
  profile.micro_batch_size = reader.whole("micro_batch_size", 1, kLargestBatch);
  if (const auto precision = reader.choice("precision", precision_names())) {
    profile.precision = static_cast<Precision>(*precision);
  } else {
    job.assumptions.push_back("model.precision of the profile is fp32");
  }
  profile.sequence_length = reader.whole("sequence_length", 1, kLongestSequence).value_or(1);
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

void check_profile_layout(const ObjectReader& layout_reader, const Layout& layout) {
  const auto refuse_above_one = [&layout_reader](std::string_view key, int ranks, std::string_view what) {
    if (ranks == 1) return;
    layout_reader.fail(key,
                       fmt::format("{} {} ranks cannot share a layer that is known by its time alone", ranks, what),
                       "valid for a layer profile: 1");
  };
  refuse_above_one("tp", layout.tp, "tensor-parallel");
  refuse_above_one("cp", layout.cp, "context-parallel");
  if (layout.sequence_parallel)
    layout_reader.fail("sequence_parallel", "true needs tensor parallelism, which a layer profile has not",
                       "valid for a layer profile: false");
  if (layout.recompute == Recompute::kSelective)
    layout_reader.fail("recompute",
                       "selective recomputation is defined for transformer blocks, not for a layer profile",
                       "valid for a layer profile: none, full");
  if (layout.tensor_parallel != TensorParallel::k1d)
    layout_reader.fail("tensor_parallel", "a grid of ranks cannot share a layer that is known by its time alone",
                       "valid for a layer profile: 1d");
  const bool between_updates = layout.data_parallel == DataParallel::kDdp ||
                               layout.data_parallel == DataParallel::kPs ||
                               layout.data_parallel == DataParallel::kByteps;
  if (!between_updates)
    layout_reader.fail("data_parallel",
                       fmt::format("{} communicates inside the passes, whose operators a layer profile does not know",
                                   data_parallel_names()[static_cast<std::size_t>(layout.data_parallel)]),
                       "valid for a layer profile: ddp, ps, byteps");
  constexpr int kLargestZero = 1;
  if (layout.zero > kLargestZero)
    layout_reader.fail("zero",
                       fmt::format("{} communicates inside the passes, whose operators a layer profile does not "
                                   "know",
                                   layout.zero),
                       "valid for a layer profile: 0, 1");
  if (layout.offloads_activations())
    layout_reader.fail("offload", "activations of a layer profile cannot be offloaded",
                       "valid for a layer profile: none, optimizer");
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

Precision profile_precision(const ObjectReader& training_reader, std::optional<std::size_t> given,
                            const LayerProfile& profile) {
  if (given && static_cast<Precision>(*given) != profile.precision) {
    training_reader.fail("precision",
                         fmt::format("the profile was measured in {}, not in {}", name_of(profile.precision),
                                     name_of(static_cast<Precision>(*given))),
                         "leave it out: times that were measured do not change with it");
  }
  return profile.precision;
}

}  // namespace flopcast
