#include "model/hardware/message_curve.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

Seconds piece_time(const MessageSegment& segment, Bytes bytes) {
  return segment.alpha + Seconds(segment.beta * bytes.value());
}

}  // namespace

MessageCurve::MessageCurve(std::vector<MessageSegment> segments) : segments_(std::move(segments)) {
  FLOPCAST_CHECK(!segments_.empty() && segments_.front().from.value() == 0.0);
  Seconds floor(0);
  for (std::size_t index = 0; index < segments_.size(); ++index) {
    const MessageSegment& segment = segments_[index];
    FLOPCAST_CHECK(segment.alpha.value() >= 0.0 && segment.beta >= 0.0);
    if (index > 0) {
      FLOPCAST_CHECK(segments_[index - 1].from < segment.from);
      floor = std::max(floor, piece_time(segments_[index - 1], segment.from));
    }
    floors_.push_back(floor);
  }
}

Seconds MessageCurve::time(Bytes bytes) const {
  FLOPCAST_CHECK(!segments_.empty());
  std::size_t index = segments_.size() - 1;
  while (index > 0 && bytes < segments_[index].from) --index;
  return std::max(floors_[index], piece_time(segments_[index], bytes));
}

}  // namespace flopcast
