#pragma once

#include <string>
#include <vector>

#include "calibrate/validation/published_row.hpp"

namespace flopcast {

/// One way to fill in what a row leaves open.
struct Completion {
  PublishedRow row;
  std::string open;  ///< what was filled in: "micro batch, recompute"
};

/// Every plausible way, where only these are open: micro batch (1, 2, 4, 8, as far as it divides a replica's batch),
/// recompute (none, selective, full), sequence parallelism (no, yes) and, with an interleaved schedule, chunks per rank
/// (2, 4, 8, …, as far as the layers allow); and, of ZeRO 2 with a pipeline, whether gradients are scattered by every
/// microbatch or summed until the last. Empty where the row is complete, or where something else is missing too.
std::vector<Completion> completions(const PublishedRow& row);

}  // namespace flopcast
