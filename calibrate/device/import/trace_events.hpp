#pragma once

#include <functional>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>

namespace flopcast {

/// What a Chrome trace is made of, in the order of the file. `place` is "run.json:/traceEvents/17".
struct TraceVisitor {
  std::function<void(const nlohmann::json& event, const std::string& place)> event;
  /// A member of the file beside its events, such as "deviceProperties".
  std::function<void(const std::string& key, const nlohmann::json& value)> member;
};

/// Reads the JSON object format (events in "traceEvents") or the array format of Chrome traces, one event at a time: a
/// file of gigabytes takes the memory of its largest event. Throws ConfigError: what is no JSON, with its place; events
/// that are no objects or are nested deeper than 16; a file without events.
void read_trace_events(std::istream& stream, const std::string& file, const TraceVisitor& visitor);

}  // namespace flopcast
