#pragma once

#include <vector>

#include "sim/schedule/program.hpp"

namespace flopcast {

/// Program::replicas_of_stage of a program that was read without it: stages whose microbatches neighbouring ranks take
/// in turn; empty when there is none. Anything less regular stays one rank's stage, for find_fault to report. Reads the
/// ranks' actions and rank_of_stage.
std::vector<int> infer_replicas(const Program& program);

/// The pipeline ranks that a chain's stages occupy, in order, a replicated stage's as its first one only.
std::vector<int> ranks_of_chain(const Program& program, const Chain& chain);

}  // namespace flopcast
