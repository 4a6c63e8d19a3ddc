#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "model/workload/training.hpp"
#include "realrun/device/arithmetic.hpp"
#include "realrun/device/buffer.hpp"
#include "sim/program/request.hpp"

namespace flopcast::realrun {

/// The machine's steady clock wraps around after this many nanoseconds, 46 days: a longer time in picoseconds would
/// overflow 64 bits. A run that spans the wrap-around has wrong times.
inline constexpr std::int64_t kHostClockPeriodNs = 4'000'000'000'000'000;

/// The machine's steady clock in picoseconds, shared by all threads and processes of a machine.
Ticks host_clock();

/// A point in a device queue, which the device reaches some time after the host recorded it.
class Moment : public Interface {
 public:
  /// True once the device has reached it. Throws EnvironmentError if the device has failed.
  virtual bool reached() = 0;
  /// Time in ticks of host_clock(); waits until it is reached.
  virtual Ticks time() = 0;
};

/// A point in a device's work: a time on a synchronous device, otherwise a point in a queue.
struct Mark {
  Ticks ticks = 0;
  std::shared_ptr<Moment> moment = nullptr;
};

/// Start and end by the device's clock (ComputeDevice::mark).
struct Interval {
  Mark start;
  Mark end;
};

/// Queues of one rank's device, which run concurrently. Work of one queue runs in the order of the calls.
enum class Queue : std::uint8_t {
  kCompute,   ///< passes, optimizer, and the collectives they wait for
  kSend,      ///< messages to other ranks
  kReceive,   ///< messages from other ranks
  kGradient,  ///< collectives overlapped with computation
};
inline constexpr int kQueues = 4;

/// Buffers that an asynchronous device still uses. Memory is reused in the order of the computation (MemoryPool), so
/// buffers used by other queues must be held until those are done. A queue that waits for other ranks, such as one that
/// receives a message, holds only its own buffers. Thread-safe.
class KeptBuffers {
 public:
  /// Holds the buffers until the queue has reached the moment; they are released by a later call.
  void keep(Queue queue, std::shared_ptr<Moment> until, std::vector<Buffer> buffers) {
    const std::lock_guard lock(mutex_);
    for (auto& [any, kept] : kept_) {
      while (!kept.empty() && kept.front().until->reached()) kept.pop_front();
    }
    std::deque<Entry>& own = kept_[queue];
    if (own.empty() && until->reached()) return;
    own.push_back({std::move(until), std::move(buffers)});
  }

 private:
  struct Entry {
    std::shared_ptr<Moment> until;
    std::vector<Buffer> buffers;
  };
  std::mutex mutex_;
  std::map<Queue, std::deque<Entry>> kept_;
};

/// Detects from its own thread what nothing else would notice: library calls that never return.
class Watchdog {
 public:
  /// Calls `bite` once, in that thread, when the watchdog has existed for `patience`, or with `beats` when that has not
  /// changed for `patience`.
  Watchdog(std::chrono::milliseconds patience, std::function<void()> bite,
           const std::atomic<std::uint64_t>* beats = nullptr);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

 private:
  void watch();

  std::chrono::milliseconds patience_;
  std::function<void()> bite_;
  const std::atomic<std::uint64_t>* beats_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

/// One query of another clock: when it was sent and answered by the local clock, and the time the other clock reported.
struct ClockReading {
  Ticks asked = 0;
  Ticks answered = 0;
  Ticks other = 0;
};

/// The offset to add to the other clock to get the local one. Assumes that the other clock was read half-way between
/// query and answer, which is most accurate in the fastest exchange (Cristian, Distributed Computing 3, 1989, §3). The
/// error is at most half of that exchange: some microseconds over InfiniBand, tens over Ethernet. Left out: clocks that
/// run at different rates, except that every step measures again.
Ticks clock_offset(const std::vector<ClockReading>& readings);

/// Memory and element-wise operations of one rank's device, as the executor and the parallel strategies need them. All
/// buffers hold 32-bit floats. A device may be asynchronous: operations run in the order of the calls.
class ComputeDevice : public Interface {
 public:
  /// Returns zeroed memory.
  virtual Buffer allocate(std::size_t bytes) = 0;
  /// The same without zeroing, for buffers that are written before they are read.
  virtual Buffer reserve(std::size_t bytes) { return allocate(bytes); }
  /// Alignment, in elements, that matrix products require of their operands.
  virtual std::size_t alignment() const { return 1; }
  virtual void zero(const Buffer& buffer) = 0;
  /// Fills the buffer with the draw's values; the bits are the same on every device.
  virtual void draw(const Draw& draw, const Buffer& to) = 0;
  virtual void copy(const Buffer& from, const Buffer& to) = 0;
  virtual void add(const Buffer& from, const Buffer& to) = 0;  ///< to += from
  /// One optimizer step: computes `updated`, which may be `weights`, from weights, gradients and states. `step` counts
  /// from 1.
  virtual void optimize(const UpdateRule& rule, int step, const Buffer& weights, const Buffer& gradients,
                        const std::vector<Buffer>& states, const Buffer& updated) = 0;

  /// Copy from and to host memory; both return once the host may reuse its memory.
  virtual void upload(const std::byte* from, const Buffer& to) = 0;
  virtual void download(const Buffer& from, std::byte* to) = 0;

  virtual Mark mark() = 0;
  /// Time in ticks of host_clock(); waits for the moment if necessary.
  virtual Ticks time_of(const Mark& mark) = 0;
  /// Gives an asynchronous device some work, so that the following calls are queued well before the device reaches
  /// them.
  virtual void hold() {}
};

/// Encodes gradients into shorter messages and decodes them, on one device. Values are 32-bit floats.
class GradientCodec : public Interface {
 public:
  /// How the messages of replicas are summed.
  enum class Exchange {
    kByParts,   ///< every rank sends part i to replica i, which sums it and sends the re-encoded sum to all ranks
    kGathered,  ///< every rank sends its message to all others
  };
  virtual Exchange exchange() const = 0;
  /// True if the part that a message omits is kept and added to the next values (error feedback).
  virtual bool keeps_residual() const = 0;

  /// Bytes of the message for `count` values.
  virtual std::size_t message_bytes(std::size_t count) const = 0;
  /// Writes the message for `values` + `residual` and leaves in `residual` what the message omits. `residual` is empty
  /// if none is kept.
  virtual void encode(const Buffer& values, const Buffer& residual, const Buffer& message) = 0;
  /// sum += the values that the message encodes.
  virtual void add_decoded(const Buffer& message, const Buffer& sum) = 0;
};

/// The arithmetic of PowerSGD (Vogels et al. 1905.13727, algorithm 1) on one device. For rank r, a gradient matrix M of
/// n rows and m columns of 32-bit floats is approximated by P·Qᵀ, with P of n rows, Q of m rows and r columns each.
class LowRankProducts : public Interface {
 public:
  struct Shape {
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t rank = 0;

    std::size_t left_bytes() const { return rows * rank * sizeof(float); }      ///< of P
    std::size_t right_bytes() const { return columns * rank * sizeof(float); }  ///< of Q
  };
  /// Q before the first step: the same wherever it is called, with linearly independent columns.
  virtual void start(const Shape& shape, const Buffer& right) = 0;
  /// residual += gradient, P = residual · Q.
  virtual void project(const Shape& shape, const Buffer& gradient, const Buffer& residual, const Buffer& right,
                       const Buffer& left) = 0;
  /// Orthonormalises the columns of P, zeroing those that depend linearly on earlier ones; Q = residualᵀ · P, and
  /// residual -= P·Qᵀ: the remainder is kept (error feedback, algorithm 2).
  virtual void fit(const Shape& shape, const Buffer& left, const Buffer& residual, const Buffer& right) = 0;
  /// gradient = P·Qᵀ. A zero column of Q is reset as by start(): it would otherwise stay zero.
  virtual void rebuild(const Shape& shape, const Buffer& left, const Buffer& right, const Buffer& gradient) = 0;
};

}  // namespace flopcast::realrun
