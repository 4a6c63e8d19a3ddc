#include "model/job/read_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <queue>
#include <vector>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/job/fields.hpp"

namespace flopcast {

namespace {

constexpr std::size_t kMostLayers = 65'535;

// A combined backward time is split in half between the two gradients if the layer has parameters.
void settle_backward(ObjectReader& reader, ProfiledLayer& layer) {
  constexpr const char* kForms = "give backward_s, or input_gradient_s and weight_gradient_s";
  const auto whole = reader.amount("backward_s");
  const bool has_input = reader.has("input_gradient_s");
  if (whole && (has_input || reader.has("weight_gradient_s"))) {
    reader.fail("backward_s", "is given together with one of its parts", kForms);
  }
  if (!whole && !has_input) reader.fail_missing("backward_s", kForms);
  if (has_input) return;
  layer.weight_gradient = Seconds(layer.parameters > 0 ? 0.5 * *whole : 0.0);
  layer.input_gradient = Seconds(*whole) - layer.weight_gradient;
}

ProfiledLayer read_layer(const nlohmann::json& value, const std::string& field, Precision precision,
                         const Origins& origins) {
  ObjectReader reader(value, field, origins);
  ProfiledLayer layer;
  read_fields(profiled_layer_fields(), reader, layer);
  layer.parameters = reader.amount("parameter_bytes").value_or(0.0) / element_size(precision).value();
  settle_backward(reader, layer);
  reader.refuse_unknown_keys();
  return layer;
}

}  // namespace

bool lists_measured_layers(const nlohmann::json& model) {
  const auto layers = model.is_object() ? model.find("layers") : model.end();
  return layers != model.end() && layers->is_array();
}

LayerProfile read_profile(const nlohmann::json& model, Job& job, const Origins& origins) {
  ObjectReader reader(model, "model", origins);
  LayerProfile profile;
  job.model.name = reader.text("name").value_or("inline");
  read_fields(layer_profile_fields(), reader, profile);
  if (!reader.has("precision")) job.assumptions.push_back("model.precision of the profile is fp32");
  const nlohmann::json& layers = *reader.find("layers");
  reader.refuse_unknown_keys();
  if (layers.empty() || layers.size() > kMostLayers) {
    reader.fail("layers", fmt::format("lists {} layers", layers.size()), fmt::format("expected 1 to {}", kMostLayers));
  }
  for (std::size_t index = 0; index < layers.size(); ++index) {
    profile.layers.push_back(
        read_layer(layers[index], fmt::format("model.layers.{}", index), profile.precision, origins));
  }
  job.model.layers = static_cast<int>(profile.layers.size());
  job.assumptions.push_back(fmt::format("compute times are the profile's{}{}, regardless of the cluster's device",
                                        profile.measured_on.empty() ? "" : ", measured on ", profile.measured_on));
  job.assumptions.push_back(
      profile.micro_batch_size
          ? fmt::format("times and bytes scale with the microbatch, from the {} samples measured",
                        *profile.micro_batch_size)
          : "the profile has no micro_batch_size: its measurements count as one microbatch of this layout");
  job.assumptions.push_back("a profile has no FLOP count: TFLOP/s, MFU and HFU are shown as 0");
  return profile;
}

void check_profile_training(const ObjectReader& training_reader, int sequence_length, const LayerProfile& profile,
                            Job& job) {
  if (sequence_length != profile.sequence_length) {
    training_reader.fail("sequence_length",
                         fmt::format("{} differs from the profile's {}", sequence_length, profile.sequence_length),
                         "leave it out: measured times cannot be scaled to another length");
  }
  if (sequence_length == 1) job.assumptions.push_back("a sample of the profile counts as one token");
}

Precision profile_precision(const ObjectReader& training_reader, std::optional<Precision> given,
                            const LayerProfile& profile) {
  if (given && *given != profile.precision) {
    training_reader.fail(
        "precision",
        fmt::format("the profile was measured in {}, not in {}", name_of(profile.precision), name_of(*given)),
        "leave it out: measured times do not change with the precision");
  }
  return profile.precision;
}

namespace {

constexpr std::string_view kSeparator = " -- ";
constexpr double kSecondsPerMillisecond = 1e-3;

class GraphReader {
 public:
  GraphReader(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  LayerGraph read();

 private:
  [[noreturn]] void fail(const std::string& problem, const std::string& help) const {
    throw ConfigError({"model", problem, fmt::format("{}:{}", file_, line_), help});
  }
  void read_node(std::string_view line);
  void read_edge(std::string_view line);
  std::size_t known(std::string_view name) const;
  double metric(std::string_view metrics, std::string_view key) const;
  double number(std::string_view text, std::string_view key) const;

  std::string_view text_;
  std::string file_;
  std::size_t line_ = 0;
  LayerGraph graph_;
  std::map<std::string, std::size_t> by_name_;
};

LayerGraph GraphReader::read() {
  std::vector<std::pair<std::size_t, std::string_view>> edges;
  std::size_t begin = 0;
  while (begin < text_.size()) {
    const std::size_t end = std::min(text_.find('\n', begin), text_.size());
    std::string_view line = text_.substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    begin = end + 1;
    ++line_;
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    if (line.front() == '\t' || line.front() == ' ') {
      edges.emplace_back(line_, line.substr(line.find_first_not_of(" \t")));
    } else {
      read_node(line);
    }
  }
  if (graph_.layers.empty())
    fail("has no layers", "expected lines such as node1 -- Conv2d(…) -- forward_compute_time=…");
  for (const auto& [line, edge] : edges) {
    line_ = line;
    read_edge(edge);
  }
  return std::move(graph_);
}

void GraphReader::read_node(std::string_view line) {
  const std::size_t first = line.find(kSeparator);
  const std::size_t second = first == std::string_view::npos ? first : line.find(kSeparator, first + 1);
  if (second == std::string_view::npos) {
    fail("this line is neither a layer nor an edge",
         "expected node1 -- Conv2d(…) -- forward_compute_time=…, or an indented node1 -- node2");
  }
  const std::string name(line.substr(0, first));
  std::string_view metrics = line.substr(second + kSeparator.size());
  metrics = metrics.substr(0, metrics.find(kSeparator));  // a stage number may follow
  GraphLayer node;
  node.description = std::string(line.substr(first + kSeparator.size(), second - first - kSeparator.size()));
  node.is_input = node.description.rfind("Input", 0) == 0;
  node.name = name;
  node.forward = Seconds(metric(metrics, "forward_compute_time") * kSecondsPerMillisecond);
  node.backward = Seconds(metric(metrics, "backward_compute_time") * kSecondsPerMillisecond);
  node.activation = Bytes(metric(metrics, "activation_size"));
  node.parameters = Bytes(metric(metrics, "parameter_size"));
  node.line = line_;
  if (!by_name_.emplace(name, graph_.layers.size()).second) fail(fmt::format("layer \"{}\" appears twice", name), "");
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  node.number =
      digits < name.size() ? std::strtol(name.c_str() + digits, nullptr, 10) : static_cast<long>(graph_.layers.size());
  graph_.layers.push_back(std::move(node));
}

// Reads "key=1.5", or the sum of a list "key=[1.5; 2]".
double GraphReader::metric(std::string_view metrics, std::string_view key) const {
  const std::size_t at = metrics.find(fmt::format("{}=", key));
  if (at == std::string_view::npos) fail(fmt::format("{} is missing", key), "");
  std::string_view value = metrics.substr(at + key.size() + 1);
  if (value.empty() || value.front() != '[') return number(value.substr(0, value.find(',')), key);
  value = value.substr(1, value.find(']') - 1);
  double sum = 0.0;
  while (true) {
    const std::size_t semicolon = std::min(value.find(';'), value.size());
    sum += number(value.substr(0, semicolon), key);
    if (semicolon == value.size()) return sum;
    value.remove_prefix(semicolon + 1);
  }
}

double GraphReader::number(std::string_view text, std::string_view key) const {
  constexpr double kLargest = 1e18;
  const std::optional<double> value = parse_number(text);
  const bool valid = value && *value >= 0 && *value < kLargest;
  if (!valid) fail(fmt::format("{} \"{}\" is not a number of at least 0", key, text), "");
  return *value;
}

std::size_t GraphReader::known(std::string_view name) const {
  const auto node = by_name_.find(std::string(name));
  if (node == by_name_.end()) fail(fmt::format("an edge refers to \"{}\", which is not a layer", name), "");
  return node->second;
}

void GraphReader::read_edge(std::string_view line) {
  const std::size_t separator = line.find(kSeparator);
  if (separator == std::string_view::npos) fail("an edge lacks its second node", "expected an indented node1 -- node2");
  const std::size_t from = known(line.substr(0, separator));
  const std::size_t to = known(line.substr(separator + kSeparator.size()));
  graph_.layers[from].successors.push_back(to);
  ++graph_.layers[to].predecessors;
}

std::vector<std::size_t> in_a_row(const LayerGraph& graph, std::string_view file) {
  using Entry = std::pair<long, std::size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> ready;
  std::vector<std::size_t> waits_for;
  for (std::size_t index = 0; index < graph.layers.size(); ++index) {
    waits_for.push_back(graph.layers[index].predecessors);
    if (waits_for.back() == 0) ready.emplace(graph.layers[index].number, index);
  }
  std::vector<std::size_t> order;
  while (!ready.empty()) {
    const std::size_t index = ready.top().second;
    ready.pop();
    order.push_back(index);
    for (const std::size_t next : graph.layers[index].successors) {
      if (--waits_for[next] == 0) ready.emplace(graph.layers[next].number, next);
    }
  }
  if (order.size() == graph.layers.size()) return order;
  for (std::size_t index = 0; index < graph.layers.size(); ++index) {
    if (waits_for[index] == 0) continue;
    throw ConfigError({"model", fmt::format("layer {} depends on itself", graph.layers[index].description),
                       fmt::format("{}:{}", file, graph.layers[index].line), "remove the cycle from the edges"});
  }
  return order;
}

// Bytes that cross a stage boundary after each position of the row: outputs produced before it and needed after it.
std::vector<double> cut_bytes(const LayerGraph& graph) {
  const std::vector<std::size_t>& row = graph.row;
  std::vector<std::size_t> position(graph.layers.size());
  for (std::size_t at = 0; at < row.size(); ++at) position[row[at]] = at;
  std::vector<double> change(row.size() + 1, 0.0);
  for (std::size_t at = 0; at < row.size(); ++at) {
    const GraphLayer& node = graph.layers[row[at]];
    std::size_t last_use = at;
    for (const std::size_t next : node.successors) last_use = std::max(last_use, position[next]);
    if (node.is_input || last_use == at) continue;
    change[at] += node.activation.value();
    change[last_use] -= node.activation.value();
  }
  double crossing = 0.0;
  std::vector<double> cuts;
  for (std::size_t at = 0; at < row.size(); ++at) cuts.push_back(crossing += change[at]);
  return cuts;
}

}  // namespace

LayerGraph read_layer_graph(std::string_view text, std::string_view file) {
  LayerGraph graph = GraphReader(text, file).read();
  graph.row = in_a_row(graph, file);
  return graph;
}

nlohmann::json profile_from_graph(std::string_view text, std::string_view file) {
  const LayerGraph graph = read_layer_graph(text, file);
  const std::vector<std::size_t>& row = graph.row;
  const std::vector<double> cuts = cut_bytes(graph);
  nlohmann::json layers = nlohmann::json::array();
  for (std::size_t at = 0; at < row.size(); ++at) {
    const GraphLayer& node = graph.layers[row[at]];
    if (node.is_input) continue;
    layers.push_back({{"name", node.description},
                      {"forward_s", node.forward.value()},
                      {"backward_s", node.backward.value()},
                      {"activation_bytes", node.activation.value()},
                      {"output_bytes", std::max(0.0, cuts[at])},
                      {"parameter_bytes", node.parameters.value()}});
  }
  const std::size_t slash = file.find_last_of("/\\");
  const std::string_view base = slash == std::string_view::npos ? file : file.substr(slash + 1);
  return {{"name", std::string(base.substr(0, base.find('.')))}, {"precision", "fp32"}, {"layers", std::move(layers)}};
}

}  // namespace flopcast
