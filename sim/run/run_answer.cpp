#include "sim/run/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "sim/variation/step_distribution.hpp"

namespace flopcast {

namespace {

constexpr int kOptionRuns = 50;

// P(N = n) for n from 0 to where the remaining probability is negligible.
std::vector<double> poisson_terms(double mean) {
  // Relative to the largest term, so that no term underflows.
  const auto peak = static_cast<std::size_t>(mean);
  constexpr double kDeviations = 10.0;
  constexpr std::size_t kAtLeast = 50;
  std::vector<double> terms(peak + kAtLeast + static_cast<std::size_t>(kDeviations * std::sqrt(mean)), 0.0);
  terms[peak] = 1.0;
  for (std::size_t n = peak; n > 0; --n) terms[n - 1] = terms[n] * static_cast<double>(n) / mean;
  for (std::size_t n = peak; n + 1 < terms.size(); ++n) terms[n + 1] = terms[n] * mean / static_cast<double>(n + 1);
  double all = 0.0;
  for (const double term : terms) all += term;
  for (double& term : terms) term /= all;
  return terms;
}

constexpr double kLow = 0.05;
constexpr double kMiddle = 0.5;
constexpr double kHigh = 0.95;

Quantiles quantiles_of(const std::vector<double>& values) {
  return {percentile(values, kLow), percentile(values, kMiddle), percentile(values, kHigh)};
}

// Figures of many simulated runs.
struct DrawnRuns {
  std::vector<double> days;
  std::vector<double> goodput;
  std::vector<double> ettr;
  std::vector<std::vector<double>> lost_s;  // means, indexed by account and phase
  double interruptions = 0.0;               // per run
  bool all_end = true;
};

DrawnRuns draw_runs(const RunCase& run, double step_s, int seed, int runs) {
  DrawnRuns drawn;
  drawn.lost_s.assign(run.accounts(), std::vector<double>(kRunPhases, 0.0));
  const double useful = static_cast<double>(run.steps) * step_s;
  for (int number = 0; number < runs; ++number) {
    const RunOutcome outcome = simulate_run(run, seed, number);
    drawn.all_end = drawn.all_end && outcome.finished;
    if (!outcome.finished) return drawn;
    Nanoseconds lost = 0;
    for (std::size_t account = 0; account < outcome.lost.size(); ++account) {
      for (std::size_t phase = 0; phase < kRunPhases; ++phase) {
        lost += outcome.lost[account][phase];
        drawn.lost_s[account][phase] += static_cast<double>(outcome.lost[account][phase]) * kNanosecond / runs;
      }
    }
    FLOPCAST_CHECK(lost == outcome.clock - run.steps * run.step);
    const double slower = static_cast<double>(outcome.lost_in(RunPhase::kSlow) + outcome.lost_in(RunPhase::kFewer));
    // Uses the unrounded step time, so that a run without failures takes exactly the days of the forecast.
    const double seconds = useful + static_cast<double>(lost) * kNanosecond;
    drawn.days.push_back(seconds / kSecondsADay);
    drawn.goodput.push_back(useful / seconds);
    drawn.ettr.push_back((useful + slower * kNanosecond) / seconds);
    drawn.interruptions += static_cast<double>(outcome.interruptions) / runs;
  }
  return drawn;
}

std::optional<double> price_of_days(const Job& job, double days) {
  if (!job.training.price_per_gpu_hour) return std::nullopt;
  constexpr double kHoursADay = 24.0;
  const double standing_by = static_cast<double>(job.failures->spares.value_or(0)) * job.cluster.devices_per_node;
  return days * kHoursADay * (job.cluster.devices() + standing_by) * *job.training.price_per_gpu_hour;
}

double mean_in_repair(const RunCase& run) {
  double mean = 0.0;
  for (const RunCause& cause : run.causes) {
    if (!cause.site) mean += cause.per_second * static_cast<double>(cause.repair) * kNanosecond * cause.nodes;
  }
  return mean;
}

// Racks are taken out whole, so nodes are counted in whole racks.
int whole_groups(const RunCase& run) {
  int largest = 1;
  for (const RunCause& cause : run.causes) {
    if (!cause.site) largest = std::max(largest, cause.nodes);
  }
  return largest;
}

RunResult result_of_runs(const Job& job, const RunCase& run, const DrawnRuns& drawn) {
  RunResult result;
  const Failures& failures = *job.failures;
  result.runs = failures.runs;
  result.seed = failures.seed;
  result.steps = static_cast<double>(run.steps);
  result.goodput = quantiles_of(drawn.goodput);
  result.ettr = quantiles_of(drawn.ettr);
  result.days = quantiles_of(drawn.days);
  if (const auto price = price_of_days(job, 1.0)) {
    result.cost_usd = Quantiles{*price * result.days.p5, *price * result.days.p50, *price * result.days.p95};
  }
  double days = 0.0;
  for (const double of_run : drawn.days) days += of_run / static_cast<double>(drawn.days.size());
  result.interruptions_per_day = drawn.interruptions / days;
  std::vector<double> by_phase(kRunPhases, 0.0);
  for (std::size_t account = 0; account < drawn.lost_s.size(); ++account) {
    double seconds = 0.0;
    for (std::size_t phase = 0; phase < kRunPhases; ++phase) {
      seconds += drawn.lost_s[account][phase];
      by_phase[phase] += drawn.lost_s[account][phase];
    }
    const bool is_cause = account < run.causes.size() || account == run.checkpoints();
    if (is_cause || seconds > 0.0) result.lost_by_cause.push_back({run.account_name(account), seconds});
  }
  for (std::size_t phase = 0; phase < kRunPhases; ++phase) {
    result.lost_by_phase.push_back({std::string(name_of(static_cast<RunPhase>(phase))), by_phase[phase]});
  }
  const auto seconds_of = [](Nanoseconds time) { return static_cast<double>(time) * kNanosecond; };
  result.storage_interval_s = seconds_of(run.storage.interval);
  result.memory_interval_s = seconds_of(run.memory.interval);
  const bool near = run.memory.interval > 0;
  result.checkpoint_interval_s = near ? result.memory_interval_s : result.storage_interval_s;
  result.checkpoint_gib = gibibytes(checkpoint_bytes(job));
  result.checkpoint_cost_s = seconds_of(near ? run.memory.blocking : run.storage.blocking);
  result.restore_s = seconds_of(run.storage.restore);
  result.nodes_in_repair = mean_in_repair(run);
  const int group = whole_groups(run);
  result.spares_for_95 = group * spares_for(result.nodes_in_repair / group, kHigh);
  result.spares_worth = group * spares_worth(result.nodes_in_repair / group, (run.nodes + group - 1) / group);
  const Interruptions interruptions = interruptions_of(job);
  const double mtbf = interruptions.gpu_mtbf_s / job.cluster.devices();
  result.closed_form_goodput =
      result.checkpoint_interval_s > 0.0
          ? daly_fraction(result.checkpoint_interval_s, interruptions.checkpoint_s, interruptions.restart_s, mtbf)
          : 1.0;
  return result;
}

// Tries changes, each with its description.
class RunOptions {
 public:
  RunOptions(const Forecast& forecast, const RunCase& run)
      : forecast_(forecast), run_(run), runs_(std::min(kOptionRuns, forecast.step.job.failures->runs)) {
    as_it_is_ = days_with(run);
  }

  void intervals(std::vector<RunOption>& options) const {
    if (run_.storage.interval == 0) return;
    for (const double times : {0.5, 2.0}) {
      RunCase run = run_;
      CheckpointLevel& level = run.memory.interval > 0 ? run.memory : run.storage;
      const double steps = std::round(times * static_cast<double>(level.interval) / static_cast<double>(run.step));
      level.interval = std::max<Nanoseconds>(1, static_cast<Nanoseconds>(steps)) * run.step;
      if (level.interval < level.writing || level.interval > run.steps * run.step) continue;
      if (run.memory.interval > 0 && run.storage.interval > 0) {
        const Nanoseconds each = std::max<Nanoseconds>(1, run.storage.interval / run.memory.interval);
        run.storage.interval = each * run.memory.interval;
      }
      const double seconds = static_cast<double>(level.interval) * kNanosecond;
      add(options, fmt::format("a checkpoint every {}", time_in_days(seconds)), run, *job().failures);
    }
  }

  void spares(std::vector<RunOption>& options) const {
    const int group = whole_groups(run_);
    const int enough = group * spares_worth(mean_in_repair(run_) / group, (run_.nodes + group - 1) / group);
    for (const int spares : {0, enough}) {
      if (spares == job().failures->spares || (spares == 0 && enough == 0)) continue;
      Failures failures = *job().failures;
      failures.spares = spares;
      RunCase run = run_;
      run.spares = spares;
      add(options, spares == 0 ? "no spare nodes" : fmt::format("{} spare node{}", spares, spares == 1 ? "" : "s"), run,
          failures);
    }
  }

  void checkpoints(std::vector<RunOption>& options) const {
    const bool knows_host = job().cluster.host_bandwidth.value() > 0.0;
    if (!knows_host || run_.storage.interval == 0) return;
    Failures failures = *job().failures;
    failures.checkpoint.cost.reset();
    if (!failures.checkpoint.interval) {
      if (!failures.checkpoint.asynchronous) {
        failures.checkpoint.asynchronous = true;
        add(options, "checkpoints written during the steps", failures);
        failures.checkpoint.asynchronous = false;
      }
      if (!failures.checkpoint.in_memory) {
        failures.checkpoint = job().failures->checkpoint;
        failures.checkpoint.in_memory = true;
        add(options, "additional copies in the memory of peers", failures);
      }
    }
  }

  void others(std::vector<RunOption>& options) const {
    RunCase run = run_;
    bool detects = false;
    for (RunCause& cause : run.causes) {
      detects = detects || cause.detection > 0;
      cause.detection /= 2;
    }
    if (detects) add(options, "failures found in half the time", run, *job().failures);
    Failures failures = *job().failures;
    const int dp = job().layout.dp;
    if (!failures.elastic && dp > 1 && !run_.causes.empty()) {
      constexpr int kShare = 10;
      failures.elastic = ElasticReplicas{std::max(1, dp - std::max(1, dp / kShare)), ElasticReplicas().regroup};
      add(options, fmt::format("continues with fewer replicas, down to {}", failures.elastic->least_dp), failures);
    }
    if (run_.slow_node_share > 0.0 && run_.slow_node_evict == 0) {
      run = run_;
      constexpr double kHour = 3'600.0;
      run.slow_node_evict = in_nanoseconds(kHour);
      add(options, "slow nodes replaced after an hour", run, *job().failures);
    }
  }

 private:
  const Job& job() const { return forecast_.step.job; }
  double days_with(const RunCase& run) const {
    const DrawnRuns drawn = draw_runs(run, forecast_.result.iteration.time_s, job().failures->seed, runs_);
    return drawn.all_end ? percentile(drawn.days, kMiddle) : 0.0;
  }
  void add(std::vector<RunOption>& options, std::string change, const RunCase& run, const Failures& failures) const {
    const double days = days_with(run);
    if (days <= 0.0 || as_it_is_ <= 0.0) return;
    RunOption option;
    option.change = std::move(change);
    option.days_p50 = days;
    option.goodput_p50 = static_cast<double>(run.steps) * forecast_.result.iteration.time_s / (days * kSecondsADay);
    option.days_saved = as_it_is_ - days;
    Job changed = job();
    changed.failures = failures;
    const auto before = price_of_days(job(), as_it_is_);
    const auto after = price_of_days(changed, days);
    if (before && after) option.saved_usd = *before - *after;
    options.push_back(std::move(option));
  }

  // Adds an option for a job with a changed section.
  void add(std::vector<RunOption>& options, std::string change, const Failures& failures) const {
    Forecast changed = forecast_;
    changed.step.job.failures = failures;
    add(options, std::move(change), run_case_of(changed), failures);
  }

  const Forecast& forecast_;
  const RunCase& run_;
  int runs_;
  double as_it_is_ = 0.0;
};

std::vector<std::string> assumptions_of_run(const Forecast& forecast, const RunCase& run) {
  const Job& job = forecast.step.job;
  const Failures& failures = *job.failures;
  std::vector<std::string> told;
  if (!forecast.result.training)
    told.push_back("failures: the run is 30 days of steps; set training.tokens for another length");
  if (!failures.spares && mean_in_repair(run) > 0.0) {
    told.push_back("failures.spares: a replacement is always available");
  }
  const bool own_cost = !failures.checkpoint.cost && !failures.mtbf;
  if (own_cost && !failures.checkpoint.storage_bandwidth && run.storage.interval > 0) {
    told.push_back("failures.checkpoint.storage_bandwidth: 1.2 GB/s per node, as for BLOOM");
  }
  if (!failures.detection && !failures.mtbf && !run.causes.empty())
    told.push_back("failures.detection: 60 s for causes without one");
  if (failures.elastic && !run.keeps_state) {
    told.push_back("failures.elastic: replicas share their state, so the loss of one returns the run to a checkpoint");
  }
  return told;
}

}  // namespace

int spares_for(double mean_in_repair, double share) {
  FLOPCAST_CHECK(mean_in_repair >= 0.0 && share < 1.0);
  const std::vector<double> terms = poisson_terms(mean_in_repair);
  double below = 0.0;
  std::size_t spares = 0;
  for (; spares < terms.size(); ++spares) {
    below += terms[spares];
    if (below >= share) break;
  }
  return static_cast<int>(spares);
}

int spares_worth(double mean_in_repair, int nodes) {
  const std::vector<double> terms = poisson_terms(mean_in_repair);
  double more = 1.0;  // P(N > s)
  double least = nodes;
  std::size_t best = 0;
  for (std::size_t spares = 0; spares < terms.size(); ++spares) {
    more = std::max(0.0, more - terms[spares]);
    const double cost = static_cast<double>(spares) + nodes * more;
    constexpr double kSame = 1e-9;
    if (spares > 0 && cost >= least - kSame) continue;
    least = cost;
    best = spares;
  }
  return static_cast<int>(best);
}

std::optional<RunLife> add_run(Forecast& forecast, WithOptions with_options) {
  const Job& job = forecast.step.job;
  if (!job.failures) return std::nullopt;
  const Failures& failures = *job.failures;
  RunLife life;
  const Interruptions interruptions = interruptions_of(job);
  const bool ends = failures.elastic || goodput_of(interruptions, job.cluster.devices()).finishes();
  DrawnRuns drawn;
  if (ends) {
    life.run = run_case_of(forecast);
    drawn = draw_runs(life.run, forecast.result.iteration.time_s, failures.seed, failures.runs);
  }
  if (!ends || !drawn.all_end) {
    forecast.result.warnings.push_back(
        fmt::format("the run never finishes: a failure every {}, {} per checkpoint and {} per restart leave "
                    "less than 1 % of the time for training",
                    time_in_days(interruptions.gpu_mtbf_s / job.cluster.devices()),
                    time_in_days(interruptions.checkpoint_s), time_in_days(interruptions.restart_s)));
    return std::nullopt;
  }
  RunResult result = result_of_runs(job, life.run, drawn);
  if (with_options == WithOptions::kYes) {
    const RunOptions options(forecast, life.run);
    options.intervals(result.options);
    options.spares(result.options);
    options.checkpoints(result.options);
    options.others(result.options);
  }
  std::size_t median = 0;
  for (std::size_t number = 1; number < drawn.days.size(); ++number) {
    const double off = std::abs(drawn.days[number] - result.days.p50);
    if (off < std::abs(drawn.days[median] - result.days.p50)) median = number;
  }
  life.outcome = simulate_run(life.run, failures.seed, static_cast<int>(median), &life.spans);
  forecast.result.run = std::move(result);
  if (failures.elastic && life.run.least_replicas == 0) {
    forecast.result.warnings.push_back(
        fmt::format("failures.elastic.least_dp: {} exceeds the {} replicas: the run never continues with fewer",
                    failures.elastic->least_dp, job.layout.dp));
  }
  for (std::string& one : assumptions_of_run(forecast, life.run)) {
    forecast.result.assumptions.push_back(std::move(one));
  }
  return life;
}

Nanoseconds RunOutcome::lost_in(RunPhase phase) const {
  Nanoseconds sum = 0;
  for (const auto& account : lost) sum += account[static_cast<std::size_t>(phase)];
  return sum;
}

}  // namespace flopcast
