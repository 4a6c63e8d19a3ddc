#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/host/streams.hpp"
#include "base/text/table.hpp"
#include "calibrate/device/measurement.hpp"
#include "model/config/document.hpp"

namespace flopcast {

/// What the user calibrates from, as typed.
struct CalibrationWishes {
  bool cpu = false;
  bool cuda = false;
  bool quick = false;
  bool in_place = false;
  std::vector<std::string> nccl_tests;
  std::vector<std::string> traces;
  std::optional<std::string> topology;
  std::optional<std::string> training_log;
  std::optional<std::string> from;
  std::optional<std::string> seconds;
  std::optional<std::string> ranks;
  std::optional<std::string> nodes;
  std::optional<std::string> devices_per_node;
  std::optional<std::string> collective;
  std::optional<std::string> measurements;
  std::optional<std::string> profile;
  std::optional<std::string> device;  ///< checked
  /// What is measured here and now, as the flag says it; empty: nothing.
  std::string measured() const { return cpu ? "--cpu" : cuda ? "--cuda" : ""; }

  /// Files that can be read together.
  bool imports() const { return !nccl_tests.empty() || !traces.empty() || topology || from; }
};

struct Calibration {
  Measurement measurement;
  JsonValue cluster = JsonValue::object();  ///< keys known without a measurement
  std::vector<Table> tables;                ///< what the files hold beside samples
};

/// Where calibrate_here keeps its measurements.
std::string measurement_path(const CalibrationWishes& wishes);

/// Measures this machine or its GPU in a program of its own; throws EnvironmentError when its two passes disagree.
/// Absent when the machine has not what is to be measured, which that program has told.
std::optional<Calibration> calibrate_here(const CalibrationWishes& wishes, const Streams& streams);
/// Reads the files named; what they leave open is told as warnings.
Calibration import_files(const CalibrationWishes& wishes, const Streams& streams);
Calibration import_training_log(const CalibrationWishes& wishes);

}  // namespace flopcast
