#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "sim/schedules/catalogue.hpp"

namespace flopcast {

/// The makespan of a program without overlapped pairs, computed by iterating over the ranks until nothing changes:
/// slow, and independent of the engine that it checks. Empty on a deadlock.
inline std::optional<Ticks> replay_makespan(const Program& program, const UniformTimes& times) {
  std::map<std::tuple<int, bool, std::uint32_t>, Ticks> end_of;  // forwards; B or I
  std::vector<std::size_t> next(program.ranks.size(), 0);
  std::vector<Ticks> free_at(program.ranks.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
      for (; next[rank] < program.ranks[rank].size(); ++next[rank], moved = true) {
        const Action& action = program.ranks[rank][next[rank]];
        if (action.kind == ActionKind::kWeightGradient) {
          free_at[rank] += times.weight_gradient;
          continue;
        }
        const bool forward = action.kind == ActionKind::kForward;
        const bool split = action.kind == ActionKind::kInputGradient;
        const int source = action.stage + (forward ? -1 : 1);
        Ticks ready = 0;
        if (source >= 0 && source < program.stage_count()) {
          const auto found = end_of.find({source, forward, action.microbatch});
          if (found == end_of.end()) break;
          const bool local = program.rank_of_stage[static_cast<std::size_t>(source)] == static_cast<int>(rank);
          ready = found->second + (local ? 0 : times.latency);
        }
        free_at[rank] = std::max(free_at[rank], ready) + (forward ? times.forward
                                                          : split ? times.input_gradient()
                                                                  : times.backward);
        end_of[{action.stage, forward, action.microbatch}] = free_at[rank];
      }
    }
  }
  for (std::size_t rank = 0; rank < next.size(); ++rank) {
    if (next[rank] != program.ranks[rank].size()) return std::nullopt;
  }
  return *std::max_element(free_at.begin(), free_at.end());
}

}  // namespace flopcast
