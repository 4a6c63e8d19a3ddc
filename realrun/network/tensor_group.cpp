#include "realrun/network/tensor_group.hpp"

#include <type_traits>

#include "model/error/error.hpp"

namespace flopcast::realrun {

namespace {

template <class T>
constexpr Element kElementOf = std::is_same_v<T, float> ? Element::kFloat32 : Element::kFloat64;

}  // namespace

template <class T>
Tensor<T> TensorGroup::all_reduce(const Tensor<T>& tensor, Reduction reduction) const {
  if (size() == 1) return tensor;
  Tensor<T> result(tensor.rows(), tensor.columns());
  transport_->run(group_, {CollectiveKind::kAllReduce, tensor.buffer(), result.buffer(), kElementOf<T>, reduction});
  return result;
}

template <class T>
Tensor<T> TensorGroup::gather_rows(const Tensor<T>& tensor) const {
  if (size() == 1) return tensor;
  Tensor<T> result(tensor.rows() * static_cast<std::size_t>(size()), tensor.columns());
  transport_->run(group_, {CollectiveKind::kAllGather, tensor.buffer(), result.buffer(), kElementOf<T>});
  return result;
}

template <class T>
Tensor<T> TensorGroup::scatter_rows(const Tensor<T>& tensor) const {
  if (size() == 1) return tensor;
  FLOPCAST_CHECK(tensor.rows() % static_cast<std::size_t>(size()) == 0);
  Tensor<T> result(tensor.rows() / static_cast<std::size_t>(size()), tensor.columns());
  transport_->run(group_, {CollectiveKind::kReduceScatter, tensor.buffer(), result.buffer(), kElementOf<T>});
  return result;
}

template Tensor<float> TensorGroup::all_reduce(const Tensor<float>&, Reduction) const;
template Tensor<double> TensorGroup::all_reduce(const Tensor<double>&, Reduction) const;
template Tensor<float> TensorGroup::gather_rows(const Tensor<float>&) const;
template Tensor<double> TensorGroup::gather_rows(const Tensor<double>&) const;
template Tensor<float> TensorGroup::scatter_rows(const Tensor<float>&) const;
template Tensor<double> TensorGroup::scatter_rows(const Tensor<double>&) const;

}  // namespace flopcast::realrun
