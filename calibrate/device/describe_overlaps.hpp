#pragma once

#include <string>
#include <vector>

#include "calibrate/device/measurement.hpp"
#include "model/config/device_profile.hpp"

namespace flopcast {

/// The slowdowns of what ran beside something else, over the channels of the message or channel copy of the two: added
/// to `profile` as fits and as `overlaps`. A sample counts when the same one was measured alone too; kinds with fewer
/// than three numbers of channels are left out. No figure of a device follows: what forecasts assume of computation
/// beside communication is fitted to whole steps (model/cost/stage_costs.cpp).
/// Where a fit refuses its data it is left out, with the reason in `notes`.
void describe_overlaps(const Measurement& measurement, DeviceProfile& profile, std::vector<std::string>& notes);

}  // namespace flopcast
