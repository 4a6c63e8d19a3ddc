#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/timeline.hpp"

namespace flopcast {

/// One of the timelines of flopcast.timeline/1 (docs/schema): spans and the transfers between ranks, times in the
/// timeline's unit. How many copies of the model it holds is left out.
nlohmann::ordered_json timeline_json(const Timeline& timeline);

/// The same in a flopcast.measurement/1 of a run, times in picoseconds; its title and unit go without saying.
nlohmann::ordered_json run_timeline_json(const Timeline& timeline);

/// Schema flopcast.timeline/1: what `flopcast timeline` prints.
std::string write_timelines(const std::vector<Timeline>& timelines);

/// The inverse of timeline_json, rounded to ticks: picoseconds, or millionths of an abstract unit. A file that tells no
/// transfers (early versions wrote none) is read without. Throws ConfigError whose place is `field` of `file`.
Timeline read_timeline(const nlohmann::ordered_json& json, const std::string& file, const std::string& field);
/// The inverse of run_timeline_json.
Timeline read_run_timeline(const nlohmann::json& json, const std::string& file, const std::string& field);

/// A timeline of a file. Where it tells no transfers, what a rank waited for is unknown: neither waiting nor the
/// critical path can be told.
struct SavedTimeline {
  Timeline timeline;
  bool tells_transfers = true;
  std::string field = {};  ///< its place in the file
};
SavedTimeline read_saved_timeline(const nlohmann::ordered_json& json, const std::string& file,
                                  const std::string& field);
/// All of a flopcast.timeline/1, at least one. Throws ConfigError.
std::vector<SavedTimeline> read_timelines(const nlohmann::ordered_json& json, const std::string& file);
/// Whether `json` calls itself a flopcast.timeline/1.
bool is_timelines(const nlohmann::ordered_json& json);

/// Divided, because a decimal share of a unit is no binary number: 1333333 millionths are 1.333333.
double units_of(const Timeline& timeline, Ticks ticks);

}  // namespace flopcast
