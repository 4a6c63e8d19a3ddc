#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/device/measurement.hpp"
#include "realrun/measure/gpu/gpu_samples.hpp"

namespace flopcast {

/// What a calibration of a GPU did not measure, for the user; each a phrase such as "12 of gemm fp8 (dgrad)".
struct GpuOutcome {
  std::size_t measured = 0;
  std::vector<std::string> no_time;  ///< the budget was used up
  std::vector<std::string> refused;  ///< with what the GPU's libraries said: "9 of gemm fp8: no algorithm"
};

using ShowGpuProgress = std::function<void(std::size_t done, std::size_t all, const SampleKey& next)>;

/// Times one work, warm: batches of as many repetitions as take some 200 us or more, since an event takes half a
/// microsecond; a sample's times are those of a batch over its repetitions. What runs beside it is queued ever more
/// often until it outlasts the batch; batches whose queueing takes the host longer than the GPU can be held are halved.
/// Throws EnvironmentError when either does not help.
Sample measure_work(const SampleKey& key, bool quick, const std::function<double()>& seconds, QueuedWork& work);

/// Measures what the file does not hold yet, each sample appended as soon as it is known, until all is measured or
/// `set.seconds` have passed by `seconds`, a clock that only runs forward. A file that holds all of it was finished by
/// a run before: everything is measured anew.
GpuOutcome measure_gpu(const GpuSet& set, MeasuredGpu& gpu, const std::function<double()>& seconds,
                       MeasurementFile& file, const ShowGpuProgress& show);

/// Device and libraries for the head of the measurement file; `host` as describe_host() tells it.
Measurement describe_gpu(const GpuFacts& facts, const Measurement& host);

}  // namespace flopcast
