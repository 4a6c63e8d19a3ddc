#include "realrun/launch/emulation.hpp"

#include <fmt/format.h>

#include <cmath>

#include "model/error/error.hpp"
#include "model/units/parse.hpp"

namespace flopcast::realrun {

namespace {

Ticks parse_time(const std::string& flag, const std::string& text) {
  const ParsedQuantity time = parse_quantity(text, Dimension::kTime);
  if (!time.value) {
    throw ConfigError({flag, fmt::format("\"{}\" {}", text, time.problem), flag,
                       fmt::format("a time such as 5ms; units: {}", accepted_units(Dimension::kTime))});
  }
  constexpr double kLongest = 60.0;
  if (*time.value > kLongest) throw ConfigError({flag, fmt::format("{} is longer than a minute", text), flag, {}});
  return std::llround(*time.value * kTicksPerSecond);
}

// One time for all stages, or one a stage.
std::vector<Ticks> parse_times(const std::string& flag, const std::string& text, std::size_t stages) {
  std::vector<Ticks> times;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    times.push_back(parse_time(flag, text.substr(begin, comma - begin)));
    begin = comma + 1;
  }
  if (times.size() == 1) times.resize(stages, times.front());
  if (times.size() != stages) {
    throw ConfigError({flag, fmt::format("{} times for {} stages", times.size(), stages), flag, "one, or one a stage"});
  }
  return times;
}

Ticks slowed(Ticks time, double slow_down) {
  return std::llround(static_cast<double>(time) * slow_down);
}

void refuse_without_sleep(const Emulation& emulation) {
  const auto refuse = [](bool given, const char* flag) {
    if (given) throw ConfigError({flag, "means nothing while actions compute", flag, "give --compute sleep too"});
  };
  refuse(emulation.forward.has_value(), "--forward");
  refuse(emulation.backward.has_value(), "--backward");
  refuse(emulation.input_gradient.has_value(), "--backward-input");
  refuse(emulation.weight_gradient.has_value(), "--backward-weight");
  refuse(emulation.slow_down != 1.0, "--slow-down");
}

}  // namespace

std::vector<StageTimes> slept_times(const Emulation& emulation, const PreparedStep& step, const Program& program) {
  if (!emulation.sleeps) {
    refuse_without_sleep(emulation);
    return {};
  }
  const auto stages = static_cast<std::size_t>(program.stage_count());
  FLOPCAST_CHECK(step.times.stages.size() == stages);
  std::vector<StageTimes> times = step.times.stages;
  for (StageTimes& stage : times) {
    stage.fused.reset();  // the halves of a pair sleep one after the other
    for (Ticks* time : {&stage.forward, &stage.backward, &stage.input_gradient, &stage.weight_gradient}) {
      *time = slowed(*time, emulation.slow_down);
    }
  }
  const auto replace = [&](const std::optional<std::string>& text, const char* flag, auto set) {
    if (!text) return;
    const std::vector<Ticks> given = parse_times(flag, *text, stages);
    for (std::size_t stage = 0; stage < stages; ++stage) set(times[stage], given[stage]);
  };
  replace(emulation.forward, "--forward", [](StageTimes& stage, Ticks time) { stage.forward = time; });
  replace(emulation.backward, "--backward", [](StageTimes& stage, Ticks time) {
    stage.backward = time;
    stage.input_gradient = time / 2;
    stage.weight_gradient = time - time / 2;
  });
  replace(emulation.input_gradient, "--backward-input",
          [](StageTimes& stage, Ticks time) { stage.input_gradient = time; });
  replace(emulation.weight_gradient, "--backward-weight",
          [](StageTimes& stage, Ticks time) { stage.weight_gradient = time; });
  return times;
}

}  // namespace flopcast::realrun
