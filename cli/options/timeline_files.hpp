#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "calibrate/verdict/verdict.hpp"
#include "cli/options/figure_options.hpp"
#include "reports/timeline/timeline_svg.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// --svg, --html and --trace: side files that show when everything happened.
class TimelineFiles {
 public:
  void add_to(CommandLine& command_line);
  /// Throws ConfigError where the figure cannot be drawn so. `drawn`: another flag of the command draws a figure.
  void check(bool drawn = false) const;
  bool wanted() const { return figure_.file() || html_ || trace_; }
  const FigureOptions& figure() const { return figure_; }
  /// `command`: what was typed, which the report tells; `parts`: what it shows beside the forecast.
  void write(const Forecast& forecast, const std::string& command, const PageParts& parts = {}) const;
  bool has_page() const { return html_.has_value(); }
  /// Without memory. A trace holds one run: more than one timeline with --trace is bad usage.
  void write(const std::vector<Timeline>& timelines) const;
  /// Figure and page show the forecast above the measurement over one axis, the trace the measurement.
  void write(const RunComparison& run) const;

 private:
  SvgOptions svg_options() const;

  FigureOptions figure_;
  std::optional<std::string> html_;
  std::optional<std::string> trace_;
};

}  // namespace flopcast
