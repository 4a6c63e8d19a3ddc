#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "import/programs/imported_job.hpp"
#include "model/config/document.hpp"

namespace flopcast {

/// Where failures.log names a CSV of interruptions, puts failures.causes in its place: a cause for each name, with as
/// many events as the file has rows of it.
///   time,cause,per,takes,count
///   2026-03-01T04:10,GPU memory,gpu,,
/// `cause` is needed. `per` is gpu, node, link, rack or site (gpu), `takes` nothing, node, rack or site, both the same
/// in all rows of a cause; `count` rows of them are told in one; other columns are left alone. Fields in quotes may
/// hold commas and doubled quotes. failures.observed tells the fleet and the days, so that counts become rates; a cause
/// that was seen n times is known to about 1 / sqrt(n), and every run drawn has rates of its own (sim/run/run.hpp).
/// Left out: when they came, so that neither bursts nor a fleet that matures are seen. Throws ConfigError with the
/// line.
void read_interruption_log(const Files& files, nlohmann::json& root, Origins& origins);

}  // namespace flopcast
