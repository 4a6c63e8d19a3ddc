#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/layout/layout.hpp"
#include "realrun/network/layers.hpp"
#include "realrun/network/tensor_group.hpp"
#include "realrun/network/tensor_parallel.hpp"

namespace flopcast::realrun {

/// A rank's position in a grid of tensor-parallel ranks (TensorGrid), and the lines through it. Ranks fill the rows of
/// the grid first, then its columns, then its depth.
struct GridPlace {
  TensorParallel form = TensorParallel::k2d;
  TensorGrid grid;
  TensorGroup row;
  TensorGroup column;
  TensorGroup depth;
  TensorGroup all;  ///< all ranks of the grid

  /// Position for the next linear of a 3d chain, whose input is split as this one's output: row and depth change roles.
  GridPlace turned() const;
  /// The line whose ranks hold the parts of a linear's input features. Those of its output are split along the row.
  const TensorGroup& features() const { return form == TensorParallel::k3d ? depth : row; }
  /// The lines through the ranks that hold the same part of the features.
  std::vector<const TensorGroup*> holders() const;
  /// Index of the part of the tokens in a linear's input, out of TensorGrid::token_parts. For the output see turned().
  int token_part() const;
  /// Parts of the tokens whose table rows the ranks of a column look up together.
  std::vector<int> looked_up_parts() const;
};

/// Called by all ranks of the run; `ranks` are those of the grid, in order. A rank that is not among them gets a
/// position without lines.
GridPlace form_grid(RankTransport& transport, TensorParallel form, const TensorGrid& grid,
                    const std::vector<int>& ranks);

/// Tokens of the parts that a rank's column looks up, and targets of its last linear's output. Parts are equal numbers
/// of whole samples.
Microbatch cut_for_grid(const Microbatch& whole, const GridPlace& place);

/// y = x·Wᵀ on a grid, without bias. Traffic: model/cost/axis_costs.hpp. At row index a, column index b and depth index
/// c of q x q x d, with all matrices split into equal parts, a rank holds
///   2d, 2.5d  X part (c·q + b of q·d, a of q), W part (a of q, b of q), Y cut as X; every depth has all of W
///   3d        X part (b·q + a of q², c of q), W part (a·q + b of q², c of q), Y part (b·q + c of q², a of q)
///
///   2d, 2.5d  SUMMA (van de Geijn & Watts 1997; Optimus, Xu et al. 2104.05343 §3): in each of q steps a panel of X is
///             broadcast along the row and one of W along the column, and their product is added to Y. For the
///             gradients the panels that a line sums are reduced in one reduce-scatter instead of q reductions. 2.5d
///             runs one grid for each part of the tokens and sums W's gradient over the depth (Tesseract, Wang et al.
///             2105.14500 §3)
///   3d        X gathered along the row, W along the column, and their product reduced along the depth (Agarwal et al.
///             1995; Bian et al. 2105.14450 §3); both are kept gathered for the backward pass
/// Left out: overlapping the next panel's broadcast with a step's product.
template <class T>
LayerPointer<T> grid_linear(const LinearSpec& spec, const GridPlace& place);

/// A table of `vocab` rows and `hidden` columns, split like the inputs of a 2d, 2.5d or 3d linear's weight: rank (a, b,
/// c) holds in 2d and 2.5d rows part b of q, columns part a of q; in 3d rows part b·q + a of q², columns part c of q.
/// Each rank of a column looks up the tokens of all its ranks in its own part, and the results are reduce-scattered. 3d
/// first gathers the rows of its row of ranks, and reduces their gradient; 2.5d sums the gradient over the depth.
template <class T>
LayerPointer<T> grid_embedding(const std::string& parameter, std::size_t vocab, std::size_t hidden, float deviation,
                               const GridPlace& place);

/// RowNorm over features that are split among the ranks of a line: per row, two sums of fp32 forward and two backward
/// (Optimus §3.2.2), one each if the norm is not centred.
template <class T>
LayerPointer<T> line_norm(const std::string& name, std::size_t width, Norm kind, const TensorGroup& line);

/// A layer whose parameters are replicated on several ranks that process different rows: they sum its weight gradient
/// in every pass, along each line of `holders` in turn.
template <class T>
LayerPointer<T> replicated(LayerPointer<T> layer, std::vector<const TensorGroup*> holders);

}  // namespace flopcast::realrun
