#include "model/partition/pipedream_planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

using Bits = std::vector<std::uint64_t>;
constexpr std::size_t kWordBits = 64;

void add(Bits& bits, std::size_t index) {
  bits[index / kWordBits] |= std::uint64_t{1} << (index % kWordBits);
}
bool has(const Bits& bits, std::size_t index) {
  return (bits[index / kWordBits] >> (index % kWordBits) & 1U) != 0;
}
Bits united(Bits bits, const Bits& others) {
  for (std::size_t word = 0; word < bits.size(); ++word) bits[word] |= others[word];
  return bits;
}

class Enumerator {
 public:
  explicit Enumerator(const LayerGraph& graph);
  CutStates enumerate(std::size_t most_states) const;

 private:
  std::vector<Bits> reachable_sets(std::size_t most_states) const;
  std::vector<Bits> row_sets() const;
  CutState state_of(Bits layers) const;
  Bytes transition_of(const Bits& layers) const;
  bool leaves(std::size_t layer, const Bits& layers) const {
    return std::any_of(successors_[layer].begin(), successors_[layer].end(),
                       [&layers](std::size_t next) { return !has(layers, next); });
  }

  const LayerGraph& graph_;
  std::vector<std::size_t> kept_;                     // in row order
  std::vector<std::vector<std::size_t>> successors_;  // only kept layers
  std::vector<Bits> needs_;                           // for each layer, itself and everything before it
  std::size_t first_ = 0;
};

Enumerator::Enumerator(const LayerGraph& graph) : graph_(graph), successors_(graph.layers.size()) {
  const std::size_t count = graph.layers.size();
  std::vector<bool> keep(count);
  for (std::size_t index = 0; index < count; ++index) keep[index] = !graph.layers[index].is_input;
  for (std::size_t index = 0; index < count; ++index) {
    const GraphLayer& layer = graph.layers[index];
    if (layer.successors.empty() && layer.description.rfind("__getitem__", 0) == 0) keep[index] = false;
  }
  needs_.assign(count, Bits((count + kWordBits - 1) / kWordBits, 0));
  std::vector<bool> preceded(count, false);
  for (const std::size_t index : graph.row) {
    if (!keep[index]) continue;
    kept_.push_back(index);
    add(needs_[index], index);
    for (const std::size_t next : graph.layers[index].successors) {
      if (!keep[next]) continue;
      successors_[index].push_back(next);
      needs_[next] = united(needs_[next], needs_[index]);
      preceded[next] = true;
    }
  }
  if (kept_.empty()) throw ConfigError({"graph", "the graph has no layers other than inputs", "", ""});
  first_ = 0;
  while (!keep[first_] || preceded[first_]) ++first_;
}

std::vector<Bits> Enumerator::reachable_sets(std::size_t most_states) const {
  std::vector<Bits> sets = {needs_[first_]};
  std::map<Bits, bool> seen = {{sets.front(), true}};
  for (std::size_t at = 0; at < sets.size() && sets.size() <= most_states; ++at) {
    for (const std::size_t layer : kept_) {
      if (!has(sets[at], layer)) continue;
      for (const std::size_t next : successors_[layer]) {
        if (has(sets[at], next)) continue;
        Bits larger = united(sets[at], needs_[next]);
        if (seen.emplace(larger, true).second) sets.push_back(std::move(larger));
      }
    }
  }
  return sets;
}

std::vector<Bits> Enumerator::row_sets() const {
  std::vector<Bits> sets;
  Bits bits(needs_.front().size(), 0);
  for (const std::size_t layer : kept_) {
    add(bits, layer);
    sets.push_back(bits);
  }
  return sets;
}

Bytes Enumerator::transition_of(const Bits& layers) const {
  Bits sent(layers.size(), 0);
  for (const std::size_t last : kept_) {
    const bool is_last = has(layers, last) && std::none_of(successors_[last].begin(), successors_[last].end(),
                                                           [&layers](std::size_t next) { return has(layers, next); });
    if (!is_last) continue;
    add(sent, last);
    for (const std::size_t before : kept_) {
      if (before == last || !has(needs_[last], before)) continue;
      const bool goes_elsewhere = std::any_of(successors_[before].begin(), successors_[before].end(),
                                              [&](std::size_t next) { return !has(needs_[last], next); });
      if (goes_elsewhere) add(sent, before);
    }
  }
  Bytes sum;
  for (const std::size_t layer : kept_) {
    if (has(sent, layer)) sum += graph_.layers[layer].activation;
  }
  return sum;
}

CutState Enumerator::state_of(Bits layers) const {
  CutState state;
  for (const std::size_t index : kept_) {
    if (!has(layers, index)) continue;
    const GraphLayer& layer = graph_.layers[index];
    state.time += layer.forward + layer.backward;
    state.activation += layer.activation;
    state.parameters += layer.parameters;
    if (leaves(index, layers)) state.crossing += layer.activation;
  }
  state.transition = transition_of(layers);
  state.layers = std::move(layers);
  return state;
}

std::size_t size_of(const CutState& state) {
  std::size_t count = 0;
  for (std::size_t layer = 0; layer < state.layers.size() * kWordBits; ++layer) count += state.holds(layer) ? 1 : 0;
  return count;
}

CutStates Enumerator::enumerate(std::size_t most_states) const {
  CutStates cuts;
  cuts.kept = kept_;
  std::vector<Bits> sets = reachable_sets(most_states);
  cuts.in_a_row = sets.size() > most_states;
  if (cuts.in_a_row) sets = row_sets();
  std::vector<std::size_t> sizes;
  std::vector<CutState> states;
  for (Bits& layers : sets) {
    states.push_back(state_of(std::move(layers)));
    sizes.push_back(size_of(states.back()));
  }
  std::vector<std::size_t> order(states.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Sorted by time for the planner's search; among equal times, larger sets come later.
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (states[a].time != states[b].time) return states[a].time < states[b].time;
    if (sizes[a] != sizes[b]) return sizes[a] < sizes[b];
    return states[a].layers < states[b].layers;
  });
  for (const std::size_t index : order) cuts.states.push_back(std::move(states[index]));
  return cuts;
}

}  // namespace

bool CutState::is_within(const CutState& other) const {
  for (std::size_t word = 0; word < layers.size(); ++word) {
    if ((layers[word] & ~other.layers[word]) != 0) return false;
  }
  return true;
}

CutStates cut_states(const LayerGraph& graph, std::size_t most_states) {
  return Enumerator(graph).enumerate(most_states);
}

namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

// Layers after state `begin` - 1, up to and including state `end`. begin 0: from the model's first layer.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct Choice {
  bool undivided = false;
  std::size_t cut = 0;  // the last state before the last stage
  int units = 0;        // of the last stage
  int all_units = 0;    // fewer than requested if some stay idle
};

class Level {
 public:
  Level(const CutStates& cuts, const PlannerOptions& options, const PlannerLevel& level, const Level* below);

  void solve_all();
  /// Solves the recurrence for all ranges that begin at `begin`; the functions below refer to this beginning.
  void solve(std::size_t begin);
  double best(std::size_t end, int units) const { return table_[cell(end, units)]; }
  Choice choice(std::size_t end, int units) const;
  int units() const { return level_.units; }
  double undivided_time(Range range, int units) const;

 private:
  std::size_t count() const { return cuts_.states.size(); }
  std::size_t cell(std::size_t end, int units) const { return static_cast<std::size_t>(units - 1) * count() + end; }
  bool follows(std::size_t inner, std::size_t outer) const { return within_[inner * count() + outer]; }
  double time_before(std::size_t begin) const { return begin == 0 ? 0.0 : time_[begin - 1]; }
  double bytes(Range range) const;
  double below(Range range) const;
  bool fits(Range range, int units_so_far, int units) const;
  double last_stage(Range range, int units) const;
  double transfers(std::size_t cut, std::size_t end, int units) const;
  double through_cut(std::size_t cut, std::size_t end, int all_units, int units) const;
  template <class Visit>
  void visit_cuts(std::size_t end, int all_units, int units, const double& limit, const Visit& visit) const;

  const CutStates& cuts_;
  const PlannerOptions& options_;
  PlannerLevel level_;
  const Level* below_;
  double workers_a_unit_;
  bool published_;
  std::vector<double> time_;
  std::vector<bool> within_;
  std::vector<double> table_;  // by units and end, for the current beginning
  std::vector<double> all_;    // with all units, by begin and end
  std::size_t begin_ = 0;
};

Level::Level(const CutStates& cuts, const PlannerOptions& options, const PlannerLevel& level, const Level* below)
    : cuts_(cuts),
      options_(options),
      level_(level),
      below_(below),
      workers_a_unit_(below == nullptr ? 1.0 : below->workers_a_unit_ * below->level_.units),
      published_(options.rules == PlannerRules::kPublishedCode) {
  for (const CutState& state : cuts.states) time_.push_back(state.time.value());
  if (below != nullptr) {
    within_ = below->within_;
  } else {
    within_.assign(count() * count(), false);
    for (std::size_t inner = 0; inner < count(); ++inner) {
      for (std::size_t outer = inner + 1; outer < count(); ++outer) {
        within_[inner * count() + outer] = cuts.states[inner].is_within(cuts.states[outer]);
      }
    }
  }
}

double Level::bytes(Range range) const {
  const double before = range.begin == 0 ? 0.0 : cuts_.states[range.begin - 1].parameters.value();
  return cuts_.states[range.end].parameters.value() - before;
}

double Level::below(Range range) const {
  if (below_ != nullptr) return below_->all_[range.begin * count() + range.end];
  return time_[range.end] - time_before(range.begin);
}

bool Level::fits(Range range, int units_so_far, int units) const {
  if (!options_.memory) return true;
  const double before = range.begin == 0 ? 0.0 : cuts_.states[range.begin - 1].activation.value();
  const double held = cuts_.states[range.end].activation.value() - before + bytes(range);
  const int behind = level_.units - units_so_far + (published_ ? 0 : units);
  return std::ceil(static_cast<double>(behind) / units) * held <= options_.memory->value();
}

double Level::last_stage(Range range, int units) const {
  const double bandwidth = level_.bandwidth.value();
  if (published_) return (below(range) + 4.0 * (units - 1) * bytes(range) / (bandwidth * units)) / units;
  return std::max(below(range), 2.0 * (units - 1) * bytes(range) / bandwidth) / units;
}

double Level::undivided_time(Range range, int units) const {
  if ((options_.straight && units > 1) || !fits(range, units, units)) return kImpossible;
  if (!published_) return last_stage(range, units);
  const double within = below_ == nullptr ? 1.0 : below_->level_.units;
  const double communication = 4.0 * (units - 1) * bytes(range) / (level_.bandwidth.value() * units) / within;
  return (below(range) + communication) / units;
}

double Level::transfers(std::size_t cut, std::size_t end, int units) const {
  const double bandwidth = level_.bandwidth.value();
  if (!published_) {
    return 2.0 * cuts_.states[cut].crossing.value() / bandwidth / options_.activation_compression.value_or(1.0);
  }
  if (!options_.activation_compression) return 0.0;
  double sent = cuts_.states[cut].transition.value();
  if (end + 1 < count()) sent = std::max(sent, cuts_.states[end].transition.value());
  return 2.0 * sent / (bandwidth * units) / *options_.activation_compression;
}

double Level::through_cut(std::size_t cut, std::size_t end, int all_units, int units) const {
  const Range last = {cut + 1, end};
  if (!fits(last, all_units, units)) return kImpossible;
  return std::max({best(cut, all_units - units), last_stage(last, units), transfers(cut, end, units)});
}

// Visits cuts outwards from the one that balances both sides, as long as the time on the growing side, divided evenly
// over its workers, is below the limit (which the visitor may lower).
template <class Visit>
void Level::visit_cuts(std::size_t end, int all_units, int units, const double& limit, const Visit& visit) const {
  const double start = time_before(begin_);
  const double workers_before = (all_units - units) * workers_a_unit_;
  const double workers_last = units * workers_a_unit_;
  const double balanced = start + (time_[end] - start) * workers_before / (workers_before + workers_last);
  const auto from = time_.begin() + static_cast<std::ptrdiff_t>(begin_);
  const auto to = time_.begin() + static_cast<std::ptrdiff_t>(end);
  const std::size_t middle = static_cast<std::size_t>(std::lower_bound(from, to, balanced) - time_.begin());
  const auto joins = [this, end](std::size_t cut) {
    return follows(cut, end) && (begin_ == 0 || follows(begin_ - 1, cut));
  };
  for (std::size_t cut = middle; cut < end; ++cut) {
    if ((time_[cut] - start) / workers_before >= limit) break;
    if (joins(cut)) visit(cut);
  }
  for (std::size_t cut = middle; cut-- > begin_;) {
    if ((time_[end] - time_[cut]) / workers_last >= limit) break;
    if (joins(cut)) visit(cut);
  }
}

void Level::solve(std::size_t begin) {
  begin_ = begin;
  table_.assign(count() * static_cast<std::size_t>(level_.units), kImpossible);
  for (int all_units = 1; all_units <= level_.units; ++all_units) {
    for (std::size_t end = begin; end < count(); ++end) {
      if (begin > 0 && !follows(begin - 1, end)) continue;
      double shortest = undivided_time({begin, end}, all_units);
      if (options_.fewer_workers && all_units > 1) shortest = std::min(shortest, best(end, all_units - 1));
      const int most = options_.straight ? std::min(1, all_units - 1) : all_units - 1;
      for (int units = 1; units <= most; ++units) {
        visit_cuts(end, all_units, units, shortest, [&](std::size_t cut) {
          if (best(cut, all_units - units) >= shortest) return;
          shortest = std::min(shortest, through_cut(cut, end, all_units, units));
        });
      }
      table_[cell(end, all_units)] = shortest;
    }
  }
}

void Level::solve_all() {
  all_.assign(count() * count(), kImpossible);
  for (std::size_t begin = 0; begin < count(); ++begin) {
    solve(begin);
    for (std::size_t end = begin; end < count(); ++end) all_[begin * count() + end] = best(end, level_.units);
  }
}

Choice Level::choice(std::size_t end, int all_units) const {
  const double wanted = best(end, all_units);
  while (options_.fewer_workers && all_units > 1 && best(end, all_units - 1) == wanted) --all_units;
  Choice found;
  found.all_units = all_units;
  found.undivided = undivided_time({begin_, end}, all_units) == wanted;
  const int most = options_.straight ? 1 : all_units - 1;
  for (int units = most; units >= 1 && !found.undivided && found.units == 0; --units) {
    visit_cuts(end, all_units, units, kImpossible, [&](std::size_t cut) {
      if (found.units != 0 || through_cut(cut, end, all_units, units) != wanted) return;
      found.cut = cut;
      found.units = units;
    });
  }
  FLOPCAST_CHECK(found.undivided || found.units > 0);
  return found;
}

void check(const std::vector<PlannerLevel>& levels, const PlannerOptions& options) {
  if (levels.empty()) throw ConfigError({"workers", "no levels of workers are given", "", "give at least one level"});
  double workers = 1.0;
  for (const PlannerLevel& level : levels) {
    if (level.units < 1) {
      throw ConfigError(
          {"workers", fmt::format("{} is not a valid number of workers", level.units), "", "expected at least 1"});
    }
    if (!(level.bandwidth.value() > 0)) {
      throw ConfigError(
          {"bandwidth", fmt::format("{} B/s is out of range", level.bandwidth.value()), "", "expected more than 0"});
    }
    workers *= level.units;
  }
  constexpr double kMostWorkers = 4096.0;
  if (workers > kMostWorkers) {
    throw ConfigError(
        {"workers", fmt::format("{:.0f} workers are too many to plan for", workers), "", "expected at most 4096"});
  }
  if (options.activation_compression && !(*options.activation_compression > 0)) {
    throw ConfigError({"activation compression", "the ratio must be more than 0", "", ""});
  }
}

// Collects the stages of a level's plan, each refined by the level below.
void collect(std::vector<Level>& levels, std::size_t index, Range range, int replicas, const CutStates& cuts,
             std::vector<PlannedStage>& stages) {
  Level& level = levels[index];
  level.solve(range.begin);
  struct Part {
    Range range;
    int units;
  };
  std::vector<Part> parts;  // in reverse order
  int units = level.units();
  std::size_t end = range.end;
  while (true) {
    const Choice choice = level.choice(end, units);
    if (choice.undivided) {
      parts.push_back({{range.begin, end}, choice.all_units});
      break;
    }
    parts.push_back({{choice.cut + 1, end}, choice.units});
    end = choice.cut;
    units = choice.all_units - choice.units;
  }
  std::reverse(parts.begin(), parts.end());
  for (const Part& part : parts) {
    if (index > 0) {
      collect(levels, index - 1, part.range, replicas * part.units, cuts, stages);
      continue;
    }
    const CutState& last = cuts.states[part.range.end];
    PlannedStage stage = {part.range.begin, part.range.end, replicas * part.units, last.time, last.parameters};
    if (part.range.begin > 0) {
      stage.compute -= cuts.states[part.range.begin - 1].time;
      stage.parameters -= cuts.states[part.range.begin - 1].parameters;
    }
    stages.push_back(stage);
  }
}

Seconds data_parallel_time(const CutStates& cuts, const std::vector<PlannerLevel>& levels, PlannerRules rules) {
  const CutState& model = cuts.states.back();
  double time = model.time.value();
  double within = 1.0;
  for (const PlannerLevel& level : levels) {
    const double sent = model.parameters.value() * (level.units - 1) / level.bandwidth.value();
    time = rules == PlannerRules::kPaper ? std::max(time, 2.0 * sent) : time + 4.0 * sent / level.units / within;
    time /= level.units;
    within = level.units;
  }
  return Seconds(time);
}

}  // namespace

std::optional<PipelinePlan> plan_pipeline(const CutStates& cuts, const std::vector<PlannerLevel>& levels,
                                          const PlannerOptions& options) {
  check(levels, options);
  std::vector<Level> solvers;
  solvers.reserve(levels.size());  // no reallocation, because each level points to the one below
  for (const PlannerLevel& level : levels) {
    if (!solvers.empty()) solvers.back().solve_all();
    solvers.emplace_back(cuts, options, level, solvers.empty() ? nullptr : &solvers.back());
  }
  Level& top = solvers.back();
  top.solve(0);
  const std::size_t whole = cuts.states.size() - 1;
  const double time = top.best(whole, top.units());
  if (!(time < kImpossible)) return std::nullopt;
  PipelinePlan plan;
  plan.time_per_minibatch = Seconds(time);
  plan.one_worker = cuts.states.back().time;
  plan.data_parallel = data_parallel_time(cuts, levels, options.rules);
  collect(solvers, solvers.size() - 1, {0, whole}, 1, cuts, plan.stages);
  plan.workers = 0;
  for (const PlannedStage& stage : plan.stages) plan.workers += stage.replicas;
  return plan;
}

}  // namespace flopcast
