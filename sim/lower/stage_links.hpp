#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/program.hpp"
#include "sim/program/step_times.hpp"

namespace flopcast {

/// A stage's neighbours in its chain, as lowering and the timeline need them.
struct StageLinks {
  std::uint32_t rank = 0;
  std::uint32_t previous_rank = 0;
  std::uint32_t next_rank = 0;
  std::uint32_t replicas = 1;  ///< `rank` is the first of these; likewise for the neighbours
  std::uint32_t previous_replicas = 1;
  std::uint32_t next_replicas = 1;
  bool has_previous = false;
  bool has_next = false;
  Ticks from_previous = 0;  ///< latency of the activation that arrives; 0 on one rank
  Ticks from_next = 0;      ///< latency of the gradient that arrives
  Ticks to_previous = 0;    ///< latency of the gradient that leaves
  Ticks to_next = 0;        ///< latency of the activation that leaves

  bool previous_is_remote() const { return has_previous && previous_rank != rank; }
  bool next_is_remote() const { return has_next && next_rank != rank; }
  std::uint32_t rank_of(std::uint32_t microbatch) const { return replicas == 1 ? rank : rank + microbatch % replicas; }
  std::uint32_t previous_rank_of(std::uint32_t microbatch) const {
    return previous_replicas == 1 ? previous_rank : previous_rank + microbatch % previous_replicas;
  }
  std::uint32_t next_rank_of(std::uint32_t microbatch) const {
    return next_replicas == 1 ? next_rank : next_rank + microbatch % next_replicas;
  }
};

/// By stage. Throws InternalError when the program's maps and the times do not fit together.
std::vector<StageLinks> link_stages(const Program& program, const StepTimes& times);

}  // namespace flopcast
