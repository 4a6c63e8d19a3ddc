#include "realrun/network/tensor_group.hpp"

#include <algorithm>
#include <type_traits>

#include "base/text/error.hpp"

namespace flopcast::realrun {

namespace {

template <class T>
constexpr Element kElementOf = std::is_same_v<T, float> ? Element::kFloat32 : Element::kFloat64;

// Blocks of neighbouring columns, one below the other.
template <class T>
Tensor<T> cut_columns(const Tensor<T>& tensor, int blocks) {
  const auto count = static_cast<std::size_t>(blocks);
  FLOPCAST_CHECK(tensor.columns() % count == 0);
  const std::size_t width = tensor.columns() / count;
  Tensor<T> stacked(tensor.rows() * count, width);
  for (std::size_t row = 0; row < stacked.rows(); ++row) {
    const T* source = tensor.row(row % tensor.rows()) + row / tensor.rows() * width;
    std::copy(source, source + width, stacked.row(row));
  }
  return stacked;
}

// The reverse.
template <class T>
Tensor<T> join_columns(const Tensor<T>& stacked, int blocks) {
  const auto count = static_cast<std::size_t>(blocks);
  const std::size_t width = stacked.columns();
  Tensor<T> tensor(stacked.rows() / count, width * count);
  for (std::size_t row = 0; row < stacked.rows(); ++row) {
    T* target = tensor.row(row % tensor.rows()) + row / tensor.rows() * width;
    std::copy(stacked.row(row), stacked.row(row) + width, target);
  }
  return tensor;
}

}  // namespace

template <class T>
Tensor<T> TensorGroup::make(std::size_t rows, std::size_t columns) const {
  if (device_ == nullptr) return Tensor<T>(rows, columns);
  return Tensor<T>(device_->allocate(rows * columns * sizeof(T)), rows, columns);
}

template <class T>
Tensor<T> TensorGroup::all_reduce(const Tensor<T>& tensor, Reduction reduction) const {
  if (size() == 1) return tensor;
  Tensor<T> result = make<T>(tensor.rows(), tensor.columns());
  transport_->run(group_, {CollectiveKind::kAllReduce, tensor.buffer(), result.buffer(), kElementOf<T>, reduction});
  return result;
}

template <class T>
Tensor<T> TensorGroup::gather_rows(const Tensor<T>& tensor) const {
  if (size() == 1) return tensor;
  Tensor<T> result = make<T>(tensor.rows() * static_cast<std::size_t>(size()), tensor.columns());
  transport_->run(group_, {CollectiveKind::kAllGather, tensor.buffer(), result.buffer(), kElementOf<T>});
  return result;
}

template <class T>
Tensor<T> TensorGroup::scatter_rows(const Tensor<T>& tensor) const {
  if (size() == 1) return tensor;
  FLOPCAST_CHECK(tensor.rows() % static_cast<std::size_t>(size()) == 0);
  Tensor<T> result = make<T>(tensor.rows() / static_cast<std::size_t>(size()), tensor.columns());
  transport_->run(group_, {CollectiveKind::kReduceScatter, tensor.buffer(), result.buffer(), kElementOf<T>});
  return result;
}

template <class T>
Tensor<T> TensorGroup::gather_columns(const Tensor<T>& tensor) const {
  return join_columns(gather_rows(tensor), size());
}

template <class T>
Tensor<T> TensorGroup::own_columns(const Tensor<T>& tensor) const {
  if (size() == 1) return tensor;
  const Tensor<T> blocks = cut_columns(tensor, size());
  const std::size_t bytes = blocks.buffer().bytes() / static_cast<std::size_t>(size());
  const Buffer own = blocks.buffer().slice(static_cast<std::size_t>(index()) * bytes, bytes);
  return {own, tensor.rows(), blocks.columns()};
}

template <class T>
Tensor<T> TensorGroup::exchange(const Tensor<T>& tensor) const {
  FLOPCAST_CHECK(tensor.rows() % static_cast<std::size_t>(size()) == 0);
  Tensor<T> result = make<T>(tensor.rows(), tensor.columns());
  transport_->run(group_, {CollectiveKind::kAllToAll, tensor.buffer(), result.buffer(), kElementOf<T>});
  return result;
}

template <class T>
Tensor<T> TensorGroup::columns_to_rows(const Tensor<T>& tensor) const {
  if (size() == 1) return tensor;
  return join_columns(exchange(tensor), size());
}

template <class T>
Tensor<T> TensorGroup::rows_to_columns(const Tensor<T>& tensor) const {
  if (size() == 1) return tensor;
  return exchange(cut_columns(tensor, size()));
}

template <class T>
Tensor<T> TensorGroup::broadcast(const Tensor<T>& tensor, int root) const {
  if (size() == 1) return tensor;
  Tensor<T> result = index() == root ? tensor : make<T>(tensor.rows(), tensor.columns());
  transport_->run(
      group_, {.kind = CollectiveKind::kBroadcast, .output = result.buffer(), .element = kElementOf<T>, .root = root});
  return result;
}

template Tensor<float> TensorGroup::all_reduce(const Tensor<float>&, Reduction) const;
template Tensor<double> TensorGroup::all_reduce(const Tensor<double>&, Reduction) const;
template Tensor<float> TensorGroup::gather_rows(const Tensor<float>&) const;
template Tensor<double> TensorGroup::gather_rows(const Tensor<double>&) const;
template Tensor<float> TensorGroup::scatter_rows(const Tensor<float>&) const;
template Tensor<double> TensorGroup::scatter_rows(const Tensor<double>&) const;
template Tensor<float> TensorGroup::gather_columns(const Tensor<float>&) const;
template Tensor<double> TensorGroup::gather_columns(const Tensor<double>&) const;
template Tensor<float> TensorGroup::own_columns(const Tensor<float>&) const;
template Tensor<double> TensorGroup::own_columns(const Tensor<double>&) const;
template Tensor<float> TensorGroup::columns_to_rows(const Tensor<float>&) const;
template Tensor<double> TensorGroup::columns_to_rows(const Tensor<double>&) const;
template Tensor<float> TensorGroup::rows_to_columns(const Tensor<float>&) const;
template Tensor<double> TensorGroup::rows_to_columns(const Tensor<double>&) const;
template Tensor<float> TensorGroup::broadcast(const Tensor<float>&, int) const;
template Tensor<double> TensorGroup::broadcast(const Tensor<double>&, int) const;

}  // namespace flopcast::realrun
