#include "reports/timeline/timeline_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "model/error/error.hpp"
#include "reports/timeline/span_text.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

bool names_action(SpanKind kind) {
  return is_action(kind) || kind == SpanKind::kSend;
}

// Where a complaint about a timeline's JSON points.
struct Place {
  const std::string& file;
  std::string field;

  [[noreturn]] void fail(const std::string& problem) const {
    throw ConfigError({field, problem, file, "expected what `flopcast timeline --format json` writes"});
  }
  const Json& member(const Json& json, const char* key) const {
    if (!json.is_object() || !json.contains(key)) fail(fmt::format("\"{}\" is missing", key));
    return json.at(key);
  }
  std::string text(const Json& json, const char* key) const {
    const Json& value = member(json, key);
    if (!value.is_string()) fail(fmt::format("\"{}\" is no text", key));
    return value.get<std::string>();
  }
  double number(const Json& json, const char* key) const {
    const Json& value = member(json, key);
    if (!value.is_number()) fail(fmt::format("\"{}\" is no number", key));
    return value.get<double>();
  }
  std::size_t index(const Json& json, const char* key, std::size_t count) const {
    const Json& value = member(json, key);
    if (!value.is_number_unsigned() || value.get<std::size_t>() >= count) {
      fail(fmt::format("\"{}\" is no whole number below {}", key, count));
    }
    return value.get<std::size_t>();
  }
  bool flag(const Json& json, const char* key) const {
    const Json& value = member(json, key);
    if (!value.is_boolean()) fail(fmt::format("\"{}\" is neither true nor false", key));
    return value.get<bool>();
  }
};

// Values of an enumeration by their names.
template <class Enumeration>
Enumeration named(const std::string& name, std::size_t count, const Place& place) {
  for (std::size_t value = 0; value < count; ++value) {
    if (name_of(static_cast<Enumeration>(value)) == name) return static_cast<Enumeration>(value);
  }
  place.fail(fmt::format("unknown name \"{}\"", name));
}

Ticks ticks_of(const Json& json, const char* key, double units_per_tick, const Place& place) {
  const double ticks = std::round(place.number(json, key) / units_per_tick);
  if (!(ticks >= 0.0 && ticks < 9e18)) place.fail(fmt::format("\"{}\" is out of range", key));
  return static_cast<Ticks>(ticks);
}

Action read_action(const Json& json, const Place& place) {
  const std::string text = place.text(json, "action");
  const std::optional<Action> action = parse_action(text);
  if (!action) place.fail(fmt::format("\"{}\" is no action such as 2F0", text));
  return *action;
}

Span read_span(const Json& json, double units_per_tick, const Place& place) {
  constexpr std::size_t kStreams = 3;
  Span span;
  span.kind = named<SpanKind>(place.text(json, "kind"), kSpanKindCount, place);
  span.stream = named<StreamKind>(place.text(json, "stream"), kStreams, place);
  span.start = ticks_of(json, "start", units_per_tick, place);
  span.end = ticks_of(json, "end", units_per_tick, place);
  if (span.end < span.start) place.fail("a span ends before it starts");
  if (!names_action(span.kind)) return span;
  span.action = read_action(json, place);
  span.action.overlaps_next = json.contains("overlaps_next") && place.flag(json, "overlaps_next");
  return span;
}

Transfer read_transfer(const Json& json, const Timeline& timeline, const Place& place) {
  constexpr std::size_t kStages = std::numeric_limits<std::uint16_t>::max();
  const std::size_t ranks = timeline.ranks.size();
  Transfer transfer;
  transfer.start = ticks_of(json, "start", timeline.units_per_tick, place);
  transfer.end = ticks_of(json, "end", timeline.units_per_tick, place);
  if (transfer.end < transfer.start) place.fail("ends before it starts");
  transfer.produced_by = read_action(json, place);
  transfer.from_rank = static_cast<std::uint32_t>(place.index(json, "from", ranks));
  transfer.to_rank = static_cast<std::uint32_t>(place.index(json, "to", ranks));
  transfer.to_stage = static_cast<std::uint16_t>(place.index(json, "to_stage", kStages));
  return transfer;
}

Json transfers_json(const Timeline& timeline) {
  Json transfers = Json::array();
  for (const Transfer& transfer : timeline.transfers) {
    transfers.push_back({{"from", transfer.from_rank},
                         {"to", transfer.to_rank},
                         {"action", to_string(transfer.produced_by)},
                         {"to_stage", transfer.to_stage},
                         {"start", units_of(timeline, transfer.start)},
                         {"end", units_of(timeline, transfer.end)}});
  }
  return transfers;
}

}  // namespace

double units_of(const Timeline& timeline, Ticks ticks) {
  return static_cast<double>(ticks) / std::round(1.0 / timeline.units_per_tick);
}

Json timeline_json(const Timeline& timeline) {
  const auto time = [&timeline](Ticks ticks) { return units_of(timeline, ticks); };
  Json ranks = Json::array();
  for (const std::vector<Span>& spans : timeline.ranks) {
    Json row = Json::array();
    for (const Span& span : spans) {
      Json entry = {{"kind", name_of(span.kind)},
                    {"stream", name_of(span.stream)},
                    {"start", time(span.start)},
                    {"end", time(span.end)}};
      if (names_action(span.kind)) {
        entry["action"] = to_string(span.action);
        if (span.action.overlaps_next) entry["overlaps_next"] = true;
      }
      row.push_back(std::move(entry));
    }
    ranks.push_back(std::move(row));
  }
  Json json = {{"title", timeline.title},
               {"time_unit", timeline.time_unit},
               {"makespan", time(timeline.makespan())},
               {"ranks", std::move(ranks)},
               {"transfers", transfers_json(timeline)}};
  if (timeline.slices_per_microbatch > 1) json["slices_per_microbatch"] = timeline.slices_per_microbatch;
  return json;
}

bool tells_transfers(const Json& json) {
  return json.is_object() && json.contains("transfers");
}

Timeline read_timeline(const Json& json, const std::string& file, const std::string& field) {
  Place place{file, field};
  Timeline timeline;
  timeline.title = place.text(json, "title");
  timeline.time_unit = place.text(json, "time_unit");
  timeline.units_per_tick = timeline.time_unit == "s" ? 1e-12 : 1e-6;
  if (json.contains("slices_per_microbatch")) {
    constexpr std::size_t kSlices = std::numeric_limits<std::uint16_t>::max();
    timeline.slices_per_microbatch = static_cast<int>(place.index(json, "slices_per_microbatch", kSlices));
    if (timeline.slices_per_microbatch == 0) place.fail("\"slices_per_microbatch\" is 0");
  }
  const Json& ranks = place.member(json, "ranks");
  if (!ranks.is_array() || ranks.empty()) place.fail("\"ranks\" holds no ranks");
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    place.field = fmt::format("{}.ranks[{}]", field, rank);
    std::vector<Span> spans;
    if (!ranks[rank].is_array()) place.fail("is no list of spans");
    for (const Json& span : ranks[rank]) spans.push_back(read_span(span, timeline.units_per_tick, place));
    std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start < b.start; });
    timeline.ranks.push_back(std::move(spans));
  }
  if (!tells_transfers(json)) return timeline;
  const Json& transfers = json.at("transfers");
  place.field = fmt::format("{}.transfers", field);
  if (!transfers.is_array()) place.fail("is no list of transfers");
  for (std::size_t index = 0; index < transfers.size(); ++index) {
    place.field = fmt::format("{}.transfers[{}]", field, index);
    timeline.transfers.push_back(read_transfer(transfers[index], timeline, place));
  }
  std::stable_sort(timeline.transfers.begin(), timeline.transfers.end(),
                   [](const Transfer& a, const Transfer& b) { return a.start < b.start; });
  return timeline;
}

}  // namespace flopcast
