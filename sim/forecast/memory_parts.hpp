#pragma once

#include <string>
#include <vector>

#include "sim/forecast/prepare.hpp"
#include "sim/forecast/result.hpp"
#include "sim/metrics/memory_over_time.hpp"

namespace flopcast {

/// One kind of tensor on a rank at its fullest moment.
struct MemoryPart {
  std::string group;  ///< weights, gradients, optimizer, activations, versions, workspace
  std::string name;   ///< "mlp up input"
  Bytes each;
  double count = 1.0;  ///< layers times microbatches in flight, of activations

  Bytes total() const { return each * count; }
};

/// Buffers alive inside one action of the rank.
std::vector<MemoryPart> workspace_parts(const PreparedStep& step, int rank);

/// Everything that a rank holds when it holds most; totals add up to RankMemoryResult::total_gib. Activations by the
/// operator that keeps them for its backward pass; by stage where only a stage's sum is known: of layer profiles, block
/// inputs under full recomputation.
std::vector<MemoryPart> memory_parts(const PreparedStep& step, int rank, const RankMemoryResult& memory,
                                     const RankMemory& over_time);

/// Of the rank that holds most.
int fullest_rank(const MemoryResult& memory);
/// memory_parts of the fullest rank, largest first.
std::vector<MemoryPart> fullest_rank_parts(const PreparedStep& step, const MemoryResult& memory,
                                           const std::vector<RankMemory>& over_time);

}  // namespace flopcast
