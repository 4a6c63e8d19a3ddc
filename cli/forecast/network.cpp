#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "base/text/numbers.hpp"
#include "cli/commands.hpp"
#include "cli/options/output.hpp"
#include "sim/files/flow_case.hpp"

namespace flopcast {

namespace {

constexpr double kBytesPerGigabyte = 1e9;

Table flows_table(const FlowCase& flows, const std::vector<double>& finish) {
  Table table;
  table.title = fmt::format("{}: {} flows on {} links, max-min fair", flows.name, finish.size(), flows.links.size());
  table.columns = {number_column("flow"), text_column("from -> to", "route"), number_column("GB", "gb"),
                   number_column("end s", "finish_s")};
  for (FlowId flow = 0; flow < finish.size(); ++flow) {
    table.rows.push_back({fmt::format("{}", flow), flows.flows[flow],
                          rounded(flows.program.bytes(flow) / kBytesPerGigabyte, 6), rounded(finish[flow], 9)});
  }
  return table;
}

// How much of each link is used until the last flow ends.
Table links_table(const FlowCase& flows, const std::vector<double>& finish) {
  std::vector<double> carried(flows.links.size(), 0.0);
  for (FlowId flow = 0; flow < finish.size(); ++flow) {
    for (const LinkUse& use : flows.program.uses_of(flow)) {
      carried[use.link] += use.weight * flows.program.bytes(flow);
    }
  }
  const double end = finish.empty() ? 0.0 : *std::max_element(finish.begin(), finish.end());
  Table table;
  table.title = "links";
  table.columns = {text_column("link"), number_column("GB/s", "gb_per_s"), number_column("GB", "gb"),
                   number_column("used %", "used_percent")};
  for (LinkId link = 0; link < carried.size(); ++link) {
    const double capacity = flows.program.capacity(link);
    table.rows.push_back({flows.links[link], rounded(capacity / kBytesPerGigabyte, 6),
                          rounded(carried[link] / kBytesPerGigabyte, 6),
                          end > 0 ? percent(carried[link] / (capacity * end)) : "-"});
  }
  return table;
}

int run_network_flows(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(
      streams, "network flows", "flopcast network flows CASE.json [options]",
      "When flows that share links end. Rates are max-min fair at every moment: no flow could be faster without "
      "slowing one that is no faster. CASE.json has \"links\" [{\"name\", \"bandwidth\"}] in bytes per second and "
      "\"flows\" [{\"src\", \"dst\", \"bytes\", \"start\", \"links\", \"rate\", \"after\", \"weights\"}].",
      {"flopcast network flows incast.json", "flopcast network flows incast.json --format json"});
  std::optional<std::string> file;
  OutputOptions output;
  command_line.add_positional("CASE.json", file, "links and flows; - reads standard input");
  output.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;
  if (!file) throw ConfigError({"CASE.json", "is missing", "", "a file of links and flows"});
  const Format format = output.format();
  const FlowCase flows = read_flow_case(read_input(streams, *file), *file);
  const std::vector<double> finish = finish_times(flows.program);
  output.write({.tables =
                    [&] {
                      return std::vector<Table>{flows_table(flows, finish), links_table(flows, finish)};
                    },
                .rows = [&] { return flows_table(flows, finish); },
                .json = [&] { return write_finish_times(finish); }},
               format);
  return 0;
}

}  // namespace

int run_network(const Arguments& arguments, const Streams& streams) {
  static const std::vector<CommandEntry> entries = {
      {"flows", "when flows that share links end", run_network_flows},
  };
  return dispatch("flopcast network", "Links that several transfers share.", entries, arguments, streams);
}

}  // namespace flopcast
