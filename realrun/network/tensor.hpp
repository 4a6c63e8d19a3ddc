#pragma once

#include <cstddef>
#include <utility>

#include "realrun/buffer.hpp"

namespace flopcast::realrun {

/// A row-major matrix in host memory: one row a token (microbatch and position flattened), one column a feature.
/// Copies share the memory; whoever computes a new value makes a new tensor.
template <class T>
class Tensor {
 public:
  Tensor() = default;
  /// Filled with zeros.
  Tensor(std::size_t rows, std::size_t columns) : Tensor(allocate_host(rows * columns * sizeof(T)), rows, columns) {}
  Tensor(Buffer buffer, std::size_t rows, std::size_t columns)
      : buffer_(std::move(buffer)), rows_(rows), columns_(columns) {}

  bool empty() const { return buffer_.empty(); }
  std::size_t rows() const { return rows_; }
  std::size_t columns() const { return columns_; }
  std::size_t size() const { return rows_ * columns_; }
  const Buffer& buffer() const { return buffer_; }
  T* data() { return reinterpret_cast<T*>(buffer_.address()); }
  const T* data() const { return reinterpret_cast<const T*>(buffer_.address()); }
  T* row(std::size_t index) { return data() + index * columns_; }
  const T* row(std::size_t index) const { return data() + index * columns_; }

 private:
  Buffer buffer_;
  std::size_t rows_ = 0;
  std::size_t columns_ = 0;
};

}  // namespace flopcast::realrun
