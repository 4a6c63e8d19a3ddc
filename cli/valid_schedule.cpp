#include "cli/valid_schedule.hpp"

#include <fmt/format.h>

#include "model/error/error.hpp"
#include "sim/cells/fault_grid.hpp"
#include "sim/program/validate.hpp"

namespace flopcast {

void require_valid(const Program& program) {
  const auto fault = find_fault(program);
  if (!fault) return;
  const auto hint = hint_two_chains(program);
  throw ConfigError({"schedule", fmt::format("{}\n\n{}", render_fault(*fault), render_fault_grid(program, *fault)),
                     program.schedule,
                     hint ? "valid as a bidirectional schedule of two chains: --chains " + *hint : ""});
}

}  // namespace flopcast
