#pragma once

#include "realrun/network/tensor.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// The tensor-parallel ranks, as layers see them. Nobody else: every operation returns its argument.
class TensorGroup {
 public:
  TensorGroup() = default;
  TensorGroup(Transport& transport, Group group) : transport_(&transport), group_(std::move(group)) {}

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

 private:
  Transport* transport_ = nullptr;
  Group group_;
};

}  // namespace flopcast::realrun
