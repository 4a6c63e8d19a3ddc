#include <algorithm>
#include <array>
#include <cstddef>

#include "calibrate/device/import/trace.hpp"
#include "model/units/lower_case.hpp"

namespace flopcast {

namespace {

template <std::size_t N>
bool holds_any(const std::string& text, const std::array<const char*, N>& words) {
  return std::any_of(words.begin(), words.end(),
                     [&text](const char* word) { return text.find(word) != std::string::npos; });
}

}  // namespace

const std::vector<std::string>& trace_work_names() {
  static const std::vector<std::string> names = {"products", "attention", "communication", "copies", "other kernels"};
  return names;
}

TraceWork work_of_kernel(std::string_view name) {
  const std::string text = lower_case(name);
  if (text.rfind("nccl", 0) == 0) return TraceWork::kCommunication;
  if (text.rfind("memcpy", 0) == 0 || text.rfind("memset", 0) == 0) return TraceWork::kCopy;
  // Before the products: attention kernels are written with the same templates.
  if (holds_any(text, std::array{"flash", "fmha", "attention"})) return TraceWork::kAttention;
  if (holds_any(text, std::array{"gemm", "cutlass", "cublas", "nvjet", "splitk"})) return TraceWork::kProduct;
  return TraceWork::kOther;
}

TraceWork work_of_operator(std::string_view name) {
  const std::string text = lower_case(name);
  if (holds_any(text, std::array{"nccl:", "c10d::"})) return TraceWork::kCommunication;
  if (holds_any(text, std::array{"attention", "flash"})) return TraceWork::kAttention;
  const std::string last = text.substr(text.rfind(':') + 1);
  constexpr std::array<const char*, 8> kProducts = {"mm",     "addmm",  "bmm",        "baddbmm",
                                                    "matmul", "linear", "_scaled_mm", "_grouped_mm"};
  const bool product = std::any_of(kProducts.begin(), kProducts.end(), [&last](const char* n) { return last == n; });
  return product ? TraceWork::kProduct : TraceWork::kOther;
}

}  // namespace flopcast
