#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text/series.hpp"
#include "base/text/table.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/enum_names.hpp"
#include "model/hardware/network_fabric.hpp"
#include "reports/svg/charts.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/network_step.hpp"
#include "sim/metrics/metrics.hpp"

namespace flopcast {

/// "GPT-3 175B, 174.6 B parameters on 8 x dgx-a100-80g (64 a100-80g)" and the layout in a line.
std::string describe_job(const Job& job);

/// "± 6.1 %".
std::string plus_minus(const StepTimeInterval& interval);
/// Which MFU a table shows: both where they differ by more than a point, else the one with attention in full; or one.
enum class ShownMfu { kBoth, kFull, kCausal };
template <>
struct EnumNames<ShownMfu> {
  static constexpr std::string_view kNames[] = {"both", "full", "causal"};
};
/// "28.5 s a step ± 12 %, 79 days, $1.22 M · fits, 76.7 of 80 GiB (tight)": tight from 95 % of the capacity on.
std::string answer_line(const Result& result);
/// A forecast as people read it, the answer first: the step, where its time goes, memory. `verbose`: of every pipeline
/// rank and with all assumptions, else of the fullest one and with those that matter most.
std::vector<Table> result_tables(const Forecast& forecast, bool verbose, ShownMfu mfu = ShownMfu::kBoth);
/// The run of months: days and goodput, what it loses to what (`all`: the small losses too), what a change of it gives.
std::vector<Table> run_tables(const Result& result, bool all);
/// Of a result with sequences of several lengths: what padding wastes, and the step with them packed.
Table packing_table(const Result& result);
/// Of a result with a network: what sharing adds, and the hot links where there are any.
std::vector<Table> network_tables(const Result& result);
Table hot_links_table(const Result& result);
/// "dp 71 %, pp 29 %": from half a percent on.
std::string shares_text(const ByAxis<double>& shares);
/// Of a rank's capacity: what the stack takes beyond the tensors is taken off.
double capacity_for_tensors(const RankMemoryResult& rank);

/// The longest chain of work and transfers, by what it consists of: shortening anything else does not help.
Table critical_path_table(const Timeline& timeline, const CriticalPath& path);
/// Memory by pipeline rank, or of the fullest one, in GiB.
Table memory_table(const Forecast& forecast, bool all_ranks = true);
/// The tensors of the fullest rank at its fullest moment, largest first.
Table memory_parts_table(const Forecast& forecast);
/// The memory of each rank over time, at the moments it changes.
Table memory_over_time_table(const Forecast& forecast);
/// One row with every figure, for a spreadsheet: the JSON's keys joined by dots.
Table result_row(const Forecast& forecast);

/// GiB over time of every rank, a chart for each six ranks, with the smallest capacity among them.
std::vector<SeriesChart> memory_charts(const Forecast& forecast);

/// The operators of a block (the last, with experts where there are any) under the job's layout: FLOP/s per GPU of
/// their forward passes over the FLOPs for each byte that they move, below the roof min(peak, intensity · bandwidth) of
/// the device (Williams, Waterman and Patterson, CACM 52(4), 2009). Fused attention counts the FLOPs that it computes,
/// causal-halved. Operators without FLOPs do not appear. The job must hold operators, not a layer profile
/// (ConfigError).
SeriesChart roofline_chart(const Job& job);

/// All points, and the staircase through those that no other point beats in both x and y (less is better).
SeriesChart pareto_chart(const std::string& title, const SeriesAxis& x, const SeriesAxis& y,
                         const std::vector<SeriesPoint>& points);
/// The points of the front, by x; of equal ones the first.
std::vector<SeriesPoint> pareto_front(std::vector<SeriesPoint> points);

/// The files of docs/explain, compiled in.
const std::vector<EmbeddedFile>& embedded_explanations();

/// A word that users confuse: what it is, its formulas, and sentences into which a job's own numbers go.
struct Explanation {
  std::string group;
  std::string name;
  std::vector<std::string> aliases;
  std::string what;
  std::vector<std::string> formulas;
  std::vector<std::string> yours;  ///< with {name} or, as a percentage, {name%} for the numbers of a job
  std::string source;
  std::vector<std::string> see;
};

/// In the order of the files. Throws InternalError when one of them is malformed.
std::vector<Explanation> read_explanations();

/// By name or alias, whatever the case, blanks, dashes and underscores; null when there is none.
const Explanation* find_explanation(const std::vector<Explanation>& explanations, std::string_view term);

/// The links of a cluster's network by what they join: how many, of what bandwidth.
Table fabric_table(const Cluster& cluster, const NetworkFabric& fabric);

/// Nodes, and the switches of each tier above them; of fabrics without tiers the nodes alone. Loads by link of the
/// fabric, or none.
FabricPicture fabric_picture(const Cluster& cluster, const NetworkFabric& fabric, const std::vector<LinkLoad>& loads);

}  // namespace flopcast
