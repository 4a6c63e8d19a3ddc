#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "sim/metrics/critical_path.hpp"
#include "sim/metrics/memory_over_time.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// A timeline as a page reads it (page/decode.js): names and colours of its kinds of action once, and of every span its
/// start, duration, microbatch and what it waited for, as columns of differences to what the spans before suggest
/// (column.hpp). A span's wait is the last to end of its inputs on other streams or ranks: the action, and how long its
/// result travelled. `path`, its critical path, is a list of (rank, position). Times are ticks, divided by a power of
/// ten where they would not fit into a double.
///
/// A simulated million of actions takes some kilobytes, a measured one about eight bytes an action.
nlohmann::ordered_json pack_timeline(const Timeline& timeline, const CriticalPath& path);

/// Memory over time in the same form; `units` as pack_timeline chose them.
nlohmann::ordered_json pack_memory(const Timeline& timeline, const std::vector<RankMemory>& memory,
                                   const std::vector<double>& capacity_gib);

}  // namespace flopcast
