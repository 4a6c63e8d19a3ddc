#pragma once

#include <optional>
#include <string_view>

#include "sim/schedule/catalogue.hpp"

namespace flopcast {

/// The V map: two chunks per rank, stage s on rank s going down and on rank 2 p - 1 - s coming back, so that the first
/// and the last stage share rank 0, and stages p - 1 and p share rank p - 1 without a transfer. An empty list of
/// actions for every rank.
Program empty_v(std::string_view schedule, const ScheduleRequest& request);

/// The stage of rank `rank` on the V's way down (chunk 0) or back (chunk 1).
constexpr int v_stage(int pipeline_ranks, int rank, int chunk) {
  return chunk == 0 ? rank : 2 * pipeline_ranks - 1 - rank;
}

/// Two chunks per rank, no more and no fewer; `name` for the message.
std::optional<ScheduleRefusal> refuse_all_but_two_chunks(std::string_view name, const ScheduleRequest& request);

}  // namespace flopcast
