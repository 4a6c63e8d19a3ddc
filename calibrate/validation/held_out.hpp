#pragma once

#include <string>
#include <vector>

#include "calibrate/validation/evaluate.hpp"
#include "sim/forecast/interval.hpp"

namespace flopcast {

/// Errors of published steps by source and facts, which intervals rest on. Of sources that a constant was fitted to
/// they are no smaller for it than the interval's own test allows: every source is left out whole when it is judged.
/// Layers measured alone and collectives are no steps.
std::vector<SourceErrors> source_errors(const std::vector<SourceSummary>& sources);

/// The text of sim/forecast/source_errors.json.
std::string source_errors_file(const std::vector<SourceErrors>& groups);

/// How often the steps of a source lie inside the interval of a forecast that knows nothing of it.
struct Coverage {
  int source = 0;
  std::string devices;  ///< "h100, h200"
  std::string stacks;
  int rows = 0;
  int covered = 0;
  double half_width = 0.0;  ///< mean over the rows
};

/// By source, each left out whole.
std::vector<Coverage> interval_coverage(const std::vector<SourceErrors>& known);
/// The mean of the sources' shares, each one vote.
double mean_coverage(const std::vector<Coverage>& coverages);

}  // namespace flopcast
