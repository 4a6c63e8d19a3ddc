#include <filesystem>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "cli/commands.hpp"
#include "cli/options/output.hpp"
#include "reports/html/page.hpp"

namespace flopcast {

int run_report(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(
      streams, "report", "flopcast report RESULT… [-o FILE]",
      "Makes one HTML file of results, to look at and to send: timeline, step, memory, bubble, "
      "assumptions. RESULT is what simulate, plan, compare, timeline or run wrote with --format json, or "
      "run with -o; of a run the forecast stands above the measurement.",
      {"flopcast simulate job.json --format json -o a.json; flopcast report a.json -o report.html",
       "flopcast report a.json b.json -o side-by-side.html"});
  std::vector<std::string> files;
  std::optional<std::string> output;
  command_line.add_positional("RESULT", files, "JSON files");
  command_line.begin_group("Output");
  command_line.add_output("-o,--output", output, "write there instead of to standard output", Dash::kIsStandardOutput);
  if (!command_line.parse(arguments)) return 0;
  if (files.empty()) {
    throw ConfigError(
        {"", "report: no result given", "", "give what `flopcast simulate … --format json -o FILE` wrote"});
  }
  if (output && output->empty()) throw ConfigError({"--output", "the file's name is empty", "", "give a file"});
  std::vector<ReportFile> named;
  for (const std::string& file : files) {
    named.push_back({file, files.size() == 1 ? "forecast" : std::filesystem::path(file).stem().string()});
  }
  std::vector<std::string> notes;
  const std::string page = report_page(named, tool_text(), read_file, notes);
  for (const std::string& note : notes) warn(streams, note);
  write_output(streams, output.value_or(""), page);
  return 0;
}

}  // namespace flopcast
