#pragma once

#include <string>
#include <vector>

#include "base/text/series.hpp"
#include "sim/forecast/forecast.hpp"

namespace flopcast {

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

}  // namespace flopcast
