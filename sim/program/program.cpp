#include "sim/program/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <numeric>

#include "base/text/error.hpp"
#include "sim/program/needs.hpp"
#include "sim/program/request.hpp"

namespace flopcast {
namespace {

// Reads decimal digits of `text` from `position` on; nullopt if there are none or the number exceeds `limit`.
std::optional<std::uint32_t> read_number(std::string_view text, std::size_t& position, std::uint32_t limit) {
  const std::size_t begin = position;
  std::uint64_t number = 0;
  while (position < text.size() && std::isdigit(static_cast<unsigned char>(text[position])) != 0) {
    number = number * 10 + static_cast<std::uint64_t>(text[position] - '0');
    if (number > limit) return std::nullopt;
    ++position;
  }
  if (position == begin) return std::nullopt;
  return static_cast<std::uint32_t>(number);
}

std::optional<ActionKind> kind_of(char letter) {
  switch (letter) {
    case 'F':
      return ActionKind::kForward;
    case 'B':
      return ActionKind::kBackward;
    case 'I':
      return ActionKind::kInputGradient;
    case 'W':
      return ActionKind::kWeightGradient;
    default:
      return std::nullopt;
  }
}

std::optional<StageTransfer> transfer_between(const Action& action, const Needs::Neighbour& other, bool from_other) {
  if (!other) return std::nullopt;
  const int own = action.stage;
  return StageTransfer{.from_stage = from_other ? other.stage : own,
                       .to_stage = from_other ? own : other.stage,
                       .microbatch = action.microbatch};
}

}  // namespace

char letter_of(ActionKind kind) {
  constexpr std::string_view kLetters = "FBIW";
  return kLetters[static_cast<std::size_t>(kind)];
}

std::string to_string(const Action& action) {
  return fmt::format("{}{}{}", action.stage, letter_of(action.kind), action.microbatch);
}

std::optional<Action> parse_action(std::string_view text) {
  std::size_t position = 0;
  const auto stage = read_number(text, position, kMaxStages - 1);
  if (!stage || position >= text.size()) return std::nullopt;
  const auto kind = kind_of(text[position++]);
  if (!kind) return std::nullopt;
  const auto microbatch = read_number(text, position, kMaxMicrobatches - 1);
  if (!microbatch || position != text.size()) return std::nullopt;
  return Action{.microbatch = *microbatch, .stage = static_cast<std::uint16_t>(*stage), .kind = *kind};
}

std::size_t Program::action_count() const {
  std::size_t count = 0;
  for (const std::vector<Action>& actions : ranks) count += actions.size();
  return count;
}

int Program::microbatches_of(const Chain& chain) const {
  std::uint32_t count = 0;
  const int first = rank_of_stage.at(static_cast<std::size_t>(chain.first_stage));
  for (int rank = first; rank < first + replicas(chain.first_stage); ++rank) {
    for (const Action& action : ranks.at(static_cast<std::size_t>(rank))) {
      if (action.stage == chain.first_stage) count = std::max(count, action.microbatch + 1);
    }
  }
  return static_cast<int>(count);
}

int Program::microbatch_count() const {
  int count = 0;
  for (const Chain& chain : chains) count += microbatches_of(chain);
  return count / slices_per_microbatch;
}

int Program::stages_per_chain() const {
  return chains.front().last_stage - chains.front().first_stage + 1;
}

int step_of(const std::vector<Action>& actions, std::size_t index) {
  int step = 0;
  for (std::size_t before = 0; before < index; ++before) step += actions[before].overlaps_next ? 0 : 1;
  return step;
}

std::vector<int> infer_replicas(const Program& program) {
  std::vector<int> last_rank(program.rank_of_stage);
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    for (const Action& action : program.ranks[rank]) last_rank[action.stage] = static_cast<int>(rank);
  }
  if (last_rank == program.rank_of_stage) return {};
  Program guess;
  guess.rank_of_stage = program.rank_of_stage;
  for (std::size_t stage = 0; stage < last_rank.size(); ++stage) {
    guess.replicas_of_stage.push_back(last_rank[stage] - program.rank_of_stage[stage] + 1);
  }
  std::vector<int> replicas(guess.replicas_of_stage);
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    for (const Action& action : program.ranks[rank]) {
      if (guess.rank_of(action.stage, action.microbatch) != static_cast<int>(rank)) replicas[action.stage] = 1;
    }
  }
  const bool none = std::all_of(replicas.begin(), replicas.end(), [](int count) { return count == 1; });
  return none ? std::vector<int>() : replicas;
}

std::vector<int> ranks_of_chain(const Program& program, const Chain& chain) {
  std::vector<int> ranks(program.rank_of_stage.begin() + chain.first_stage,
                         program.rank_of_stage.begin() + chain.last_stage + 1);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

namespace {

int change_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return 1;
    case ActionKind::kInputGradient:
      return 0;
    case ActionKind::kBackward:
    case ActionKind::kWeightGradient:
      break;
  }
  return -1;
}

}  // namespace

std::vector<int> peak_in_flight(const Program& program) {
  std::vector<int> peaks;
  for (const std::vector<Action>& actions : program.ranks) {
    int held = 0;
    int peak = 0;
    for (std::size_t index = 0; index < actions.size(); ++index) {
      const int change = change_of(actions[index].kind);
      const bool pair = actions[index].overlaps_next && index + 1 < actions.size();
      const int partner_change = pair ? change_of(actions[++index].kind) : 0;
      const bool frees_first = pair && program.backward_frees_first;
      const int most = frees_first ? change + partner_change : std::max(change, 0) + std::max(partner_change, 0);
      peak = std::max(peak, held + most);
      held += change + partner_change;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

namespace {

bool is_below(const HeldCounts& a, const HeldCounts& b) {
  for (std::size_t index = 0; index < a.size(); ++index) {
    if (a[index] > b[index]) return false;
  }
  return true;
}

void keep_if_fuller(const HeldCounts& held, std::vector<HeldCounts>& moments) {
  const auto covers = [&held](const HeldCounts& known) { return is_below(held, known); };
  if (std::any_of(moments.begin(), moments.end(), covers)) return;
  moments.erase(std::remove_if(moments.begin(), moments.end(),
                               [&held](const HeldCounts& known) { return is_below(known, held); }),
                moments.end());
  moments.push_back(held);
}

bool frees(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kWeightGradient;
}

}  // namespace

std::vector<HeldCounts> peak_states(const std::vector<Action>& actions, const std::vector<int>& stages,
                                    bool backward_frees_first) {
  std::vector<HeldCounts> moments;
  HeldCounts held(stages.size(), 0);
  const auto count_of = [&](const Action& action) -> int& {
    const auto place = std::find(stages.begin(), stages.end(), static_cast<int>(action.stage));
    return held[static_cast<std::size_t>(place - stages.begin())];
  };
  bool grew = false;
  for (std::size_t index = 0; index < actions.size(); ++index) {
    const bool pair = actions[index].overlaps_next && index + 1 < actions.size();
    const std::size_t last = pair ? index + 1 : index;
    const auto allocate = [&] {
      for (std::size_t part = index; part <= last; ++part) {
        if (actions[part].kind != ActionKind::kForward) continue;
        ++count_of(actions[part]);
        grew = true;
      }
    };
    if (!pair || !backward_frees_first) allocate();
    for (std::size_t part = index; part <= last; ++part) {
      if (!frees(actions[part].kind)) continue;
      // The amount held peaks just before something is freed.
      if (grew) keep_if_fuller(held, moments);
      grew = false;
      --count_of(actions[part]);
    }
    if (pair && backward_frees_first) allocate();
    index = last;
  }
  if (grew) keep_if_fuller(held, moments);
  return moments;
}

int RankActivations::in_flight() const {
  int most = 0;
  for (const HeldCounts& held : moments) most = std::max(most, std::accumulate(held.begin(), held.end(), 0));
  return most;
}

std::vector<RankActivations> held_activations(const Program& program) {
  std::vector<RankActivations> held(program.ranks.size());
  for (int stage = 0; stage < program.stage_count(); ++stage) {
    held[static_cast<std::size_t>(program.rank_of_stage[static_cast<std::size_t>(stage)])].stages.push_back(stage);
  }
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    held[rank].moments = peak_states(program.ranks[rank], held[rank].stages, program.backward_frees_first);
  }
  return held;
}

Program empty_loop(std::string_view schedule, const ScheduleRequest& request) {
  const auto rank_count = static_cast<std::size_t>(request.pipeline_ranks);
  const std::size_t stage_count = rank_count * static_cast<std::size_t>(request.chunks);
  Program program;
  program.schedule = std::string(schedule);
  program.ranks.resize(rank_count);
  const std::size_t actions_per_rank =
      2 * static_cast<std::size_t>(request.microbatches) * static_cast<std::size_t>(request.chunks);
  for (std::vector<Action>& actions : program.ranks) actions.reserve(actions_per_rank);
  program.rank_of_stage.reserve(stage_count);
  for (std::size_t stage = 0; stage < stage_count; ++stage) {
    program.rank_of_stage.push_back(static_cast<int>(stage % rank_count));
  }
  program.chains = {Chain{.first_stage = 0, .last_stage = static_cast<int>(stage_count) - 1}};
  return program;
}

Program empty_zigzag(std::string_view schedule, const ScheduleRequest& request) {
  const int ranks = request.pipeline_ranks;
  Program program;
  program.schedule = std::string(schedule);
  program.ranks.resize(static_cast<std::size_t>(ranks));
  for (int chunk = 0; chunk < request.chunks; ++chunk) {
    for (int step = 0; step < ranks; ++step) {
      program.rank_of_stage.push_back(chunk % 2 == 0 ? step : ranks - 1 - step);
    }
  }
  program.chains = {Chain{.first_stage = 0, .last_stage = program.stage_count() - 1}};
  return program;
}

Program empty_bidirectional(std::string_view schedule, const ScheduleRequest& request) {
  ScheduleRequest two = request;
  two.chunks = 2;
  Program program = empty_zigzag(schedule, two);
  const int ranks = request.pipeline_ranks;
  program.chains = {Chain{.first_stage = 0, .last_stage = ranks - 1},
                    Chain{.first_stage = ranks, .last_stage = 2 * ranks - 1}};
  return program;
}

Needs::Needs(const std::vector<Chain>& chains, const ByStage<int>& rank_of_stage, const ByStage<int>& replicas_of_stage)
    : stages_(rank_of_stage.size()) {
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    Neighbour& itself = stages_[stage][kSelf];
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
      upper = stages_[stage + 1][kSelf];
      lower = stages_[stage][kSelf];
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
