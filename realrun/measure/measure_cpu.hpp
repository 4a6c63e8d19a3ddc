#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "calibrate/device/measurement.hpp"
#include "realrun/device/buffer.hpp"

namespace flopcast {

/// Clock that times the samples; tests use one that they advance. Called from the threads of all ranks.
struct Clock {
  std::function<double()> wall;       ///< seconds; monotonic
  std::function<double()> processor;  ///< CPU time of the calling thread
};

Clock machine_clock();

/// This machine's processor, name, memory and matrix library, and today's date; without samples.
Measurement describe_host();

/// Repetitions of one sample: at least `fewest`, then more until `seconds` have passed, at most `most`.
struct Repetitions {
  int fewest = 15;
  int most = 400;
  double seconds = 0.05;
};

/// The product, copy or Adam update that a key describes, ready to be repeated on the calling thread.
using Work = std::function<void()>;
Work host_work(const SampleKey& key);

/// Times the work after a warm-up; keeps every repetition.
Sample measure_compute(const SampleKey& key, const Repetitions& repetitions, const Clock& clock, const Work& work);

/// One rank's end of a transport, called from that rank's own thread or process. The transport owns the buffers: only
/// the time matters.
class MeasuredRank : public realrun::Interface {
 public:
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual void send(int to, std::size_t bytes) = 0;
  virtual void receive(int from, std::size_t bytes) = 0;
  /// An all-reduce, all-gather or reduce-scatter of all ranks; `bytes` as SampleKind counts them.
  virtual void collective(SampleKind kind, std::size_t bytes) = 0;
  virtual void barrier() = 0;
  /// Maximum of the ranks' values, on every rank.
  virtual double largest(double value) = 0;
};

/// Calls the body once per rank, all concurrently, and returns once all are done. Buffers hold `bytes`.
using RunRanks = std::function<void(int ranks, std::size_t bytes, const std::function<void(MeasuredRank&)>& body)>;

/// Point-to-point: half of a ping-pong between ranks 0 and 1. Collectives: from a barrier until the last rank finishes.
/// The number of repetitions depends only on the size, so that all ranks agree on it; `quick` runs a quarter of them.
Sample measure_message(const SampleKey& key, const RunRanks& run, const Clock& clock, bool quick);

struct CpuSet {
  bool quick = false;            ///< fewer sizes and repetitions: seconds instead of a minute or two
  std::vector<int> ranks = {2};  ///< sizes of the groups whose collectives are measured
};

/// Samples of the standard set, pass by pass: single-threaded products, copies, Adam updates, messages between two
/// ranks, and collectives of each group.
std::vector<SampleKey> cpu_samples(const CpuSet& set);

/// The measured machine; tests substitute their own.
struct MeasuredHost {
  Clock clock;
  std::function<Work(const SampleKey&)> work;
  RunRanks run;
};
MeasuredHost this_host();

/// Called before each sample with the number of samples done.
using ShowProgress = std::function<void(std::size_t done, std::size_t all, const SampleKey& next)>;

/// `from`, multiplied by `factor` repeatedly while at most `to`.
std::vector<double> growing_sizes(double from, double to, double factor);

/// Measures the samples that are missing from the file, and appends each as soon as it is measured. If none is missing,
/// an earlier run finished the file: everything is measured again.
void measure_cpu(const CpuSet& set, const MeasuredHost& host, MeasurementFile& file, const ShowProgress& show);

/// Runs ranks as threads of this process: a message is one copy from the sender's buffer into the receiver's; a
/// collective sums and copies parts of the other ranks' buffers between barriers. Waiting threads yield their core.
void run_thread_ranks(int ranks, std::size_t bytes, const std::function<void(MeasuredRank&)>& body);

}  // namespace flopcast
