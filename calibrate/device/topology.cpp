#include "calibrate/device/imports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

[[noreturn]] void refuse_topology(const std::string& where, const std::string& problem) {
  throw ConfigError({"", problem, where, "expected the output of `nvidia-smi topo -m`"});
}

// Removes the escapes that underline the header; pasting into a document drops their first character.
std::string plain(std::string line) {
  for (const std::string& escape :
       {std::string("\033[4m"), std::string("\033[0m"), std::string("[4m"), std::string("[0m")}) {
    for (std::size_t place = line.find(escape); place != std::string::npos; place = line.find(escape)) {
      line.erase(place, escape.size());
    }
  }
  return line;
}

std::vector<std::string> topology_cells(const std::string& line) {
  std::istringstream words(plain(line));
  std::vector<std::string> tokens;
  for (std::string word; words >> word;) tokens.push_back(word);
  return tokens;
}

bool is_numbered(const std::string& word, const std::string& stem) {
  return word.size() > stem.size() && word.compare(0, stem.size(), stem) == 0 &&
         std::all_of(word.begin() + static_cast<std::ptrdiff_t>(stem.size()), word.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

bool is_device(const std::string& word) {
  return is_numbered(word, "GPU");
}

// Column titles from GPU0 up to the affinity columns.
std::vector<std::string> header_of(const std::vector<std::string>& tokens) {
  const auto first = std::find(tokens.begin(), tokens.end(), "GPU0");
  const auto affinity = std::find(first, tokens.end(), "CPU");
  const auto cell = [](const std::string& word) { return word == "X" || is_numbered(word, "NV"); };
  if (first == tokens.end() || std::any_of(first, tokens.end(), cell)) return {};
  // A row of the legend or a single name is not a header.
  if (affinity == tokens.end() && first + 1 == tokens.end()) return {};
  return {first, affinity};
}

bool is_connection(const std::string& cell) {
  static const std::array<std::string, 7> kinds = {"X", "SYS", "NODE", "PHB", "PXB", "PIX", "N/A"};
  return is_numbered(cell, "NV") || std::find(kinds.begin(), kinds.end(), cell) != kinds.end();
}

int links_of(const std::string& cell, const std::string& where) {
  if (!is_numbered(cell, "NV")) return 0;
  constexpr std::size_t kMostDigits = 4;
  if (cell.size() > 2 + kMostDigits) refuse_topology(where, fmt::format("\"{}\" is not a number of links", cell));
  return std::stoi(cell.substr(2));
}

class ConnectionMatrix {
 public:
  explicit ConnectionMatrix(std::vector<std::string> columns, std::string where)
      : columns_(std::move(columns)), where_(std::move(where)) {}

  // A row starts with the name of a column.
  void read(const std::vector<std::string>& tokens, const std::string& where) {
    const auto name = std::find_if(tokens.begin(), tokens.end(), [this](const std::string& word) {
      return std::find(columns_.begin(), columns_.end(), word) != columns_.end();
    });
    if (name == tokens.end() || name + 1 == tokens.end() || !is_connection(*(name + 1))) return;
    const auto cells = static_cast<std::size_t>(tokens.end() - name - 1);
    if (cells < columns_.size()) {
      refuse_topology(where,
                      fmt::format("the row of {} has {} cells, but the header has {}", *name, cells, columns_.size()));
    }
    const std::vector<std::string> row(name + 1, name + 1 + static_cast<std::ptrdiff_t>(columns_.size()));
    for (const std::string& cell : row) {
      if (!is_connection(cell)) refuse_topology(where, fmt::format("\"{}\" is not a connection", cell));
    }
    if (!rows_.emplace(*name, row).second) refuse_topology(where, fmt::format("the row of {} occurs twice", *name));
    places_[*name] = where;
  }

  NodeTopology finished() const {
    NodeTopology topology;
    std::vector<std::string> devices;
    std::copy_if(columns_.begin(), columns_.end(), std::back_inserter(devices), is_device);
    for (const std::string& device : devices) {
      const std::vector<std::string>& row = row_of(device);
      std::vector<int> links;
      for (const std::string& other : devices) {
        const std::string& cell = row[column_of(other)];
        if ((cell == "X") != (device == other)) {
          refuse_topology(places_.at(device), fmt::format("{} and {} are connected by \"{}\"", device, other, cell));
        }
        if (cell != row_of(other)[column_of(device)]) {
          refuse_topology(places_.at(device), fmt::format("{} to {} is {}, but {} in the other direction", device,
                                                          other, cell, row_of(other)[column_of(device)]));
        }
        links.push_back(links_of(cell, places_.at(device)));
      }
      topology.links.push_back(std::move(links));
    }
    for (const std::string& column : columns_) {
      if (is_device(column)) continue;
      ++topology.network_cards;
      const bool near = std::any_of(devices.begin(), devices.end(), [&](const std::string& device) {
        const std::string& cell = row_of(device)[column_of(column)];
        return cell == "PIX" || cell == "PXB";
      });
      topology.near_network_cards += near ? 1 : 0;
    }
    return topology;
  }

 private:
  std::size_t column_of(const std::string& name) const {
    return static_cast<std::size_t>(std::find(columns_.begin(), columns_.end(), name) - columns_.begin());
  }
  const std::vector<std::string>& row_of(const std::string& name) const {
    const auto row = rows_.find(name);
    if (row == rows_.end()) refuse_topology(where_, fmt::format("the row of {} is missing", name));
    return row->second;
  }

  std::vector<std::string> columns_;
  std::string where_;
  std::map<std::string, std::vector<std::string>> rows_;
  std::map<std::string, std::string> places_;
};

struct NvLink {
  int most_links = 0;
  double rate = 0.0;  // GB/s per link and direction
};

std::optional<NvLink> nvlink_of(GpuGeneration generation) {
  static const std::map<GpuGeneration, NvLink> known = {{GpuGeneration::kVolta, {6, 25.0}},
                                                        {GpuGeneration::kAmpere, {12, 25.0}},
                                                        {GpuGeneration::kHopper, {18, 25.0}},
                                                        {GpuGeneration::kBlackwell, {18, 50.0}}};
  const auto found = known.find(generation);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

bool all_reached(const std::vector<std::vector<int>>& links) {
  std::vector<std::size_t> reached = {0};
  for (std::size_t index = 0; index < reached.size(); ++index) {
    for (std::size_t other = 0; other < links.size(); ++other) {
      const bool known = std::find(reached.begin(), reached.end(), other) != reached.end();
      if (!known && links[reached[index]][other] > 0) reached.push_back(other);
    }
  }
  return reached.size() == links.size();
}

void set_bandwidth(const NodeTopology& topology, const NvLink& nvlink, nlohmann::json& cluster) {
  int least = 0;
  bool switched = false;
  for (const std::vector<int>& links : topology.links) {
    int total = std::accumulate(links.begin(), links.end(), 0);
    if (total > nvlink.most_links) {
      switched = true;
      total = *std::max_element(links.begin(), links.end());
    }
    least = least == 0 ? total : std::min(least, total);
  }
  cluster["intra_bandwidth"] = fmt::format("{:g}GB/s", least * nvlink.rate);
  if (!switched) cluster["in_switch_reduction"] = false;
}

}  // namespace

NodeTopology read_topology(std::string_view text, const std::string& file) {
  std::optional<ConnectionMatrix> matrix;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string where = fmt::format("{}:{}", file, ++number);
    const std::vector<std::string> tokens = topology_cells(line);
    const std::vector<std::string> header = matrix ? std::vector<std::string>{} : header_of(tokens);
    if (!header.empty()) {
      matrix.emplace(header, where);
    } else if (matrix) {
      matrix->read(tokens, where);
    }
  }
  if (!matrix) refuse_topology(file, "contains no connection matrix");
  return matrix->finished();
}

TopologyFacts topology_facts(const NodeTopology& topology, std::optional<GpuGeneration> generation) {
  TopologyFacts facts;
  facts.cluster["devices_per_node"] = topology.devices();
  const int cards = topology.near_network_cards > 0 ? topology.near_network_cards : topology.network_cards;
  if (cards > 0) facts.cluster["nics_per_node"] = cards;
  if (topology.devices() < 2) return facts;
  const auto nvlink = generation ? nvlink_of(*generation) : std::nullopt;
  if (!generation) {
    facts.notes.emplace_back("the rate of a link depends on the device: pass --device NAME to set intra_bandwidth");
  } else if (!nvlink || !all_reached(topology.links)) {
    facts.notes.emplace_back("NVLink does not connect all devices: intra_bandwidth is unchanged");
  } else {
    set_bandwidth(topology, *nvlink, facts.cluster);
  }
  return facts;
}

}  // namespace flopcast
