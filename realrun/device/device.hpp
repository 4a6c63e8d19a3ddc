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

/// The machine's steady clock starts again after so many nanoseconds, 46 days: a longer time in picoseconds would leave
/// 64 bits. Of a run during which it does, the times are wrong.
inline constexpr std::int64_t kHostClockPeriodNs = 4'000'000'000'000'000;

/// The machine's steady clock in picoseconds, the same for all threads and processes of a machine.
Ticks host_clock();

/// A point in the work of a device's queue, which the device comes to some time after the host has set it.
class Moment : public Interface {
 public:
  /// Whether the device has come to it. Throws EnvironmentError when the device has failed.
  virtual bool reached() = 0;
  /// In ticks of host_clock(); waits until it is reached.
  virtual Ticks time() = 0;
};

/// A moment in the work of a device: a time on a device that works at once, else a point in a queue.
struct Mark {
  Ticks ticks = 0;
  std::shared_ptr<Moment> moment = nullptr;
};

/// From when to when, by the clock of the device (ComputeDevice::mark).
struct Interval {
  Mark start;
  Mark end;
};

/// What one rank's device does side by side. What is called for one queue happens in the order of the calls.
enum class Queue : std::uint8_t {
  kCompute,   ///< passes, optimizer, and collectives that they wait for
  kSend,      ///< messages to other ranks
  kReceive,   ///< messages from other ranks
  kGradient,  ///< collectives beside the computation
};
inline constexpr int kQueues = 4;

/// Buffers that a device still works on behind the host's back. Memory is handed out again in the order of the
/// computation (MemoryPool), so what other queues use must be held until they are through. A queue that waits for
/// others, as one does in which a message is awaited, holds nothing that is not its own. Any thread may call.
class KeptBuffers {
 public:
  /// Until the moment of that queue is reached and somebody calls again.
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

/// Looks from a thread of its own for what nobody else would notice: calls of a library that never come back.
class Watchdog {
 public:
  /// Calls `bite` once, in that thread, when it has lived for `patience`, or `beats` has stayed the same for so long.
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

/// One question for the time: when it was asked and answered by the own clock, and what the other clock said.
struct ClockReading {
  Ticks asked = 0;
  Ticks answered = 0;
  Ticks other = 0;
};

/// What to add to the other clock to have the own: the other one was read half-way between question and answer, most
/// nearly so in the quickest exchange (Cristian, Distributed Computing 3, 1989, §3). Wrong by half of that exchange at
/// most: some microseconds over InfiniBand, tens over Ethernet. Left out: clocks that run at different rates, apart
/// from measuring anew every step.
Ticks clock_offset(const std::vector<ClockReading>& readings);

/// Memory and elementwise work of one rank's device, as the executor and the parallel strategies need it. All buffers
/// hold 32-bit floats. A device may work behind the host's back: operations happen in the order of the calls.
class ComputeDevice : public Interface {
 public:
  /// Filled with zeros.
  virtual Buffer allocate(std::size_t bytes) = 0;
  /// The same without the zeros: for what is written before it is read.
  virtual Buffer reserve(std::size_t bytes) { return allocate(bytes); }
  /// In elements: where products of matrices want each of them to begin.
  virtual std::size_t alignment() const { return 1; }
  virtual void zero(const Buffer& buffer) = 0;
  /// Fills the buffer with the draw's values, the same bits on every device.
  virtual void draw(const Draw& draw, const Buffer& to) = 0;
  virtual void copy(const Buffer& from, const Buffer& to) = 0;
  virtual void add(const Buffer& from, const Buffer& to) = 0;  ///< to += from
  /// One optimizer step: `updated`, which may be `weights`, from weights, gradients and states. `step` counts from 1.
  virtual void optimize(const UpdateRule& rule, int step, const Buffer& weights, const Buffer& gradients,
                        const std::vector<Buffer>& states, const Buffer& updated) = 0;

  /// From and to the host's memory; both return when the host may go on with it.
  virtual void upload(const std::byte* from, const Buffer& to) = 0;
  virtual void download(const Buffer& from, std::byte* to) = 0;

  virtual Mark mark() = 0;
  /// In ticks of host_clock(); waits for the moment if need be.
  virtual Ticks time_of(const Mark& mark) = 0;
  /// Gives a device that works behind the host's back a little to do, so that what is called next has long been called
  /// when the device comes to it.
  virtual void hold() {}
};

/// Turns gradients into shorter messages and back, on one device. Values are 32-bit floats.
class GradientCodec : public Interface {
 public:
  /// How the messages of replicas are added up.
  enum class Exchange {
    kByParts,   ///< everybody sends part i to replica i, which adds up and sends its sum, encoded again, to everybody
    kGathered,  ///< everybody sends its message to everybody
  };
  virtual Exchange exchange() const = 0;
  /// Whether what a message leaves out is kept and added to the next values (error feedback).
  virtual bool keeps_residual() const = 0;

  /// Of the message for `count` values.
  virtual std::size_t message_bytes(std::size_t count) const = 0;
  /// Writes the message for `values` + `residual` and leaves in `residual` what the message does not say. `residual` is
  /// empty where none is kept.
  virtual void encode(const Buffer& values, const Buffer& residual, const Buffer& message) = 0;
  /// sum += what the message for that many values says.
  virtual void add_decoded(const Buffer& message, const Buffer& sum) = 0;
};

/// The arithmetic of PowerSGD (Vogels et al. 1905.13727, algorithm 1) on one device. With r the rank, a gradient matrix
/// M of n rows and m columns, of 32-bit floats, is taken for P·Qᵀ, with P of n rows and Q of m rows, r columns each.
class LowRankProducts : public Interface {
 public:
  struct Shape {
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t rank = 0;

    std::size_t left_bytes() const { return rows * rank * sizeof(float); }      ///< of P
    std::size_t right_bytes() const { return columns * rank * sizeof(float); }  ///< of Q
  };
  /// Q before the first step: the same wherever it is called, with columns that depend on each other nowhere.
  virtual void start(const Shape& shape, const Buffer& right) = 0;
  /// residual += gradient, P = residual · Q.
  virtual void project(const Shape& shape, const Buffer& gradient, const Buffer& residual, const Buffer& right,
                       const Buffer& left) = 0;
  /// Makes the columns of P orthonormal, or zero where they depend on those before them; Q = residualᵀ · P, and
  /// residual -= P·Qᵀ: what is left out is kept (error feedback, algorithm 2).
  virtual void fit(const Shape& shape, const Buffer& left, const Buffer& residual, const Buffer& right) = 0;
  /// gradient = P·Qᵀ. A column of Q that is zero begins anew as by start(): it would stay so.
  virtual void rebuild(const Shape& shape, const Buffer& left, const Buffer& right, const Buffer& gradient) = 0;
};

}  // namespace flopcast::realrun
