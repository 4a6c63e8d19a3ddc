#include "sim/schedules/families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "sim/program/request.hpp"
#include "sim/search/order_times.hpp"

namespace flopcast {

// Chimera: Li & Hoefler 2021, arXiv 2107.06925, sections 3.1 and 3.5.
//
// Rule: two copies of the model run through the ranks in opposite directions, m/2 microbatches each. Both are laid out
// in slots, F of stage s in slot 2k + s and B in slot 2k + 2p - 1 - s for the k-th microbatch of a unit, and interleave
// without collision because p is even. A unit has p microbatches, p/2 of each copy.
//   concatenation  units follow each other 2p slots apart (direct concatenation; the default)
//   doubling       forwards run in pairs, so that with B = 2F both directions have equal slots: list scheduling with
//                  backwards first and p/2 pairs of each copy in flight (sim/search/order_times.hpp). Backward halving
//                  is the same order with microbatches of half the size.
// Memory: p/2 + 1 + min(r, p - 1 - r) activations for m >= p, with doubling up to 2p; twice the parameters, whose
// gradients are summed over the copies.
// Makespan at c = 0: F = B, concatenation: (2m + p - 2) F for p | m, idle fraction (p - 2) / (2m + p - 2);
// m = p, B >= F: p F + (2p - 2) B. Doubling, B = 2F, 2p | m, p <= 6: at most 3m F + 2 (p - 2) F, idle fraction (p - 2)
// / (3m/2 + p - 2); longer pipelines stay above that, at p = 16 by 10.5 % for m = 2p and 4.1 % for m = 4p.
// Constraints: p and m even; doubling: 4 | m.

namespace {

constexpr std::string_view kDoubling = "doubling";

std::optional<ScheduleRefusal> refuse_chimera(const ScheduleRequest& request) {
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
      .problem = fmt::format("chimera{} must divide its {} evenly between two copies, but there are {} microbatches",
                             doubling ? ":doubling" : "", doubling ? "pairs" : "microbatches", microbatches),
      .help = fmt::format("{} microbatches", valid)};
}

// All units repeat the same pattern of slots, so one table of slots describes a rank.
void concatenate(Program& program, const ScheduleRequest& request) {
  const int ranks = request.pipeline_ranks;
  const int unit_length = 2 * ranks;
  const int each = request.microbatches / 2;
  const auto slot_of = [&](MicrobatchIndex microbatch) {
    return microbatch / (ranks / 2) * unit_length + 2 * (microbatch % (ranks / 2));
  };
  const auto slots = static_cast<std::size_t>(slot_of(MicrobatchIndex(each - 1)) + unit_length);
  constexpr Action kNothing{.microbatch = 0, .stage = 0, .kind = ActionKind::kWeightGradient};
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Action> table(slots, kNothing);
    for (const StageIndex stage : {StageIndex(rank), StageIndex(2 * ranks - 1 - rank)}) {
      const int depth = stage % ranks;
      for (int index = 0; index < each; ++index) {
        const MicrobatchIndex microbatch(index);
        const int slot = slot_of(microbatch);
        table[static_cast<std::size_t>(slot + depth)] = forward_action(stage, microbatch);
        table[static_cast<std::size_t>(slot + unit_length - 1 - depth)] = backward_action(stage, microbatch);
      }
    }
    std::vector<Action>& actions = program.ranks[rank];
    actions.reserve(static_cast<std::size_t>(4 * each));
    std::copy_if(table.begin(), table.end(), std::back_inserter(actions),
                 [&](const Action& action) { return !(action == kNothing); });
  }
}

Program generate_chimera(const ScheduleRequest& request) {
  Program program = empty_bidirectional("chimera", request);
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

std::optional<Ticks> chimera_makespan(const ScheduleRequest& request, const UniformTimes& times) {
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
  info.refuse = refuse_chimera;
  info.generate = generate_chimera;
  info.closed_form_makespan = chimera_makespan;
  return info;
}

namespace {

// Place of a rank in a DualPipe order. The rank works on two stages: `near` is closer to the input of its chain than
// `far` is to the input of its chain.
struct DualPipePlace {
  int near = 0;
  int far = 0;
  int position = 0;      //< 0 at the ends of the pipeline, where `near` is a first stage
  int positions = 1;     //< number of positions; the two stages of the last one are adjacent
  int microbatches = 1;  //< per stage; at least 2 * positions
};

class DualPipeRank {
 public:
  explicit DualPipeRank(const DualPipePlace& place) : place_(place), near_{place.near}, far_{place.far} {
    actions_.reserve(5 * static_cast<std::size_t>(place.microbatches));
  }

  std::vector<Action> order() {
    fill();
    steady();
    drain();
    return actions_;
  }

 private:
  // A stage, with the microbatches of its next forward and its next backward.
  struct Side {
    int stage = 0;
    int forwards = 0;
    int backwards = 0;
  };

  void push(ActionKind kind, StageIndex stage, MicrobatchIndex microbatch) {
    actions_.push_back(action_of(kind, stage, microbatch));
  }
  void forward(Side& side) { push(ActionKind::kForward, StageIndex(side.stage), MicrobatchIndex(side.forwards++)); }
  void backward(Side& side) { push(ActionKind::kBackward, StageIndex(side.stage), MicrobatchIndex(side.backwards++)); }
  void input_gradient(Side& side) {
    push(ActionKind::kInputGradient, StageIndex(side.stage), MicrobatchIndex(side.backwards++));
    waiting_.push_back(actions_.back());
  }
  void weight_gradient() {
    const Action& oldest = waiting_[weights_done_++];
    push(ActionKind::kWeightGradient, StageIndex(oldest.stage), MicrobatchIndex(oldest.microbatch));
  }
  void pair(Side& ahead, Side& back) {
    forward(ahead);
    actions_.back().overlaps_next = true;
    backward(back);
  }

  void fill() {
    const int behind = place_.positions - 1 - place_.position;
    for (int count = 0; count < 2 * behind; ++count) forward(near_);
    for (int count = 0; count <= place_.position; ++count) {
      forward(near_);
      forward(far_);
    }
    for (int count = 0; count < behind; ++count) {
      input_gradient(far_);
      weight_gradient();
      forward(far_);
    }
  }

  void steady() {
    const bool is_last = place_.position + 1 == place_.positions;
    const int rounds = place_.microbatches - 2 * place_.positions + place_.position + 1;
    for (int round = 0; round < rounds; ++round) {
      // At this point nothing can hide the first transfer between the two stages of the last position.
      if (round == 0 && is_last) {
        forward(near_);
        backward(far_);
      } else {
        pair(near_, far_);
      }
      pair(far_, near_);
    }
  }

  void drain() {
    const int behind = place_.positions - 1 - place_.position;
    for (int count = 0; count < behind; ++count) {
      backward(far_);
      pair(far_, near_);
    }
    for (int slot = 0; slot < 2 * (place_.position + 1); ++slot) {
      Side& side = slot % 2 == 0 ? far_ : near_;
      if (slot <= place_.position) {
        backward(side);
      } else {
        input_gradient(side);
      }
    }
    for (int count = 0; count < behind; ++count) {
      weight_gradient();
      input_gradient(near_);
    }
    while (weights_done_ < waiting_.size()) weight_gradient();
  }

  const DualPipePlace& place_;
  Side near_;
  Side far_;
  std::vector<Action> waiting_;  // every I so far, in order
  std::size_t weights_done_ = 0;
  std::vector<Action> actions_;
};

// The order of one rank, in the eight steps of deepseek-ai/DualPipe, for n positions, position k and M microbatches:
//   1  2(n-1-k) times F near
//   2  k+1 times F near, F far
//   3  n-1-k times I far, W far, F far
//   4  M-2n+k+1 times (F near; B far), (F far; B near); at the last position the first F near and B far run one after
//      the other
//   5  n-1-k times B far, (F far; B near)
//   6  k+1 times B far, B near; the second half of these is only I
//   7  n-1-k times W, I near
//   8  the remaining k+1 W; each W belongs to the oldest I without one
std::vector<Action> dualpipe_order(const DualPipePlace& place) {
  return DualPipeRank(place).order();
}

}  // namespace

// DualPipe: DeepSeek-V3, arXiv 2412.19437, section 3.2.1, and the order that deepseek-ai/DualPipe executes.
//
// Rule: two copies of the model run through the ranks in opposite directions, m/2 microbatches each. Rank r holds stage
// r of one copy and stage p - 1 - r of the other; it overlaps a forward of one with a backward of the other
// (dualpipe_order, with p/2 positions). The last backwards split off W to fill the bubbles at the end.
// Memory: p + 1 activations on every rank, twice the parameters; the gradients of the two copies are summed.
// Bubble: (p/2 - 1)(F&B + B - 3W) per rank, where F&B is the time of an overlapped pair; exact for F = I = W without
// latency, slightly too high otherwise, because the outer ranks wait less.
// Constraints: p and m even, m >= 2p.

namespace {

std::optional<ScheduleRefusal> refuse_dualpipe(const ScheduleRequest& request) {
  const int ranks = request.pipeline_ranks;
  const int microbatches = request.microbatches;
  if (ranks % 2 != 0) {
    return ScheduleRefusal{
        .problem = fmt::format("dualpipe pairs up the ranks, so their number must be even, not {}", ranks),
        .help = fmt::format("an even number of pipeline ranks, such as {}", ranks + 1)};
  }
  if (microbatches % 2 != 0) {
    return ScheduleRefusal{
        .problem =
            fmt::format("dualpipe halves the microbatches between its two copies, so their number must be even, not {}",
                        microbatches),
        .help = fmt::format("an even number of microbatches, such as {}", std::max(2 * ranks, microbatches + 1))};
  }
  if (microbatches / 2 < ranks) {
    return ScheduleRefusal{
        .problem = fmt::format("dualpipe with {} pipeline ranks needs more than {} microbatches", ranks, microbatches),
        .help = fmt::format("at least {} microbatches, two per rank", 2L * ranks)};
  }
  return std::nullopt;
}

Program generate_dualpipe(const ScheduleRequest& request) {
  Program program = empty_bidirectional("dualpipe", request);
  const int ranks = request.pipeline_ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    const int mirrored = 2 * ranks - 1 - rank;
    const bool upper_half = rank < ranks / 2;
    DualPipePlace place;
    place.near = upper_half ? rank : mirrored;
    place.far = upper_half ? mirrored : rank;
    place.position = std::min(rank, ranks - 1 - rank);
    place.positions = ranks / 2;
    place.microbatches = request.microbatches / 2;
    program.ranks[rank] = dualpipe_order(place);
  }
  return program;
}

std::optional<Ticks> dualpipe_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const bool equal = times.forward == times.weight_gradient && times.forward == times.input_gradient();
  if (times.latency != 0 || !equal) return std::nullopt;
  const Ticks pair = times.forward + times.backward;
  const Ticks bubble = (request.pipeline_ranks / 2 - 1) * (pair + times.backward - 3 * times.weight_gradient);
  return Ticks{request.microbatches} * pair + bubble;
}

}  // namespace

ScheduleInfo dualpipe_schedule() {
  ScheduleInfo info;
  info.name = "dualpipe";
  info.summary = "two copies of the model in opposite directions, in overlapped pairs";
  info.source = "DeepSeek-V3, arXiv 2412.19437, section 3.2.1";
  info.constraints = "p and m even, m >= 2p";
  info.peak_in_flight = "p + 1; two copies";
  info.makespan = "m (F + B) + (p/2 - 1)(F + 2B - 3W) for F = I = W, pairs that take F + B, and c = 0";
  info.where_to_use =
      "expert parallelism whose messages are hidden by paired passes; memory for two copies of the weights";
  info.refuse = refuse_dualpipe;
  info.generate = generate_dualpipe;
  info.closed_form_makespan = dualpipe_makespan;
  return info;
}

// DualPipeV: "cut in half" DualPipe, Sea AI Lab 2025, as in deepseek-ai/DualPipe and PyTorch's ScheduleDualPipeV.
//
// Rule: one model of 2p stages in a V: rank r holds stages r and 2p - 1 - r. The order is that of DualPipe
// (dualpipe_order, with p positions), whose second direction is now the way back.
// Memory: 2p + 1 chunks on every rank, each half the size of a DualPipe stage; one copy of the parameters.
// Bubble: (p - 1)(F&B + B - 3W) per rank, with times of a chunk; exact for F = I = W without latency.
// Constraints: two chunks per rank, m >= 2p, as PyTorch requires.

namespace {

std::optional<ScheduleRefusal> refuse_dualpipev(const ScheduleRequest& request) {
  if (request.chunks != 2) {
    return ScheduleRefusal{.problem = fmt::format("dualpipev has two chunks per rank, not {}", request.chunks),
                           .help = "use 2 chunks"};
  }
  if (request.microbatches / 2 < request.pipeline_ranks) {
    return ScheduleRefusal{.problem = fmt::format("dualpipev with {} stages needs more than {} microbatches",
                                                  2 * request.pipeline_ranks, request.microbatches),
                           .help = fmt::format("at least {} microbatches, one per stage", 2 * request.pipeline_ranks)};
  }
  return std::nullopt;
}

Program generate_dualpipev(const ScheduleRequest& request) {
  Program program = empty_zigzag("dualpipev", request);
  for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
    DualPipePlace place;
    place.near = rank;
    place.far = 2 * request.pipeline_ranks - 1 - rank;
    place.position = rank;
    place.positions = request.pipeline_ranks;
    place.microbatches = request.microbatches;
    program.ranks[rank] = dualpipe_order(place);
  }
  return program;
}

std::optional<Ticks> dualpipev_makespan(const ScheduleRequest& request, const UniformTimes& times) {
  const bool equal = times.forward == times.weight_gradient && times.forward == times.input_gradient();
  if (times.latency != 0 || !equal) return std::nullopt;
  const Ticks pair = times.forward + times.backward;
  const Ticks bubble = (request.pipeline_ranks - 1) * (pair + times.backward - 3 * times.weight_gradient);
  return 2 * Ticks{request.microbatches} * pair + bubble;
}

}  // namespace

ScheduleInfo dualpipev_schedule() {
  ScheduleInfo info;
  info.name = "dualpipev";
  info.summary = "dualpipe with one copy of the model, folded into a V";
  info.source = "Sea AI Lab, Cut-in-half DualPipe, 2025; deepseek-ai/DualPipe";
  info.constraints = "two chunks per rank, m >= 2p";
  info.peak_in_flight = "2p + 1 chunks";
  info.makespan = "2m (F + B) + (p - 1)(F + 2B - 3W) for F = I = W, pairs that take F + B, and c = 0";
  info.where_to_use = "dualpipe without its second copy of the weights";
  info.uses_chunks = true;
  info.default_chunks = 2;
  info.refuse = refuse_dualpipev;
  info.generate = generate_dualpipev;
  info.closed_form_makespan = dualpipev_makespan;
  return info;
}

}  // namespace flopcast
