#pragma once

#include <vector>

namespace flopcast {

/// The value below which a share of them lies, straight between the two next to it: place share · (n - 1) of the sorted
/// values (Hyndman & Fan 1996, definition 7; NumPy's default). Of at least one value; the share is 0 to 1.
double percentile(std::vector<double> values, double share);

}  // namespace flopcast
