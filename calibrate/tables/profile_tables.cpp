#include "calibrate/tables/tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text/words.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/config/document.hpp"
#include "model/job/read_job.hpp"

namespace flopcast {

namespace {

// The fastest that was measured of what a datasheet has a figure for: products of a precision, and copies within the
// device's memory.
struct AchievedPeak {
  std::string what;    // the fit whose samples these are
  std::string sample;  // the fastest
  double rate = 0.0;   // FLOP/s or bytes/s of it
  double datasheet = 0.0;
};

std::optional<Device> catalogued(const DeviceProfile& profile) {
  const auto device = profile.cluster->find("device");
  if (device == profile.cluster->end() || !device->is_object() || !device->contains("name")) return std::nullopt;
  const nlohmann::json& name = device->at("name");
  const std::vector<std::string> names = catalogue_names(CatalogueKind::kDevices);
  if (!name.is_string() || std::find(names.begin(), names.end(), name.get<std::string>()) == names.end()) {
    return std::nullopt;
  }
  std::vector<std::string> ignored;
  return read_device(name, "device", ignored, {});
}

// "gemm bf16 (dgrad)": the precision is the second word.
std::optional<Precision> precision_named(const std::string& what) {
  const std::string kind = "gemm ";
  if (what.rfind(kind, 0) != 0) return std::nullopt;
  const std::string word = what.substr(kind.size(), what.find(' ', kind.size()) - kind.size());
  return parse<Precision>(word);
}

// Of the catalogue's device that the profile names; none where it names none. Copies count without those that a cache
// may have held: the largest one is taken.
std::vector<AchievedPeak> achieved_peaks(const DeviceProfile& profile) {
  const std::optional<Device> device = catalogued(profile);
  if (!device) return {};
  std::vector<AchievedPeak> peaks;
  for (const ProfileFit& fit : profile.fits) {
    if (fit.points.empty()) continue;
    const std::optional<Precision> precision = fit.unit == "FLOP" ? precision_named(fit.what) : std::nullopt;
    const bool copies = fit.what == "memory_copy";
    if (!precision && !copies) continue;
    const auto best = std::max_element(fit.points.begin(), fit.points.end(), [&](const auto& a, const auto& b) {
      return copies ? a.x < b.x : a.x / a.measured_s < b.x / b.measured_s;
    });
    const double datasheet = copies ? device->memory_bandwidth.value() : device->peak_of(*precision).value();
    if (datasheet > 0.0) peaks.push_back({fit.what, best->label, best->x / best->measured_s, datasheet});
  }
  return peaks;
}

struct Miss {
  const ProfileFit* fit = nullptr;
  const ProfilePoint* point = nullptr;
  double error() const { return point->fitted_s / point->measured_s - 1.0; }
};

Table errors_table(const DeviceProfile& profile) {
  Table table = {
      .title = fmt::format("{}: {}{}{}, {}", profile.name, profile.source, profile.date.empty() ? "" : ", ",
                           profile.date, profile.confidence),
      .columns = {text_column("fit"), number_column("samples"), number_column("median error %"),
                  number_column("95 % below", "p95_error_percent"), number_column("largest %", "largest_error_percent"),
                  number_column("left out, median %", "left_out_median_error_percent")}};
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
  Table table = {.title = "the worst samples",
                 .columns = {text_column("fit"), text_column("sample"), number_column("measured us"),
                             number_column("fitted us"), number_column("error %")}};
  for (const Miss& miss : misses) {
    table.rows.push_back({miss.fit->what, miss.point->label, fmt::format("{:.4g}", 1e6 * miss.point->measured_s),
                          fmt::format("{:.4g}", 1e6 * miss.point->fitted_s), percent(miss.error())});
  }
  return table;
}

std::string rate_text(const AchievedPeak& peak, double rate) {
  return peak.what == "memory_copy" ? fmt::format("{:.0f} GB/s", rate / 1e9)
                                    : fmt::format("{:.1f} TFLOP/s", rate / 1e12);
}

Table peaks_table(const std::vector<AchievedPeak>& peaks) {
  Table table = {.title = "the fastest samples beside the datasheet",
                 .columns = {text_column("of"), text_column("sample"), text_column("achieved"),
                             text_column("datasheet"), number_column("share %")}};
  for (const AchievedPeak& peak : peaks) {
    table.rows.push_back({peak.what, peak.sample, rate_text(peak, peak.rate), rate_text(peak, peak.datasheet),
                          percent(peak.rate / peak.datasheet)});
  }
  table.notes = {"of copies the largest, which no cache holds"};
  return table;
}

const OverlapLine* overlap_of(const DeviceProfile& profile, const ProfileFit& fit) {
  for (const OverlapLine& line : profile.overlaps) {
    if (line.what == fit.what) return &line;
  }
  return nullptr;
}

// Time beside over time alone: what the fit says of the channels, and what was measured of them.
double fitted_factor(const OverlapLine& line, const ProfilePoint& point) {
  return line.factor(point.x);
}
double measured_factor(const OverlapLine& line, const ProfilePoint& point) {
  return line.factor(point.x) * point.measured_s / point.fitted_s;
}

Table overlaps_table(const DeviceProfile& profile) {
  Table table = {.title = "slowdown beside something else, by its channels",
                 .columns = {text_column("sample"), number_column("channels"), number_column("slower %"),
                             number_column("fitted %")}};
  for (const ProfileFit& fit : profile.fits) {
    const OverlapLine* line = overlap_of(profile, fit);
    if (line == nullptr) continue;
    for (const ProfilePoint& point : fit.points) {
      table.rows.push_back({point.label, fmt::format("{:.0f}", point.x), percent(measured_factor(*line, point) - 1.0),
                            percent(fitted_factor(*line, point) - 1.0)});
    }
  }
  table.notes = {"no forecast uses them: what it takes off is fitted to published steps"};
  return table;
}

void add_figures(const nlohmann::json& values, const std::string& prefix, Table& table) {
  for (const auto& item : values.items()) {
    const std::string name = prefix + item.key();
    if (item.value().is_object()) {
      add_figures(item.value(), name + ".", table);
    } else {
      table.rows.push_back({name, item.value().is_string() ? item.value().get<std::string>() : dumped(item.value())});
    }
  }
}

Table figures_table(const DeviceProfile& profile) {
  Table table = {.title = fmt::format("{} gives the cluster's", profile.name),
                 .columns = {text_column("figure"), text_column("value")}};
  add_figures(profile.cluster, "", table);
  return table;
}

SeriesChart overlap_chart(const ProfileFit& fit, const OverlapLine& line) {
  SeriesChart chart;
  chart.title = fmt::format("{}, median error {} %", fit.what, percent(fit.median_error));
  chart.x = {"channels"};
  chart.y = {"time beside / time alone"};
  chart.y.from_zero = true;
  Series measured{"measured", {}, SeriesStyle::kPoints};
  for (const ProfilePoint& point : fit.points) {
    measured.points.push_back({point.x, measured_factor(line, point), point.label});
  }
  Series fitted{"fitted", {}, SeriesStyle::kLine};
  for (const double channels : {0.0, static_cast<double>(line.most_channels)}) {
    fitted.points.push_back({channels, line.factor(channels), "fitted"});
  }
  chart.series = {std::move(measured), std::move(fitted)};
  return chart;
}

// As long as the datasheet's rate would take.
Series datasheet_line(const ProfileFit& fit, const AchievedPeak& peak) {
  const auto [least, most] =
      std::minmax_element(fit.points.begin(), fit.points.end(), [](const auto& a, const auto& b) { return a.x < b.x; });
  Series line{fmt::format("datasheet ({})", rate_text(peak, peak.datasheet)), {}, SeriesStyle::kDashed};
  for (const double amount : {least->x, most->x}) {
    line.points.push_back({amount, amount / peak.datasheet, rate_text(peak, peak.datasheet)});
  }
  return line;
}

}  // namespace

std::vector<Table> profile_tables(const DeviceProfile& profile) {
  std::vector<Table> tables;
  if (!profile.fits.empty()) tables.push_back(errors_table(profile));
  const std::vector<AchievedPeak> peaks = achieved_peaks(profile);
  if (!peaks.empty()) tables.push_back(peaks_table(peaks));
  if (!profile.overlaps.empty()) tables.push_back(overlaps_table(profile));
  if (!profile.cluster->empty()) tables.push_back(figures_table(profile));
  if (!profile.fits.empty()) tables.push_back(worst_table(profile));
  return tables;
}

std::vector<SeriesChart> profile_charts(const DeviceProfile& profile) {
  const std::vector<AchievedPeak> peaks = achieved_peaks(profile);
  std::vector<SeriesChart> charts;
  for (const ProfileFit& fit : profile.fits) {
    if (fit.points.empty()) continue;
    if (const OverlapLine* line = overlap_of(profile, fit)) {
      charts.push_back(overlap_chart(fit, *line));
      continue;
    }
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
    const auto peak =
        std::find_if(peaks.begin(), peaks.end(), [&fit](const AchievedPeak& other) { return other.what == fit.what; });
    if (peak != peaks.end()) {
      chart.series.front().name += fmt::format(" ({})", rate_text(*peak, peak->rate));
      chart.series.push_back(datasheet_line(fit, *peak));
    }
    charts.push_back(std::move(chart));
  }
  return charts;
}

}  // namespace flopcast
