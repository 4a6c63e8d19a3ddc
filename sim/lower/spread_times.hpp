#pragma once

#include <vector>

#include "sim/program/program.hpp"
#include "sim/program/step_times.hpp"

namespace flopcast {

/// The numbers of a list as times of a program's stages, of one slice where microbatches are cut. One number is
/// every stage's, and in a comparison that of a rank's whole share of the model; as many numbers as stages are theirs;
/// in a comparison as many as ranks are those of each rank's share. Rounded to the nearest tick. Throws ConfigError for
/// any other list, about the field `name`.
std::vector<Ticks> spread_times(const char* name, const std::vector<Ticks>& list, const Program& program,
                                bool in_comparison);

}  // namespace flopcast
