#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/table.hpp"
#include "calibrate/runs/fit_runs.hpp"
#include "calibrate/validation/published_row.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/enum_names.hpp"
#include "sim/forecast/interval.hpp"
#include "sim/forecast/prepare.hpp"

namespace flopcast {

/// A forecast and its measurement. Errors are predicted / measured - 1.
struct EvaluatedRow {
  std::string id;
  std::string source;
  bool used_in_fit = false;
  double predicted_s = 0.0;
  std::optional<double> measured_s;  ///< absent if only memory was measured
  /// Hardware FLOPs of the step over the devices' peak, times the idle factor of an ideal pipeline: 1 + (p-1)/(v·m).
  /// Divided by one efficiency for the whole source, this is the naive forecast. 0 if no step was measured.
  double ideal_s = 0.0;
  std::optional<double> memory_predicted_gib;
  std::optional<double> memory_measured_gib;
  bool out_of_memory = false;  ///< in the measurement
  bool predicted_out_of_memory = false;
  std::optional<ForecastFacts> facts;  ///< for a training step; absent for its parts
  std::optional<StepTimeInterval> interval;
  std::string group;     ///< for rows with a job
  std::string job;       ///< the completed job of a row that has one, as text
  std::string date;      ///< for the user's runs, if known: YYYY-MM-DD
  std::string question;  ///< model, devices, batch, format: rows with the same question differ in layout and software

  std::optional<double> error() const;
  std::optional<double> memory_error() const;
  /// True if the measured step is inside the forecast's interval; absent without one.
  std::optional<bool> inside() const;
};

/// Forecasts one mapped row; throws ConfigError if its job is refused. `laws`, if given, replaces the model's cost
/// functions.
EvaluatedRow evaluate_row(const PublishedRow& row, const MappedRow& mapped, const ReadFile& read_file,
                          std::shared_ptr<const CostOverrides> laws = nullptr);

/// A row that does not specify everything a forecast needs: every plausible choice is forecast; choices that do not fit
/// the memory count only if none does.
struct OpenRow {
  std::string id;
  std::string source;
  std::string open;  ///< "micro batch, recompute"
  int forecasts = 0;
  bool fits = true;
  double measured_s = 0.0;
  double fastest_s = 0.0;
  double slowest_s = 0.0;
};

struct SkippedRow {
  std::string id;
  std::string reason;
};

/// Statistics of absolute errors, except the bias, which is the mean of signed ones. Fractions.
struct ErrorStatistics {
  int rows = 0;
  double mape = 0.0;
  double median = 0.0;
  double p90 = 0.0;
  double max = 0.0;
  double bias = 0.0;
};
/// The 90th percentile is the smallest error that at least nine tenths of the rows do not exceed.
ErrorStatistics statistics_of(const std::vector<double>& signed_errors);

/// Errors of published steps with one part of the model removed.
struct Ablation {
  std::string part;
  ErrorStatistics without;
};
/// Errors over all shipped published steps with experts: without the GEMMs of routed experts (reduced to eight
/// features), without time on any link, without the time of dispatch and combine, and without that of permutations.
struct ExpertAblations {
  ErrorStatistics whole;
  std::vector<Ablation> parts;
};
ExpertAblations expert_ablations();

/// Cost of choosing the row with the fastest forecast, as a fraction of the fastest measured time: choice_statistics().
struct ChoiceStatistics {
  int groups = 0;
  int rows = 0;
  double mean = 0.0;
  double worst = 0.0;
};

/// Accuracy of the forecasts for a source, or for a group of its rows.
struct GroupStatistics {
  std::optional<double> inside;      ///< fraction of the steps inside their interval
  std::optional<double> half_width;  ///< mean half-width of the forecast's interval
  /// Means over questions with five rows or more: cost of choosing by forecast, and Spearman's rank correlation between
  /// forecast and measurement.
  std::optional<double> regret;
  std::optional<double> rank_correlation;
  /// Largest spread of measurements of one completed job, slowest / fastest - 1: no forecast can be closer to both than
  /// about half of it.
  std::optional<double> floor;
};
GroupStatistics group_statistics(const std::vector<EvaluatedRow>& rows);

/// Rows with identical completed jobs.
struct EqualJobs {
  std::vector<std::string> ids;
  double spread = 0.0;  ///< slowest / fastest - 1
};
std::vector<EqualJobs> equal_jobs(const std::vector<EvaluatedRow>& rows);

struct SourceSummary {
  std::string source;
  std::string group;  ///< empty: all rows of the source
  GroupStatistics of_group;
  std::vector<std::string> inexpressible;  ///< "id: fact that no key can express"
  int rows = 0;
  int fit_rows = 0;
  std::vector<SkippedRow> skipped;
  std::vector<EvaluatedRow> evaluated;
  std::vector<OpenRow> open;  ///< skipped rows with unspecified details
  ErrorStatistics time;
  std::optional<double> naive_mape;  ///< forecast with constant MFU, the source's median, and an ideal pipeline
  ErrorStatistics memory;            ///< over rows that ran and report their memory
  int out_of_memory_rows = 0;
  int out_of_memory_found = 0;  ///< those whose forecast does not fit either
  ChoiceStatistics choices;
  ErrorStatistics speed_up;         ///< speed-up of schedules over 1f1b: speed_up_errors()
  int contradicted_rows = 0;        ///< rows whose time another row contradicts: contradicted_rows()
  ErrorStatistics undisputed_time;  ///< over the other rows
  std::optional<Drift> drift;       ///< over dated runs of the user
};

/// Forecasts every row of a file that specifies enough. A row whose job is refused is skipped, with the error as the
/// reason. `profile`, unless null, is a device profile: only rows of its device are used, with its figures.
SourceSummary evaluate(const PublishedFile& file, const ReadFile& read_file, const JsonValue& profile = {});

/// Fills in the statistics from the evaluated rows.
void summarise(SourceSummary& summary);

/// The groups of a summary, each as a separate summary; empty if the rows name no groups.
std::vector<SourceSummary> groups_of(const SourceSummary& summary);

/// An evaluated row together with its published one.
struct ComparedRow {
  const PublishedRow* published = nullptr;
  const EvaluatedRow* evaluated = nullptr;
};

/// Cost of choosing by forecast: among all rows of one model on the same devices with the same batch, the measured time
/// of the row with the fastest forecast over the time of the fastest, minus 1. Over groups of at least three rows.
ChoiceStatistics choice_statistics(const std::vector<ComparedRow>& rows);

/// Accuracy of the forecast gain of a schedule: signed errors of (time of 1f1b / time of the row), for every row of
/// another schedule that has a 1f1b row of the same model, devices, batch and ranks.
std::vector<double> speed_up_errors(const std::vector<ComparedRow>& rows);

/// Marks rows whose measured time another measured row contradicts, independently of any forecast; by index. Among rows
/// of one model on the same devices with the same batch, pipeline, schedule and recomputation, the other row
///   - has more tensor parallelism inside the node, hence more communication and smaller GEMMs, and no larger
///     microbatch, or
///   - has a smaller microbatch, hence smaller GEMMs and more launches, and is otherwise the same,
/// and yet loses less: its time over 1 + (p-1)/(v·m), the ideal pipeline, is more than 1 % shorter. This reveals rows
/// that were measured next to other jobs, or while the allocator was thrashing.
std::vector<bool> contradicted_rows(const std::vector<ComparedRow>& rows);

/// Reads the saved answer of `flopcast run`: the JSON of its comparison, whose replay (the program simulated with the
/// measured times) is compared with the measured step; or {"forecast": {…}, "measured": {…}}, both flopcast.result/1;
/// or the measurement file that contains it. For the memory of a run, activations are compared, or nothing if ranks
/// slept. `id` names the row, `source` is the source that it counts towards. Throws ConfigError with the place in
/// `file`.
EvaluatedRow read_run_result(const nlohmann::json& json, const std::string& id, const std::string& source,
                             const std::string& file);

/// Errors of published steps by source and facts, on which intervals are based. Fitting a constant to a source does not
/// make its errors too small for the interval's own test, because every source is left out entirely when it is tested.
/// Layers measured alone and collectives are excluded.
std::vector<SourceErrors> source_errors(const std::vector<SourceSummary>& sources);

/// Text of sim/forecast/source_errors.json.
std::string source_errors_file(const std::vector<SourceErrors>& groups);

/// How often the steps of a source are inside the interval of a forecast that was made without this source.
struct Coverage {
  int source = 0;
  std::string devices;  ///< "h100, h200"
  std::string stacks;
  int rows = 0;
  int covered = 0;
  double half_width = 0.0;  ///< mean over the rows
};

/// Coverage by source, each left out entirely.
std::vector<Coverage> interval_coverage(const std::vector<SourceErrors>& known);
/// Mean of the sources' fractions, weighting every source equally.
double mean_coverage(const std::vector<Coverage>& coverages);

/// A published figure of failures, checkpoints or stragglers and the run that a job describes: facts that the source
/// does not state about the job are assumed, and listed.
struct FailureRow {
  std::string id;
  std::string quantity;
  std::string unit;
  double measured = 0.0;
  double forecast = 0.0;
  std::optional<double> low;  ///< band in which the forecast should be
  std::optional<double> high;
  std::string source;   ///< with the section or table
  std::string assumed;  ///< facts that the source does not state
  std::string missed;   ///< why the forecast is outside the band; empty if it is inside

  bool inside() const { return forecast >= low.value_or(forecast) && forecast <= high.value_or(forecast); }
};

/// A published figure that no run can be compared with, and the reason.
struct OpenFailureRow {
  std::string id;
  std::string quantity;
  std::string reason;
};

struct FailureRows {
  std::vector<FailureRow> rows;
  std::vector<OpenFailureRow> inexpressible;
};

/// Forecasts every row of failure_rows.json. If `published` is given, the "rows" of a file with id and value, measured
/// figures come from there: rows missing from it are left out, and its unknown rows about failures, stragglers or
/// checkpoints are inexpressible. Throws ConfigError with the place in `file`.
FailureRows evaluate_failures(const nlohmann::json* published, const std::string& file);

/// The rows with their errors, then the inexpressible ones.
std::vector<Table> failure_tables(const FailureRows& rows);

/// calibrate/validation/failure_rows.json, compiled in.
const std::vector<EmbeddedFile>& embedded_failure_rows();

/// A different value for a figure of a device or a stack, in the form of an inline value in a job file.
struct CatalogueChange {
  CatalogueKind kind = CatalogueKind::kDevices;
  std::string entry;
  std::string figure;
  JsonValue value;
};

/// Returns true if the job uses that entry; it then gets the value, unless it specifies one itself.
bool apply(const CatalogueChange& change, nlohmann::json& job);

/// A figure of the catalogue that no data sheet states, and its meaningful range.
struct FittedConstant {
  CatalogueKind kind = CatalogueKind::kDevices;
  std::string entry;
  std::string figure;
  double low = 0.0;
  double high = 1.0;
  std::string unit;  ///< "us" for "53us"; empty for a plain number
  double shipped = 0.0;
};

/// True if the fit ended at the lower or upper end of the range.
bool at_bound(const FittedConstant& constant, double value);

/// Constants that are fitted together, and the sources they are fitted to. calibrate/validation/fits.json.
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
  /// Error with each row forecast by constants fitted without the rows of its model, or of its source; absent if there
  /// is no other.
  std::optional<double> left_out;
};

/// Rows that are left out of the fit when a row is forecast: those of its model, or those of its source.
enum class LeftOut { kModels, kSources };
template <>
struct EnumNames<LeftOut> {
  static constexpr std::string_view kNames[] = {"models", "sources"};
};

/// A row forecast without its own model's rows, or its own source's.
struct LeftOutRow {
  std::string id;
  double error = 0.0;  ///< forecast / measured - 1
};

struct Refit {
  FitPlan plan;
  std::vector<double> values;  ///< by constant
  std::vector<RefitSource> sources;
  std::vector<LeftOutRow> left_out;  ///< empty if nothing was fitted
};

/// Minimises the mean over the sources of log(1 + (error / 0.04)²), a Cauchy loss, which limits the influence of
/// outliers. Gauss-Newton: errors are linearised in the constants, and the loss of the linear errors is minimised,
/// repeatedly until nothing moves. A model is identified by its layers, width and heads, across sources. Each model, or
/// each source, is left out in turn: the constants are fitted to the others with the last linearisation, and its rows
/// are forecast with these. Constants that affect none of the rows keep their values.
Refit refit(const FitPlan& plan, const std::vector<PublishedFile>& files, const ReadFile& read_file,
            LeftOut without_its = LeftOut::kModels);

/// Errors of the catalogue's own constants on the rows that a plan would be fitted to.
Refit residuals_of(const FitPlan& plan, const std::vector<PublishedFile>& files, const ReadFile& read_file);

/// {"fits": [{"name", "constants": [{"entry", "figure", "unit", "shipped", "refitted", "at_bound"}],
///            "sources": [{"source", "rows", "models", "shipped", "refitted", "left_out"}]}]}; errors are fractions.
std::string write_refits(const std::vector<Refit>& fits);

/// calibrate/validation/residuals.json, as `flopcast validate --refit --format json` wrote it: errors of the
/// catalogue's constants on the rows that come with the program, and on models that they were not fitted to.
std::vector<Refit> stored_refits();

/// calibrate/validation/fits.json: which constants are fitted to which sources.
const std::vector<EmbeddedFile>& embedded_fits();

/// calibrate/validation/residuals.json: stored_refits().
const std::vector<EmbeddedFile>& embedded_residuals();

}  // namespace flopcast
