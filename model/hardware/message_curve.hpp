#pragma once

#include <string>
#include <vector>

#include "model/enum_names.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// From `from` bytes on a message takes alpha + beta · bytes.
struct MessageSegment {
  Bytes from;
  Seconds alpha;
  double beta = 0.0;  ///< seconds a byte
};

/// The measured time of one kind of message over its size: up to four affine pieces, because protocols change with the
/// size and one alpha and beta miss by tens of percent. A larger message never takes less time: where a piece starts
/// below the end of one before, that end's time stands (running maximum). Beyond the largest measured size the last
/// piece goes on.
class MessageCurve {
 public:
  MessageCurve() = default;
  /// Segments by ascending `from`, the first from 0; alpha and beta at least 0 (InternalError).
  explicit MessageCurve(std::vector<MessageSegment> segments);

  Seconds time(Bytes bytes) const;
  const std::vector<MessageSegment>& segments() const { return segments_; }

 private:
  std::vector<MessageSegment> segments_;
  std::vector<Seconds> floors_;  // what the pieces before reach
};

/// The kinds of messages that a profile can tell about.
enum class MessageKind { kPointToPoint, kAllReduce, kAllGather, kReduceScatter, kAllToAll };
template <>
struct EnumNames<MessageKind> {
  static constexpr std::string_view kNames[] = {"p2p", "all_reduce", "all_gather", "reduce_scatter", "all_to_all"};
};

/// A curve with the group it was measured on, which had the network to itself.
struct GroupCurve {
  MessageKind kind = MessageKind::kPointToPoint;
  int ranks = 2;
  int nodes = 1;
  MessageCurve curve;
};

}  // namespace flopcast
