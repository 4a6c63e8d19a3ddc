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

/// Index of a rank, stage, chunk or microbatch; `Kind` makes each of them a distinct type. It converts to int, but not
/// to an index of another kind.
template <class Kind>
class Index {
 public:
  constexpr Index() = default;
  template <class Number, std::enable_if_t<std::is_integral_v<Number>, int> = 0>
  constexpr explicit Index(Number number) : number_(static_cast<int>(number)) {}

  constexpr operator int() const { return number_; }  // NOLINT(google-explicit-constructor)
  // fmt 10 formats a type that converts to a number only if the type has format_as.
  friend constexpr int format_as(Index index) { return index.number_; }

 private:
  int number_ = 0;
};

/// A valid subscript of a list indexed by `Kind`: an index of that kind or a plain integer.
template <class Place, class Kind>
concept PlaceOf = std::is_integral_v<Place> || std::is_same_v<Place, Index<Kind>>;

/// A vector whose subscripts are indices of its own kind or plain integers, signed ones included. An index of another
/// kind does not compile.
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
using ChunkIndex = Index<ChunkKind>;            ///< position among the stages of a rank
using MicrobatchIndex = Index<MicrobatchKind>;  ///< or slice, if the schedule cuts microbatches into slices
template <class Value>
using ByRank = IndexedVector<RankKind, Value>;
template <class Value>
using ByChain = IndexedVector<ChainKind, Value>;
template <class Value>
using ByStage = IndexedVector<StageKind, Value>;

/// The compute actions of a pipeline schedule, with the letters of torch.distributed.pipelining. (The zero-bubble
/// papers call the input gradient "B"; flopcast never does.)
enum class ActionKind : std::uint8_t {
  kForward,         ///< F
  kBackward,        ///< B: input and weight gradient in one action
  kInputGradient,   ///< I: the part of the backward pass that the previous stage waits for
  kWeightGradient,  ///< W: the part that no other action waits for
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

/// "2F0". The text omits overlaps_next, which belongs to the schedule cell rather than to the action.
std::string to_string(const Action& action);
/// Inverse of to_string; nullopt if the text is not a compute action.
std::optional<Action> parse_action(std::string_view text);

/// Consecutive stages through which activations flow from first to last. A bidirectional schedule (DualPipe, Chimera)
/// has two chains, each a full copy of the model.
struct Chain {
  int first_stage = 0;
  int last_stage = 0;
};

/// Selects the weights with which a microbatch is computed. A version is the number of updates applied before it,
/// counted separately on each stage.
///
///   kFlushed        one update after all microbatches: version 0 throughout
///   kStashed        forward takes the stage's newest version, backward the version that its forward took
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

/// A schedule as data: the actions of every pipeline rank, in execution order. The simulator, CPU ranks and GPU ranks
/// all execute the same Program.
struct Program {
  std::string schedule;               ///< the catalogue name, or the file that the schedule was read from
  ByRank<std::vector<Action>> ranks;  ///< ranks[r]: the actions of pipeline rank r in order
  /// Token slices per microbatch; 1 if microbatches are not cut. Otherwise the actions' "microbatches" are slices:
  /// slice j of microbatch k has index k * slices_per_microbatch + j, and the times, activations and messages of an
  /// action are those of one slice.
  int slices_per_microbatch = 1;
  ByStage<int> rank_of_stage;  ///< stage -> pipeline rank; the first one of a replicated stage
  /// Replicas of each stage: the consecutive ranks, starting at rank_of_stage, that take the stage's microbatches in
  /// turn. Microbatch k runs on replica k mod replicas, forward and backward. These ranks execute no other stage.
  /// Empty: one replica per stage.
  ByStage<int> replicas_of_stage;
  /// The halves of an overlapped pair advance layer by layer, and the forward half reuses the memory that the backward
  /// half frees: its activation counts only after the other is freed. If false, it counts before.
  bool backward_frees_first = false;
  std::vector<Chain> chains;  ///< in order of stages; together they cover every stage exactly once
  bool asynchronous = false;  ///< never flushes: weights are updated while the pipeline stays full
  /// For an asynchronous schedule of the catalogue: microbatches whose gradients make up one update, and the policy
  /// that selects their weights. 0: unknown, as for a schedule read from a file.
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
  /// 1 + the largest microbatch index of the chain; counts slices if microbatches are cut.
  int microbatches_of(const Chain& chain) const;
  /// Whole microbatches, summed over all chains.
  int microbatch_count() const;
  /// Stages that one microbatch passes through: those of a chain; all chains have the same length.
  int stages_per_chain() const;
};

/// Larger programs are rejected because they would not fit into the memory of a workstation.
inline constexpr std::size_t kMaxActions = 20'000'000;

/// Index of the cell of its rank that holds an action, from 0; an overlapped pair is one cell.
int step_of(const std::vector<Action>& actions, std::size_t index);

/// Infers Program::replicas_of_stage for a program that was read without it: stages whose microbatches adjacent ranks
/// take in turn; empty if there are none. A stage shared in any less regular pattern counts as one rank's, so that
/// find_fault reports it. Reads the ranks' actions and rank_of_stage.
std::vector<int> infer_replicas(const Program& program);

/// Pipeline ranks that a chain's stages occupy, in order; a replicated stage counts with its first rank only.
std::vector<int> ranks_of_chain(const Program& program, const Chain& chain);

/// Peak number of activations (one per stage and microbatch) that each rank holds at once: +1 at F, -1 at B or W,
/// because the weight gradient still needs the activation. In an overlapped pair the forward counts before the
/// backward, unless the program backward_frees_first.
std::vector<int> peak_in_flight(const Program& program);

/// Activations that a rank holds at one moment, in the order of its list of stages.
using HeldCounts = std::vector<int>;

/// The stages of a rank, in order, and the moments at which it holds the most. No moment is
/// dominated by another.
struct RankActivations {
  std::vector<int> stages;
  std::vector<HeldCounts> moments;

  /// Most activations held at once, summed over stages: peak_in_flight.
  int in_flight() const;
};

/// The moments at which a rank that executes `actions` holds the most, with counts in the order of `stages`;
/// `backward_frees_first` as in Program.
std::vector<HeldCounts> peak_states(const std::vector<Action>& actions, const std::vector<int>& stages,
                                    bool backward_frees_first);

/// Indexed by rank.
std::vector<RankActivations> held_activations(const Program& program);

/// Periodic part of a schedule's order: another block of actions may be inserted after the first `cut` actions of each
/// rank. A program with more microbatches equals one with fewer and additional blocks inserted; each block repeats the
/// block before it with later microbatches, and the actions after the cut get later microbatches. The cut is
/// consistent: no action before it waits for one after it.
struct OrderPeriod {
  int microbatches = 0;             ///< whole microbatches of all chains that a block adds
  std::vector<std::size_t> cut;     ///< indexed by rank
  std::vector<std::size_t> length;  ///< actions per block, indexed by rank
  int blocks = 0;                   ///< number of blocks before the cut, on every rank; each equals the next with
                                    ///< earlier microbatches
  int reach = 0;                    ///< actions after the cut wait for results of at most this many of the last blocks

  /// The same period in a program with another number of microbatches, some blocks longer or shorter.
  OrderPeriod of(int microbatches_before, int microbatches_after) const;
};

/// Finds the period of which `more` has one block more than `fewer`; nullopt if the two are not related like this or
/// the cut cannot be made consistent. That even larger programs continue in the same pattern is a property of the
/// schedule (tested for the whole catalogue).
std::optional<OrderPeriod> find_order_period(const Program& fewer, const Program& more);

}  // namespace flopcast
