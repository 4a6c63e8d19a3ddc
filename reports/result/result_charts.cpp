#include "reports/result/result_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/cost/compute.hpp"
#include "model/workload/operators.hpp"
#include "sim/forecast/memory.hpp"

namespace flopcast {
namespace {

constexpr std::size_t kRanksInAChart = 5;  // few enough to distinguish their curves

// Bytes that an operator moves in its forward pass; for products each operand and the result once.
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

// FLOPs that the kernels execute: fused attention skips the masked half of causal attention.
double computed_flops(const Operator& op) {
  return op.kind == OperatorKind::kFusedAttention ? op.attention_flops.value() : forward_flops(op).value();
}

SeriesPoint roofline_point(const Operator& op, const Job& job, const ComputeModel& compute) {
  const double flops = computed_flops(op);
  const double seconds = operator_times(op, compute, job.training).forward.value();
  const double moved = moved_bytes(op, job).value();
  return {flops / moved, flops / seconds * 1e-12, std::string(op.name)};
}

constexpr double kGigabyte = 1e9;

// Owner and direction of a link, from its name: "node5.card2.up", "tier0.3.down.1", "dim0-up7".
struct LinkPlace {
  std::string owner;  // "node5", "tier0.3"
  std::string kind;   // "node", "tier0", "dim0-up"
  int number = 0;     // index within its kind
  bool up = true;
};

LinkPlace place_of_link(const std::string& name) {
  LinkPlace place;
  place.up = name.find("down") == std::string::npos;
  std::string_view rest = name;
  const std::size_t skip = rest.rfind("tier", 0) == 0 ? rest.find('.') : std::string_view::npos;
  const std::size_t begin = skip == std::string_view::npos ? 0 : skip + 1;
  std::size_t digit = rest.find_first_of("0123456789", begin);
  if (digit == std::string_view::npos) digit = rest.size();
  std::size_t end = rest.find_first_not_of("0123456789", digit);
  if (end == std::string_view::npos) end = rest.size();
  place.kind = std::string(skip == std::string_view::npos ? rest.substr(0, digit) : rest.substr(0, skip));
  place.owner = std::string(rest.substr(0, end));
  std::from_chars(name.data() + digit, name.data() + end, place.number);
  return place;
}

std::string kind_name(const std::string& kind) {
  return kind == "node" ? "cards" : kind.rfind("tier", 0) == 0 ? kind + " uplinks" : kind;
}

}  // namespace

double capacity_for_tensors(const RankMemoryResult& rank) {
  return rank.capacity_gib - (rank.shown_gib - rank.total_gib);
}

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
    double capacity = capacity_for_tensors(forecast.result.memory.per_pipeline_rank[first]);
    for (std::size_t rank = first; rank < last; ++rank) {
      Series series{fmt::format("rank {}", rank), {}, SeriesStyle::kSteps};
      for (const MemoryPoint& point : forecast.memory[rank].points) {
        series.points.push_back(
            {static_cast<double>(point.time) * timeline.units_per_tick, gibibytes(Bytes(point.bytes)), ""});
      }
      series.points.push_back({end, series.points.back().y, ""});
      capacity = std::min(capacity, capacity_for_tensors(forecast.result.memory.per_pipeline_rank[rank]));
      chart.series.push_back(std::move(series));
    }
    const double beyond = forecast.step.job.training.stack.memory_overhead_gib;
    const std::string limit = beyond > 0.0 ? fmt::format("capacity minus {:g} GiB beyond tensors", beyond) : "capacity";
    chart.series.push_back({limit, {{0.0, capacity, ""}, {end, capacity, ""}}, SeriesStyle::kDashed});
    charts.push_back(std::move(chart));
  }
  return charts;
}

SeriesChart roofline_chart(const Job& job) {
  if (job.profile) {
    throw ConfigError(
        {"model", "is a layer profile, which has times but no FLOPs", "", "give a model by its dimensions"});
  }
  const ComputeModel compute(job.cluster.device, job.training.precision);
  const double peak = job.cluster.device.peak_of(job.training.precision).value() * 1e-12;
  const double bandwidth = job.cluster.device.memory_bandwidth.value() * 1e-12;
  SeriesChart chart;
  chart.title = fmt::format("{} on {}: operators of a block, forward pass", job.model.name, job.cluster.device.name);
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
  chart.series.push_back({"datasheet roofline",
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
  const std::vector<SeriesPoint> front = pareto_front(points);
  chart.series.push_back({"Pareto front: no other is better in both", front, SeriesStyle::kSteps});
  std::vector<SeriesPoint> others = points;
  for (const SeriesPoint& best : front) {
    const auto same = [&best](const SeriesPoint& point) {
      return point.x == best.x && point.y == best.y && point.label == best.label;
    };
    const auto found = std::find_if(others.begin(), others.end(), same);
    if (found != others.end()) others.erase(found);
  }
  chart.series.push_back({"other layouts", others, SeriesStyle::kPoints});
  chart.series.push_back({"on the front", front, SeriesStyle::kNamedPoints});
  return chart;
}

Table fabric_table(const Cluster& cluster, const NetworkFabric& fabric) {
  struct Kind {
    int links = 0;
    double least = 0.0;
    double most = 0.0;
    double sum = 0.0;
    std::string first;
  };
  std::map<std::string, Kind> kinds;
  for (std::uint32_t link = 0; link < fabric.links().size(); ++link) {
    const std::string& name = fabric.links()[link].name;
    const LinkPlace place = place_of_link(name);
    Kind& kind = kinds[kind_name(place.kind) + (place.up ? ", up" : ", down")];
    const double rate = fabric.capacity(link);
    kind.least = kind.links == 0 ? rate : std::min(kind.least, rate);
    kind.most = std::max(kind.most, rate);
    kind.sum += rate;
    if (kind.links++ == 0) kind.first = name;
  }
  Table table;
  table.title =
      fmt::format("{} of {} {}: {}, routing {}", cluster.name, cluster.nodes, cluster.nodes == 1 ? "node" : "nodes",
                  name_of(cluster.network->topology), name_of(cluster.network->routing));
  table.columns = {text_column("links", "kind"), number_column("count", "links"),
                   number_column("GB/s each", "gb_per_s"), number_column("TB/s total", "tb_per_s"),
                   text_column("example", "first")};
  for (const auto& [name, kind] : kinds) {
    const std::string each = kind.least == kind.most ? rounded(kind.most / kGigabyte, 4)
                                                     : fmt::format("{} to {}", rounded(kind.least / kGigabyte, 4),
                                                                   rounded(kind.most / kGigabyte, 4));
    table.rows.push_back(
        {name, fmt::format("{}", kind.links), each, rounded(kind.sum / kGigabyte / 1e3, 4), kind.first});
  }
  return table;
}

FabricPicture fabric_picture(const Cluster& cluster, const NetworkFabric& fabric, const std::vector<LinkLoad>& loads) {
  FabricPicture picture;
  picture.title = fmt::format("{} nodes of {}: {}", cluster.nodes, cluster.name, name_of(cluster.network->topology));
  picture.has_loads = !loads.empty();
  picture.note = picture.has_loads ? "utilisation of the links while the step waits for messages on shared links" : "";
  std::map<std::string, std::map<int, FabricPicture::Box>> kinds;
  for (std::uint32_t link = 0; link < fabric.links().size(); ++link) {
    const LinkPlace place = place_of_link(fabric.links()[link].name);
    const bool tiered = place.kind == "node" || place.kind.rfind("tier", 0) == 0;
    FabricPicture::Box& box = kinds[tiered ? place.kind : "links"][tiered ? place.number : static_cast<int>(link)];
    box.name = tiered ? place.owner : fabric.links()[link].name;
    if (loads.empty()) continue;
    const LinkLoad& load = loads[link];
    double& fullest = place.up ? box.up : box.down;
    if (load.utilisation <= fullest) continue;
    fullest = load.utilisation;
    box.note = shares_text(load.share);
  }
  for (auto& [kind, boxes] : kinds) {
    FabricPicture::Row row{kind == "node" ? "nodes" : kind, {}};
    for (auto& [number, box] : boxes) row.boxes.push_back(std::move(box));
    picture.rows.push_back(std::move(row));
  }
  // The core, which joins the boxes of the highest row.
  const bool joined = !picture.rows.empty() && picture.rows.back().boxes.size() > 1;
  if (joined) picture.rows.push_back({"", {{"core", "", 0.0, 0.0}}});
  return picture;
}

}  // namespace flopcast
