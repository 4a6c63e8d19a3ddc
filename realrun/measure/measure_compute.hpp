#pragma once

#include "calibrate/device/measurement.hpp"

namespace flopcast {

/// Repetitions of one sample: at least `fewest`, more until `seconds` have passed, at most `most`.
struct Repetitions {
  int fewest = 15;
  int most = 400;
  double seconds = 0.05;
};

/// Times the product or copy that the key names, on this thread, warm; every repetition is kept.
Sample measure_compute(const SampleKey& key, const Repetitions& repetitions);

}  // namespace flopcast
