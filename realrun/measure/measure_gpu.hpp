#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/device/measurement.hpp"
#include "realrun/device/buffer.hpp"
#include "realrun/measure/measure_cpu.hpp"

// What measuring needs of a GPU; nothing here knows CUDA, so that a test can measure a GPU of known figures.

namespace flopcast {

/// The GPU that is measured, and the node around it.
struct GpuFacts {
  std::string name;
  int multiprocessors = 1;
  int compute_capability = 80;  ///< 90 for 9.0
  double memory_bytes = 0.0;
  double workspace_bytes = 0.0;  ///< that the buffers of one sample may take
  int gpus = 1;                  ///< that messages can be measured between
  std::string no_messages;       ///< why there are none
  std::map<std::string, std::string> libraries;
  std::map<std::string, double> clocks_mhz;
};

/// What queueing a work several times took.
struct QueuedTime {
  double device_s = 0.0;   ///< on the GPU, between events before the first and behind the last
  double host_s = 0.0;     ///< of the host, to queue them
  bool host_ahead = true;  ///< the GPU did not wait for the host: device_s is the GPU's own
  bool covered = true;     ///< what ran beside it was there from before the first until after the last
};

/// A sample's kernel or message, ready to be queued: its buffers are filled, libraries have chosen their algorithms.
class QueuedWork : public realrun::Interface {
 public:
  /// Queues the work `times` times, each on buffers that no cache holds, and waits for all of it. The GPU is held until
  /// the host has queued everything, so that it never waits for the host. `neighbours` is how many times to queue what
  /// runs beside it, where the sample has such.
  virtual QueuedTime run(int times, int neighbours) = 0;
};

/// Either a work or the reason why this GPU or its libraries cannot do it.
struct PreparedWork {
  std::unique_ptr<QueuedWork> work;
  std::string refusal;
};

class MeasuredGpu : public realrun::Interface {
 public:
  virtual const GpuFacts& facts() const = 0;
  /// One work at a time: the one before is gone.
  virtual PreparedWork prepare(const SampleKey& key) = 0;
};

/// GPU 0 of those that CUDA shows, and all of them for messages. Throws EnvironmentError that says what is missing: a
/// build with CUDA, a driver, a GPU, cuBLASLt.
std::unique_ptr<MeasuredGpu> open_measured_gpu();

struct GpuSet {
  bool quick = false;      ///< fewer sizes and repetitions
  std::vector<int> ranks;  ///< sizes of the groups whose messages are measured; empty: two, and all GPUs of the node
  double seconds = 0.0;    ///< after which no further sample begins
};

/// The standard set in the order it is measured: in groups, the most important first, and each group twice before the
/// next begins, so that whenever time runs out, what is there has two passes.
///   1  launches, copies, bf16 products of training shapes: what every forecast stands on
///   2  norms, element-wise kernels, optimizer, messages between GPUs, copies to and from the host
///   3  bf16 products of all layouts; products beside a channel copy or an all-reduce, and these beside a product
///   4  products in tf32, fp16 and, from compute capability 8.9 on, fp8; embedding, loss
///   5  flopcast's own attention, and layouts of the other precisions
/// Shapes hold squares, skinny and odd ones (multiples of 8, as tensor cores load them), and grids of tiles that fill
/// the multiprocessors once exactly and once and a little. Samples whose buffers the GPU does not hold are left out.
std::vector<SampleKey> gpu_samples(const GpuSet& set, const GpuFacts& facts);

/// What the buffers of one repetition take.
double buffer_bytes(const SampleKey& key);

/// Operator of attention's samples: fp32, causal, without tensor cores.
inline constexpr const char* kOwnKernel = "flopcast's own";

/// What a calibration of a GPU did not measure, for the user; each a phrase such as "12 of gemm fp8 (dgrad)".
struct GpuOutcome {
  std::size_t measured = 0;
  std::vector<std::string> no_time;  ///< the budget was used up
  std::vector<std::string> refused;  ///< with what the GPU's libraries said: "9 of gemm fp8: no algorithm"
};

/// Times one work, warm: batches of as many repetitions as take some 200 us or more, since an event takes half a
/// microsecond; a sample's times are those of a batch over its repetitions. What runs beside it is queued ever more
/// often until it outlasts the batch; batches whose queueing takes the host longer than the GPU can be held are halved.
/// Throws EnvironmentError when either does not help.
Sample measure_work(const SampleKey& key, bool quick, const std::function<double()>& seconds, QueuedWork& work);

/// Measures what the file does not hold yet, each sample appended as soon as it is known, until all is measured or
/// `set.seconds` have passed by `seconds`, a clock that only runs forward. A file that holds all of it was finished by
/// a run before: everything is measured anew.
GpuOutcome measure_gpu(const GpuSet& set, MeasuredGpu& gpu, const std::function<double()>& seconds,
                       MeasurementFile& file, const ShowProgress& show);

/// Device and libraries for the head of the measurement file; `host` as describe_host() tells it.
Measurement describe_gpu(const GpuFacts& facts, const Measurement& host);

}  // namespace flopcast
