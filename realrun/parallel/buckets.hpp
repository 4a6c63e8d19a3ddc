#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "realrun/compute/stage_compute.hpp"
#include "realrun/device/device.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// Parameters that the same stages hold: the token table of tied embeddings on the first and the last stage, and whole
/// stages of a bidirectional schedule, which trains two copies of the model. Their gradients are added up before the
/// update, so that the copies stay equal.
struct SharedSet {
  std::vector<int> stages;  ///< of the holders, ascending; a stage that holds a parameter twice is named twice
};

/// The sets of a pipeline, and by name the set of each shared parameter.
struct SharedParameters {
  std::vector<SharedSet> sets;
  std::map<std::string, int> set_of;

  /// -1 for a parameter that only one stage holds.
  int set_index(const std::string& name) const;
};

/// Parameters with the same name are copies of each other. `layouts` by stage of the program.
SharedParameters find_shared_parameters(const std::vector<StageLayout>& layouts);

/// Neighbouring parameters of a stage whose gradients are reduced together.
struct Bucket {
  int first_unit = 0;       ///< complete once this unit and all behind it are
  int shared_set = -1;      ///< of all its parameters
  bool of_experts = false;  ///< all of its parameters
  bool frozen = false;      ///< all of them too: there are no gradients, and weights are gathered only
  std::size_t offset = 0;  ///< elements from the start of the stage's flat buffer, whose units lie one behind the other
  std::size_t count = 0;
};

struct BucketRules {
  std::size_t bytes = 0;        ///< a bucket closes once it has reached this size; 0: one bucket
  std::size_t first_bytes = 0;  ///< the same for the first bucket of a stage
  bool within_units = false;    ///< no bucket holds more than one unit: units are sharded one by one
  bool of_frozen = false;       ///< frozen parameters have buckets too, of their own: their weights are sharded
};

/// In the order in which a backward pass completes them, last parameter first; where some are frozen, within units,
/// whose gradients do not lie as their weights do (Li et al. 2006.15704 §3.2.3). Runs of
/// parameters that belong to different shared sets have buckets of their own, cut alike on all stages that hold them.
std::vector<Bucket> make_buckets(const StageLayout& layout, const SharedParameters& shared, const BucketRules& rules);

/// Element at which each unit starts in the flat buffer, and one past the last.
std::vector<std::size_t> unit_offsets(const StageLayout& layout);
/// The same in a buffer of gradients, which frozen parameters do not have.
std::vector<std::size_t> gradient_offsets(const StageLayout& layout);

/// Pieces of memory one behind the other in a buffer of its own; a single piece as it is.
class Packed {
 public:
  Packed() = default;
  Packed(ComputeDevice& device, std::vector<Buffer> pieces);
  const Buffer& whole() const { return whole_; }
  /// Copies what the whole holds now back to the pieces.
  void unpack(ComputeDevice& device) const;

 private:
  std::vector<Buffer> pieces_;
  Buffer whole_;
};

/// What a compressed sum works with; all outlive it.
struct CompressionContext {
  ComputeDevice& device;
  RankTransport& transport;
  GradientCodec& codec;
  const Group& group;
};

/// Replaces an all-reduce: the sum over the replicas' gradients of what their messages say, added up in the order of
/// the replicas, equal on all of them.
///
///   by parts   n equal parts of ceil(count / n) values, the last ones shorter: an all-to-all of messages, one for each
///              part; the sum of a part is encoded again and all-gathered. 2(n-1) messages of a part sent
///   gathered   an all-gather of messages. n-1 messages of everything sent
/// begin(), proceed() and finish() are called by all replicas in the same order over all their sums. The first exchange
/// runs beside the computation, the second one, where there is one, beside the other sums' proceed() and finish().
class CompressedSum {
 public:
  /// `residual` as in GradientCodec::encode. The gradients are read at once and overwritten by finish().
  CompressedSum(const CompressionContext& context, Buffer gradients, const Buffer& residual);

  void proceed();
  void finish();
  /// When the exchanges ran, after finish().
  const std::vector<Interval>& exchanges() const { return exchanges_; }

 private:
  Buffer part(const Buffer& values, int index) const;
  Buffer message(const Buffer& messages, int index, const Buffer& values) const;
  bool by_parts() const { return context_.codec.exchange() == GradientCodec::Exchange::kByParts; }

  CompressionContext context_;
  Buffer gradients_;
  std::size_t slot_ = 0;         // bytes of the largest message
  std::size_t part_values_ = 0;  // of the largest part
  Buffer messages_;              // received, by replica
  Request request_;
  std::vector<Interval> exchanges_;
};

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
    Packed packed;
    std::unique_ptr<CompressedSum> sum;
  };

  std::vector<Portion> portions_of(const Bucket& bucket, const StageLayout& layout, int tensor_ranks);

  CompressionContext context_;
  Buffer gradients_;
  std::vector<std::vector<Portion>> portions_;  // by bucket
  std::vector<Running> running_;
};

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
