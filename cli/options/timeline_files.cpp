#include "cli/options/timeline_files.hpp"

#include <fmt/format.h>

#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "reports/html/page.hpp"
#include "reports/result/result_tables.hpp"
#include "reports/timeline/chrome_trace.hpp"
#include "reports/timeline/timeline_svg.hpp"

namespace flopcast {

SvgOptions TimelineFiles::svg_options() const {
  SvgOptions options;
  static_cast<FigureStyle&>(options) = figure_.style();
  return options;
}

void TimelineFiles::add_to(CommandLine& command_line) {
  figure_.add_to(command_line, "write the timeline as a figure");
  command_line.add_output("--html", html_, "write a report to look at: one file, loads nothing");
  command_line.add_output("--trace", trace_, "write the timeline as a trace for ui.perfetto.dev");
}

void TimelineFiles::check(bool drawn) const {
  figure_.check(drawn);
}

void TimelineFiles::write(const Forecast& forecast, const std::string& command, const PageParts& parts) const {
  if (figure_.file()) figure_.write(write_svg(forecast.timeline, svg_options()));
  if (html_) {
    const Job& job = forecast.step.job;
    PageInfo info = {job.model.name + " on " + job.cluster.name, tool_text(), describe_job(job)};
    info.command = command;
    write_file(*html_, forecast_page(std::move(info), forecast, parts));
  }
  if (!trace_) return;
  TraceOptions options = trace_options_of(forecast);
  options.other_data = {{"tool", tool_text()}, {"command", command}, {"job", describe_job(forecast.step.job)}};
  write_file(*trace_, write_chrome_trace(forecast.timeline, options));
}

void TimelineFiles::write(const std::vector<Timeline>& timelines) const {
  if (trace_ && timelines.size() > 1) {
    throw ConfigError(
        {"--trace", fmt::format("a trace holds one timeline, not {}", timelines.size()), "", "give one schedule"});
  }
  if (figure_.file()) figure_.write(write_svg(timelines, svg_options()));
  if (html_) write_file(*html_, timelines_page({"Pipeline schedules", tool_text(), ""}, timelines));
  if (trace_) write_file(*trace_, write_chrome_trace(timelines.front(), {}));
}

void TimelineFiles::write(const RunComparison& run) const {
  const Timeline& forecast = run.forecast.drawn;
  const Timeline& measured = run.measured.drawn;
  if (figure_.file()) figure_.write(write_svg(std::vector<Timeline>{forecast, measured}, svg_options()));
  if (html_) {
    write_file(*html_, run_page({"", tool_text(), ""}, run));
  }
  if (!trace_) return;
  TraceOptions options;
  options.other_data = {{"tool", tool_text()}};
  if (!run.conditions.empty()) options.other_data.push_back({"conditions", run.conditions});
  write_file(*trace_, write_chrome_trace(measured, options));
}

}  // namespace flopcast
