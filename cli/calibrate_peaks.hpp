#pragma once

#include <string>
#include <vector>

#include "model/config/device_profile.hpp"

namespace flopcast {

/// The fastest that was measured of what a datasheet has a figure for: products of a precision, and copies within the
/// device's memory.
struct AchievedPeak {
  std::string what;    ///< the fit whose samples these are
  std::string sample;  ///< the fastest
  double rate = 0.0;   ///< FLOP/s or bytes/s of it
  double datasheet = 0.0;
};

/// Of the catalogue's device that the profile names; none where it names none. Copies count without those that a cache
/// may have held: the largest one is taken.
std::vector<AchievedPeak> achieved_peaks(const DeviceProfile& profile);

}  // namespace flopcast
