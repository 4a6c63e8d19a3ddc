#include "model/partition/balanced_split.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

void check(const std::vector<double>& costs, int parts) {
  if (costs.empty()) throw ConfigError({"costs", "there is nothing to split", "", "give at least one cost"});
  for (std::size_t index = 0; index < costs.size(); ++index) {
    if (std::isfinite(costs[index]) && costs[index] >= 0) continue;
    throw ConfigError(
        {"costs", fmt::format("entry {} is {}", index + 1, costs[index]), "", "expected costs of at least 0"});
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
  // The furthest end of a part from `begin` whose cost does not exceed the limit.
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

// Either the current part is the most expensive one: then it ends at the first position where its cost is a sufficient
// limit for the remaining parts. Otherwise it may extend to just before that position.
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

// Leaves one layer for every remaining part. This never raises the maximum, because it only makes earlier parts
// cheaper.
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

namespace {

constexpr double kSame = 1e-9;  // tolerance for sums of doubles in different order

bool less(double a, double b) {
  return a < b * (1.0 - kSame);
}

std::vector<double> stage_times(const Job& job, const StageMap& map, int layers_a_stage, SharedPrices* shared) {
  const std::vector<int> layers(static_cast<std::size_t>(map.model_stages), layers_a_stage);
  std::vector<double> times;
  for (const StageCosts& stage : price_passes(job, map, layers, shared)) times.push_back(stage.passes().value());
  return times;
}

// A job in which all layers are of one kind, without MTP modules, which are priced like layers.
Job of_kind(Job job, bool experts) {
  job.model.mtp_layers = 0;
  if (!job.model.experts) return job;
  job.model.experts->first_dense_layers = experts ? 0 : job.model.layers;
  job.model.experts->every = 1;
  return job;
}

int rank_count(const SplitCosts& costs) {
  return *std::max_element(costs.rank_of_stage.begin(), costs.rank_of_stage.end()) + 1;
}

// The exact split for one stage per rank, by dynamic programming over stages; a row holds the cost of the stages so far
// by the number of layers they hold.
class OneStagePerRank {
 public:
  OneStagePerRank(const SplitCosts& costs, std::size_t layers) : costs_(costs), layers_(layers) {
    for (std::size_t stage = 0; stage < costs.layer.size(); ++stage) {
      prefix_.emplace_back(layers + 1, 0.0);
      std::partial_sum(costs.layer[stage].begin(), costs.layer[stage].end(), prefix_.back().begin() + 1);
    }
  }

  // Considers only splits whose most expensive stage costs at most that of `start`.
  std::vector<int> solve(const std::vector<int>& start) const {
    const auto larger = [](double a, double b) { return std::max(a, b); };
    const auto linear = [](double time) { return time; };
    const double busiest = recurrence(dearest(start), linear, larger).back()[layers_] * (1.0 + kSame);
    const auto sum = [](double a, double b) { return a + b; };
    const auto square = [](double time) { return time * time; };
    const std::vector<std::vector<double>> squares = recurrence(busiest, square, sum);
    std::vector<int> counts(prefix_.size(), 0);
    std::size_t end = layers_;
    for (std::size_t stage = prefix_.size(); stage-- > 0;) {
      std::size_t chosen = end;
      double least = std::numeric_limits<double>::infinity();
      // Starting with the smallest `begin`, ties give the layers to late stages.
      for (std::size_t begin = 0; begin <= end; ++begin) {
        const double time = stage_time(stage, begin, end);
        if (time > busiest) continue;
        const double total = squares[stage][begin] + square(time);
        if (!less(total, least)) continue;
        least = total;
        chosen = begin;
      }
      counts[stage] = static_cast<int>(end - chosen);
      end = chosen;
    }
    FLOPCAST_CHECK(end == 0);
    return counts;
  }

 private:
  double dearest(const std::vector<int>& counts) const {
    double time = 0.0;
    std::size_t begin = 0;
    for (std::size_t stage = 0; stage < counts.size(); ++stage) {
      const std::size_t end = begin + static_cast<std::size_t>(counts[stage]);
      time = std::max(time, stage_time(stage, begin, end));
      begin = end;
    }
    return time;
  }
  double stage_time(std::size_t stage, std::size_t begin, std::size_t end) const {
    return costs_.fixed[stage] + prefix_[stage][end] - prefix_[stage][begin];
  }

  // For each stage, the fewest layers that the stages before it must hold so that neither it nor a later stage exceeds
  // `limit`.
  std::vector<std::size_t> least_begins(double limit) const {
    std::vector<std::size_t> least(prefix_.size() + 1, layers_);
    for (std::size_t stage = prefix_.size(); stage-- > 0;) {
      const std::size_t end = least[stage + 1];
      std::size_t begin = end;
      while (begin > 0 && stage_time(stage, begin - 1, end) <= limit) --begin;
      least[stage] = begin;
    }
    return least;
  }

  // Row s: the least cost of the first s stages by the number of layers they hold, with no stage above `limit`.
  template <class Cost, class Join>
  std::vector<std::vector<double>> recurrence(double limit, Cost cost, Join join) const {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    std::vector<std::vector<double>> rows(prefix_.size() + 1, std::vector<double>(layers_ + 1, kNever));
    rows[0][0] = 0.0;
    const std::vector<std::size_t> least = least_begins(limit);
    for (std::size_t stage = 0; stage < prefix_.size(); ++stage) {
      for (std::size_t begin = least[stage]; begin <= layers_; ++begin) {
        if (rows[stage][begin] == kNever) continue;
        for (std::size_t end = begin; end <= layers_; ++end) {
          const double time = stage_time(stage, begin, end);
          if (time > limit) break;
          rows[stage + 1][end] = std::min(rows[stage + 1][end], join(rows[stage][begin], cost(time)));
        }
      }
    }
    return rows;
  }

  const SplitCosts& costs_;
  std::size_t layers_;
  std::vector<std::vector<double>> prefix_;
};

// Moves one layer from one stage to another as long as that improves the split, best move first.
std::vector<int> improve(const SplitCosts& costs, std::vector<int> counts) {
  SplitQuality quality = quality_of(costs, counts);
  while (true) {
    std::vector<int> best = counts;
    for (std::size_t from = 0; from < counts.size(); ++from) {
      if (counts[from] == 0) continue;
      for (std::size_t to = 0; to < counts.size(); ++to) {
        if (to == from) continue;
        std::vector<int> moved = counts;
        --moved[from];
        ++moved[to];
        const SplitQuality found = quality_of(costs, moved);
        if (!found.better_than(quality)) continue;
        quality = found;
        best = std::move(moved);
      }
    }
    if (best == counts) return counts;
    counts = std::move(best);
  }
}

}  // namespace

SplitCosts split_costs(const Job& job, const StageMap& map, SharedPrices* shared) {
  SplitCosts costs;
  costs.rank_of_stage = map.rank_of_stage;
  costs.model_stages = map.model_stages;
  costs.fixed = stage_times(job, map, 0, shared);
  const Job of_dense_layers = of_kind(job, false);
  const std::vector<double> dense = stage_times(of_dense_layers, map, 1, shared);
  const std::vector<double> none =
      job.model.mtp_layers > 0 ? stage_times(of_dense_layers, map, 0, shared) : costs.fixed;
  const std::vector<double> experts = job.model.experts ? stage_times(of_kind(job, true), map, 1, shared) : dense;
  std::vector<bool> with_experts;
  for (int layer = 0; layer < job.model.layers; ++layer) {
    with_experts.push_back(job.model.experts && job.model.expert_layers(layer, 1) > 0);
  }
  for (std::size_t stage = 0; stage < costs.fixed.size(); ++stage) {
    const double of_dense = std::max(0.0, dense[stage] - none[stage]);
    const double of_experts = std::max(0.0, experts[stage] - none[stage]);
    std::vector<double>& layers = costs.layer.emplace_back();
    layers.reserve(with_experts.size());
    for (const bool has_experts : with_experts) layers.push_back(has_experts ? of_experts : of_dense);
  }
  return costs;
}

bool SplitQuality::better_than(const SplitQuality& other) const {
  for (const auto part : {&SplitQuality::busiest_rank, &SplitQuality::rank_squares, &SplitQuality::dearest_stage,
                          &SplitQuality::stage_squares}) {
    if (less(this->*part, other.*part)) return true;
    if (less(other.*part, this->*part)) return false;
  }
  return false;
}

SplitQuality quality_of(const SplitCosts& costs, const std::vector<int>& stage_layers) {
  FLOPCAST_CHECK(static_cast<int>(stage_layers.size()) == costs.model_stages);
  std::vector<double> ranks(static_cast<std::size_t>(rank_count(costs)), 0.0);
  SplitQuality quality;
  std::ptrdiff_t first = 0;
  for (std::size_t stage = 0; stage < costs.rank_of_stage.size(); ++stage) {
    const std::size_t part = stage % stage_layers.size();
    if (part == 0) first = 0;
    const auto begin = costs.layer[stage].begin() + first;
    const double time = std::accumulate(begin, begin + stage_layers[part], costs.fixed[stage]);
    first += stage_layers[part];
    ranks[static_cast<std::size_t>(costs.rank_of_stage[stage])] += time;
    quality.dearest_stage = std::max(quality.dearest_stage, time);
    quality.stage_squares += time * time;
  }
  for (const double time : ranks) {
    quality.busiest_rank = std::max(quality.busiest_rank, time);
    quality.rank_squares += time * time;
  }
  return quality;
}

std::vector<int> balanced_split(const SplitCosts& costs, const std::vector<int>& start) {
  const std::size_t layers = costs.layer.front().size();
  const std::size_t stages = costs.rank_of_stage.size();
  constexpr std::size_t kMostSteps = 100'000'000;
  const bool one_stage_a_rank = static_cast<std::size_t>(rank_count(costs)) == stages;
  if (one_stage_a_rank && layers * layers * stages <= kMostSteps) return OneStagePerRank(costs, layers).solve(start);
  return improve(costs, start);
}

std::vector<int> split_by_parameters(const Transformer& model, int stages) {
  if (stages == 1) return {model.layers};
  const double products = 4.0 * model.attention_width() + (model.gated_mlp ? 3.0 : 2.0) * model.ffn;
  const double head = model.vocab / products;  // in units of layers
  const int others = stages - 1;
  int best = 0;
  std::pair<double, double> best_quality(std::numeric_limits<double>::infinity(),
                                         0.0);  // most expensive stage, sum of squares
  for (int last = 0; last <= model.layers; ++last) {
    const int low = (model.layers - last) / others;
    const int higher = (model.layers - last) % others;
    const double end = last + head;
    const double dearest = std::max(end, static_cast<double>(low + (higher > 0 ? 1 : 0)));
    const double squares = end * end + higher * (low + 1.0) * (low + 1.0) + (others - higher) * (1.0 * low * low);
    if (const std::pair quality(dearest, squares); quality < best_quality) {
      best = last;
      best_quality = quality;
    }
  }
  std::vector<int> layers(static_cast<std::size_t>(stages), (model.layers - best) / others);
  for (int stage = 0; stage < (model.layers - best) % others; ++stage) ++layers[static_cast<std::size_t>(stage)];
  layers.back() = best;
  return layers;
}

std::vector<int> balanced_stage_layers(const LayerProfile& profile, int stages) {
  std::vector<double> times;
  for (const ProfiledLayer& layer : profile.layers) {
    times.push_back((layer.forward + layer.input_gradient + layer.weight_gradient).value());
  }
  return min_max_partition(times, stages);
}

}  // namespace flopcast
