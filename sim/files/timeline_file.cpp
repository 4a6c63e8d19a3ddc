#include "sim/files/timeline_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "model/config/document.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTimelinesName = "flopcast.timeline/1";

// What a file calls the times and the ends of what it tells: in the timeline's unit, or in whole ticks.
struct TimelineKeys {
  const char* start;
  const char* end;
  const char* produced_by;
  const char* from_rank;
  const char* to_rank;
  bool in_ticks;
  const char* written_by;
};
constexpr TimelineKeys kOfReports = {"start", "end", "action", "from", "to", false, "flopcast timeline --format json"};
constexpr TimelineKeys kOfRuns = {"start_ps", "end_ps", "produced_by", "from_rank", "to_rank", true, "flopcast run -o"};

// Reads one timeline; complaints point at where it is.
template <class AnyJson>
class TimelineReader {
 public:
  TimelineReader(const TimelineKeys& keys, const std::string& file, std::string field)
      : keys_(keys), file_(file), field_(std::move(field)) {}

  Timeline read(const AnyJson& json) {
    const std::string field = field_;
    Timeline timeline = without_spans(json);
    units_per_tick_ = timeline.units_per_tick;
    const AnyJson& ranks = member(json, "ranks");
    if (!ranks.is_array() || ranks.empty()) fail("\"ranks\" holds no ranks");
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      field_ = fmt::format("{}.ranks[{}]", field, rank);
      std::vector<Span> spans;
      if (!ranks[rank].is_array()) fail("is no list of spans");
      for (const AnyJson& span : ranks[rank]) spans.push_back(read_span(span));
      std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start < b.start; });
      timeline.ranks.push_back(std::move(spans));
    }
    if (!json.contains("transfers")) return timeline;
    const AnyJson& transfers = json.at("transfers");
    field_ = fmt::format("{}.transfers", field);
    if (!transfers.is_array()) fail("is no list of transfers");
    for (std::size_t index = 0; index < transfers.size(); ++index) {
      field_ = fmt::format("{}.transfers[{}]", field, index);
      timeline.transfers.push_back(read_transfer(transfers[index], timeline.ranks.size()));
    }
    std::stable_sort(timeline.transfers.begin(), timeline.transfers.end(),
                     [](const Transfer& a, const Transfer& b) { return a.start < b.start; });
    return timeline;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw ConfigError({field_, problem, file_, fmt::format("expected what `{}` writes", keys_.written_by)});
  }
  const AnyJson& member(const AnyJson& json, const char* key) const {
    if (!json.is_object() || !json.contains(key)) fail(fmt::format("\"{}\" is missing", key));
    return json.at(key);
  }
  std::string text(const AnyJson& json, const char* key) const {
    const AnyJson& value = member(json, key);
    if (!value.is_string()) fail(fmt::format("\"{}\" is no text", key));
    return value.template get<std::string>();
  }
  std::size_t index(const AnyJson& json, const char* key, std::size_t count) const {
    const AnyJson& value = member(json, key);
    if (!value.is_number_unsigned() || value.template get<std::size_t>() >= count) {
      fail(fmt::format("\"{}\" is no whole number below {}", key, count));
    }
    return value.template get<std::size_t>();
  }
  Ticks ticks(const AnyJson& json, const char* key) const {
    const AnyJson& value = member(json, key);
    if (!value.is_number()) fail(fmt::format("\"{}\" is no number", key));
    if (keys_.in_ticks) return value.template get<Ticks>();
    const double ticks = std::round(value.template get<double>() / units_per_tick_);
    if (!(ticks >= 0.0 && ticks < 9e18)) fail(fmt::format("\"{}\" is out of range", key));
    return static_cast<Ticks>(ticks);
  }
  // What clocks of several machines say may run backwards by their offset.
  void refuse_backwards(Ticks start, Ticks end, const char* problem) const {
    if (!keys_.in_ticks && end < start) fail(problem);
  }
  // Values of an enumeration by their names.
  template <class Enumeration>
  Enumeration named(const AnyJson& json, const char* key, std::size_t count) const {
    const std::string name = text(json, key);
    for (std::size_t value = 0; value < count; ++value) {
      if (name_of(static_cast<Enumeration>(value)) == name) return static_cast<Enumeration>(value);
    }
    fail(fmt::format("unknown name \"{}\"", name));
  }
  Action action(const AnyJson& json, const char* key) const {
    const std::string words = text(json, key);
    const std::optional<Action> action = parse_action(words);
    if (!action) fail(fmt::format("\"{}\" is no action such as 2F0", words));
    return *action;
  }

  // Of a run all timelines have one unit and no name.
  Timeline without_spans(const AnyJson& json) const {
    Timeline timeline;
    timeline.title = keys_.in_ticks ? "measured" : text(json, "title");
    timeline.time_unit = keys_.in_ticks ? "s" : text(json, "time_unit");
    timeline.units_per_tick = timeline.time_unit == "s" ? 1e-12 : 1e-6;
    if (json.contains("slices_per_microbatch")) {
      constexpr std::size_t kSlices = std::numeric_limits<std::uint16_t>::max();
      timeline.slices_per_microbatch = static_cast<int>(index(json, "slices_per_microbatch", kSlices));
      if (timeline.slices_per_microbatch == 0) fail("\"slices_per_microbatch\" is 0");
    }
    return timeline;
  }

  Span read_span(const AnyJson& json) const {
    Span span;
    span.kind = named<SpanKind>(json, "kind", kSpanKindCount);
    span.stream = named<StreamKind>(json, "stream", kStreamKindCount);
    span.start = ticks(json, keys_.start);
    span.end = ticks(json, keys_.end);
    refuse_backwards(span.start, span.end, "a span ends before it starts");
    if (!names_an_action(span.kind)) return span;
    span.action = action(json, "action");
    if (!json.contains("overlaps_next")) return span;
    if (!json.at("overlaps_next").is_boolean()) fail("\"overlaps_next\" is neither true nor false");
    span.action.overlaps_next = json.at("overlaps_next").template get<bool>();
    return span;
  }

  Transfer read_transfer(const AnyJson& json, std::size_t ranks) const {
    constexpr std::size_t kStages = std::numeric_limits<std::uint16_t>::max();
    Transfer transfer;
    transfer.start = ticks(json, keys_.start);
    transfer.end = ticks(json, keys_.end);
    refuse_backwards(transfer.start, transfer.end, "ends before it starts");
    transfer.produced_by = action(json, keys_.produced_by);
    transfer.from_rank = static_cast<std::uint32_t>(index(json, keys_.from_rank, ranks));
    transfer.to_rank = static_cast<std::uint32_t>(index(json, keys_.to_rank, ranks));
    transfer.to_stage = static_cast<std::uint16_t>(index(json, "to_stage", kStages));
    return transfer;
  }

  const TimelineKeys& keys_;
  const std::string& file_;
  std::string field_;
  double units_per_tick_ = 0.0;
};

Json time_json(const Timeline& timeline, const TimelineKeys& keys, Ticks ticks) {
  return keys.in_ticks ? Json(ticks) : Json(units_of(timeline, ticks));
}

Json ranks_json(const Timeline& timeline, const TimelineKeys& keys) {
  Json ranks = Json::array();
  for (const std::vector<Span>& spans : timeline.ranks) {
    Json row = Json::array();
    for (const Span& span : spans) {
      Json entry = {{"kind", name_of(span.kind)},
                    {"stream", name_of(span.stream)},
                    {keys.start, time_json(timeline, keys, span.start)},
                    {keys.end, time_json(timeline, keys, span.end)}};
      if (names_an_action(span.kind)) {
        entry["action"] = to_string(span.action);
        if (span.action.overlaps_next) entry["overlaps_next"] = true;
      }
      row.push_back(std::move(entry));
    }
    ranks.push_back(std::move(row));
  }
  return ranks;
}

Json transfers_json(const Timeline& timeline, const TimelineKeys& keys) {
  Json transfers = Json::array();
  for (const Transfer& transfer : timeline.transfers) {
    transfers.push_back({{keys.from_rank, transfer.from_rank},
                         {keys.to_rank, transfer.to_rank},
                         {keys.produced_by, to_string(transfer.produced_by)},
                         {"to_stage", transfer.to_stage},
                         {keys.start, time_json(timeline, keys, transfer.start)},
                         {keys.end, time_json(timeline, keys, transfer.end)}});
  }
  return transfers;
}

}  // namespace

double units_of(const Timeline& timeline, Ticks ticks) {
  return static_cast<double>(ticks) / std::round(1.0 / timeline.units_per_tick);
}

Json timeline_json(const Timeline& timeline) {
  Json json = {{"title", timeline.title},
               {"time_unit", timeline.time_unit},
               {"makespan", units_of(timeline, timeline.makespan())},
               {"ranks", ranks_json(timeline, kOfReports)},
               {"transfers", transfers_json(timeline, kOfReports)}};
  if (timeline.slices_per_microbatch > 1) json["slices_per_microbatch"] = timeline.slices_per_microbatch;
  return json;
}

Json run_timeline_json(const Timeline& timeline) {
  return {{"ranks", ranks_json(timeline, kOfRuns)}, {"transfers", transfers_json(timeline, kOfRuns)}};
}

Timeline read_timeline(const Json& json, const std::string& file, const std::string& field) {
  return TimelineReader<Json>(kOfReports, file, field).read(json);
}

Timeline read_run_timeline(const nlohmann::json& json, const std::string& file, const std::string& field) {
  return TimelineReader<nlohmann::json>(kOfRuns, file, field).read(json);
}

bool is_timelines(const Json& json) {
  return json.is_object() && json.value("schema", Json()) == kTimelinesName;
}

std::string write_timelines(const std::vector<Timeline>& timelines) {
  Json json = {{"schema", kTimelinesName}, {"timelines", Json::array()}};
  for (const Timeline& timeline : timelines) json["timelines"].push_back(timeline_json(timeline));
  return dumped(json, 2);
}

SavedTimeline read_saved_timeline(const Json& json, const std::string& file, const std::string& field) {
  return {read_timeline(json, file, field), json.contains("transfers"), field};
}

std::vector<SavedTimeline> read_timelines(const Json& json, const std::string& file) {
  const Json timelines = json.value("timelines", Json::array());
  if (!timelines.is_array()) throw ConfigError({"timelines", "is no list", file, "give at least one timeline"});
  if (timelines.empty()) throw ConfigError({"timelines", "holds nothing", file, "give at least one timeline"});
  std::vector<SavedTimeline> read;
  for (std::size_t index = 0; index < timelines.size(); ++index) {
    read.push_back(read_saved_timeline(timelines[index], file, fmt::format("timelines[{}]", index)));
  }
  return read;
}

}  // namespace flopcast
