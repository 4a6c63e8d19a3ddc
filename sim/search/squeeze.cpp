#include "sim/search/block_search.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "sim/search/order_times.hpp"

namespace flopcast {

namespace {

constexpr Ticks kNever = std::numeric_limits<Ticks>::max();
constexpr std::size_t kLookAhead = 64;  // actions of a rank that are candidates for being moved forward
constexpr int kWholeActivation = 2;
constexpr unsigned kForwards = 3U << static_cast<unsigned>(ActionKind::kForward) * 2U;  // bits of both chunks
constexpr unsigned kInputGradients = 3U << static_cast<unsigned>(ActionKind::kInputGradient) * 2U;

struct Step {
  Action action;
  ChunkIndex chunk;
  bool done = false;
};

struct RankState {
  std::vector<Step> steps;
  std::size_t next = 0;
  Ticks free_at = 0;
  Ticks idle = 0;               // since the first action
  Ticks left = 0;               // remaining work
  Ticks busy = 0;               // total work
  int held = 0;                 // in halves of an activation
  unsigned kinds = 0;           // kinds of its steps, as bits
  std::vector<Action> waiting;  // weight gradients that fill idle time, oldest first
  std::size_t first_waiting = 0;
  bool has_waiting() const { return first_waiting < waiting.size(); }
  int waiting_count() const { return static_cast<int>(waiting.size() - first_waiting); }
};

class Squeezer {
 public:
  Squeezer(const Program& empty, int microbatches, const Plan& plan, const StepTimes& times, const ActivationRule& rule,
           const SqueezePolicy& policy, const std::optional<SqueezeTarget>& target)
      : program_(empty),
        times_(times),
        rule_(rule),
        policy_(policy),
        target_(target),
        ranks_(plan.size()),
        arrivals_(program_, microbatches, times),
        input_gradients_(program_.rank_of_stage.size(), 0) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) load_plan(plan[rank], ranks_[rank]);
  }

  Squeezed run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!fits_in_order(ranks_[rank])) return {};
      wake(0, rank);
    }
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
    if (stuck_ || missing > 0) return {std::nullopt, placed_};
    return {std::move(program_), placed_};
  }

 private:
  struct Choice {
    enum class Kind { kStep, kWaiting, kSleep } kind = Kind::kSleep;
    std::size_t step = 0;
    Ticks wake_at = kNever;
  };

  void load_plan(const std::vector<Action>& actions, RankState& state) const {
    state.steps.reserve(actions.size());
    for (const Action& action : actions) {
      state.busy += duration_of(action);
      const bool kept = policy_.weights_in_order || action.kind != ActionKind::kWeightGradient;
      if (!kept) continue;
      state.steps.push_back({action, ChunkIndex(action.stage / program_.rank_count()), false});
      state.kinds |= bit_of(state.steps.back());
    }
    state.left = state.busy;
  }

  Ticks duration_of(const Action& action) const { return times_.stages[action.stage].of(action.kind); }

  // One bit for every kind and chunk.
  static unsigned bit_of(const Step& step) {
    return 1U << (static_cast<unsigned>(step.action.kind) * 2U + static_cast<unsigned>(step.chunk));
  }

  // Change as planned; a weight gradient that fills idle time can always follow its input gradient at once.
  int planned_change(ActionKind kind) const {
    const bool frees_all = kind == ActionKind::kInputGradient && !policy_.weights_in_order;
    return frees_all ? -kWholeActivation : rule_.change(kind);
  }

  bool fits_in_order(const RankState& state) const {
    int held = 0;
    for (const Step& step : state.steps) {
      held += planned_change(step.action.kind);
      if (!rule_.allows(held)) return false;
    }
    return true;
  }

  void wake(Ticks at, std::size_t rank) { events_.emplace(at, rank); }

  Ticks ready_at(const Action& action) const {
    if (action.kind != ActionKind::kWeightGradient) return arrivals_.at(action);
    return input_gradients_[action.stage] > action.microbatch ? 0 : Arrivals::kNotYet;
  }

  static void advance(RankState& state) {
    while (state.next < state.steps.size() && state.steps[state.next].done) ++state.next;
  }

  bool may_delay(Ticks now, const Action& action, Ticks due) const {
    if (due == kNever) return true;
    const Ticks duration = duration_of(action);
    return now + duration <= due + duration / 4 * policy_.patience;
  }

  bool idles_too_long(Ticks now, const RankState& state, Ticks until) const {
    return policy_.most_idle && state.idle + (until - now) > *policy_.most_idle;
  }

  Choice choose(Ticks now, RankState& state) {
    if (state.next == state.steps.size()) {
      return {state.has_waiting() ? Choice::Kind::kWaiting : Choice::Kind::kSleep, 0, kNever};
    }
    const Action& due = state.steps[state.next].action;
    const Ticks due_at = ready_at(due);
    const bool has_memory = due.kind != ActionKind::kForward || rule_.allows(state.held + kWholeActivation);
    const bool arrived = due_at != Arrivals::kNotYet && due_at <= now;
    if (!has_memory && arrived) {
      if (!state.has_waiting()) return sleep_or_stop(state);
      return {Choice::Kind::kWaiting, 0, kNever};
    }
    const bool can_be_passed = due.kind == ActionKind::kWeightGradient;
    if (arrived && !can_be_passed) return {Choice::Kind::kStep, state.next, kNever};
    const Ticks wake_at = arrived || due_at == Arrivals::kNotYet ? kNever : due_at;
    Choice choice{Choice::Kind::kSleep, 0, wake_at};
    if (!policy_.passes_in_order || can_be_passed) choice = look_ahead(now, state, wake_at, arrived);
    if (choice.kind == Choice::Kind::kStep) return choice;
    if (arrived) return {Choice::Kind::kStep, state.next, kNever};
    if (!state.has_waiting()) return choice;
    const Action& weight_gradient = state.waiting[state.first_waiting];
    if (may_delay(now, weight_gradient, choice.wake_at) || idles_too_long(now, state, choice.wake_at)) {
      choice.kind = Choice::Kind::kWaiting;
    }
    return choice;
  }

  Choice sleep_or_stop(const RankState& state) {
    // In the plan, everything that could free memory comes after this forward, so only steps that were moved ahead of
    // it hold the memory, and look_ahead does not allow that.
    stuck_ = state.next < state.steps.size();
    return {};
  }

  // The first runnable step of each kind and chunk after the one that is due; with `passing`, input gradients only.
  Choice look_ahead(Ticks now, const RankState& state, Ticks wake_at, bool passing) const {
    const int releasable =
        policy_.weights_in_order ? 0 : -rule_.change(ActionKind::kWeightGradient) * state.waiting_count();
    int planned = state.held - releasable;
    int peak = planned;
    unsigned wanted = state.kinds;
    if (passing) wanted &= kInputGradients;
    if (!rule_.allows(state.held + kWholeActivation)) wanted &= ~kForwards;
    const std::size_t end = std::min(state.steps.size(), state.next + kLookAhead);
    for (std::size_t index = state.next; index < end && wanted != 0; ++index) {
      const Step& step = state.steps[index];
      if (step.done) continue;
      if (!rule_.allows(peak + kWholeActivation)) wanted &= ~kForwards;
      const unsigned bit = bit_of(step);
      if (index > state.next && (wanted & bit) != 0) {
        const Ticks at = ready_at(step.action);
        if (at != Arrivals::kNotYet && at <= now && may_delay(now, step.action, wake_at)) {
          return {Choice::Kind::kStep, index, kNever};
        }
        if (at > now) wake_at = std::min(wake_at, at);
      }
      wanted &= ~bit;
      planned += planned_change(step.action.kind);
      peak = std::max(peak, planned);
    }
    return {Choice::Kind::kSleep, 0, wake_at};
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
    if (!program_.ranks[rank].empty()) state.idle += now - state.free_at;
    const Ticks duration = duration_of(action);
    state.free_at = now + duration;
    state.left -= duration;
    program_.ranks[rank].push_back(action);
    ++placed_;
    if (misses_target(state)) stuck_ = true;
    finish(action, state);
    wake(state.free_at, rank);
  }

  bool misses_target(const RankState& state) {
    if (!target_) return false;
    at_least_.makespan = std::max(at_least_.makespan, state.free_at + state.left);
    at_least_.span = std::max(at_least_.span, state.idle + state.busy);
    return !target_->goal.prefers(at_least_, target_->beat);
  }

  void finish(const Action& action, RankState& state) {
    state.held += rule_.change(action.kind);
    if (action.kind == ActionKind::kWeightGradient) return;
    if (action.kind == ActionKind::kInputGradient) {
      ++input_gradients_[action.stage];
      if (!policy_.weights_in_order) {
        state.waiting.push_back(weight_gradient_action(StageIndex(action.stage), MicrobatchIndex(action.microbatch)));
      }
    }
    arrivals_.hand_on(action, state.free_at, [this](std::size_t receiver, Ticks at) { wake(at, receiver); });
  }

  Program program_;
  const StepTimes& times_;
  ActivationRule rule_;
  SqueezePolicy policy_;
  const std::optional<SqueezeTarget>& target_;
  OrderTimes at_least_;
  std::size_t placed_ = 0;
  std::vector<RankState> ranks_;
  Arrivals arrivals_;
  std::vector<std::uint32_t> input_gradients_;
  bool stuck_ = false;
  using Event = std::pair<Ticks, std::size_t>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

Squeezed squeeze(const Program& empty, int microbatches, const Plan& plan, const StepTimes& times,
                 const ActivationRule& rule, const SqueezePolicy& policy, const std::optional<SqueezeTarget>& target) {
  return Squeezer(empty, microbatches, plan, times, rule, policy, target).run();
}

}  // namespace flopcast
