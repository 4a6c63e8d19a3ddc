#include "cli/loss_figure.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/config/document.hpp"
#include "model/error/error.hpp"
#include "reports/series/series_svg.hpp"

namespace flopcast {

Series loss_curve(const std::string& schedule, const std::vector<double>& losses) {
  Series curve;
  curve.name = schedule;
  for (std::size_t step = 0; step < losses.size(); ++step) {
    if (!std::isfinite(losses[step])) continue;
    curve.points.push_back({static_cast<double>(step + 1), losses[step], fmt::format("step {}", step + 1)});
  }
  return curve;
}

Series read_loss_curve(std::string_view text, const std::string& file) {
  try {
    const nlohmann::json run = parse_json(text, file).at("comparison");
    std::vector<double> losses;
    for (const nlohmann::json& loss : run.at("losses")) {
      losses.push_back(loss.is_null() ? std::nan("") : loss.get<double>());
    }
    return loss_curve(run.at("schedule").get<std::string>(), losses);
  } catch (const nlohmann::json::exception&) {
    throw ConfigError({"--beside", "this is no measurement of a run", file, "a file that flopcast run -o wrote"});
  }
}

std::string loss_figure(const std::vector<Series>& curves) {
  SeriesChart chart;
  chart.title = "Loss";
  chart.x.title = "step";
  chart.y.title = "mean cross-entropy, nats";
  chart.series = curves;
  return write_series_svg({chart}, {});
}

}  // namespace flopcast
