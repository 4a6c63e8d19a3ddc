#pragma once

#include <string>

#include "sim/forecast/forecast.hpp"

namespace flopcast {

/// A step for simulators of packets: a Chakra execution trace of every device (MLCommons, schema/protobuf/et_def.proto
/// 0.0.4: messages of protobuf, each behind its length), which ASTRA-sim reads beside the groups and the network below.
///
/// A device's trace is a chain in the order of its rank's actions. An action is its messages that arrive (COMM_RECV),
/// its computation (COMP) with its collectives (COMM_COLL), and the messages that leave (COMM_SEND, at once). For
/// --replay-only, `duration_micros` is how long a rank computes or waits, rounded; none where all of it is hidden.
/// Sizes are buffers as nccl-tests prints them. Collectives of one axis in one pass are one node of their kind: tensor
/// parallelism an all-reduce, with sequence parallelism an all-gather and a reduce-scatter; context parallelism an
/// all-gather, ulysses an all-to-all; experts an all-to-all; sharded weights an all-gather. After the last action: the
/// gradients (all-reduce, or reduce-scatter where they or the optimizer are sharded), the optimizer, and the sharded
/// weights gathered again. Left out: what a pass hides of its collectives (they follow each other here), reductions of
/// tied embeddings and of the gradient norm. Throws ConfigError for an asynchronous schedule, a rank that the job does
/// not have, replicas of single stages, and layouts whose collectives have no such form: grids of tensor_parallel,
/// folded experts, and parameter servers.
std::string chakra_trace(const Forecast& forecast, int rank);

/// JSON of ASTRA-sim's --comm-group-configuration: {"7": [0, 8], …}, the groups of all devices' collectives.
std::string chakra_groups(const Forecast& forecast);

/// YAML of ASTRA-sim's analytical --network-configuration: nodes as switches, the network cards of a device between
/// them; bandwidths in GB/s (2^30) per direction, latencies in ns.
std::string chakra_network(const Forecast& forecast);

}  // namespace flopcast
