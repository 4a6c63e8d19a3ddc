// Chimera: Li & Hoefler 2021, arXiv 2107.06925, sections 3.1 and 3.5.
//
// Rule: two copies of the model run through the ranks in opposite directions, m/2 microbatches each. Both are laid out
// in slots, F of stage s in slot 2k + s and B in slot 2k + 2p - 1 - s for the k-th microbatch of a unit, and merge
// without collision because p is even. A unit has p microbatches, p/2 of each copy.
//   concatenation  units follow each other 2p slots apart (direct concatenation; the default)
//   doubling       forwards run in pairs, so that with B = 2F both directions have equal slots: list scheduling with
//                  backwards first and p/2 pairs of each copy under way (greedy_order.hpp). Backward halving is the
//                  same order with microbatches of half the size.
// Memory: p/2 + 1 + min(r, p - 1 - r) activations for m >= p, with doubling up to 2p; twice the parameters, whose
// gradients are added up between the copies.
// Makespan at c = 0: F = B, concatenation: (2m + p - 2) F for p | m, idle share (p - 2) / (2m + p - 2);
// m = p, B >= F: p F + (2p - 2) B. Doubling, B = 2F, 2p | m, p <= 6: at most 3m F + 2 (p - 2) F, idle share (p - 2) /
// (3m/2 + p - 2); longer pipelines stay above that, at p = 16 by 10.5 % for m = 2p and 4.1 % for m = 4p. Constraints: p
// and m even; doubling: 4 | m.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "sim/schedule/generators.hpp"
#include "sim/schedule/greedy_order.hpp"
#include "sim/schedule/orders.hpp"
#include "sim/schedule/stage_maps.hpp"

namespace flopcast {

namespace {

constexpr std::string_view kDoubling = "doubling";

std::optional<ScheduleRefusal> refuse(const ScheduleRequest& request) {
  const int ranks = request.pipeline_ranks;
  const int microbatches = request.microbatches;
  if (ranks % 2 != 0) {
    return ScheduleRefusal{.problem = fmt::format("chimera's two directions collide on {} pipeline ranks", ranks),
                           .help = fmt::format("an even number of pipeline ranks, such as {}", ranks + 1)};
  }
  const bool doubling = request.variant == kDoubling;
  const int divisor = doubling ? 4 : 2;
  if (microbatches % divisor == 0) return std::nullopt;
  const int more = microbatches + divisor - microbatches % divisor;
  const int fewer = more - divisor;
  const std::string valid = fewer > 0 ? fmt::format("{} or {}", fewer, more) : std::to_string(more);
  return ScheduleRefusal{
      .problem = fmt::format("chimera{} shares {} evenly out to two copies, {} microbatches cannot be",
                             doubling ? ":doubling" : "", doubling ? "pairs" : "microbatches", microbatches),
      .help = fmt::format("{} microbatches", valid)};
}

// What runs on a rank in each slot of a unit is the same for all units, so slots are filled in one table.
void concatenate(Program& program, const ScheduleRequest& request) {
  const int ranks = request.pipeline_ranks;
  const int unit_length = 2 * ranks;
  const int each = request.microbatches / 2;
  const auto slot_of = [&](int microbatch) {
    return microbatch / (ranks / 2) * unit_length + 2 * (microbatch % (ranks / 2));
  };
  const auto slots = static_cast<std::size_t>(slot_of(each - 1) + unit_length);
  constexpr Action kNothing{.microbatch = 0, .stage = 0, .kind = ActionKind::kWeightGradient};
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Action> table(slots, kNothing);
    for (const int stage : {rank, 2 * ranks - 1 - rank}) {
      const int depth = stage % ranks;
      for (int microbatch = 0; microbatch < each; ++microbatch) {
        const int slot = slot_of(microbatch);
        table[static_cast<std::size_t>(slot + depth)] = forward_action(stage, microbatch);
        table[static_cast<std::size_t>(slot + unit_length - 1 - depth)] = backward_action(stage, microbatch);
      }
    }
    std::vector<Action>& actions = program.ranks[static_cast<std::size_t>(rank)];
    actions.reserve(static_cast<std::size_t>(4 * each));
    std::copy_if(table.begin(), table.end(), std::back_inserter(actions),
                 [&](const Action& action) { return !(action == kNothing); });
  }
}

Program generate(const ScheduleRequest& request) {
  Program program = empty_two_chains("chimera", request);
  if (request.variant == kDoubling) {
    GreedyRule rule;
    rule.microbatches = request.microbatches / 2;
    rule.together = 2;
    rule.most_in_flight = request.pipeline_ranks / 2;
    fill_greedily(program, rule);
  } else {
    concatenate(program, request);
  }
  return program;
}

std::optional<Ticks> closed_form_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const Ticks ranks = request.pipeline_ranks;
  const Ticks microbatches = request.microbatches;
  if (request.variant == kDoubling || times.latency != 0 || times.backward < times.forward) return std::nullopt;
  if (microbatches == ranks) return ranks * times.forward + (2 * ranks - 2) * times.backward;
  if (times.forward != times.backward || microbatches % ranks != 0) return std::nullopt;
  return (2 * microbatches + ranks - 2) * times.forward;
}

}  // namespace

ScheduleInfo chimera_schedule() {
  ScheduleInfo info;
  info.name = "chimera";
  info.summary = "two copies of the model in opposite directions, merged slot by slot";
  info.source = "Chimera, arXiv 2107.06925, sections 3.1 and 3.5";
  info.constraints = "p and m even; doubling: 4 divides m";
  info.peak_in_flight = "p/2 + 1 + min(r, p - 1 - r), doubling 2p; two copies";
  info.makespan = "c = 0: m = p, B >= F: p F + (2p - 2) B; p | m, B = F: (2m + p - 2) F";
  info.where_to_use = "few microbatches and memory for two copies of the weights";
  info.variants = {"concatenation", kDoubling};
  info.refuse = refuse;
  info.generate = generate;
  info.closed_form_makespan = closed_form_makespan;
  return info;
}

}  // namespace flopcast
