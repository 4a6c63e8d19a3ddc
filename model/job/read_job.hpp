#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "model/config/object_reader.hpp"
#include "model/job.hpp"
#include "model/job/device_profile.hpp"

namespace flopcast {

/// Reads a job; job_keys() lists every key. `root` is the job file's JSON with flags laid over it.
/// Fills in defaults, noting those that matter in `assumptions`; throws ConfigError.
/// What depends on the schedule (stages per rank) is checked by prepare (sim/forecast) once the schedule is known.
Job read_job(const nlohmann::json& root, const Origins& origins);

/// The readers of single sections. Each takes the root object, so that a section may be a name or an object.
/// `assumptions` gains what the description left out and the device's generation answers, and what the profile gives.
/// `profile` may be null.
Transformer read_model(ObjectReader& root, Job& job, const Origins& origins);
Cluster read_cluster(ObjectReader& root, const DeviceProfile* profile, std::vector<std::string>& assumptions,
                     const Origins& origins);
Device read_device(const nlohmann::json& value, const std::string& field, std::vector<std::string>& assumptions,
                   const Origins& origins);
/// Nothing where the job says nothing of failures.
std::optional<Failures> read_failures(ObjectReader& root, Job& job, const Origins& origins);
/// A network's name or an object; its keys are network_fields().
Network read_network(const nlohmann::json& given, const Origins& origins);
/// Builds the cluster's network to find what is wrong with it, and says in the assumptions what was chosen.
void check_network(const Cluster& cluster, const Origins& origins, std::vector<std::string>& assumptions);
/// Needs job.cluster: dp defaults to the devices left over.
void read_layout(ObjectReader& root, Job& job, const Origins& origins);

/// Refuses what a search would choose otherwise but no layout of a layer profile can have, where the job says it:
/// sequence parallelism and selective recomputation.
void check_profile_choices(const ObjectReader& reader, const Job& job);

/// Refuses a depth of what is no 2.5d grid.
void check_tensor_depth(const ObjectReader& reader, const Layout& layout);

/// Whether a model object needs no catalogue entry and no file: it tells the shape of a transformer, or lists layers.
bool tells_whole_model(const nlohmann::json& model);

/// The catalogue's stack as a device of that generation runs it; nothing where the catalogue has none of the name.
std::optional<Stack> catalogue_stack(const std::string& name, GpuGeneration generation);

/// The job as a job file that needs no other file: read back it gives the same forecast, bit for bit. A device profile
/// has become the cluster's figures and curves, a schedule's file its rows; a stack of the catalogue goes by its name,
/// another is told in full.
nlohmann::ordered_json job_json(const Job& job);

/// The stack in full, whether the catalogue has it or not.
nlohmann::ordered_json stack_json(const Stack& stack);

}  // namespace flopcast
