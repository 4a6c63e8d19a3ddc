#pragma once

#include "calibrate/device/measurement.hpp"

namespace flopcast {

/// This machine's processor, name, memory, today's date and the library that multiplies; no samples.
Measurement describe_host();

}  // namespace flopcast
