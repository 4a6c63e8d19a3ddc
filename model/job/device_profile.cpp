#include "model/job/device_profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/text/error.hpp"
#include "model/job/fields.hpp"

namespace flopcast {

namespace {

constexpr const char* kSchema = "flopcast.profile/1";
// Beyond anything measured, and still far from what ratios and products of a double overflow at.
constexpr double kMostAmount = 1e60;
constexpr double kLeastAmount = 1e-30;
constexpr int kMostInANode = 1'024;

double plain_amount(ObjectReader& reader, std::string_view key) {
  const nlohmann::json* value = reader.find(key);
  if (value == nullptr) reader.fail_missing(key, "a number, in the unit the key names");
  const double number = value->is_number() ? value->get<double>() : -1.0;
  if (!std::isfinite(number) || number < 0.0 || number > kMostAmount) {
    reader.fail(key, fmt::format("{} is no number of 0 or more", value->dump()),
                fmt::format("expected a number from 0 to {:g}", kMostAmount));
  }
  return number;
}

// What is divided by and drawn on logarithmic axes.
double amount_above_zero(ObjectReader& reader, std::string_view key) {
  const double number = plain_amount(reader, key);
  if (number < kLeastAmount) {
    reader.fail(key, fmt::format("{} is not above zero", number),
                fmt::format("expected a number from {:g} on", kLeastAmount));
  }
  return number;
}

std::string required_text(ObjectReader& reader, std::string_view key, const std::string& help) {
  const auto text = reader.text(key);
  if (!text) reader.fail_missing(key, help);
  return *text;
}

const nlohmann::json* list(ObjectReader& reader, std::string_view key) {
  const nlohmann::json* value = reader.find(key);
  if (value != nullptr && !value->is_array()) reader.fail(key, "is no list", "expected a list");
  return value;
}

MessageCurve read_segments(ObjectReader& reader, const Origins& origins) {
  const nlohmann::json* values = list(reader, "segments");
  if (values == nullptr || values->empty()) reader.fail_missing("segments", "at least one, from 0 bytes on");
  std::vector<MessageSegment> segments;
  for (std::size_t index = 0; index < values->size(); ++index) {
    ObjectReader segment((*values)[index], fmt::format("{}.{}", reader.field_of("segments"), index), origins);
    const Bytes from(plain_amount(segment, "from_bytes"));
    const bool ascends = segments.empty() ? from.value() == 0.0 : segments.back().from < from;
    if (!ascends) {
      segment.fail("from_bytes", fmt::format("{} does not follow the segment before", from.value()),
                   "expected 0 for the first segment, then ascending sizes");
    }
    segments.push_back({from, Seconds(plain_amount(segment, "alpha_s")), plain_amount(segment, "beta_s_per_byte")});
    segment.refuse_unknown_keys();
  }
  return MessageCurve(std::move(segments));
}

GroupCurve read_curve(const nlohmann::json& value, const std::string& field, const Origins& origins) {
  ObjectReader reader(value, field, origins);
  GroupCurve group;
  read_fields(curve_fields(), reader, group);
  if (group.nodes > group.ranks) {
    reader.fail("nodes", fmt::format("{} is out of range", group.nodes),
                fmt::format("expected a whole number from 1 to {}", group.ranks));
  }
  group.curve = read_segments(reader, origins);
  reader.refuse_unknown_keys();
  return group;
}

ProfileFit read_fit(const nlohmann::json& value, const std::string& field, const Origins& origins) {
  ObjectReader reader(value, field, origins);
  ProfileFit fit;
  fit.what = required_text(reader, "what", "what was fitted, such as \"gemm fp32\"");
  fit.unit = reader.text("unit").value_or("");
  fit.median_error = plain_amount(reader, "median_error");
  fit.p95_error = plain_amount(reader, "p95_error");
  fit.largest_error = plain_amount(reader, "largest_error");
  fit.left_out_median_error = plain_amount(reader, "left_out_median_error");
  if (const nlohmann::json* points = list(reader, "points")) {
    for (std::size_t index = 0; index < points->size(); ++index) {
      ObjectReader point((*points)[index], fmt::format("{}.points.{}", field, index), origins);
      fit.points.push_back({point.text("label").value_or(""), amount_above_zero(point, "x"),
                            amount_above_zero(point, "measured_s"), amount_above_zero(point, "fitted_s")});
      point.refuse_unknown_keys();
    }
  }
  reader.refuse_unknown_keys();
  return fit;
}

nlohmann::ordered_json fit_json(const ProfileFit& fit) {
  nlohmann::ordered_json json = {{"what", fit.what},
                                 {"unit", fit.unit},
                                 {"median_error", fit.median_error},
                                 {"p95_error", fit.p95_error},
                                 {"largest_error", fit.largest_error},
                                 {"left_out_median_error", fit.left_out_median_error}};
  json["points"] = nlohmann::ordered_json::array();
  for (const ProfilePoint& point : fit.points) {
    json["points"].push_back(
        {{"label", point.label}, {"x", point.x}, {"measured_s", point.measured_s}, {"fitted_s", point.fitted_s}});
  }
  return json;
}

std::string words_of(const GroupCurve& group) {
  std::string words(group.name());
  if (group.collective) words += fmt::format(" of {} ranks", group.ranks);
  if (group.nodes > 1) words += fmt::format(" on {} nodes", group.nodes);
  return words;
}

OverlapLine read_overlap(const nlohmann::json& value, const std::string& field, const Origins& origins) {
  ObjectReader reader(value, field, origins);
  OverlapLine line;
  line.what = required_text(reader, "what", "what ran beside what, such as \"gemm bf16 beside channel_copy\"");
  line.at_none = plain_amount(reader, "at_none");
  const nlohmann::json* slope = reader.find("per_channel");
  if (slope == nullptr) reader.fail_missing("per_channel", "what each channel adds to the factor");
  line.per_channel = slope->is_number() ? slope->get<double>() : std::nan("");
  if (!std::isfinite(line.per_channel)) {
    reader.fail("per_channel", fmt::format("{} is no number", slope->dump()), "expected a finite number");
  }
  constexpr int kMostChannels = 1'024;
  const auto most = reader.whole("most_channels", 1, kMostChannels);
  if (!most) reader.fail_missing("most_channels", "the most channels that were measured");
  line.most_channels = *most;
  for (const int channels : {0, line.most_channels}) {
    const double factor = line.factor(channels);
    if (factor >= kLeastAmount && factor <= kMostAmount) continue;
    reader.fail("per_channel", fmt::format("makes the factor of {} channels {:g}", channels, factor),
                "expected a factor above zero from none to most_channels");
  }
  reader.refuse_unknown_keys();
  return line;
}

std::optional<std::string> device_name(const nlohmann::json& cluster) {
  const auto device = cluster.find("device");
  if (device == cluster.end()) return std::nullopt;
  if (device->is_string()) return device->get<std::string>();
  if (!device->is_object() || !device->contains("name") || !device->at("name").is_string()) return std::nullopt;
  return device->at("name").get<std::string>();
}

nlohmann::json overlay_device(const DeviceProfile& profile, const nlohmann::json& given,
                              const nlohmann::json& catalogue, const Origins& origins) {
  const auto chosen = device_name(given).has_value() ? device_name(given) : device_name(catalogue);
  const auto measured = device_name(profile.cluster);
  if (chosen && measured && *chosen != *measured) {
    throw ConfigError(
        {"training.profile",
         fmt::format("{} was measured on device {}, and the cluster's device is {}", profile.name, *measured, *chosen),
         origins.where("training.profile"), "give a cluster of that device, or another profile"});
  }
  nlohmann::json device = profile.cluster.at("device");
  if (chosen) device["name"] = *chosen;
  if (!given.contains("device") || !given.at("device").is_object()) return device;
  const nlohmann::json& own = given.at("device");
  // One rate of products, whichever way the job tells it: the profile's by precision would win over it.
  if (own.contains("gemm_efficiency") || own.contains("kernel_efficiency")) {
    for (const char* key :
         {"gemm_efficiency", "kernel_efficiency", "gemm_efficiency_by_precision", "kernel_efficiency_by_precision"}) {
      device.erase(key);
    }
  }
  device.update(own);
  return device;
}

MeasuredLinks read_measured_links(ObjectReader& reader, const std::vector<GroupCurve>& curves, const Origins& origins) {
  MeasuredLinks on;
  on.name = required_text(reader, "name", "whose links they are, such as \"Perlmutter\"");
  on.intra_bandwidth = BytesPerSecond(reader.quantity("intra_bandwidth", Dimension::kBandwidth).value_or(0.0));
  if (const nlohmann::json* links = reader.find("links")) on.links = read_links(reader, *links, origins);
  on.devices_per_node = reader.whole("devices_per_node", 1, kMostInANode).value_or(0);
  on.nics_per_node = reader.whole("nics_per_node", 1, kMostInANode).value_or(0);
  on.nic_bandwidth = BytesPerSecond(reader.quantity("nic_bandwidth", Dimension::kBandwidth).value_or(0.0));
  for (const GroupCurve& curve : curves) {
    const bool between = curve.nodes > 1;
    if (!between && !(on.intra_bandwidth.value() > 0.0)) {
      reader.fail_missing("intra_bandwidth", "there is a curve inside a node: give the rate of its links");
    }
    if (between && on.devices_per_node == 0) {
      reader.fail_missing("devices_per_node", "there is a curve between nodes: give the devices of one");
    }
    if (between && on.nics_per_node == 0) {
      reader.fail_missing("nics_per_node", "there is a curve between nodes: give their network cards");
    }
    if (between && !(on.nic_bandwidth.value() > 0.0)) {
      reader.fail_missing("nic_bandwidth", "there is a curve between nodes: give the rate of a network card");
    }
  }
  reader.refuse_unknown_keys();
  return on;
}

nlohmann::ordered_json measured_links_json(const MeasuredLinks& on) {
  nlohmann::ordered_json json = {{"name", on.name}};
  const auto rate = [](BytesPerSecond value) { return quantity_text(value.value(), Dimension::kBandwidth); };
  if (on.intra_bandwidth.value() > 0.0) json["intra_bandwidth"] = rate(on.intra_bandwidth);
  for (const DeviceLink& link : on.links) json["links"].push_back(write_fields(link_fields(), link));
  if (on.devices_per_node > 0) json["devices_per_node"] = on.devices_per_node;
  if (on.nics_per_node > 0) json["nics_per_node"] = on.nics_per_node;
  if (on.nic_bandwidth.value() > 0.0) json["nic_bandwidth"] = rate(on.nic_bandwidth);
  return json;
}

// Rates of data sheets, which may be rounded.
bool like(BytesPerSecond one, BytesPerSecond other) {
  constexpr double kRounding = 0.02;
  return std::abs(one.value() - other.value()) <= kRounding * other.value();
}

// How many links there are between each two devices.
std::map<std::pair<int, int>, int> links_by_pair(const std::vector<DeviceLink>& links) {
  std::map<std::pair<int, int>, int> pairs;
  for (const DeviceLink& link : links) pairs[std::minmax({link.one, link.other})] += link.links;
  return pairs;
}

bool on_links_of(const Cluster& cluster, const MeasuredLinks& on, bool between) {
  if (between) {
    return on.devices_per_node == cluster.devices_per_node && on.nics_per_node == cluster.nics_per_node &&
           like(on.nic_bandwidth, cluster.nic_bandwidth);
  }
  return like(on.intra_bandwidth, cluster.intra_bandwidth) && links_by_pair(on.links) == links_by_pair(cluster.links);
}

}  // namespace

std::vector<DeviceLink> read_links(const ObjectReader& owner, const nlohmann::json& values, const Origins& origins) {
  if (!values.is_array()) owner.fail("links", "is no list", "expected a list of {one, other, links}");
  std::vector<DeviceLink> links;
  for (std::size_t index = 0; index < values.size(); ++index) {
    ObjectReader reader(values[index], owner.field_of(fmt::format("links.{}", index)), origins);
    DeviceLink link;
    read_fields(link_fields(), reader, link);
    reader.refuse_unknown_keys();
    if (link.one == link.other) reader.fail("other", "is the same device", "a link joins two");
    links.push_back(link);
  }
  return links;
}

std::vector<GroupCurve> curves_on_links_of(const Cluster& cluster, const DeviceProfile& profile) {
  if (!profile.measured_links) return profile.curves;
  std::vector<GroupCurve> curves;
  for (const GroupCurve& group : profile.curves) {
    if (on_links_of(cluster, *profile.measured_links, group.nodes > 1)) curves.push_back(group);
  }
  return curves;
}

std::vector<GroupCurve> read_group_curves(const nlohmann::json& values, const std::string& field,
                                          const Origins& origins) {
  if (!values.is_array()) throw ConfigError({field, "is no list", origins.where(field), "expected a list"});
  std::vector<GroupCurve> curves;
  std::vector<std::string> known;
  for (std::size_t index = 0; index < values.size(); ++index) {
    const std::string place = fmt::format("{}.{}", field, index);
    curves.push_back(read_curve(values[index], place, origins));
    const std::string words = words_of(curves.back());
    if (std::find(known.begin(), known.end(), words) != known.end()) {
      throw ConfigError({place, words + " is given twice", origins.where(place), "keep one of the two"});
    }
    known.push_back(words);
  }
  return curves;
}

const std::vector<std::string>& confidence_names() {
  static const std::vector<std::string> names = {"measured", "imported", "published"};
  return names;
}

DeviceProfile read_device_profile(const nlohmann::json& value, const std::string& field, const Origins& origins) {
  ObjectReader reader(value, field, origins);
  const std::string schema = required_text(reader, "schema", fmt::format("expected \"{}\"", kSchema));
  if (schema != kSchema) {
    reader.fail("schema", fmt::format("\"{}\" is another format", schema),
                fmt::format("expected \"{}\"; flopcast calibrate --from makes a profile of measurements", kSchema));
  }
  DeviceProfile profile;
  profile.name = required_text(reader, "name", "what was measured");
  profile.source = required_text(reader, "source", "who measured it, or where it is published");
  profile.date = reader.text("date").value_or("");
  const auto confidence = reader.choice("confidence", confidence_names());
  if (!confidence) reader.fail_missing("confidence", choices_help("", confidence_names()));
  profile.confidence = confidence_names()[*confidence];
  if (const nlohmann::json* cluster = reader.find("cluster")) {
    if (!cluster->is_object()) reader.fail("cluster", "is no object", "expected keys of a cluster section");
    profile.cluster = *cluster;
    if (cluster->contains("device") && !cluster->at("device").is_object()) {
      reader.fail("cluster", "holds a device that is no object", "expected its figures, such as {\"name\": …}");
    }
  }
  if (const nlohmann::json* curves = list(reader, "curves")) {
    profile.curves = read_group_curves(*curves, reader.field_of("curves"), origins);
  }
  if (auto on = reader.object("measured_links")) {
    profile.measured_links = read_measured_links(*on, profile.curves, origins);
  }
  if (const nlohmann::json* fits = list(reader, "fits")) {
    for (std::size_t index = 0; index < fits->size(); ++index) {
      profile.fits.push_back(read_fit((*fits)[index], fmt::format("{}.{}", reader.field_of("fits"), index), origins));
    }
  }
  if (const nlohmann::json* overlaps = list(reader, "overlaps")) {
    for (std::size_t index = 0; index < overlaps->size(); ++index) {
      profile.overlaps.push_back(
          read_overlap((*overlaps)[index], fmt::format("{}.{}", reader.field_of("overlaps"), index), origins));
    }
  }
  if (const nlohmann::json* stack = reader.find("stack")) {
    if (!stack->is_object() || !stack->contains("name") || !stack->at("name").is_string()) {
      reader.fail("stack", "names no stack", R"(expected {"name": …} and its figures; see: flopcast catalog stacks)");
    }
    profile.stack = *stack;
  }
  if (const nlohmann::json* fitted = reader.find("fitted")) {
    profile.fitted = read_run_fit(*fitted, reader.field_of("fitted"), origins);
  }
  reader.refuse_unknown_keys();
  return profile;
}

namespace {

std::vector<std::string> texts(ObjectReader& reader, std::string_view key) {
  const nlohmann::json* values = list(reader, key);
  if (values == nullptr) reader.fail_missing(key, "a list of texts");
  std::vector<std::string> all;
  for (const nlohmann::json& value : *values) {
    if (!value.is_string()) reader.fail(key, fmt::format("{} is no text", shown_value(value)), "expected texts");
    all.push_back(value.get<std::string>());
  }
  return all;
}

}  // namespace

RunFit read_run_fit(const nlohmann::json& value, const std::string& field, const Origins& origins) {
  constexpr int kMostRuns = 1'000'000;
  ObjectReader reader(value, field, origins);
  RunFit fit;
  const auto runs = reader.whole("runs", 1, kMostRuns);
  if (!runs) reader.fail_missing("runs", "how many were fitted to");
  fit.runs = *runs;
  fit.noise = amount_above_zero(reader, "noise");
  fit.freedom = amount_above_zero(reader, "freedom");
  fit.stack = required_text(reader, "stack", "the stack of the runs");
  fit.kinds = texts(reader, "kinds");
  fit.constants = texts(reader, "constants");
  const nlohmann::json* rows = list(reader, "covariance");
  const std::size_t count = fit.constants.size();
  const char* form = "expected a number for each two constants, row by row, no variance below 0";
  if (rows == nullptr) reader.fail_missing("covariance", form);
  if (rows->size() != count * count) {
    reader.fail("covariance", fmt::format("has {} numbers for {} constants", rows->size(), count), form);
  }
  for (const nlohmann::json& number : *rows) {
    const double covariance = number.is_number() ? number.get<double>() : std::nan("");
    const bool on_diagonal = fit.covariance.size() % (count + 1) == 0;
    constexpr double kMostVariance = 100.0;  // of logarithms: a factor of e^10 either way
    if (!(std::abs(covariance) <= kMostVariance) || (on_diagonal && covariance < 0.0)) {
      reader.fail("covariance", fmt::format("{} is no covariance", shown_value(number)), form);
    }
    fit.covariance.push_back(covariance);
  }
  reader.refuse_unknown_keys();
  return fit;
}

nlohmann::ordered_json run_fit_json(const RunFit& fit) {
  return {{"runs", fit.runs},   {"noise", fit.noise},         {"freedom", fit.freedom},      {"stack", fit.stack},
          {"kinds", fit.kinds}, {"constants", fit.constants}, {"covariance", fit.covariance}};
}

bool tells_figures(const DeviceProfile& profile) {
  if (!profile.stack->empty()) return true;
  for (const auto& item : profile.cluster->items()) {
    // The device's name says on what it was measured.
    const bool device = item.key() == "device" && item.value().is_object();
    if (!device || item.value().size() > (item.value().contains("name") ? 1u : 0u)) return true;
  }
  return false;
}

std::string write_profile(const DeviceProfile& profile) {
  nlohmann::ordered_json json = {{"schema", kSchema},
                                 {"name", profile.name},
                                 {"source", profile.source},
                                 {"date", profile.date},
                                 {"confidence", profile.confidence},
                                 {"cluster", *profile.cluster}};
  json["curves"] = nlohmann::ordered_json::array();
  for (const GroupCurve& group : profile.curves) json["curves"].push_back(write_fields(curve_fields(), group));
  if (profile.measured_links) json["measured_links"] = measured_links_json(*profile.measured_links);
  json["fits"] = nlohmann::ordered_json::array();
  for (const ProfileFit& fit : profile.fits) json["fits"].push_back(fit_json(fit));
  for (const OverlapLine& line : profile.overlaps) {
    json["overlaps"].push_back({{"what", line.what},
                                {"at_none", line.at_none},
                                {"per_channel", line.per_channel},
                                {"most_channels", line.most_channels}});
  }
  if (!profile.stack->empty()) json["stack"] = *profile.stack;
  if (profile.fitted) json["fitted"] = run_fit_json(*profile.fitted);
  // File names need not be UTF-8.
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

nlohmann::json overlay_profile(const DeviceProfile& profile, const nlohmann::json& given,
                               const nlohmann::json& catalogue, const Origins& origins) {
  nlohmann::json values = catalogue;
  for (const auto& item : profile.cluster->items()) {
    if (item.key() != "device") values[item.key()] = item.value();
  }
  for (const auto& item : given.items()) values[item.key()] = item.value();
  if (!profile.cluster.contains("device")) return values;
  if (given.contains("nodes") && given.at("nodes").is_array()) {
    throw ConfigError({"training.profile", "tells about one device, and the cluster lists its nodes one by one",
                       origins.where("training.profile"), "give the nodes' devices their figures inline"});
  }
  values["device"] = overlay_device(profile, given, catalogue, origins);
  return values;
}

std::vector<std::string> profile_assumptions(const DeviceProfile& profile, const Cluster& cluster) {
  std::vector<std::string> keys;
  for (const auto& item : profile.cluster->items()) {
    if (item.key() == "device") {
      for (const auto& figure : item.value().items()) keys.push_back("device." + figure.key());
    } else {
      keys.push_back(item.key());
    }
  }
  std::vector<std::string> sentences;
  const std::string origin = fmt::format("profile {} ({}{}{}, {})", profile.name, profile.source,
                                         profile.date.empty() ? "" : ", ", profile.date, profile.confidence);
  sentences.push_back(keys.empty() ? origin + " changes no figure of the cluster"
                                   : fmt::format("{} gives the cluster's {}", origin, fmt::join(keys, ", ")));
  std::vector<std::string> figures;
  for (const auto& item : profile.stack->items()) {
    if (item.key() != "name") figures.push_back(item.key());
  }
  if (!figures.empty()) {
    sentences.push_back(fmt::format("the profile gives stack {}'s {}", profile.stack->at("name").get<std::string>(),
                                    fmt::join(figures, ", ")));
  }
  std::vector<std::string> groups;
  std::vector<std::string> elsewhere;
  for (const GroupCurve& group : profile.curves) {
    const bool alike = !profile.measured_links || on_links_of(cluster, *profile.measured_links, group.nodes > 1);
    (alike ? groups : elsewhere).push_back(words_of(group));
  }
  if (!elsewhere.empty()) {
    sentences.push_back(fmt::format("the profile's curves of {} are of {}'s links and say nothing of the cluster's",
                                    fmt::join(elsewhere, ", "), profile.measured_links->name));
  }
  if (!groups.empty()) {
    sentences.push_back(fmt::format(
        "the profile's measured curves price {}; other groups on the same links follow them", fmt::join(groups, ", ")));
  }
  for (const ProfileFit& fit : profile.fits) {
    const bool of_overlap = std::any_of(profile.overlaps.begin(), profile.overlaps.end(),
                                        [&fit](const OverlapLine& line) { return line.what == fit.what; });
    if (of_overlap) continue;
    sentences.push_back(fmt::format("the profile's fit of {} misses by {:.1f} % in the median, {:.0f} % at most",
                                    fit.what, 1e2 * fit.median_error, 1e2 * fit.largest_error));
  }
  return sentences;
}

}  // namespace flopcast
