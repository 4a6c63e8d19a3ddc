#pragma once

#include <cstdint>
#include <vector>

#include "realrun/compute/device.hpp"
#include "realrun/transport/transport.hpp"
#include "sim/timeline.hpp"

namespace flopcast::realrun {

/// One end of a transfer: when it left, or when it had arrived in the receiver's memory.
struct TransferEnd {
  MessageKey key;
  Action produced_by;
  int peer = 0;  ///< pipeline rank at the other end
  Ticks at = 0;
};

/// What one rank measured, in ticks of host_clock().
struct RankRecord {
  std::vector<Span> spans;
  std::vector<TransferEnd> sent;
  std::vector<TransferEnd> received;
};

/// Collects marks while a rank works, and asks the device for their times when it is done: on devices that run behind
/// the host's back the times are not known before.
class Recording {
 public:
  explicit Recording(Device& device) : device_(device) {}

  void span(SpanKind kind, StreamKind stream, const Action& action, const Mark& start, const Mark& end);
  void span(SpanKind kind, StreamKind stream, const Interval& interval);
  void sent(const MessageKey& key, const Action& produced_by, int peer, const Mark& at);
  void received(const MessageKey& key, const Action& produced_by, int peer, const Mark& at);
  /// Everything since the last call.
  RankRecord take();

 private:
  struct MarkedSpan {
    Span span;
    Mark start;
    Mark end;
  };
  struct MarkedEnd {
    TransferEnd end;
    Mark at;
  };
  std::vector<TransferEnd> resolve(const std::vector<MarkedEnd>& ends);

  Device& device_;
  std::vector<MarkedSpan> marked_;
  std::vector<MarkedEnd> sent_;
  std::vector<MarkedEnd> received_;
};

/// The records of a step as one timeline that begins with its earliest span: by pipeline rank, in order. Reductions
/// between pipeline ranks begin when the last of them is there, as in a forecast.
Timeline merge_records(const std::vector<RankRecord>& by_pipeline_rank);

}  // namespace flopcast::realrun
