#include "sim/files/flow_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "model/config/object_reader.hpp"

namespace flopcast {

namespace {

// An element of a list, which is an object.
const nlohmann::json& list_of(JsonReader& reader, std::string_view key, const char* help) {
  const nlohmann::json* const list = reader.find(key);
  if (list == nullptr) reader.fail_missing(key, help);
  if (!list->is_array()) reader.fail(key, "is no list", help);
  return *list;
}

double positive(JsonReader& reader, std::string_view key, const char* unit) {
  const std::optional<double> value = reader.amount(key);
  if (!value) reader.fail_missing(key, fmt::format("{}, above 0", unit));
  if (!(*value > 0)) reader.fail(key, "is 0", fmt::format("{}, above 0", unit));
  return *value;
}

std::vector<double> weights_of(JsonReader& flow, std::size_t links) {
  const nlohmann::json* const list = flow.find("weights");
  if (list == nullptr) return std::vector<double>(links, 1.0);
  const char* const help = "a number above 0 for each of the flow's links";
  if (!list->is_array()) flow.fail("weights", "is no list", help);
  if (list->size() != links) {
    flow.fail("weights", fmt::format("{} weights for {} links", list->size(), links), help);
  }
  std::vector<double> weights;
  for (const nlohmann::json& weight : *list) {
    if (!weight.is_number() || !(weight.get<double>() > 0) || weight.get<double>() > 1e15) {
      flow.fail("weights", fmt::format("{} is no weight", shown_value(weight)), help);
    }
    weights.push_back(weight.get<double>());
  }
  return weights;
}

std::string name_of_flow(JsonReader& flow) {
  const auto end = [&flow](const char* key) -> std::string {
    const nlohmann::json* const value = flow.find(key);
    if (value == nullptr) return "";
    if (!value->is_number_integer() && !value->is_string()) {
      flow.fail(key, fmt::format("{} is no host", shown_value(*value)), "a number or a name");
    }
    return value->is_string() ? value->get<std::string>() : value->dump();
  };
  const std::string from = end("src");
  const std::string to = end("dst");
  const std::string kind = flow.text("kind").value_or("");
  if (from.empty() && to.empty()) return kind;
  return fmt::format("{}{}{} -> {}", kind, kind.empty() ? "" : " ", from, to);
}

void read_flow(JsonReader& flow, std::size_t flows, FlowCase& result) {
  const std::size_t links = result.links.size();
  const std::optional<double> bytes = flow.amount("bytes");
  if (!bytes) flow.fail_missing("bytes", "how much it moves, 0 or more");
  const double start = flow.amount("start").value_or(0.0);
  const double cap = flow.has("rate") ? positive(flow, "rate", "bytes per second") : FlowProgram::kNoCap;
  const int last_link = static_cast<int>(links) - 1;
  if (links == 0 && flow.has("links") && !flow.find("links")->empty()) {
    flow.fail("links", "the case has no links", "places in the list of links");
  }
  const std::vector<int> route =
      links == 0 ? std::vector<int>() : flow.whole_list("links", 0, last_link).value_or(std::vector<int>());
  if (route.empty() && cap == FlowProgram::kNoCap) {
    flow.fail("links", "a flow without links has no rate", "give \"links\", or \"rate\" in bytes per second");
  }
  const std::vector<double> weights = weights_of(flow, route.size());
  const std::vector<int> after = flow.whole_list("after", 0, static_cast<int>(flows) - 1).value_or(std::vector<int>());
  result.flows.push_back(name_of_flow(flow));
  result.program.add_flow(*bytes, start, cap);
  for (std::size_t index = 0; index < route.size(); ++index) {
    result.program.add_use(static_cast<LinkId>(route[index]), weights[index]);
  }
  for (const int before : after) result.program.add_predecessor(static_cast<FlowId>(before));
  flow.find("ranks");
  flow.refuse_unknown_keys();
}

void refuse_circles(const FlowCase& result, const Origins& origins) {
  const std::vector<FlowId> order = in_order(result.program);
  if (order.size() == result.program.flows()) return;
  std::vector<bool> comes(result.program.flows(), false);
  for (const FlowId flow : order) comes[flow] = true;
  const auto stuck = std::find(comes.begin(), comes.end(), false) - comes.begin();
  const std::string field = fmt::format("flows[{}].after", stuck);
  throw ConfigError({field, "waits for itself, or for flows that wait for each other", origins.where(field),
                     "\"after\" lists flows that end without this one"});
}

}  // namespace

FlowCase read_flow_case(std::string_view text, const std::string& file) {
  Origins origins;
  origins.file = file;
  const nlohmann::json json = parse_json(text, file);
  JsonReader root(json, "", origins);
  FlowCase result;
  result.name = root.text("name").value_or(file);
  for (const char* told : {"pattern", "topology", "finish", "finish_exact", "about", "schema"}) root.find(told);
  const nlohmann::json& links = list_of(root, "links", "a list of {\"name\", \"bandwidth\"}");
  for (std::size_t index = 0; index < links.size(); ++index) {
    JsonReader link(links[index], fmt::format("links[{}]", index), origins);
    result.links.push_back(link.text("name").value_or(fmt::format("link {}", index)));
    result.program.add_link(positive(link, "bandwidth", "bytes per second"));
    link.refuse_unknown_keys();
  }
  const nlohmann::json& flows = list_of(root, "flows", "a list of {\"bytes\", \"start\", \"links\"}");
  if (flows.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    root.fail("flows", fmt::format("{} flows", flows.size()), "at most 2147483647");
  }
  for (std::size_t index = 0; index < flows.size(); ++index) {
    JsonReader flow(flows[index], fmt::format("flows[{}]", index), origins);
    read_flow(flow, flows.size(), result);
  }
  root.refuse_unknown_keys();
  refuse_circles(result, origins);
  return result;
}

std::string write_finish_times(const std::vector<double>& finish) {
  return nlohmann::json({{"finish", finish}}).dump(2);
}

}  // namespace flopcast
