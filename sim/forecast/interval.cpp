#include "sim/forecast/interval.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/job/read_job.hpp"
#include "model/layout/rank_grid.hpp"

namespace flopcast {

namespace {

constexpr double kLevel = 0.9;
constexpr double kFreedom = 3.0;
constexpr double kQuantile = 2.3534;  // t.95 of three degrees of freedom
constexpr double kRowsThatCount = 6.0;
constexpr int kFewestSources = 3;

// True if products take equally long on both: a device with a catalogue name but other efficiencies is a different
// device. Memory and power are looked up for whatever variant of the board is used.
bool same_products(const Device& a, const Device& b) {
  return a.peak == b.peak && a.multiprocessors == b.multiprocessors && a.gemm_efficiency == b.gemm_efficiency &&
         a.gemm_efficiency_by_precision == b.gemm_efficiency_by_precision &&
         a.gemm_efficiency_fp4 == b.gemm_efficiency_fp4 && a.flash_forward_efficiency == b.flash_forward_efficiency &&
         a.flash_backward_efficiency == b.flash_backward_efficiency && a.kernel_launch == b.kernel_launch;
}

bool as_catalogued(const Device& device) {
  if (catalogue_values(CatalogueKind::kDevices, device.name).is_null()) return false;
  std::vector<std::string> ignored;
  return same_products(device, read_device(device.name, "device", ignored, {}));
}

// A property of the job that no published run has; empty if there is none.
std::string unlike_all_runs(const Job& job) {
  if (job.profile) return "layers that were measured individually";
  if (job.cluster.uneven()) return "nodes that differ";
  const Optimizer optimizer = job.training.optimizer;
  if (job.training.preference) return "preference training";
  if (optimizer == Optimizer::kMuon || optimizer == Optimizer::kGalore)
    return "optimizer " + std::string(name_of(optimizer));
  if (const auto& finetune = job.training.finetune; finetune && finetune->method != FinetuneMethod::kFull) {
    if (finetune->method == FinetuneMethod::kFreeze) return "frozen layers";
    if (finetune->base != BaseFormat::kFp8) return "adapters on weights in " + std::string(name_of(finetune->base));
  }
  const Precision precision = job.training.precision;
  if (precision == Precision::kFp32 || precision == Precision::kTf32) {
    return "training in " + std::string(name_of(precision));
  }
  // Constants that were fitted to steps come with their own uncertainty.
  if (!job.training.fitted && !as_catalogued(job.cluster.device))
    return "a device whose figures are not the catalogue's";
  return "";
}

std::vector<SourceErrors> read_source_errors() {
  std::vector<SourceErrors> all;
  const nlohmann::json file = nlohmann::json::parse(embedded_source_errors().front().text);
  for (const nlohmann::json& group : file.at("groups")) {
    ForecastFacts facts;
    facts.device = group.at("device");
    facts.generation = parse<GpuGeneration>(group.at("generation").get<std::string>()).value();
    facts.stack = group.at("stack");
    facts.precision = parse<Precision>(group.at("precision").get<std::string>()).value();
    facts.experts = group.at("experts");
    facts.slow_launches = group.at("slow_launches");
    facts.exposed = group.at("exposed");
    all.push_back({group.at("source"), facts, group.at("errors")});
  }
  return all;
}

// Moments of one source's errors, each divided by its factor.
struct Moments {
  double rows = 0.0;
  double mean = 0.0;
  double squares = 0.0;  // about the mean
};

double likelihood(const std::vector<Moments>& sources, double centre, double log_between, double log_within) {
  const double between = std::exp(2.0 * log_between);
  const double within = std::exp(2.0 * log_within);
  double sum = 0.0;
  for (const Moments& source : sources) {
    const double rows = std::min(source.rows, kRowsThatCount);
    const double off = source.mean - centre;
    const double spread = source.squares * rows / (source.rows * within) + rows * off * off / (within + rows * between);
    sum += std::lgamma((kFreedom + rows) / 2.0) - 0.5 * (kFreedom + rows) * std::log1p(spread / kFreedom) -
           0.5 * ((rows - 1.0) * std::log(within) + std::log(within + rows * between));
  }
  // A weak prior, in case few sources agree by chance.
  constexpr double kWeight = 0.02;
  constexpr double kUsual = 2.0;
  const auto squared = [](double value) { return value * value; };
  return sum - kWeight * (squared(log_between + kUsual) + squared(log_within + kUsual));
}

// `low` and `high` are logarithms relative to the forecast; possible stalls are added to the upper end.
StepTimeInterval interval_between(double low, double high, double time_s, double stalls_s) {
  StepTimeInterval found;
  found.level = kLevel;
  found.low_s = time_s * std::exp(low);
  found.high_s = time_s * std::exp(high);
  found.half_width = (found.high_s - found.low_s) / (2.0 * time_s);
  found.stalls_s = stalls_s;
  found.high_s += stalls_s;
  return found;
}

double stalls_of(const Job& job) {
  const Seconds stall = job.training.stack.hand_over_stall;
  const Layout& layout = job.layout;
  if (layout.pp < 2 || !(stall > Seconds(0))) return 0.0;
  const RankGrid grid(layout);
  const auto crosses = [&](int rank) {
    return rank >= 0 && rank + 1 < layout.pp && grid.pipeline_hop_crosses_nodes(rank, rank + 1, job.cluster) ? 1 : 0;
  };
  int neighbours = 0;
  for (int rank = 0; rank < layout.pp; ++rank) neighbours = std::max(neighbours, crosses(rank - 1) + crosses(rank));
  return stall.value() * neighbours * (layout.microbatches() * layout.vpp.value_or(1) + layout.pp - 1);
}

}  // namespace

ForecastFacts facts_of(const Job& job, double exposed_share) {
  ForecastFacts facts;
  constexpr double kSlowLaunch = 30e-6;
  facts.unlike = unlike_all_runs(job);
  facts.device = job.cluster.device.name;
  facts.generation = job.cluster.device.generation;
  facts.stack = job.training.stack.name;
  facts.precision = job.training.precision;
  facts.experts = job.model.experts.has_value();
  facts.slow_launches = job.training.stack.host_time_per_kernel > Seconds(kSlowLaunch);
  facts.exposed = job.cluster.nodes > 1 ? exposed_share : 0.0;
  facts.stalls_s = stalls_of(job);
  return facts;
}

const std::vector<SourceErrors>& shipped_source_errors() {
  static const std::vector<SourceErrors> all = read_source_errors();
  return all;
}

const IntervalModel& shipped_interval_model() {
  static const IntervalModel model(shipped_source_errors());
  return model;
}

IntervalModel::IntervalModel(std::vector<SourceErrors> known, std::optional<int> without_source) {
  for (SourceErrors& group : known) {
    if (group.source != without_source) known_.push_back(std::move(group));
  }
  fit();
}

double IntervalModel::factor(const ForecastFacts& facts, std::optional<int> source,
                             std::vector<std::string>* reasons) const {
  constexpr double kOfExperts = 2.0;
  constexpr double kOfDistance = 2.0;
  constexpr double kRelevantShare = 0.05;
  constexpr std::size_t kFewest = 2;
  double product = 1.0;
  const auto widen = [&](double by, const std::string& reason) {
    product *= by;
    if (reasons != nullptr) reasons->push_back(fmt::format("× {:.2g}: {}", by, reason));
  };
  if (facts.experts) widen(kOfExperts, "experts");
  if (facts.exposed > kRelevantShare) {
    widen(1.0 + facts.exposed, fmt::format("{:.0f} % of the step waits for the network", 1e2 * facts.exposed));
  }
  if (facts.slow_launches) widen(kOfDistance, "kernel launches are host-bound");
  if (!facts.unlike.empty()) widen(kOfDistance, "no published run covers " + facts.unlike);
  std::set<int> others;
  for (const SourceErrors& group : known_) {
    if (group.source != source && group.facts.generation == facts.generation) others.insert(group.source);
  }
  if (others.size() < kFewest) {
    widen(kOfDistance, fmt::format("{} on a device of generation {}",
                                   others.empty() ? "no published run" : "one source", name_of(facts.generation)));
  }
  return product;
}

void IntervalModel::fit() {
  std::map<int, std::vector<double>> by_source;
  for (const SourceErrors& group : known_) {
    const double by = factor(group.facts, group.source, nullptr);
    for (const double error : group.errors) by_source[group.source].push_back(error / by);
  }
  std::vector<Moments> sources;
  for (const auto& [source, errors] : by_source) {
    Moments moments;
    moments.rows = static_cast<double>(errors.size());
    for (const double error : errors) moments.mean += error / moments.rows;
    for (const double error : errors) moments.squares += (error - moments.mean) * (error - moments.mean);
    sources.push_back(moments);
  }
  sources_ = static_cast<int>(sources.size());
  if (sources_ < kFewestSources) return;
  // Coordinate search; each step is halved if neither direction improves.
  std::array<double, 3> at = {0.05, std::log(0.1), std::log(0.1)};
  std::array<double, 3> steps = {0.05, 0.5, 0.5};
  double best = likelihood(sources, at[0], at[1], at[2]);
  constexpr int kRounds = 80;
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t index = 0; index < at.size(); ++index) {
      const double before = best;
      for (const double step : {steps[index], -steps[index]}) {
        std::array<double, 3> tried = at;
        tried[index] += step;
        const double found = likelihood(sources, tried[0], tried[1], tried[2]);
        if (found <= best) continue;
        best = found;
        at = tried;
        break;
      }
      if (best == before) steps[index] /= 2.0;
    }
  }
  centre_ = at[0];
  between_ = std::exp(at[1]);
  within_ = std::exp(at[2]);
}

std::optional<StepTimeInterval> IntervalModel::interval(const ForecastFacts& facts, double time_s) const {
  if (sources_ < kFewestSources) return std::nullopt;
  std::vector<std::string> reasons;
  const double by = factor(facts, std::nullopt, &reasons);
  const double reach = kQuantile * std::sqrt(between_ * between_ + within_ * within_);
  StepTimeInterval found = interval_between(by * (centre_ - reach), by * (centre_ + reach), time_s, facts.stalls_s);
  found.factor = by;
  if (found.stalls_s > 0) {
    reasons.push_back(fmt::format("in some runs of {}, transfers between nodes stalled: {} of the upper end",
                                  facts.stack, time_in_seconds(found.stalls_s)));
  }
  found.sources = sources_;
  int alike = 0;
  int inside = 0;
  std::set<int> of_sources;
  for (const SourceErrors& group : known_) {
    const bool same = group.facts.device == facts.device && group.facts.experts == facts.experts &&
                      (group.facts.precision == Precision::kFp8) == (facts.precision == Precision::kFp8);
    if (!same) continue;
    of_sources.insert(group.source);
    const double of_group = factor(group.facts, std::nullopt, nullptr);
    for (const double error : group.errors) {
      ++alike;
      inside += std::abs(error / of_group - centre_) <= reach ? 1 : 0;
    }
  }
  const char* format = facts.precision == Precision::kFp8 ? "fp8" : "16 bits";
  const std::string kind = fmt::format("{} in {}{}", facts.device, format, facts.experts ? " with experts" : "");
  found.evidence = fmt::format("{} published sources, equally weighted", sources_);
  found.evidence +=
      alike == 0 ? fmt::format("; no step on {}", kind)
                 : fmt::format("; {} steps of {} on {}, {} of them inside", alike,
                               of_sources.size() == 1 ? "one source" : fmt::format("{} sources", of_sources.size()),
                               kind, inside);
  if (!reasons.empty()) found.evidence += fmt::format("; {}", fmt::join(reasons, ", "));
  return found;
}

namespace {

void scale_share(double& share, double factor) {
  share = std::min(1.0, share * factor);
}

void scale_products(Job& job, double factor) {
  Device& device = job.cluster.device;
  scale_share(device.gemm_efficiency, factor);
  for (double& share : device.gemm_efficiency_by_precision) scale_share(share, factor);
  scale_share(device.gemm_efficiency_fp4, factor);
}

void scale_attention(Job& job, double factor) {
  scale_share(job.cluster.device.flash_forward_efficiency, factor);
  scale_share(job.cluster.device.flash_backward_efficiency, factor);
}

double gemm_of(const Job& job) {
  const Device& device = job.cluster.device;
  const bool in_4_bits = job.training.fp8_recipe == Fp8Recipe::kNvfp4 && device.peak_fp4 > FlopsPerSecond(0.0);
  if (in_4_bits && device.gemm_efficiency_fp4 > 0.0) return device.gemm_efficiency_fp4;
  return device.gemm_efficiency_of(job.training.precision);
}

}  // namespace

const std::vector<RunConstant>& run_constants() {
  // Prior spreads: for products, such that sources differ by as much as they do (IntervalModel's between_sources); for
  // the others, the disagreement among published fits of one device, fabric or software.
  static const std::vector<RunConstant> constants = {
      {"device.gemm_efficiency", "", 0.04, true, &gemm_of, &scale_products},
      {"device.memory_efficiency", "", 0.1, true, [](const Job& job) { return job.cluster.device.memory_efficiency; },
       [](Job& job, double factor) { scale_share(job.cluster.device.memory_efficiency, factor); }},
      {"device.flash_efficiency", "", 0.1, true,
       [](const Job& job) { return job.cluster.device.flash_forward_efficiency; }, &scale_attention},
      {"device.kernel_launch", "us", 0.2, false,
       [](const Job& job) { return job.cluster.device.kernel_launch.value() * 1e6; },
       [](Job& job, double factor) { job.cluster.device.kernel_launch *= factor; }},
      {"intra_efficiency", "", 0.15, true, [](const Job& job) { return job.cluster.intra_efficiency; },
       [](Job& job, double factor) { scale_share(job.cluster.intra_efficiency, factor); }},
      {"nic_efficiency", "", 0.2, true, [](const Job& job) { return job.cluster.nic_efficiency; },
       [](Job& job, double factor) { scale_share(job.cluster.nic_efficiency, factor); }},
      {"stack.host_time_per_kernel", "us", 0.2, false,
       [](const Job& job) { return job.training.stack.host_time_per_kernel.value() * 1e6; },
       [](Job& job, double factor) { job.training.stack.host_time_per_kernel *= factor; }},
      {"stack.host_time_per_collective", "us", 0.2, false,
       [](const Job& job) { return job.training.stack.host_time_per_collective.value() * 1e6; },
       [](Job& job, double factor) { job.training.stack.host_time_per_collective *= factor; }},
  };
  return constants;
}

const RunConstant* find_run_constant(std::string_view name) {
  for (const RunConstant& constant : run_constants()) {
    if (constant.name == name) return &constant;
  }
  return nullptr;
}

std::vector<double> run_sensitivities(const Job& job, const std::vector<std::string>& constants, double time_s,
                                      const StepTimeOf& time_of) {
  constexpr double kStep = 0.05;
  std::vector<double> all;
  for (const std::string& name : constants) {
    const RunConstant* constant = find_run_constant(name);
    if (constant == nullptr || !(constant->value(job) > 0.0)) {
      all.push_back(0.0);
      continue;
    }
    // An efficiency always has room below it.
    const double step = constant->is_share ? -kStep : kStep;
    Job moved = job;
    moved.training.fitted.reset();
    constant->scale(moved, std::exp(step));
    all.push_back(std::log(time_of(moved) / time_s) / step);
  }
  return all;
}

std::string kind_of_run(const Job& job) {
  return fmt::format("{}{}", name_of(job.training.precision), job.model.experts ? ", experts" : "");
}

std::string stack_of_run(const Job& job) {
  return job.training.stack.based_on;
}

double student_95(double freedom) {
  constexpr double kNormal = 1.644854;
  const double z = kNormal;
  const double z3 = z * z * z;
  const double z5 = z3 * z * z;
  const double z7 = z5 * z * z;
  return z + (z3 + z) / (4 * freedom) + (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * freedom * freedom * freedom);
}

StepTimeInterval interval_from_user_runs(const Job& job, const RunFit& fit, const std::vector<double>& sensitivities,
                                         double exposed_share, double time_s) {
  const std::size_t count = fit.constants.size();
  FLOPCAST_CHECK(sensitivities.size() == count && fit.covariance.size() == count * count);
  const ForecastFacts facts = facts_of(job, exposed_share);
  const IntervalModel& shipped = shipped_interval_model();
  const double distance = shipped.distance(facts);
  double variance = 0.0;
  std::string least_sure;
  double largest = 0.0;
  for (std::size_t row = 0; row < count; ++row) {
    double with_others = 0.0;
    for (std::size_t column = 0; column < count; ++column) {
      with_others += sensitivities[row] * fit.covariance[row * count + column] * sensitivities[column];
    }
    variance += with_others;
    if (with_others <= largest) continue;
    largest = with_others;
    least_sure = fit.constants[row];
  }
  variance = std::max(0.0, variance);
  const double constants = std::sqrt(variance);
  variance += distance * distance * fit.noise * fit.noise;
  std::vector<std::string> unlike;
  if (fit.stack != stack_of_run(job)) unlike.push_back(fmt::format("with stack {}", fit.stack));
  const std::string kind = kind_of_run(job);
  if (std::find(fit.kinds.begin(), fit.kinds.end(), kind) == fit.kinds.end()) {
    unlike.push_back(fmt::format("in {}", fmt::join(fit.kinds, " or ")));
  }
  if (!unlike.empty()) variance += distance * distance * shipped.between_sources() * shipped.between_sources();
  const double reach = student_95(fit.freedom) * std::sqrt(variance);

  StepTimeInterval found = interval_between(-reach, reach, time_s, facts.stalls_s);
  found.factor = distance;
  found.sources = 1;
  found.evidence = fmt::format("{} step{} of your own{}", fit.runs, fit.runs == 1 ? "" : "s",
                               unlike.empty() ? "" : fmt::format(", {}", fmt::join(unlike, ", ")));
  if (!least_sure.empty()) {
    found.evidence += fmt::format("; ± {:.1f} % from constants, most of it from {}", 1e2 * constants, least_sure);
  }
  return found;
}

}  // namespace flopcast
