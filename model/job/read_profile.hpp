#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

#include "model/config/object_reader.hpp"
#include "model/job.hpp"
#include "model/workload/layer_profile.hpp"

namespace flopcast {

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
