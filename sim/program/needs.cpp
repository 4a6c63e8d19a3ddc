#include "sim/program/needs.hpp"

#include "base/text/error.hpp"

namespace flopcast {

namespace {

std::optional<StageTransfer> transfer_between(const Action& action, const Needs::Neighbour& other, bool from_other) {
  if (!other) return std::nullopt;
  const int own = action.stage;
  return StageTransfer{.from_stage = from_other ? other.stage : own,
                       .to_stage = from_other ? own : other.stage,
                       .microbatch = action.microbatch};
}

}  // namespace

Needs::Needs(const std::vector<Chain>& chains, const ByStage<int>& rank_of_stage, const ByStage<int>& replicas_of_stage)
    : stages_(rank_of_stage.size()) {
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    Neighbour& itself = stages_[stage][kItself];
    itself.stage = static_cast<std::uint16_t>(stage);
    itself.exists = true;
    itself.rank = static_cast<std::uint32_t>(rank_of_stage[stage]);
    itself.replicas = replicas_of_stage.empty() ? 1 : static_cast<std::uint32_t>(replicas_of_stage[stage]);
  }
  for (const Chain& chain : chains) {
    FLOPCAST_CHECK(0 <= chain.first_stage && chain.first_stage <= chain.last_stage);
    FLOPCAST_CHECK(chain.last_stage < static_cast<int>(stages_.size()));
    for (int stage = chain.first_stage; stage < chain.last_stage; ++stage) {
      Neighbour& upper = stages_[stage][kNext];
      Neighbour& lower = stages_[stage + 1][kPrevious];
      upper = stages_[stage + 1][kItself];
      lower = stages_[stage][kItself];
      upper.crosses = lower.crosses = upper.rank != lower.rank;
    }
  }
}

std::optional<StageTransfer> Needs::needed_by(const Action& action) const {
  return transfer_between(action, input_of(action), true);
}

std::optional<StageTransfer> Needs::produced_by(const Action& action) const {
  return transfer_between(action, result_of(action), false);
}

Needs needs_of(const Program& program, const StepTimes& times) {
  const auto stages = static_cast<std::size_t>(program.stage_count());
  FLOPCAST_CHECK(times.stages.size() == stages);
  FLOPCAST_CHECK(times.boundaries.size() + 1 >= stages);
  for (const int rank : program.rank_of_stage) FLOPCAST_CHECK(rank >= 0 && rank < program.rank_count());
  return Needs(program);
}

}  // namespace flopcast
