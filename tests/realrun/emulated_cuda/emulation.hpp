#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

namespace flopcast::emulated {

/// CUDA's kernels on a CPU: the blocks of a launch run one after another, and the threads of a block are fibers of this
/// thread that switch where they wait for each other: the lanes of a warp when they exchange values, and the warps,
/// each as far as possible without the others, at barriers. Every other launch runs both in reverse order, so that
/// results which depend on an unspecified order differ.

struct dim3 {
  constexpr dim3(unsigned width = 1, unsigned height = 1, unsigned depth = 1) : x(width), y(height), z(depth) {}
  unsigned x;
  unsigned y;
  unsigned z;
};
struct alignas(16) float4 {
  float x;
  float y;
  float z;
  float w;
};

inline dim3 threadIdx(0, 0, 0);
inline dim3 blockIdx(0, 0, 0);
inline dim3 blockDim;
inline dim3 gridDim;

/// Every thread of the block must call it, or none.
void meet();
/// Receives the value that the thread `offset` away in the warp has given. All lanes of the warp must call it, and
/// gather(), or none.
void exchange(const void* given, void* received, std::size_t bytes, int offset);
/// Receives the values of the 32 lanes of the warp, `bytes` each, concatenated.
void gather(const void* given, void* received, std::size_t bytes);
template <class T>
T swap_with(const T& value, int offset) {
  T result;
  exchange(&value, &result, sizeof(T), offset);
  return result;
}
// The warp's products on tensor cores, as in device_code.cuh.
std::uint32_t rounded_pair(float low, float high);
void multiply_tiles(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b_low, std::uint32_t b_high);
void load_tiles(std::uint32_t (&tiles)[4], const void* row);
void load_tiles_transposed(std::uint32_t (&tiles)[4], const void* row);
float* dynamic_shared();
/// Shared memory limit of a block; 163 KiB, as on compute capability 8.0, unless set.
int shared_limit();
void set_shared_limit(int bytes);
/// Applies to the next launch; returns false beyond the limit.
bool allow_shared(int bytes);
void launch(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread);
/// While set, no event is ever reached.
void hold_events(bool held);
bool events_are_held();
/// Number of threads run since the program started.
std::size_t threads_run();

template <class Kernel>
auto launcher(dim3 grid, dim3 block, std::size_t shared_bytes, Kernel kernel) {
  return [=](auto... arguments) { launch(grid, block, shared_bytes, [&] { kernel(arguments...); }); };
}

}  // namespace flopcast::emulated
