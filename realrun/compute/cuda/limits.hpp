#pragma once

// What the kernels take, for those who ask before any GPU is touched: no header of CUDA is needed here.

namespace flopcast::realrun::cuda {

/// Columns of an attention head.
inline constexpr int kLargestHead = 128;
/// Inputs of a reduction: members of a group of virtual devices.
inline constexpr int kMostInputs = 16;

}  // namespace flopcast::realrun::cuda
