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

/// Parameters held by the same set of stages: the token table of tied embeddings on the first and the last stage, and
/// whole stages of a bidirectional schedule, which trains two copies of the model. Their gradients are summed before
/// the update, so that the copies stay equal.
struct SharedSet {
  std::vector<int> stages;  ///< of the holders, ascending; a stage that holds a parameter twice is listed twice
};

/// The shared sets of a pipeline, and the set of each shared parameter by name.
struct SharedParameters {
  std::vector<SharedSet> sets;
  std::map<std::string, int> set_of;

  /// Returns -1 for a parameter that only one stage holds.
  int set_index(const std::string& name) const;
};

/// Parameters of the same name are copies of each other. `layouts` by stage of the program.
SharedParameters find_shared_parameters(const std::vector<StageLayout>& layouts);

/// Adjacent parameters of a stage whose gradients are reduced together.
struct Bucket {
  int first_unit = 0;       ///< complete once this unit and all later ones are
  int shared_set = -1;      ///< shared by all its parameters
  bool of_experts = false;  ///< true for all its parameters
  bool frozen = false;      ///< all its parameters are frozen: there are no gradients, and weights are only gathered
  std::size_t offset = 0;   ///< elements from the start of the stage's flat buffer, in which units are adjacent
  std::size_t count = 0;
};

struct BucketRules {
  std::size_t bytes = 0;        ///< size at which a bucket closes; 0: one bucket
  std::size_t first_bytes = 0;  ///< the same for a stage's first bucket
  bool within_units = false;    ///< no bucket spans several units: units are sharded one by one
  bool of_frozen = false;  ///< frozen parameters also get buckets, separate ones, because their weights are sharded
};

/// Makes buckets in the order in which a backward pass completes them, last parameter first (Li et al. 2006.15704
/// §3.2.3). If some parameters are frozen, buckets do not span units, because gradients are then laid out differently
/// from weights. Runs of parameters that belong to different shared sets have separate buckets, with the same
/// boundaries on all stages that hold them.
std::vector<Bucket> make_buckets(const StageLayout& layout, const SharedParameters& shared, const BucketRules& rules);

/// Start of each unit in the flat buffer, in elements, and one past the last.
std::vector<std::size_t> unit_offsets(const StageLayout& layout);
/// The same for a buffer of gradients, which frozen parameters do not have.
std::vector<std::size_t> gradient_offsets(const StageLayout& layout);

/// Pieces of memory concatenated in a separate buffer; a single piece is used in place.
class Packed {
 public:
  Packed() = default;
  Packed(ComputeDevice& device, std::vector<Buffer> pieces);
  const Buffer& whole() const { return whole_; }
  /// Copies the contents of the whole back to the pieces.
  void unpack(ComputeDevice& device) const;

 private:
  std::vector<Buffer> pieces_;
  Buffer whole_;
};

/// Context of a compressed sum; all members must outlive it.
struct CompressionContext {
  ComputeDevice& device;
  RankTransport& transport;
  GradientCodec& codec;
  const Group& group;
};

/// Replaces an all-reduce: sums what the replicas' messages encode of their gradients, in the order of the replicas,
/// with equal results on all of them.
///
///   by parts   n equal parts of ceil(count / n) values, the last ones shorter: an all-to-all of messages, one for each
///              part; the sum of a part is encoded again and all-gathered. Sends 2(n-1) messages of a part
///   gathered   an all-gather of messages. Sends n-1 messages of everything
///
/// begin(), proceed() and finish() must be called by all replicas in the same order across all their sums. The first
/// exchange overlaps with the computation; the second one, if there is one, with the other sums' proceed() and
/// finish().
class CompressedSum {
 public:
  /// `residual` as in GradientCodec::encode. The gradients are read immediately and overwritten by finish().
  CompressedSum(const CompressionContext& context, Buffer gradients, const Buffer& residual);

  void proceed();
  void finish();
  /// Times of the exchanges; valid after finish().
  const std::vector<Interval>& exchanges() const { return exchanges_; }

 private:
  Buffer part(const Buffer& values, int index) const;
  Buffer message(const Buffer& messages, int index, const Buffer& values) const;
  bool by_parts() const { return context_.codec.exchange() == GradientCodec::Exchange::kByParts; }

  CompressionContext context_;
  Buffer gradients_;
  std::size_t slot_ = 0;         // bytes reserved per message: those of the largest
  std::size_t part_values_ = 0;  // values of the largest part
  Buffer messages_;              // received, by replica
  Request request_;
  std::vector<Interval> exchanges_;
};

/// Sums the buckets of one stage over the replicas in compressed form, and keeps what compression omits for the next
/// sum. On tensor-parallel ranks, parameters that all of them hold whole are compressed separately from those they hold
/// parts of: blocks that mix both would round them differently on each rank.
class CompressedBuckets {
 public:
  /// `gradients` are the stage's, with adjacent units, and must not move.
  CompressedBuckets(const CompressionContext& context, const StageLayout& layout, const std::vector<Bucket>& buckets,
                    Buffer gradients, int tensor_ranks);

  /// Called once the bucket's gradients are complete, in the same order on all replicas.
  void begin(std::size_t bucket);
  /// Waits until all sums begun are in the gradients; returns the times of their exchanges.
  std::vector<Interval> finish();

 private:
  /// Ranges of the flat gradients that are compressed together.
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

/// Context of low-rank sums; all members must outlive them.
struct LowRankContext {
  ComputeDevice& device;
  RankTransport& transport;
  LowRankProducts& products;
  const Group& group;
  int rank = 1;
};

/// Sums the buckets of one stage over the replicas by PowerSGD (Vogels et al. 1905.13727): each matrix that activations
/// are multiplied with is sent as two factors of `rank` columns if these are smaller than the matrix; everything else
/// is sent uncompressed. A bucket takes two all-reduces, one of left factors and uncompressed parameters, and one of
/// right factors: rank · (rows + columns) floats per matrix. What a replica's factors omit stays on that replica for
/// the next sum, which starts from the right factors of this one.
class LowRankBuckets {
 public:
  /// `gradients` are the stage's, with adjacent units, and must not move.
  LowRankBuckets(const LowRankContext& context, const StageLayout& layout, const std::vector<Bucket>& buckets,
                 const Buffer& gradients);

  /// Called once the bucket's gradients are complete, in the same order on all replicas.
  void begin(std::size_t bucket);
  /// Waits until all sums begun are in the gradients; returns the times of their exchanges.
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
