#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/program.hpp"

namespace flopcast {

/// Which weights a microbatch is computed with. A version is the number of updates before it, counted on each stage.
///
///   kFlushed        one update after all microbatches: version 0 throughout
///   kStashed        forward takes the stage's newest version, and backward the version of its own forward
///                   (PipeDream, Harlap et al. 1806.03377 §3.3). Delay min(k, p - 1 - s), p - s versions.
///   kVerticalSync   every stage takes the version that the first stage took for the microbatch (same section). Delay
///                   min(k, p - 1) on every stage.
///   kDoubleBuffered batch t of `accumulation` microbatches takes version max(0, t - 1) on every stage (PipeDream-2BW,
///                   Narayanan et al. 2006.09503 §3.1). Delay 1, two versions.
///   kNewest         forward and backward each take the stage's newest version, so that a microbatch's two passes
///                   differ (PipeMare, Yang et al. 1910.05124). One version, no stash.
enum class WeightPolicy { kFlushed, kStashed, kVerticalSync, kDoubleBuffered, kNewest };
/// "flushed", "stashed", "vertical-sync", "double-buffered", "newest".
std::string_view name_of(WeightPolicy policy);
/// The inverse of name_of; nothing when the text names none.
std::optional<WeightPolicy> parse_weight_policy(std::string_view text);
const std::vector<std::string>& weight_policy_names();

/// The weights of one stage over a run.
struct StageVersions {
  std::vector<int> version;           ///< by microbatch: what its forward uses
  std::vector<int> backward_version;  ///< by microbatch: what its backward uses; another one under kNewest only
  std::vector<int> delay;             ///< by microbatch: updates between `version` and the one its gradient goes into
  int versions_kept = 1;              ///< most copies held at once: the newest, and every older one still needed

  int largest_delay() const;
};

/// By stage, from the order of the program's actions alone; times do not matter. The weights of a stage are updated
/// after every `accumulation` backward passes (B or W) of it. The replicas of a stage update together, after
/// `accumulation` microbatches on each of them. Under kVerticalSync all stages must have as many replicas as the first,
/// because versions count updates. The program must be valid.
std::vector<StageVersions> weight_versions(const Program& program, WeightPolicy policy, int accumulation);

}  // namespace flopcast
