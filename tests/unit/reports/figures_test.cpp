#include "reports/result/result_tables.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "model/job/read_job.hpp"
#include "reports/svg/canvas.hpp"
#include "reports/svg/charts.hpp"

namespace flopcast {
namespace {

Forecast small_forecast(const std::string& stack = "") {
  auto json = nlohmann::json::parse(
      R"({"model":"gpt3-6.7b","cluster":{"name":"dgx-a100-80g"},"layout":{"tp":2,"pp":4,"global_batch_size":8}})");
  if (!stack.empty()) json["training"]["stack"] = stack;
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

TEST(MemoryCharts, WhatTheStackTakesBeyondTensorsIsTakenOffTheLimit) {
  const SeriesChart chart = memory_charts(small_forecast("megatron-deepspeed")).at(0);
  EXPECT_EQ(chart.series.back().name, "capacity minus 8 GiB beyond tensors");
  EXPECT_DOUBLE_EQ(chart.series.back().points.at(0).y, 80.0 - 8.0);
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

TEST(SeriesSvg, StepsHoldTheirValue) {
  SeriesChart chart;
  chart.series.push_back({"steps", {{0, 1, ""}, {1, 2, ""}, {2, 1, ""}}, SeriesStyle::kSteps});
  const std::string svg = write_series_svg({chart}, {});
  EXPECT_EQ(count_of(svg, "l s0l\" d=\"M"), 1u);
  EXPECT_EQ(svg.find("L"), std::string::npos) << "no slanted line";
}

// The right edge of every text of a chart, by the text width that charts assume.
double rightmost(const std::string& svg) {
  const std::regex texts(R"re(<text x="([0-9.]+)"([^>]*)>([^<]*)</text>)re");
  double right = 0.0;
  for (auto found = std::sregex_iterator(svg.begin(), svg.end(), texts); found != std::sregex_iterator(); ++found) {
    if ((*found)[2].str().find("text-anchor") != std::string::npos) continue;
    right = std::max(right, std::stod((*found)[1]) + text_width((*found)[3].str(), kLetterOf11));
  }
  return right;
}

TEST(SeriesSvg, LegendsStayInTheirChart) {
  SeriesChart chart;
  for (int rank = 100; rank < 105; ++rank) {
    chart.series.push_back({"rank " + std::to_string(rank), {{0, 1, ""}, {1, 2, ""}}, SeriesStyle::kSteps});
  }
  chart.series.push_back({"capacity", {{0, 3, ""}, {1, 3, ""}}, SeriesStyle::kDashed});
  const SeriesSvgOptions options;
  EXPECT_LE(rightmost(write_series_svg({chart, chart}, options)), options.width);
  EXPECT_LE(rightmost(write_series_svg({chart, chart, chart}, options)), options.width);
  // The plot below a wrapped legend begins lower than below a single row.
  SeriesChart small = chart;
  small.series.resize(2);
  const auto top = [](const std::string& svg) { return svg.substr(svg.find("class=\"grid\" d=\"M") + 16, 12); };
  EXPECT_NE(top(write_series_svg({chart, chart}, options)), top(write_series_svg({small, small}, options)));
}

TEST(SeriesSvg, ALimitHasOneColourWhateverTheNumberOfSeries) {
  for (const int ranks : {1, 3, 5}) {
    SeriesChart chart;
    for (int rank = 0; rank < ranks; ++rank) chart.series.push_back({"rank", {{0, 1, ""}, {1, 2, ""}}, {}});
    chart.series.push_back({"capacity", {{0, 3, ""}, {1, 3, ""}}, SeriesStyle::kDashed});
    EXPECT_EQ(count_of(write_series_svg({chart}, {}), "class=\"l refl\" stroke-dasharray"), 1u) << ranks;
  }
}

TEST(SeriesSvg, TheRooflineNamesItsOperators) {
  const SeriesChart chart = roofline_chart(small_forecast().step.job);
  const std::string svg = write_series_svg({chart}, {});
  for (const SeriesPoint& point : chart.series[0].points) {
    EXPECT_EQ(count_of(svg, "class=\"name\">" + point.label + "</text>"), 1u) << point.label;
  }
}

// Labels of points that nearly coincide cover neither each other nor a point.
TEST(PointLabels, KeepApart) {
  PointLabels labels({0, 0, 400, 200});
  std::vector<LabelBox> boxes;
  for (int index = 0; index < 6; ++index) labels.avoid(380.0 + index, 20.0 + index);
  for (int index = 0; index < 6; ++index) boxes.push_back(labels.place(380.0 + index, 20.0 + index, "qkv projection"));
  for (std::size_t a = 0; a < boxes.size(); ++a) {
    EXPECT_LE(boxes[a].left + boxes[a].width, 400.0);
    EXPECT_GE(boxes[a].top, 0.0);
    EXPECT_FALSE(boxes[a].overlaps({376, 16, 8, 8})) << a;
    for (std::size_t b = 0; b < a; ++b) EXPECT_FALSE(boxes[a].overlaps(boxes[b])) << a << " and " << b;
  }
}

TEST(PointLabels, NoLineRunsThroughANameWhereThereIsRoom) {
  PointLabels labels({0, 0, 400, 200});
  // A front descends to each point and continues to the right.
  const LineStretch down{100, 20, 100, 100};
  const LineStretch right{100, 100, 300, 100};
  labels.avoid(100, 100);
  labels.avoid(down);
  labels.avoid(right);
  const LabelBox beside = labels.place(100, 100, "tp 4 pp 2");
  EXPECT_FALSE(down.crosses(beside));
  EXPECT_FALSE(right.crosses(beside));
  EXPECT_TRUE(right.crosses({107, 94, 60, 12})) << "to the right of the point";
  const LineStretch slope{0, 0, 400, 200};
  EXPECT_TRUE(slope.crosses({90, 44, 20, 12}));
  EXPECT_FALSE(slope.crosses({90, 60, 20, 12})) << "below it, though near neither end";
  // Without space the label stays over the line.
  PointLabels crowded({0, 90, 170, 20});
  crowded.avoid(100, 100);
  crowded.avoid({0, 100, 170, 100});
  EXPECT_DOUBLE_EQ(crowded.place(100, 100, "tp 4").left, 107.0);
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
  EXPECT_NE(svg.find(">best that fits</text>"), std::string::npos);
  EXPECT_NE(svg.find(">no such layout</text>"), std::string::npos);
  EXPECT_EQ(svg.find(">does not fit in memory</text>"), std::string::npos) << "every cell with a number fits";
  FigureStyle column;
  column.width = 317.5;
  column.in_print = true;
  column.titles = false;
  const std::string narrow = write_heat_map_svg(map, column);
  EXPECT_NE(narrow.find("width=\"84.01mm\""), std::string::npos) << narrow.substr(0, 200);
  EXPECT_EQ(narrow.find(">step time &lt;s&gt;</text>"), std::string::npos);

  const auto width_of = [](const std::string& drawn) { return std::stod(drawn.substr(drawn.find("width=\"") + 7)); };
  map.value_name = "a value whose name is wider than its columns";
  EXPECT_GT(width_of(write_heat_map_svg(map)), width_of(svg) + 150.0) << "the scale's name is cut off";
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
  EXPECT_EQ(count_of(svg, "text-decoration:line-through\">12.5") + count_of(svg, "text-decoration:line-through\">7.25"),
            1u);
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

// Forecast above measurement, and below it what a logarithmic axis hides.
TEST(Scatter, ErrorsHaveAPanelOfTheirOwn) {
  ScatterChart chart;
  chart.title = "steps";
  chart.x_label = "measured, s";
  chart.y_label = "forecast, s";
  chart.band = 0.1;
  chart.series = {{"one", {{1.0, 1.1, "a"}, {10.0, 9.0, "b"}}, {}}, {"two", {{5.0, 50.0, "far"}}, {}}};
  const std::string svg = write_scatter_svg(chart);
  EXPECT_EQ(count_of(svg, "<title>a: 1, 1.1, +10.0 %</title>"), 2u) << "in both panels";
  EXPECT_NE(svg.find(">+50 %</text>"), std::string::npos);
  EXPECT_NE(svg.find(">one (2)</text>"), std::string::npos);
  const auto y_of = [&svg](const std::string& title) {
    const std::size_t shape = svg.rfind("<circle", svg.rfind(title));
    return std::stod(svg.substr(svg.find("cy=\"", shape) + 4));
  };
  EXPECT_LT(y_of("a: 1, 1.1"), y_of("b: 10, 9"));
  EXPECT_EQ(write_scatter_svg(chart), svg);
  FigureStyle narrow;
  narrow.width = 317.5;
  narrow.in_print = true;
  EXPECT_NE(write_scatter_svg(chart, narrow).find("viewBox=\"0 0 317.5 "), std::string::npos);
}

// Points on the front are labelled, and nothing is drawn over them.
TEST(ParetoFront, NamesItsPoints) {
  const SeriesChart chart = pareto_chart("t", {"GiB"}, {"s"}, {{3, 1, "tp 8"}, {1, 5, "tp 2"}, {2, 6, "beaten"}});
  const std::string svg = write_series_svg({chart}, {});
  EXPECT_EQ(count_of(svg, ">tp 8</text>"), 1u);
  EXPECT_EQ(count_of(svg, ">beaten</text>"), 0u);
  EXPECT_LT(svg.find("l s0l"), svg.find("<circle class=\"s1\""));
}

}  // namespace
}  // namespace flopcast
