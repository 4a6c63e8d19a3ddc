#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sim/program/index.hpp"

namespace flopcast {

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

}  // namespace flopcast
