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

// The law of a pipeline: what an action waits for beside the order of its rank, and what it hands on. Of stage s and
// one microbatch,
//
//   F       waits for F of s - 1, whose activation it takes;
//   B or I  waits for F of s, and for B or I of s + 1, whose gradient it takes;
//   W       waits for I of s
//
// within the chain of s, which ends at its first and at its last stage. What goes to a stage of another rank travels,
// what stays on a rank is there at once.

/// The action of the same stage and microbatch that one of this kind waits for: B stands for I where I is whole.
constexpr std::optional<ActionKind> needed_on_stage(ActionKind kind) {
  if (kind == ActionKind::kForward) return std::nullopt;
  return kind == ActionKind::kWeightGradient ? ActionKind::kInputGradient : ActionKind::kForward;
}

/// What flows from one stage to its neighbour for one microbatch: an activation forward, a gradient backward.
struct StageTransfer {
  int from_stage = 0;
  int to_stage = 0;
  std::uint32_t microbatch = 0;

  bool is_forward() const { return to_stage > from_stage; }
  friend bool operator==(const StageTransfer& a, const StageTransfer& b) {
    return a.from_stage == b.from_stage && a.to_stage == b.to_stage && a.microbatch == b.microbatch;
  }
};

/// The law for the stages of one program.
class Needs {
 public:
  /// The stage on the other side of what an action takes or hands on; false where the chain ends and for W.
  struct Neighbour {
    std::uint32_t rank = 0;  ///< the first of its replicas
    std::uint32_t replicas = 1;
    std::uint16_t stage = 0;
    bool exists = false;
    bool crosses = false;  ///< to another rank

    explicit operator bool() const { return exists; }
    std::uint32_t rank_of(std::uint32_t microbatch) const {
      return replicas == 1 ? rank : rank + microbatch % replicas;
    }
  };

  /// Throws InternalError unless the chains and ranks fit the stages.
  explicit Needs(const Program& program) : Needs(program.chains, program.rank_of_stage, program.replicas_of_stage) {}
  /// `replicas_of_stage` empty: one each.
  Needs(const std::vector<Chain>& chains, const ByStage<int>& rank_of_stage, const ByStage<int>& replicas_of_stage);

  /// Where the activation (F) or gradient (B, I) that the action waits for comes from.
  template <class Stage>
  const Neighbour& input_of(ActionKind kind, Stage stage) const {
    return stages_[stage][input_side(kind)];
  }
  const Neighbour& input_of(const Action& action) const { return input_of(action.kind, action.stage); }
  /// Where the action's own result goes.
  template <class Stage>
  const Neighbour& result_of(ActionKind kind, Stage stage) const {
    return stages_[stage][result_side(kind)];
  }
  const Neighbour& result_of(const Action& action) const { return result_of(action.kind, action.stage); }

  std::optional<StageTransfer> needed_by(const Action& action) const;
  std::optional<StageTransfer> produced_by(const Action& action) const;

  template <class Stage>
  std::uint32_t rank_of(Stage stage, std::uint32_t microbatch) const {
    return stages_[stage][kItself].rank_of(microbatch);
  }
  std::uint32_t rank_of(const Action& action) const { return rank_of(action.stage, action.microbatch); }
  RankIndex sender(const StageTransfer& transfer) const { return rank_of_end(transfer.from_stage, transfer); }
  RankIndex receiver(const StageTransfer& transfer) const { return rank_of_end(transfer.to_stage, transfer); }
  bool crosses_ranks(const StageTransfer& transfer) const { return sender(transfer) != receiver(transfer); }
  std::size_t stage_count() const { return stages_.size(); }
  bool is_first(int stage) const { return !input_of(ActionKind::kForward, stage); }
  bool is_last(int stage) const { return !result_of(ActionKind::kForward, stage); }

  /// How long the action's input is under way; 0 where it stays on its rank and where there is none.
  Ticks input_latency(const StepTimes& times, ActionKind kind, std::size_t stage) const {
    return latency(times, kind, stage, input_of(kind, stage));
  }
  /// The same of its result.
  Ticks result_latency(const StepTimes& times, ActionKind kind, std::size_t stage) const {
    return latency(times, kind, stage, result_of(kind, stage));
  }

 private:
  enum Side : std::uint8_t { kPrevious, kNext, kNobody, kItself };
  static constexpr Side input_side(ActionKind kind) {
    return kind == ActionKind::kForward ? kPrevious : kind == ActionKind::kWeightGradient ? kNobody : kNext;
  }
  static constexpr Side result_side(ActionKind kind) {
    return kind == ActionKind::kForward ? kNext : kind == ActionKind::kWeightGradient ? kNobody : kPrevious;
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

/// Throws InternalError unless the program's maps and the times fit together.
Needs needs_of(const Program& program, const StepTimes& times);

/// A value for what every F and every B or I of a program takes in: whether it is there, or when.
template <class Value>
class Inputs {
 public:
  /// `microbatches` by stage.
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

/// Executes ranks, each in its own order, as far as they go. Which one comes when does not matter, because what can run
/// stays able to run. `advance(rank, wake)` executes what the rank can, and calls wake(other) for every rank that may
/// go on by it.
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
    listed[rank] = 0;  // only now: it need not be told of what it hands to itself
  }
}

/// The weights of one stage over a run.
struct StageVersions {
  std::vector<int> version;           ///< by microbatch: what its forward uses
  std::vector<int> backward_version;  ///< by microbatch: what its backward uses; another one under kNewest only
  std::vector<int> delay;             ///< by microbatch: updates between `version` and the one its gradient goes into
  int versions_kept = 1;              ///< most copies held at once: the newest, and every older one still needed

  int largest_delay() const;
};

/// By stage, from the order of the program's actions alone; times do not matter. The weights of a stage are updated
/// after every `accumulation` backward passes (B or W) of it. The replicas of a stage update together, after
/// `accumulation` microbatches on each of them. Under kVerticalSync all stages must have as many replicas as the first,
/// because versions count updates. The program must be valid.
std::vector<StageVersions> weight_versions(const Program& program, WeightPolicy policy, int accumulation);

}  // namespace flopcast
