#pragma once

#include <cstddef>
#include <vector>

#include "realrun/compute/stage_compute.hpp"
#include "realrun/device/device.hpp"
#include "realrun/parallel/buckets.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// What low-rank sums work with; all outlive them.
struct LowRankContext {
  ComputeDevice& device;
  RankTransport& transport;
  LowRankProducts& products;
  const Group& group;
  int rank = 1;
};

/// Sums up the buckets of one stage over the replicas by PowerSGD (Vogels et al. 1905.13727): each matrix that
/// activations are multiplied with as two factors of `rank` columns, where these are smaller than the matrix; all else
/// as it is. A bucket is two all-reduces, of left factors with what is sent as it is, and of right factors:
///   rank · (rows + columns) floats a matrix. What a replica's factors leave out stays with it for the next sum.
/// The right factors of one sum are where the next one begins.
class LowRankBuckets {
 public:
  /// `gradients` are the stage's, units one behind the other, and stay where they are.
  LowRankBuckets(const LowRankContext& context, const StageLayout& layout, const std::vector<Bucket>& buckets,
                 const Buffer& gradients);

  /// Once the bucket's gradients are complete; in the same order on all replicas.
  void begin(std::size_t bucket);
  /// Waits until all sums that were begun are in the gradients; returns when their exchanges ran.
  std::vector<Interval> finish();

 private:
  struct Matrix {
    LowRankProducts::Shape shape;
    Buffer gradient;
    Buffer residual;
    Buffer left;   // in Sum::first
    Buffer right;  // in Sum::second
  };
  struct Plain {
    Buffer gradient;
    Buffer sent;  // in Sum::first
  };
  struct Sum {
    std::vector<Matrix> matrices;
    std::vector<Plain> plain;
    Buffer first;
    Buffer second;
    Request request;
  };

  Sum sum_of(const Bucket& bucket, const StageLayout& layout, const Buffer& gradients) const;
  Request start(const Buffer& values);

  LowRankContext context_;
  std::vector<Sum> sums_;  // by bucket
  std::vector<std::size_t> running_;
};

}  // namespace flopcast::realrun
