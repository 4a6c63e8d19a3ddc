#include "sim/forecast/interval.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "base/text/error.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/job/read_job.hpp"

namespace flopcast {

namespace {

// Whether kernels take as long on both: a device that bears a catalogue name and figures of its own is another one.
bool same_figures(const Device& a, const Device& b) {
  const GemmKernel& kernel = a.gemm_kernel;
  const GemmKernel& other = b.gemm_kernel;
  return a.peak == b.peak && a.memory_bandwidth == b.memory_bandwidth && a.multiprocessors == b.multiprocessors &&
         a.gemm_efficiency == b.gemm_efficiency && a.gemm_efficiency_by_precision == b.gemm_efficiency_by_precision &&
         a.memory_efficiency == b.memory_efficiency && a.flash_forward_efficiency == b.flash_forward_efficiency &&
         a.flash_backward_efficiency == b.flash_backward_efficiency && a.kernel_launch == b.kernel_launch &&
         kernel.tile == other.tile && kernel.overhead_depth == other.overhead_depth &&
         kernel.memory_efficiency == other.memory_efficiency && kernel.overlapped == other.overlapped &&
         kernel.weight_gradient_depth == other.weight_gradient_depth && kernel.wave_share == other.wave_share;
}

bool as_catalogued(const Device& device) {
  if (catalogue_values(CatalogueKind::kDevices, device.name).is_null()) return false;
  std::vector<std::string> ignored;
  return same_figures(device, read_device(device.name, "device", ignored, {}));
}

// What of a job no published run has; empty where all of it has been seen.
std::string unlike_all_runs(const Job& job) {
  if (job.profile) return "layers that were measured one by one";
  if (job.cluster.uneven()) return "nodes that differ";
  if (job.model.experts) return "a mixture of experts";
  const Precision precision = job.training.precision;
  if (precision == Precision::kFp32 || precision == Precision::kTf32) {
    return "training in " + std::string(name_of(precision));
  }
  if (!as_catalogued(job.cluster.device)) return "a device whose figures are not the catalogue's";
  return "";
}

std::vector<HeldOutErrors> read_held_out_errors() {
  std::vector<HeldOutErrors> all;
  const nlohmann::json file = nlohmann::json::parse(embedded_held_out_errors().front().text);
  for (const nlohmann::json& group : file.at("groups")) {
    ForecastFacts facts;
    facts.device = group.at("device");
    facts.generation = parse<GpuGeneration>(group.at("generation").get<std::string>()).value();
    facts.stack = group.at("stack");
    facts.software = group.at("software");
    facts.several_nodes = group.at("several_nodes");
    facts.devices = group.at("devices");
    all.push_back({facts, group.at("model"), group.at("errors")});
  }
  return all;
}

constexpr double kLevel = 0.9;
constexpr std::size_t kFewestModels = 3;

using Groups = std::vector<const HeldOutErrors*>;
using Alike = std::function<bool(const ForecastFacts&)>;

struct Pool {
  std::string words;
  Groups groups;
  bool by_generation = false;  // what weighs the same: generations of devices instead of models
  std::size_t units = 0;       // of these
  int most_devices = 0;
};

int unit_of(const HeldOutErrors& group, bool by_generation) {
  return by_generation ? static_cast<int>(group.facts.generation) : group.model;
}

std::size_t models_in(const Groups& groups) {
  std::set<int> models;
  for (const HeldOutErrors* group : groups) models.insert(group->model);
  return models.size();
}

// The smallest size of an error that a share of the weight does not exceed; each unit weighs the same.
double half_width(const Pool& pool) {
  std::map<int, double> rows;
  for (const HeldOutErrors* group : pool.groups) {
    rows[unit_of(*group, pool.by_generation)] += static_cast<double>(group->errors.size());
  }
  std::vector<std::pair<double, double>> weighed;  // size, weight
  for (const HeldOutErrors* group : pool.groups) {
    const double weight = 1.0 / rows.at(unit_of(*group, pool.by_generation));
    for (const double error : group->errors) weighed.emplace_back(std::abs(error), weight);
  }
  std::sort(weighed.begin(), weighed.end());
  constexpr double kRounding = 1e-9;
  const double units = static_cast<double>(rows.size());
  // Four generations are too few for the correction, which would ask for the largest error of all.
  const double needed = pool.by_generation ? kLevel * units : std::min(units, kLevel * (units + 1.0));
  double reached = 0.0;
  for (const auto& [size, weight] : weighed) {
    reached += weight;
    if (reached >= needed - kRounding) return size;
  }
  return weighed.back().first;
}

class Evidence {
 public:
  Evidence(const ForecastFacts& facts, const std::vector<HeldOutErrors>& known, std::optional<int> without_model)
      : facts_(facts) {
    for (const HeldOutErrors& group : known) {
      if (group.model != without_model) known_.push_back(&group);
    }
  }

  std::optional<StepTimeInterval> interval() const {
    const std::vector<Pool> pools = pools_from_narrow_to_wide();
    StepTimeInterval found;
    const Pool* last = nullptr;
    for (const Pool& pool : pools) {
      if (pool.units < kFewestModels && &pool != &pools.back()) continue;
      if (pool.groups.empty()) continue;
      last = &pool;
      // A wider pool is taken for what the narrower one does not know, and never makes an interval narrower.
      found.half_width = std::max(found.half_width, half_width(pool));
      if (pool.most_devices >= facts_.devices) break;
    }
    if (last == nullptr) return std::nullopt;
    found.level = kLevel;
    found.models = static_cast<int>(models_in(last->groups));
    found.evidence = last->words;
    if (last->most_devices < facts_.devices) {
      found.evidence += fmt::format(", none on more than {} GPUs", last->most_devices);
    }
    return found;
  }

 private:
  std::vector<Pool> pools_from_narrow_to_wide() const {
    const auto seen = [](const ForecastFacts& other) { return !other.device.empty(); };
    if (!facts_.unlike.empty()) {
      return {other_generations(fmt::format("no published run has {}", facts_.unlike))};
    }
    const std::string& device = facts_.device;
    if (!any([&device](const ForecastFacts& other) { return other.device == device; })) {
      const auto sibling = [&](const ForecastFacts& other) {
        return seen(other) && other.generation == facts_.generation;
      };
      if (!any(sibling)) return {other_generations(fmt::format("no published run is on {}", device))};
      const std::string reason = fmt::format("no published run is on {}", device);
      return {pool(reason + ": others of its generation", sibling), pool(reason + ": all published runs", seen)};
    }
    const auto same_software = [this](const ForecastFacts& other) { return other.stack == facts_.stack; };
    const auto same_pair = [&](const ForecastFacts& other) { return other.device == device && same_software(other); };
    const auto same_origin = [&](const ForecastFacts& other) {
      return other.device == device && other.software == facts_.software;
    };
    const char* place = facts_.several_nodes ? "several nodes" : "one node";
    return {pool(fmt::format("{} with {} on {}", device, facts_.stack, place),
                 [&](const ForecastFacts& other) {
                   return same_pair(other) && other.several_nodes == facts_.several_nodes;
                 }),
            pool(fmt::format("{} with {}", device, facts_.stack), same_pair),
            pool(fmt::format("{} with {} and stacks based on it", device, facts_.software), same_origin),
            pool(fmt::format("{} on several devices", facts_.stack),
                 [&](const ForecastFacts& other) { return seen(other) && same_software(other); }),
            pool(fmt::format("{} with several stacks", device),
                 [&device](const ForecastFacts& other) { return other.device == device; }),
            pool("all published runs", seen)};
  }

  bool any(const Alike& alike) const {
    return std::any_of(known_.begin(), known_.end(),
                       [&alike](const HeldOutErrors* group) { return alike(group->facts); });
  }

  Pool other_generations(const std::string& reason) const {
    return pool(
        reason + ": devices forecast by the figures of other generations",
        [](const ForecastFacts& other) { return other.device.empty(); }, true);
  }

  Pool pool(std::string words, const Alike& alike, bool by_generation = false) const {
    Pool pool{std::move(words), {}, by_generation, 0, 0};
    std::set<int> units;
    for (const HeldOutErrors* group : known_) {
      if (!alike(group->facts)) continue;
      pool.groups.push_back(group);
      pool.most_devices = std::max(pool.most_devices, group->facts.devices);
      units.insert(unit_of(*group, by_generation));
    }
    pool.units = units.size();
    return pool;
  }

  const ForecastFacts& facts_;
  Groups known_;
};

}  // namespace

ForecastFacts facts_of(const Job& job) {
  ForecastFacts facts;
  facts.unlike = unlike_all_runs(job);
  if (facts.unlike.empty()) facts.device = job.cluster.device.name;
  facts.generation = job.cluster.device.generation;
  facts.stack = job.training.stack.name;
  facts.software = job.training.stack.based_on;
  facts.several_nodes = job.cluster.nodes > 1;
  facts.devices = job.cluster.devices();
  return facts;
}

const std::vector<HeldOutErrors>& shipped_held_out_errors() {
  static const std::vector<HeldOutErrors> all = read_held_out_errors();
  return all;
}

std::optional<StepTimeInterval> step_time_interval(const ForecastFacts& facts, double time_s,
                                                   const std::vector<HeldOutErrors>& known,
                                                   std::optional<int> without_model) {
  std::optional<StepTimeInterval> interval = Evidence(facts, known, without_model).interval();
  if (!interval) return std::nullopt;
  interval->low_s = time_s * std::max(0.0, 1.0 - interval->half_width);
  interval->high_s = time_s * (1.0 + interval->half_width);
  return interval;
}

}  // namespace flopcast
