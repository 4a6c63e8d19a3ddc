#include "sim/search/block_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "sim/program/program.hpp"
#include "sim/program/request.hpp"
#include "sim/search/order_times.hpp"

namespace flopcast {

namespace {

// The few best orders that a search has found; of orders that take equally long, the first.
class BestOrders {
 public:
  // `bound`: no order takes less time.
  BestOrders(int microbatches, StepTimes times, const OrderGoal& goal, const OrderTimes& bound);

  void consider(Program program);

  bool empty() const { return ranking_.empty(); }
  // Must not be empty.
  const OrderTimes& shortest() const { return ranking_.front().first; }
  bool is_shortest_possible() const { return !empty() && !goal_.prefers(bound_, shortest()); }
  // The times that another order must beat to be kept; nullopt while there is room.
  std::optional<SqueezeTarget> target() const;
  const OrderGoal& goal() const { return goal_; }
  // From now on, orders that take longer than the best one so far are worse than any other, whatever their span.
  void bound_makespan();
  // Best first; empties the collection.
  std::vector<Program> take();

 private:
  int microbatches_;
  StepTimes times_;
  OrderGoal goal_;
  OrderTimes bound_;
  std::vector<std::pair<OrderTimes, Program>> ranking_;
};

// Times under which a search decides what comes next, all different, the real ones first (F = I = W and zero latency if
// none are given). Slightly wrong times sometimes lead to a better order.
std::vector<StepTimes> assumed_times(const Program& program, const std::optional<StepTimes>& given);

constexpr std::size_t kMost = 6;

BestOrders::BestOrders(int microbatches, StepTimes times, const OrderGoal& goal, const OrderTimes& bound)
    : microbatches_(microbatches), times_(std::move(times)), goal_(goal), bound_(bound) {}

void BestOrders::consider(Program program) {
  const OrderTimes times = time_order(program, microbatches_, times_);
  auto place = ranking_.begin();
  while (place != ranking_.end() && goal_.prefers(place->first, times)) ++place;
  if (place != ranking_.end() && !goal_.prefers(times, place->first)) return;
  ranking_.emplace(place, times, std::move(program));
  if (ranking_.size() > kMost) ranking_.pop_back();
}

std::optional<SqueezeTarget> BestOrders::target() const {
  if (ranking_.size() < kMost) return std::nullopt;
  return SqueezeTarget{goal_, ranking_.back().first};
}

void BestOrders::bound_makespan() {
  goal_.most_makespan = shortest().makespan;
  ranking_.resize(1);
}

std::vector<Program> BestOrders::take() {
  std::vector<Program> programs;
  for (auto& [times, program] : ranking_) programs.push_back(std::move(program));
  ranking_.clear();
  return programs;
}

constexpr Ticks kEqualTime = 1200;  // arbitrary; divisible by four for SqueezePolicy::patience

StepTimes equal_times(const Program& program, Ticks pass) {
  StepTimes times;
  times.stages.assign(program.rank_of_stage.size(), StageTimes{pass, 2 * pass, pass, pass, std::nullopt});
  times.boundaries.resize(program.rank_of_stage.size() - 1);
  return times;
}

Ticks mean_pass(const StepTimes& times) {
  Ticks sum = 0;
  for (const StageTimes& stage : times.stages) sum += stage.forward / 3 + stage.backward / 3;
  return sum / static_cast<Ticks>(times.stages.size());
}

bool same_times(const StepTimes& a, const StepTimes& b) {
  const auto of_stage = [](const StageTimes& x, const StageTimes& y) {
    return x.forward == y.forward && x.backward == y.backward && x.input_gradient == y.input_gradient &&
           x.weight_gradient == y.weight_gradient;
  };
  const auto of_boundary = [](const BoundaryTimes& x, const BoundaryTimes& y) {
    return x.forward == y.forward && x.backward == y.backward;
  };
  return std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(), of_stage) &&
         std::equal(a.boundaries.begin(), a.boundaries.end(), b.boundaries.begin(), b.boundaries.end(), of_boundary);
}

std::vector<StepTimes> assumed_times(const Program& program, const std::optional<StepTimes>& given) {
  if (!given) return {equal_times(program, kEqualTime)};
  std::vector<StepTimes> assumed = {*given, *given};
  assumed[1].boundaries.assign(given->boundaries.size(), BoundaryTimes{});
  assumed.push_back(equal_times(program, mean_pass(*given)));
  assumed.push_back(assumed.back());
  assumed.back().boundaries = given->boundaries;
  std::vector<StepTimes> different;
  for (StepTimes& times : assumed) {
    const bool known = std::any_of(different.begin(), different.end(),
                                   [&times](const StepTimes& one) { return same_times(one, times); });
    if (!known) different.push_back(std::move(times));
  }
  return different;
}

constexpr std::size_t kFinalists = 5;          // blocks that are squeezed in full
constexpr int kManyRanks = 16;                 // from here on the first round omits squeezing in slots, to save time
constexpr int kShortRun = 4;                   // microbatches beyond one per rank in the first round
constexpr std::size_t kWidePolicies = 2;       // the first policies are also tried under times other than the real ones
constexpr std::size_t kMostPlaced = 500'000;   // actions that all full squeezes may place in total
constexpr std::size_t kMostTimed = 1'500'000;  // actions that the local search may time

bool same_block(const BuildingBlock& a, const BuildingBlock& b) {
  const auto same = [](const BlockEntry& x, const BlockEntry& y) {
    return x.offset == y.offset && x.action == y.action;
  };
  return a.period == b.period &&
         std::equal(a.ranks.begin(), a.ranks.end(), b.ranks.begin(), b.ranks.end(), [&](const auto& x, const auto& y) {
           return std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
         });
}

SqueezePolicy policy_of(bool weights_in_order, int patience) {
  SqueezePolicy policy;
  policy.weights_in_order = weights_in_order;
  policy.patience = patience;
  return policy;
}

class Searcher {
 public:
  Searcher(const BlockSearch& search, const ScheduleRequest& request)
      : search_(search),
        microbatches_(request.microbatches),
        ranks_(request.pipeline_ranks),
        assumed_(assumed_times(search.empty, request.times)),
        rule_(without_idle_limit(search.rule, 2 * search.chunks * microbatches_)),
        best_(microbatches_, assumed_.front(), search.goal, bound_of(microbatches_)) {}

  Program run() {
    consider_rivals();
    std::vector<Plan> plans;
    for (const BuildingBlock& block : finalists()) {
      plans.push_back(repeat(block, microbatches_));
      if (!has_room()) continue;
      auto plan = squeeze_slots(search_.empty, microbatches_, block, rule_);
      if (!plan) continue;
      best_.consider(with_order(*plan));
      plans.push_back(std::move(*plan));
    }
    for (const Program& rival : search_.rivals) plans.push_back(rival.ranks);
    const std::vector<SqueezePolicy> policies = all_policies();
    for (std::size_t index = 0; index < policies.size(); ++index) {
      squeeze_all(plans, index < kWidePolicies ? assumed_.size() : 1, policies[index]);
    }
    if (search_.split) limit_idling(plans, 1, {false, true});
    return shorten(best_.take(), microbatches_, assumed_.front(), rule_, best_.goal(), kMostTimed);
  }

 private:
  static ActivationRule without_idle_limit(ActivationRule rule, int most) {
    if (rule.limit && *rule.limit >= most) rule.limit.reset();
    return rule;
  }

  OrderTimes bound_of(int microbatches) const {
    return order_bound(search_.empty, microbatches, assumed_.front(), rule_, search_.split);
  }

  Program with_order(const Plan& plan) const {
    Program program = search_.empty;
    program.ranks = plan;
    return program;
  }

  // False also if nothing is left to gain.
  bool has_room() {
    if (best_.is_shortest_possible()) return false;
    const std::size_t actions =
        search_.empty.rank_of_stage.size() * static_cast<std::size_t>(microbatches_) * (search_.split ? 3U : 2U);
    if (!best_.empty() && placed_ + actions > kMostPlaced) return false;
    placed_ += actions / 4;  // preparation
    return true;
  }

  void squeeze_all(const std::vector<Plan>& plans, std::size_t assumed, const SqueezePolicy& policy) {
    for (std::size_t index = 0; index < assumed; ++index) {
      for (const Plan& plan : plans) {
        // The duration of an order is known while it is built only under the real times.
        const auto target = index == 0 ? best_.target() : std::nullopt;
        if (!has_room()) return;
        Squeezed squeezed = squeeze(search_.empty, microbatches_, plan, assumed_[index], rule_, policy, target);
        placed_ += squeezed.placed;
        if (squeezed.program) best_.consider(std::move(*squeezed.program));
      }
    }
  }

  std::vector<SqueezePolicy> all_policies() const {
    if (!search_.split) return {policy_of(false, 0), policy_of(false, 4), policy_of(false, 2)};
    return {policy_of(false, 0), policy_of(true, 0),  policy_of(false, 2), policy_of(true, 2), policy_of(false, 4),
            policy_of(true, 4),  policy_of(false, 3), policy_of(false, 1), policy_of(true, 3)};
  }

  // If the span comes first in the goal, the makespan must not exceed that of the best rival.
  void consider_rivals() {
    for (const Program& rival : search_.rivals) best_.consider(rival);
    if (!search_.goal.span_first || best_.empty()) return;
    best_.bound_makespan();
    std::vector<Plan> plans;
    for (const Program& rival : search_.rivals) plans.push_back(rival.ranks);
    limit_idling(plans, 1, {true});
  }

  // Idle time of the rank that idles longest between its first and its last action.
  Ticks longest_idle() const {
    ByRank<Ticks> busy(search_.empty.ranks.size(), 0);
    for (std::size_t stage = 0; stage < search_.empty.rank_of_stage.size(); ++stage) {
      const StageTimes& times = assumed_.front().stages[stage];
      busy[search_.empty.rank_of_stage[stage]] += microbatches_ * (times.forward + times.backward);
    }
    return best_.shortest().span - *std::min_element(busy.begin(), busy.end());
  }

  // Repeats the squeezing with the idle time of the best order so far, and with fractions of it, until nothing
  // improves.
  void limit_idling(const std::vector<Plan>& plans, std::size_t assumed, const std::vector<bool>& passes_in_order) {
    Ticks before = -1;
    for (Ticks most = longest_idle(); most != before; before = std::exchange(most, longest_idle())) {
      for (const int quarters : {4, 3, 2, 1}) {
        for (const bool in_order : passes_in_order) {
          for (const int patience : {0, 2}) {
            SqueezePolicy policy = policy_of(false, patience);
            policy.most_idle = most / 4 * quarters - 1;
            policy.passes_in_order = in_order;
            squeeze_all(plans, assumed, policy);
          }
        }
      }
    }
  }

  // Best times of a block on a short run, if they improve on `target`.
  std::optional<OrderTimes> short_times(const BuildingBlock& block, int short_run,
                                        std::optional<SqueezeTarget> target) {
    std::optional<OrderTimes> best;
    const auto consider = [&](Program program) {
      const OrderTimes times = time_order(program, short_run, assumed_.front());
      if (!target || search_.goal.prefers(times, target->beat)) {
        best = times;
        target = SqueezeTarget{search_.goal, times};
      }
      if (short_run == microbatches_) best_.consider(std::move(program));
    };
    const Plan plan = repeat(block, short_run);
    for (const SqueezePolicy& policy : {policy_of(false, 2), policy_of(search_.split, 0)}) {
      Squeezed squeezed = squeeze(search_.empty, short_run, plan, assumed_.front(), rule_, policy, target);
      if (squeezed.program) consider(std::move(*squeezed.program));
    }
    if (ranks_ <= kManyRanks) {
      if (const auto squeezed = squeeze_slots(search_.empty, short_run, block, rule_)) consider(with_order(*squeezed));
    }
    return best;
  }

  std::vector<BuildingBlock> finalists() {
    const int short_run = std::min(microbatches_, ranks_ + kShortRun);
    const OrderTimes bound = bound_of(short_run);
    std::vector<BuildingBlock> blocks;
    std::vector<std::pair<OrderTimes, BuildingBlock>> ranking;
    for (const BlockShape& shape : search_.shapes) {
      BuildingBlock block = building_block(ranks_, search_.chunks, search_.split, shape);
      lengthen_period_to_fit(block, rule_);
      const bool known =
          std::any_of(blocks.begin(), blocks.end(), [&](const BuildingBlock& one) { return same_block(one, block); });
      if (known) continue;
      blocks.push_back(block);
      std::optional<SqueezeTarget> target;
      if (ranking.size() == kFinalists) target = SqueezeTarget{search_.goal, ranking.back().first};
      const auto times = short_times(block, short_run, target);
      if (!times) continue;
      const auto place = std::find_if(ranking.begin(), ranking.end(),
                                      [&](const auto& one) { return search_.goal.prefers(*times, one.first); });
      ranking.emplace(place, *times, std::move(block));
      if (ranking.size() > kFinalists) ranking.pop_back();
      const bool best_possible = ranking.size() == kFinalists && !search_.goal.prefers(bound, ranking.back().first);
      if (best_possible || best_.is_shortest_possible()) break;
    }
    std::vector<BuildingBlock> chosen;
    for (auto& [times, block] : ranking) chosen.push_back(std::move(block));
    return chosen;
  }

  const BlockSearch& search_;
  int microbatches_;
  int ranks_;
  std::vector<StepTimes> assumed_;  // the first entry holds the real times
  ActivationRule rule_;
  BestOrders best_;
  std::size_t placed_ = 0;
};

}  // namespace

Program search_blocks(const BlockSearch& search, const ScheduleRequest& request) {
  return Searcher(search, request).run();
}

ActivationRule rule_of_variant(const ScheduleRequest& request, int chunks) {
  const bool counts_chunks = request.variant == "chunks";
  ActivationRule rule;
  rule.half_freed_at_i = counts_chunks || request.variant == "half";
  if (!request.memory_limit) return rule;
  // Clamped to what there is, so that the product cannot overflow.
  rule.limit = counts_chunks ? 2 * std::min(*request.memory_limit, chunks * request.microbatches)
                             : 2 * chunks * std::min(*request.memory_limit, request.microbatches);
  return rule;
}

std::optional<ScheduleRefusal> refuse_memory_limit(std::string_view name, const ScheduleRequest& request) {
  if (!request.memory_limit || *request.memory_limit >= 1) return std::nullopt;
  return ScheduleRefusal{.problem = fmt::format("{} cannot run with a memory limit of {}", name, *request.memory_limit),
                         .help = "at least 1 microbatch"};
}

}  // namespace flopcast
