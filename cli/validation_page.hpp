#pragma once

#include <string>
#include <vector>

#include "calibrate/validation/evaluate.hpp"

namespace flopcast {

/// docs/validation.md: what is compared, every table, the worst rows and all of them.
std::string validation_page(const std::vector<SourceSummary>& sources);

/// Forecast against measurement of every row, a series a source, with lines at ±10 %. SVG.
std::string validation_chart(const std::vector<SourceSummary>& sources);

}  // namespace flopcast
