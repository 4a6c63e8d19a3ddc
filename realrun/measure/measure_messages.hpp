#pragma once

#include <cstddef>
#include <functional>

#include "calibrate/device/measurement.hpp"
#include "realrun/measure/clock.hpp"

namespace flopcast {

/// One rank's end of a transport, called from that rank's own thread or process. Buffers are the transport's own: only
/// the time counts.
class MeasuredRank {
 public:
  MeasuredRank() = default;
  MeasuredRank(const MeasuredRank&) = delete;
  MeasuredRank& operator=(const MeasuredRank&) = delete;
  MeasuredRank(MeasuredRank&&) = delete;
  MeasuredRank& operator=(MeasuredRank&&) = delete;
  virtual ~MeasuredRank() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual void send(int to, std::size_t bytes) = 0;
  virtual void receive(int from, std::size_t bytes) = 0;
  /// An all-reduce, all-gather or reduce-scatter of all ranks; `bytes` as SampleKind counts them.
  virtual void collective(SampleKind kind, std::size_t bytes) = 0;
  virtual void barrier() = 0;
  /// The largest of the ranks' values, on every rank.
  virtual double largest(double value) = 0;
};

/// Calls the body once for each rank, all at the same time, and returns when all are done. Buffers hold `bytes`.
using RunRanks = std::function<void(int ranks, std::size_t bytes, const std::function<void(MeasuredRank&)>& body)>;

/// Point-to-point: half of a ping-pong between ranks 0 and 1. Collectives: from a barrier to the end of the last rank.
/// The number of repetitions follows from the size, so that all ranks agree on it; `quick` takes a quarter.
Sample measure_message(const SampleKey& key, const RunRanks& run, const Clock& clock, bool quick);

}  // namespace flopcast
