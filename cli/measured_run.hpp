#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/lower/step_times.hpp"
#include "sim/schedule/program.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// What flopcast-run wrote: of each finished step the timeline of the first replica.
struct MeasuredRun {
  std::vector<Timeline> steps;
  std::vector<double> losses;
  std::vector<double> cpu_s;  ///< by step: of the threads of the first replica's ranks, summed
  bool has_tensor_ranks = false;
  std::string failure;
};

/// Throws ConfigError when the text is no measurement of a run.
MeasuredRun read_measured_run(std::string_view text, const std::string& file);

/// The step to show: that with the median makespan of all but the first, which warms up.
std::size_t typical_step(const MeasuredRun& run);

/// The program as it was executed: each rank's actions in the order of their starts, in the given chains.
Program executed_program(const Timeline& timeline, const std::vector<Chain>& chains);

/// Medians over all steps but the first: of every action by stage, of the optimizer by rank, and of what remained of
/// the gradient reductions after a rank's last action. Transfers take no time. Simulated with them, a program shows
/// what its order costs, whatever the machine.
StepTimes median_times(const MeasuredRun& run, const Program& program);

}  // namespace flopcast
