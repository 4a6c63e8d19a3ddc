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

/// A planned layout as `flopcast simulate` would answer it; its program, timeline and memory over time may be gone.
struct PlanEntry {
  PlannedLayout planned;
  Forecast forecast;
};

/// What `flopcast plan` prints.
struct PlanAnswer {
  PlanOptions options;
  SearchResult search;
  std::vector<PlanEntry> ranked;
  std::vector<PlanEntry> pareto;
  std::vector<std::string> notes;  ///< on what was searched
  bool verbose = false;            ///< with the rejected layouts and the rules of thumb
};

/// Schema flopcast.plan/1 (docs/schema/plan-1.schema.json). `root` is the job file that was asked about.
std::string write_plan(const PlanAnswer& answer, const nlohmann::json& root);
std::vector<Table> plan_tables(const PlanAnswer& answer);
/// The ranked layouts alone, for CSV.
Table ranked_table(const PlanAnswer& answer);
/// What a layout cuts the model by: "tp 8 pp 8x3 dp 16".
std::string short_name(const Layout& layout);
/// Places of a fabric, those that follow each other as "0-15"; the first `most` such.
std::string places_text(const std::vector<int>& places, std::size_t most);
/// Step time over GPUs, or over memory where all have as many: the layouts of both tables, and the front through them.
std::string plan_svg(const PlanAnswer& answer, const FigureStyle& style);
Table rejected_table(const SearchResult& result);

/// A key and the values it takes in turn.
struct SweepAxis {
  std::string key;  ///< dotted, "layout.pp"
  std::vector<std::string> values;
};

/// Every combination of the axes' values, the last axis fastest.
class SweepGrid {
 public:
  SweepGrid() = default;
  explicit SweepGrid(std::vector<SweepAxis> axes) : axes_(std::move(axes)) {}
  std::size_t size() const {
    std::size_t size = 1;
    for (const SweepAxis& axis : axes_) size *= axis.values.size();
    return size;
  }
  /// By axis.
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
  const char* words;    ///< with the unit, for a drawing
  const char* pointer;  ///< into a flopcast.result/1
  double scale;
  bool low_is_good;
};
/// Throws ConfigError naming --metric.
const SweepMetric& sweep_metric(const std::string& name);

/// What of a result a row keeps.
enum class SweepDetail {
  kFigures,  ///< what tables and maps show: 300 bytes a row
  kResult,   ///< all of it, for JSON: 6 kB a row
};

/// A combination of a sweep as a JSON object on one line: its values and its result, flopcast.result/1 or the figures
/// of one. One that makes no job is a row too, with the complaint instead of a result.
std::string write_sweep_row(const SweepGrid& grid, std::size_t index, const Forecast& forecast, SweepDetail detail);
std::string write_sweep_row(const SweepGrid& grid, std::size_t index, const Diagnostic& complaint);

/// What is read of it.
struct SweepRow {
  std::vector<std::string> values;             ///< by axis
  std::vector<std::optional<double>> figures;  ///< by metric
  std::optional<bool> fits;                    ///< nothing where there is no result
  std::string error;
};
/// Nothing where the line is no row of this sweep.
std::optional<SweepRow> read_sweep_row(const SweepGrid& grid, const std::string& line);

/// Schema flopcast.sweep/1 (docs/schema/sweep-1.schema.json) in pieces: what is before the rows, a row (after another
/// one unless it is the first), and what is after them.
std::string sweep_json_begin(const SweepGrid& grid);
std::string sweep_json_row(const std::string& row, bool first);
std::string sweep_json_end();

/// What a table shows of each row.
enum class SweepColumns {
  kStep,
  kStepAndRun,  ///< of jobs with failures: days and goodput of the run too
};
Table sweep_table(const SweepGrid& grid, const std::vector<SweepRow>& rows, SweepColumns columns);
/// Of a grid with two axes. Throws ConfigError where no combination has the figure.
HeatMap sweep_map(const SweepGrid& grid, const std::vector<SweepRow>& rows, const SweepMetric& metric);

struct PartitionStage {
  int layers = 0;
  double time = 0.0;  ///< on one worker
  int replicas = 1;
  std::optional<int> rank;  ///< where a job's schedule says which
  std::string last_layers;  ///< what a graph's cut comes behind
};

/// What `flopcast partition` prints.
struct PartitionAnswer {
  std::string method;  ///< "min-max", "pipedream paper", "pipedream code", "balanced"
  std::string title;
  bool in_seconds = true;
  std::vector<PartitionStage> stages;
  double bottleneck = 0.0;    ///< time between two units of work
  std::string work = "unit";  ///< what comes out once a bottleneck: "microbatch", "minibatch"
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

/// What a run says of its step time.
struct MeasuredStep {
  double median_s = 0.0;
  int steps = 0;  ///< 0: a time that the user gave
  double p5_s = 0.0;
  double p95_s = 0.0;
};
/// Where the gap between a forecast and a measured step may come from, term by term, largest first.
Table gap_table(const Result& forecast, const MeasuredStep& measured);
/// Schema flopcast.gap/1.
std::string write_gap(const Result& forecast, const MeasuredStep& measured);

/// The fastest layout of each strategy for what a job file leaves its layout: memory, communication and compute
/// efficiency beside those of plain DP.
Table strategies_table(const nlohmann::json& job_file, const Origins& origins, const ReadFile& read_file,
                       const ParallelFor& parallel_for);
/// In words what a step of the job loses most to, and what single changes give: of batch, microbatch, recomputation,
/// chunks, ZeRO, sequence parallelism and ranks along an axis, each forecast by itself. Those that fit and give at
/// least 1 % more samples a second, the best first; of a job that does not fit, those that do. Left out: changes of
/// model and cluster, and two at once, which is what `flopcast plan` searches.
std::vector<std::string> advice_on(const Forecast& forecast, const ReadFile& read_file);
/// Of a job that does not fit, the three fastest of these changes after which it does; a hint where none does.
std::vector<std::string> what_fits(const Forecast& forecast, const ReadFile& read_file);
/// What changes of gradient exchange buy on the job as it stands, beside what is usually claimed.
Table optimizations_table(const Job& job, const ReadFile& read_file);

/// Ticks of an abstract schedule in the user's unit: six decimals are exact, and so are shares of up to ten chunks or
/// slices of a whole unit.
inline constexpr Ticks kTicksPerUnit = 63'000'000;

/// In the user's unit, rounded to six decimals.
double in_units(double ticks);
double in_units(Ticks ticks);
/// The same as text, without zeros at the end.
std::string units_text(Ticks ticks);

/// "2.5": one number, or a comma list. Throws ConfigError for signs, exponents, units and more than six decimals.
std::vector<Ticks> parse_times(const std::string& flag, std::string_view text);
Ticks parse_time(const std::string& flag, std::string_view text);

/// A simulated timeline in millionths of the user's unit, which are what reports draw and traces write.
Timeline in_millionths(Timeline timeline);

/// A line of `schedule compare`.
struct ComparedSchedule {
  std::string name;                    ///< with its chunks where it has several: "interleaved:2"
  const ScheduleInfo* info = nullptr;  ///< null: from a file
  ScheduleRequest request;             ///< of a file, what its program shows
  ScheduleFigures figures;
  std::optional<MemoryFit> fit;  ///< with --at-memory

  /// Whether ranks and microbatches are the same, so that figures compare.
  bool same_shape(const ScheduleRequest& other) const;
};

/// "4 ranks and 8 microbatches"
std::string shape_text(const ScheduleRequest& request);
/// Pipeline ranks, replicas of a stage counted once, and microbatches of a program.
ScheduleRequest shape_of(const Program& program);
/// Of a program that stands for itself, such as one from a file: with `memory` all its microbatches fit, or none.
ComparedSchedule compare_program(const std::string& name, const Program& program, std::optional<int> memory,
                                 const TimesOfProgram& times);
/// Of a request that its schedule does not refuse. `memory` as --at-memory.
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
/// Mode, memory, updates and use: what sets schedules apart beside their times. One row a schedule; in a terminal,
/// which has no room for that, one a property.
Table semantics_table(const ScheduleComparison& comparison, Format format);
/// Of --at-memory.
Table memory_table(const ScheduleComparison& comparison);
/// Nothing to show when nothing was refused.
std::optional<Table> refused_table(const ScheduleComparison& comparison);
/// Schema flopcast.schedule-comparison/1.
std::string write_comparison(const ScheduleComparison& comparison);

}  // namespace flopcast
