#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/timeline.hpp"

namespace flopcast {

/// Which transfer an action waits for: the one that brings its stage the activation (F) or the gradient (B, I) of its
/// microbatch.
class AwaitedTransfers {
 public:
  explicit AwaitedTransfers(const Timeline& timeline);

  /// Null when the action waits for none.
  const Transfer* find(const Action& action) const;

 private:
  static std::uint64_t key(std::uint16_t stage, bool forward, std::uint32_t microbatch) {
    return (std::uint64_t{microbatch} << 17) | (std::uint64_t{stage} << 1) | std::uint64_t{forward};
  }
  struct Entry {
    std::uint64_t key;
    const Transfer* transfer;
  };
  std::uint64_t slot_of(std::uint64_t stage, bool forward, std::uint64_t microbatch) const {
    return (microbatch * stages_ + stage) * 2 + (forward ? 1 : 0);
  }
  std::uint64_t stages_ = 0;
  std::vector<const Transfer*> slots_;  // by slot_of, where the numbers are dense
  std::vector<Entry> entries_;          // by key, where they are not
};

/// Why a rank did nothing.
enum class BubbleCause { kWarmup, kCooldown, kImbalance, kDependency };
inline constexpr std::size_t kBubbleCauses = 4;
/// "warmup", "cooldown", "imbalance", "dependency".
std::string_view name_of(BubbleCause cause);

/// What a rank did with the time from 0 to the makespan of all ranks. Every tick is counted once:
///   busy + exposed_pipeline + exposed_data_parallel + bubble = makespan.
///
/// - busy: the compute stream runs an action (recomputation included) or the optimizer. An overlapped pair counts once.
/// - exposed_data_parallel: a reduction, the gradient norm or the parameter gather runs and no compute does.
/// - exposed_pipeline: a send occupies the compute stream, or nothing runs, the compute stream's next action waits for
/// a
///   transfer, and that transfer is under way.
/// - bubble: nothing runs for any other reason. Before the rank's first B or I (its first action, if it has none) it is
///   warm-up; after that and after the rank's last F, cool-down. Of the rest, as much as this rank computes less than
///   the busiest one is imbalance, and what remains is dependency.
struct RankMetrics {
  Ticks busy = 0;
  Ticks exposed_pipeline = 0;
  Ticks exposed_data_parallel = 0;
  std::array<Ticks, kBubbleCauses> bubble_by_cause{};
  Ticks first_start = 0;  ///< of the actions and sends; the flush does not count
  Ticks last_end = 0;
  int peak_in_flight = 0;  ///< chunks whose activations are held: one more at F, one less at B or W, in executed order
  std::array<Ticks, kSpanKindCount>
      time_by_kind{};  ///< by SpanKind, covered or not; a pair's time counts for its first half

  Ticks bubble() const;
  Ticks exposed() const { return exposed_pipeline + exposed_data_parallel; }
  /// last_end - first_start, which zero-bubble papers measure instead of the makespan.
  Ticks span() const { return last_end - first_start; }
};

struct TimelineMetrics {
  Ticks makespan = 0;
  std::vector<RankMetrics> ranks;

  /// 1 - sum of busy / (ranks * makespan): the idle share of the devices, whatever they wait for. In [0, 1].
  double idle_fraction() const;
  /// The same for one rank.
  double idle_fraction(std::size_t rank) const;
  /// Sum of bubble / (ranks * makespan): idle_fraction() without the exposed communication.
  double bubble_fraction() const;
  /// makespan / (busy of the busiest rank) - 1, the overhead that pipeline papers report. 0 when no rank is ever busy.
  double bubble_ratio() const;
  Ticks longest_span() const;
  /// Means over ranks, in ticks.
  double mean_busy() const;
  double mean_exposed_pipeline() const;
  double mean_exposed_data_parallel() const;
  double mean_bubble(BubbleCause cause) const;
};

/// Linear in spans and transfers. Reads forecast and measured timelines alike.
TimelineMetrics measure(const Timeline& timeline);

}  // namespace flopcast
