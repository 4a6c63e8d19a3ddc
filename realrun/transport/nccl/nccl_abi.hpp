#pragma once

#include <cstddef>

/// The parts of NCCL's binary interface that have been the same in all of NCCL 2, so that a build needs no header of
/// NCCL's; where there is one, tests/gpu/nccl_library_test.cpp holds them against it.
namespace flopcast::realrun::nccl {

using Result = int;  ///< ncclResult_t
constexpr Result kSuccess = 0;
constexpr Result kInProgress = 7;

/// ncclDataType_t.
constexpr int kByte = 1;  ///< ncclUint8
constexpr int kFloat32 = 7;
constexpr int kFloat64 = 8;
/// ncclRedOp_t.
constexpr int kSum = 0;
constexpr int kMax = 2;

/// ncclConfig_t as NCCL 2.17 to 2.20 has it; later ones take it by its size and version.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21700;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int least_blocks = kUndefined;
  int most_blocks = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;

  static constexpr int kUndefined = -2147483647 - 1;
};

}  // namespace flopcast::realrun::nccl
