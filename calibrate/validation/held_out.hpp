#pragma once

#include <string>
#include <vector>

#include "calibrate/validation/refit.hpp"
#include "sim/forecast/interval.hpp"

namespace flopcast {

/// Errors of published steps whose model had no part in the constants: rows of a refit as it left them out, other rows
/// as they are. Then the same rows once more, under no device, by the mean fitted shares of the measured devices of
/// other generations: what a forecast of an unmeasured generation misses by. Layers measured alone and collectives are
/// no steps.
std::vector<HeldOutErrors> held_out_errors(const std::vector<PublishedFile>& files, const std::vector<Refit>& refits,
                                           const ReadFile& read_file);

/// The text of sim/forecast/held_out_errors.json.
std::string held_out_file(const std::vector<HeldOutErrors>& groups);

/// How often measured steps lie inside the interval of a forecast that knows nothing of their model: neither its
/// constants nor the interval's errors come from it.
struct Coverage {
  std::string device;
  std::string stack;
  int models = 0;
  int rows = 0;
  int covered = 0;
  double half_width = 0.0;  ///< mean over the rows
};

/// By device and stack, then one of all with both empty. Errors of devices forecast as other generations are left out.
std::vector<Coverage> interval_coverage(const std::vector<HeldOutErrors>& known);

}  // namespace flopcast
