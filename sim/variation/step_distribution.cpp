#include "sim/variation/step_distribution.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "model/error/error.hpp"
#include "model/layout/rank_grid.hpp"
#include "sim/variation/joined_replicas.hpp"
#include "sim/variation/percentile.hpp"
#include "sim/variation/random_factors.hpp"

namespace flopcast {

namespace {

// A task of a replica, or the optimizer of a rank: what of its time a slow device stretches.
struct Work {
  double ticks = 0.0;
  double compute = 0.0;
  std::size_t rank = 0;
  bool varies = false;  // sends do not

  Ticks taking(double slowness, double factor) const {
    return static_cast<Ticks>(std::llround((ticks + (slowness - 1.0) * compute) * factor));
  }
};

Seconds compute_of(const StageCosts& stage, ActionKind kind) {
  const Seconds input_gradient = stage.recompute.compute + stage.input_gradient.compute;
  switch (kind) {
    case ActionKind::kForward:
      return stage.forward.compute;
    case ActionKind::kInputGradient:
      return input_gradient + stage.split_slowdown;
    case ActionKind::kWeightGradient:
      return stage.weight_gradient.compute;
    case ActionKind::kBackward:
      break;
  }
  return input_gradient + stage.weight_gradient.compute;
}

class Sampler {
 public:
  Sampler(const PreparedStep& step, const Variation& variation);
  Ticks next();

 private:
  void list_work(const PreparedStep& step);
  void place_stragglers(const PreparedStep& step, const Variation& variation);
  void draw_slowness(std::size_t replica);
  void draw_optimizers();

  struct RandomStraggler {
    double probability = 0.0;  // of any device of a pipeline rank
    double factor = 1.0;
  };

  RandomFactors factors_;
  JoinedReplicas replicas_;
  std::size_t replica_count_;
  std::size_t in_step_;
  std::vector<Work> tasks_;
  std::vector<Work> optimizers_;              // by pipeline rank
  std::vector<std::vector<double>> lasting_;  // slowness by replica and pipeline rank
  std::vector<RandomStraggler> random_;
  std::vector<double> slowness_;  // of the replica at hand, by pipeline rank
  std::vector<Ticks> durations_;
  std::vector<Ticks> optimizer_;
};

Sampler::Sampler(const PreparedStep& step, const Variation& variation)
    : factors_(variation.jitter, variation.seed),
      replicas_(step.program, step.times),
      replica_count_(static_cast<std::size_t>(step.job.layout.dp)),
      in_step_(static_cast<std::size_t>(replicas_in_step(step))) {
  list_work(step);
  place_stragglers(step, variation);
  durations_.resize(tasks_.size());
}

void Sampler::list_work(const PreparedStep& step) {
  const LoweredStep& work = replicas_.work();
  const double slices = step.program.slices_per_microbatch;
  const auto compute_ticks = [&](const Action& action) {
    return compute_of(step.costs.stages[action.stage], action.kind).value() / slices * kTicksPerSecond;
  };
  for (StreamId stream = 0; stream < work.graph.stream_count(); ++stream) {
    for (TaskId task = work.graph.first_task(stream); task < work.graph.first_task(stream + 1); ++task) {
      Work entry;
      entry.ticks = static_cast<double>(work.graph.duration_of(task));
      entry.rank = stream;
      entry.varies = is_action(work.labels[task].kind);
      if (entry.varies) entry.compute = compute_ticks(work.labels[task].action);
      if (const Action* second = replicas_.second_of_pair(task)) entry.compute += compute_ticks(*second);
      entry.compute = std::min(entry.compute, entry.ticks);
      tasks_.push_back(entry);
    }
  }
  for (std::size_t rank = 0; rank < step.times.flush.size(); ++rank) {
    const auto ticks = static_cast<double>(step.times.flush[rank].optimizer);
    optimizers_.push_back({ticks, ticks, rank, true});
  }
}

void Sampler::place_stragglers(const PreparedStep& step, const Variation& variation) {
  const Layout& layout = step.job.layout;
  const RankGrid grid(layout);
  const std::size_t ranks = step.program.ranks.size();
  lasting_.assign(replica_count_, std::vector<double>(ranks, 1.0));
  for (const Straggler& straggler : variation.stragglers) {
    if (!straggler.device) {
      double all_fast = 1.0;
      for (int device = 0; device < layout.tp * layout.cp; ++device) all_fast *= 1.0 - straggler.probability;
      random_.push_back({1.0 - all_fast, straggler.factor});
      continue;
    }
    if (*straggler.device >= grid.ranks()) {
      throw ConfigError({"--straggler", fmt::format("there is no device {}", *straggler.device), "",
                         fmt::format("devices are 0 to {}", grid.ranks() - 1)});
    }
    const auto replica = static_cast<std::size_t>(grid.coordinate(*straggler.device, Axis::kData));
    const auto rank = static_cast<std::size_t>(grid.coordinate(*straggler.device, Axis::kPipeline));
    lasting_[replica][rank] = std::max(lasting_[replica][rank], straggler.factor);
  }
}

void Sampler::draw_slowness(std::size_t replica) {
  slowness_ = lasting_[replica];
  for (const RandomStraggler& straggler : random_) {
    for (double& slowness : slowness_) {
      if (factors_.chance(straggler.probability)) slowness = std::max(slowness, straggler.factor);
    }
  }
}

void Sampler::draw_optimizers() {
  for (const Work& work : optimizers_) {
    optimizer_[work.rank] = std::max(optimizer_[work.rank], work.taking(slowness_[work.rank], factors_.next()));
  }
}

Ticks Sampler::next() {
  replicas_.begin();
  optimizer_.assign(optimizers_.size(), 0);
  std::size_t together = 0;
  for (std::size_t replica = 0; replica < replica_count_; ++replica) {
    draw_slowness(replica);
    draw_optimizers();
    for (std::size_t task = 0; task < tasks_.size(); ++task) {
      const Work& work = tasks_[task];
      const Ticks duration =
          work.varies ? work.taking(slowness_[work.rank], factors_.next()) : static_cast<Ticks>(work.ticks);
      durations_[task] = together == 0 ? duration : std::max(durations_[task], duration);
    }
    ++together;
    if (together < in_step_ && replica + 1 < replica_count_) continue;
    replicas_.add_replica(durations_);
    together = 0;
  }
  return replicas_.end_of_step(optimizer_);
}

void refuse_unfit(const PreparedStep& step) {
  if (!step.program.asynchronous) return;
  throw ConfigError({"layout.schedule", fmt::format("{} has no steps whose times vary", step.job.layout.schedule),
                     step.job.origins.where("layout.schedule"),
                     "--jitter and --straggler need a schedule that flushes"});
}

}  // namespace

std::string Straggler::text() const {
  if (device) return fmt::format("device {} x {:g}", *device, factor);
  return fmt::format("{:g} % of devices x {:g}", 100.0 * probability, factor);
}

int replicas_in_step(const PreparedStep& step) {
  const Layout& layout = step.job.layout;
  const auto exchanges = [](const StageCosts& stage) { return stage.dp.messages > 0.0; };
  const bool within_passes = std::any_of(step.costs.stages.begin(), step.costs.stages.end(), exchanges);
  const int sharing = std::max(within_passes ? layout.gradient_shards() : 1, layout.ep);
  return std::clamp((sharing + layout.cp - 1) / layout.cp, 1, layout.dp);
}

std::vector<Ticks> step_time_samples(const PreparedStep& step, const Variation& variation) {
  FLOPCAST_CHECK(variation.samples >= 1);
  refuse_unfit(step);
  Sampler sampler(step, variation);
  std::vector<Ticks> times;
  times.reserve(static_cast<std::size_t>(variation.samples));
  for (int sample = 0; sample < variation.samples; ++sample) times.push_back(sampler.next());
  return times;
}

DistributionResult sample_step_times(const PreparedStep& step, const Variation& variation) {
  std::vector<double> times;
  for (const Ticks ticks : step_time_samples(step, variation)) {
    times.push_back(static_cast<double>(ticks) * kSecondsPerTick);
  }
  std::sort(times.begin(), times.end());
  const auto count = static_cast<double>(times.size());
  DistributionResult result;
  result.samples = variation.samples;
  result.seed = variation.seed;
  result.jitter = variation.jitter;
  for (const Straggler& straggler : variation.stragglers) result.stragglers.push_back(straggler.text());
  double sum = 0.0;
  for (const double time : times) sum += time - times.front();
  result.mean_s = times.front() + sum / count;
  double squares = 0.0;
  for (const double time : times) squares += (time - result.mean_s) * (time - result.mean_s);
  result.std_s = times.size() > 1 ? std::sqrt(squares / (count - 1.0)) : 0.0;
  constexpr double kP5 = 0.05;
  constexpr double kP50 = 0.5;
  constexpr double kP95 = 0.95;
  constexpr double kP99 = 0.99;
  result.p5_s = percentile(times, kP5);
  result.p50_s = percentile(times, kP50);
  result.p95_s = percentile(times, kP95);
  result.p99_s = percentile(times, kP99);
  return result;
}

void add_distribution(const Variation& variation, Forecast& forecast) {
  DistributionResult distribution = sample_step_times(forecast.step, variation);
  distribution.slowdown = distribution.mean_s / forecast.result.iteration.time_s - 1.0;
  std::vector<std::string>& assumptions = forecast.result.assumptions;
  const int dp = forecast.step.job.layout.dp;
  assumptions.push_back(fmt::format(
      "distribution: each pass and optimizer step of {} takes a lognormal multiple of its time, mean 1, standard "
      "deviation {:g} %; transfers and collectives do not vary",
      dp == 1 ? "the pipeline" : fmt::format("{} replicas", dp), 100.0 * variation.jitter));
  forecast.result.distribution = std::move(distribution);
}

}  // namespace flopcast
