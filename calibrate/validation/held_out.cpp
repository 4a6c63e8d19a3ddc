#include "calibrate/validation/held_out.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "calibrate/validation/evaluate.hpp"
#include "model/job/read_job.hpp"
#include "sim/forecast/interval.hpp"

namespace flopcast {

namespace {

using ModelShape = std::tuple<int, int, int>;

std::map<std::string, double> errors_left_out(const std::vector<Refit>& refits) {
  std::map<std::string, double> errors;
  for (const Refit& refit : refits) {
    for (const LeftOutRow& row : refit.left_out) errors[row.id] = row.error;
  }
  return errors;
}

// Forecast / measured - 1, by constants that the row's model had no part in, where such were fitted.
std::optional<double> honest_error(const EvaluatedRow& row, const std::map<std::string, double>& left_out) {
  const auto found = left_out.find(row.id);
  return found != left_out.end() ? found->second : row.error();
}

// Four digits are more than a published time has.
double rounded_error(double value) {
  constexpr double kDigits = 1e4;
  return std::round(value * kDigits) / kDigits;
}

// Groups by model and facts.
class ErrorGroups {
 public:
  void add(const PublishedRow& row, const ForecastFacts& facts, double error) {
    const ModelShape shape{*row.layers, *row.hidden, *row.heads};
    const int model = models_.emplace(shape, static_cast<int>(models_.size())).first->second;
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const HeldOutErrors& one) {
      return one.model == model && one.facts.device == facts.device && one.facts.generation == facts.generation &&
             one.facts.stack == facts.stack && one.facts.several_nodes == facts.several_nodes;
    });
    if (group == groups_.end()) group = groups_.insert(groups_.end(), {facts, model, {}});
    group->facts.devices = std::max(group->facts.devices, facts.devices);
    group->errors.push_back(1.0 / (1.0 + error) - 1.0);
  }
  const std::vector<HeldOutErrors>& groups() const { return groups_; }

 private:
  std::map<ModelShape, int> models_;
  std::vector<HeldOutErrors> groups_;
};

// The fitted shares of the peak and of the memory bandwidth as the means of the measured devices of other generations.
std::vector<CatalogueChange> as_other_generations(const std::string& device, const std::set<std::string>& measured) {
  std::vector<std::string> ignored;
  const GpuGeneration own = read_device(device, "device", ignored, {}).generation;
  std::vector<CatalogueChange> changes;
  for (const char* figure :
       {"gemm_efficiency", "memory_efficiency", "flash_forward_efficiency", "flash_backward_efficiency"}) {
    double sum = 0.0;
    int count = 0;
    for (const std::string& other : measured) {
      if (read_device(other, "device", ignored, {}).generation == own) continue;
      const nlohmann::ordered_json values = catalogue_values(CatalogueKind::kDevices, other);
      if (!values.contains(figure)) continue;
      sum += values.at(figure).get<double>();
      ++count;
    }
    if (count > 0) changes.push_back({CatalogueKind::kDevices, device, figure, sum / count});
  }
  return changes;
}

}  // namespace

std::vector<HeldOutErrors> held_out_errors(const std::vector<PublishedFile>& files, const std::vector<Refit>& refits,
                                           const ReadFile& read_file) {
  const std::map<std::string, double> left_out = errors_left_out(refits);
  struct Step {
    const PublishedRow* row;
    MappedRow mapped;
    ForecastFacts facts;
  };
  std::vector<Step> steps;
  std::set<std::string> measured;
  ErrorGroups collector;
  for (const PublishedFile& file : files) {
    const SourceSummary summary = evaluate(file, read_file);
    for (const EvaluatedRow& row : summary.evaluated) {
      const std::optional<double> error = honest_error(row, left_out);
      if (!row.facts || !row.facts->unlike.empty() || !error) continue;
      const auto published = std::find_if(file.rows.begin(), file.rows.end(),
                                          [&row](const PublishedRow& one) { return one.id == row.id; });
      collector.add(*published, *row.facts, *error);
      steps.push_back({&*published, map_row(*published, file.about), *row.facts});
      measured.insert(row.facts->device);
    }
  }
  for (Step& step : steps) {
    for (const CatalogueChange& change : as_other_generations(step.facts.device, measured)) {
      apply(change, step.mapped.job);
    }
    const std::optional<double> error = evaluate_row(*step.row, step.mapped, read_file).error();
    step.facts.device.clear();
    if (error) collector.add(*step.row, step.facts, *error);
  }
  return collector.groups();
}

std::string held_out_file(const std::vector<HeldOutErrors>& groups) {
  std::string text = "{\n  \"groups\": [";
  const char* separator = "\n    ";
  for (const HeldOutErrors& group : groups) {
    nlohmann::ordered_json json = {{"device", group.facts.device},
                                   {"generation", name_of(group.facts.generation)},
                                   {"stack", group.facts.stack},
                                   {"software", group.facts.software},
                                   {"several_nodes", group.facts.several_nodes},
                                   {"devices", group.facts.devices},
                                   {"model", group.model},
                                   {"errors", nlohmann::ordered_json::array()}};
    for (const double error : group.errors) json["errors"].push_back(rounded_error(error));
    text += separator + json.dump();
    separator = ",\n    ";
  }
  return text + "\n  ]\n}\n";
}

namespace {

struct Counted {
  Coverage coverage;
  std::set<int> models;

  void add(const HeldOutErrors& group, double half_width) {
    models.insert(group.model);
    for (const double error : group.errors) {
      ++coverage.rows;
      coverage.covered += std::abs(error) <= half_width ? 1 : 0;
      coverage.half_width += half_width;
    }
  }
  Coverage finished() const {
    Coverage finished = coverage;
    finished.models = static_cast<int>(models.size());
    if (finished.rows > 0) finished.half_width /= finished.rows;
    return finished;
  }
};

}  // namespace

std::vector<Coverage> interval_coverage(const std::vector<HeldOutErrors>& known) {
  std::map<std::pair<std::string, std::string>, Counted> counted;
  Counted all;
  for (const HeldOutErrors& group : known) {
    if (group.facts.device.empty()) continue;
    const auto interval = step_time_interval(group.facts, 1.0, known, group.model);
    if (!interval) continue;
    Counted& pair = counted[{group.facts.device, group.facts.stack}];
    pair.coverage.device = group.facts.device;
    pair.coverage.stack = group.facts.stack;
    pair.add(group, interval->half_width);
    all.add(group, interval->half_width);
  }
  std::vector<Coverage> coverages;
  for (const auto& [name, pair] : counted) coverages.push_back(pair.finished());
  coverages.push_back(all.finished());
  return coverages;
}

}  // namespace flopcast
