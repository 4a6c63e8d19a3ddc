#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/metrics/critical_path.hpp"
#include "sim/metrics/memory_over_time.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// A sequence of whole numbers as bytes that a page decodes with a few lines (page/decode.js): each number in zigzag
/// (0, -1, 1, -2 … as 0, 1, 2, 3 …), seven bits a byte, low ones first, the eighth set where more follow; after two
/// equal numbers in a row, how many more of them come. Schedules repeat themselves, so that a column of differences to
/// what was expected is next to nothing.
class ColumnWriter {
 public:
  void add(std::int64_t number);
  /// The bytes in base64 (RFC 4648). Ends the column.
  std::string finish();

 private:
  void put(std::uint64_t bits);
  void end_run();

  std::string bytes_;
  std::optional<std::int64_t> last_;
  bool in_run_ = false;
  std::uint64_t repeats_ = 0;
};

std::string base64(std::string_view bytes);

/// A timeline as a page reads it (page/decode.js): names and colours of its kinds of action once, and of every span its
/// start, duration, microbatch and what it waited for, as columns of differences to what the spans before suggest
/// (ColumnWriter). A span's wait is the last to end of its inputs on other streams or ranks: the action, and how long
/// its result travelled. `path`, its critical path, is a list of (rank, position). Times are ticks, divided by a power
/// of ten where they would not fit into a double.
///
/// A simulated million of actions takes some kilobytes, a measured one about eight bytes an action.
nlohmann::ordered_json pack_timeline(const Timeline& timeline, const CriticalPath& path);

/// Memory over time in the same form; `units` as pack_timeline chose them.
nlohmann::ordered_json pack_memory(const Timeline& timeline, const std::vector<RankMemory>& memory,
                                   const std::vector<double>& capacity_gib);

}  // namespace flopcast
