#include "realrun/compute/cuda/matrix_products.hpp"

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <tuple>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/compute/cuda/runtime.hpp"

namespace flopcast::realrun::cuda {

class CublasLt {
  struct Symbol {
    void* address;
    template <class Function>
    operator Function*() const {  // NOLINT(google-explicit-constructor): converts to any function
      return reinterpret_cast<Function*>(address);
    }
  };
  Symbol find(const char* name) const {
    void* const address = dlsym(library_, name);
    if (address == nullptr) throw EnvironmentError(fmt::format("cuBLASLt has no function {}", name));
    return {address};
  }

  void* library_;  // stays loaded until the program ends

 public:
  explicit CublasLt(void* library) : library_(library) {}

  void check(cublasStatus_t status, const char* call) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw EnvironmentError(fmt::format("cuBLASLt: {} failed: {}", call, status_text(status)));
  }

  decltype(&cublasLtCreate) create = find("cublasLtCreate");
  decltype(&cublasLtDestroy) destroy = find("cublasLtDestroy");
  decltype(&cublasLtGetVersion) version = find("cublasLtGetVersion");
  decltype(&cublasLtGetStatusString) status_text = find("cublasLtGetStatusString");
  decltype(&cublasLtMatmul) matmul = find("cublasLtMatmul");
  decltype(&cublasLtMatmulDescCreate) create_description = find("cublasLtMatmulDescCreate");
  decltype(&cublasLtMatmulDescDestroy) destroy_description = find("cublasLtMatmulDescDestroy");
  decltype(&cublasLtMatmulDescSetAttribute) describe = find("cublasLtMatmulDescSetAttribute");
  decltype(&cublasLtMatrixLayoutCreate) create_layout = find("cublasLtMatrixLayoutCreate");
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = find("cublasLtMatrixLayoutDestroy");
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = find("cublasLtMatmulPreferenceCreate");
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = find("cublasLtMatmulPreferenceDestroy");
  decltype(&cublasLtMatmulPreferenceSetAttribute) prefer = find("cublasLtMatmulPreferenceSetAttribute");
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = find("cublasLtMatmulAlgoGetHeuristic");
};

std::shared_ptr<CublasLt> load_cublaslt() {
  std::vector<std::string> names;
  if (const char* given = std::getenv("FLOPCAST_CUBLASLT_LIBRARY")) names.emplace_back(given);
  names.push_back(fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR));
  const std::string toolkit = fmt::format("/usr/local/cuda/lib64/libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  names.push_back(toolkit);
  std::string tried;
  for (const std::string& name : names) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return std::make_shared<CublasLt>(library);
    const char* reason = dlerror();
    tried += fmt::format("\n  {}", reason == nullptr ? name : reason);
  }
  throw EnvironmentError(
      fmt::format("cuBLASLt {0}, which multiplies matrices, was not found:{1}\n  help: it is part of the CUDA toolkit "
                  "{0} and of the Python package nvidia-cublas; set FLOPCAST_CUBLASLT_LIBRARY to its "
                  "libcublasLt.so.{0} or LD_LIBRARY_PATH to its folder",
                  CUBLAS_VER_MAJOR, tried));
}

std::string version_of(const CublasLt& library) {
  const std::size_t version = library.version();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

namespace {

/// A product as cuBLASLt describes it: everything but the addresses.
struct Plan {
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t b = nullptr;
  cublasLtMatrixLayout_t result = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
};

/// Names of the factors' type for cuBLASLt and for users.
struct FactorNames {
  cudaDataType_t type;
  const char* words;
};
const FactorNames& names_of(Factors factors) {
  static constexpr FactorNames kNames[] = {
      {CUDA_R_32F, "fp32"}, {CUDA_R_16BF, "bf16"}, {CUDA_R_16F, "fp16"}, {CUDA_R_8F_E4M3, "fp8"}};
  return kNames[static_cast<std::size_t>(factors)];
}

cudaDataType_t result_type(const Product& product) {
  if (!product.narrow || product.factors == Factors::kFloat32) return CUDA_R_32F;
  return product.factors == Factors::kFloat16 ? CUDA_R_16F : CUDA_R_16BF;
}

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20U;

// Largest power of two up to 256 that divides the address.
std::uint32_t alignment_of(const void* address) {
  constexpr std::uintptr_t kMost = 256;
  const auto number = reinterpret_cast<std::uintptr_t>(address) | kMost;
  return static_cast<std::uint32_t>(number & (~number + 1));
}

class CublasLtProducts : public MatrixProducts {
 public:
  CublasLtProducts(std::shared_ptr<CublasLt> library, cudaStream_t stream, const ProductSettings& settings)
      : library_(std::move(library)), stream_(stream), settings_(settings) {
    library_->check(library_->create(&handle_), "cublasLtCreate");
    cuda::check(cudaMalloc(&workspace_, kWorkspaceBytes), "cudaMalloc of cuBLASLt's workspace");
  }
  CublasLtProducts(const CublasLtProducts&) = delete;
  CublasLtProducts& operator=(const CublasLtProducts&) = delete;
  ~CublasLtProducts() override {
    cudaStreamSynchronize(stream_);
    for (const auto& [key, plan] : plans_) {
      library_->destroy_description(plan.description);
      for (const cublasLtMatrixLayout_t layout : {plan.a, plan.b, plan.result}) library_->destroy_layout(layout);
    }
    library_->destroy(handle_);
    cudaFree(workspace_);
  }

  // cuBLASLt reads by columns, so our row-major matrices are transposed: resultᵀ = op(b)ᵀ · op(a)ᵀ.
  void multiply(const Product& product, const void* a, const void* b, void* result, float factor) override {
    const Plan& plan = plan_for(product, a, b, result);
    const float keep = product.accumulate ? 1.0F : 0.0F;
    if (product.factors == Factors::kFloat8) describe_scales(plan, product);
    library_->check(
        library_->matmul(handle_, plan.description, &factor, b, plan.b, a, plan.a, &keep, result, plan.result, result,
                         plan.result, &plan.algorithm, workspace_, kWorkspaceBytes, stream_),
        "cublasLtMatmul");
  }

 private:
  using Key = std::tuple<std::size_t, std::size_t, std::size_t, int, std::uint32_t, std::uint32_t, std::uint32_t>;

  const Plan& plan_for(const Product& product, const void* a, const void* b, const void* result) {
    const int form = (product.a_transposed ? 1 : 0) | (product.b_transposed ? 2 : 0) | (product.narrow ? 4 : 0) |
                     (product.accumulate ? 8 : 0) | (product.a_wide ? 16 : 0) |
                     (static_cast<int>(product.factors) << 5);
    const Key key{product.m, product.n, product.k, form, alignment_of(a), alignment_of(b), alignment_of(result)};
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    return plans_.emplace(key, make_plan(product, key)).first->second;
  }

  Plan make_plan(const Product& product, const Key& key) {
    const cudaDataType_t type = names_of(product.factors).type;
    const bool tf32 = settings_.tf32 && product.factors == Factors::kFloat32;
    Plan plan;
    library_->check(library_->create_description(&plan.description,
                                                 tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
                    "cublasLtMatmulDescCreate");
    describe(plan, CUBLASLT_MATMUL_DESC_TRANSA, product.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    describe(plan, CUBLASLT_MATMUL_DESC_TRANSB, product.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (settings_.multiprocessors > 0) {
      describe(plan, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, static_cast<std::int32_t>(settings_.multiprocessors));
    }
    if (product.factors == Factors::kFloat8) describe_float8(plan, product);
    plan.a = layout(product.a_wide ? CUDA_R_8F_E5M2 : type, product.m, product.k, product.a_transposed);
    plan.b = layout(type, product.k, product.n, product.b_transposed);
    plan.result = layout(result_type(product), product.m, product.n, false);
    choose_algorithm(plan, product, key);
    return plan;
  }

  // Settings as in training: products accumulate at the tensor cores' own precision, those of gradients in 32 bits
  // (Transformer Engine's default). Without scale pointers, scales are one.
  void describe_float8(const Plan& plan, const Product& product) const {
    FLOPCAST_CHECK(product.b_transposed && !product.a_transposed);
    describe(plan, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(product.a_wide ? 0 : 1));
    // Set before an algorithm is selected, because not every algorithm supports scales.
    describe_scales(plan, product);
  }

  // cuBLASLt's matrices are in the reverse order.
  void describe_scales(const Plan& plan, const Product& product) const {
    describe(plan, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(product.b_scale));
    describe(plan, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(product.a_scale));
  }

  template <class Value>
  void describe(const Plan& plan, cublasLtMatmulDescAttributes_t attribute, Value value) const {
    library_->check(library_->describe(plan.description, attribute, static_cast<const void*>(&value), sizeof(value)),
                    "cublasLtMatmulDescSetAttribute");
  }

  // Layout of a matrix that enters the product as rows × columns.
  cublasLtMatrixLayout_t layout(cudaDataType_t type, std::size_t rows, std::size_t columns, bool transposed) const {
    if (transposed) std::swap(rows, columns);
    cublasLtMatrixLayout_t made = nullptr;
    library_->check(library_->create_layout(&made, type, columns, rows, static_cast<std::int64_t>(columns)),
                    "cublasLtMatrixLayoutCreate");
    return made;
  }

  void choose_algorithm(Plan& plan, const Product& product, const Key& key) const {
    cublasLtMatmulPreference_t preference = nullptr;
    library_->check(library_->create_preference(&preference), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      library_->check(library_->prefer(preference, attribute, &value, sizeof(value)),
                      "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspaceBytes});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::get<5>(key));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::get<4>(key));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::get<6>(key));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::get<6>(key));
    cublasLtMatmulHeuristicResult_t answer = {};
    int answers = 0;
    const cublasStatus_t status = library_->heuristic(handle_, plan.description, plan.b, plan.a, plan.result,
                                                      plan.result, preference, 1, &answer, &answers);
    library_->destroy_preference(preference);
    if (status != CUBLAS_STATUS_SUCCESS || answers == 0) {
      throw EnvironmentError(fmt::format("cuBLASLt has no algorithm for a product of {} × {} × {} in {}", product.m,
                                         product.n, product.k, names_of(product.factors).words));
    }
    plan.algorithm = answer.algo;
  }

  std::shared_ptr<CublasLt> library_;
  cudaStream_t stream_ = nullptr;
  ProductSettings settings_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<Key, Plan> plans_;
};

}  // namespace

std::unique_ptr<MatrixProducts> make_cublaslt_products(std::shared_ptr<CublasLt> library, cudaStream_t stream,
                                                       const ProductSettings& settings) {
  return std::make_unique<CublasLtProducts>(std::move(library), stream, settings);
}

}  // namespace flopcast::realrun::cuda
