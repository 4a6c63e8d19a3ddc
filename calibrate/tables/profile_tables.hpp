#pragma once

#include <string>
#include <vector>

#include "base/text/series.hpp"
#include "base/text/table.hpp"
#include "model/job/device_profile.hpp"

namespace flopcast {

/// How well each part of a profile fits, what was reached of the datasheet, slowdowns, then the worst samples.
std::vector<Table> profile_tables(const DeviceProfile& profile);
/// Measured points and fitted lines, a panel for each fit; the datasheet's rate where it has one.
std::vector<SeriesChart> profile_charts(const DeviceProfile& profile);

}  // namespace flopcast
