#include "realrun/measure/product.hpp"

#include <fmt/format.h>

#include <Eigen/Core>

#ifdef FLOPCAST_HAS_OPENBLAS
#include <cblas.h>
#endif

namespace flopcast {

#ifdef FLOPCAST_HAS_OPENBLAS

void multiply(const float* a, const float* b, float* c, int m, int n, int k) {
  static const bool one_thread = (openblas_set_num_threads(1), true);
  static_cast<void>(one_thread);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1.0F, a, k, b, n, 0.0F, c, n);
}

ProductLibrary product_library() {
  return {"OpenBLAS", openblas_get_config()};
}

#else

void multiply(const float* a, const float* b, float* c, int m, int n, int k) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const Matrix> left(a, m, k);
  const Eigen::Map<const Matrix> right(b, k, n);
  Eigen::Map<Matrix>(c, m, n).noalias() = left * right;
}

ProductLibrary product_library() {
  return {"Eigen", fmt::format("{}.{}.{}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION)};
}

#endif

}  // namespace flopcast
