#pragma once

#include <cstddef>
#include <string_view>

namespace flopcast::realrun {

enum class Transposed { kNo, kYes };

/// A row-major matrix somewhere in memory, as stored; `stride` elements from row to row.
template <class T>
struct MatrixView {
  T* data = nullptr;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t stride = 0;
  Transposed transposed = Transposed::kNo;
};

/// result = factor · op(a) · op(b), or += when `accumulate`. One thread: a rank is one core.
/// Source of the arithmetic: OpenBLAS when the build found it (32-bit floats), otherwise Eigen.
template <class T>
void multiply(const MatrixView<const T>& a, const MatrixView<const T>& b, const MatrixView<T>& result, T factor = T(1),
              bool accumulate = false);

/// "OpenBLAS" or "Eigen".
std::string_view gemm_library();

}  // namespace flopcast::realrun
