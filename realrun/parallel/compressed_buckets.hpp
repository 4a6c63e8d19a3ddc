#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "realrun/parallel/buckets.hpp"
#include "realrun/parallel/compressed_sum.hpp"

namespace flopcast::realrun {

/// Sums up the buckets of one stage over the replicas in compressed form, and keeps what compression leaves out for the
/// next sum. Of a bucket on tensor-parallel ranks, parameters that all of them hold whole are compressed apart from
/// those they hold a part of: blocks of both would round them differently on each rank.
class CompressedBuckets {
 public:
  /// `gradients` are the stage's, units one behind the other, and stay where they are.
  CompressedBuckets(const CompressionContext& context, const StageLayout& layout, const std::vector<Bucket>& buckets,
                    Buffer gradients, int tensor_ranks);

  /// Once the bucket's gradients are complete; in the same order on all replicas.
  void begin(std::size_t bucket);
  /// Waits until all sums that were begun are in the gradients; returns when their exchanges ran.
  std::vector<Interval> finish();

 private:
  /// Ranges of the flat gradients that are compressed as one.
  struct Portion {
    std::vector<Buffer> pieces;
    Buffer residual;
  };
  struct Running {
    const Portion* portion = nullptr;
    Buffer packed;  // the pieces one behind the other; the piece itself where there is one
    std::unique_ptr<CompressedSum> sum;
  };

  std::vector<Portion> portions_of(const Bucket& bucket, const StageLayout& layout, int tensor_ranks);

  CompressionContext context_;
  Buffer gradients_;
  std::vector<std::vector<Portion>> portions_;  // by bucket
  std::vector<Running> running_;
};

}  // namespace flopcast::realrun
