#pragma once

#include <map>
#include <memory>
#include <string>

#include "calibrate/device/measurement.hpp"

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
class QueuedWork {
 public:
  QueuedWork() = default;
  QueuedWork(const QueuedWork&) = delete;
  QueuedWork& operator=(const QueuedWork&) = delete;
  QueuedWork(QueuedWork&&) = delete;
  QueuedWork& operator=(QueuedWork&&) = delete;
  virtual ~QueuedWork() = default;

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

class MeasuredGpu {
 public:
  MeasuredGpu() = default;
  MeasuredGpu(const MeasuredGpu&) = delete;
  MeasuredGpu& operator=(const MeasuredGpu&) = delete;
  MeasuredGpu(MeasuredGpu&&) = delete;
  MeasuredGpu& operator=(MeasuredGpu&&) = delete;
  virtual ~MeasuredGpu() = default;

  virtual const GpuFacts& facts() const = 0;
  /// One work at a time: the one before is gone.
  virtual PreparedWork prepare(const SampleKey& key) = 0;
};

/// GPU 0 of those that CUDA shows, and all of them for messages. Throws EnvironmentError that says what is missing: a
/// build with CUDA, a driver, a GPU, cuBLASLt.
std::unique_ptr<MeasuredGpu> open_measured_gpu();

}  // namespace flopcast
