#include "reports/result/figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "base/text/error.hpp"
#include "model/cost/compute.hpp"
#include "model/units/quantity.hpp"
#include "model/workload/operators.hpp"

namespace flopcast {

namespace {

constexpr std::size_t kRanksInAChart = 5;  // so that their curves can be told apart

// What an operator moves in its forward pass: for products the operands and the result, once.
Bytes moved_bytes(const Operator& op, const Job& job) {
  if (op.kind == OperatorKind::kMemoryBound) return op.forward_bytes;
  if (op.kind == OperatorKind::kFusedAttention) return op.saved;  // queries, keys, values and the result
  const GemmShape& shape = op.shape;
  const auto m = static_cast<double>(shape.m);
  const auto n = static_cast<double>(shape.n);
  const auto k = static_cast<double>(shape.k);
  return Bytes((m * k + k * n + m * n) * static_cast<double>(shape.batch) *
               element_size(job.training.precision).value());
}

// The curves are tensors: what the stack takes beyond them is taken off the limit.
double for_tensors(const RankMemoryResult& rank) {
  return rank.capacity_gib - (rank.shown_gib - rank.total_gib);
}

// What its kernels compute: fused attention skips what a causal mask hides.
double computed_flops(const Operator& op) {
  return op.kind == OperatorKind::kFusedAttention ? op.attention_flops.value() : forward_flops(op).value();
}

SeriesPoint roofline_point(const Operator& op, const Job& job, const ComputeModel& compute) {
  const double flops = computed_flops(op);
  const double seconds = operator_times(op, compute, job.training).forward.value();
  const double moved = moved_bytes(op, job).value();
  return {flops / moved, flops / seconds * 1e-12, std::string(op.name)};
}

}  // namespace

std::vector<SeriesChart> memory_charts(const Forecast& forecast) {
  std::vector<SeriesChart> charts;
  const Timeline& timeline = forecast.timeline;
  const double end = static_cast<double>(timeline.makespan()) * timeline.units_per_tick;
  for (std::size_t first = 0; first < forecast.memory.size(); first += kRanksInAChart) {
    const std::size_t last = std::min(first + kRanksInAChart, forecast.memory.size());
    SeriesChart chart;
    chart.title = last - first == 1 ? fmt::format("Memory of rank {}", first)
                                    : fmt::format("Memory of ranks {} to {}", first, last - 1);
    chart.x.title = "seconds";
    chart.y.title = "GiB";
    chart.y.from_zero = true;
    double capacity = for_tensors(forecast.result.memory.per_pipeline_rank[first]);
    for (std::size_t rank = first; rank < last; ++rank) {
      Series series{fmt::format("rank {}", rank), {}, SeriesStyle::kSteps};
      for (const MemoryPoint& point : forecast.memory[rank].points) {
        series.points.push_back(
            {static_cast<double>(point.time) * timeline.units_per_tick, gibibytes(Bytes(point.bytes)), ""});
      }
      series.points.push_back({end, series.points.back().y, ""});
      capacity = std::min(capacity, for_tensors(forecast.result.memory.per_pipeline_rank[rank]));
      chart.series.push_back(std::move(series));
    }
    const double beyond = forecast.step.job.training.stack.memory_overhead_gib;
    const std::string limit = beyond > 0.0 ? fmt::format("capacity less {:g} GiB beyond tensors", beyond) : "capacity";
    chart.series.push_back({limit, {{0.0, capacity, ""}, {end, capacity, ""}}, SeriesStyle::kDashed});
    charts.push_back(std::move(chart));
  }
  return charts;
}

SeriesChart roofline_chart(const Job& job) {
  if (job.profile) {
    throw ConfigError({"model", "is a layer profile, which knows times and no FLOPs", "", "give a model by its shape"});
  }
  const ComputeModel compute(job.cluster.device, job.training.precision);
  const double peak = job.cluster.device.peak_of(job.training.precision).value() * 1e-12;
  const double bandwidth = job.cluster.device.memory_bandwidth.value() * 1e-12;
  SeriesChart chart;
  chart.title = fmt::format("{} on {}: the operators of a block, forward", job.model.name, job.cluster.device.name);
  chart.x = {"FLOP per byte moved", true};
  chart.y = {"TFLOP/s per GPU", true};
  Series points{"operators", {}, SeriesStyle::kNamedPoints};
  for (const Operator& op :
       block_operators(job.model, job.layout, job.training, job.model.kind_of(job.model.layers - 1))) {
    if (computed_flops(op) > 0.0) points.points.push_back(roofline_point(op, job, compute));
  }
  double widest = 4.0 * peak / bandwidth;
  double least = 1.0;
  for (const SeriesPoint& point : points.points) {
    widest = std::max(widest, point.x);
    least = std::min(least, point.x);
  }
  chart.series.push_back(std::move(points));
  chart.series.push_back({"roof of the datasheet",
                          {{least, least * bandwidth, ""}, {peak / bandwidth, peak, ""}, {widest, peak, ""}},
                          SeriesStyle::kLine});
  return chart;
}

std::vector<SeriesPoint> pareto_front(std::vector<SeriesPoint> points) {
  std::stable_sort(points.begin(), points.end(),
                   [](const SeriesPoint& a, const SeriesPoint& b) { return a.x != b.x ? a.x < b.x : a.y < b.y; });
  std::vector<SeriesPoint> front;
  for (SeriesPoint& point : points) {
    if (front.empty() || point.y < front.back().y) front.push_back(std::move(point));
  }
  return front;
}

SeriesChart pareto_chart(const std::string& title, const SeriesAxis& x, const SeriesAxis& y,
                         const std::vector<SeriesPoint>& points) {
  SeriesChart chart;
  chart.title = title;
  chart.x = x;
  chart.y = y;
  chart.series.push_back({"all", points, SeriesStyle::kPoints});
  chart.series.push_back({"not beaten in both", pareto_front(points), SeriesStyle::kSteps});
  return chart;
}

}  // namespace flopcast
