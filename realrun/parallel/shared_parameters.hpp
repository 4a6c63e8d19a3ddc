#pragma once

#include <map>
#include <string>
#include <vector>

#include "realrun/compute/stage_compute.hpp"

namespace flopcast::realrun {

/// Parameters that the same stages hold: the token table of tied embeddings on the first and the last stage, and whole
/// stages of a bidirectional schedule, which trains two copies of the model. Their gradients are added up before the
/// update, so that the copies stay equal.
struct SharedSet {
  std::vector<int> stages;  ///< of the holders, ascending; a stage that holds a parameter twice is named twice
};

/// The sets of a pipeline, and by name the set of each shared parameter.
struct SharedParameters {
  std::vector<SharedSet> sets;
  std::map<std::string, int> set_of;

  /// -1 for a parameter that only one stage holds.
  int set_index(const std::string& name) const;
};

/// Parameters with the same name are copies of each other. `layouts` by stage of the program.
SharedParameters find_shared_parameters(const std::vector<StageLayout>& layouts);

}  // namespace flopcast::realrun
