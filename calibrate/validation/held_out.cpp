#include "calibrate/validation/evaluate.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace flopcast {

namespace {

// Four digits are more than a published time has.
double rounded_error(double value) {
  constexpr double kDigits = 1e4;
  return std::round(value * kDigits) / kDigits;
}

bool alike(const ForecastFacts& a, const ForecastFacts& b) {
  return a.device == b.device && a.stack == b.stack && a.precision == b.precision && a.experts == b.experts &&
         a.slow_launches == b.slow_launches && a.exposed == b.exposed;
}

}  // namespace

std::vector<SourceErrors> source_errors(const std::vector<SourceSummary>& sources) {
  constexpr double kSharesApart = 20.0;  // exposed shares are told to a twentieth
  std::vector<SourceErrors> groups;
  int number = 0;
  for (const SourceSummary& source : sources) {
    for (const EvaluatedRow& row : source.evaluated) {
      if (!row.facts || !row.facts->unlike.empty() || !row.error()) continue;
      ForecastFacts facts = *row.facts;
      facts.exposed = std::round(facts.exposed * kSharesApart) / kSharesApart;
      auto group = std::find_if(groups.begin(), groups.end(), [&](const SourceErrors& one) {
        return one.source == number && alike(one.facts, facts);
      });
      if (group == groups.end()) group = groups.insert(groups.end(), {number, facts, {}});
      group->errors.push_back(-std::log1p(*row.error()));
    }
    ++number;
  }
  return groups;
}

std::string source_errors_file(const std::vector<SourceErrors>& groups) {
  std::string text = "{\n  \"groups\": [";
  const char* separator = "\n    ";
  for (const SourceErrors& group : groups) {
    nlohmann::ordered_json json = {{"source", group.source},
                                   {"device", group.facts.device},
                                   {"generation", name_of(group.facts.generation)},
                                   {"stack", group.facts.stack},
                                   {"precision", name_of(group.facts.precision)},
                                   {"experts", group.facts.experts},
                                   {"slow_launches", group.facts.slow_launches},
                                   {"exposed", group.facts.exposed},
                                   {"errors", nlohmann::ordered_json::array()}};
    for (const double error : group.errors) json["errors"].push_back(rounded_error(error));
    text += separator + json.dump();
    separator = ",\n    ";
  }
  return text + "\n  ]\n}\n";
}

std::vector<Coverage> interval_coverage(const std::vector<SourceErrors>& known) {
  struct Names {
    std::set<std::string> devices;
    std::set<std::string> stacks;
  };
  std::map<int, Coverage> by_source;
  std::map<int, Names> names;
  for (const SourceErrors& group : known) by_source[group.source].source = group.source;
  for (auto& [source, coverage] : by_source) {
    const IntervalModel model(known, source);
    for (const SourceErrors& group : known) {
      if (group.source != source) continue;
      names[source].devices.insert(group.facts.device);
      names[source].stacks.insert(group.facts.stack);
      const auto interval = model.interval(group.facts, 1.0);
      if (!interval) continue;
      for (const double error : group.errors) {
        const double measured = std::exp(error);
        ++coverage.rows;
        coverage.covered += interval->low_s <= measured && measured <= interval->high_s ? 1 : 0;
        coverage.half_width += interval->half_width;
      }
    }
  }
  const auto joined = [](const std::set<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
    return text;
  };
  std::vector<Coverage> coverages;
  for (auto& [source, coverage] : by_source) {
    if (coverage.rows == 0) continue;
    coverage.half_width /= coverage.rows;
    coverage.devices = joined(names[source].devices);
    coverage.stacks = joined(names[source].stacks);
    coverages.push_back(coverage);
  }
  return coverages;
}

double mean_coverage(const std::vector<Coverage>& coverages) {
  double sum = 0.0;
  for (const Coverage& coverage : coverages) sum += static_cast<double>(coverage.covered) / coverage.rows;
  return coverages.empty() ? 0.0 : sum / static_cast<double>(coverages.size());
}

}  // namespace flopcast
