#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

#include "model/config/object_reader.hpp"
#include "model/job.hpp"
#include "model/job/device_profile.hpp"
#include "model/workload/transformer.hpp"

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
/// Needs job.model or job.profile, and job.cluster.
Training read_training(ObjectReader& root, const DeviceProfile* profile, Job& job, const Origins& origins);
/// Nothing where the job says nothing of failures.
std::optional<Failures> read_failures(ObjectReader& root, Job& job, const Origins& origins);
/// A network's name or an object; its keys are network_fields().
Network read_network(const nlohmann::json& given, const Origins& origins);
/// Builds the cluster's network to find what is wrong with it, and says in the assumptions what was chosen.
void check_network(const Cluster& cluster, const Origins& origins, std::vector<std::string>& assumptions);
/// Needs job.cluster: dp defaults to the devices left over.
void read_layout(ObjectReader& root, Job& job, const Origins& origins);

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

/// Whether a model section lists measured layers: its "layers" is a list, not a number.
bool lists_measured_layers(const nlohmann::json& model);

/// Reads {"layers": [{"name", "forward_s", "backward_s" or "input_gradient_s" and "weight_gradient_s",
/// "activation_bytes", "output_bytes", "parameter_bytes"}], "measured_on", "micro_batch_size", "precision",
/// "sequence_length"}. Times in seconds, all of one microbatch. Only names, forward_s and a backward time are required.
/// A backward time alone is split in halves where a layer has parameters (of a convolution or a linear both gradients
/// cost one forward product) and belongs to the input gradient where it has none.
LayerProfile read_profile(const nlohmann::json& model, Job& job, const Origins& origins);

/// The training section of a profile: its tokens a sample, and the precision it was measured in. Another value would
/// change times that nobody measured, so it is refused.
void check_profile_training(const ObjectReader& training_reader, int sequence_length, const LayerProfile& profile,
                            Job& job);
Precision profile_precision(const ObjectReader& training_reader, std::optional<Precision> given,
                            const LayerProfile& profile);

/// PipeDream's graph.txt. A line per layer,
///   node1 -- Conv2d(…) -- forward_compute_time=1.2, backward_compute_time=2.4, activation_size=…, parameter_size=…
/// (milliseconds, bytes, fp32; a size may be a list [a; b]), then a line per edge, indented: node1 -- node2.
/// Throws ConfigError with file:line.
LayerGraph read_layer_graph(std::string_view text, std::string_view file);

/// The same as a model section that read_profile reads. The graph is put in a row: topological order, the smaller node
/// number first where the graph leaves a choice. A stage then holds consecutive layers, and what a later stage needs
/// passes through every stage between. Nodes called Input are left out: their time is that of loading data.
nlohmann::json profile_from_graph(std::string_view text, std::string_view file);

}  // namespace flopcast
