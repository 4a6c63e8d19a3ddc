#pragma once

#include <string>

#include "cli/commands.hpp"
#include "cli/schedule_options.hpp"
#include "reports/table.hpp"
#include "sim/schedule/program.hpp"

namespace flopcast {

int run_schedule_check(const Arguments& arguments);
int run_schedule_simulate(const Arguments& arguments);

/// Which weight version every microbatch uses on every stage, as `schedule show --versions` prints it.
std::string versions_listing(const Program& program, const ScheduleOptions& schedule, bool vertical_sync,
                             Format format);

}  // namespace flopcast
