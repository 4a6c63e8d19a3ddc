#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/device/measurement.hpp"
#include "realrun/device/buffer.hpp"
#include "realrun/measure/measure_cpu.hpp"

// Interface of a GPU for measuring; free of CUDA, so that a test can measure a GPU with known figures.

namespace flopcast {

/// The measured GPU, and its node.
struct GpuFacts {
  std::string name;
  int multiprocessors = 1;
  int compute_capability = 80;  ///< 90 for 9.0
  double memory_bytes = 0.0;
  double workspace_bytes = 0.0;  ///< limit for the buffers of one sample
  int gpus = 1;                  ///< GPUs between which messages can be measured
  std::string no_messages;       ///< why there are no messages
  std::map<std::string, std::string> libraries;
  std::map<std::string, double> clocks_mhz;
};

/// Times of queueing a work several times.
struct QueuedTime {
  double device_s = 0.0;   ///< on the GPU, between events before the first and after the last
  double host_s = 0.0;     ///< spent by the host to queue them
  bool host_ahead = true;  ///< the GPU did not wait for the host: device_s is GPU time only
  bool covered = true;     ///< the concurrent work ran from before the first repetition until after the last
};

/// A sample's kernel or message, ready to be queued: buffers are filled and libraries have selected their algorithms.
class QueuedWork : public realrun::Interface {
 public:
  /// Queues the work `times` times, each on buffers outside all caches, and waits for all of it. The GPU is held until
  /// the host has queued everything, so that it never waits for the host. `neighbours` is the number of times to queue
  /// the concurrent work, if the sample has any.
  virtual QueuedTime run(int times, int neighbours) = 0;
};

/// A work, or the reason why this GPU or its libraries do not support it.
struct PreparedWork {
  std::unique_ptr<QueuedWork> work;
  std::string refusal;
};

class MeasuredGpu : public realrun::Interface {
 public:
  virtual const GpuFacts& facts() const = 0;
  /// Only one work may exist at a time.
  virtual PreparedWork prepare(const SampleKey& key) = 0;
};

/// Opens GPU 0 of those visible to CUDA, and all of them for messages. Throws EnvironmentError naming what is missing:
/// a build with CUDA, a driver, a GPU, or cuBLASLt.
std::unique_ptr<MeasuredGpu> open_measured_gpu();

struct GpuSet {
  bool quick = false;      ///< fewer sizes and repetitions
  std::vector<int> ranks;  ///< sizes of the groups whose messages are measured; empty: two, and all GPUs of the node
  double seconds = 0.0;    ///< budget: no sample begins after it
};

/// The standard set in the order it is measured: in groups, the most important first, and each group twice before the
/// next begins, so that measurements exist in two passes whenever time runs out.
///   1  launches, copies, bf16 products of training shapes: the basis of every forecast
///   2  norms, element-wise kernels, optimizer, messages between GPUs, copies to and from the host
///   3  bf16 products of all layouts; products overlapped with a channel copy or an all-reduce, and these with a
///   product 4  products in tf32, fp16 and, from compute capability 8.9 on, fp8; embedding, loss 5  flopcast's own
///   attention, and layouts of the other precisions
/// Shapes include squares, skinny and odd ones (multiples of 8, as tensor cores load them), and grids of tiles that
/// fill the multiprocessors exactly once, and slightly more than once. Samples whose buffers exceed the GPU's memory
/// are left out.
std::vector<SampleKey> gpu_samples(const GpuSet& set, const GpuFacts& facts);

/// Bytes of the buffers of one repetition.
double buffer_bytes(const SampleKey& key);

/// Operator name of the attention samples: fp32, causal, without tensor cores.
inline constexpr const char* kOwnKernel = "flopcast's own";

/// Gaps of a GPU calibration, for the user; each entry is a phrase such as "12 of gemm fp8 (dgrad)".
struct GpuOutcome {
  std::size_t measured = 0;
  std::vector<std::string> no_time;  ///< not measured before the budget ran out
  std::vector<std::string> refused;  ///< with the reason given by the GPU's libraries: "9 of gemm fp8: no algorithm"
};

/// Times one work after a warm-up. An event has a resolution of half a microsecond, so repetitions are timed in batches
/// of some 200 us or more; a sample's times are a batch's time over its repetitions. Concurrent work is queued
/// repeatedly until it outlasts the batch; a batch is halved if the host takes longer to queue it than the GPU can be
/// held. Throws EnvironmentError if neither helps.
Sample measure_work(const SampleKey& key, bool quick, const std::function<double()>& seconds, QueuedWork& work);

/// Measures the samples that are missing from the file, and appends each as soon as it is measured, until none is
/// missing or `set.seconds` have passed by the monotonic clock `seconds`. If none is missing at the start, an earlier
/// run finished the file: everything is measured again.
GpuOutcome measure_gpu(const GpuSet& set, MeasuredGpu& gpu, const std::function<double()>& seconds,
                       MeasurementFile& file, const ShowProgress& show);

/// Device and libraries for the header of the measurement file; `host` is the result of describe_host().
Measurement describe_gpu(const GpuFacts& facts, const Measurement& host);

}  // namespace flopcast
