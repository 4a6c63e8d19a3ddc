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

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kSchema = "flopcast.profile/1";
// Smallest valid value for divisors and logarithmic axes.
constexpr double kLeastAmount = 1e-30;
constexpr int kMostInANode = 1'024;

const Fields<ProfilePoint>& point_fields() {
  using P = ProfilePoint;
  static const Fields<P> fields = {text<&P::label>("label", "").always(), measured<&P::x>("x", "", kLeastAmount),
                                   measured<&P::measured_s>("measured_s", "", kLeastAmount),
                                   measured<&P::fitted_s>("fitted_s", "", kLeastAmount)};
  return fields;
}

const Fields<ProfileFit>& fit_fields() {
  using F = ProfileFit;
  static const Fields<F> fields = {text<&F::what>("what", "").required("name what was fitted, such as \"gemm fp32\""),
                                   text<&F::unit>("unit", "").always(),
                                   measured<&F::median_error>("median_error", ""),
                                   measured<&F::p95_error>("p95_error", ""),
                                   measured<&F::largest_error>("largest_error", ""),
                                   measured<&F::left_out_median_error>("left_out_median_error", ""),
                                   own_parts<&F::points, point_fields>("points").always()};
  return fields;
}

const Fields<OverlapLine>& overlap_line_fields() {
  using O = OverlapLine;
  constexpr int kMostChannels = 1'024;
  static const Fields<O> fields = {text<&O::what>("what", "").required("name the two overlapped operations"),
                                   measured<&O::at_none>("at_none", ""),
                                   measured<&O::per_channel>("per_channel", "", -kMostMeasured)
                                       .required("give the increase of the factor per channel"),
                                   whole<&O::most_channels>("most_channels", 1, kMostChannels, "")
                                       .required("give the largest number of channels measured")};
  return fields;
}

const Fields<MeasuredLinks>& measured_links_fields() {
  using M = MeasuredLinks;
  static const Fields<M> fields = {
      text<&M::name>("name", "").required("name the system, such as \"Perlmutter\""),
      quantity<&M::intra_bandwidth>("intra_bandwidth", Dimension::kBandwidth, "").zero_is_none(),
      parts<&M::links, link_fields>("links", ""),
      whole<&M::devices_per_node>("devices_per_node", 1, kMostInANode, "").zero_is_none(),
      whole<&M::nics_per_node>("nics_per_node", 1, kMostInANode, "").zero_is_none(),
      quantity<&M::nic_bandwidth>("nic_bandwidth", Dimension::kBandwidth, "").zero_is_none()};
  return fields;
}

void read_confidence(ObjectReader& reader, const FieldInfo& field, DeviceProfile& profile) {
  profile.confidence = confidence_names()[*reader.choice(field.key, confidence_names())];
}
OrderedJsonValue write_confidence(const FieldInfo&, const DeviceProfile& profile) {
  return profile.confidence;
}

void read_cluster_keys(ObjectReader& reader, const FieldInfo& field, DeviceProfile& profile) {
  const nlohmann::json& cluster = *reader.find(field.key);
  if (!cluster.is_object()) reader.fail(field.key, "is not an object", "expected keys of a cluster section");
  profile.cluster = cluster;
  if (cluster.contains("device") && !cluster.at("device").is_object()) {
    reader.fail(field.key, "contains a device that is not an object", "expected its figures, such as {\"name\": …}");
  }
}
OrderedJsonValue write_cluster_keys(const FieldInfo&, const DeviceProfile& profile) {
  return OrderedJson(*profile.cluster);
}

void read_overlaps(ObjectReader& reader, const FieldInfo& field, DeviceProfile& profile) {
  for (ObjectReader& one : reader.objects(field.key)) {
    OverlapLine& line = profile.overlaps.emplace_back();
    read_fields(overlap_line_fields(), one, line);
    for (const int channels : {0, line.most_channels}) {
      const double factor = line.factor(channels);
      if (factor >= kLeastAmount && factor <= kMostMeasured) continue;
      one.fail("per_channel", fmt::format("makes the factor for {} channels {:g}", channels, factor),
               "expected a factor above zero for 0 to most_channels channels");
    }
    one.refuse_unknown_keys();
  }
}

void read_stack_figures(ObjectReader& reader, const FieldInfo& field, DeviceProfile& profile) {
  const nlohmann::json& stack = *reader.find(field.key);
  if (!stack.is_object() || !stack.contains("name") || !stack.at("name").is_string()) {
    reader.fail(field.key, "does not name a stack",
                R"(expected {"name": …} and its figures; see: flopcast catalog stacks)");
  }
  profile.stack = stack;
}
OrderedJsonValue write_stack_figures(const FieldInfo&, const DeviceProfile& profile) {
  return profile.stack->empty() ? OrderedJson() : OrderedJson(*profile.stack);
}

const Fields<DeviceProfile>& profile_fields() {
  using P = DeviceProfile;
  static const Fields<P> fields = {
      text<&P::name>("name", "").required("name what was measured"),
      text<&P::source>("source", "").required("say who measured it or where it is published"),
      text<&P::date>("date", "").always(),
      custom<P>("confidence", FieldKind::kChoice, "", &read_confidence, &write_confidence)
          .among([] { return confidence_names(); })
          .required(),
      custom<P>("cluster", FieldKind::kObject, "", &read_cluster_keys, &write_cluster_keys),
      parts<&P::curves, curve_fields>("curves", "").always(),
      part<&P::measured_links, measured_links_fields>("measured_links", ""),
      own_parts<&P::fits, fit_fields>("fits").always(),
      custom<P>("overlaps", FieldKind::kList, "", &read_overlaps, &write_list<&P::overlaps, overlap_line_fields>),
      custom<P>("stack", FieldKind::kObject, "", &read_stack_figures, &write_stack_figures)};
  return fields;
}

std::string words_of(const GroupCurve& group) {
  std::string words(group.name());
  if (group.collective) words += fmt::format(" of {} ranks", group.ranks);
  if (group.nodes > 1) words += fmt::format(" on {} nodes", group.nodes);
  return words;
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
         fmt::format("{} was measured on device {}, but the cluster's device is {}", profile.name, *measured, *chosen),
         origins.where("training.profile"), "use a cluster with that device, or another profile"});
  }
  nlohmann::json device = profile.cluster.at("device");
  if (chosen) device["name"] = *chosen;
  if (!given.contains("device") || !given.at("device").is_object()) return device;
  const nlohmann::json& own = given.at("device");
  // A GEMM rate given by the job in either form replaces the profile's rates, including those by precision.
  if (own.contains("gemm_efficiency") || own.contains("kernel_efficiency")) {
    for (const char* key :
         {"gemm_efficiency", "kernel_efficiency", "gemm_efficiency_by_precision", "kernel_efficiency_by_precision"}) {
      device.erase(key);
    }
  }
  device.update(own);
  return device;
}

MeasuredLinks read_measured_links(ObjectReader& reader, const std::vector<GroupCurve>& curves) {
  MeasuredLinks on;
  read_fields(measured_links_fields(), reader, on);
  on.links = read_links(reader);
  for (const GroupCurve& curve : curves) {
    const bool between = curve.nodes > 1;
    if (!between && !(on.intra_bandwidth.value() > 0.0)) {
      reader.fail_missing("intra_bandwidth", "required for the curve inside a node: give the bandwidth of its links");
    }
    if (between && on.devices_per_node == 0) {
      reader.fail_missing("devices_per_node",
                          "required for the curve between nodes: give the number of devices per node");
    }
    if (between && on.nics_per_node == 0) {
      reader.fail_missing("nics_per_node",
                          "required for the curve between nodes: give the number of network cards per node");
    }
    if (between && !(on.nic_bandwidth.value() > 0.0)) {
      reader.fail_missing("nic_bandwidth",
                          "required for the curve between nodes: give the bandwidth of a network card");
    }
  }
  reader.refuse_unknown_keys();
  return on;
}

// Compares datasheet rates, which may be rounded.
bool like(BytesPerSecond one, BytesPerSecond other) {
  constexpr double kRounding = 0.02;
  return std::abs(one.value() - other.value()) <= kRounding * other.value();
}

// Number of links between each pair of devices.
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

std::vector<DeviceLink> read_links(ObjectReader& owner) {
  std::vector<DeviceLink> links;
  for (ObjectReader& reader : owner.objects("links")) {
    DeviceLink& link = links.emplace_back();
    read_fields(link_fields(), reader, link);
    reader.refuse_unknown_keys();
    if (link.one == link.other) reader.fail("other", "is the same device", "a link connects two devices");
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

std::vector<GroupCurve> read_group_curves(ObjectReader& owner) {
  std::vector<GroupCurve> curves;
  std::vector<std::string> known;
  for (ObjectReader& reader : owner.objects("curves")) {
    GroupCurve& group = curves.emplace_back();
    read_fields(curve_fields(), reader, group);
    reader.refuse_unknown_keys();
    if (group.nodes > group.ranks) {
      reader.fail("nodes", fmt::format("{} is out of range", group.nodes),
                  fmt::format("expected a whole number from 1 to {}", group.ranks));
    }
    known.push_back(words_of(group));
    if (std::count(known.begin(), known.end(), known.back()) > 1) {
      throw ConfigError({reader.pointer(), known.back() + " is given twice", reader.place(), "keep one of the two"});
    }
  }
  return curves;
}

const std::vector<std::string>& confidence_names() {
  static const std::vector<std::string> names = {"measured", "imported", "published"};
  return names;
}

DeviceProfile read_device_profile(const nlohmann::json& value, const std::string& field, const Origins& origins) {
  ObjectReader reader(value, field, origins);
  const auto schema = reader.text("schema");
  if (!schema) reader.fail_missing("schema", fmt::format("expected \"{}\"", kSchema));
  if (*schema != kSchema) {
    reader.fail("schema", fmt::format("\"{}\" is a different format", *schema),
                fmt::format("expected \"{}\"; flopcast calibrate --from creates a profile from measurements", kSchema));
  }
  DeviceProfile profile;
  read_fields(profile_fields(), reader, profile);
  profile.curves = read_group_curves(reader);
  if (auto on = reader.object("measured_links")) profile.measured_links = read_measured_links(*on, profile.curves);
  if (const nlohmann::json* fitted = reader.find("fitted")) {
    profile.fitted = read_run_fit(*fitted, reader.field_of("fitted"), origins);
  }
  reader.refuse_unknown_keys();
  return profile;
}

namespace {

const nlohmann::json& list(ObjectReader& reader, std::string_view key, const char* form) {
  const nlohmann::json* value = reader.find(key);
  if (value == nullptr) reader.fail_missing(key, form);
  if (!value->is_array()) reader.fail(key, "is not a list", form);
  return *value;
}

std::vector<std::string> texts(ObjectReader& reader, std::string_view key) {
  std::vector<std::string> all;
  for (const nlohmann::json& value : list(reader, key, "expected a list of strings")) {
    if (!value.is_string()) reader.fail(key, fmt::format("{} is not a string", shown_value(value)), "expected strings");
    all.push_back(value.get<std::string>());
  }
  return all;
}

const Fields<RunFit>& run_fit_fields() {
  constexpr int kMostRuns = 1'000'000;
  static const Fields<RunFit> fields = {
      whole<&RunFit::runs>("runs", 1, kMostRuns, "").required("give the number of runs it was fitted to"),
      measured<&RunFit::noise>("noise", "", kLeastAmount),
      measured<&RunFit::freedom>("freedom", "", kLeastAmount),
      text<&RunFit::stack>("stack", "").required("name the stack of the runs"),
      answer<&RunFit::kinds>("kinds"),
      answer<&RunFit::constants>("constants"),
      answer<&RunFit::covariance>("covariance")};
  return fields;
}

}  // namespace

RunFit read_run_fit(const nlohmann::json& value, const std::string& field, const Origins& origins) {
  ObjectReader reader(value, field, origins);
  RunFit fit;
  read_fields(run_fit_fields(), reader, fit);
  fit.kinds = texts(reader, "kinds");
  fit.constants = texts(reader, "constants");
  const std::size_t count = fit.constants.size();
  const char* form = "expected a number for each pair of constants, row by row, with no variance below 0";
  const nlohmann::json& rows = list(reader, "covariance", form);
  if (rows.size() != count * count) {
    reader.fail("covariance", fmt::format("has {} numbers, but there are {} constants", rows.size(), count), form);
  }
  for (const nlohmann::json& number : rows) {
    const double covariance = number.is_number() ? number.get<double>() : std::nan("");
    const bool on_diagonal = fit.covariance.size() % (count + 1) == 0;
    constexpr double kMostVariance = 100.0;  // of logarithms: a factor of e^10 either way
    if (!(std::abs(covariance) <= kMostVariance) || (on_diagonal && covariance < 0.0)) {
      reader.fail("covariance", fmt::format("{} is not a valid covariance", shown_value(number)), form);
    }
    fit.covariance.push_back(covariance);
  }
  reader.refuse_unknown_keys();
  return fit;
}

nlohmann::ordered_json run_fit_json(const RunFit& fit) {
  return write_fields(run_fit_fields(), fit);
}

bool has_figures(const DeviceProfile& profile) {
  if (!profile.stack->empty()) return true;
  for (const auto& item : profile.cluster->items()) {
    // The device's name only identifies what was measured.
    const bool device = item.key() == "device" && item.value().is_object();
    if (!device || item.value().size() > (item.value().contains("name") ? 1u : 0u)) return true;
  }
  return false;
}

std::string write_profile(const DeviceProfile& profile) {
  OrderedJson json = {{"schema", kSchema}};
  add_fields(profile_fields(), profile, json);
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
    throw ConfigError({"training.profile", "describes one device, but the cluster lists its nodes one by one",
                       origins.where("training.profile"), "give the figures of the nodes' devices inline"});
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
  sentences.push_back(keys.empty() ? origin + " changes none of the cluster's figures"
                                   : fmt::format("{} sets the cluster's {}", origin, fmt::join(keys, ", ")));
  std::vector<std::string> figures;
  for (const auto& item : profile.stack->items()) {
    if (item.key() != "name") figures.push_back(item.key());
  }
  if (!figures.empty()) {
    sentences.push_back(fmt::format("the profile sets stack {}'s {}", profile.stack->at("name").get<std::string>(),
                                    fmt::join(figures, ", ")));
  }
  std::vector<std::string> groups;
  std::vector<std::string> elsewhere;
  for (const GroupCurve& group : profile.curves) {
    const bool alike = !profile.measured_links || on_links_of(cluster, *profile.measured_links, group.nodes > 1);
    (alike ? groups : elsewhere).push_back(words_of(group));
  }
  if (!elsewhere.empty()) {
    sentences.push_back(
        fmt::format("the profile's curves of {} were measured on {}'s links and do not apply to the cluster's",
                    fmt::join(elsewhere, ", "), profile.measured_links->name));
  }
  if (!groups.empty()) {
    sentences.push_back(fmt::format(
        "the profile's measured curves set the times of {}; other groups on the same links are scaled from them",
        fmt::join(groups, ", ")));
  }
  for (const ProfileFit& fit : profile.fits) {
    const bool of_overlap = std::any_of(profile.overlaps.begin(), profile.overlaps.end(),
                                        [&fit](const OverlapLine& line) { return line.what == fit.what; });
    if (of_overlap) continue;
    sentences.push_back(
        fmt::format("the profile's fit of {} has a median error of {:.1f} % and a largest error of {:.0f} %", fit.what,
                    1e2 * fit.median_error, 1e2 * fit.largest_error));
  }
  return sentences;
}

}  // namespace flopcast
