#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/host/terminal.hpp"
#include "base/text/table.hpp"
#include "calibrate/device/measurement.hpp"
#include "calibrate/runs/fit_runs.hpp"
#include "import/jobs/load_job.hpp"
#include "model/config/document.hpp"
#include "sim/forecast/prepare.hpp"

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

/// The rows of a JSON file of one's own runs, {"id", "job", "measured", "date"}, with their jobs read: "job" is a job
/// or a path beside the file; "measured" tells iteration_s or a rate, or names a training "log" beside the file; a row
/// as published measurements have it is mapped as they are. Throws ConfigError with file and row.
std::vector<OwnRun> read_own_runs(const std::string& file);

/// "1/64" or "0.25". Throws ConfigError unless it is above 0 and at most 1.
double parse_scale(const std::string& text);

/// A job whose model has become so small that it trains on one machine, under the same layout.
struct ScaledJob {
  LoadedJob job;
  std::string told;  ///< what became of the model, for the user
};

/// Hidden size, MLP width, heads, experts, vocabulary, layers and sequence length are each multiplied by `scale`, and
/// rounded up to what the layout divides: layers by the stages of the pipeline (layers that are listed by stage are
/// scaled one by one), heads, key/value heads, MLP and vocabulary by tp, experts by ep, sequences by cp, tp and slices.
/// Heads that share keys and values go on sharing them, two and two. Everything else is as it was, the form of the
/// network, the microbatches and the schedule too. `step` is the whole job's. Throws ConfigError for layer profiles.
ScaledJob scaled_job(const LoadedJob& whole, const PreparedStep& step, double scale);

}  // namespace flopcast
