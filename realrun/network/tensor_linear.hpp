#pragma once

#include <cstddef>
#include <string>

#include "realrun/network/layer.hpp"
#include "realrun/network/tensor_group.hpp"

namespace flopcast::realrun {

/// y = x·Wᵀ for W of `outputs` rows and `inputs` columns.
struct LinearSpec {
  std::string name;
  std::size_t inputs = 0;
  std::size_t outputs = 0;
};

/// What a linear hands over on the side on which its weights are cut.
enum class CutSide {
  kCut,    ///< each rank's features, as a pair of linears has it in the middle
  kWhole,  ///< all features, of all rows or, with sequence parallelism, of this rank's rows: the linear stands alone
};

/// A linear on a line of tensor-parallel ranks, without bias (Shoeybi et al. 1909.08053 §3; with sequence parallelism
/// Korthikanti et al. 2205.05198 §4.2). What each form sends: tests/support/tensor_line.hpp.
///
///   column   W cut by rows, the outputs. Input: all features, of all rows or this rank's. kWhole gathers the output,
///   or
///            with sequence parallelism exchanges its features for rows
///   row      W cut by columns, the inputs. Output: the sum over the ranks. kWhole cuts the input, or exchanges its
///   rows
///            for features
/// Where a whole tensor comes out, all ranks must hand in the same gradient for it.
template <class T>
LayerPointer<T> column_linear(const LinearSpec& spec, const TensorForm& form, CutSide output);
template <class T>
LayerPointer<T> row_linear(const LinearSpec& spec, const TensorForm& form, CutSide input);
/// A column and a row linear with nothing between them.
template <class T>
LayerPointer<T> linear_pair(const LinearSpec& up, const LinearSpec& down, const TensorForm& form);

}  // namespace flopcast::realrun
