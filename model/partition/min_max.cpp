#include "model/partition/min_max.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "model/error/error.hpp"

namespace flopcast {

namespace {

void check(const std::vector<double>& costs, int parts) {
  if (costs.empty()) throw ConfigError({"costs", "there is nothing to split", "", "give at least one cost"});
  for (std::size_t index = 0; index < costs.size(); ++index) {
    if (std::isfinite(costs[index]) && costs[index] >= 0) continue;
    throw ConfigError({"costs", fmt::format("entry {} is {}", index + 1, costs[index]), "", "costs are 0 or more"});
  }
  const std::string valid = fmt::format("valid: 1 to {}", costs.size());
  if (parts < 1) throw ConfigError({"stages", fmt::format("{} stages", parts), "", valid});
  if (static_cast<std::size_t>(parts) > costs.size()) {
    throw ConfigError({"stages", fmt::format("{} stages for {} layers", parts, costs.size()), "", valid});
  }
}

// prefix[i] is the cost of the first i entries; a part [b, e) costs prefix[e] - prefix[b].
class Search {
 public:
  explicit Search(const std::vector<double>& costs) : prefix_(costs.size() + 1, 0.0) {
    std::partial_sum(costs.begin(), costs.end(), prefix_.begin() + 1);
  }

  double cheapest_bottleneck(int parts) const;
  std::vector<int> fill(int parts, double limit) const;

 private:
  double sum(std::size_t begin, std::size_t end) const { return prefix_[end] - prefix_[begin]; }
  // The furthest end of a part from `begin` that costs no more than the limit.
  std::size_t reach(std::size_t begin, double limit) const {
    std::size_t low = begin;
    std::size_t high = prefix_.size() - 1;
    while (low < high) {
      const std::size_t middle = high - (high - low) / 2;
      if (sum(begin, middle) <= limit) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
  bool fits(std::size_t begin, int parts, double limit) const {
    for (int part = 0; part < parts; ++part) {
      const std::size_t end = reach(begin, limit);
      if (end == prefix_.size() - 1) return true;
      if (end == begin) return false;
      begin = end;
    }
    return false;
  }

  std::vector<double> prefix_;
};

// Either the part at hand is the dearest: then it ends at the first place where its own cost is limit enough for the
// rest. Or it is not, and may reach as far as just before that place.
double Search::cheapest_bottleneck(int parts) const {
  const std::size_t count = prefix_.size() - 1;
  double best = sum(0, count);
  std::size_t begin = 0;
  for (int left = parts - 1; left > 0 && begin < count; --left) {
    std::size_t low = begin + 1;
    std::size_t high = count;
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      if (fits(middle, left, sum(begin, middle))) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    best = std::min(best, sum(begin, low));
    begin = low - 1;
  }
  return std::min(best, sum(begin, count));
}

// A layer is left for every part to come: that costs nothing, for the parts before only get cheaper.
std::vector<int> Search::fill(int parts, double limit) const {
  const std::size_t count = prefix_.size() - 1;
  std::vector<int> sizes;
  std::size_t begin = 0;
  for (int part = 0; part < parts; ++part) {
    const std::size_t last = count - static_cast<std::size_t>(parts - 1 - part);
    const std::size_t end = std::min(last, std::max(begin + 1, reach(begin, limit)));
    sizes.push_back(static_cast<int>(end - begin));
    begin = end;
  }
  FLOPCAST_CHECK(begin == count);
  return sizes;
}

}  // namespace

std::vector<int> min_max_partition(const std::vector<double>& costs, int parts) {
  check(costs, parts);
  const Search search(costs);
  return search.fill(parts, search.cheapest_bottleneck(parts));
}

std::vector<double> part_costs(const std::vector<double>& costs, const std::vector<int>& sizes) {
  std::vector<double> sums;
  auto next = costs.begin();
  for (const int size : sizes) {
    FLOPCAST_CHECK(size >= 0 && size <= costs.end() - next);
    sums.push_back(std::accumulate(next, next + size, 0.0));
    next += size;
  }
  FLOPCAST_CHECK(next == costs.end());
  return sums;
}

}  // namespace flopcast
