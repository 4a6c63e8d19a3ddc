#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reports/series/series.hpp"

namespace flopcast {

/// The loss of every step of a run, under the name of its schedule.
Series loss_curve(const std::string& schedule, const std::vector<double>& losses);

/// The same from a measurement file that `flopcast run -o` kept. Throws ConfigError when it is none.
Series read_loss_curve(std::string_view text, const std::string& file);

/// Curves over steps as an SVG.
std::string loss_figure(const std::vector<Series>& curves);

}  // namespace flopcast
