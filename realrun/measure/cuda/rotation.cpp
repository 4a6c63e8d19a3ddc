#include "realrun/measure/cuda/rotation.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "model/error/error.hpp"
#include "realrun/compute/cuda/check.hpp"
#include "realrun/measure/cuda/bench_kernels.hpp"

namespace flopcast::realrun::cuda {

namespace {

constexpr std::size_t kAlignment = 256;  // cuBLASLt's fastest kernels ask for it

}  // namespace

std::size_t Rotation::part(std::size_t bytes) {
  FLOPCAST_CHECK(slots_ == 0);
  const std::size_t begin = stride_;
  stride_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return begin;
}

void Rotation::fill(Factors factors, bool positive) {
  FLOPCAST_CHECK(stride_ > 0);
  if (stride_ > lane_.bytes) {
    throw EnvironmentError(
        fmt::format("needs {} MiB of the GPU's memory, of which {} are free", stride_ >> 20U, lane_.bytes >> 20U));
  }
  const std::size_t wanted = 2 * cache_bytes_ / stride_ + 2;
  slots_ = std::min(wanted, lane_.bytes / stride_);
  constexpr std::uint64_t kSeed = 20260101;
  check(fill_random(lane_.memory, slots_ * stride_, factors, positive, kSeed, lane_.stream), "fill_random");
}

std::byte* Rotation::address(std::size_t part, int round) const {
  return lane_.memory + static_cast<std::size_t>(round) % slots_ * stride_ + part;
}

}  // namespace flopcast::realrun::cuda
