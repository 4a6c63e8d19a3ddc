#include "model/workload/failures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"

namespace flopcast {

namespace {

constexpr double kSecondsOfDay = 86'400.0;

constexpr std::pair<std::string_view, double> kPeriods[] = {{"hour", 3'600.0},
                                                            {"day", kSecondsOfDay},
                                                            {"week", 7.0 * kSecondsOfDay},
                                                            {"month", 30.0 * kSecondsOfDay},
                                                            {"year", 365.0 * kSecondsOfDay}};
constexpr std::string_view kRateUnits[] = {"job", "gpu", "node", "link", "rack"};

double seconds_of_period(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kPeriods), std::end(kPeriods), [name](const auto& one) { return one.first == name; });
  return found == std::end(kPeriods) ? 0.0 : found->second;
}

}  // namespace

TakenOut FailureCause::takes_out_of_service() const {
  if (takes) return *takes;
  if (per == FailureUnit::kRack) return TakenOut::kRack;
  return per == FailureUnit::kSite ? TakenOut::kSite : TakenOut::kNode;
}

double ObservedFleet::units(FailureUnit unit) const {
  const auto count = [](const std::optional<int>& number) { return static_cast<double>(number.value_or(0)); };
  switch (unit) {
    case FailureUnit::kGpu:
      return count(gpus);
    case FailureUnit::kNode:
      return count(nodes);
    case FailureUnit::kLink:
      return links ? count(links) : count(gpus);
    case FailureUnit::kRack:
      return count(racks);
    case FailureUnit::kSite:
      return 1.0;
  }
  return 0.0;
}

std::optional<EventRate> parse_event_rate(const std::string& text) {
  std::vector<std::string> words;
  for (const std::string& word : split(text, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  constexpr std::size_t kWords = 4;
  if (words.size() != kWords || words[1] != "per") return std::nullopt;
  const std::optional<double> events = parse_number(words[0]);
  const bool known = std::find(std::begin(kRateUnits), std::end(kRateUnits), words[2]) != std::end(kRateUnits);
  if (!events || !std::isfinite(*events) || *events < 0.0 || !known || seconds_of_period(words[3]) == 0.0) {
    return std::nullopt;
  }
  return EventRate{*events, words[2], words[3]};
}

std::string text_of(const EventRate& rate) {
  return fmt::format("{} per {} {}", rate.events, rate.unit, rate.period);
}

double units_of_cluster(const Cluster& cluster, FailureUnit unit, int rack_nodes) {
  const auto nodes =
      static_cast<double>(cluster.uneven() ? cluster.uneven_nodes.size() : static_cast<std::size_t>(cluster.nodes));
  switch (unit) {
    case FailureUnit::kGpu:
      return cluster.devices();
    case FailureUnit::kNode:
      return nodes;
    case FailureUnit::kLink:
      return nodes * cluster.nics_per_node;
    case FailureUnit::kRack:
      return std::ceil(nodes / rack_nodes);
    case FailureUnit::kSite:
      return 1.0;
  }
  return 0.0;
}

double rate_of(const FailureCause& cause, const Failures& failures, const Cluster& cluster) {
  const double units = units_of_cluster(cluster, cause.per, failures.rack_nodes);
  if (cause.mtbf) return units / cause.mtbf->value();
  FLOPCAST_CHECK(cause.events.has_value() && failures.observed.days.has_value());
  const double seen = failures.observed.units(cause.per);
  FLOPCAST_CHECK(seen > 0.0);
  return units * cause.events.value() / (seen * failures.observed.days.value() * kSecondsOfDay);
}

double rate_of(const EventRate& rate, const Cluster& cluster, int rack_nodes) {
  const double per_unit = rate.events / seconds_of_period(rate.period);
  const std::optional<FailureUnit> unit = parse<FailureUnit>(rate.unit);
  return unit ? per_unit * units_of_cluster(cluster, *unit, rack_nodes) : per_unit;
}

std::vector<FailureCause> causes_of(const Failures& failures) {
  if (!failures.mtbf) return failures.causes;
  FailureCause any;
  any.name = "failure";
  any.mtbf = failures.mtbf;
  any.detection = failures.detection.value_or(Seconds(0.0));
  return {any};
}

}  // namespace flopcast
