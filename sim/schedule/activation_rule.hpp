#pragma once

#include <optional>

#include "sim/schedule/action.hpp"

namespace flopcast {

/// What a rank may hold, counted in halves of one chunk's activation: a forward takes two. A full backward gives two
/// back, W what I has not.
struct ActivationRule {
  std::optional<int> limit;      ///< absent: no limit
  bool half_freed_at_i = false;  ///< I gives one half back, as 2401.10241 counts; otherwise W gives both

  bool allows(int held) const { return !limit || held <= *limit; }
  /// Halves that an action takes, less those it gives back.
  int change(ActionKind kind) const {
    constexpr int kWhole = 2;
    const int freed_at_i = half_freed_at_i ? 1 : 0;
    if (kind == ActionKind::kForward) return kWhole;
    if (kind == ActionKind::kInputGradient) return -freed_at_i;
    return kind == ActionKind::kWeightGradient ? freed_at_i - kWhole : -kWhole;
  }
};

}  // namespace flopcast
