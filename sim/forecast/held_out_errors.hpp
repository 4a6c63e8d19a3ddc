#pragma once

#include <string>
#include <vector>

#include "model/catalog/embedded.hpp"
#include "model/job.hpp"

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

}  // namespace flopcast
