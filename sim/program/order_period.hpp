// How the order of a program repeats as its microbatches grow.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "sim/program/program.hpp"

namespace flopcast {

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
