#include "calibrate/validation/coverage.hpp"

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "sim/forecast/interval.hpp"

namespace flopcast {

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
