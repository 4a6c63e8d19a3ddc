#include "sim/schedule/block_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "sim/schedule/order_times.hpp"

namespace flopcast {

namespace {

constexpr Ticks kEqualTime = 1200;             // any; divisible by four for SqueezePolicy::patience
constexpr std::size_t kFinalists = 5;          // blocks that are squeezed in full
constexpr std::size_t kMostSteps = 1'200'000;  // actions that all full squeezes together may place
constexpr int kShortRun = 4;                   // microbatches beyond one a rank, of the first round

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

// What the decisions are made under, the real times first: the order that suits slightly wrong times is at times the
// better one.
std::vector<StepTimes> assumed_times(const Program& program, const std::optional<StepTimes>& given) {
  if (!given) return {equal_times(program, kEqualTime)};
  std::vector<StepTimes> assumed = {*given, *given};
  assumed[1].boundaries.assign(given->boundaries.size(), BoundaryTimes{});
  assumed.push_back(equal_times(program, mean_pass(*given)));
  assumed.push_back(assumed.back());
  assumed.back().boundaries = given->boundaries;
  return assumed;
}

// Halves of activations that a rank holds in the steady state when microbatches come `period` slots apart.
int steady_peak(const std::vector<BlockEntry>& entries, int period, bool half_freed_at_i) {
  constexpr int kWhole = 2;
  const auto change_of = [half_freed_at_i](ActionKind kind) {
    if (kind == ActionKind::kForward) return kWhole;
    if (kind == ActionKind::kInputGradient) return half_freed_at_i ? -1 : 0;
    return kind == ActionKind::kWeightGradient && half_freed_at_i ? -1 : -kWhole;
  };
  int peak = 0;
  for (const BlockEntry& now : entries) {
    int held = 0;
    for (const BlockEntry& entry : entries) {
      // Repetitions until now, relative to those of `now`; the changes of one microbatch add up to nothing.
      const int distance = now.offset - entry.offset;
      const int repeated = distance >= 0 ? distance / period : -((period - 1 - distance) / period);
      held += change_of(entry.action.kind) * repeated;
    }
    peak = std::max(peak, held);
  }
  return peak;
}

bool fits(const BuildingBlock& block, int period, const ActivationRule& rule) {
  return std::all_of(block.ranks.begin(), block.ranks.end(), [&](const std::vector<BlockEntry>& entries) {
    return steady_peak(entries, period, rule.half_freed_at_i) <= *rule.limit;
  });
}

void stretch_to_fit(BuildingBlock& block, const ActivationRule& rule) {
  if (!rule.limit || fits(block, block.period, rule)) return;
  int too_short = block.period;
  int enough = block.period;
  for (const std::vector<BlockEntry>& entries : block.ranks) enough = std::max(enough, entries.back().offset + 1);
  while (enough - too_short > 1) {
    const int middle = too_short + (enough - too_short) / 2;
    (fits(block, middle, rule) ? enough : too_short) = middle;
  }
  block.period = enough;
}

bool same_block(const BuildingBlock& a, const BuildingBlock& b) {
  const auto same = [](const BlockEntry& x, const BlockEntry& y) {
    return x.offset == y.offset && x.action == y.action;
  };
  return a.period == b.period &&
         std::equal(a.ranks.begin(), a.ranks.end(), b.ranks.begin(), b.ranks.end(), [&](const auto& x, const auto& y) {
           return std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
         });
}

class Searcher {
 public:
  Searcher(const BlockSearch& search, const ScheduleRequest& request)
      : search_(search),
        microbatches_(request.microbatches),
        ranks_(request.pipeline_ranks),
        assumed_(assumed_times(search.empty, request.times)),
        rule_(search.rule) {
    const int most = 2 * search.chunks * microbatches_;
    if (rule_.limit && *rule_.limit >= most) rule_.limit.reset();
  }

  Program run() {
    for (const Program& rival : search_.rivals) consider(rival);
    const std::vector<BuildingBlock> blocks = finalists();
    const std::size_t actions =
        search_.empty.rank_of_stage.size() * static_cast<std::size_t>(microbatches_) * (search_.split ? 3U : 2U);
    std::size_t placed = 0;
    for (const SqueezePolicy& policy : policies()) {
      for (const StepTimes& times : assumed_) {
        for (const BuildingBlock& block : blocks) {
          if (best_ && placed + actions > kMostSteps) return std::move(*best_);
          placed += actions;
          if (auto program = squeeze(search_.empty, microbatches_, block, times, rule_, policy)) {
            consider(std::move(*program));
          }
        }
      }
    }
    return std::move(*best_);
  }

 private:
  std::vector<SqueezePolicy> policies() const {
    if (!search_.split) return {{false, 0}, {false, 4}, {false, 2}};
    return {{false, 0}, {true, 0}, {false, 2}, {true, 2}, {false, 4}, {true, 4}, {false, 3}, {false, 1}, {true, 3}};
  }

  std::vector<BuildingBlock> finalists() const {
    std::vector<BuildingBlock> blocks;
    for (const BlockShape& shape : search_.shapes) {
      BuildingBlock block = building_block(ranks_, search_.chunks, search_.split, shape);
      stretch_to_fit(block, rule_);
      const bool known =
          std::any_of(blocks.begin(), blocks.end(), [&](const BuildingBlock& one) { return same_block(one, block); });
      if (!known) blocks.push_back(std::move(block));
    }
    const int short_run = std::min(microbatches_, ranks_ + kShortRun);
    std::vector<std::pair<OrderTimes, std::size_t>> order;
    for (std::size_t index = 0; index < blocks.size(); ++index) {
      OrderTimes best;
      bool any = false;
      for (const SqueezePolicy& policy : {SqueezePolicy{false, 2}, SqueezePolicy{search_.split, 0}}) {
        const auto program = squeeze(search_.empty, short_run, blocks[index], assumed_.front(), rule_, policy);
        if (!program) continue;
        const OrderTimes times = time_order(*program, short_run, assumed_.front());
        if (!any || times < best) best = times;
        any = true;
      }
      if (any) order.emplace_back(best, index);
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<BuildingBlock> chosen;
    for (std::size_t place = 0; place < std::min(kFinalists, order.size()); ++place) {
      chosen.push_back(std::move(blocks[order[place].second]));
    }
    return chosen;
  }

  void consider(Program program) {
    const OrderTimes times = time_order(program, microbatches_, assumed_.front());
    if (best_ && !(times < best_times_)) return;
    best_ = std::move(program);
    best_times_ = times;
  }

  const BlockSearch& search_;
  int microbatches_;
  int ranks_;
  std::vector<StepTimes> assumed_;  // the first are the real ones
  ActivationRule rule_;
  std::optional<Program> best_;
  OrderTimes best_times_;
};

}  // namespace

Program search_blocks(const BlockSearch& search, const ScheduleRequest& request) {
  return Searcher(search, request).run();
}

std::vector<BlockShape> all_shapes(int chunks, int largest_step, int largest_gap) {
  std::vector<BlockShape> shapes = {BlockShape{}};
  const auto vary = [&shapes](int largest, const auto& set) {
    std::vector<BlockShape> varied;
    for (int value = 1; value <= largest; ++value) {
      for (BlockShape shape : shapes) {
        set(shape, value);
        varied.push_back(shape);
      }
    }
    shapes = std::move(varied);
  };
  const auto legs = static_cast<std::size_t>(2 * chunks);
  for (std::size_t leg = 0; leg < legs; ++leg) {
    vary(largest_step, [leg](BlockShape& shape, int value) { shape.steps[leg] = value; });
    if (leg + 1 < legs) vary(largest_gap, [leg](BlockShape& shape, int value) { shape.gaps[leg] = value; });
  }
  return shapes;
}

std::vector<BlockShape> v_shapes(int ranks) {
  constexpr int kLargestStep = 2;
  // Gaps matter less the longer the legs are; and time is short where there are many ranks.
  constexpr int kManyRanks = 16;
  std::vector<BlockShape> shapes = all_shapes(2, kLargestStep, ranks > kManyRanks ? 1 : 2);
  // Found by trying all steps and gaps up to 4 and 6 on pipelines of 2 to 8 ranks: those that were best somewhere.
  const std::vector<BlockShape> wider = {
      {{2, 1, 2, 1}, {1, 4, 2}}, {{1, 2, 1, 2}, {1, 4, 2}}, {{1, 2, 1, 2}, {2, 4, 4}}, {{1, 2, 1, 2}, {2, 4, 1}},
      {{1, 2, 1, 2}, {4, 1, 5}}, {{1, 2, 1, 2}, {4, 4, 2}}, {{1, 3, 1, 3}, {1, 1, 1}}, {{1, 3, 1, 3}, {1, 3, 1}},
      {{1, 1, 2, 1}, {3, 5, 2}}, {{1, 1, 2, 4}, {1, 1, 1}}, {{1, 4, 2, 3}, {1, 1, 1}}, {{1, 4, 2, 4}, {1, 1, 1}},
      {{2, 2, 4, 4}, {1, 1, 1}}, {{2, 4, 2, 4}, {1, 1, 1}}, {{4, 2, 4, 2}, {1, 1, 1}}};
  shapes.insert(shapes.end(), wider.begin(), wider.end());
  return shapes;
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
