#pragma once

#include <string>
#include <vector>

#include "model/config/device_profile.hpp"
#include "reports/series/series.hpp"
#include "reports/table.hpp"

namespace flopcast {

/// How well each part of a profile fits, then its worst samples.
std::vector<Table> profile_tables(const DeviceProfile& profile);
/// Measured points and fitted lines, a panel for each fit.
std::vector<SeriesChart> profile_charts(const DeviceProfile& profile);

/// A profile's file, with located complaints.
DeviceProfile load_profile(const std::string& path);

}  // namespace flopcast
