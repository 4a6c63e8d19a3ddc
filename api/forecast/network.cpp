#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "api/options/job_options.hpp"
#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
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

// Load of each link until the last flow ends.
Table links_table(const FlowCase& flows, const std::vector<double>& finish) {
  std::vector<double> bytes_on_link(flows.links.size(), 0.0);
  for (FlowId flow = 0; flow < finish.size(); ++flow) {
    for (const LinkUse& use : flows.program.uses_of(flow)) {
      bytes_on_link[use.link] += use.weight * flows.program.bytes(flow);
    }
  }
  const double end = finish.empty() ? 0.0 : *std::max_element(finish.begin(), finish.end());
  Table table;
  table.title = "links";
  table.columns = {text_column("link"), number_column("GB/s", "gb_per_s"), number_column("GB", "gb"),
                   number_column("used %", "used_percent")};
  for (LinkId link = 0; link < bytes_on_link.size(); ++link) {
    const double capacity = flows.program.capacity(link);
    table.rows.push_back({flows.links[link], rounded(capacity / kBytesPerGigabyte, 6),
                          rounded(bytes_on_link[link] / kBytesPerGigabyte, 6),
                          end > 0 ? percent(bytes_on_link[link] / (capacity * end)) : "-"});
  }
  return table;
}

class NetworkFlows final : public Question {
 public:
  void declare(Form& form) override {
    form.add_positional("CASE.json", file_, "links and flows; - for standard input");
    form.place_output();
  }

  Answer ask(const Context& context) override {
    if (!file_) throw ConfigError({"CASE.json", "is missing", "", "give a file with links and flows"});
    flows_ = read_flow_case(read_input(context.streams, *file_), *file_);
    finish_ = finish_times(flows_.program);
    // Limit in seconds: rejects flows that end later than times can represent, or whose inputs overflow.
    constexpr double kLatest = 1e18;
    for (FlowId flow = 0; flow < finish_.size(); ++flow) {
      if (finish_[flow] <= kLatest) continue;
      throw ConfigError({fmt::format("flows[{}]", flow), "takes more than 1e18 s", *file_,
                         "reduce its bytes, or increase a link's bandwidth"});
    }
    return {.tables =
                [this] {
                  return std::vector<Table>{flows_table(flows_, finish_), links_table(flows_, finish_)};
                },
            .rows = [this] { return flows_table(flows_, finish_); },
            .json = [this] { return write_finish_times(finish_); }};
  }

 private:
  std::optional<std::string> file_;
  FlowCase flows_;
  std::vector<double> finish_;
};

// JOB, or only a cluster: "8xdgx-h100".
bool is_job(JobOptions& job) {
  job.take_file_for("cluster", "", "",
                    [](const std::string& file) { return files_on_disk().kind_of(file) == Files::Kind::kNone; });
  const auto given = job.given();
  return job.file() || std::any_of(given.begin(), given.end(),
                                   [](const FlagValue* flag) { return flag->key->field.rfind("model", 0) == 0; });
}

Cluster cluster_alone(const JobOptions& job, std::vector<std::string>& assumptions) {
  LoadedJob loaded = job.load();
  nlohmann::json& root = loaded.root;
  const bool given =
      root.contains("cluster") && root.at("cluster").is_object() && root.at("cluster").contains("network");
  if (root.contains("cluster") && !given) {
    if (root.at("cluster").is_string()) root["cluster"] = {{"name", root.at("cluster")}};
    root["cluster"]["network"] = nlohmann::json::object();
    assumptions.emplace_back("cluster.network is a non-blocking tree");
  }
  ObjectReader reader(root, "", loaded.origins);
  return read_cluster(reader, nullptr, assumptions, loaded.origins);
}

class NetworkShow final : public Question {
 public:
  void declare(Form& form) override {
    job_.add_to(form);
    form.add_output("--svg", svg_, "draw the fabric and its links' loads");
    form.place_output();
  }

  Answer ask(const Context& /*context*/) override {
    if (is_job(job_)) forecast_ = forecast(job_.read(), read_file);
    if (forecast_) loads_ = forecast_->loads;
    cluster_ = forecast_ ? forecast_->step.job.cluster : cluster_alone(job_, assumptions_);
    if (!cluster_.shares_links()) {
      throw ConfigError({"cluster.network", "is none: groups do not share links", "",
                         choices_help("", catalogue_names(CatalogueKind::kNetworks))});
    }
    fabric_.emplace(cluster_);
    Answer answer{.tables = [this] { return tables(); },
                  .rows = [this] { return fabric_table(cluster_, *fabric_); },
                  .json = [this] { return write_links(*fabric_, loads_); }};
    const auto picture = [this](const FigureStyle&) {
      return write_fabric_svg(fabric_picture(cluster_, *fabric_, loads_));
    };
    if (svg_) answer.files.emplace_back(*svg_, picture);
    return answer;
  }

 private:
  std::vector<Table> tables() const {
    std::vector<Table> tables = {fabric_table(cluster_, *fabric_)};
    for (const std::string& note : assumptions_) tables.back().notes.push_back("assumed: " + note);
    if (forecast_ && !forecast_->links.empty()) tables.push_back(hot_links_table(forecast_->result));
    return tables;
  }

  JobOptions job_;
  std::optional<std::string> svg_;

  std::vector<std::string> assumptions_;
  std::vector<LinkLoad> loads_;
  std::optional<Forecast> forecast_;
  Cluster cluster_;
  std::optional<NetworkFabric> fabric_;
};

}  // namespace

QuestionInfo network_flows_question() {
  return {"network flows",
          "end times of flows that share links",
          "flopcast network flows CASE.json [options]",
          "Computes when flows that share links end. Rates are max-min fair at every moment: no flow could be faster "
          "without "
          "slowing down a flow of at most its rate. CASE.json has \"links\" [{\"name\", \"bandwidth\"}] in bytes per "
          "second and "
          "\"flows\" [{\"src\", \"dst\", \"bytes\", \"start\", \"links\", \"rate\", \"after\", \"weights\"}].",
          {"flopcast network flows incast.json", "flopcast network flows incast.json --format json"},
          make_question<NetworkFlows>};
}

QuestionInfo network_show_question() {
  return {"network show",
          "links between a cluster's nodes, and their loads",
          "flopcast network show CLUSTER|JOB [options]",
          "Shows the links between a cluster's nodes and, for a job, their utilization while its step waits.",
          {"flopcast network show 64xdgx-h100 --network meta-24k --svg fabric.svg",
           "flopcast network show job.json --oversubscription 4 --svg fabric.svg"},
          make_question<NetworkShow>};
}

}  // namespace flopcast
