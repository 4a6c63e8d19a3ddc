#include "calibrate/device/fit/overlap_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "calibrate/device/fit/relative_fit.hpp"

namespace flopcast {

namespace {

using Points = std::vector<OverlapPoint>;

struct Line {
  double at_none = 1.0;
  double per_channel = 0.0;

  double time(const OverlapPoint& point) const { return point.alone_s * (at_none + per_channel * point.channels); }
};

std::set<int> check(const std::string& what, const Points& points) {
  std::set<int> channels;
  std::vector<double> ratios;
  for (const OverlapPoint& point : points) {
    for (const double seconds : {point.alone_s, point.beside_s}) {
      if (std::isfinite(seconds) && seconds > 0.0) continue;
      refuse_fit(what, fmt::format("{} took {} s", point.label, seconds), "expected finite times above zero");
    }
    channels.insert(point.channels);
    ratios.push_back(point.beside_s / point.alone_s);
  }
  if (channels.size() < kFewestChannels) {
    refuse_fit(what, fmt::format("{} numbers of channels are too few", channels.size()),
               fmt::format("measure at least {}", kFewestChannels));
  }
  constexpr double kFastest = 0.9;
  if (median_of(ratios) < kFastest) {
    refuse_fit(what, fmt::format("takes {:.2f} of the time it takes alone", median_of(ratios)),
               "nothing is faster for what runs beside it: clocks have changed, or one of both did not run");
  }
  return channels;
}

// The line is the sum of a rising and a falling one, so that solutions without negative unknowns hold all of them.
Line solve(const Points& points) {
  int most = 1;
  for (const OverlapPoint& point : points) most = std::max(most, point.channels);
  std::vector<FitRow> rows;
  for (const OverlapPoint& point : points) {
    const double share = static_cast<double>(point.channels) / most;
    rows.push_back({{point.alone_s * share, point.alone_s * (1.0 - share)}, point.beside_s});
  }
  const std::vector<double> ends = fit_relative(rows).unknowns;
  return {ends[1], (ends[0] - ends[1]) / most};
}

RelativeErrors errors_left_out(const Points& points, const std::set<int>& channels) {
  std::vector<double> fitted;
  std::vector<double> measured;
  for (const int left : channels) {
    Points others;
    for (const OverlapPoint& point : points) {
      if (point.channels != left) others.push_back(point);
    }
    const Line line = solve(others);
    for (const OverlapPoint& point : points) {
      if (point.channels != left) continue;
      fitted.push_back(line.time(point));
      measured.push_back(point.beside_s);
    }
  }
  return relative_errors(fitted, measured);
}

}  // namespace

OverlapFit fit_overlap(const std::string& what, const std::vector<OverlapPoint>& points) {
  const std::set<int> channels = check(what, points);
  const Line line = solve(points);
  OverlapFit fit;
  fit.at_none = line.at_none;
  fit.per_channel = line.per_channel;
  for (const OverlapPoint& point : points) {
    fit.points.push_back({point.label, static_cast<double>(point.channels), point.beside_s, line.time(point)});
  }
  fit.errors = relative_errors(fit.points);
  fit.left_out = errors_left_out(points, channels);
  return fit;
}

}  // namespace flopcast
