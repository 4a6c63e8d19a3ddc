#pragma once

#include <cstdint>

#include "realrun/network/layer.hpp"

namespace flopcast::realrun {

/// A synthetic text without end, the same everywhere: token i + 1 follows from token i by a fixed permutation of the
/// vocabulary, except for one in eight, which is drawn anew. A network learns the permutation; its loss cannot fall
/// below the entropy of the draws.
struct Corpus {
  int vocab = 2;
  int sequence = 1;  ///< tokens of a sample
  std::uint64_t seed = 1;

  /// Samples first .. first + count - 1 one behind the other. Targets are the tokens that follow.
  Microbatch microbatch(std::uint64_t first, int count) const;
};

/// The tokens of one slice of each of a microbatch's sequences.
Microbatch cut(const Microbatch& whole, std::size_t sequence, const TokenSlice& slice);

}  // namespace flopcast::realrun
