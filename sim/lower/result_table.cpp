#include "sim/lower/result_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/error.hpp"

namespace flopcast {

ResultTable::ResultTable(const Program& program) {
  Action highest;
  for (const std::vector<Action>& actions : program.ranks) {
    for (const Action& action : actions) {
      FLOPCAST_CHECK(action.stage < program.stage_count());
      if (action.microbatch > highest.microbatch) highest = action;
    }
  }
  microbatches_ = std::size_t{highest.microbatch} + 1;
  const auto stages = static_cast<std::size_t>(program.stage_count());
  // Every stage must at least run the forward of each microbatch of its chain, and a schedule of two chains may number
  // the microbatches of both together.
  const std::size_t chains = std::max<std::size_t>(1, program.chains.size());
  if (stages * microbatches_ > chains * program.action_count() + stages) {
    throw ConfigError(Diagnostic{"schedule",
                                 fmt::format("{} names microbatch {}, but {} stages have only {} actions together",
                                             to_string(highest), highest.microbatch, stages, program.action_count()),
                                 "", fmt::format("every stage runs every microbatch 0 to {}", highest.microbatch)});
  }
  tasks_.assign(2 * stages * microbatches_, TaskGraph::kNone);
}

void ResultTable::refuse_twice(const Action& action) {
  throw ConfigError(Diagnostic{"schedule", fmt::format("{} is executed twice", to_string(action)), "",
                               "every stage runs F once and either B once or I and W once for each microbatch"});
}

void ResultTable::refuse_missing(const Action& action, std::uint16_t stage, ActionKind kind) {
  Action missing = action;
  missing.stage = stage;
  missing.kind = kind;
  const std::string either =
      kind == ActionKind::kForward
          ? to_string(missing)
          : fmt::format("{}B{} or {}I{}", missing.stage, missing.microbatch, missing.stage, missing.microbatch);
  throw ConfigError(Diagnostic{"schedule",
                               fmt::format("{} needs {}, which no rank executes", to_string(action), either), "",
                               "every stage runs F once and either B once or I and W once for each microbatch"});
}

}  // namespace flopcast
