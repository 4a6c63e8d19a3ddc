#include "sim/variation/step_distribution.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/text/error.hpp"
#include "model/layout/rank_grid.hpp"

namespace flopcast {

namespace {

constexpr int kPickBits = 14;
constexpr std::size_t kQuantiles = std::size_t{1} << kPickBits;
constexpr int kPicksPerNumber = 4;
constexpr int kBitsPerPick = 16;
constexpr double kLn2 = 0.693147180559945309417;

template <std::size_t kCount>
double polynomial(const double (&coefficients)[kCount], double x) {
  double value = 0.0;
  for (std::size_t power = kCount; power-- > 0;) value = value * x + coefficients[power];
  return value;
}

}  // namespace

// ln x = k ln 2 + 2 artanh((m - 1)/(m + 1)) with x = m 2^k and m around 1.
double natural_logarithm(double x) {
  constexpr double kSqrtHalf = 0.70710678118654752440;
  constexpr int kLastPower = 25;
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < kSqrtHalf) {
    mantissa *= 2.0;
    --exponent;
  }
  const double ratio = (mantissa - 1.0) / (mantissa + 1.0);
  const double square = ratio * ratio;
  double series = 0.0;
  for (int power = kLastPower; power >= 1; power -= 2) series = series * square + 1.0 / power;
  return exponent * kLn2 + 2.0 * ratio * series;
}

// e^x = 2^k e^r with |r| at most ln 2 / 2.
double exponential(double x) {
  constexpr int kTerms = 16;
  const double whole = std::floor(x / kLn2 + 0.5);
  const double rest = x - whole * kLn2;
  double series = 1.0;
  for (int term = kTerms; term >= 1; --term) series = 1.0 + series * rest / term;
  return std::ldexp(series, static_cast<int>(whole));
}

namespace {

// A task of a replica, or the optimizer of a rank; a slow device stretches `compute`.
struct Work {
  double ticks = 0.0;
  double compute = 0.0;
  std::size_t rank = 0;
  bool varies = false;  // false for sends

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
    double probability = 0.0;  // probability that any device of a pipeline rank is slow
    double factor = 1.0;
  };

  RandomFactors factors_;
  SynchronizedReplicas replicas_;
  std::size_t replica_count_;
  std::size_t in_step_;
  std::vector<Work> tasks_;
  std::vector<Work> optimizers_;              // indexed by pipeline rank
  std::vector<std::vector<double>> lasting_;  // slowness, indexed by replica and pipeline rank
  std::vector<RandomStraggler> random_;
  std::vector<double> slowness_;  // of the current replica, indexed by pipeline rank
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
  throw ConfigError({"layout.schedule", fmt::format("{} has no steps whose times could vary", step.job.layout.schedule),
                     step.job.origins.where("layout.schedule"),
                     "--jitter and --straggler require a schedule that flushes"});
}

}  // namespace

double percentile(std::vector<double> values, double share) {
  FLOPCAST_CHECK(!values.empty() && share >= 0.0 && share <= 1.0);
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  if (below + 1 >= values.size()) return values.back();
  return values[below] + (place - static_cast<double>(below)) * (values[below + 1] - values[below]);
}

// The coefficients are those of the paper.
double normal_quantile(double probability) {
  static constexpr double kCentral[] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                                        1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                        3.3430575583588128105e+4, 2.5090809287301226727e+3};
  static constexpr double kCentralBelow[] = {1.0,
                                             4.2313330701600911252e+1,
                                             6.8718700749205790830e+2,
                                             5.3941960214247511077e+3,
                                             2.1213794301586595867e+4,
                                             3.9307895800092710610e+4,
                                             2.8729085735721942674e+4,
                                             5.2264952788528545610e+3};
  static constexpr double kMiddle[] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                                       3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                                       2.27238449892691845833e-2, 7.74545014278341407640e-4};
  static constexpr double kMiddleBelow[] = {1.0,
                                            2.05319162663775882187e0,
                                            1.67638483018380384940e0,
                                            6.89767334985100004550e-1,
                                            1.48103976427480074590e-1,
                                            1.51986665636164571966e-2,
                                            5.47593808499534494600e-4,
                                            1.05075007164441684324e-9};
  static constexpr double kFar[] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                                    2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                    2.71155556874348757815e-5, 2.01033439929228813265e-7};
  static constexpr double kFarBelow[] = {1.0,
                                         5.99832206555887937690e-1,
                                         1.36929880922735805310e-1,
                                         1.48753612908506148525e-2,
                                         7.86869131145613259100e-4,
                                         1.84631831751005468180e-5,
                                         1.42151175831644588870e-7,
                                         2.04426310338993978564e-15};
  constexpr double kCentralHalfWidth = 0.425;
  constexpr double kCentralShift = 0.180625;
  constexpr double kMiddleEnd = 5.0;
  constexpr double kMiddleShift = 1.6;
  const double offset = probability - 0.5;
  if (std::fabs(offset) <= kCentralHalfWidth) {
    const double r = kCentralShift - offset * offset;
    return offset * polynomial(kCentral, r) / polynomial(kCentralBelow, r);
  }
  const double tail = offset < 0.0 ? probability : 1.0 - probability;
  const double root = std::sqrt(-natural_logarithm(tail));
  const double quantile = root <= kMiddleEnd
                              ? polynomial(kMiddle, root - kMiddleShift) / polynomial(kMiddleBelow, root - kMiddleShift)
                              : polynomial(kFar, root - kMiddleEnd) / polynomial(kFarBelow, root - kMiddleEnd);
  return offset < 0.0 ? -quantile : quantile;
}

RandomFactors::RandomFactors(double deviation, std::uint64_t seed) : generator_(seed) {
  if (deviation == 0.0) return;
  const double variance = natural_logarithm(1.0 + deviation * deviation);
  const double s = std::sqrt(variance);
  double sum = 0.0;
  quantiles_.reserve(kQuantiles);
  for (std::size_t index = 0; index < kQuantiles; ++index) {
    const double probability = (static_cast<double>(index) + 0.5) / static_cast<double>(kQuantiles);
    quantiles_.push_back(exponential(s * normal_quantile(probability) - variance / 2.0));
    sum += quantiles_.back();
  }
  const double mean = sum / static_cast<double>(kQuantiles);
  for (double& quantile : quantiles_) quantile /= mean;
}

double RandomFactors::next() {
  if (quantiles_.empty()) return 1.0;
  if (picks_left_ == 0) {
    bits_ = generator_();
    picks_left_ = kPicksPerNumber;
  }
  --picks_left_;
  const double factor = quantiles_[bits_ & (kQuantiles - 1)];
  bits_ >>= kBitsPerPick;
  return factor;
}

bool RandomFactors::chance(double probability) {
  constexpr double kTwoTo53 = 9007199254740992.0;
  constexpr int kShift = 11;
  return static_cast<double>(generator_() >> kShift) < probability * kTwoTo53;
}

std::string Straggler::text() const {
  if (device) return fmt::format("device {} x {:g}", *device, factor);
  return fmt::format("{:g} % of devices x {:g}", 100.0 * probability, factor);
}

int replicas_in_step(const PreparedStep& step) {
  const Layout& layout = step.job.layout;
  const auto exchanges = [](const StageCosts& stage) { return stage.sent.dp.messages > 0.0; };
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
      "distribution: the time of each pass and optimizer step of {} has a lognormal factor with mean 1 and standard "
      "deviation {:g} %; transfers and collectives do not vary",
      dp == 1 ? "the pipeline" : fmt::format("{} replicas", dp), 100.0 * variation.jitter));
  forecast.result.distribution = std::move(distribution);
}

}  // namespace flopcast
