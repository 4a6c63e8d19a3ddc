#include "realrun/network/corpus.hpp"

#include <numeric>

namespace flopcast::realrun {

Microbatch Corpus::microbatch(std::uint64_t first, int count) const {
  const auto size = static_cast<std::uint64_t>(vocab);
  // An affine map is a permutation when its factor has no divisor in common with the size.
  std::uint64_t factor = size / 2 + 1;
  while (std::gcd(factor, size) != 1) ++factor;
  Microbatch batch;
  for (int item = 0; item < count; ++item) {
    const std::uint64_t start = mix(seed ^ mix(first + static_cast<std::uint64_t>(item)));
    std::uint64_t token = start % size;
    for (int position = 0; position < sequence; ++position) {
      batch.tokens.push_back(static_cast<int>(token));
      const std::uint64_t chance = mix(start + 2 * static_cast<std::uint64_t>(position) + 1);
      token = chance % 8 == 0 ? (chance / 8) % size : (token * factor + 1) % size;
      batch.targets.push_back(static_cast<int>(token));
    }
  }
  return batch;
}

Microbatch cut(const Microbatch& whole, std::size_t sequence, const TokenSlice& slice) {
  if (slice.count == 1) return whole;
  Microbatch part;
  for (std::size_t start = slice.first(sequence); start < whole.tokens.size(); start += sequence) {
    for (std::size_t row = start; row < start + slice.length(sequence); ++row) {
      part.tokens.push_back(whole.tokens[row]);
      part.targets.push_back(whole.targets[row]);
    }
  }
  return part;
}

}  // namespace flopcast::realrun
