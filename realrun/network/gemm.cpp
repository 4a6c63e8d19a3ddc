#include "realrun/network/gemm.hpp"

#include <Eigen/Core>

#ifdef FLOPCAST_HAS_OPENBLAS
#include <cblas.h>
#endif

namespace flopcast::realrun {

namespace {

template <class T>
using Matrix = Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

auto map(const auto& view) {
  using Element = std::remove_pointer_t<decltype(view.data)>;
  using Mapped = std::conditional_t<std::is_const_v<Element>, const Matrix<Element>, Matrix<Element>>;
  return Eigen::Map<Mapped, 0, Eigen::OuterStride<>>(view.data, static_cast<Eigen::Index>(view.rows),
                                                     static_cast<Eigen::Index>(view.columns),
                                                     Eigen::OuterStride<>(static_cast<Eigen::Index>(view.stride)));
}

template <class T>
void multiply_with_eigen(const MatrixView<const T>& a, const MatrixView<const T>& b, const MatrixView<T>& result,
                         T factor, bool accumulate) {
  const auto left = map(a);
  const auto right = map(b);
  auto out = map(result);
  if (!accumulate) out.setZero();
  const bool left_transposed = a.transposed == Transposed::kYes;
  const bool right_transposed = b.transposed == Transposed::kYes;
  if (left_transposed && right_transposed) {
    out.noalias() += factor * left.transpose() * right.transpose();
  } else if (left_transposed) {
    out.noalias() += factor * left.transpose() * right;
  } else if (right_transposed) {
    out.noalias() += factor * left * right.transpose();
  } else {
    out.noalias() += factor * left * right;
  }
}

#ifdef FLOPCAST_HAS_OPENBLAS
void multiply_with_openblas(const MatrixView<const float>& a, const MatrixView<const float>& b,
                            const MatrixView<float>& result, float factor, bool accumulate) {
  static const bool one_thread = (openblas_set_num_threads(1), true);
  static_cast<void>(one_thread);
  const auto transposition = [](Transposed t) { return t == Transposed::kYes ? CblasTrans : CblasNoTrans; };
  const std::size_t inner = a.transposed == Transposed::kYes ? a.rows : a.columns;
  cblas_sgemm(CblasRowMajor, transposition(a.transposed), transposition(b.transposed),
              static_cast<blasint>(result.rows), static_cast<blasint>(result.columns), static_cast<blasint>(inner),
              factor, a.data, static_cast<blasint>(a.stride), b.data, static_cast<blasint>(b.stride),
              accumulate ? 1.0F : 0.0F, result.data, static_cast<blasint>(result.stride));
}
#endif

}  // namespace

template <class T>
void multiply(const MatrixView<const T>& a, const MatrixView<const T>& b, const MatrixView<T>& result, T factor,
              bool accumulate) {
#ifdef FLOPCAST_HAS_OPENBLAS
  if constexpr (std::is_same_v<T, float>) {
    multiply_with_openblas(a, b, result, factor, accumulate);
    return;
  }
#endif
  multiply_with_eigen(a, b, result, factor, accumulate);
}

template void multiply(const MatrixView<const float>&, const MatrixView<const float>&, const MatrixView<float>&, float,
                       bool);
template void multiply(const MatrixView<const double>&, const MatrixView<const double>&, const MatrixView<double>&,
                       double, bool);

std::string_view gemm_library() {
#ifdef FLOPCAST_HAS_OPENBLAS
  return "OpenBLAS";
#else
  return "Eigen";
#endif
}

}  // namespace flopcast::realrun
