#include "cli/schedule_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <limits>
#include <set>
#include <string_view>

#include "model/error/error.hpp"

namespace flopcast {

namespace {

constexpr int kDecimals = 6;

[[noreturn]] void refuse(const std::string& flag, const std::string& problem) {
  throw ConfigError({flag, problem, "", "expected a time such as 10 or 2.5: not negative, at most six decimals"});
}

// Exact: "2.5" is 2,500,000 ticks. Refuses signs, exponents and more than six decimals instead of rounding.
Ticks parse_time(const std::string& flag, std::string_view text) {
  const std::size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  const std::string_view decimals = point == std::string_view::npos ? std::string_view() : text.substr(point + 1);
  const auto all_digits = [](std::string_view digits) {
    return std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  };
  const bool is_number = all_digits(whole) && all_digits(decimals) && !(whole.empty() && decimals.empty());
  if (!is_number) refuse(flag, fmt::format("\"{}\" is not a time", text));
  if (decimals.size() > kDecimals) refuse(flag, fmt::format("\"{}\" has more than six decimals", text));
  Ticks ticks = 0;
  std::string digits(whole);
  digits += decimals;
  digits.append(kDecimals - decimals.size(), '0');
  for (const char digit : digits) {
    constexpr Ticks kLargest = std::numeric_limits<Ticks>::max();
    const Ticks value = digit - '0';
    if (ticks > (kLargest - value) / 10) refuse(flag, fmt::format("\"{}\" is too large", text));
    ticks = ticks * 10 + value;
  }
  return ticks;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

// One number for all stages, or one a stage.
std::vector<Ticks> per_stage(const std::string& flag, const std::string& text, std::size_t stages) {
  std::vector<Ticks> times;
  for (const std::string_view part : split(text, ',')) times.push_back(parse_time(flag, part));
  if (times.size() == 1) times.resize(stages, times.front());
  if (times.size() != stages) {
    throw ConfigError({flag, fmt::format("{} has {} numbers for {} stages", text, times.size(), stages), "",
                       "give one number, or one a stage"});
  }
  return times;
}

bool uses(const Program& program, ActionKind kind) {
  for (const std::vector<Action>& actions : program.ranks) {
    if (std::any_of(actions.begin(), actions.end(), [kind](const Action& action) { return action.kind == kind; }))
      return true;
  }
  return false;
}

int stage_number(const std::string& link, std::string_view text, std::size_t stages) {
  const bool digits = !text.empty() && text.size() <= 5 &&
                      std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  const int stage = digits ? std::stoi(std::string(text)) : -1;
  if (stage < 0 || static_cast<std::size_t>(stage) >= stages) {
    throw ConfigError({"--p2p-link", fmt::format("\"{}\": \"{}\" is no stage of this schedule", link, text), "",
                       fmt::format("expected FROM:TO:FORWARD:BACKWARD with stages 0 to {}", stages - 1)});
  }
  return stage;
}

void apply_link(const std::string& link, StepTimes& times) {
  const auto parts = split(link, ':');
  constexpr std::size_t kParts = 4;
  const std::string form = "expected FROM:TO:FORWARD:BACKWARD, such as 0:1:4:2 with TO = FROM + 1";
  if (parts.size() != kParts)
    throw ConfigError({"--p2p-link", fmt::format("\"{}\" has {} parts", link, parts.size()), "", form});
  const int from = stage_number(link, parts[0], times.stages.size());
  const int to = stage_number(link, parts[1], times.stages.size());
  if (to != from + 1)
    throw ConfigError({"--p2p-link", fmt::format("\"{}\" does not join a stage to the next one", link), "", form});
  BoundaryTimes& boundary = times.boundaries[static_cast<std::size_t>(from)];
  boundary.forward = parse_time("--p2p-link", parts[2]);
  boundary.backward = parse_time("--p2p-link", parts[3]);
}

}  // namespace

void TimeOptions::add_to(CommandLine& command_line) {
  command_line.begin_group("Times (any unit: one number, or a comma list with one a stage)");
  command_line.add_option("--forward", forward_, "T", "forward");
  command_line.add_option("--backward", backward_, "T", "full backward (default: the sum of its two parts)");
  command_line.add_option("--backward-input", input_gradient_, "T", "input gradient, I");
  command_line.add_option("--backward-weight", weight_gradient_, "T", "weight gradient, W");
  command_line.add_option("--fused", fused_, "T", "an overlapped pair (default: the sum of its halves)");
  command_line.add_option("--p2p", p2p_, "T", "latency between ranks (default 0)");
  command_line.add_option("--p2p-link", p2p_links_, "FROM:TO:F:B",
                          "latencies of one stage boundary, forward and backward; repeatable");
}

bool TimeOptions::given() const {
  return forward_ || backward_ || input_gradient_ || weight_gradient_ || fused_ || p2p_ || !p2p_links_.empty();
}

template <class Predicate>
void TimeOptions::spread(StepTimes& times, Ticks parts, const Predicate& spreads) const {
  for (StageTimes& stage : times.stages) {
    if (spreads(forward_)) stage.forward /= parts;
    if (spreads(backward_)) stage.backward /= parts;
    if (spreads(input_gradient_)) stage.input_gradient /= parts;
    if (spreads(weight_gradient_)) stage.weight_gradient /= parts;
    if (stage.fused && spreads(fused_)) *stage.fused /= parts;
  }
}

StepTimes TimeOptions::build(const Program& program) const {
  const std::size_t stages = static_cast<std::size_t>(program.stage_count());
  const auto times_of = [stages](const char* flag, const std::optional<std::string>& text) {
    return text ? per_stage(flag, *text, stages) : std::vector<Ticks>(stages, 0);
  };
  if (!forward_) throw ConfigError({"--forward", "is required", "", "give the time of a forward pass, --forward T"});
  const bool has_parts = input_gradient_ && weight_gradient_;
  const bool splits = uses(program, ActionKind::kInputGradient) || uses(program, ActionKind::kWeightGradient);
  if (splits && !has_parts) {
    throw ConfigError({input_gradient_ ? "--backward-weight" : "--backward-input",
                       "is required: the schedule splits the backward pass", "",
                       "give --backward-input T --backward-weight T"});
  }
  if (!backward_ && !has_parts) {
    throw ConfigError(
        {"--backward", "is required", "", "give --backward T, or --backward-input T --backward-weight T"});
  }
  const std::vector<Ticks> forward = times_of("--forward", forward_);
  const std::vector<Ticks> backward = times_of("--backward", backward_);
  const std::vector<Ticks> input_gradient = times_of("--backward-input", input_gradient_);
  const std::vector<Ticks> weight_gradient = times_of("--backward-weight", weight_gradient_);
  const std::vector<Ticks> fused = times_of("--fused", fused_);
  StepTimes times;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    StageTimes passes;
    passes.forward = forward[stage];
    passes.input_gradient = input_gradient[stage];
    passes.weight_gradient = weight_gradient[stage];
    if (!backward_ && input_gradient[stage] > std::numeric_limits<Ticks>::max() - weight_gradient[stage]) {
      refuse("--backward-input", "is too large together with --backward-weight");
    }
    passes.backward = backward_ ? backward[stage] : input_gradient[stage] + weight_gradient[stage];
    if (fused_) passes.fused = fused[stage];
    times.stages.push_back(passes);
  }
  spread(times, program.slices_per_microbatch, [](const std::optional<std::string>&) { return true; });
  const Ticks latency = p2p_ ? parse_time("--p2p", *p2p_) : 0;
  times.boundaries.resize(stages > 0 ? stages - 1 : 0, {latency, latency});
  std::set<std::string_view> given;
  for (const std::string& link : p2p_links_) {
    if (!given.insert(std::string_view(link).substr(0, link.find(':'))).second) {
      throw ConfigError({"--p2p-link", fmt::format("\"{}\" sets a boundary for the second time", link), "",
                         "give each boundary once"});
    }
    apply_link(link, times);
  }
  return times;
}

StepTimes TimeOptions::times_for(const Program& program) const {
  return build(program);
}

StepTimes TimeOptions::times_for_comparison(const Program& program) const {
  TimeOptions filled = *this;
  if (!filled.forward_) filled.forward_ = "1";
  if (!filled.input_gradient_ && !filled.weight_gradient_) {
    filled.input_gradient_ = "1";
    filled.weight_gradient_ = "1";
    if (!filled.backward_) filled.backward_ = "2";
  }
  StepTimes times = filled.build(program);
  const Ticks chunks = program.stages_per_chain() / std::max(1, program.rank_count());
  filled.spread(times, chunks,
                [](const std::optional<std::string>& text) { return !text || text->find(',') == std::string::npos; });
  return times;
}

}  // namespace flopcast
