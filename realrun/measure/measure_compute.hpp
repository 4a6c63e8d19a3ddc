#pragma once

#include <functional>

#include "calibrate/device/measurement.hpp"
#include "realrun/measure/clock.hpp"

namespace flopcast {

/// Repetitions of one sample: at least `fewest`, more until `seconds` have passed, at most `most`.
struct Repetitions {
  int fewest = 15;
  int most = 400;
  double seconds = 0.05;
};

/// The product or copy that a key names, ready to be repeated on the calling thread.
using Work = std::function<void()>;
Work host_work(const SampleKey& key);

/// Times the work, warm; every repetition is kept.
Sample measure_compute(const SampleKey& key, const Repetitions& repetitions, const Clock& clock, const Work& work);

}  // namespace flopcast
