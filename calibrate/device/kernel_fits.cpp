#include "calibrate/device/fits.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "model/cost/compute.hpp"

namespace flopcast {

namespace {

double flops_of(const GemmShape& shape) {
  return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k) *
         static_cast<double>(shape.batch);
}

std::string label_of(const GemmShape& shape) {
  return fmt::format("{}x{}x{}", shape.m, shape.n, shape.k);
}

struct Terms {
  double busy = 0.0;
  double moved = 0.0;
  double measured = 0.0;
};

struct Unknowns {
  double launch = 0.0;
  double per_flop = 0.0;
  double per_byte = 0.0;
  double loss = std::numeric_limits<double>::infinity();
};

double time_of(const Terms& terms, const Unknowns& unknowns, bool overlapped) {
  const double multiplying = terms.busy * unknowns.per_flop;
  const double streaming = terms.moved * unknowns.per_byte;
  return unknowns.launch + (overlapped ? std::max(multiplying, streaming) : multiplying + streaming);
}

Unknowns solve_rows(const std::vector<FitRow>& rows) {
  const RelativeFit fit = fit_relative(rows);
  return {fit.unknowns[0], fit.unknowns[1], fit.unknowns[2], fit.loss};
}

Unknowns fit_maximum(const std::vector<Terms>& all) {
  constexpr int kMostRounds = 20;
  // Initially all shapes are compute-bound, except those with less than half of the median FLOPs per byte.
  std::vector<double> intensities;
  for (const Terms& terms : all) intensities.push_back(terms.busy / terms.moved);
  const double few = 0.5 * median_of(intensities);
  std::vector<bool> streams;
  for (const double intensity : intensities) streams.push_back(intensity < few);
  Unknowns best;
  for (int round = 0; round < kMostRounds; ++round) {
    std::vector<FitRow> rows;
    for (std::size_t index = 0; index < all.size(); ++index) {
      const double busy = streams[index] ? 0.0 : all[index].busy;
      rows.push_back({{1.0, busy, streams[index] ? all[index].moved : 0.0}, all[index].measured});
    }
    const Unknowns found = solve_rows(rows);
    if (found.loss < best.loss) best = found;
    std::vector<bool> next;
    for (const Terms& terms : all) {
      next.push_back(terms.moved * found.per_byte > terms.busy * found.per_flop);
    }
    if (next == streams) return found;
    streams = std::move(next);
  }
  return best;
}

Unknowns fit_terms(const std::vector<Terms>& all, bool overlapped) {
  if (overlapped) return fit_maximum(all);
  std::vector<FitRow> rows;
  for (const Terms& terms : all) rows.push_back({{1.0, terms.busy, terms.moved}, terms.measured});
  return solve_rows(rows);
}

std::vector<Terms> terms_of(const std::vector<GemmPoint>& points, Precision precision, int multiprocessors,
                            const GemmKernel& kernel) {
  Device device;
  device.multiprocessors = multiprocessors;
  device.gemm_kernel = kernel;
  std::vector<Terms> all;
  for (const GemmPoint& point : points) {
    const GemmWork work = gemm_work(device, precision, point.shape, element_size(precision).value());
    all.push_back({work.busy.value(), work.moved.value(), point.seconds});
  }
  return all;
}

void check_products(const std::string& what, const std::vector<GemmPoint>& points) {
  if (points.size() < kFewestShapes) {
    refuse_fit(what, fmt::format("only {} shapes were measured", points.size()),
               fmt::format("at least {} are needed", kFewestShapes));
  }
  for (const GemmPoint& point : points) {
    if (std::isfinite(point.seconds) && point.seconds > 0.0) continue;
    refuse_fit(what, fmt::format("{} in {} s is not a valid measurement", label_of(point.shape), point.seconds),
               "expected finite times above zero");
  }
  const auto [least, most] = std::minmax_element(
      points.begin(), points.end(), [](const auto& a, const auto& b) { return flops_of(a.shape) < flops_of(b.shape); });
  constexpr double kFarther = 100.0;
  if (flops_of(most->shape) > kFarther * flops_of(least->shape) && most->seconds <= least->seconds) {
    refuse_fit(what,
               fmt::format("times do not grow with the work: {} took {:.3g} s, {} {:.3g} s", label_of(least->shape),
                           least->seconds, label_of(most->shape), most->seconds),
               "the GEMMs were probably not computed, or the timer did not wait for them");
  }
}

std::vector<GemmKernel> kernels_of(const GemmSearch& search) {
  std::vector<GemmKernel> kernels;
  for (const int tile : search.tiles) {
    for (const double depth : search.overhead_depths) {
      for (const double share : search.wave_shares) {
        GemmKernel& kernel = kernels.emplace_back();
        kernel.tile = tile;
        kernel.overhead_depth = depth;
        kernel.overlapped = search.overlapped;
        kernel.wave_share = share;
      }
    }
  }
  return kernels;
}

}  // namespace

const GemmSearch& gpu_gemm_search() {
  static const GemmSearch search = {
      {0}, {0, 50, 100, 150, 200, 250, 300, 400, 600}, true, {1.0, 0.75, 0.5, 0.35, 0.25, 0.1}};
  return search;
}

const GemmSearch& cpu_gemm_search() {
  static const GemmSearch search = {{1, 4, 8, 16, 32, 64}, {0, 2, 4, 8, 16, 32, 64, 128}, false};
  return search;
}

GemmFit fit_gemm(const std::string& what, const std::vector<GemmPoint>& points, Precision precision,
                 int multiprocessors, const GemmSearch& search) {
  check_products(what, points);
  GemmFit fit;
  Unknowns best;
  for (const GemmKernel& kernel : kernels_of(search)) {
    const Unknowns found = fit_terms(terms_of(points, precision, multiprocessors, kernel), search.overlapped);
    if (!(found.loss < best.loss)) continue;
    best = found;
    fit.kernel = kernel;
  }
  if (!(best.per_flop > 0.0)) {
    refuse_fit(what, "no rate fits: the times do not follow the work", "check shapes and times, or measure again");
  }
  const std::vector<Terms> all = terms_of(points, precision, multiprocessors, fit.kernel);
  fit.launch = Seconds(best.launch);
  fit.rate = FlopsPerSecond(multiprocessors / best.per_flop);
  if (best.per_byte > 0.0) fit.stream = BytesPerSecond(1.0 / best.per_byte);
  for (std::size_t index = 0; index < points.size(); ++index) {
    fit.points.push_back({label_of(points[index].shape), flops_of(points[index].shape), points[index].seconds,
                          time_of(all[index], best, search.overlapped)});
  }
  fit.errors = relative_errors(fit.points);
  constexpr std::size_t kMostLeftOut = 32;
  const auto predict = [&search](const std::vector<Terms>& others, const Terms& left) {
    return std::pair(time_of(left, fit_terms(others, search.overlapped), search.overlapped), left.measured);
  };
  fit.left_out = errors_left_out(all, 0, all.size(), (all.size() + kMostLeftOut - 1) / kMostLeftOut, predict);
  return fit;
}

namespace {

void check_amounts(const std::string& what, const std::vector<OperatorPoint>& points) {
  std::set<double> amounts;
  for (const OperatorPoint& point : points) {
    if (!std::isfinite(point.seconds) || point.seconds <= 0.0 || !std::isfinite(point.amount) || point.amount <= 0.0) {
      refuse_fit(what, fmt::format("{} took {} s", point.label, point.seconds), "expected finite figures above zero");
    }
    amounts.insert(point.amount);
  }
  if (amounts.size() < kFewestAmounts) {
    refuse_fit(what, fmt::format("{} sizes are too few", amounts.size()),
               fmt::format("measure at least {}", kFewestAmounts));
  }
}

// Launch and seconds per amount. Amounts are scaled so that both unknowns have the same order of magnitude.
std::vector<double> solve_amounts(const std::vector<OperatorPoint>& points) {
  const double scale = std::max_element(points.begin(), points.end(), [](const auto& a, const auto& b) {
                         return a.amount < b.amount;
                       })->amount;
  std::vector<FitRow> rows;
  for (const OperatorPoint& point : points) rows.push_back({{1.0, point.amount / scale}, point.seconds});
  std::vector<double> unknowns = fit_relative(rows).unknowns;
  unknowns[1] /= scale;
  return unknowns;
}

double time_of(const std::vector<double>& unknowns, const OperatorPoint& point) {
  return unknowns[0] + unknowns[1] * point.amount;
}

}  // namespace

OperatorFit fit_operator(const std::string& what, const std::vector<OperatorPoint>& points) {
  check_amounts(what, points);
  const std::vector<double> unknowns = solve_amounts(points);
  if (unknowns[1] <= 0.0) {
    refuse_fit(what, "does not slow down with size", "measure sizes that differ more and exceed the caches");
  }
  OperatorFit fit;
  fit.launch = Seconds(unknowns[0]);
  fit.rate = 1.0 / unknowns[1];
  for (const OperatorPoint& point : points) {
    fit.points.push_back({point.label, point.amount, point.seconds, time_of(unknowns, point)});
  }
  fit.errors = relative_errors(fit.points);
  constexpr std::size_t kMost = 32;
  fit.left_out = errors_left_out(points, 0, points.size(), std::max<std::size_t>(1, points.size() / kMost),
                                 [](const std::vector<OperatorPoint>& others, const OperatorPoint& left) {
                                   return std::pair(time_of(solve_amounts(others), left), left.seconds);
                                 });
  return fit;
}

namespace {

std::set<int> check_channels(const std::string& what, const std::vector<OverlapPoint>& points) {
  std::set<int> channels;
  std::vector<double> ratios;
  for (const OverlapPoint& point : points) {
    for (const double seconds : {point.alone_s, point.overlapped_s}) {
      if (std::isfinite(seconds) && seconds > 0.0) continue;
      refuse_fit(what, fmt::format("{} took {} s", point.label, seconds), "expected finite times above zero");
    }
    channels.insert(point.channels);
    ratios.push_back(point.overlapped_s / point.alone_s);
  }
  if (channels.size() < kFewestChannels) {
    refuse_fit(what, fmt::format("{} channel counts are too few", channels.size()),
               fmt::format("measure at least {}", kFewestChannels));
  }
  constexpr double kFastest = 0.9;
  if (median_of(ratios) < kFastest) {
    refuse_fit(what, fmt::format("takes only {:.2f} of its time alone", median_of(ratios)),
               "overlap cannot make a kernel faster: clocks changed, or one of the two did not run");
  }
  return channels;
}

// The line is the sum of a rising and a falling one, so that non-negative unknowns can represent both slopes.
OverlapLine solve_channels(const std::vector<OverlapPoint>& points) {
  int most = 1;
  for (const OverlapPoint& point : points) most = std::max(most, point.channels);
  std::vector<FitRow> rows;
  for (const OverlapPoint& point : points) {
    const double share = static_cast<double>(point.channels) / most;
    rows.push_back({{point.alone_s * share, point.alone_s * (1.0 - share)}, point.overlapped_s});
  }
  const std::vector<double> ends = fit_relative(rows).unknowns;
  return {"", ends[1], (ends[0] - ends[1]) / most, most};
}

}  // namespace

OverlapFit fit_overlap(const std::string& what, const std::vector<OverlapPoint>& points) {
  const std::set<int> channels = check_channels(what, points);
  const OverlapLine line = solve_channels(points);
  OverlapFit fit;
  fit.at_none = line.at_none;
  fit.per_channel = line.per_channel;
  for (const OverlapPoint& point : points) {
    fit.points.push_back({point.label, static_cast<double>(point.channels), point.overlapped_s,
                          point.alone_s * line.factor(point.channels)});
  }
  fit.errors = relative_errors(fit.points);
  std::vector<double> fitted;
  std::vector<double> measured;
  for (const int left : channels) {
    std::vector<OverlapPoint> others = points;
    std::erase_if(others, [left](const OverlapPoint& point) { return point.channels == left; });
    const OverlapLine without = solve_channels(others);
    for (const OverlapPoint& point : points) {
      if (point.channels != left) continue;
      fitted.push_back(point.alone_s * without.factor(point.channels));
      measured.push_back(point.overlapped_s);
    }
  }
  fit.left_out = relative_errors(fitted, measured);
  return fit;
}

}  // namespace flopcast
