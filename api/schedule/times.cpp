#include "api/schedule/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <set>
#include <string_view>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "planner/tables/tables.hpp"
#include "sim/lower/lower.hpp"

namespace flopcast {

namespace {

using TimeList = std::optional<std::vector<Ticks>>;

bool uses(const Program& program, ActionKind kind) {
  for (const std::vector<Action>& actions : program.ranks) {
    if (std::any_of(actions.begin(), actions.end(), [kind](const Action& action) { return action.kind == kind; }))
      return true;
  }
  return false;
}

bool splits_backward(const Program& program) {
  return uses(program, ActionKind::kInputGradient) || uses(program, ActionKind::kWeightGradient);
}

int stage_number(const std::string& link, std::string_view text, std::size_t stages) {
  const std::optional<int> stage = parse_digits(text, 0, static_cast<int>(stages) - 1);
  if (!stage) {
    throw ConfigError({"--p2p-link", fmt::format("\"{}\": \"{}\" is not a stage of this schedule", link, text), "",
                       fmt::format("give FROM:TO:FORWARD:BACKWARD with stages 0 to {}", stages - 1)});
  }
  return *stage;
}

void apply_link(const std::string& link, StepTimes& times) {
  const auto parts = split(link, ':');
  constexpr std::size_t kParts = 4;
  const std::string form = "give FROM:TO:FORWARD:BACKWARD, such as 0:1:4:2 with TO = FROM + 1";
  if (parts.size() != kParts)
    throw ConfigError({"--p2p-link", fmt::format("\"{}\" has {} parts", link, parts.size()), "", form});
  const int from = stage_number(link, parts[0], times.stages.size());
  const int to = stage_number(link, parts[1], times.stages.size());
  if (to != from + 1)
    throw ConfigError({"--p2p-link", fmt::format("\"{}\" does not connect a stage to the next one", link), "", form});
  BoundaryTimes& boundary = times.boundaries[static_cast<std::size_t>(from)];
  boundary.forward = parse_time("--p2p-link", parts[2]);
  boundary.backward = parse_time("--p2p-link", parts[3]);
}

void apply_links(const std::vector<std::string>& links, StepTimes& times) {
  std::set<std::string_view> given;
  for (const std::string& link : links) {
    if (!given.insert(std::string_view(link).substr(0, link.find(':'))).second) {
      throw ConfigError(
          {"--p2p-link", fmt::format("\"{}\" sets a boundary twice", link), "", "give each boundary once"});
    }
    apply_link(link, times);
  }
}

// Missing part of the backward pass, from B = I + W.
Ticks rest_of(const char* flag, Ticks backward, Ticks part) {
  if (part <= backward) return backward - part;
  throw ConfigError({flag, fmt::format("{} is more than --backward {}", units_text(part), units_text(backward)), "",
                     "give at most --backward, which includes both parts"});
}

Ticks sum_of(Ticks input_gradient, Ticks weight_gradient) {
  if (input_gradient <= std::numeric_limits<Ticks>::max() - weight_gradient) return input_gradient + weight_gradient;
  throw ConfigError({"--backward-input", "is too large together with --backward-weight", "", "use a larger unit"});
}

}  // namespace

struct TimeOptions::Lists {
  TimeList forward;
  TimeList backward;
  TimeList input_gradient;
  TimeList weight_gradient;
  TimeList fused;

  void complete_backward(StageTimes& times) const {
    if (!backward) {
      times.backward = sum_of(times.input_gradient, times.weight_gradient);
    } else if (!input_gradient && !weight_gradient) {
      times.weight_gradient = times.backward / 2;
      times.input_gradient = times.backward - times.weight_gradient;
    } else if (!weight_gradient) {
      times.weight_gradient = rest_of("--backward-input", times.backward, times.input_gradient);
    } else if (!input_gradient) {
      times.input_gradient = rest_of("--backward-weight", times.backward, times.weight_gradient);
    } else {
      // Absorbs rounding differences of parts that were rounded one by one.
      const Ticks difference = times.backward - times.weight_gradient - times.input_gradient;
      if (std::abs(difference) <= 2) times.input_gradient += difference;
    }
  }
};

void TimeOptions::add_to(Form& form) {
  form.begin_group("Times (any unit: one number, or a comma-separated list with one per stage)");
  form.add_option("--forward", forward_, "T", "forward pass");
  form.add_option("--backward", backward_, "T", "full backward pass, B (default: I + W)");
  form.add_option("--backward-input", input_gradient_, "T", "input gradient, I (default: B - W)");
  form.add_option("--backward-weight", weight_gradient_, "T",
                  "weight gradient, W (default: B - I; without I, half of B)");
  form.add_option("--fused", fused_, "T", "overlapped pair (default: the sum of its two passes)");
  form.add_option("--p2p", p2p_, "T",
                  "latency of every message between ranks, not divided by the number of chunks (default 0)");
  form.add_option("--p2p-link", p2p_links_, "FROM:TO:F:B",
                  "latencies of one stage boundary, forward and backward; repeatable");
}

bool TimeOptions::given() const {
  return forward_ || backward_ || input_gradient_ || weight_gradient_ || fused_ || p2p_ || !p2p_links_.empty();
}

bool TimeOptions::names_stages() const {
  const auto is_list = [](const std::optional<std::string>& text) {
    return text && text->find(',') != std::string::npos;
  };
  return is_list(forward_) || is_list(backward_) || is_list(input_gradient_) || is_list(weight_gradient_) ||
         is_list(fused_) || !p2p_links_.empty();
}

TimeOptions::Lists TimeOptions::read() const {
  const auto list = [](const char* flag, const std::optional<std::string>& text) {
    return text ? TimeList(parse_times(flag, *text)) : std::nullopt;
  };
  Lists lists;
  lists.forward = list("--forward", forward_);
  lists.backward = list("--backward", backward_);
  lists.input_gradient = list("--backward-input", input_gradient_);
  lists.weight_gradient = list("--backward-weight", weight_gradient_);
  lists.fused = list("--fused", fused_);
  return lists;
}

void TimeOptions::require_readable() const {
  static_cast<void>(read());
  if (p2p_) static_cast<void>(parse_time("--p2p", *p2p_));
}

StepTimes TimeOptions::build(const Program& program, bool in_comparison) const {
  if (!forward_) throw ConfigError({"--forward", "is required", "", "give the time of a forward pass, --forward T"});
  if (!backward_ && input_gradient_.has_value() != weight_gradient_.has_value()) {
    throw ConfigError({input_gradient_ ? "--backward-weight" : "--backward-input",
                       "is required: the backward pass has two parts", "", "give it, or --backward T for their sum"});
  }
  if (!backward_ && !input_gradient_) {
    throw ConfigError(
        {"--backward", "is required", "", "give --backward T, or --backward-input T --backward-weight T"});
  }
  const Lists lists = read();
  const auto times_of = [&](const char* flag, const TimeList& list) {
    return list ? spread_times(flag, *list, program, in_comparison)
                : std::vector<Ticks>(program.rank_of_stage.size(), 0);
  };
  const std::vector<Ticks> forward = times_of("--forward", lists.forward);
  const std::vector<Ticks> backward = times_of("--backward", lists.backward);
  const std::vector<Ticks> input_gradient = times_of("--backward-input", lists.input_gradient);
  const std::vector<Ticks> weight_gradient = times_of("--backward-weight", lists.weight_gradient);
  const std::vector<Ticks> fused = times_of("--fused", lists.fused);
  StepTimes times;
  for (std::size_t stage = 0; stage < program.rank_of_stage.size(); ++stage) {
    StageTimes passes;
    passes.forward = forward[stage];
    passes.backward = backward[stage];
    passes.input_gradient = input_gradient[stage];
    passes.weight_gradient = weight_gradient[stage];
    lists.complete_backward(passes);
    if (fused_) passes.fused = fused[stage];
    times.stages.push_back(passes);
  }
  const Ticks latency = p2p_ ? parse_time("--p2p", *p2p_) : 0;
  times.boundaries.resize(times.stages.empty() ? 0 : times.stages.size() - 1, {latency, latency});
  apply_links(p2p_links_, times);
  return times;
}

StepTimes TimeOptions::times_for(const Program& program) const {
  return build(program, false);
}

StepTimes TimeOptions::times_for_comparison(const Program& program) const {
  TimeOptions filled = *this;
  if (!filled.forward_) filled.forward_ = "1";
  if (!filled.backward_ && !filled.input_gradient_ && !filled.weight_gradient_) filled.backward_ = "2";
  return filled.build(program, true);
}

std::string TimeOptions::assumed_for(const Program& program) const {
  const bool halves = backward_ && !input_gradient_ && !weight_gradient_ && splits_backward(program);
  if (!halves) return "";
  return fmt::format("{} splits the backward pass; --backward-weight is assumed to be half of --backward",
                     program.schedule);
}

std::string TimeOptions::unequal_parts() const {
  const Lists lists = read();
  if (!lists.backward || !lists.input_gradient || !lists.weight_gradient) return "";
  const std::size_t most =
      std::max({lists.backward->size(), lists.input_gradient->size(), lists.weight_gradient->size()});
  const auto at = [](const std::vector<Ticks>& list, std::size_t index) {
    return list.size() == 1 ? list.front() : list[std::min(index, list.size() - 1)];
  };
  for (std::size_t index = 0; index < most; ++index) {
    const Ticks whole = at(*lists.backward, index);
    const Ticks input_gradient = at(*lists.input_gradient, index);
    const Ticks weight_gradient = at(*lists.weight_gradient, index);
    if (whole == sum_of(input_gradient, weight_gradient)) continue;
    return fmt::format(
        "--backward {} is not --backward-input {} + --backward-weight {}: schedules that split the backward pass do "
        "different work from those that do not",
        units_text(whole), units_text(input_gradient), units_text(weight_gradient));
  }
  return "";
}

bool has_pairs(const Program& program) {
  for (const std::vector<Action>& actions : program.ranks) {
    if (std::any_of(actions.begin(), actions.end(), [](const Action& action) { return action.overlaps_next; }))
      return true;
  }
  return false;
}

void refuse_unused_fused(const TimeOptions& times, bool any_pairs, const std::string& schedules) {
  if (!times.fused_given() || any_pairs) return;
  throw ConfigError({"--fused", fmt::format("has no effect on {}: no forward and backward passes overlap", schedules),
                     "", "leave it out, or use a schedule with overlapped pairs, such as dualpipe"});
}

}  // namespace flopcast
