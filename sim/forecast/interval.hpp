#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/catalog/catalogue.hpp"
#include "model/job.hpp"
#include "sim/forecast/result.hpp"

namespace flopcast {

/// What of a job decides how far off its forecast may be: facts of hardware and software, never a model's name.
struct ForecastFacts {
  std::string device;  ///< the catalogue's; empty where nothing like the job was ever compared with a measurement
  GpuGeneration generation = GpuGeneration::kAmpere;
  std::string stack;
  std::string software;  ///< Stack::based_on
  bool several_nodes = false;
  int devices = 1;
  std::string unlike;  ///< why `device` is empty: "its figures are not the catalogue's"
};
ForecastFacts facts_of(const Job& job);

/// Measured training steps of one model on one device with one stack, beside forecasts whose constants were fitted
/// without any row of that model.
struct HeldOutErrors {
  /// An empty device: forecasts of devices by the fitted figures of other generations.
  ForecastFacts facts;         ///< devices: of the largest run
  int model = 0;               ///< a number for each (layers, width, heads): what is left out together
  std::vector<double> errors;  ///< measured / forecast - 1
};

/// sim/forecast/held_out_errors.json, written by flopcast validate --refit --held-out.
const std::vector<HeldOutErrors>& shipped_held_out_errors();
const std::vector<EmbeddedFile>& embedded_held_out_errors();

/// How far off a step's forecast may be, by how far off forecasts of published runs were; docs/uncertainty.md.
/// Split conformal prediction with whole models as units (Lei et al. 2018, section 2; Dunn et al. 2023, section 3): the
/// half-width is the smallest |measured / forecast - 1| that a share 0.9 · (M + 1) / M of the errors does not exceed,
/// each of their M models weighing the same; the largest where that share exceeds one.
/// The errors are those of the runs most like the job that tell of at least three models and hold one on as many
/// devices:
///   the same device and stack, and one node or several
///   the same device and stack
///   the same stack
///   the same device
///   all runs
/// For a device without a run: those of its generation, then all.
/// Wider pools never make an interval narrower than one they were taken instead of.
/// For other generations, and for jobs unlike all runs: errors of devices forecast by the figures of other generations,
/// each generation weighing the same; the share is 0.9.
/// Left out: what no published run can show, such as failures, stragglers, and a network that others use.
/// Nothing where no errors are known.
std::optional<StepTimeInterval> step_time_interval(const ForecastFacts& facts, double time_s,
                                                   const std::vector<HeldOutErrors>& known,
                                                   std::optional<int> without_model = std::nullopt);

}  // namespace flopcast
