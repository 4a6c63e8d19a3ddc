#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

namespace flopcast::realrun::cuda {

/// Disjoint parts of a GPU's multiprocessors, each with streams whose kernels stay inside (CUDA 12.4's green contexts).
/// Memory bandwidth, caches and power are still shared. The parts live until the program ends.
struct GreenPart {
  int multiprocessors = 0;
  std::vector<cudaStream_t> streams;
  cudaStream_t idle = nullptr;  ///< one more, for a clock
};

/// What became of the wish for parts.
struct GreenParts {
  std::vector<GreenPart> parts;  ///< empty when it was refused
  std::string refusal;           ///< in that case why
  bool timed_together = false;   ///< events of different parts, and of streams outside, can be timed against each other
};

/// `count` equal parts of the current GPU with `streams` streams each, as large as its granularity allows. They are
/// tried out: kernels run, events of one part are waited for by another and timed.
GreenParts split_gpu(int count, int streams);

}  // namespace flopcast::realrun::cuda
