#pragma once

#include <string>
#include <vector>

#include "model/enum_names.hpp"

namespace flopcast {

/// How replicas keep their weights equal.
enum class DataParallel {
  kDdp,           ///< each rank holds everything the ZeRO stage leaves it; gradients travel in buckets
  kFsdp,          ///< weights, gradients and optimizer state sharded over all replicas, gathered layer by layer
  kHsdp,          ///< likewise inside groups of `shards` ranks, replicated over the groups
  kDataParallel,  ///< torch.nn.DataParallel: one process, everything passes through its first GPU
  kPs,            ///< parameter servers: on the spare hosts, or beside the workers without any
  kByteps,        ///< BytePS: servers on spare hosts and beside the workers, with optimal shares
};
template <>
struct EnumNames<DataParallel> {
  static constexpr std::string_view kNames[] = {"ddp", "fsdp", "hsdp", "dataparallel", "ps", "byteps"};
};

/// How tensor-parallel ranks are arranged: a line, q x q, q x q x d, q x q x q.
enum class TensorParallel { k1d, k2d, k25d, k3d };
template <>
struct EnumNames<TensorParallel> {
  static constexpr std::string_view kNames[] = {"1d", "2d", "2.5d", "3d"};
};

/// How ranks that share a sequence bring every query to every key. Ring: keys and values travel round the ranks (Liu et
/// al. 2310.01889). Ulysses: all-to-alls hand each rank whole sequences of some heads and back (2309.14509).
enum class ContextParallel { kRing, kUlysses };
template <>
struct EnumNames<ContextParallel> {
  static constexpr std::string_view kNames[] = {"ring", "ulysses"};
};

enum class Offload { kNone, kOptimizer, kActivations, kAll };
template <>
struct EnumNames<Offload> {
  static constexpr std::string_view kNames[] = {"none", "optimizer", "activations", "all"};
};

/// What is sent instead of the gradients.
struct Compression {
  enum class Kind { kNone, kQuantized, kTopK, kPowerSgd };
  Kind kind = Kind::kNone;
  int bits = 0;           ///< kQuantized: 8 or 4
  double fraction = 0.0;  ///< kTopK: share of the elements that is sent
  int rank = 0;           ///< kPowerSgd

  std::string text() const;  ///< as in a job file: none, 8bit, 4bit, topk:0.01, powersgd:4
};

/// The arrangement of tensor-parallel ranks beyond 1d. Tokens are cut in `token_parts`, feature dimensions of
/// activations in q; both cut activations, token_parts · q = tp. Weights of linears are cut in `weight_parts`.
struct TensorGrid {
  int q = 1;
  int depth = 1;
  int token_parts = 1;   ///< q, q·depth, q² for 2d, 2.5d, 3d
  int weight_parts = 1;  ///< q², q², q³: 2.5d replicates weights over its depth

  int ranks() const { return token_parts * q; }
};

/// The grid of `ranks` ranks; q = 0 when they do not fill one. `depth` is used by 2.5d only.
TensorGrid tensor_grid(TensorParallel form, int ranks, int depth);
/// The rank counts up to `most` that fill a grid.
std::vector<int> tensor_grid_sizes(TensorParallel form, int depth, int most);

}  // namespace flopcast
