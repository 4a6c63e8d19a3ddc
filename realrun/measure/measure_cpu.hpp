#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "calibrate/device/measurement.hpp"
#include "realrun/device/buffer.hpp"

namespace flopcast {

/// What times the samples; tests have one that only moves when they say so. Called from the threads of all ranks.
struct Clock {
  std::function<double()> wall;       ///< seconds; only runs forward
  std::function<double()> processor;  ///< CPU time of the calling thread
};

Clock machine_clock();

/// This machine's processor, name, memory, today's date and the library that multiplies; no samples.
Measurement describe_host();

/// Repetitions of one sample: at least `fewest`, more until `seconds` have passed, at most `most`.
struct Repetitions {
  int fewest = 15;
  int most = 400;
  double seconds = 0.05;
};

/// The product, copy or update by Adam that a key names, ready to be repeated on the calling thread.
using Work = std::function<void()>;
Work host_work(const SampleKey& key);

/// Times the work, warm; every repetition is kept.
Sample measure_compute(const SampleKey& key, const Repetitions& repetitions, const Clock& clock, const Work& work);

/// One rank's end of a transport, called from that rank's own thread or process. Buffers are the transport's own: only
/// the time counts.
class MeasuredRank : public realrun::Interface {
 public:
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

struct CpuSet {
  bool quick = false;            ///< fewer sizes and repetitions: seconds instead of a minute or two
  std::vector<int> ranks = {2};  ///< sizes of the groups whose collectives are measured
};

/// What the standard set holds, pass after pass: products of one thread, copies, Adam's updates, messages between two
/// ranks, and collectives of each group.
std::vector<SampleKey> cpu_samples(const CpuSet& set);

/// What is measured; tests put their own in its place.
struct MeasuredHost {
  Clock clock;
  std::function<Work(const SampleKey&)> work;
  RunRanks run;
};
MeasuredHost this_host();

/// Called before each sample with how many are done.
using ShowProgress = std::function<void(std::size_t done, std::size_t all, const SampleKey& next)>;

/// `from`, and as often times `factor` as it is at most `to`.
std::vector<double> growing_sizes(double from, double to, double factor);

/// Measures what the file does not hold yet, each sample appended as soon as it is known. A file that holds all of it
/// was finished by a run before: everything is measured anew.
void measure_cpu(const CpuSet& set, const MeasuredHost& host, MeasurementFile& file, const ShowProgress& show);

/// Ranks that are threads of this process: a message is one copy from the sender's buffer into the receiver's, a
/// collective adds up and copies parts of the others' buffers between barriers. Waiting threads yield their core.
void run_thread_ranks(int ranks, std::size_t bytes, const std::function<void(MeasuredRank&)>& body);

}  // namespace flopcast
