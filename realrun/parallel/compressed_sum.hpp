#pragma once

#include <cstddef>
#include <vector>

#include "realrun/compute/device.hpp"
#include "realrun/compute/gradient_codec.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// What a compressed sum works with; all outlive it.
struct CompressionContext {
  Device& device;
  Transport& transport;
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

}  // namespace flopcast::realrun
