#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "model/enum_names.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

/// The number of a rank, a stage, a chunk, a microbatch: `Kind` tells them apart. It reads as an int, but none is taken
/// for another.
template <class Kind>
class Index {
 public:
  constexpr Index() = default;
  template <class Number, std::enable_if_t<std::is_integral_v<Number>, int> = 0>
  constexpr explicit Index(Number number) : number_(static_cast<int>(number)) {}

  constexpr operator int() const { return number_; }  // NOLINT(google-explicit-constructor)
  // fmt 10 prints what converts to a number only where it is told so.
  friend constexpr int format_as(Index index) { return index.number_; }

 private:
  int number_ = 0;
};

/// What a list by `Kind` takes: an index of that kind, or a plain number.
template <class Place, class Kind>
concept PlaceOf = std::is_integral_v<Place> || std::is_same_v<Place, Index<Kind>>;

/// A value by index: a vector that takes indices of its own kind or plain numbers, signed ones too, and none of another
/// kind.
template <class Kind, class Value>
class IndexedVector : public std::vector<Value> {
 public:
  using std::vector<Value>::vector;
  IndexedVector() = default;
  IndexedVector(std::vector<Value> values)  // NOLINT(google-explicit-constructor)
      : std::vector<Value>(std::move(values)) {}

  template <PlaceOf<Kind> Place>
  decltype(auto) operator[](Place place) {
    return std::vector<Value>::operator[](static_cast<std::size_t>(place));
  }
  template <PlaceOf<Kind> Place>
  decltype(auto) operator[](Place place) const {
    return std::vector<Value>::operator[](static_cast<std::size_t>(place));
  }
};

struct RankKind;
struct StageKind;
struct ChainKind;
struct ChunkKind;
struct MicrobatchKind;
using RankIndex = Index<RankKind>;
using StageIndex = Index<StageKind>;
using ChunkIndex = Index<ChunkKind>;            ///< of a rank's stages
using MicrobatchIndex = Index<MicrobatchKind>;  ///< or the slice of one, where a schedule cuts them
template <class Value>
using ByRank = IndexedVector<RankKind, Value>;
template <class Value>
using ByChain = IndexedVector<ChainKind, Value>;
template <class Value>
using ByStage = IndexedVector<StageKind, Value>;

/// The compute actions of a pipeline schedule, lettered as torch.distributed.pipelining letters them.
/// (The zero-bubble papers call the input gradient "B"; flopcast never does.)
enum class ActionKind : std::uint8_t {
  kForward,         ///< F
  kBackward,        ///< B: input and weight gradient in one action
  kInputGradient,   ///< I: the part of the backward pass that the previous stage waits for
  kWeightGradient,  ///< W: the part nobody waits for
};

inline constexpr std::array<ActionKind, 4> kActionKinds = {ActionKind::kForward, ActionKind::kBackward,
                                                           ActionKind::kInputGradient, ActionKind::kWeightGradient};

/// One cell of a schedule: `2F0` is stage 2, forward, microbatch 0. Stages are global: 0 .. ranks * chunks - 1.
struct Action {
  std::uint32_t microbatch = 0;
  std::uint16_t stage = 0;
  ActionKind kind = ActionKind::kForward;
  /// This action and the next one of its rank run as one overlapped pair, `(3F1;0B0)OVERLAP_F_B`: they start together
  /// when both are ready, and both results exist when the pair ends.
  bool overlaps_next = false;

  friend bool operator==(const Action& a, const Action& b) {
    return a.microbatch == b.microbatch && a.stage == b.stage && a.kind == b.kind && a.overlaps_next == b.overlaps_next;
  }
};
static_assert(sizeof(Action) == 8, "programs of millions of actions rely on it");

inline constexpr std::uint32_t kMaxStages = 65'535;
inline constexpr std::uint32_t kMaxMicrobatches = 100'000'000;

char letter_of(ActionKind kind);
constexpr bool is_backward_like(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kInputGradient;
}
constexpr Action action_of(ActionKind kind, StageIndex stage, MicrobatchIndex microbatch) {
  return Action{
      .microbatch = static_cast<std::uint32_t>(microbatch), .stage = static_cast<std::uint16_t>(stage), .kind = kind};
}
constexpr Action forward_action(StageIndex stage, MicrobatchIndex microbatch) {
  return action_of(ActionKind::kForward, stage, microbatch);
}
constexpr Action backward_action(StageIndex stage, MicrobatchIndex microbatch) {
  return action_of(ActionKind::kBackward, stage, microbatch);
}
constexpr Action input_gradient_action(StageIndex stage, MicrobatchIndex microbatch) {
  return action_of(ActionKind::kInputGradient, stage, microbatch);
}
constexpr Action weight_gradient_action(StageIndex stage, MicrobatchIndex microbatch) {
  return action_of(ActionKind::kWeightGradient, stage, microbatch);
}

/// "2F0"; the pairing flag is a matter of the cell, not of the action.
std::string to_string(const Action& action);
/// The inverse of to_string; nothing when the text is no compute action.
std::optional<Action> parse_action(std::string_view text);

/// Consecutive stages that activations flow through, first to last. A bidirectional schedule (DualPipe, Chimera) has
/// two chains, each a full copy of the model.
struct Chain {
  int first_stage = 0;
  int last_stage = 0;
};

/// Which weights a microbatch is computed with. A version is the number of updates before it, counted on each stage.
///
///   kFlushed        one update after all microbatches: version 0 throughout
///   kStashed        forward takes the stage's newest version, and backward the version of its own forward
///                   (PipeDream, Harlap et al. 1806.03377 §3.3). Delay min(k, p - 1 - s), p - s versions.
///   kVerticalSync   every stage takes the version that the first stage took for the microbatch (same section). Delay
///                   min(k, p - 1) on every stage.
///   kDoubleBuffered batch t of `accumulation` microbatches takes version max(0, t - 1) on every stage (PipeDream-2BW,
///                   Narayanan et al. 2006.09503 §3.1). Delay 1, two versions.
///   kNewest         forward and backward each take the stage's newest version, so that a microbatch's two passes
///                   differ (PipeMare, Yang et al. 1910.05124). One version, no stash.
enum class WeightPolicy { kFlushed, kStashed, kVerticalSync, kDoubleBuffered, kNewest };
template <>
struct EnumNames<WeightPolicy> {
  static constexpr std::string_view kNames[] = {"flushed", "stashed", "vertical-sync", "double-buffered", "newest"};
};

/// A schedule as data: which actions every pipeline rank executes, in which order. The simulator, CPU ranks and GPU
/// ranks all execute the same Program.
struct Program {
  std::string schedule;               ///< the catalogue name, or the file it was read from
  ByRank<std::vector<Action>> ranks;  ///< ranks[r]: the actions of pipeline rank r in order
  /// 1, or into how many slices of tokens each microbatch is cut: the actions' "microbatches" are then slices, slice j
  /// of microbatch k has the number k * slices_per_microbatch + j, and times, activations and messages of an action are
  /// those of one slice.
  int slices_per_microbatch = 1;
  ByStage<int> rank_of_stage;  ///< stage -> pipeline rank; of a replicated stage the first
  /// By stage: how many consecutive ranks, rank_of_stage and those after it, take the stage's microbatches in turn:
  /// microbatch k goes to number k mod replicas, forward and backward. They execute no other stage. Empty: one each.
  ByStage<int> replicas_of_stage;
  /// The halves of a pair go layer by layer, and what the backward half frees the forward half fills: it counts when
  /// the other is freed, not before. Of the pairs of a schedule it counts before.
  bool frees_in_pairs = false;
  std::vector<Chain> chains;  ///< in order of stages; together they cover every stage once
  bool asynchronous = false;  ///< never flushes: weights are updated while the pipeline stays full
  /// Of an asynchronous schedule of the catalogue: the microbatches whose gradients make one update, and which weights
  /// they are computed with. 0: not known, as of a file.
  int accumulation = 0;
  WeightPolicy weight_policy = WeightPolicy::kFlushed;

  int rank_count() const { return static_cast<int>(ranks.size()); }
  int stage_count() const { return static_cast<int>(rank_of_stage.size()); }
  std::size_t action_count() const;
  int replicas(int stage) const { return replicas_of_stage.empty() ? 1 : replicas_of_stage[stage]; }
  /// The rank that executes the stage's actions of a microbatch.
  RankIndex rank_of(int stage, std::uint32_t microbatch) const {
    const int first = rank_of_stage[stage];
    return RankIndex(replicas_of_stage.empty() ? first : first + static_cast<int>(microbatch) % replicas(stage));
  }
  /// 1 + the largest microbatch index of the chain; of slices, where microbatches are cut.
  int microbatches_of(const Chain& chain) const;
  /// Whole microbatches of all chains together.
  int microbatch_count() const;
  /// Stages that one microbatch passes: those of a chain, which are all as long.
  int stages_per_chain() const;
};

/// Larger programs are refused: they would not fit into the memory of a workstation.
inline constexpr std::size_t kMaxActions = 20'000'000;

/// Which cell of its rank an action stands in, from 0: an overlapped pair is one cell.
int step_of(const std::vector<Action>& actions, std::size_t index);

/// Program::replicas_of_stage of a program that was read without it: stages whose microbatches neighbouring ranks take
/// in turn; empty when there is none. Anything less regular stays one rank's stage, for find_fault to report. Reads the
/// ranks' actions and rank_of_stage.
std::vector<int> infer_replicas(const Program& program);

/// The pipeline ranks that a chain's stages occupy, in order, a replicated stage's as its first one only.
std::vector<int> ranks_of_chain(const Program& program, const Chain& chain);

/// The most activations (one per stage and microbatch) that each rank holds at once: +1 at F, -1 at B or W, because the
/// weight gradient still needs the activation. In an overlapped pair the forward counts before the backward, unless it
/// frees_in_pairs.
std::vector<int> peak_in_flight(const Program& program);

/// Activations that a rank holds at one moment, by stage of its list.
using HeldCounts = std::vector<int>;

/// The stages of a rank, in order, and the moments at which it holds most, none of which is below another.
struct RankActivations {
  std::vector<int> stages;
  std::vector<HeldCounts> moments;

  /// The most at once, whatever their stages: peak_in_flight.
  int in_flight() const;
};

/// The moments at which a rank that executes `actions` holds most, each by stage of `stages`; `frees_in_pairs` is the
/// program's.
std::vector<HeldCounts> fullest_moments(const std::vector<Action>& actions, const std::vector<int>& stages,
                                        bool frees_in_pairs);

/// By rank.
std::vector<RankActivations> held_activations(const Program& program);

/// Another block of actions may be inserted behind the first `cut` actions of each rank: a program of more microbatches
/// is one of fewer with so many blocks inserted, each the block before it with later microbatches, and with later
/// microbatches behind the cut. The cut is consistent: what stands before it waits for nothing behind it.
struct OrderPeriod {
  int microbatches = 0;             ///< whole ones of all chains, that a block adds
  std::vector<std::size_t> cut;     ///< by rank
  std::vector<std::size_t> length;  ///< by rank, actions of a block
  int blocks = 0;                   ///< before the cut, on every rank, each like the next with earlier microbatches
  int reach = 0;  ///< what stands behind the cut waits for results of the last so many blocks, at most

  /// The same of a program of that many microbatches, some blocks longer or shorter.
  OrderPeriod of(int microbatches_before, int microbatches_after) const;
};

/// The period of which `more` has one block more than `fewer`; nothing where the two are not so related, and where the
/// cut cannot be made consistent. That still larger programs go on alike is a property of the schedule (tested for all
/// of the catalogue).
std::optional<OrderPeriod> find_order_period(const Program& fewer, const Program& more);

}  // namespace flopcast
