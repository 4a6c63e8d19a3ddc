#include "model/layout/parallel_forms.hpp"

#include <fmt/format.h>

namespace flopcast {

std::string Compression::text() const {
  switch (kind) {
    case Kind::kNone:
      return "none";
    case Kind::kQuantized:
      return fmt::format("{}bit", bits);
    case Kind::kTopK:
      return fmt::format("topk:{}", fraction);
    case Kind::kPowerSgd:
      return fmt::format("powersgd:{}", rank);
  }
  return "none";
}

TensorGrid tensor_grid(TensorParallel form, int ranks, int depth) {
  if (form == TensorParallel::k1d) return {1, 1, 1, ranks};
  for (int q = 1; q <= ranks; ++q) {
    const TensorGrid grid = form == TensorParallel::k2d    ? TensorGrid{q, 1, q, q * q}
                            : form == TensorParallel::k25d ? TensorGrid{q, depth, q * depth, q * q}
                                                           : TensorGrid{q, 1, q * q, q * q * q};
    if (grid.ranks() == ranks) return grid;
    if (grid.ranks() > ranks) break;
  }
  return {0, 1, 0, 0};
}

std::vector<int> tensor_grid_sizes(TensorParallel form, int depth, int most) {
  std::vector<int> sizes;
  for (int ranks = 1; ranks <= most; ++ranks) {
    if (tensor_grid(form, ranks, depth).q > 0) sizes.push_back(ranks);
  }
  return sizes;
}

}  // namespace flopcast
