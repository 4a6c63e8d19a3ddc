#include "reports/series/figures.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "model/config/read_job.hpp"
#include "model/error/error.hpp"
#include "reports/series/heat_map.hpp"
#include "reports/series/series_svg.hpp"

namespace flopcast {
namespace {

Forecast small_forecast() {
  const auto json = nlohmann::json::parse(
      R"({"model":"gpt3-6.7b","cluster":{"name":"dgx-a100-80g"},"layout":{"tp":2,"pp":4,"global_batch_size":8}})");
  return forecast(read_job(json, Origins{}), [](const std::string& path) -> std::string { throw InternalError(path); });
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(MemoryCharts, HoldEveryRankAndItsPeak) {
  const Forecast answer = small_forecast();
  const std::vector<SeriesChart> charts = memory_charts(answer);
  ASSERT_EQ(charts.size(), 1u);
  ASSERT_EQ(charts[0].series.size(), 5u);  // four ranks and the capacity
  for (std::size_t rank = 0; rank < 4; ++rank) {
    double peak = 0.0;
    for (const SeriesPoint& point : charts[0].series[rank].points) peak = std::max(peak, point.y);
    EXPECT_DOUBLE_EQ(peak, answer.memory[rank].peak_bytes / (1024.0 * 1024.0 * 1024.0));
  }
}

TEST(Roofline, NoOperatorBreaksThroughTheRoof) {
  const Forecast answer = small_forecast();
  const SeriesChart chart = roofline_chart(answer.step.job);
  const double peak = answer.step.job.cluster.device.peak_of(Precision::kBf16).value() * 1e-12;
  const double bandwidth = answer.step.job.cluster.device.memory_bandwidth.value() * 1e-12;
  ASSERT_GE(chart.series[0].points.size(), 4u);
  for (const SeriesPoint& point : chart.series[0].points) {
    EXPECT_LE(point.y, std::min(peak, point.x * bandwidth)) << point.label;
    EXPECT_GT(point.y, 0.05 * std::min(peak, point.x * bandwidth)) << point.label;
  }
}

TEST(ParetoFront, KeepsWhatNothingBeatsInBoth) {
  const std::vector<SeriesPoint> front =
      pareto_front({{3, 1, "d"}, {1, 5, "a"}, {2, 5, "beaten"}, {2, 3, "b"}, {2, 3, "twin"}, {4, 1, "beaten"}});
  ASSERT_EQ(front.size(), 3u);
  EXPECT_EQ(front[0].label, "a");
  EXPECT_EQ(front[1].label, "b");
  EXPECT_EQ(front[2].label, "d");
}

TEST(PredictionChart, BandsAreSharesOfTheMeasurement) {
  const SeriesChart chart = prediction_chart("steps", "s", {{"runs", {{"one", 2.0, 2.2}, {"two", 8.0, 7.0}}}});
  ASSERT_EQ(chart.bands.size(), 2u);
  EXPECT_DOUBLE_EQ(chart.bands[0].edges[1].high, 8.0 * 1.2);
  EXPECT_DOUBLE_EQ(chart.bands[1].edges[0].low, 2.0 * 0.95);
  EXPECT_NE(chart.series[0].points[0].label.find("+10.0 %"), std::string::npos);
  const std::string svg = write_series_svg({chart}, {});
  EXPECT_EQ(count_of(svg, "<path class=\"band\""), 2u);
  EXPECT_EQ(count_of(svg, "<circle"), 2u);
  EXPECT_EQ(count_of(svg, "stroke-dasharray"), 1u);
}

TEST(SeriesSvg, StepsHoldTheirValue) {
  SeriesChart chart;
  chart.series.push_back({"steps", {{0, 1, ""}, {1, 2, ""}, {2, 1, ""}}, SeriesStyle::kSteps});
  const std::string svg = write_series_svg({chart}, {});
  EXPECT_EQ(count_of(svg, "l s0l\" d=\"M"), 1u);
  EXPECT_EQ(svg.find("L"), std::string::npos) << "no slanted line";
}

TEST(HeatMap, NumbersBestCellAndEmptyOnes) {
  HeatMap map;
  map.title = "step time <s>";
  map.value_name = "s";
  map.column_title = "tp";
  map.row_title = "pp";
  map.columns = {"1", "2"};
  map.rows = {"1", "2"};
  map.cells = {{{12.5, ""}, {7.25, ""}}, {{std::nullopt, "does not fit"}, {9.0, ""}}};
  const std::string svg = write_heat_map_svg(map);
  EXPECT_EQ(count_of(svg, "class=\"best\""), 1u);
  EXPECT_NE(svg.find("class=\"best\"><title>pp 1, tp 2: 7.25 s</title>"), std::string::npos);
  EXPECT_EQ(count_of(svg, "<rect class=\"none\""), 1u);
  EXPECT_NE(svg.find("does not fit"), std::string::npos);
  EXPECT_NE(svg.find("step time &lt;s&gt;"), std::string::npos);
  EXPECT_EQ(write_heat_map_svg(map), svg);
}

TEST(HeatMap, TheBestCellIsOneThatFits) {
  HeatMap map;
  map.value_name = "exposed_percent";
  map.columns = {"1", "2"};
  map.rows = {"1"};
  map.cells = {{{12.5, ""}, {7.25, "does not fit"}}};
  map.cells[0][1].fits = false;
  const std::string svg = write_heat_map_svg(map);
  EXPECT_EQ(count_of(svg, "class=\"best\""), 1u);
  EXPECT_NE(svg.find("class=\"best\"><title> 1,  1: 12.5 exposed_percent"), std::string::npos) << svg;
  EXPECT_EQ(count_of(svg, "line-through"), 1u);
}

TEST(HeatMap, HoldsTheNameOfItsScale) {
  HeatMap map;
  map.value_name = "exposed_communication_percent";
  map.columns = {"1"};
  map.rows = {"1"};
  map.cells = {{{1.0, ""}}};
  const std::string svg = write_heat_map_svg(map);
  const double width = std::stod(svg.substr(svg.find("width=\"") + 7));
  const std::size_t name = svg.rfind("<text x=\"");
  const double begin = std::stod(svg.substr(name + 9));
  constexpr double kLetter = 6.5;
  EXPECT_GT(width, begin + kLetter * static_cast<double>(map.value_name.size()));
}

}  // namespace
}  // namespace flopcast
