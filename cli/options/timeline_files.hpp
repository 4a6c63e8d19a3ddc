#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "calibrate/verdict/verdict.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// --svg, --html and --trace: side files that show when everything happened.
class TimelineFiles {
 public:
  void add_to(CommandLine& command_line);
  /// Throws EnvironmentError where one of them could not be written; for commands that work for long before they write.
  void require_writable() const;
  bool wanted() const { return svg_ || html_ || trace_; }
  /// `command`: what was typed, which the report tells.
  void write(const Forecast& forecast, const std::string& command) const;
  /// Without memory. A trace holds one run: more than one timeline with --trace is bad usage.
  void write(const std::vector<Timeline>& timelines) const;
  /// Figure and page show the forecast above the measurement over one axis, the trace the measurement.
  void write(const RunComparison& run) const;

 private:
  std::optional<std::string> svg_;
  std::optional<std::string> html_;
  std::optional<std::string> trace_;
};

/// "flopcast 0.1.0"
std::string tool_text();

}  // namespace flopcast
