#include "sim/schedule/block_shapes.hpp"

#include <cstddef>
#include <utility>

namespace flopcast {

std::vector<BlockShape> all_shapes(int chunks, int largest_step, int largest_gap) {
  std::vector<BlockShape> shapes = {BlockShape{}};
  const auto vary = [&shapes](int largest, const auto& set) {
    std::vector<BlockShape> varied;
    for (int value = 1; value <= largest; ++value) {
      for (BlockShape shape : shapes) {
        set(shape, value);
        varied.push_back(shape);
      }
    }
    shapes = std::move(varied);
  };
  const auto legs = static_cast<std::size_t>(2 * chunks);
  for (std::size_t leg = 0; leg < legs; ++leg) {
    vary(largest_step, [leg](BlockShape& shape, int value) { shape.steps[leg] = value; });
    if (leg + 1 < legs) vary(largest_gap, [leg](BlockShape& shape, int value) { shape.gaps[leg] = value; });
  }
  return shapes;
}

std::vector<BlockShape> v_shapes(int ranks) {
  constexpr int kLargestStep = 2;
  // Gaps matter less the longer the legs are; and time is short where there are many ranks.
  constexpr int kManyRanks = 16;
  std::vector<BlockShape> shapes = all_shapes(2, kLargestStep, ranks > kManyRanks ? 1 : 2);
  // Found by trying all steps and gaps up to 4 and 6 on pipelines of 2 to 8 ranks: those that were best somewhere.
  const std::vector<BlockShape> wider = {
      {{2, 1, 2, 1}, {1, 4, 2}}, {{1, 2, 1, 2}, {1, 4, 2}}, {{1, 2, 1, 2}, {2, 4, 4}}, {{1, 2, 1, 2}, {2, 4, 1}},
      {{1, 2, 1, 2}, {4, 1, 5}}, {{1, 2, 1, 2}, {4, 4, 2}}, {{1, 3, 1, 3}, {1, 1, 1}}, {{1, 3, 1, 3}, {1, 3, 1}},
      {{1, 1, 2, 1}, {3, 5, 2}}, {{1, 1, 2, 4}, {1, 1, 1}}, {{1, 4, 2, 3}, {1, 1, 1}}, {{1, 4, 2, 4}, {1, 1, 1}},
      {{2, 2, 4, 4}, {1, 1, 1}}, {{2, 4, 2, 4}, {1, 1, 1}}, {{4, 2, 4, 2}, {1, 1, 1}}};
  shapes.insert(shapes.end(), wider.begin(), wider.end());
  return shapes;
}

}  // namespace flopcast
