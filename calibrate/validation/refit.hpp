#pragma once
#include "model/catalog/catalogue.hpp"

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/validation/published_row.hpp"
#include "model/enum_names.hpp"
#include "sim/forecast/prepare.hpp"

namespace flopcast {

/// Another value for a figure of a device or a stack, as a job file would give it inline.
struct CatalogueChange {
  CatalogueKind kind = CatalogueKind::kDevices;
  std::string entry;
  std::string figure;
  JsonValue value;
};

/// Whether the job is priced with that entry; if so it gets the value, unless it gives one of its own.
bool apply(const CatalogueChange& change, nlohmann::json& job);

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

/// The rows asked for no less or no more than the range allows.
bool at_bound(const FittedConstant& constant, double value);

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
  /// Each row with constants fitted without any row of its model, or of its source; absent where there is no other.
  std::optional<double> left_out;
};

/// What rows are forecast without: all rows of their model, or of their source.
enum class LeftOut { kModels, kSources };
template <>
struct EnumNames<LeftOut> {
  static constexpr std::string_view kNames[] = {"models", "sources"};
};

/// A row that its own model's rows had no part in, or its own source's.
struct LeftOutRow {
  std::string id;
  double error = 0.0;  ///< forecast / measured - 1
};

struct Refit {
  FitPlan plan;
  std::vector<double> values;  ///< by constant
  std::vector<RefitSource> sources;
  std::vector<LeftOutRow> left_out;  ///< empty where nothing was fitted
};

/// Minimises the mean over the sources of log(1 + (error / 0.04)²), a Cauchy loss: rows far off do not pull.
/// Gauss-Newton: errors are linearised in the constants and the loss of the linear errors minimised, again until
/// nothing moves. A model is its layers, width and heads, in whatever source; each model, or each source, is left out
/// in turn, the constants fitted to the others by the last linearisation, and its rows forecast with these. Constants
/// that touch none of the rows stay.
Refit refit(const FitPlan& plan, const std::vector<PublishedFile>& files, const ReadFile& read_file,
            LeftOut without_its = LeftOut::kModels);

/// The catalogue's own constants on the rows that a plan would be fitted to.
Refit residuals_of(const FitPlan& plan, const std::vector<PublishedFile>& files, const ReadFile& read_file);

/// {"fits": [{"name", "constants": [{"entry", "figure", "unit", "shipped", "refitted", "at_bound"}],
///            "sources": [{"source", "rows", "models", "shipped", "refitted", "left_out"}]}]}; errors are fractions.
std::string write_refits(const std::vector<Refit>& fits);

/// calibrate/validation/residuals.json, as `flopcast validate --refit --format json` wrote it: what the constants of
/// the catalogue leave on the rows that come with the program, and what they leave on models they were not fitted to.
std::vector<Refit> stored_refits();

/// calibrate/validation/fits.json: which constants are fitted to which sources.
const std::vector<EmbeddedFile>& embedded_fits();

/// calibrate/validation/residuals.json: stored_refits().
const std::vector<EmbeddedFile>& embedded_residuals();

}  // namespace flopcast
