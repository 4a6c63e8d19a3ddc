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

/// Reads a job; job_keys() lists every key. `root` is the job file's JSON, overridden by flags. Fills in defaults and
/// notes those that matter in `assumptions`; throws ConfigError. Checks that depend on the schedule (stages per rank)
/// are made by prepare (sim/forecast) once it is known.
Job read_job(const nlohmann::json& root, const Origins& origins);

/// Readers of single sections. Each takes the root object, so that a section may be a name or an object. `assumptions`
/// receives the values taken from the device's generation and those set by the profile. `profile` may be null.
Transformer read_model(ObjectReader& root, Job& job, const Origins& origins);
Cluster read_cluster(ObjectReader& root, const DeviceProfile* profile, std::vector<std::string>& assumptions,
                     const Origins& origins);
Device read_device(const nlohmann::json& value, const std::string& field, std::vector<std::string>& assumptions,
                   const Origins& origins);
/// Needs job.model or job.profile, and job.cluster.
Training read_training(ObjectReader& root, const DeviceProfile* profile, Job& job, const Origins& origins);
/// Returns nothing if the job has no failures section.
std::optional<Failures> read_failures(ObjectReader& root, Job& job, const Origins& origins);
/// Reads a network given by name or as an object with the keys of network_fields().
Network read_network(const nlohmann::json& given, const Origins& origins);
/// Builds the cluster's network to report errors in it, and adds the chosen defaults to the assumptions.
void check_network(const Cluster& cluster, const Origins& origins, std::vector<std::string>& assumptions);
/// Needs job.cluster: dp defaults to all remaining devices.
void read_layout(ObjectReader& root, Job& job, const Origins& origins);

/// True if a model object needs neither a catalogue entry nor a file: it gives the shape of a transformer, or lists
/// layers.
bool is_complete_model(const nlohmann::json& model);

/// The catalogue's stack as run by devices of that generation; nothing if the catalogue does not have it.
std::optional<Stack> catalogue_stack(const std::string& name, GpuGeneration generation);

/// The job as a job file that needs no other files; reading it back gives bit-identical forecasts. A device profile is
/// replaced by the cluster's figures and curves, a schedule file by its rows; stacks of the catalogue are named, others
/// are written in full.
nlohmann::ordered_json job_json(const Job& job);

/// The stack in full, even if it is in the catalogue.
nlohmann::ordered_json stack_json(const Stack& stack);

/// True if a model section lists measured layers: its "layers" is a list, not a number.
bool lists_measured_layers(const nlohmann::json& model);

/// Reads {"layers": [{"name", "forward_s", "backward_s" or "input_gradient_s" and "weight_gradient_s",
/// "activation_bytes", "output_bytes", "parameter_bytes"}], "measured_on", "micro_batch_size", "precision",
/// "sequence_length"}. Times are in seconds, for one microbatch. Only names, forward_s and a backward time are
/// required. A single backward time is split in half if the layer has parameters (in a convolution or linear, each
/// gradient costs as much as the forward pass); otherwise all of it belongs to the input gradient.
LayerProfile read_profile(const nlohmann::json& model, Job& job, const Origins& origins);

/// Checks the training section against a profile's tokens per sample and precision. Other values are rejected, because
/// the measured times would no longer hold.
void check_profile_training(const ObjectReader& training_reader, int sequence_length, const LayerProfile& profile,
                            Job& job);
Precision profile_precision(const ObjectReader& training_reader, std::optional<Precision> given,
                            const LayerProfile& profile);

/// PipeDream's graph.txt. One line per layer,
///   node1 -- Conv2d(…) -- forward_compute_time=1.2, backward_compute_time=2.4, activation_size=…, parameter_size=…
/// (milliseconds, bytes, fp32; a size may be a list [a; b]), then one indented line per edge: node1 -- node2.
/// Throws ConfigError with file:line.
LayerGraph read_layer_graph(std::string_view text, std::string_view file);

/// Converts the graph to a model section for read_profile. Layers are put in topological order, smaller node numbers
/// first where the graph leaves a choice. A stage then holds consecutive layers, and data for a later stage passes
/// through every stage in between. Nodes called Input are omitted: their time is that of loading data.
nlohmann::json profile_from_graph(std::string_view text, std::string_view file);

}  // namespace flopcast
