#pragma once

#include <string>
#include <vector>

#include "calibrate/validation/catalogue_change.hpp"
#include "calibrate/validation/published_row.hpp"
#include "sim/forecast/prepare.hpp"

namespace flopcast {

/// A figure of the catalogue that no data sheet states, and the range in which it means something.
struct FittedConstant {
  CatalogueKind kind = CatalogueKind::kDevices;
  std::string entry;
  std::string figure;
  double low = 0.0;
  double high = 1.0;
  std::string unit;  ///< "us" for "53us"; empty for a plain number
  double shipped = 0.0;
};

/// Constants that are fitted together, and to which sources. calibrate/validation/fits.json.
struct FitPlan {
  std::string name;
  std::vector<std::string> sources;
  std::vector<FittedConstant> constants;
};
std::vector<FitPlan> shipped_fits();

/// Mean absolute errors of the step time of one source.
struct RefitSource {
  std::string source;
  int rows = 0;
  int models = 0;
  double shipped = 0.0;   ///< with the catalogue's constants
  double refitted = 0.0;  ///< with the refitted ones
  double left_out = 0.0;  ///< each row with constants fitted without any row of its model
};

struct Refit {
  FitPlan plan;
  std::vector<double> values;  ///< by constant
  std::vector<RefitSource> sources;
};

/// Minimises the mean over the sources of log(1 + (error / 0.04)²), a Cauchy loss: rows far off do not pull. By
/// coordinates, each step halved when neither direction is better. A model is its layers, width and heads; more than
/// five are left out in five groups of whole models. Constants that touch none of the rows stay.
Refit refit(const FitPlan& plan, const std::vector<PublishedFile>& files, const ReadFile& read_file);

}  // namespace flopcast
