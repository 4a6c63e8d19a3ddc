#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "calibrate/validation/evaluate.hpp"

namespace flopcast {

/// The saved answer of `flopcast run`: the JSON of its comparison, whose replay (the program simulated with the times
/// measured) is held against the measured step, or {"forecast": {…}, "measured": {…}}, both flopcast.result/1. `id` is
/// what the row is called, `source` what it is counted with. Throws ConfigError with the place in `file`.
EvaluatedRow read_run_result(const nlohmann::json& json, const std::string& id, const std::string& source,
                             const std::string& file);

}  // namespace flopcast
