#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/program.hpp"
#include "sim/program/request.hpp"

namespace flopcast {

// Dependencies of a pipeline: what an action waits for besides the order of its rank, and what it produces. For stage s
// and one microbatch,
//
//   F       waits for F of s - 1, whose activation it takes;
//   B or I  waits for F of s, and for B or I of s + 1, whose gradient it takes;
//   W       waits for I of s
//
// within the chain of s; its first and last stages lack the outer neighbour. A result for a stage on another rank is
// transferred; a result for a stage on the same rank is available at once.

/// Kind of the action on the same stage and microbatch that an action of this kind waits for. B replaces I where the
/// backward pass is not split.
constexpr std::optional<ActionKind> needed_on_stage(ActionKind kind) {
  if (kind == ActionKind::kForward) return std::nullopt;
  return kind == ActionKind::kWeightGradient ? ActionKind::kInputGradient : ActionKind::kForward;
}

/// The data that flows from one stage to its neighbour for one microbatch: an activation forward, a gradient backward.
struct StageTransfer {
  int from_stage = 0;
  int to_stage = 0;
  std::uint32_t microbatch = 0;

  bool is_forward() const { return to_stage > from_stage; }
  friend bool operator==(const StageTransfer& a, const StageTransfer& b) {
    return a.from_stage == b.from_stage && a.to_stage == b.to_stage && a.microbatch == b.microbatch;
  }
};

/// Dependencies between the stages of one program.
class Needs {
 public:
  /// The stage that an action's input comes from or its result goes to; false at the end of the chain and for W.
  struct Neighbour {
    std::uint32_t rank = 0;  ///< the first rank of its replicas
    std::uint32_t replicas = 1;
    std::uint16_t stage = 0;
    bool exists = false;
    bool crosses = false;  ///< true if it is on another rank

    explicit operator bool() const { return exists; }
    std::uint32_t rank_of(std::uint32_t microbatch) const {
      return replicas == 1 ? rank : rank + microbatch % replicas;
    }
  };

  /// Throws InternalError unless the chains and ranks match the stages.
  explicit Needs(const Program& program) : Needs(program.chains, program.rank_of_stage, program.replicas_of_stage) {}
  /// An empty `replicas_of_stage` means one replica per stage.
  Needs(const std::vector<Chain>& chains, const ByStage<int>& rank_of_stage, const ByStage<int>& replicas_of_stage);

  /// Source of the activation (F) or gradient (B, I) that the action waits for.
  template <class Stage>
  const Neighbour& input_of(ActionKind kind, Stage stage) const {
    return stages_[stage][input_side(kind)];
  }
  const Neighbour& input_of(const Action& action) const { return input_of(action.kind, action.stage); }
  /// Destination of the action's result.
  template <class Stage>
  const Neighbour& result_of(ActionKind kind, Stage stage) const {
    return stages_[stage][result_side(kind)];
  }
  const Neighbour& result_of(const Action& action) const { return result_of(action.kind, action.stage); }

  std::optional<StageTransfer> needed_by(const Action& action) const;
  std::optional<StageTransfer> produced_by(const Action& action) const;

  template <class Stage>
  std::uint32_t rank_of(Stage stage, std::uint32_t microbatch) const {
    return stages_[stage][kSelf].rank_of(microbatch);
  }
  std::uint32_t rank_of(const Action& action) const { return rank_of(action.stage, action.microbatch); }
  RankIndex sender(const StageTransfer& transfer) const { return rank_of_end(transfer.from_stage, transfer); }
  RankIndex receiver(const StageTransfer& transfer) const { return rank_of_end(transfer.to_stage, transfer); }
  bool crosses_ranks(const StageTransfer& transfer) const { return sender(transfer) != receiver(transfer); }
  std::size_t stage_count() const { return stages_.size(); }
  bool is_first(int stage) const { return !input_of(ActionKind::kForward, stage); }
  bool is_last(int stage) const { return !result_of(ActionKind::kForward, stage); }

  /// Transfer time of the action's input; 0 if the input stays on its rank or there is none.
  Ticks input_latency(const StepTimes& times, ActionKind kind, std::size_t stage) const {
    return latency(times, kind, stage, input_of(kind, stage));
  }
  /// Transfer time of the action's result; 0 if the result stays on its rank or there is none.
  Ticks result_latency(const StepTimes& times, ActionKind kind, std::size_t stage) const {
    return latency(times, kind, stage, result_of(kind, stage));
  }

 private:
  enum Side : std::uint8_t { kPrevious, kNext, kNone, kSelf };
  static constexpr Side input_side(ActionKind kind) {
    return kind == ActionKind::kForward ? kPrevious : kind == ActionKind::kWeightGradient ? kNone : kNext;
  }
  static constexpr Side result_side(ActionKind kind) {
    return kind == ActionKind::kForward ? kNext : kind == ActionKind::kWeightGradient ? kNone : kPrevious;
  }
  RankIndex rank_of_end(int stage, const StageTransfer& transfer) const {
    return RankIndex(rank_of(stage, transfer.microbatch));
  }
  static Ticks latency(const StepTimes& times, ActionKind kind, std::size_t stage, const Neighbour& other) {
    if (!other.crosses) return 0;
    const BoundaryTimes& boundary = times.boundaries[std::min<std::size_t>(stage, other.stage)];
    return kind == ActionKind::kForward ? boundary.forward : boundary.backward;
  }

  ByStage<std::array<Neighbour, 4>> stages_;
};

/// Throws InternalError unless the program's maps match the times.
Needs needs_of(const Program& program, const StepTimes& times);

/// A value for the input of every F and every B or I of a program, such as whether or when it arrived.
template <class Value>
class Inputs {
 public:
  /// `microbatches` is indexed by stage.
  Inputs(const ByStage<std::size_t>& microbatches, Value value) {
    std::size_t count = 0;
    for (const std::size_t of_stage : microbatches) {
      for (int way = 0; way < 2; ++way) {
        offset_.push_back(count);
        count += of_stage;
      }
    }
    values_.assign(count, value);
  }

  typename std::vector<Value>::reference operator[](const Action& action) {
    return values_[index(action.stage, action.kind == ActionKind::kForward, action.microbatch)];
  }
  typename std::vector<Value>::const_reference operator[](const Action& action) const {
    return values_[index(action.stage, action.kind == ActionKind::kForward, action.microbatch)];
  }
  typename std::vector<Value>::reference operator[](const StageTransfer& transfer) {
    return values_[index(static_cast<std::size_t>(transfer.to_stage), transfer.is_forward(), transfer.microbatch)];
  }

 private:
  std::size_t index(std::size_t stage, bool forward, std::uint32_t microbatch) const {
    return offset_[2 * stage + (forward ? 0 : 1)] + microbatch;
  }

  std::vector<std::size_t> offset_;
  std::vector<Value> values_;
};

/// Executes ranks, each in its own order, until none can proceed. The order in which ranks are visited does not matter,
/// because an action that can run stays runnable. `advance(rank, wake)` executes what the rank can, and calls
/// wake(other) for every rank that this may unblock.
template <class Advance>
void replay(std::size_t ranks, Advance advance) {
  std::vector<std::size_t> list;
  std::vector<char> listed(ranks, 1);
  list.reserve(ranks);
  for (std::size_t rank = ranks; rank-- > 0;) list.push_back(rank);
  const auto wake = [&list, &listed](std::size_t rank) {
    if (listed[rank] != 0) return;
    listed[rank] = 1;
    list.push_back(rank);
  };
  while (!list.empty()) {
    const std::size_t rank = list.back();
    list.pop_back();
    advance(rank, wake);
    listed[rank] = 0;  // only now: a rank needs no wake-up for its results to itself
  }
}

/// Weight versions of one stage over a run.
struct StageVersions {
  std::vector<int> version;           ///< indexed by microbatch: version that its forward uses
  std::vector<int> backward_version;  ///< indexed by microbatch: version that its backward uses
  std::vector<int> delay;             ///< indexed by microbatch: updates between `version` and that of its gradient
  int versions_kept = 1;              ///< most copies held at once: the newest and all older ones still needed

  int largest_delay() const;
};

/// Weight versions of each stage, from the order of the program's actions alone; times do not matter. A stage's weights
/// are updated after every `accumulation` of its backward passes (B or W). The replicas of a stage update together,
/// after `accumulation` microbatches on each of them. Under kVerticalSync all stages must have as many replicas as the
/// first, because versions count updates. The program must be valid.
std::vector<StageVersions> weight_versions(const Program& program, WeightPolicy policy, int accumulation);

}  // namespace flopcast
