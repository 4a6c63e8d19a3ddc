#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/device/measurement.hpp"

namespace flopcast {

/// One line of progress: the mean over the steps since the line before.
struct LoggedStep {
  long iteration = 0;
  double seconds = 0.0;
  int global_batch_size = 0;
  std::optional<double> tflops_per_gpu;
  int skipped = 0;       ///< iterations that did not update, such as after an overflow
  bool warm_up = false;  ///< the first of a start: it holds compilation, allocation and the first touch of the data
};

struct TrainingLog {
  std::vector<LoggedStep> steps;
  std::map<std::string, std::string> arguments;  ///< as the log lists them at its start
  std::optional<int> ranks;                      ///< world_size
  int starts = 0;                                ///< how often training began, restarts included
};

/// Reads what Megatron-LM and Megatron-DeepSpeed print while they train: lines with "iteration 5/ 100 |" and "elapsed
/// time per iteration (ms):" (or "(s):"), fields in any order, behind any prefix; several ranks may print the same
/// line. A last line without its end belongs to a job that was killed and is left out. Throws ConfigError with
/// `file:line`: no such line, a number that is none or not above zero, a batch size that is missing.
TrainingLog read_training_log(std::string_view text, const std::string& file);

/// The steps as samples, a sample for each global batch size; warm-up and skipped updates are left out.
/// Throws ConfigError when none is left, or when neither the log nor `ranks` tells how many ranks trained.
Measurement measurement_of(const TrainingLog& log, const std::string& file, std::optional<int> ranks);

}  // namespace flopcast
