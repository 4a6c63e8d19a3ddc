#pragma once

#include <optional>
#include <string>

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

}  // namespace flopcast
