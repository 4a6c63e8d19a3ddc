#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "base/text/error.hpp"
#include "realrun/network/tensor_group.hpp"
#include "realrun/network/tensor_parallel.hpp"

namespace flopcast::realrun {

/// A line of tensor-parallel ranks that also exchange columns.
class LineGroup : public TensorGroup {
 public:
  using TensorGroup::TensorGroup;

  /// Columns of all ranks, in order of their index.
  template <class T>
  Tensor<T> gather_columns(const Tensor<T>& tensor) const {
    return join_columns(gather_rows(tensor));
  }
  /// This rank's share of the columns, without communication.
  template <class T>
  Tensor<T> own_columns(const Tensor<T>& tensor) const {
    const Tensor<T> blocks = cut_columns(tensor);
    const std::size_t bytes = blocks.buffer().bytes() / ranks();
    return {blocks.buffer().slice(static_cast<std::size_t>(index()) * bytes, bytes), tensor.rows(), blocks.columns()};
  }
  /// Converts all rows of this rank's columns to all columns of this rank's rows, by an all-to-all.
  template <class T>
  Tensor<T> columns_to_rows(const Tensor<T>& tensor) const {
    return join_columns(exchange(tensor));
  }
  /// The inverse of columns_to_rows().
  template <class T>
  Tensor<T> rows_to_columns(const Tensor<T>& tensor) const {
    return exchange(cut_columns(tensor));
  }

 private:
  template <class T>
  Tensor<T> exchange(const Tensor<T>& tensor) const {
    FLOPCAST_CHECK(tensor.rows() % ranks() == 0);
    return collect(CollectiveKind::kAllToAll, tensor, tensor.rows());
  }
  // Stacks blocks of adjacent columns vertically.
  template <class T>
  Tensor<T> cut_columns(const Tensor<T>& tensor) const {
    FLOPCAST_CHECK(tensor.columns() % ranks() == 0);
    const std::size_t width = tensor.columns() / ranks();
    Tensor<T> stacked(tensor.rows() * ranks(), width);
    for (std::size_t row = 0; row < stacked.rows(); ++row) {
      const T* source = tensor.row(row % tensor.rows()) + row / tensor.rows() * width;
      std::copy(source, source + width, stacked.row(row));
    }
    return stacked;
  }
  // The inverse of cut_columns().
  template <class T>
  Tensor<T> join_columns(const Tensor<T>& stacked) const {
    const std::size_t width = stacked.columns();
    Tensor<T> tensor(stacked.rows() / ranks(), width * ranks());
    for (std::size_t row = 0; row < stacked.rows(); ++row) {
      T* target = tensor.row(row % tensor.rows()) + row / tensor.rows() * width;
      std::copy(stacked.row(row), stacked.row(row) + width, target);
    }
    return tensor;
  }
};

/// A single column-parallel linear layer: its output is gathered, or with sequence parallelism its features are
/// exchanged for rows. Where its gradient is whole, all ranks must pass the same one.
template <class T>
LayerPointer<T> lone_column_linear(const LinearSpec& spec, const LineGroup& group, bool sequence_parallel) {
  using Ends = GroupLayer<T, LineGroup>;
  const TensorForm form{.group = &group, .sequence_parallel = sequence_parallel};
  auto end = form.shares_rows()
                 ? std::make_unique<Ends>(group, &LineGroup::columns_to_rows<T>, &LineGroup::rows_to_columns<T>)
                 : std::make_unique<Ends>(group, &LineGroup::gather_columns<T>, &LineGroup::own_columns<T>);
  return sequence<T>(column_linear<T>(spec, form), std::move(end));
}

/// A single row-parallel linear layer: it slices its input, or exchanges its rows for features.
template <class T>
LayerPointer<T> lone_row_linear(const LinearSpec& spec, const LineGroup& group, bool sequence_parallel) {
  using Ends = GroupLayer<T, LineGroup>;
  const TensorForm form{.group = &group, .sequence_parallel = sequence_parallel};
  auto begin = form.shares_rows()
                   ? std::make_unique<Ends>(group, &LineGroup::rows_to_columns<T>, &LineGroup::columns_to_rows<T>)
                   : std::make_unique<Ends>(group, &LineGroup::own_columns<T>, &LineGroup::gather_columns<T>);
  return sequence<T>(std::move(begin), row_linear<T>(spec, form));
}

}  // namespace flopcast::realrun
