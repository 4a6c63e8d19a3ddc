#pragma once

#include <optional>
#include <string>

#include "base/host/streams.hpp"
#include "base/text/table.hpp"
#include "cli/commands.hpp"
#include "cli/schedule/options.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

int run_schedule_check(const Arguments& arguments, const Streams& streams);
int run_schedule_simulate(const Arguments& arguments, const Streams& streams);
int run_schedule_compare(const Arguments& arguments, const Streams& streams);

/// Which weight version every forward and every backward uses, as `schedule show --versions` prints it. `policy` is
/// what --policy says: of a schedule from a file, which would flush without it, and vertical-sync of pipedream.
std::string versions_listing(const ScheduleOptions& schedule, const std::optional<std::string>& policy, Format format);

/// Every schedule, for `schedule list` and `catalog schedules`. CSV and JSON hold closed forms, constraints and sources
/// too.
Table schedule_table(Format format);

}  // namespace flopcast
