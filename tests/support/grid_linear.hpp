#pragma once

#include <cstddef>
#include <vector>

#include "model/layout/layout.hpp"
#include "tests/support/line_linear.hpp"

namespace flopcast::realrun {

/// A rank's place in a grid of tensor-parallel ranks (TensorGrid), and the lines through it. Ranks fill the rows of the
/// grid first, then its columns, then its depth.
struct GridPlace {
  TensorParallel form = TensorParallel::k2d;
  TensorGrid grid;
  LineGroup row;
  LineGroup column;
  LineGroup depth;

  /// For the next linear of a 3d chain, which finds its input cut as this one's output is: row and depth change roles.
  GridPlace turned() const;
};

/// Called by all ranks of the run; `ranks` are those of the grid, in order, and this rank is among them.
GridPlace form_grid(RankTransport& transport, TensorParallel form, const TensorGrid& grid,
                    const std::vector<int>& ranks);

/// The rectangles of X (tokens x inputs), W (outputs x inputs) and Y (tokens x outputs) that a rank holds.
struct GridCut {
  Shard input;
  Shard weight;
  Shard output;
};
/// Every cut is into equal parts: they must divide. At row index a, column index b and depth index c of q x q x d:
///   2d, 2.5d  X part (c·q + b of q·d, a of q), W part (a of q, b of q), Y cut as X; every depth has all of W
///   3d        X part (b·q + a of q², c of q), W part (a·q + b of q², c of q), Y part (b·q + c of q², a of q)
GridCut grid_cut(const GridPlace& place, std::size_t tokens, std::size_t inputs, std::size_t outputs);

/// y = x·Wᵀ on a grid, without bias. What it sends: model/cost/axis_costs.hpp.
///
///   2d, 2.5d  SUMMA (van de Geijn & Watts 1997; Optimus, Xu et al. 2104.05343 §3): in q steps a panel of X comes along
///             the row and one of W along the column, and their product is added to Y. For the gradients the panels
///             that a line sums up are reduced in one reduce-scatter instead of q reductions. 2.5d runs one grid for
///             each part of the tokens and sums W's gradient over the depth (Tesseract, Wang et al. 2105.14500 §3)
///   3d        X gathered along the row, W along the column, and their product reduced along the depth (Agarwal et al.
///             1995; Bian et al. 2105.14450 §3); both are kept gathered for the backward pass
/// `tokens` of all ranks together. Left out: the next panel's broadcast beside a step's product.
template <class T>
LayerPointer<T> grid_linear(const LinearSpec& spec, std::size_t tokens, const GridPlace& place);

}  // namespace flopcast::realrun
