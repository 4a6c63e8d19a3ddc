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

// Whether products take as long on both: a device that bears a catalogue name and shares of its own is another one.
// Memory and power are looked up, on whatever variant of a board.
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

// What of a job no published run has; empty where all of it has been seen.
std::string unlike_all_runs(const Job& job) {
  if (job.profile) return "layers that were measured one by one";
  if (job.cluster.uneven()) return "nodes that differ";
  const Optimizer optimizer = job.training.optimizer;
  if (job.training.preference) return "training by preferences";
  if (optimizer == Optimizer::kMuon || optimizer == Optimizer::kGalore)
    return "optimizer " + std::string(name_of(optimizer));
  if (const auto& finetune = job.training.finetune; finetune && finetune->method != FinetuneMethod::kFull) {
    if (finetune->method == FinetuneMethod::kFreeze) return "frozen layers";
    if (finetune->base != BaseFormat::kFp8) return "adapters beside weights in " + std::string(name_of(finetune->base));
  }
  const Precision precision = job.training.precision;
  if (precision == Precision::kFp32 || precision == Precision::kTf32) {
    return "training in " + std::string(name_of(precision));
  }
  // Figures that were fitted to steps say themselves how sure they are.
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

// Of one source's errors, each divided by its factor.
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
  // A weak prior, for few sources that agree by chance.
  constexpr double kWeight = 0.02;
  constexpr double kUsual = 2.0;
  const auto squared = [](double value) { return value * value; };
  return sum - kWeight * (squared(log_between + kUsual) + squared(log_within + kUsual));
}

}  // namespace

namespace {

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
  constexpr double kWorthSaying = 0.05;
  constexpr std::size_t kFewest = 2;
  double product = 1.0;
  const auto widen = [&](double by, const std::string& reason) {
    product *= by;
    if (reasons != nullptr) reasons->push_back(fmt::format("× {:.2g}: {}", by, reason));
  };
  if (facts.experts) widen(kOfExperts, "experts");
  if (facts.exposed > kWorthSaying) {
    widen(1.0 + facts.exposed, fmt::format("{:.0f} % of the step waits for the network", 1e2 * facts.exposed));
  }
  if (facts.slow_launches) widen(kOfDistance, "the host binds its launches");
  if (!facts.unlike.empty()) widen(kOfDistance, "no published run has " + facts.unlike);
  std::set<int> others;
  for (const SourceErrors& group : known_) {
    if (group.source != source && group.facts.generation == facts.generation) others.insert(group.source);
  }
  if (others.size() < kFewest) {
    widen(kOfDistance, fmt::format("{} of a device of generation {}",
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
  // By coordinates, each step halved where neither direction is better.
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
  StepTimeInterval found;
  found.level = kLevel;
  found.factor = factor(facts, std::nullopt, &reasons);
  const double reach = kQuantile * std::sqrt(between_ * between_ + within_ * within_);
  found.low_s = time_s * std::exp(found.factor * (centre_ - reach));
  found.high_s = time_s * std::exp(found.factor * (centre_ + reach));
  found.half_width = (found.high_s - found.low_s) / (2.0 * time_s);
  found.stalls_s = facts.stalls_s;
  found.high_s += found.stalls_s;
  if (found.stalls_s > 0) {
    reasons.push_back(fmt::format("in some runs of {} hand-overs between nodes stalled: {} of the upper end",
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
    const double by = factor(group.facts, std::nullopt, nullptr);
    for (const double error : group.errors) {
      ++alike;
      inside += std::abs(error / by - centre_) <= reach ? 1 : 0;
    }
  }
  const char* format = facts.precision == Precision::kFp8 ? "fp8" : "16 bits";
  const std::string kind = fmt::format("{} in {}{}", facts.device, format, facts.experts ? " with experts" : "");
  found.evidence = fmt::format("{} published sources, one vote each", sources_);
  found.evidence +=
      alike == 0 ? fmt::format("; no step on {}", kind)
                 : fmt::format("; {} steps of {} on {}, {} inside", alike,
                               of_sources.size() == 1 ? "one source" : fmt::format("{} sources", of_sources.size()),
                               kind, inside);
  if (!reasons.empty()) found.evidence += fmt::format("; {}", fmt::join(reasons, ", "));
  return found;
}

}  // namespace flopcast
