#pragma once

#include <cstddef>
#include <vector>

#include "sim/files/run_file.hpp"
#include "sim/program/program.hpp"
#include "sim/program/step_times.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

Ticks median(std::vector<Ticks> values);

/// The program as it was executed: each rank's actions in the order of their starts, in the given chains.
Program executed_program(const Timeline& timeline, const Program& planned);

/// What ranks took for their own work, from timelines of equal steps, whatever they waited for. Medians:
///   actions     by stage and kind
///   gaps        from the end of an action to the start of the next one of its rank, of which nothing but overhead is
///               left when nobody waits; `with_gaps` counts them with the action that follows
///   flush       by rank: the optimizer, and what was left of the gradient reductions after the last action; the
///               reduction of tied tables of the rank that came to it last
/// Without a flush the updates between the actions count, spread evenly over the backward passes of their rank.
/// Transfers take no time.
StepTimes median_times(const std::vector<Timeline>& steps, const Program& program, bool with_gaps);

/// The forecast of a run from its calibration: median_times() with gaps of each rank on its own, actions that sleep as
/// long as they were told to, and messages. A message delays the receiver by one_way - receive after it was sent; what
/// receiving takes is the receiver's own time whether it waited or not (LogP's o), and counts with its action: a rank
/// on its own copies its inputs too.
/// `steps` are those of one calibration or of both, without what warms up (warmed_up()).
StepTimes calibrated_times(const MeasuredRun& run, const std::vector<Timeline>& steps, const Program& program);

/// Without the first two, where they are not the only ones.
std::vector<Timeline> warmed_up(const std::vector<Timeline>& calibration);

}  // namespace flopcast
