#pragma once

#include <vector>

#include "realrun/measure/gpu/measured_gpu.hpp"

namespace flopcast {

struct GpuSet {
  bool quick = false;      ///< fewer sizes and repetitions
  std::vector<int> ranks;  ///< sizes of the groups whose messages are measured; empty: two, and all GPUs of the node
  double seconds = 0.0;    ///< after which no further sample begins
};

/// The standard set in the order it is measured: in groups, the most important first, and each group twice before the
/// next begins, so that whenever time runs out, what is there has two passes.
///   1  launches, copies, bf16 products of training shapes: what every forecast stands on
///   2  norms, element-wise kernels, optimizer, messages between GPUs, copies to and from the host
///   3  bf16 products of all layouts; products beside a channel copy or an all-reduce, and these beside a product
///   4  products in tf32, fp16 and, from compute capability 8.9 on, fp8; embedding, loss
///   5  flopcast's own attention, and layouts of the other precisions
/// Shapes hold squares, skinny and odd ones (multiples of 8, as tensor cores load them), and grids of tiles that fill
/// the multiprocessors once exactly and once and a little. Samples whose buffers the GPU does not hold are left out.
std::vector<SampleKey> gpu_samples(const GpuSet& set, const GpuFacts& facts);

/// What the buffers of one repetition take.
double buffer_bytes(const SampleKey& key);

/// Operator of attention's samples: fp32, causal, without tensor cores.
inline constexpr const char* kOwnKernel = "flopcast's own";

}  // namespace flopcast
