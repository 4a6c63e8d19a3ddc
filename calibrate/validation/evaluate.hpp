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

/// A forecast beside its measurement. Errors are predicted / measured - 1.
struct EvaluatedRow {
  std::string id;
  std::string source;
  bool used_in_fit = false;
  double predicted_s = 0.0;
  std::optional<double> measured_s;  ///< absent where only memory was measured
  /// Hardware FLOPs of the step over the devices' peak, times what an ideal pipeline idles: 1 + (p-1)/(v·m). Divided by
  /// one efficiency for a whole source it is the naive forecast. 0 where there is no step.
  double ideal_s = 0.0;
  std::optional<double> memory_predicted_gib;
  std::optional<double> memory_measured_gib;
  bool out_of_memory = false;  ///< measured
  bool predicted_out_of_memory = false;
  std::optional<ForecastFacts> facts;  ///< of a training step; absent for its parts
  std::optional<StepTimeInterval> interval;
  std::string group;     ///< of rows with a job
  std::string job;       ///< the completed job of such a row, as text
  std::string date;      ///< of one's own runs, where it is told: YYYY-MM-DD
  std::string question;  ///< model, devices, batch, format: rows with one question differ in layout and software

  std::optional<double> error() const;
  std::optional<double> memory_error() const;
  /// Whether the measured step lies in the forecast's interval.
  std::optional<bool> inside() const;
};

/// The forecast of one mapped row; throws ConfigError where its job is refused. `laws` replace the model's.
EvaluatedRow evaluate_row(const PublishedRow& row, const MappedRow& mapped, const ReadFile& read_file,
                          std::shared_ptr<const CostLaws> laws = nullptr);

/// A row that leaves something open that a forecast needs: every plausible choice is forecast, those that do not fit
/// the memory only where none does.
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

/// Of absolute errors, but for the bias, which is the mean of signed ones. Fractions.
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

/// Errors of published steps with one part of the model taken out.
struct Ablation {
  std::string part;
  ErrorStatistics without;
};
/// Of every published step with experts that comes with the program: without the products of routed experts (eight
/// features wide), without time on any link, without that of dispatch and combine alone, without that of permutations.
struct ExpertAblations {
  ErrorStatistics whole;
  std::vector<Ablation> parts;
};
ExpertAblations expert_ablations();

/// What choosing the row forecast fastest costs in measured time, as a fraction: choice_statistics().
struct ChoiceStatistics {
  int groups = 0;
  int rows = 0;
  double mean = 0.0;
  double worst = 0.0;
};

/// Of a source, or of a group of its rows, how good the forecasts are.
struct GroupStatistics {
  std::optional<double> inside;      ///< share of the steps in their interval
  std::optional<double> half_width;  ///< mean, of the forecast
  /// Over questions with five rows or more, the mean of what choosing by forecast costs, and of Spearman's rank
  /// correlation of forecast and measurement.
  std::optional<double> regret;
  std::optional<double> rank_correlation;
  /// How far apart measurements of one completed job lie, slowest / fastest - 1, the most of all jobs: no forecast can
  /// be closer to both than about half of it.
  std::optional<double> floor;
};
GroupStatistics group_statistics(const std::vector<EvaluatedRow>& rows);

/// Rows whose completed jobs are equal.
struct EqualJobs {
  std::vector<std::string> ids;
  double spread = 0.0;  ///< slowest / fastest - 1
};
std::vector<EqualJobs> equal_jobs(const std::vector<EvaluatedRow>& rows);

struct SourceSummary {
  std::string source;
  std::string group;  ///< empty: all of the source
  GroupStatistics of_group;
  std::vector<std::string> inexpressible;  ///< "id: what no key could say"
  int rows = 0;
  int fit_rows = 0;
  std::vector<SkippedRow> skipped;
  std::vector<EvaluatedRow> evaluated;
  std::vector<OpenRow> open;  ///< of the skipped ones
  ErrorStatistics time;
  std::optional<double> naive_mape;  ///< constant MFU, the source's median, and an ideal pipeline
  ErrorStatistics memory;            ///< of rows that ran and say what they held
  int out_of_memory_rows = 0;
  int out_of_memory_found = 0;  ///< of these, forecast not to fit
  ChoiceStatistics choices;
  ErrorStatistics speed_up;         ///< of schedules over 1f1b: speed_up_errors()
  int contradicted_rows = 0;        ///< whose time another row contradicts: contradicted_rows()
  ErrorStatistics undisputed_time;  ///< of the rest
  std::optional<Drift> drift;       ///< of dated runs of one's own
};

/// Forecasts every row of a file that says enough. A row whose job is refused is skipped with the complaint.
/// `profile`, unless null, is a device profile: only rows of its device are looked at, with its figures.
SourceSummary evaluate(const PublishedFile& file, const ReadFile& read_file, const JsonValue& profile = {});

/// Fills in the statistics from the evaluated rows.
void summarise(SourceSummary& summary);

/// Its groups, each as a summary of its own; none where the rows name no groups.
std::vector<SourceSummary> groups_of(const SourceSummary& summary);

/// A row that was evaluated and what its source says of it.
struct ComparedRow {
  const PublishedRow* published = nullptr;
  const EvaluatedRow* evaluated = nullptr;
};

/// What choosing by forecast costs: of all rows of one model on the same devices with the same batch, the measured time
/// of the one forecast fastest over the time of the fastest, less 1. Over the groups of at least three rows.
ChoiceStatistics choice_statistics(const std::vector<ComparedRow>& rows);

/// How well the gain of a schedule is forecast: signed errors of (time of 1f1b / time of the row), for every row of
/// another schedule that has a 1f1b row of the same model, devices, batch and ranks.
std::vector<double> speed_up_errors(const std::vector<ComparedRow>& rows);

/// Rows whose measured time another measured row contradicts, whatever anybody forecasts; by index. Of one model on the
/// same devices with the same batch, pipeline, schedule and recomputation, the other
///   - has more tensor parallelism inside the node, hence more communication and smaller GEMMs, and no larger
///     microbatch, or
///   - has a smaller microbatch, hence smaller GEMMs and more launches, and is alike otherwise,
/// and yet loses less: its time over 1 + (p-1)/(v·m), the ideal pipeline, is more than a hundredth shorter. Rows that
/// ran beside others, or while the allocator was thrashing, show this way.
std::vector<bool> contradicted_rows(const std::vector<ComparedRow>& rows);

/// The saved answer of `flopcast run`: the JSON of its comparison, whose replay (the program simulated with the times
/// measured) is held against the measured step, or {"forecast": {…}, "measured": {…}}, both flopcast.result/1, or the
/// measurement file that has this in it. Of a run's memory activations are compared, nothing where ranks slept. `id` is
/// what the row is called, `source` what it is counted with. Throws ConfigError with the place in `file`.
EvaluatedRow read_run_result(const nlohmann::json& json, const std::string& id, const std::string& source,
                             const std::string& file);

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

/// A published figure of failures, checkpoints or stragglers beside the run that a job says: what the source does not
/// tell of the job is assumed, and said.
struct FailureRow {
  std::string id;
  std::string quantity;
  std::string unit;
  double measured = 0.0;
  double forecast = 0.0;
  std::optional<double> low;  ///< of the band that the forecast is held to
  std::optional<double> high;
  std::string source;   ///< with the place in it
  std::string assumed;  ///< what the source does not say
  std::string missed;   ///< why the forecast lies outside the band; empty where it does not

  bool inside() const { return forecast >= low.value_or(forecast) && forecast <= high.value_or(forecast); }
};

/// A published figure that no run can be held against, and why.
struct OpenFailureRow {
  std::string id;
  std::string quantity;
  std::string reason;
};

struct FailureRows {
  std::vector<FailureRow> rows;
  std::vector<OpenFailureRow> inexpressible;
};

/// Forecasts every row of failure_rows.json. With `published`, the "rows" of a file with id and value, the measured
/// figures come from there: rows that it does not have are left out, rows of it that nothing here knows and that speak
/// of failures, stragglers or checkpoints are inexpressible. Throws ConfigError with the place in `file`.
FailureRows evaluate_failures(const nlohmann::json* published, const std::string& file);

/// The rows with their errors, then those left open.
std::vector<Table> failure_tables(const FailureRows& rows);

/// calibrate/validation/failure_rows.json, compiled in.
const std::vector<EmbeddedFile>& embedded_failure_rows();

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
