#pragma once

#include <cstddef>
#include <vector>

#include "realrun/parallel/shared_parameters.hpp"

namespace flopcast::realrun {

/// Neighbouring parameters of a stage whose gradients are reduced together.
struct Bucket {
  int first_unit = 0;      ///< complete once this unit and all behind it are
  int shared_set = -1;     ///< of all its parameters
  std::size_t offset = 0;  ///< elements from the start of the stage's flat buffer, whose units lie one behind the other
  std::size_t count = 0;
};

struct BucketRules {
  std::size_t bytes = 0;        ///< a bucket closes once it has reached this size; 0: one bucket
  std::size_t first_bytes = 0;  ///< the same for the first bucket of a stage
  bool within_units = false;    ///< no bucket holds more than one unit: units are sharded one by one
};

/// In the order in which a backward pass completes them, last parameter first (Li et al. 2006.15704 §3.2.3). Runs of
/// parameters that belong to different shared sets have buckets of their own, cut alike on all stages that hold them.
std::vector<Bucket> make_buckets(const StageLayout& layout, const SharedParameters& shared, const BucketRules& rules);

/// Element at which each unit starts in the flat buffer, and one past the last.
std::vector<std::size_t> unit_offsets(const StageLayout& layout);

}  // namespace flopcast::realrun
