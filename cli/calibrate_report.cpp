#include "cli/calibrate_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "cli/terminal.hpp"

namespace flopcast {

namespace {

struct Miss {
  const ProfileFit* fit = nullptr;
  const ProfilePoint* point = nullptr;
  double error() const { return point->fitted_s / point->measured_s - 1.0; }
};

std::string percent(double share) {
  return fmt::format("{:.1f}", 1e2 * share);
}

Table errors_table(const DeviceProfile& profile) {
  Table table;
  table.title = fmt::format("{}: {}{}{}, {}", profile.name, profile.source, profile.date.empty() ? "" : ", ",
                            profile.date, profile.confidence);
  table.columns = {text_column("fit"),
                   number_column("samples"),
                   number_column("median error %", "median_error_percent"),
                   number_column("95 % below", "p95_error_percent"),
                   number_column("largest %", "largest_error_percent"),
                   number_column("left out, median %", "left_out_median_error_percent")};
  for (const ProfileFit& fit : profile.fits) {
    table.rows.push_back({fit.what, std::to_string(fit.points.size()), percent(fit.median_error),
                          percent(fit.p95_error), percent(fit.largest_error), percent(fit.left_out_median_error)});
  }
  table.notes = {"left out: each sample predicted by a fit of the others"};
  return table;
}

Table worst_table(const DeviceProfile& profile) {
  std::vector<Miss> misses;
  for (const ProfileFit& fit : profile.fits) {
    for (const ProfilePoint& point : fit.points) misses.push_back({&fit, &point});
  }
  std::stable_sort(misses.begin(), misses.end(),
                   [](const Miss& a, const Miss& b) { return std::abs(a.error()) > std::abs(b.error()); });
  constexpr std::size_t kShown = 10;
  misses.resize(std::min(misses.size(), kShown));
  Table table;
  table.title = "the worst samples";
  table.columns = {text_column("fit"), text_column("sample"), number_column("measured us"), number_column("fitted us"),
                   number_column("error %", "error_percent")};
  for (const Miss& miss : misses) {
    table.rows.push_back({miss.fit->what, miss.point->label, fmt::format("{:.4g}", 1e6 * miss.point->measured_s),
                          fmt::format("{:.4g}", 1e6 * miss.point->fitted_s), percent(miss.error())});
  }
  return table;
}

void add_figures(const nlohmann::json& values, const std::string& prefix, Table& table) {
  for (const auto& item : values.items()) {
    const std::string name = prefix + item.key();
    if (item.value().is_object()) {
      add_figures(item.value(), name + ".", table);
    } else {
      table.rows.push_back({name, item.value().is_string() ? item.value().get<std::string>() : item.value().dump()});
    }
  }
}

Table figures_table(const DeviceProfile& profile) {
  Table table;
  table.title = fmt::format("{} gives the cluster's", profile.name);
  table.columns = {text_column("figure"), text_column("value")};
  add_figures(profile.cluster, "", table);
  return table;
}

}  // namespace

std::vector<Table> profile_tables(const DeviceProfile& profile) {
  std::vector<Table> tables;
  if (!profile.fits.empty()) tables.push_back(errors_table(profile));
  if (!profile.cluster.empty()) tables.push_back(figures_table(profile));
  if (!profile.fits.empty()) tables.push_back(worst_table(profile));
  return tables;
}

std::vector<SeriesChart> profile_charts(const DeviceProfile& profile) {
  std::vector<SeriesChart> charts;
  for (const ProfileFit& fit : profile.fits) {
    if (fit.points.empty()) continue;
    SeriesChart chart;
    chart.title = fmt::format("{}, median error {} %", fit.what, percent(fit.median_error));
    chart.x = {fit.unit, true};
    chart.y = {"seconds", true};
    // Products of one FLOP count take different times: a line between them would mean nothing.
    const bool line = fit.unit == "bytes";
    Series measured{"measured", {}, SeriesStyle::kPoints};
    Series fitted{"fitted", {}, line ? SeriesStyle::kLine : SeriesStyle::kCrosses};
    for (const ProfilePoint& point : fit.points) {
      measured.points.push_back({point.x, point.measured_s, point.label});
      fitted.points.push_back({point.x, point.fitted_s, point.label});
    }
    chart.series = {std::move(measured), std::move(fitted)};
    charts.push_back(std::move(chart));
  }
  return charts;
}

DeviceProfile load_profile(const std::string& path) {
  Origins origins;
  origins.file = path;
  return read_device_profile(parse_json(read_file(path), path), "", origins);
}

}  // namespace flopcast
