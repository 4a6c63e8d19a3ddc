#include "reports/result/network_picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>

#include "base/text/numbers.hpp"

namespace flopcast {

namespace {

constexpr double kGigabyte = 1e9;

// "node5.card2.up", "tier0.3.down.1", "dim0-up7": what a link belongs to, and which way it leads.
struct LinkPlace {
  std::string owner;  // "node5", "tier0.3"
  std::string kind;   // "node", "tier0", "dim0-up"
  int number = 0;     // among its kind
  bool up = true;
};

LinkPlace place_of_link(const std::string& name) {
  LinkPlace place;
  place.up = name.find("down") == std::string::npos;
  std::string_view rest = name;
  const std::size_t skip = rest.rfind("tier", 0) == 0 ? rest.find('.') : std::string_view::npos;
  const std::size_t begin = skip == std::string_view::npos ? 0 : skip + 1;
  std::size_t digit = rest.find_first_of("0123456789", begin);
  if (digit == std::string_view::npos) digit = rest.size();
  std::size_t end = rest.find_first_not_of("0123456789", digit);
  if (end == std::string_view::npos) end = rest.size();
  place.kind = std::string(skip == std::string_view::npos ? rest.substr(0, digit) : rest.substr(0, skip));
  place.owner = std::string(rest.substr(0, end));
  std::from_chars(name.data() + digit, name.data() + end, place.number);
  return place;
}

std::string kind_name(const std::string& kind) {
  return kind == "node" ? "cards" : kind.rfind("tier", 0) == 0 ? kind + " uplinks" : kind;
}

std::string load_note(const LinkLoad& load) {
  std::string text;
  for (const Axis axis : kResultAxes) {
    if (load.share[axis] < 0.005) continue;
    text += fmt::format("{}{} {} %", text.empty() ? "" : ", ", name_of(axis), percent(load.share[axis]));
  }
  return text;
}

}  // namespace

Table fabric_table(const Cluster& cluster, const NetworkFabric& fabric) {
  struct Kind {
    int links = 0;
    double least = 0.0;
    double most = 0.0;
    double sum = 0.0;
    std::string first;
  };
  std::map<std::string, Kind> kinds;
  for (std::uint32_t link = 0; link < fabric.links().size(); ++link) {
    const std::string& name = fabric.links()[link].name;
    const LinkPlace place = place_of_link(name);
    Kind& kind = kinds[kind_name(place.kind) + (place.up ? ", up" : ", down")];
    const double rate = fabric.capacity(link);
    kind.least = kind.links == 0 ? rate : std::min(kind.least, rate);
    kind.most = std::max(kind.most, rate);
    kind.sum += rate;
    if (kind.links++ == 0) kind.first = name;
  }
  Table table;
  table.title =
      fmt::format("{} of {} {}: {}, routing {}", cluster.name, cluster.nodes, cluster.nodes == 1 ? "node" : "nodes",
                  name_of(cluster.network->topology), name_of(cluster.network->routing));
  table.columns = {text_column("links", "kind"), number_column("number", "links"),
                   number_column("GB/s each", "gb_per_s"), number_column("TB/s together", "tb_per_s"),
                   text_column("the first", "first")};
  for (const auto& [name, kind] : kinds) {
    const std::string each = kind.least == kind.most ? rounded(kind.most / kGigabyte, 4)
                                                     : fmt::format("{} to {}", rounded(kind.least / kGigabyte, 4),
                                                                   rounded(kind.most / kGigabyte, 4));
    table.rows.push_back(
        {name, fmt::format("{}", kind.links), each, rounded(kind.sum / kGigabyte / 1e3, 4), kind.first});
  }
  return table;
}

FabricPicture fabric_picture(const Cluster& cluster, const NetworkFabric& fabric, const std::vector<LinkLoad>& loads) {
  FabricPicture picture;
  picture.title = fmt::format("{} nodes of {}: {}", cluster.nodes, cluster.name, name_of(cluster.network->topology));
  picture.has_loads = !loads.empty();
  picture.note = picture.has_loads ? "how full links are while the step waits for messages on shared links" : "";
  std::map<std::string, std::map<int, FabricPicture::Box>> kinds;
  for (std::uint32_t link = 0; link < fabric.links().size(); ++link) {
    const LinkPlace place = place_of_link(fabric.links()[link].name);
    const bool tiered = place.kind == "node" || place.kind.rfind("tier", 0) == 0;
    FabricPicture::Box& box = kinds[tiered ? place.kind : "links"][tiered ? place.number : static_cast<int>(link)];
    box.name = tiered ? place.owner : fabric.links()[link].name;
    if (loads.empty()) continue;
    const LinkLoad& load = loads[link];
    double& fullest = place.up ? box.up : box.down;
    if (load.utilisation <= fullest) continue;
    fullest = load.utilisation;
    box.note = load_note(load);
  }
  for (auto& [kind, boxes] : kinds) {
    FabricPicture::Row row{kind == "node" ? "nodes" : kind, {}};
    for (auto& [number, box] : boxes) row.boxes.push_back(std::move(box));
    picture.rows.push_back(std::move(row));
  }
  // What joins the highest.
  const bool joined = !picture.rows.empty() && picture.rows.back().boxes.size() > 1;
  if (joined) picture.rows.push_back({"", {{"core", "", 0.0, 0.0}}});
  return picture;
}

}  // namespace flopcast
