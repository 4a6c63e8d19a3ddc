#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/program/program.hpp"
#include "sim/program/step_times.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {

/// Every stage's and boundary's times, when they are all the same; nothing otherwise.
std::optional<UniformTimes> uniform_times(const StepTimes& times);

struct ClosedFormAnswer {
  std::optional<Ticks> makespan;
  std::string note;  ///< why there is none, or by how much `simulated` differs; empty when the two agree
};

/// What the catalogue's closed form says of a request that is not refused, and, where it says nothing, why: found by
/// asking it again without latency and for a whole multiple of p microbatches.
ClosedFormAnswer closed_form_of(const ScheduleInfo& info, const ScheduleRequest& request, const StepTimes& times,
                                Ticks simulated);

/// The times of a schedule's stages, such that a microbatch costs every compared schedule the same.
using TimesOfProgram = std::function<StepTimes(const Program&)>;

/// What a request costs under one schedule. Activations are counted in microbatches' worth: 1 is what one microbatch
/// leaves on one rank over all of the rank's chunks (or slices), so that schedules of different v compare.
struct ScheduleFigures {
  Ticks makespan = 0;
  Ticks span = 0;                        ///< longest of all ranks, from its first start to its last end
  double bubble_fraction = 0.0;          ///< idle share of all ranks, as `schedule simulate` counts it
  double bubble_ratio = 0.0;             ///< makespan over the busiest rank's work, less 1
  std::vector<double> peak_activations;  ///< by rank
  std::vector<int> weight_copies;        ///< by rank: versions, times the copies of the model that pass through it
  std::vector<int> staleness;            ///< by rank, in updates
  std::size_t messages = 0;              ///< transfers between ranks
  std::optional<Ticks> closed_form;      ///< of the makespan
  std::string closed_form_note;          ///< why there is none, or why it differs; empty when it agrees
  std::optional<double> steady_period;   ///< of an asynchronous schedule: ticks a microbatch once the pipeline is full
  std::optional<double> steady_idle;     ///< and the idle share of its ranks then

  double largest_peak() const;
};

ScheduleFigures figures_of(const ScheduleInfo& info, const ScheduleRequest& request, const TimesOfProgram& times);
/// Of a schedule from a file, which flushes and has no closed form.
ScheduleFigures figures_of(const Program& program, const TimesOfProgram& times);

/// What a schedule makes of a limited memory for activations.
struct MemoryFit {
  int microbatches = 0;    ///< the most that fit between two updates, at most those asked for; 0: not even the fewest
  bool unlimited = false;  ///< more microbatches need no more memory
  double bubble_fraction = 0.0;  ///< with `microbatches`
};

/// The most microbatches of which no rank holds more than `activations` (in microbatches' worth) at once. A schedule
/// that reads a memory limit is given it. Asynchronous schedules never flush, so their microbatches are those asked
/// for.
MemoryFit fit_into_memory(const ScheduleInfo& info, const ScheduleRequest& request, int activations,
                          const TimesOfProgram& times);

}  // namespace flopcast
