#pragma once

#include <nlohmann/json_fwd.hpp>

#include "model/job.hpp"

namespace flopcast {

/// The job as a job file that needs no other file: read back it gives the same forecast, bit for bit. A device profile
/// has become the cluster's figures and curves, a schedule's file its rows; a stack of the catalogue goes by its name,
/// another is told in full.
nlohmann::ordered_json job_json(const Job& job);

/// The stack in full, whether the catalogue has it or not.
nlohmann::ordered_json stack_json(const Stack& stack);

}  // namespace flopcast
