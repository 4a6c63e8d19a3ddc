#include "calibrate/runs/fit_runs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "calibrate/device/fits.hpp"
#include "model/job/read_job.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/interval.hpp"

namespace flopcast {

namespace {

using Vector = std::vector<double>;

// Chosen; docs/calibrate.md lists the results on sources of which only a few runs are known.
constexpr double kDetermined = 0.9;    // a constant is determined if its spread falls below this share of the prior's
constexpr double kPriorFreedom = 3.0;  // degrees of freedom of the intervals, as for the published sources
constexpr double kPriorRows = 8.0;     // number of residuals that the published sources count as
constexpr double kQuantile90 = 1.644854;

std::string cluster_links(const Cluster& cluster) {
  return fmt::format("{} {} {} {} {}", cluster.intra_bandwidth.value(), cluster.intra_efficiency,
                     cluster.nic_bandwidth.value(), cluster.nic_efficiency, cluster.nics_per_node);
}

// Reason why the runs cannot share a constant; empty if they can.
std::string disagreement(const RunConstant& constant, const std::vector<UserRun>& runs) {
  const bool of_links = constant.name.rfind("device.", 0) != 0 && constant.name.rfind("stack.", 0) != 0;
  for (const UserRun& run : runs) {
    const Job& first = runs.front().job;
    if (of_links && cluster_links(run.job.cluster) != cluster_links(first.cluster)) {
      return fmt::format("the runs are on clusters with different links: {} and {}", first.cluster.name,
                         run.job.cluster.name);
    }
    if (constant.name.rfind("stack.", 0) == 0 && stack_of_run(run.job) != stack_of_run(first)) {
      return fmt::format("the runs use different stacks: {} and {}", stack_of_run(first), stack_of_run(run.job));
    }
  }
  return "";
}

class RunFitter {
 public:
  RunFitter(const std::vector<UserRun>& runs, const ReadFile& read_file) : runs_(runs), read_file_(read_file) {
    const IntervalModel& shipped = shipped_interval_model();
    for (const UserRun& run : runs_) {
      const Forecast answer = forecast(run.job, read_file_);
      catalogue_s_.push_back(answer.result.iteration.time_s);
      const ForecastFacts facts = facts_of(answer.step.job, answer.result.communication.exposed_fraction);
      distances_.push_back(shipped.distance(facts));
    }
  }

  double time_of(const Job& job, const std::vector<std::string>& names, const Vector& at) const {
    return step_time(scaled(job, names, at), read_file_);
  }

  // d ln(time) / d ln(constant) for one job, at the given constants.
  Vector slopes(const Job& job, const std::vector<std::string>& names, const Vector& at, double time_s) const {
    const StepTimeOf time = [this](const Job& moved) { return step_time(moved, read_file_); };
    return run_sensitivities(scaled(job, names, at), names, time_s, time);
  }

  // Posterior of ln(fitted / catalogue) of the constants; linearised around the result of the last round.
  Posterior fit(const std::vector<std::string>& names) const {
    constexpr int kRounds = 6;
    constexpr double kConverged = 1e-4;
    RobustRows rows;
    rows.distances = distances_;
    rows.usual_noise = shipped_interval_model().within_source();
    rows.prior_rows = kPriorRows;
    for (const std::string& name : names) {
      rows.prior_spreads.push_back(mean_distance() * find_run_constant(name)->spread);
    }
    Posterior posterior;
    posterior.at.assign(names.size(), 0.0);
    for (int round = 0; round < kRounds; ++round) {
      rows.slopes.clear();
      rows.left.clear();
      for (const UserRun& run : runs_) {
        const double time_s = time_of(run.job, names, posterior.at);
        rows.slopes.push_back(slopes(run.job, names, posterior.at, time_s));
        rows.left.push_back(std::log(run.measured_s / time_s) + dot_product(rows.slopes.back(), posterior.at));
      }
      const Vector before = std::exchange(posterior, robust_posterior(rows)).at;
      double moved = 0.0;
      for (std::size_t index = 0; index < before.size(); ++index) {
        moved = std::max(moved, std::abs(posterior.at[index] - before[index]));
      }
      if (moved < kConverged) break;
    }
    return posterior;
  }

  const std::vector<double>& catalogue_s() const { return catalogue_s_; }
  double mean_distance() const {
    double sum = 0.0;
    for (const double distance : distances_) sum += distance;
    return sum / static_cast<double>(distances_.size());
  }

 private:
  static Job scaled(Job job, const std::vector<std::string>& names, const Vector& at) {
    job.training.fitted.reset();
    for (std::size_t index = 0; index < names.size(); ++index) {
      const RunConstant* constant = find_run_constant(names[index]);
      if (constant->value(job) > 0.0) constant->scale(job, std::exp(at[index]));
    }
    return job;
  }

  const std::vector<UserRun>& runs_;
  const ReadFile& read_file_;
  std::vector<double> catalogue_s_;
  std::vector<double> distances_;
};

// A layout near one of the user's runs, with the slopes of its forecast.
struct Candidate {
  nlohmann::json root;
  std::string layout;
  Job job;
  double time_s = 0.0;
  Vector slopes;
};

// A change of one setting of a run's layout.
struct LayoutChange {
  const char* key;
  double factor;
};
constexpr LayoutChange kLayoutChanges[] = {
    {"tp", 2.0},    {"tp", 0.5},   {"pp", 2.0}, {"pp", 0.5}, {"micro_batch_size", 2.0}, {"micro_batch_size", 0.5},
    {"nodes", 2.0}, {"nodes", 0.5}};

int whole_of(const nlohmann::json& values, const Job& job, const std::string& key) {
  if (key == "nodes") return job.cluster.nodes;
  if (key == "tp") return job.layout.tp;
  if (key == "pp") return job.layout.pp;
  return values.value("micro_batch_size", job.layout.micro_batch_size);
}

std::optional<nlohmann::json> varied(const UserRun& run, const LayoutChange& change) {
  nlohmann::json root = run.root;
  nlohmann::json& layout = root["layout"];
  const double value = whole_of(layout, run.job, change.key) * change.factor;
  if (value < 1.0 || value != std::floor(value)) return std::nullopt;
  if (std::string_view(change.key) == "nodes") {
    nlohmann::json& cluster = root["cluster"];
    if (!cluster.is_object() || run.job.cluster.uneven()) return std::nullopt;
    cluster["nodes"] = static_cast<int>(value);
  } else {
    layout[change.key] = static_cast<int>(value);
  }
  layout.erase("dp");
  for (const char* key : {"stage_layers", "vpp", "schedule", "accumulation", "group_size"}) {
    if (std::string_view(change.key) == "pp") layout.erase(key);
  }
  if (run.job.layout.tp == 1 && layout.value("tp", 1) > 1) layout["sequence_parallel"] = true;
  if (layout.value("tp", run.job.layout.tp) == 1) layout["sequence_parallel"] = false;
  return root;
}

std::vector<Candidate> candidates_near(const std::vector<UserRun>& runs, const ReadFile& read_file) {
  constexpr std::size_t kMostRuns = 8;
  std::vector<Candidate> all;
  std::set<std::string> known;
  for (const UserRun& run : runs) known.insert(run.root->dump());
  for (std::size_t index = 0; index < std::min(kMostRuns, runs.size()); ++index) {
    for (const LayoutChange& change : kLayoutChanges) {
      std::optional<nlohmann::json> root = varied(runs[index], change);
      if (!root || !known.insert(root->dump()).second) continue;
      try {
        Candidate candidate;
        candidate.job = read_job(*root, Origins{});
        const Forecast answer = forecast(candidate.job, read_file);
        if (!answer.result.memory.fits) continue;
        candidate.time_s = answer.result.iteration.time_s;
        candidate.layout =
            fmt::format("{} with {} {}", runs[index].id, change.key,
                        whole_of(runs[index].root->at("layout"), runs[index].job, change.key) * change.factor);
        candidate.root = std::move(*root);
        all.push_back(std::move(candidate));
      } catch (const ConfigError&) {
        continue;  // not a valid layout of this model
      }
    }
  }
  return all;
}

// Total reduction of the variances of all candidates if one were measured with this noise.
double gain_of(const Vector& measured, const std::vector<Candidate>& all, const Posterior& posterior, double noise) {
  const Vector along = posterior.times(measured);
  const double scale = noise * noise + dot_product(measured, along);
  double gain = 0.0;
  for (const Candidate& other : all) {
    const double shared = dot_product(other.slopes, along);
    gain += shared * shared / scale;
  }
  return gain;
}

std::optional<NextRun> next_run(const RunFitter& fitter, const std::vector<UserRun>& runs,
                                const std::vector<std::string>& names, const Posterior& posterior,
                                const ReadFile& read_file) {
  std::vector<Candidate> candidates = candidates_near(runs, read_file);
  if (candidates.empty()) return std::nullopt;
  const Vector nothing(posterior.at.size(), 0.0);
  for (Candidate& candidate : candidates) {
    candidate.slopes = fitter.slopes(candidate.job, names, nothing, candidate.time_s);
  }
  const double noise = fitter.mean_distance() * posterior.noise;
  double best = -1.0;
  const Candidate* chosen = &candidates.front();
  double total = 0.0;
  for (const Candidate& candidate : candidates) {
    const double spread = posterior.spread_along(candidate.slopes);
    total += spread * spread;
    const double gain = gain_of(candidate.slopes, candidates, posterior, noise);
    if (gain <= best) continue;
    best = gain;
    chosen = &candidate;
  }
  const Vector along = posterior.times(chosen->slopes);
  std::string from;
  double largest = -1.0;
  for (std::size_t index = 0; index < names.size(); ++index) {
    const double part = chosen->slopes[index] * along[index];
    if (part <= largest) continue;
    largest = part;
    from = names[index];
  }
  NextRun next;
  next.job = chosen->root;
  next.layout = chosen->layout;
  next.half_width = kQuantile90 * posterior.spread_along(chosen->slopes);
  const auto count = static_cast<double>(candidates.size());
  next.why = fmt::format(
      "{}: its forecast is uncertain by ± {:.1f} %, mostly because of {}; measuring it narrows the forecasts of the {} "
      "layouts near your runs to ± {:.1f} % from ± {:.1f} %",
      chosen->layout, 1e2 * next.half_width, from, candidates.size(),
      1e2 * kQuantile90 * std::sqrt(std::max(0.0, total - best) / count), 1e2 * kQuantile90 * std::sqrt(total / count));
  return next;
}

void require_one_device(const std::vector<UserRun>& runs) {
  for (const UserRun& run : runs) {
    if (run.job.cluster.uneven()) {
      throw ConfigError({"cluster.nodes", fmt::format("run {} has different kinds of nodes", run.id), "",
                         "fit only runs on clusters with identical nodes"});
    }
    const std::string& first = runs.front().job.cluster.device.name;
    if (run.job.cluster.device.name == first) continue;
    throw ConfigError({"cluster.device",
                       fmt::format("run {} used device {}, but run {} used {}", runs.front().id, first, run.id,
                                   run.job.cluster.device.name),
                       "", "one profile describes one device: fit the runs of each device separately"});
  }
}

// Writes the profile keys of a constant at its fitted value.
void add_constant(const std::string& name, const Job& fitted, DeviceProfile& profile) {
  const Device& device = fitted.cluster.device;
  nlohmann::json& figures = profile.cluster["device"];
  const auto micros = [](Seconds time) { return fmt::format("{:.6g}us", time.value() * 1e6); };
  if (name == "device.gemm_efficiency") {
    figures["gemm_efficiency"] = device.gemm_efficiency;
    for (std::size_t index = 0; index < device.gemm_efficiency_by_precision.size(); ++index) {
      const double share = device.gemm_efficiency_by_precision[index];
      if (share > 0.0) figures["gemm_efficiency_by_precision"][names_of<Precision>()[index]] = share;
    }
    if (device.gemm_efficiency_fp4 > 0.0) figures["gemm_efficiency_by_precision"][kFp4] = device.gemm_efficiency_fp4;
  } else if (name == "device.memory_efficiency") {
    figures["memory_efficiency"] = device.memory_efficiency;
  } else if (name == "device.flash_efficiency") {
    figures["flash_forward_efficiency"] = device.flash_forward_efficiency;
    figures["flash_backward_efficiency"] = device.flash_backward_efficiency;
  } else if (name == "device.kernel_launch") {
    figures["kernel_launch"] = micros(device.kernel_launch);
  } else if (name == "intra_efficiency") {
    profile.cluster["intra_efficiency"] = fitted.cluster.intra_efficiency;
  } else if (name == "nic_efficiency") {
    profile.cluster["nic_efficiency"] = fitted.cluster.nic_efficiency;
  } else if (name == "stack.host_time_per_kernel") {
    profile.stack["host_time_per_kernel"] = micros(fitted.training.stack.host_time_per_kernel);
  } else {
    FLOPCAST_CHECK(name == "stack.host_time_per_collective");
    profile.stack["host_time_per_collective"] = micros(fitted.training.stack.host_time_per_collective);
  }
}

std::size_t place_of(const std::string& name, const std::vector<std::string>& names) {
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

// A job of a run that has the constant: a zero from another stack must not be used.
const Job& job_with(const std::string& name, const std::vector<UserRun>& runs) {
  return std::find_if(runs.begin(), runs.end(),
                      [&name](const UserRun& run) { return find_run_constant(name)->value(run.job) > 0.0; })
      ->job;
}

DeviceProfile profile_of(const std::vector<UserRun>& runs, const std::vector<std::string>& names,
                         const Posterior& posterior, const std::vector<std::string>& told) {
  DeviceProfile profile;
  const Job& first = runs.front().job;
  profile.name = fmt::format("{} fitted to your runs", first.cluster.device.name);
  profile.source = fmt::format("flopcast fit of {} run{}", runs.size(), runs.size() == 1 ? "" : "s");
  profile.confidence = "measured";
  profile.cluster["device"]["name"] = first.cluster.device.name;
  RunFit fit;
  fit.runs = static_cast<int>(runs.size());
  fit.noise = posterior.noise;
  fit.freedom = kPriorFreedom + static_cast<double>(runs.size());
  fit.stack = stack_of_run(first);
  fit.constants = names;
  for (const UserRun& run : runs) {
    const std::string kind = kind_of_run(run.job);
    if (std::find(fit.kinds.begin(), fit.kinds.end(), kind) == fit.kinds.end()) fit.kinds.push_back(kind);
  }
  fit.covariance = posterior.covariance;
  profile.fitted = std::move(fit);
  for (const std::string& name : told) {
    Job fitted = job_with(name, runs);
    if (name.rfind("stack.", 0) == 0) profile.stack["name"] = stack_of_run(fitted);
    find_run_constant(name)->scale(fitted, std::exp(posterior.at[place_of(name, names)]));
    add_constant(name, fitted, profile);
  }
  return profile;
}

}  // namespace

UserFit fit_user_runs(const std::vector<UserRun>& runs, const ReadFile& read_file) {
  constexpr double kFelt = 1e-3;
  FLOPCAST_CHECK(!runs.empty());
  require_one_device(runs);
  const RunFitter fitter(runs, read_file);
  UserFit found;
  std::vector<std::string> names;
  for (const RunConstant& constant : run_constants()) {
    const std::string name(constant.name);
    if (std::string why = disagreement(constant, runs); !why.empty()) {
      found.undetermined.push_back({name, std::move(why)});
      continue;
    }
    double most = 0.0;
    const Vector nothing(1, 0.0);
    for (std::size_t row = 0; row < runs.size(); ++row) {
      most = std::max(most, std::abs(fitter.slopes(runs[row].job, {name}, nothing, fitter.catalogue_s()[row])[0]));
    }
    if (most < kFelt) {
      found.undetermined.push_back({name, "does not affect any of the runs"});
    } else {
      names.push_back(name);
    }
  }
  if (names.empty()) throw NegativeAnswer("no constant can be fitted: none affects the forecasts of these runs");
  Posterior posterior = fitter.fit(names);
  std::vector<std::string> told;
  const auto narrowed = [&](std::size_t index) {
    const double spread = fitter.mean_distance() * find_run_constant(names[index])->spread;
    return posterior.spread(index) / spread;
  };
  for (std::size_t index = 0; index < names.size(); ++index) {
    if (narrowed(index) < kDetermined) {
      told.push_back(names[index]);
    } else {
      found.undetermined.push_back({names[index], fmt::format("narrowed by only {:.0f} %; keeps the catalogue's value",
                                                              1e2 * (1.0 - narrowed(index)))});
    }
  }
  if (told.empty()) {
    throw NegativeAnswer(
        fmt::format("no constant can be fitted: the runs narrow none of {} by 10 % or more; add runs of other "
                    "layouts",
                    fmt::join(names, ", ")));
  }
  const Posterior of_told = fitter.fit(told);
  posterior.at.assign(names.size(), 0.0);
  posterior.noise = of_told.noise;
  for (std::size_t index = 0; index < told.size(); ++index) {
    posterior.at[place_of(told[index], names)] = of_told.at[index];
  }
  for (const std::string& name : told) {
    const std::size_t index = place_of(name, names);
    const RunConstant& constant = *find_run_constant(name);
    OwnConstant one;
    one.name = name;
    one.unit = std::string(constant.unit);
    one.catalogue = constant.value(job_with(name, runs));
    const double reach = kQuantile90 * posterior.spread(index);
    const auto bounded = [&](double at) {
      const double value = one.catalogue * std::exp(at);
      return constant.is_share ? std::min(1.0, value) : value;
    };
    one.value = bounded(posterior.at[index]);
    one.low = bounded(posterior.at[index] - reach);
    one.high = bounded(posterior.at[index] + reach);
    one.narrowed = narrowed(index);
    found.constants.push_back(std::move(one));
  }
  constexpr double kIgnored = 0.4;
  for (std::size_t row = 0; row < runs.size(); ++row) {
    found.runs.push_back({runs[row].id, runs[row].measured_s, fitter.catalogue_s()[row],
                          fitter.time_of(runs[row].job, names, posterior.at), of_told.weights[row] > kIgnored});
  }
  found.profile = profile_of(runs, names, posterior, told);
  found.next = next_run(fitter, runs, names, posterior, read_file);
  return found;
}

namespace {

// The run that is not taken yet and reduces the variance of all forecasts most.
std::size_t most_informative(const RunFit& fit, const std::vector<UserRun>& runs, const std::vector<bool>& taken,
                             const RunFitter& fitter) {
  Posterior posterior;
  posterior.at.assign(fit.constants.size(), 0.0);
  posterior.covariance = fit.covariance;
  std::vector<Candidate> all(runs.size());
  for (std::size_t run = 0; run < runs.size(); ++run) {
    all[run].slopes = fitter.slopes(runs[run].job, fit.constants, posterior.at, fitter.catalogue_s()[run]);
  }
  std::size_t chosen = runs.size();
  double best = -1.0;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    if (taken[run]) continue;
    const double gain = gain_of(all[run].slopes, all, posterior, fitter.mean_distance() * fit.noise);
    if (gain <= best) continue;
    best = gain;
    chosen = run;
  }
  return chosen;
}

std::optional<UserFit> fit_if_determined(const std::vector<UserRun>& runs, const ReadFile& read_file) {
  try {
    return fit_user_runs(runs, read_file);
  } catch (const NegativeAnswer&) {
    return std::nullopt;  // keeps the catalogue's constants
  }
}

void add_errors(const std::vector<UserRun>& runs, const std::vector<bool>& taken, const std::optional<UserFit>& fit,
                const RunFitter& fitter, const ReadFile& read_file, std::vector<double>& errors, LearningPoint& point) {
  const nlohmann::json profile =
      fit ? nlohmann::json::parse(write_profile(fit->profile)) : nlohmann::json(nlohmann::json::object());
  for (std::size_t run = 0; run < runs.size(); ++run) {
    if (taken[run]) continue;
    nlohmann::json root = runs[run].root;
    if (fit) root["training"]["profile"] = profile;
    const Result result = forecast(read_job(root, Origins{}), read_file).result;
    const double measured = runs[run].measured_s;
    errors.push_back(std::abs(result.iteration.time_s / measured - 1.0));
    point.catalogue_mape += std::abs(fitter.catalogue_s()[run] / measured - 1.0);
    point.inside += result.interval->low_s <= measured && measured <= result.interval->high_s ? 1.0 : 0.0;
    point.half_width += result.interval->half_width;
  }
}

}  // namespace

std::vector<LearningPoint> learning_curve(const std::vector<UserRun>& runs, const std::vector<int>& counts,
                                          RunChoice choice, int repetitions, const ReadFile& read_file) {
  require_one_device(runs);
  const RunFitter fitter(runs, read_file);
  std::vector<LearningPoint> curve;
  for (const int count : counts) {
    if (runs.size() < 2)
      throw ConfigError({"--held-out", "with only one run, none is left to forecast", "", "expected two runs or more"});
    if (count < 1 || static_cast<std::size_t>(count) >= runs.size()) {
      throw ConfigError({"--held-out",
                         fmt::format("{} of {} runs: at least one must be fitted and one left out", count, runs.size()),
                         "", fmt::format("expected 1 to {}", runs.size() - 1)});
    }
    LearningPoint point;
    point.runs = count;
    std::vector<double> errors;
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      std::mt19937 random(static_cast<std::mt19937::result_type>(repetition));
      std::vector<bool> taken(runs.size(), false);
      std::vector<UserRun> fitted;
      std::optional<UserFit> fit;
      while (fitted.size() < static_cast<std::size_t>(count)) {
        std::size_t next = random() % runs.size();
        if (choice == RunChoice::kAdvised && fit) next = most_informative(*fit->profile.fitted, runs, taken, fitter);
        if (taken[next]) continue;
        taken[next] = true;
        fitted.push_back(runs[next]);
        const bool last = fitted.size() == static_cast<std::size_t>(count);
        if (last || choice == RunChoice::kAdvised) fit = fit_if_determined(fitted, read_file);
      }
      add_errors(runs, taken, fit, fitter, read_file, errors, point);
    }
    const auto all = static_cast<double>(errors.size());
    point.catalogue_mape /= all;
    point.inside /= all;
    point.half_width /= all;
    for (const double error : errors) point.mape += error / all;
    point.median = upper_median(errors);
    curve.push_back(point);
  }
  return curve;
}

std::vector<std::string> contradictions_of(const std::vector<UserRun>& runs) {
  constexpr double kApart = 1.1;  // chosen: three times the scatter of steps from one source
  std::vector<std::string> sentences;
  for (std::size_t later = 1; later < runs.size(); ++later) {
    const auto same = std::find_if(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(later),
                                   [&](const UserRun& run) { return run.root == runs[later].root; });
    const UserRun& first = *same;
    const UserRun& second = runs[later];
    const auto [shorter, longer] = std::minmax(first.measured_s, second.measured_s);
    if (&first == &second || longer <= kApart * shorter) continue;
    sentences.push_back(fmt::format("{} and {} are the same job but took {:.4g} and {:.4g} s: the fit lies in between",
                                    quote(first.id), quote(second.id), first.measured_s, second.measured_s));
  }
  return sentences;
}

std::string write_user_fit(const UserFit& fit) {
  nlohmann::ordered_json json = {{"schema", "flopcast.fit/1"}};
  json["constants"] = nlohmann::ordered_json::array();
  for (const OwnConstant& constant : fit.constants) {
    nlohmann::ordered_json one = {
        {"name", constant.name}, {"value", constant.value},         {"low", constant.low},
        {"high", constant.high}, {"catalogue", constant.catalogue}, {"narrowed", constant.narrowed}};
    if (!constant.unit.empty()) one["unit"] = constant.unit;
    json["constants"].push_back(std::move(one));
  }
  json["undetermined"] = nlohmann::ordered_json::array();
  for (const UndeterminedConstant& constant : fit.undetermined) {
    json["undetermined"].push_back({{"name", constant.name}, {"why", constant.why}});
  }
  json["untold"] = json["undetermined"];  // the key of earlier versions
  json["noise"] = fit.profile.fitted->noise;
  json["runs"] = nlohmann::ordered_json::array();
  for (const FittedOwnRun& run : fit.runs) {
    json["runs"].push_back({{"id", run.id},
                            {"measured_s", run.measured_s},
                            {"catalogue_s", run.catalogue_s},
                            {"fitted_s", run.fitted_s},
                            {"followed", run.followed}});
  }
  json["next"] = nullptr;
  if (fit.next) {
    json["next"] = {{"job", *fit.next->job},
                    {"layout", fit.next->layout},
                    {"half_width", fit.next->half_width},
                    {"why", fit.next->why}};
  }
  return json.dump(2);
}

}  // namespace flopcast
