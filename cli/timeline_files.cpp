#include "cli/timeline_files.hpp"

#include <fmt/format.h>

#include "cli/terminal.hpp"
#include "model/error/error.hpp"
#include "model/units/quantity.hpp"
#include "reports/timeline/chrome_trace.hpp"
#include "reports/timeline/svg.hpp"

namespace flopcast {

namespace {

TraceCounter memory_counter(const Forecast& forecast) {
  TraceCounter counter;
  counter.name = "memory GiB";
  counter.key = "memory";
  for (const RankMemory& rank : forecast.memory) {
    counter.ranks.emplace_back();
    for (const MemoryPoint& point : rank.points) {
      counter.ranks.back().push_back({point.time, gibibytes(Bytes(point.bytes))});
    }
  }
  return counter;
}

}  // namespace

void TimelineFiles::add_to(CommandLine& command_line) {
  command_line.add_option("--svg", svg_, "FILE", "write the timeline as a figure");
  command_line.add_option("--trace", trace_, "FILE", "write the timeline as a trace for ui.perfetto.dev");
}

void TimelineFiles::write(const Forecast& forecast) const {
  if (svg_) write_file(*svg_, write_svg(forecast.timeline, {}));
  if (!trace_) return;
  TraceOptions options;
  options.counters.push_back(memory_counter(forecast));
  options.other_data = {{"tool", "flopcast " FLOPCAST_VERSION}};
  write_file(*trace_, write_chrome_trace(forecast.timeline, options));
}

void TimelineFiles::write(const std::vector<Timeline>& timelines) const {
  if (trace_ && timelines.size() > 1) {
    throw ConfigError(
        {"--trace", fmt::format("a trace holds one timeline, not {}", timelines.size()), "", "give one schedule"});
  }
  if (svg_) write_file(*svg_, write_svg(timelines, {}));
  if (trace_) write_file(*trace_, write_chrome_trace(timelines.front(), {}));
}

void TimelineFiles::write_run(const Timeline& forecast, const Timeline& measured) const {
  if (svg_) write_file(*svg_, write_svg(std::vector<Timeline>{forecast, measured}, {}));
  if (!trace_) return;
  TraceOptions options;
  options.other_data = {{"tool", "flopcast " FLOPCAST_VERSION}};
  write_file(*trace_, write_chrome_trace(measured, options));
}

}  // namespace flopcast
