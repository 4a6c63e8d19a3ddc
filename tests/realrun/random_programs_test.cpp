// Programs that no generator makes: every valid order trains as one rank does.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "sim/cells/cell.hpp"
#include "sim/program/validate.hpp"
#include "tests/realrun/plans.hpp"

namespace flopcast::realrun {
namespace {

// Draws from the whole range from the first case on: rapidcheck would start with the smallest values and grow.
int between(int first, int last) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(first, last + 1));
}

bool one_in(int chances) {
  return between(1, chances) == 1;
}

/// Runs the actions of a program in any order that their dependencies allow, and records what each rank did.
class RandomExecution {
 public:
  explicit RandomExecution(Program program, int units) : program_(std::move(program)) {
    split_ = one_in(2);
    for (const Chain& chain : program_.chains) {
      for (int stage = chain.first_stage; stage <= chain.last_stage; ++stage) {
        for (int unit = 0; unit < units; ++unit) add(stage, unit);
      }
    }
  }

  Program run() {
    while (!waiting_.empty()) {
      std::vector<Action> ready;
      for (const Action& action : waiting_) {
        if (is_ready(action)) ready.push_back(action);
      }
      do_one(ready[static_cast<std::size_t>(between(0, static_cast<int>(ready.size()) - 1))]);
    }
    return program_;
  }

 private:
  static Action action_of(int stage, ActionKind kind, int unit) {
    return {static_cast<std::uint32_t>(unit), static_cast<std::uint16_t>(stage), kind, false};
  }

  void add(int stage, int unit) {
    waiting_.push_back(action_of(stage, ActionKind::kForward, unit));
    if (split_ && one_in(2)) {
      waiting_.push_back(action_of(stage, ActionKind::kInputGradient, unit));
      waiting_.push_back(action_of(stage, ActionKind::kWeightGradient, unit));
    } else {
      waiting_.push_back(action_of(stage, ActionKind::kBackward, unit));
    }
  }

  bool did(int stage, ActionKind kind, int unit) const { return done_.count({stage, kind, unit}) == 1; }
  bool did_backward(int stage, int unit) const {
    return did(stage, ActionKind::kBackward, unit) || did(stage, ActionKind::kInputGradient, unit);
  }

  // Slices run forward in order, and backward in reverse order.
  bool slices_allow(const Action& action) const {
    const int slices = program_.slices_per_microbatch;
    const int unit = static_cast<int>(action.microbatch);
    if (action.kind == ActionKind::kForward) {
      return unit % slices == 0 || did(action.stage, ActionKind::kForward, unit - 1);
    }
    const bool last = unit % slices == slices - 1;
    return last || (did(action.stage, ActionKind::kForward, unit + 1) && did_backward(action.stage, unit + 1));
  }

  bool is_ready(const Action& action) const {
    const int stage = action.stage;
    const int unit = static_cast<int>(action.microbatch);
    if (action.kind == ActionKind::kWeightGradient) return did(stage, ActionKind::kInputGradient, unit);
    bool first = false;
    bool last = false;
    for (const Chain& chain : program_.chains) {
      first = first || chain.first_stage == stage;
      last = last || chain.last_stage == stage;
    }
    if (!slices_allow(action)) return false;
    if (action.kind == ActionKind::kForward) return first || did(stage - 1, ActionKind::kForward, unit);
    return did(stage, ActionKind::kForward, unit) && (last || did_backward(stage + 1, unit));
  }

  void do_one(const Action& action) {
    std::vector<Action>& list =
        program_.ranks[static_cast<std::size_t>(program_.rank_of_stage[static_cast<std::size_t>(action.stage)])];
    // Occasionally merges a forward and a backward that could have run together into an overlapped pair.
    const bool was_ready = std::count(ready_at_forward_.begin(), ready_at_forward_.end(), action) > 0;
    if (!list.empty() && list.back() == last_forward_ && is_backward_like(action.kind) && was_ready && one_in(2)) {
      list.back().overlaps_next = true;
    }
    if (action.kind == ActionKind::kForward) {
      last_forward_ = action;
      ready_at_forward_.clear();
      for (const Action& other : waiting_) {
        if (is_ready(other)) ready_at_forward_.push_back(other);
      }
    }
    list.push_back(action);
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), action));
    done_.insert({action.stage, action.kind, static_cast<int>(action.microbatch)});
  }

  Program program_;
  bool split_ = false;
  std::vector<Action> waiting_;
  std::set<std::tuple<int, ActionKind, int>> done_;
  Action last_forward_;
  std::vector<Action> ready_at_forward_;
};

// Stages on any ranks, with at least one per rank; one chain, or two copies of the model.
Program draw_program() {
  Program program;
  program.schedule = "at random";
  const int ranks = between(1, 4);
  const int chains = between(1, 2);
  const int length = between((ranks + chains - 1) / chains, 5);
  program.ranks.resize(static_cast<std::size_t>(ranks));
  for (int stage = 0; stage < chains * length; ++stage) {
    program.rank_of_stage.push_back(stage < ranks ? stage : between(0, ranks - 1));
  }
  for (int chain = 0; chain < chains; ++chain) program.chains.push_back({chain * length, (chain + 1) * length - 1});
  program.slices_per_microbatch = one_in(3) ? 2 : 1;
  return RandomExecution(program, between(1, 4) * program.slices_per_microbatch).run();
}

std::vector<int> draw_stage_blocks(int stages, int blocks) {
  std::vector<int> layers(static_cast<std::size_t>(stages));
  for (int block = 0; block < blocks; ++block) ++layers[static_cast<std::size_t>(between(0, stages - 1))];
  return layers;
}

RC_GTEST_PROP(RandomPrograms, TrainAsOneRankDoes, ()) {
  constexpr int kBlocks = 5;
  TrainingPlan plan;
  plan.network = tiny_transformer(kBlocks);
  plan.network.tied_embeddings = one_in(2);
  plan.program = draw_program();
  RC_ASSERT(!find_fault(plan.program).has_value());
  plan.stage_blocks = draw_stage_blocks(plan.program.stages_per_chain(), kBlocks);
  plan.dp = between(1, 2);
  plan.tp = one_in(4) ? 2 : 1;
  plan.sequence_parallel = plan.tp > 1 && one_in(2);
  plan.zero = between(0, 3);
  plan.micro_batch_size = 2;
  plan.steps = 2;
  plan.bucket_bytes = between(1, 4) * 400;
  plan.optimizer = {.kind = Optimizer::kSgd, .rate = 0.05F};
  const std::string what = fmt::format("dp={} tp={} zero={} slices={}\n{}", plan.dp, plan.tp, plan.zero, plan.slices(),
                                       write_csv(plan.program));
  RC_LOG(what);
  expect_same_training(train_on_threads(serial_plan(plan), {}), train_on_threads(plan, {}), what);
  RC_ASSERT(!testing::Test::HasFailure());
}

}  // namespace
}  // namespace flopcast::realrun
