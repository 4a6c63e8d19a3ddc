#include "sim/schedule/squeeze.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "sim/schedule/orders.hpp"

namespace flopcast {

namespace {

constexpr Ticks kUnknown = -1;
constexpr Ticks kNever = std::numeric_limits<Ticks>::max();
constexpr std::size_t kLookAhead = 64;  // actions of a rank that are candidates for being moved forward
constexpr int kWholeActivation = 2;

struct Step {
  Action action;
  int chunk = 0;
  bool done = false;
};

struct RankState {
  std::vector<Step> steps;
  std::size_t next = 0;
  Ticks free_at = 0;
  int held = 0;                 // halves
  std::vector<Action> waiting;  // weight gradients that fill idle time, oldest first
  std::size_t first_waiting = 0;
  bool has_waiting() const { return first_waiting < waiting.size(); }
  int waiting_count() const { return static_cast<int>(waiting.size() - first_waiting); }
};

class Squeezer {
 public:
  Squeezer(const Program& empty, int microbatches, const BuildingBlock& block, const StepTimes& times,
           const ActivationRule& rule, const SqueezePolicy& policy)
      : program_(empty),
        microbatches_(static_cast<std::size_t>(microbatches)),
        times_(times),
        rule_(rule),
        policy_(policy),
        ranks_(block.ranks.size()),
        forward_ready_(program_.rank_of_stage.size() * microbatches_, kUnknown),
        backward_ready_(forward_ready_.size(), kUnknown),
        input_gradients_(program_.rank_of_stage.size(), 0) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) lay_out(block.ranks[rank], block.period, ranks_[rank]);
  }

  std::optional<Program> run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!fits_in_order(ranks_[rank])) return std::nullopt;
      wake(0, rank);
    }
    std::fill_n(forward_ready_.begin(), microbatches_, Ticks{0});
    while (!events_.empty() && !stuck_) {
      const auto [now, rank] = events_.top();
      events_.pop();
      if (ranks_[rank].free_at <= now) decide(now, rank);
    }
    std::size_t missing = 0;
    for (RankState& state : ranks_) {
      advance(state);
      missing += state.steps.size() - state.next + static_cast<std::size_t>(state.waiting_count());
    }
    if (stuck_ || missing > 0) return std::nullopt;
    return std::move(program_);
  }

 private:
  struct Choice {
    enum class Kind { kStep, kWaiting, kSleep } kind = Kind::kSleep;
    std::size_t step = 0;
    Ticks wake_at = kNever;
  };

  void lay_out(const std::vector<BlockEntry>& entries, int period, RankState& state) const {
    std::vector<std::size_t> repeated(entries.size(), 0);
    const auto kept = [&](const BlockEntry& entry) {
      return policy_.weights_in_order || entry.action.kind != ActionKind::kWeightGradient;
    };
    state.steps.reserve(entries.size() * microbatches_);
    while (true) {
      std::size_t best = entries.size();
      long best_slot = 0;
      for (std::size_t index = 0; index < entries.size(); ++index) {
        if (repeated[index] == microbatches_ || !kept(entries[index])) continue;
        const long slot = entries[index].offset + static_cast<long>(repeated[index]) * period;
        if (best != entries.size() && slot >= best_slot) continue;
        best = index;
        best_slot = slot;
      }
      if (best == entries.size()) return;
      Step step{entries[best].action, entries[best].chunk, false};
      step.action.microbatch = static_cast<std::uint32_t>(repeated[best]++);
      state.steps.push_back(step);
    }
  }

  int freed_by_input_gradient() const { return rule_.half_freed_at_i ? 1 : 0; }
  int freed_by_weight_gradient() const { return kWholeActivation - freed_by_input_gradient(); }

  // In the block's order; a weight gradient that fills idle time can always follow its input gradient at once.
  int planned_change(ActionKind kind) const {
    if (kind == ActionKind::kForward) return kWholeActivation;
    if (kind == ActionKind::kInputGradient && policy_.weights_in_order) return -freed_by_input_gradient();
    if (kind == ActionKind::kWeightGradient) return -freed_by_weight_gradient();
    return -kWholeActivation;
  }

  bool within(int held) const { return !rule_.limit || held <= *rule_.limit; }

  bool fits_in_order(const RankState& state) const {
    int held = 0;
    for (const Step& step : state.steps) {
      held += planned_change(step.action.kind);
      if (!within(held)) return false;
    }
    return true;
  }

  void wake(Ticks at, std::size_t rank) { events_.emplace(at, rank); }

  std::size_t index_of(const Action& action) const { return action.stage * microbatches_ + action.microbatch; }

  Ticks ready_at(const Action& action) const {
    if (action.kind == ActionKind::kForward) return forward_ready_[index_of(action)];
    if (action.kind != ActionKind::kWeightGradient) return backward_ready_[index_of(action)];
    return input_gradients_[action.stage] > action.microbatch ? 0 : kUnknown;
  }

  Ticks duration_of(const Action& action) const {
    const StageTimes& stage = times_.stages[action.stage];
    switch (action.kind) {
      case ActionKind::kForward:
        return stage.forward;
      case ActionKind::kInputGradient:
        return stage.input_gradient;
      case ActionKind::kWeightGradient:
        return stage.weight_gradient;
      case ActionKind::kBackward:
        break;
    }
    return stage.backward;
  }

  static void advance(RankState& state) {
    while (state.next < state.steps.size() && state.steps[state.next].done) ++state.next;
  }

  bool may_delay(Ticks now, const Action& action, Ticks due) const {
    if (due == kNever) return true;
    const Ticks duration = duration_of(action);
    return now + duration <= due + duration / 4 * policy_.patience;
  }

  Choice choose(Ticks now, RankState& state) {
    if (state.next == state.steps.size()) {
      return {state.has_waiting() ? Choice::Kind::kWaiting : Choice::Kind::kSleep, 0, kNever};
    }
    const Action& due = state.steps[state.next].action;
    const Ticks due_at = ready_at(due);
    const bool has_memory = due.kind != ActionKind::kForward || within(state.held + kWholeActivation);
    const bool arrived = due_at != kUnknown && due_at <= now;
    if (!has_memory && arrived) {
      if (!state.has_waiting()) return sleep_or_stop(state);
      return {Choice::Kind::kWaiting, 0, kNever};
    }
    const bool can_be_passed = due.kind == ActionKind::kWeightGradient;
    if (arrived && !can_be_passed) return {Choice::Kind::kStep, state.next, kNever};
    Choice choice = look_ahead(now, state, arrived ? kNever : (due_at == kUnknown ? kNever : due_at), arrived);
    if (choice.kind == Choice::Kind::kStep) return choice;
    if (arrived) return {Choice::Kind::kStep, state.next, kNever};
    if (!state.has_waiting()) return choice;
    const Action& weight_gradient = state.waiting[state.first_waiting];
    if (may_delay(now, weight_gradient, choice.wake_at)) choice.kind = Choice::Kind::kWaiting;
    return choice;
  }

  Choice sleep_or_stop(const RankState& state) {
    // In the block's order everything that could free memory is behind this forward: only steps that were moved ahead
    // of it hold the memory, which look_ahead does not allow.
    stuck_ = state.next < state.steps.size();
    return {};
  }

  // The first of each kind and chunk after the one that is due; with `passing`, input gradients only.
  Choice look_ahead(Ticks now, const RankState& state, Ticks wake_at, bool passing) const {
    const int releasable = policy_.weights_in_order ? 0 : freed_by_weight_gradient() * state.waiting_count();
    int planned = state.held - releasable;
    int peak = planned;
    unsigned seen = 0;
    const std::size_t end = std::min(state.steps.size(), state.next + kLookAhead);
    for (std::size_t index = state.next; index < end; ++index) {
      const Step& step = state.steps[index];
      if (step.done) continue;
      const unsigned bit = 1U << (static_cast<unsigned>(step.action.kind) * 2U + static_cast<unsigned>(step.chunk));
      const bool candidate =
          index > state.next && (seen & bit) == 0 && (!passing || step.action.kind == ActionKind::kInputGradient);
      seen |= bit;
      if (candidate && allowed(step.action, state, peak)) {
        const Ticks at = ready_at(step.action);
        if (at != kUnknown && at <= now && may_delay(now, step.action, wake_at)) {
          return {Choice::Kind::kStep, index, kNever};
        }
        if (at > now) wake_at = std::min(wake_at, at);
      }
      planned += planned_change(step.action.kind);
      peak = std::max(peak, planned);
    }
    return {Choice::Kind::kSleep, 0, wake_at};
  }

  bool allowed(const Action& action, const RankState& state, int peak) const {
    if (action.kind != ActionKind::kForward) return true;
    return within(peak + kWholeActivation) && within(state.held + kWholeActivation);
  }

  void decide(Ticks now, std::size_t rank) {
    RankState& state = ranks_[rank];
    advance(state);
    const Choice choice = choose(now, state);
    if (choice.kind == Choice::Kind::kSleep) {
      if (choice.wake_at != kNever && choice.wake_at > now) wake(choice.wake_at, rank);
      return;
    }
    Action action;
    if (choice.kind == Choice::Kind::kStep) {
      state.steps[choice.step].done = true;
      action = state.steps[choice.step].action;
    } else {
      action = state.waiting[state.first_waiting++];
    }
    state.free_at = now + duration_of(action);
    program_.ranks[rank].push_back(action);
    finish(action, rank, state);
    wake(state.free_at, rank);
  }

  void finish(const Action& action, std::size_t rank, RankState& state) {
    switch (action.kind) {
      case ActionKind::kForward:
        state.held += kWholeActivation;
        hand_on(action, rank, state.free_at, 1);
        return;
      case ActionKind::kWeightGradient:
        state.held -= freed_by_weight_gradient();
        return;
      case ActionKind::kInputGradient:
        state.held -= freed_by_input_gradient();
        ++input_gradients_[action.stage];
        if (!policy_.weights_in_order) {
          state.waiting.push_back(weight_gradient_action(action.stage, static_cast<int>(action.microbatch)));
        }
        break;
      case ActionKind::kBackward:
        state.held -= kWholeActivation;
        break;
    }
    hand_on(action, rank, state.free_at, -1);
  }

  void hand_on(const Action& action, std::size_t rank, Ticks end, int direction) {
    const int to = action.stage + direction;
    if (to == program_.stage_count()) backward_ready_[index_of(action)] = end;
    if (to < 0 || to == program_.stage_count()) return;
    Action next = action;
    next.stage = static_cast<std::uint16_t>(to);
    const auto receiver = static_cast<std::size_t>(program_.rank_of_stage[next.stage]);
    const BoundaryTimes& boundary = times_.boundaries[std::min(next.stage, action.stage)];
    const Ticks latency = direction > 0 ? boundary.forward : boundary.backward;
    const Ticks at = end + (receiver == rank ? 0 : latency);
    (direction > 0 ? forward_ready_ : backward_ready_)[index_of(next)] = at;
    if (receiver != rank) wake(at, receiver);
  }

  Program program_;
  std::size_t microbatches_;
  const StepTimes& times_;
  ActivationRule rule_;
  SqueezePolicy policy_;
  std::vector<RankState> ranks_;
  std::vector<Ticks> forward_ready_;   // by stage and microbatch
  std::vector<Ticks> backward_ready_;  // likewise
  std::vector<std::uint32_t> input_gradients_;
  bool stuck_ = false;
  using Event = std::pair<Ticks, std::size_t>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

std::optional<Program> squeeze(const Program& empty, int microbatches, const BuildingBlock& block,
                               const StepTimes& times, const ActivationRule& rule, const SqueezePolicy& policy) {
  return Squeezer(empty, microbatches, block, times, rule, policy).run();
}

}  // namespace flopcast
