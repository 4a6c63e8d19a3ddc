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
/// The MFU that a table shows: both if they differ by more than a point, else the one with attention in full; or only
/// one of them.
enum class ShownMfu { kBoth, kFull, kCausal };
template <>
struct EnumNames<ShownMfu> {
  static constexpr std::string_view kNames[] = {"both", "full", "causal"};
};
/// "28.5 s per step ± 12 %, 79 days, $1.22 M · fits, 76.7 of 80 GiB (tight)". Tight means at least 95 % of the
/// capacity.
std::string answer_line(const Result& result);
/// A forecast for humans, the answer first: the step, where its time goes, memory. With `verbose` it shows every
/// pipeline rank and all assumptions, else the fullest rank and the most important assumptions.
std::vector<Table> result_tables(const Forecast& forecast, bool verbose, ShownMfu mfu = ShownMfu::kBoth);
/// Tables of a whole training run: days and goodput, time lost by cause (`all`: small losses too), gain of changes to
/// the run.
std::vector<Table> run_tables(const Result& result, bool all);
/// For a result with sequences of varying length: the waste of padding, and the step with packed sequences.
Table packing_table(const Result& result);
/// For a result with a network: time added by sharing links, and the hot links if there are any.
std::vector<Table> network_tables(const Result& result);
Table hot_links_table(const Result& result);
/// "dp 71 %, pp 29 %": shares of at least half a percent.
std::string shares_text(const ByAxis<double>& shares);
/// A rank's capacity minus the memory that the stack uses beyond the tensors.
double capacity_for_tensors(const RankMemoryResult& rank);

/// The parts of the longest chain of work and transfers; shortening anything else does not help.
Table critical_path_table(const Timeline& timeline, const CriticalPath& path);
/// Memory by pipeline rank, or of the fullest rank alone, in GiB.
Table memory_table(const Forecast& forecast, bool all_ranks = true);
/// The tensors of the fullest rank at its peak, largest first.
Table memory_parts_table(const Forecast& forecast);
/// The memory of each rank over time, at the moments when it changes.
Table memory_over_time_table(const Forecast& forecast);
/// One row with every figure, for a spreadsheet: the JSON's keys joined by dots.
Table result_row(const Forecast& forecast);

/// GiB over time for every rank, one chart per six ranks, with the smallest capacity among them.
std::vector<SeriesChart> memory_charts(const Forecast& forecast);

/// The operators of a block (the last one; with experts if the model has them) under the job's layout: FLOP/s per GPU
/// of their forward passes over the FLOPs per byte moved, below the roof min(peak, intensity · bandwidth) of the device
/// (Williams, Waterman and Patterson, CACM 52(4), 2009). Fused attention counts the FLOPs that it executes, halved by
/// the causal mask. Operators without FLOPs do not appear. The job must have operators, not a layer profile
/// (ConfigError).
SeriesChart roofline_chart(const Job& job);

/// All points, and the staircase through those that no other point beats in both x and y (less is better).
SeriesChart pareto_chart(const std::string& title, const SeriesAxis& x, const SeriesAxis& y,
                         const std::vector<SeriesPoint>& points);
/// The points of the front, ordered by x; of equal points the first.
std::vector<SeriesPoint> pareto_front(std::vector<SeriesPoint> points);

/// The files of docs/explain, compiled in.
const std::vector<EmbeddedFile>& embedded_explanations();

/// A term that users confuse: its definition, its formulas, and sentences filled with a job's own numbers.
struct Explanation {
  std::string group;
  std::string name;
  std::vector<std::string> aliases;
  std::string what;
  std::vector<std::string> formulas;
  std::vector<std::string> yours;  ///< with {name}, or {name%} as a percentage, for the numbers of a job
  std::string source;
  std::vector<std::string> see;
};

/// Sorted as in the files. Throws InternalError if one of them is malformed.
std::vector<Explanation> read_explanations();

/// Finds a term by name or alias, ignoring case, blanks, dashes and underscores; null if there is none.
const Explanation* find_explanation(const std::vector<Explanation>& explanations, std::string_view term);

/// The links of a cluster's network by the kind of nodes and switches that they connect: count and bandwidth.
Table fabric_table(const Cluster& cluster, const NetworkFabric& fabric);

/// Nodes, and the switches of each tier above them; for fabrics without tiers only the nodes. `loads` are by link of
/// the fabric, and may be empty.
FabricPicture fabric_picture(const Cluster& cluster, const NetworkFabric& fabric, const std::vector<LinkLoad>& loads);

}  // namespace flopcast
