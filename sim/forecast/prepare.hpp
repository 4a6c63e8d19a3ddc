#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/cost/stage_costs.hpp"
#include "model/job.hpp"
#include "sim/program/program.hpp"
#include "sim/program/step_times.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {

/// Returns a file's text. The core reads no files itself; the caller hands in how.
using ReadFile = std::function<std::string(const std::string& path)>;

/// A job with its schedule chosen, checked and priced: everything but the run.
struct PreparedStep {
  Job job;  ///< with schedule, vpp, accumulation and stage_layers filled in, and the rows of a file
  const ScheduleInfo* schedule = nullptr;  ///< null for a schedule read from a file
  ScheduleRequest request;
  Program program;  ///< of one step; of an asynchronous schedule, a stretch that reaches the steady state
  StageMap stages;
  StepCosts costs;
  StepTimes times;  ///< in picoseconds
};

/// Four steps: the schedule (naive for one microbatch, interleaved with vpp, else 1f1b), generated or read from the
/// file that layout.schedule names as file:PATH; its stages; the layers of each; their prices (price.hpp). Throws
/// ConfigError, for an invalid schedule file with the step x rank grid.
PreparedStep prepare(Job job, const ReadFile& read_file);

/// What the cost model needs to know of a program: which part of the model each stage holds, which rank runs it, and
/// how many microbatches pass through it in a row.
StageMap stage_map_of(const Program& program);

}  // namespace flopcast
