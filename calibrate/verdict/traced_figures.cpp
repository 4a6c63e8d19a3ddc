#include "calibrate/verdict/verdict.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "calibrate/device/fits.hpp"
#include "model/layout/rank_grid.hpp"

namespace flopcast {

namespace {

// Forecast for one rank: stages are uneven, and later ones start later.
struct RankForecast {
  double compute_s = 0.0;
  double forward_s = 0.0;
  double first_start_s = 0.0;
  std::optional<int> node = {};
};

class RankForecasts {
 public:
  RankForecasts(const Forecast& answer, double compute_s)
      : layout_(answer.step.job.layout), cluster_(answer.step.job.cluster), grid_(layout_), mean_{compute_s} {
    double sum = 0.0;
    for (const std::vector<Span>& spans : answer.timeline.ranks) {
      RankForecast rank;
      for (const Span& span : spans) {
        const double seconds = static_cast<double>(span.end - span.start) * answer.timeline.units_per_tick;
        if (is_action(span.kind) || span.kind == SpanKind::kOptimizer) rank.compute_s += seconds;
        if (span.kind == SpanKind::kForward) rank.forward_s += seconds;
      }
      sum += rank.compute_s;
      if (!spans.empty() && !answer.step.program.asynchronous) {
        rank.first_start_s = static_cast<double>(spans.front().start) * answer.timeline.units_per_tick;
      }
      ranks_.push_back(rank);
    }
    if (!ranks_.empty()) {
      const auto [least, most] =
          std::minmax_element(ranks_.begin(), ranks_.end(),
                              [](const RankForecast& a, const RankForecast& b) { return a.compute_s < b.compute_s; });
      uneven_s_ = most->compute_s - least->compute_s;
    }
    const double mean = sum / static_cast<double>(std::max<std::size_t>(1, ranks_.size()));
    if (mean > 0.0) kernels_share_ = compute_s / mean;
  }

  RankForecast of(const TracedRank& traced) const {
    if (!is_known(traced)) return mean_;
    // Traces of `flopcast run` number ranks by their place in the pipeline.
    const int device = traced.waiting_separate ? grid_.neighbour(0, Axis::kPipeline, *traced.rank) : *traced.rank;
    const int stage = traced.waiting_separate ? *traced.rank : grid_.coordinate(device, Axis::kPipeline);
    if (static_cast<std::size_t>(stage) >= ranks_.size()) return mean_;
    RankForecast forecast = ranks_[static_cast<std::size_t>(stage)];
    // Passes of `flopcast run` are whole; in other traces, collectives inside passes are separate kernels.
    if (!traced.waiting_separate) {
      forecast.compute_s *= kernels_share_;
      forecast.forward_s *= kernels_share_;
    }
    if (cluster_.nodes > 1 && !cluster_.uneven()) forecast.node = device / cluster_.devices_per_node;
    return forecast;
  }

  bool is_known(const TracedRank& traced) const {
    return traced.rank && *traced.rank >= 0 && *traced.rank < grid_.ranks();
  }
  /// Difference in computation between the longest and the shortest place in the pipeline.
  double uneven_s() const { return kernels_share_ * uneven_s_; }

 private:
  const Layout& layout_;
  const Cluster& cluster_;
  RankGrid grid_;
  RankForecast mean_;
  double kernels_share_ = 1.0;       // share of passes and optimizer that is not communication
  double uneven_s_ = 0.0;            // longest minus shortest passes and optimizer
  std::vector<RankForecast> ranks_;  // by place in the pipeline
};

double messages_of(const TracedStep& step) {
  double seconds = 0.0;
  for (const auto& [name, time] : step.collectives) {
    if (name.rfind("p2p", 0) == 0) seconds += time.seconds;
  }
  return seconds;
}

// Computation of a rank compared with its forecast.
struct RankExcess {
  std::string name;
  double compute_s = 0.0;
  RankForecast forecast;

  double more_s() const { return compute_s - forecast.compute_s; }
};

// "ranks 2, 3, all of node 1, compute for …": the ranks that are closer to the slowest than to the median rank.
std::string slow_ranks_text(std::vector<RankExcess> ranks, double usual_s) {
  constexpr std::size_t kMostNamed = 4;
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const RankExcess& a, const RankExcess& b) { return a.more_s() > b.more_s(); });
  const RankExcess& slowest = ranks.front();
  const double limit = usual_s + (slowest.more_s() - usual_s) / 2.0;
  std::vector<std::string> names;
  bool whole_node = slowest.forecast.node.has_value();
  std::size_t slow = 0;
  for (const RankExcess& rank : ranks) {
    const bool is_slow = rank.more_s() > limit;
    whole_node = whole_node && is_slow == (rank.forecast.node == slowest.forecast.node);
    if (!is_slow) continue;
    if (++slow <= kMostNamed) names.push_back(rank.name);
  }
  std::string text = fmt::format("{}", fmt::join(names, ", "));
  if (slow > kMostNamed) text += fmt::format(" and {} more", slow - kMostNamed);
  if (whole_node && slow > 1) text += fmt::format(", all of node {},", *slowest.forecast.node);
  text +=
      fmt::format(" compute{} for {} (forecast: {}); the median rank computes {} {} than forecast", slow > 1 ? "" : "s",
                  time_in_seconds(slowest.compute_s), time_in_seconds(slowest.forecast.compute_s),
                  time_in_seconds(std::abs(usual_s)), usual_s < 0.0 ? "shorter" : "longer");
  return text;
}

}  // namespace

TracedFigures figures_of(const std::vector<TracedRank>& traces, const Forecast& answer) {
  const Breakdown& forecast = answer.result.breakdown;
  const RankForecasts forecasts(answer, forecast.compute_s + forecast.recompute_s + forecast.optimizer_s);
  TracedFigures figures;
  std::vector<double> times;
  std::vector<double> computes;
  std::vector<double> more;
  std::vector<double> leading;
  std::vector<RankExcess> excesses;
  std::array<std::vector<double>, kIdleCauses> idles;
  double communication = 0.0;
  double overlapped = 0.0;
  double forwards = 0.0;
  double backwards = 0.0;
  double forward_s = 0.0;
  double forward_forecast_s = 0.0;
  bool first = true;
  figures.waiting_separate =
      std::all_of(traces.begin(), traces.end(), [](const TracedRank& r) { return r.waiting_separate; });
  for (const TracedRank& rank : traces) {
    const TracedStep& step = rank.typical();
    excesses.push_back(
        {rank.rank ? fmt::format("rank {}", *rank.rank) : rank.file, step.compute_s, forecasts.of(rank)});
    times.push_back(step.time_s);
    computes.push_back(step.compute_s);
    more.push_back(excesses.back().more_s());
    const bool waits_first = !step.stretches.empty() && step.stretches.front().state == TracedState::kIdle;
    const double first_start_s = waits_first ? step.stretches.front().end_s : 0.0;
    leading.push_back(std::max(0.0, first_start_s - excesses.back().forecast.first_start_s));
    communication += step.communication_s;
    overlapped += step.overlapped_s();
    figures.mean_exposed_s += step.exposed_s / static_cast<double>(traces.size());
    for (std::size_t cause = 0; cause < kIdleCauses; ++cause) idles[cause].push_back(step.idle_by_cause_s[cause]);
    forwards += static_cast<double>(step.attention_forward);
    backwards += static_cast<double>(step.attention_backward);
    forward_s += step.forward_s;
    forward_forecast_s += excesses.back().forecast.forward_s;
    figures.has_launches = figures.has_launches || rank.has_launches;
    // If communication excludes waiting, the rank with the most exposed communication shows the links' time.
    const double waits = figures.waiting_separate ? 0.0 : std::min(forecast.bubble_s, messages_of(step));
    const bool replaces_current = figures.waiting_separate ? step.exposed_s > figures.exposed_s
                                                           : step.communication_s - waits < figures.communication_s;
    if (first || replaces_current) {
      figures.communication_s = step.communication_s - waits;
      figures.exposed_s = std::max(0.0, step.exposed_s - waits);
    }
    first = false;
  }
  figures.time_s = upper_median(times);
  figures.leading_idle_s = upper_median(leading);
  // If one of two ranks is slow, the other is the typical one.
  figures.compute_s = lower_median(computes);
  figures.more_compute_s = lower_median(more);
  figures.straggler_excess_s = *std::max_element(more.begin(), more.end()) - figures.more_compute_s;
  figures.slowest = slow_ranks_text(std::move(excesses), figures.more_compute_s);
  const bool known =
      std::all_of(traces.begin(), traces.end(), [&](const TracedRank& rank) { return forecasts.is_known(rank); });
  if (!known && forecasts.uneven_s() > 0.0) {
    // Any of the ranks may belong to the longest stage.
    figures.straggler_excess_s = std::max(0.0, figures.straggler_excess_s - forecasts.uneven_s());
    figures.slowest += fmt::format("; the traces do not identify ranks, and stages differ by {} in the forecast",
                                   time_in_seconds(forecasts.uneven_s()));
  }
  for (std::size_t cause = 0; cause < kIdleCauses; ++cause) figures.idle_s[cause] = upper_median(idles[cause]);
  if (backwards > 0.0) figures.forwards_per_backward = forwards / backwards;
  if (forward_forecast_s > 0.0) figures.forward_slowdown = forward_s / forward_forecast_s;
  if (communication > 0.0) figures.hidden_share = overlapped / communication;
  return figures;
}

}  // namespace flopcast
