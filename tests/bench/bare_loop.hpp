#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flopcast {

/// Upper limit for the engine's speed: the recurrence of 1F1B as a single loop over the ranks, with no task graph, no
/// lowering and no generality. The source of each action's input is hard-coded; the loop writes the start and the end
/// of each action.
class BareLoop {
 public:
  BareLoop(int ranks, int microbatches);

  /// Returns the makespan.
  std::int64_t run(std::int64_t forward, std::int64_t backward, std::int64_t latency);

  std::size_t action_count() const { return order_.size(); }
  const std::vector<std::int64_t>& starts() const { return start_; }
  const std::vector<std::int64_t>& ends() const { return end_; }

 private:
  std::size_t ranks_;
  std::size_t microbatches_;
  std::vector<std::int32_t> order_;  // k: forward of microbatch k; -1 - k: its backward
  std::vector<std::int64_t> forward_end_;
  std::vector<std::int64_t> backward_end_;
  std::vector<std::int64_t> start_;
  std::vector<std::int64_t> end_;
  std::vector<std::size_t> next_;
  std::vector<std::int64_t> free_at_;
};

}  // namespace flopcast
