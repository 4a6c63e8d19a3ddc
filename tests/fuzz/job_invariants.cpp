#include "tests/fuzz/job_invariants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/text/error.hpp"
#include "model/job/fields.hpp"
#include "model/job/read_job.hpp"
#include "model/job/user_spelling.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/forecast.hpp"
#include "tests/property/random_jobs.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;
using Complaints = std::vector<std::string>;

constexpr double kRounding = 1e-9;

bool is_close(double one, double other, double share = kRounding) {
  return std::abs(one - other) <= share * std::max({std::abs(one), std::abs(other), 1e-12});
}

void expect_finite(const Json& value, const std::string& place, Complaints& complaints) {
  if (value.is_structured()) {
    for (const auto& item : value.items()) expect_finite(item.value(), place + "/" + item.key(), complaints);
  } else if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    complaints.push_back(place + " is not finite");
  }
}

void expect_parts_are_the_step(const Json& result, double step, Complaints& complaints) {
  double sum = 0.0;
  for (const auto& [name, seconds] : result.at("breakdown").items()) {
    if (seconds.get<double>() < -kRounding * step) complaints.push_back(fmt::format("breakdown.{} is negative", name));
    sum += seconds.get<double>();
  }
  if (!is_close(sum, step, 1e-6))
    complaints.push_back(fmt::format("the breakdown sums to {}, but the step is {}", sum, step));
}

void expect_memory_balances(const MemoryResult& memory, Complaints& complaints) {
  double fullest = 0.0;
  bool fits = true;
  for (const RankMemoryResult& rank : memory.per_pipeline_rank) {
    double parts = 0.0;
    for (const double part : {rank.weights_gib, rank.gradients_gib, rank.optimizer_gib, rank.activations_gib,
                              rank.weight_versions_gib, rank.workspace_gib}) {
      if (part < 0.0) complaints.push_back(fmt::format("a part of a rank's memory is {} GiB", part));
      parts += part;
    }
    if (!is_close(parts, rank.total_gib))
      complaints.push_back(fmt::format("a rank's parts are {} GiB, but its total is {}", parts, rank.total_gib));
    if (rank.reserved_gib < rank.total_gib * (1.0 - kRounding) ||
        rank.shown_gib < rank.reserved_gib * (1.0 - kRounding))
      complaints.emplace_back("a rank reserves less than it uses");
    fullest = std::max(fullest, rank.total_gib);
    fits = fits && rank.shown_gib <= rank.capacity_gib;
  }
  if (!is_close(fullest, memory.peak_gib))
    complaints.push_back(fmt::format("the fullest rank has {} GiB, but the peak is {}", fullest, memory.peak_gib));
  if (fits != memory.fits) complaints.push_back(fmt::format("fits is {}, but the ranks give {}", memory.fits, fits));
}

// Result without text: a job that states everything makes fewer assumptions.
std::string figures_alone(Json result) {
  for (const char* key : {"assumptions", "warnings", "critical_path"}) result.erase(key);
  return result.dump();
}

struct Betterment {
  const char* name;
  std::function<void(Cluster& cluster, double factor)> apply;
};

const std::vector<Betterment>& betterments() {
  static const std::vector<Betterment> all = {
      {"a wider link inside a node", [](Cluster& c, double f) { c.intra_bandwidth = c.intra_bandwidth * f; }},
      {"a wider card", [](Cluster& c, double f) { c.nic_bandwidth = c.nic_bandwidth * f; }},
      {"a lower latency inside a node", [](Cluster& c, double f) { c.intra_latency = c.intra_latency / f; }},
      {"a lower network latency", [](Cluster& c, double f) { c.inter_latency = c.inter_latency / f; }},
      {"a lower hop latency", [](Cluster& c, double f) { c.hop_latency = c.hop_latency / f; }},
      {"a faster device",
       [](Cluster& c, double f) {
         for (FlopsPerSecond& peak : c.device.peak) peak = peak * f;
       }},
      {"faster memory", [](Cluster& c, double f) { c.device.memory_bandwidth = c.device.memory_bandwidth * f; }},
      {"a faster kernel launch", [](Cluster& c, double f) { c.device.kernel_launch = c.device.kernel_launch / f; }},
  };
  return all;
}

// False if stages are split by times, because the split would change with them.
bool has_given_split(const nlohmann::json& root) {
  const nlohmann::json::json_pointer split("/layout/stage_layers");
  return !root.contains(split) || !root.at(split).is_string();
}

void expect_better_is_not_slower(const Job& job, const Forecast& before, std::mt19937_64& random,
                                 Complaints& complaints) {
  const Betterment& betterment = betterments()[random() % betterments().size()];
  const double factor = std::vector<double>{1.1, 2.0, 10.0}[random() % 3];
  Job better = job;
  betterment.apply(better.cluster, factor);
  const double step = before.result.iteration.time_s;
  const double then = forecast(better, no_files).result.iteration.time_s;
  // Messages that arrive earlier may contend with others on shared links, and fair sharing delays the critical one.
  if (then <= step * (job.cluster.shares_links() ? 1.02 : 1.001)) return;
  complaints.push_back(fmt::format("{} by {} changes the step from {} s to {} s", betterment.name, factor, step, then));
}

}  // namespace

nlohmann::json random_job(std::mt19937_64& random, std::size_t& tried) {
  if (random() % 2 == 0) {
    std::vector<std::pair<std::size_t, std::size_t>> changes(random() % 12);
    for (auto& [key, value] : changes) {
      key = random() % job_keys().size();
      value = random() % 16;
    }
    ++tried;
    return job_with(random() % job_beginnings().size(), changes);
  }
  while (true) {
    ++tried;
    nlohmann::json job = catalogue_job(random);
    if (prepared_job(job)) return job;
  }
}

Complaints broken_invariants(const nlohmann::json& root, std::mt19937_64& random) {
  Complaints complaints;
  const Job job = read_job(root, {});
  const Forecast before = forecast(job, no_files);
  const double step = before.result.iteration.time_s;
  if (!(std::isfinite(step) && step > 0.0)) return {fmt::format("the step takes {} s", step)};
  const Json result = result_json(before);
  expect_finite(result, "", complaints);
  expect_parts_are_the_step(result, step, complaints);
  expect_memory_balances(before.result.memory, complaints);
  const Json again = result_json(forecast(read_job(nlohmann::json(result.at("job")), {}), no_files));
  if (figures_alone(again) != figures_alone(result))
    complaints.emplace_back("the job in the result gives a different result");
  if (follows_the_times(before) && has_given_split(root)) expect_better_is_not_slower(job, before, random, complaints);
  return complaints;
}

}  // namespace flopcast
