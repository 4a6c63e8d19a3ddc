#pragma once

#include "realrun/device/device.hpp"
#include "realrun/network/kernels.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// The tensor-parallel ranks, as layers see them. Nobody else: every operation returns its argument.
class TensorGroup {
 public:
  TensorGroup() = default;
  /// Results lie in the memory of `device`; without one, in that of the host.
  TensorGroup(RankTransport& transport, Group group, ComputeDevice* device = nullptr)
      : transport_(&transport), group_(std::move(group)), device_(device) {}

  int size() const { return transport_ == nullptr ? 1 : group_.size(); }
  int index() const { return transport_ == nullptr ? 0 : group_.index; }

  template <class T>
  Tensor<T> all_reduce(const Tensor<T>& tensor, Reduction reduction = Reduction::kSum) const;
  /// Rows of all ranks, in order of their index.
  template <class T>
  Tensor<T> gather_rows(const Tensor<T>& tensor) const;
  /// This rank's share of the rows of the sum.
  template <class T>
  Tensor<T> scatter_rows(const Tensor<T>& tensor) const;
  /// Columns of all ranks, in order of their index.
  template <class T>
  Tensor<T> gather_columns(const Tensor<T>& tensor) const;
  /// This rank's share of the columns; nothing is sent.
  template <class T>
  Tensor<T> own_columns(const Tensor<T>& tensor) const;
  /// From all rows of this rank's columns to all columns of this rank's rows, by an all-to-all.
  template <class T>
  Tensor<T> columns_to_rows(const Tensor<T>& tensor) const;
  /// The reverse.
  template <class T>
  Tensor<T> rows_to_columns(const Tensor<T>& tensor) const;
  /// The root's tensor, on every rank of this shape; elsewhere the argument is not read.
  template <class T>
  Tensor<T> broadcast(const Tensor<T>& tensor, int root) const;

 private:
  template <class T>
  Tensor<T> exchange(const Tensor<T>& tensor) const;
  template <class T>
  Tensor<T> make(std::size_t rows, std::size_t columns) const;

  RankTransport* transport_ = nullptr;
  Group group_;
  ComputeDevice* device_ = nullptr;
};

/// How the tensor-parallel ranks share each layer.
struct TensorForm {
  const TensorGroup* group = nullptr;  ///< outlives the layers; never null
  bool sequence_parallel = false;      ///< what lies between linears is shared by rows

  /// Whether that makes a difference.
  bool shares_rows() const { return sequence_parallel && group->size() > 1; }
};

}  // namespace flopcast::realrun
