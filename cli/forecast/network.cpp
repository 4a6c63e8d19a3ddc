#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "cli/commands.hpp"
#include "cli/options/job_options.hpp"
#include "cli/options/output.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/hardware/network_fabric.hpp"
#include "model/job/read_job.hpp"
#include "reports/result/result_tables.hpp"
#include "sim/files/flow_case.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/forecast.hpp"

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
  // Seconds: what ends later than clocks can tell, or began with more than numbers hold.
  constexpr double kLatest = 1e18;
  for (FlowId flow = 0; flow < finish.size(); ++flow) {
    if (finish[flow] <= kLatest) continue;
    throw ConfigError(
        {fmt::format("flows[{}]", flow), "ends after more than 1e18 s", *file, "fewer bytes, or a wider link"});
  }
  output.write({.tables =
                    [&] {
                      return std::vector<Table>{flows_table(flows, finish), links_table(flows, finish)};
                    },
                .rows = [&] { return flows_table(flows, finish); },
                .json = [&] { return write_finish_times(finish); }},
               format);
  return 0;
}

// JOB, or a cluster alone: "8xdgx-h100".
bool is_job(JobOptions& job) {
  if (job.file() && files_on_disk().kind_of(*job.file()) == Files::Kind::kNone) job.take_file_for("cluster");
  const auto given = job.given();
  return job.file() || std::any_of(given.begin(), given.end(),
                                   [](const FlagValue* flag) { return flag->key->field.rfind("model", 0) == 0; });
}

Cluster cluster_alone(const JobOptions& job, std::vector<std::string>& assumptions) {
  LoadedJob loaded = job.load();
  nlohmann::json& root = loaded.root;
  const bool told =
      root.contains("cluster") && root.at("cluster").is_object() && root.at("cluster").contains("network");
  if (root.contains("cluster") && !told) {
    if (root.at("cluster").is_string()) root["cluster"] = {{"name", root.at("cluster")}};
    root["cluster"]["network"] = nlohmann::json::object();
    assumptions.emplace_back("cluster.network is a tree that is never short of cables");
  }
  ObjectReader reader(root, "", loaded.origins);
  return read_cluster(reader, nullptr, assumptions, loaded.origins);
}

int run_network_show(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(
      streams, "network show", "flopcast network show CLUSTER|JOB [options]",
      "The links between a cluster's nodes, and, of a job, how full they are while its step waits.",
      {"flopcast network show 64xdgx-h100 --network meta-24k --svg fabric.svg",
       "flopcast network show job.json --oversubscription 4 --svg fabric.svg"});
  JobOptions job;
  OutputOptions output;
  std::optional<std::string> svg;
  job.add_to(command_line);
  command_line.add_output("--svg", svg, "draw the fabric and its links' loads");
  output.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;
  const Format format = output.format();
  std::vector<std::string> assumptions;
  std::vector<LinkLoad> loads;
  std::optional<Forecast> answer;
  if (is_job(job)) answer = forecast(job.read(), read_file);
  if (answer) loads = answer->loads;
  const Cluster cluster = answer ? answer->step.job.cluster : cluster_alone(job, assumptions);
  if (!cluster.shares_links()) {
    throw ConfigError({"cluster.network", "is none: every group has its links to itself", "",
                       choices_help("", catalogue_names(CatalogueKind::kNetworks))});
  }
  const NetworkFabric fabric(cluster);
  if (svg) write_file(*svg, write_fabric_svg(fabric_picture(cluster, fabric, loads)));
  output.write({.tables =
                    [&] {
                      std::vector<Table> tables = {fabric_table(cluster, fabric)};
                      for (const std::string& note : assumptions) tables.back().notes.push_back("assumed: " + note);
                      if (answer && !answer->links.empty()) tables.push_back(hot_links_table(answer->result));
                      return tables;
                    },
                .rows = [&] { return fabric_table(cluster, fabric); },
                .json = [&] { return write_links(fabric, loads); }},
               format);
  return 0;
}

}  // namespace

int run_network(const Arguments& arguments, const Streams& streams) {
  static const std::vector<CommandEntry> entries = {
      {"flows", "when flows that share links end", run_network_flows},
      {"show", "the links between a cluster's nodes, and their loads", run_network_show},
  };
  return dispatch("flopcast network", "Links that several transfers share.", entries, arguments, streams);
}

}  // namespace flopcast
