#include "model/config/read_job.hpp"

#include <nlohmann/json.hpp>
#include <optional>

#include "model/config/read_profile.hpp"
#include "model/config/sections.hpp"

namespace flopcast {

namespace {

// training.profile, whose file the caller has put in place of its path.
std::optional<DeviceProfile> measured_profile(ObjectReader& root, const Origins& origins) {
  const nlohmann::json* training = root.find("training");
  if (training == nullptr || !training->is_object() || !training->contains("profile")) return std::nullopt;
  return read_device_profile(training->at("profile"), "training.profile", origins);
}

}  // namespace

Job read_job(const nlohmann::json& root, const Origins& origins) {
  Job job;
  job.origins = origins;
  ObjectReader reader(root, "", job.origins);
  // Unknown sections first: a misspelt "trainig" must not be reported as a missing default.
  for (const char* section : {"model", "cluster", "layout", "training"}) reader.find(section);
  reader.refuse_unknown_keys();
  const nlohmann::json* model = reader.find("model");
  if (model != nullptr && lists_measured_layers(*model)) {
    job.profile = read_profile(*model, job, job.origins);
  } else {
    job.model = read_model(reader, job, job.origins);
  }
  const std::optional<DeviceProfile> measured = measured_profile(reader, job.origins);
  job.cluster = read_cluster(reader, measured ? &*measured : nullptr, job.assumptions, job.origins);
  job.training = read_training(reader, job, job.origins);
  job.layout = read_layout(reader, job, job.origins);
  return job;
}

}  // namespace flopcast
