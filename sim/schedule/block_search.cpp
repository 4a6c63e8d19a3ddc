#include "sim/schedule/block_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "sim/schedule/assumed_times.hpp"
#include "sim/schedule/best_orders.hpp"
#include "sim/schedule/block_memory.hpp"
#include "sim/schedule/order_bound.hpp"
#include "sim/schedule/shorten.hpp"
#include "sim/schedule/slot_squeeze.hpp"
#include "sim/schedule/squeeze.hpp"

namespace flopcast {

namespace {

constexpr std::size_t kFinalists = 5;          // blocks that are squeezed in full
constexpr int kManyRanks = 16;                 // from here on the first round leaves out squeezing in slots: no time
constexpr int kShortRun = 4;                   // microbatches beyond one a rank, of the first round
constexpr std::size_t kWidePolicies = 2;       // the first ones are tried under other times than the real ones too
constexpr std::size_t kMostPlaced = 500'000;   // actions that all full squeezes together may place
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

  // Also when there is nothing left to gain.
  bool has_room() {
    if (best_.is_shortest_possible()) return false;
    const std::size_t actions =
        search_.empty.rank_of_stage.size() * static_cast<std::size_t>(microbatches_) * (search_.split ? 3U : 2U);
    if (!best_.empty() && placed_ + actions > kMostPlaced) return false;
    placed_ += actions / 4;  // to prepare
    return true;
  }

  void squeeze_all(const std::vector<Plan>& plans, std::size_t assumed, const SqueezePolicy& policy) {
    for (std::size_t index = 0; index < assumed; ++index) {
      for (const Plan& plan : plans) {
        // Only under the real times is what an order takes known while it is made.
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

  // With the span first, the makespan is to be no longer than that of the best rival.
  void consider_rivals() {
    for (const Program& rival : search_.rivals) best_.consider(rival);
    if (!search_.goal.span_first || best_.empty()) return;
    best_.bound_makespan();
    std::vector<Plan> plans;
    for (const Program& rival : search_.rivals) plans.push_back(rival.ranks);
    limit_idling(plans, 1, {true});
  }

  // Of the rank that idles longest between its first and its last action.
  Ticks longest_idle() const {
    std::vector<Ticks> busy(search_.empty.ranks.size(), 0);
    for (std::size_t stage = 0; stage < search_.empty.rank_of_stage.size(); ++stage) {
      const StageTimes& times = assumed_.front().stages[stage];
      busy[static_cast<std::size_t>(search_.empty.rank_of_stage[stage])] +=
          microbatches_ * (times.forward + times.backward);
    }
    return best_.shortest().span - *std::min_element(busy.begin(), busy.end());
  }

  // Again and again with what the best order has shown to be enough idle time, and with less.
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

  // What a block takes on a short run, at best, if that is less than `target`.
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
      stretch_to_fit(block, rule_);
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
  std::vector<StepTimes> assumed_;  // the first are the real ones
  ActivationRule rule_;
  BestOrders best_;
  std::size_t placed_ = 0;
};

}  // namespace

Program search_blocks(const BlockSearch& search, const ScheduleRequest& request) {
  return Searcher(search, request).run();
}

std::optional<int> limit_in_halves(const ScheduleRequest& request, int chunks) {
  if (!request.memory_limit) return std::nullopt;
  // A limit of all microbatches is none; the product must not overflow.
  return 2 * chunks * std::min(*request.memory_limit, request.microbatches);
}

std::optional<ScheduleRefusal> refuse_memory_limit(std::string_view name, const ScheduleRequest& request) {
  if (!request.memory_limit || *request.memory_limit >= 1) return std::nullopt;
  return ScheduleRefusal{.problem = fmt::format("{} cannot run with a memory limit of {}", name, *request.memory_limit),
                         .help = "at least 1 microbatch"};
}

}  // namespace flopcast
