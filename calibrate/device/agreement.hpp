#pragma once

#include <optional>
#include <string>

#include "calibrate/device/measurement.hpp"

namespace flopcast {

/// How far two passes over the same samples lie apart, as |t1 / t2 - 1| of their medians with the larger on top.
struct Agreement {
  int compared = 0;
  double median = 0.0;
  double largest = 0.0;
  std::string worst;  ///< the sample of the largest
};

/// The median that two passes may differ by. One sample may be unlucky; when half of them moved by more, the machine
/// was not the same machine.
inline constexpr double kAgreementTolerance = 0.10;

/// Samples that only one pass holds are left out.
Agreement compare_passes(const Measurement& measurement);

/// Throws EnvironmentError when the passes disagree by more than kAgreementTolerance in the median. `file` is named as
/// the place of the measurements.
void require_agreement(const Measurement& measurement, const std::string& file);

/// Wall time over CPU time of the samples that tell both, median: 1.0 on a machine of one's own. Absent when none does.
std::optional<double> disturbance(const Measurement& measurement);
/// Above it a run counts as disturbed: something else used its cores.
inline constexpr double kDisturbedFrom = 1.03;

}  // namespace flopcast
