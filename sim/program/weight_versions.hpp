#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/program.hpp"

namespace flopcast {

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
