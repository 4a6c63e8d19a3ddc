#pragma once

#include <vector>

#include "sim/forecast/forecast.hpp"
#include "sim/forecast/result.hpp"

namespace flopcast {

/// What a microbatch holds.
struct PackedMicrobatch {
  int sequences = 0;
  double tokens = 0.0;
  double squares = 0.0;  ///< sum of the squared lengths
};

/// Packs sequences in the given order, again from the first when they run out, into `microbatches` microbatches of
/// `room` tokens: one that does not fit opens the next (next fit). Throws ConfigError (--sequence-lengths) on an empty
/// list and on a sequence longer than the room or shorter than a token.
std::vector<PackedMicrobatch> pack_sequences(const std::vector<int>& lengths, int room, int microbatches);

/// The share of the tokens that are no padding where each sequence has a row of its own, rows in the given order and
/// again from the first, longer ones cut to `length`, `rows` a microbatch. The list is not empty.
struct PaddedRows {
  double to_length = 0.0;   ///< padded to `length`
  double to_longest = 0.0;  ///< padded to the longest row of the microbatch
};
PaddedRows pad_sequences(const std::vector<int>& lengths, int length, int rows);

/// One step whose microbatches hold sequences of these lengths, microbatch by microbatch.
///
/// Microbatches keep the shape of micro_batch_size x sequence_length tokens, as pipelines send it; what stays empty is
/// padding and costs what tokens cost, except in attention. Attention works within each sequence: of its time with full
/// sequences, a microbatch takes squares / (micro_batch_size · sequence_length²), forward, backward and recomputed
/// (FlashAttention with variable lengths). Microbatch k of a step goes to replica k mod dp, as Megatron-LM deals them
/// out. Beside it what padding each sequence would leave. `equal_s` is a step of the same work in which every
/// microbatch takes the mean. Left out: packing that looks ahead or sorts, the kernel's own overhead for short
/// sequences, memory, FLOPs and MFU. Throws ConfigError where attention is not fused, with context parallelism, tensor
/// parallelism in grids, token slices, uneven nodes, a layer profile or an asynchronous schedule.
PackingResult pack_step(const PreparedStep& step, const std::vector<int>& lengths);

/// Adds it to a forecast.
void add_packing(const std::vector<int>& lengths, Forecast& forecast);

}  // namespace flopcast
