#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "base/text/table.hpp"
#include "model/job.hpp"
#include "planner/bounds/bounds.hpp"
#include "planner/plan/plan.hpp"
#include "reports/svg/canvas.hpp"
#include "reports/svg/charts.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/program/request.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// A planned layout with the result that `flopcast simulate` would give; its program, timeline and memory over time may
/// be dropped.
struct PlanEntry {
  PlannedLayout planned;
  Forecast forecast;
};

/// The output of `flopcast plan`.
struct PlanAnswer {
  PlanOptions options;
  SearchResult search;
  std::vector<PlanEntry> ranked;
  std::vector<PlanEntry> pareto;
  std::vector<std::string> notes;  ///< about the search
  bool verbose = false;            ///< also shows rejected layouts and rules of thumb
};

/// Schema flopcast.plan/1 (docs/schema/plan-1.schema.json). `root` is the job file of the question.
std::string write_plan(const PlanAnswer& answer, const nlohmann::json& root);
std::vector<Table> plan_tables(const PlanAnswer& answer);
/// The ranked layouts alone, for CSV.
Table ranked_table(const PlanAnswer& answer);
/// The axes that divide the model: "tp 8 pp 8x3 dp 16".
std::string short_name(const Layout& layout);
/// Places of a fabric as ranges, such as "0-15"; only the first `most` ranges.
std::string places_text(const std::vector<int>& places, std::size_t most);
/// Step time over GPUs, or over memory if all have the same number: the layouts of both tables and their Pareto front.
std::string plan_svg(const PlanAnswer& answer, const FigureStyle& style);
Table rejected_table(const SearchResult& result);

/// A key and the values it takes in turn.
struct SweepAxis {
  std::string key;  ///< dotted, "layout.pp"
  std::vector<std::string> values;
};

/// Every combination of the axes' values; the last axis varies fastest.
class SweepGrid {
 public:
  SweepGrid() = default;
  explicit SweepGrid(std::vector<SweepAxis> axes) : axes_(std::move(axes)) {}
  std::size_t size() const {
    std::size_t size = 1;
    for (const SweepAxis& axis : axes_) size *= axis.values.size();
    return size;
  }
  /// One value per axis.
  std::vector<std::string> values(std::size_t index) const {
    std::vector<std::string> values(axes_.size());
    for (std::size_t axis = axes_.size(); axis-- > 0;) {
      const std::vector<std::string>& all = axes_[axis].values;
      values[axis] = all[index % all.size()];
      index /= all.size();
    }
    return values;
  }
  const std::vector<SweepAxis>& axes() const { return axes_; }

 private:
  std::vector<SweepAxis> axes_;
};

/// A figure of a result that tables and maps of a sweep show.
struct SweepMetric {
  const char* name;
  const char* words;    ///< with the unit, for figures
  const char* pointer;  ///< JSON pointer into a flopcast.result/1
  double scale;
  bool low_is_good;
};
/// Throws ConfigError for --metric.
const SweepMetric& sweep_metric(const std::string& name);

/// The part of a result that a row keeps.
enum class SweepDetail {
  kFigures,  ///< figures of tables and maps: 300 bytes per row
  kResult,   ///< the whole result, for JSON: 6 kB per row
};

/// A combination of a sweep as a JSON object on one line: its values and its result, a whole flopcast.result/1 or only
/// its figures. A combination that is not a valid job is a row too, with an error instead of a result.
std::string write_sweep_row(const SweepGrid& grid, std::size_t index, const Forecast& forecast, SweepDetail detail);
std::string write_sweep_row(const SweepGrid& grid, std::size_t index, const Diagnostic& error);

/// The fields of a row that are read back.
struct SweepRow {
  std::vector<std::string> values;             ///< by axis
  std::vector<std::optional<double>> figures;  ///< by metric
  std::optional<bool> fits;                    ///< empty if there is no result
  std::string error;
};
/// Returns nothing if the line is not a row of this sweep.
std::optional<SweepRow> read_sweep_row(const SweepGrid& grid, const std::string& line);

/// Schema flopcast.sweep/1 (docs/schema/sweep-1.schema.json) in pieces: the text before the rows, a row (preceded by
/// another unless it is the first), and the text after them.
std::string sweep_json_begin(const SweepGrid& grid);
std::string sweep_json_row(const std::string& row, bool first);
std::string sweep_json_end();

/// The columns of a sweep's table.
enum class SweepColumns {
  kStep,
  kStepAndRun,  ///< for jobs with failures: also days and goodput of the run
};
Table sweep_table(const SweepGrid& grid, const std::vector<SweepRow>& rows, SweepColumns columns);
/// Requires a grid with two axes. Throws ConfigError if no combination has the figure.
HeatMap sweep_map(const SweepGrid& grid, const std::vector<SweepRow>& rows, const SweepMetric& metric);

struct PartitionStage {
  int layers = 0;
  double time = 0.0;  ///< on one worker
  int replicas = 1;
  std::optional<int> rank;  ///< if a job's schedule assigns one
  std::string last_layers;  ///< layers of a graph after which the stage ends
};

/// The output of `flopcast partition`.
struct PartitionAnswer {
  std::string method;  ///< "min-max", "pipedream paper", "pipedream code", "balanced"
  std::string title;
  bool in_seconds = true;
  std::vector<PartitionStage> stages;
  double bottleneck = 0.0;    ///< time between two units of work
  std::string work = "unit";  ///< what leaves the pipeline once per bottleneck: "microbatch", "minibatch"
  std::optional<std::vector<int>> stage_layers;
  std::optional<double> step_s;
  std::optional<double> uniform_step_s;
  std::vector<std::string> notes;
};

Table partition_table(const PartitionAnswer& answer);
/// Schema flopcast.partition/1.
std::string write_partition(const PartitionAnswer& answer);

/// Side by side: the step's terms, each with its difference to the first layout, then rates and memory.
std::vector<Table> comparison_tables(const std::vector<ComparedLayout>& layouts);

/// Measured step time of a run.
struct MeasuredStep {
  double median_s = 0.0;
  int steps = 0;  ///< 0: the user gave a time
  double p5_s = 0.0;
  double p95_s = 0.0;
};
/// Where the gap between a forecast and a measured step may come from, term by term, largest first.
Table gap_table(const Result& forecast, const MeasuredStep& measured);
/// Schema flopcast.gap/1.
std::string write_gap(const Result& forecast, const MeasuredStep& measured);

/// Fastest layout of each strategy for a job file with an open layout: memory, communication and compute efficiency
/// next to those of plain DP.
Table strategies_table(const nlohmann::json& job_file, const Origins& origins, const ReadFile& read_file,
                       const ParallelFor& parallel_for);
/// Describes the largest loss in a step of the job and the effect of single changes: of batch, microbatch,
/// recomputation, chunks, ZeRO, sequence parallelism and ranks along an axis, each forecast separately. Lists changes
/// that fit and gain at least 1 % in samples per second, best first; for a job that does not fit, the changes that make
/// it fit. Left out: changes of model and cluster, and combinations of changes, which `flopcast plan` searches.
std::vector<std::string> advice_on(const Forecast& forecast, const ReadFile& read_file);
/// For a job that does not fit: the three fastest of these changes that make it fit, or a hint if none does.
std::vector<std::string> what_fits(const Forecast& forecast, const ReadFile& read_file);
/// Gain of each change to the gradient exchange on the job as it is, next to the gain usually claimed.
Table optimizations_table(const Job& job, const ReadFile& read_file);

/// Ticks per unit of an abstract schedule's time. Six decimals are exact, and so are shares of a whole unit among up to
/// ten chunks or slices.
inline constexpr Ticks kTicksPerUnit = 63'000'000;

/// In the user's unit, rounded to six decimals.
double in_units(double ticks);
double in_units(Ticks ticks);
/// Text form of in_units, without trailing zeros.
std::string units_text(Ticks ticks);

/// Parses "2.5": one number, or a comma-separated list. Throws ConfigError for signs, exponents, units and more than
/// six decimals.
std::vector<Ticks> parse_times(const std::string& flag, std::string_view text);
Ticks parse_time(const std::string& flag, std::string_view text);

/// A simulated timeline in millionths of the user's unit, which reports draw and traces write.
Timeline in_millionths(Timeline timeline);

/// A row of `schedule compare`.
struct ComparedSchedule {
  std::string name;                    ///< with its chunks if there are several: "interleaved:2"
  const ScheduleInfo* info = nullptr;  ///< null: from a file
  ScheduleRequest request;             ///< for a file, derived from its program
  ScheduleFigures figures;
  std::optional<MemoryFit> fit;  ///< with --at-memory

  /// True if ranks and microbatches are the same, so that figures are comparable.
  bool same_shape(const ScheduleRequest& other) const;
};

/// "4 ranks and 8 microbatches"
std::string shape_text(const ScheduleRequest& request);
/// Pipeline ranks and microbatches of a program; replicas of a stage count once.
ScheduleRequest shape_of(const Program& program);
/// Compares a program without a request, such as one from a file: with `memory` either all its microbatches fit or
/// none.
ComparedSchedule compare_program(const std::string& name, const Program& program, std::optional<int> memory,
                                 const TimesOfProgram& times);
/// Compares a request that its schedule accepts. `memory` is the value of --at-memory.
ComparedSchedule compare_named(const std::string& name, const ScheduleRequest& request, std::optional<int> memory,
                               const TimesOfProgram& times);

struct RefusedSchedule {
  std::string name;
  ScheduleRefusal refusal;
};

struct ScheduleComparison {
  int pipeline_ranks = 0;
  int microbatches = 0;
  std::optional<int> memory;  ///< --at-memory
  std::vector<ComparedSchedule> schedules;
  std::vector<RefusedSchedule> refused;
};

Table figures_table(const ScheduleComparison& comparison, Format format);
/// Mode, memory, updates and use: the properties of schedules apart from their times. One row per schedule; in a
/// terminal, which has no room for that, one row per property.
Table semantics_table(const ScheduleComparison& comparison, Format format);
/// Table of --at-memory.
Table memory_table(const ScheduleComparison& comparison);
/// Empty if no schedule was refused.
std::optional<Table> refused_table(const ScheduleComparison& comparison);
/// Schema flopcast.schedule-comparison/1.
std::string write_comparison(const ScheduleComparison& comparison);

}  // namespace flopcast
