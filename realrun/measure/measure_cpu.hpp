#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/device/measurement.hpp"
#include "realrun/measure/clock.hpp"
#include "realrun/measure/measure_compute.hpp"
#include "realrun/measure/measure_messages.hpp"

namespace flopcast {

struct CpuSet {
  bool quick = false;            ///< fewer sizes and repetitions: seconds instead of a minute or two
  std::vector<int> ranks = {2};  ///< sizes of the groups whose collectives are measured
};

/// What the standard set holds, pass after pass: products of one thread, copies, messages between two ranks, and
/// collectives of each group.
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

/// Measures what the file does not hold yet, each sample appended as soon as it is known. A file that holds all of it
/// was finished by a run before: everything is measured anew.
void measure_cpu(const CpuSet& set, const MeasuredHost& host, MeasurementFile& file, const ShowProgress& show);

}  // namespace flopcast
