#pragma once

#include <nlohmann/json_fwd.hpp>

#include "model/config/device_profile.hpp"
#include "model/config/object_reader.hpp"
#include "model/job.hpp"

namespace flopcast {

/// The readers of a job's sections. Each takes the root object, so that a section may be a name or an object.
Transformer read_model(ObjectReader& root, Job& job, const Origins& origins);
/// `assumptions` gains what the description left out and the device's generation answers, and what the profile gives.
/// `profile` may be null.
Cluster read_cluster(ObjectReader& root, const DeviceProfile* profile, std::vector<std::string>& assumptions,
                     const Origins& origins);
Device read_device(const nlohmann::json& value, const std::string& field, std::vector<std::string>& assumptions,
                   const Origins& origins);
Training read_training(ObjectReader& root, Job& job, const Origins& origins);
/// Needs job.cluster: dp defaults to the devices left over.
Layout read_layout(ObjectReader& root, Job& job, const Origins& origins);

}  // namespace flopcast
