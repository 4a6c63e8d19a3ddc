#include "sim/files/result_file.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>
#include <vector>

#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "model/job/read_job.hpp"
#include "model/units/quantity.hpp"
#include "sim/files/result_fields.hpp"
#include "sim/forecast/memory.hpp"
#include "sim/forecast/terms.hpp"
#include "sim/metrics/metrics.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::ordered_json;

constexpr bool page_needs(Needed needed) {
  return needed == Needed::kPage || needed == Needed::kBoth;
}
constexpr bool comparison_needs(Needed needed) {
  return needed == Needed::kComparison || needed == Needed::kBoth || needed == Needed::kLaterComparison;
}

// Adds the fields of a part to an object; what a part may lack and lacks is left out. Not inlined: GCC 12 would warn of
// members at offsets that a caller's part does not have.
template <class Part>
[[gnu::noinline]] void write_fields(const ResultFields<Part>& fields, const Part& part, Json& object) {
  for (const ResultField<Part>& field : fields) {
    std::visit(
        [&](auto member) {
          const auto& value = part.*member;
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::optional<double>>) {
            if (value) object[field.key] = *value;
          } else {
            object[field.key] = value;
          }
        },
        field.member);
  }
}

template <class Part>
Json fields_json(const ResultFields<Part>& fields, const Part& part) {
  Json object = Json::object();
  write_fields(fields, part, object);
  return object;
}

Json communication_part(const CommunicationResult& communication) {
  Json json = fields_json(communication_fields(), communication);
  for (const Axis axis : kResultAxes)
    json[std::string(name_of(axis))] = fields_json(axis_fields(), communication[axis]);
  return json;
}

Json bubble_part(const BubbleResult& bubble) {
  Json json = fields_json(bubble_fields(), bubble);
  json["by_cause"] = fields_json(cause_fields(), bubble);
  write_fields(bubble_by_rank_fields(), bubble, json);
  return json;
}

Json memory_part(const MemoryResult& memory) {
  Json ranks = Json::array();
  for (const RankMemoryResult& rank : memory.per_pipeline_rank) {
    ranks.push_back(fields_json(rank_memory_fields(), rank));
  }
  Json json = fields_json(memory_fields(), memory);
  json["per_pipeline_rank"] = std::move(ranks);
  return json;
}

Json training_part(const TrainingResult& training, double step_s, const std::optional<StepTimeInterval>& interval) {
  Json json = fields_json(training_result_fields(), training);
  if (interval) {
    const double per_second = training.days / step_s;
    const DayInterval days = {per_second * interval->low_s, per_second * interval->high_s};
    write_fields(day_fields(), days, json);
  }
  write_fields(cost_fields(), training, json);
  return json;
}

Json seconds_by_name(const std::vector<NamedSeconds>& parts) {
  Json json = Json::object();
  for (const NamedSeconds& part : parts) json[part.name] = part.seconds;
  return json;
}

Json run_part(const RunResult& run) {
  Json json = fields_json(run_fields(), run);
  json["goodput"] = fields_json(quantile_fields(), run.goodput);
  json["ettr"] = fields_json(quantile_fields(), run.ettr);
  json["days"] = fields_json(quantile_fields(), run.days);
  if (run.cost_usd) json["cost_usd"] = fields_json(quantile_fields(), *run.cost_usd);
  json["lost_s"] = {{"by_cause", seconds_by_name(run.lost_by_cause)}, {"by_phase", seconds_by_name(run.lost_by_phase)}};
  json["options"] = Json::array();
  for (const RunOption& option : run.options) json["options"].push_back(fields_json(option_fields(), option));
  return json;
}

Json by_axis_part(const ByAxis<double>& values) {
  Json json = Json::object();
  for (const Axis axis : kResultAxes) json[std::string(name_of(axis))] = values[axis];
  return json;
}

Json network_part(const NetworkResult& network) {
  Json json = {{"contention_s", by_axis_part(network.contention_s)}, {"hot_links", Json::array()}};
  for (const HotLink& link : network.hot_links) {
    json["hot_links"].push_back(fields_json(hot_link_fields(), link));
    json["hot_links"].back()["share"] = by_axis_part(link.share);
  }
  write_fields(network_result_fields(), network, json);
  if (network.paths) json["paths"] = fields_json(path_fields(), *network.paths);
  json["nccl_tests"] = Json::array();
  for (const GroupBandwidth& group : network.nccl_tests) {
    Json entry = {{"axis", name_of(group.axis)}};
    write_fields(bandwidth_fields(), group, entry);
    json["nccl_tests"].push_back(std::move(entry));
  }
  return json;
}

Json critical_path_part(const Timeline& timeline) {
  const CriticalPath path = critical_path(timeline);
  const auto seconds = [&timeline](Ticks ticks) { return static_cast<double>(ticks) * timeline.units_per_tick; };
  Json by_kind = Json::object();
  for (std::size_t kind = 0; kind < path.time_by_kind.size(); ++kind) {
    if (path.time_by_kind[kind] == 0) continue;
    by_kind[std::string(name_of(static_cast<SpanKind>(kind)))] = seconds(path.time_by_kind[kind]);
  }
  return {{"total_s", seconds(path.total())},
          {"steps", path.steps.size()},
          {"by_kind_s", std::move(by_kind)},
          {"transfers_s", seconds(path.lag)},
          {"waiting_s", seconds(path.wait)}};
}

// Reads what a comparison needs, each field at its pointer in the file.
class ComparisonReader {
 public:
  ComparisonReader(const nlohmann::json& json, const std::string& file) : json_(json), file_(file) {}

  template <class Part>
  void read(const std::string& section, const ResultFields<Part>& fields, Part& part) const {
    for (const ResultField<Part>& field : fields) {
      const auto* const number = std::get_if<double Part::*>(&field.member);
      if (number == nullptr || !comparison_needs(field.needed)) continue;
      const std::string place = section + "/" + field.key;
      const nlohmann::json::json_pointer pointer(place);
      if (!json_.contains(pointer) || !json_.at(pointer).is_number()) {
        throw ConfigError({place, "a result must hold this number", file_, "what simulate --format json writes"});
      }
      const double value = json_.at(pointer).get<double>();
      constexpr double kMost = 1e30;
      if (!(std::abs(value) <= kMost)) {
        throw ConfigError({place, fmt::format("{} is a figure that no forecast has", value), file_,
                           "what simulate --format json writes"});
      }
      part.*(*number) = value;
    }
  }

 private:
  const nlohmann::json& json_;
  const std::string& file_;
};

// Checks what a page needs of results in a JSON that holds some.
class PageChecker {
 public:
  explicit PageChecker(const std::string& file) : file_(file) {}

  void walk(const Json& json, const std::string& field) const {
    if (json.is_array()) {
      for (std::size_t index = 0; index < json.size(); ++index) walk(json[index], fmt::format("{}[{}]", field, index));
    }
    if (!json.is_object()) return;
    if (is_result(json)) return check(json, field);
    for (const auto& item : json.items()) {
      // Of timelines, the bulk of a file, no page reads a result.
      if (item.key() != "timelines") walk(item.value(), joined(field, item.key()));
    }
  }

 private:
  static std::string joined(const std::string& field, const std::string& key) {
    return field.empty() ? key : field + "." + key;
  }
  [[noreturn]] void fail(const std::string& field, const std::string& problem) const {
    throw ConfigError({field, problem, file_, "expected what simulate, compare or run write with --format json"});
  }
  const Json& object(const Json& json, const std::string& field, const std::string& key) const {
    if (!json.contains(key)) fail(joined(field, key), "is missing");
    if (!json.at(key).is_object()) fail(joined(field, key), "is no object");
    return json.at(key);
  }
  void number(const Json& json, const std::string& field, const std::string& key) const {
    if (!json.contains(key)) fail(joined(field, key), "is missing");
    if (!json.at(key).is_number()) fail(joined(field, key), fmt::format("{} is no number", dumped(json.at(key))));
  }
  void texts(const Json& json, const std::string& field, const std::string& key) const {
    if (!json.contains(key)) return;
    if (!json.at(key).is_array()) fail(joined(field, key), "is no list of texts");
    for (const Json& text : json.at(key)) {
      if (!text.is_string()) fail(joined(field, key), fmt::format("{} is no text", dumped(text)));
    }
  }
  // Figures that the page needs, and those that early versions did not write where they are there.
  template <class Part>
  void figures(const Json& json, const std::string& field, const ResultFields<Part>& fields) const {
    for (const ResultField<Part>& entry : fields) {
      const bool given = entry.needed == Needed::kLater && json.contains(entry.key);
      if (page_needs(entry.needed) || given) number(json, field, entry.key);
    }
  }
  template <class Part>
  void section(const Json& result, const std::string& field, const char* key, const ResultFields<Part>& fields) const {
    figures(object(result, field, key), joined(field, key), fields);
  }

  void check(const Json& result, const std::string& field) const {
    section(result, field, "iteration", iteration_fields());
    section(result, field, "bubble", bubble_fields());
    section(result, field, "communication", communication_fields());
    section(result, field, "memory", memory_fields());
    const Json& breakdown = object(result, field, "breakdown");
    for (const auto& item : breakdown.items()) number(breakdown, joined(field, "breakdown"), item.key());
    check_memory(result.at("memory"), joined(field, "memory"));
    texts(result, field, "assumptions");
    texts(result, field, "warnings");
    if (result.contains("job")) check_job(object(result, field, "job"), joined(field, "job"));
  }
  void check_memory(const Json& memory, const std::string& field) const {
    if (memory.contains("fits") && !memory.at("fits").is_boolean()) fail(field + ".fits", "is neither true nor false");
    const std::string ranks_field = field + ".per_pipeline_rank";
    if (!memory.contains("per_pipeline_rank")) fail(ranks_field, "is missing");
    const Json& ranks = memory.at("per_pipeline_rank");
    if (!ranks.is_array()) fail(ranks_field, "is no list");
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const std::string here = fmt::format("{}[{}]", ranks_field, rank);
      if (!ranks[rank].is_object()) fail(here, "is no object");
      figures(ranks[rank], here, rank_memory_fields());
    }
  }
  void check_job(const Json& job, const std::string& field) const {
    const Json& model = object(job, field, "model");
    if (model.contains("name") && !model.at("name").is_string()) fail(field + ".model.name", "is no text");
  }

  const std::string& file_;
};

using Json = nlohmann::ordered_json;

constexpr const char* kComparisonName = "flopcast.comparison/1";

Json compared_side(const ComparedLayout& layout) {
  return {{"name", layout.name},
          {"time_s", layout.result.iteration.time_s},
          {"mfu", layout.result.iteration.mfu},
          {"peak_gib", layout.result.memory.peak_gib},
          {"fits", layout.result.memory.fits},
          {"result", Json::parse(layout.document, nullptr, true, true)}};
}

Json terms_json(const ComparedLayout& a, const ComparedLayout& b) {
  Json terms = Json::array();
  for (const ComparedTerm& term : compare_terms(a.result, b.result)) {
    terms.push_back({{"name", term.name}, {"a_s", term.a_s}, {"b_s", term.b_s}, {"delta_s", term.delta_s()}});
  }
  return terms;
}

NamedResult compared_layout_of(const Json& holder, const char* side, const std::string& file) {
  const Json* const layout = holder.is_object() && holder.contains(side) ? &holder.at(side) : nullptr;
  if (layout == nullptr || !layout->contains("result") || !is_result(layout->at("result"))) {
    throw ConfigError({side, "holds no result", file, "expected what `flopcast compare --format json` writes"});
  }
  const bool named = layout->contains("name") && layout->at("name").is_string();
  return {named ? layout->at("name").get<std::string>() : side, &layout->at("result")};
}

}  // namespace

Json result_parts(const Result& result) {
  Json json = {{"iteration", fields_json(iteration_fields(), result.iteration)},
               {"breakdown", fields_json(breakdown_fields(), result.breakdown)},
               {"communication", communication_part(result.communication)},
               {"bubble", bubble_part(result.bubble)},
               {"memory", memory_part(result.memory)}};
  if (result.model) json["model"] = fields_json(parameter_fields(), *result.model);
  if (result.interval) json["step_time_interval"] = fields_json(interval_fields(), *result.interval);
  if (result.training) json["training"] = training_part(*result.training, result.iteration.time_s, result.interval);
  if (result.steady) json["steady"] = fields_json(steady_fields(), *result.steady);
  if (result.distribution) json["distribution"] = fields_json(distribution_fields(), *result.distribution);
  if (result.packing) json["packing"] = fields_json(packing_fields(), *result.packing);
  if (result.run) json["run"] = run_part(*result.run);
  if (result.network) json["network"] = network_part(*result.network);
  json["assumptions"] = result.assumptions;
  json["warnings"] = result.warnings;
  return json;
}

std::optional<Result> read_result(const std::string& text, const std::string& file) {
  if (text.find(kResultName) == std::string::npos) return std::nullopt;
  const nlohmann::json json = parse_json(text, file);
  if (!json.is_object() || json.value("schema", nlohmann::json()) != kResultName) return std::nullopt;
  Result result;
  const ComparisonReader reader(json, file);
  reader.read("/iteration", iteration_fields(), result.iteration);
  if (!(result.iteration.time_s >= kSecondsPerTick)) {
    throw ConfigError({"/iteration/time_s", fmt::format("{} s is no step's time", result.iteration.time_s), file,
                       "what simulate --format json writes"});
  }
  reader.read("/breakdown", breakdown_fields(), result.breakdown);
  reader.read("/communication", communication_fields(), result.communication);
  reader.read("/bubble", bubble_fields(), result.bubble);
  reader.read("/bubble/by_cause", cause_fields(), result.bubble);
  reader.read("/memory", memory_fields(), result.memory);
  const nlohmann::json::json_pointer fits("/memory/fits");
  result.memory.fits = !json.contains(fits) || json.at(fits) == true;
  return result;
}

void check_results(const Json& json, const std::string& file) {
  PageChecker(file).walk(json, "");
}

bool is_result(const Json& json) {
  return json.is_object() && json.value("schema", Json()) == kResultName;
}

Json result_json(const Forecast& forecast) {
  Json json = {{"schema", kResultName}, {"job", job_json(forecast.step.job)}};
  json.update(result_parts(forecast.result));
  return json;
}

std::string write_result(const Forecast& forecast) {
  return dumped(result_json(forecast));
}

std::string write_simulation(const Forecast& forecast) {
  Json json = result_json(forecast);
  json["critical_path"] = critical_path_part(forecast.timeline);
  return dumped(json, 2);
}

std::string write_links(const NetworkFabric& fabric, const std::vector<LinkLoad>& loads) {
  constexpr double kGiga = 1e9;
  Json links = Json::array();
  for (std::uint32_t link = 0; link < fabric.links().size(); ++link) {
    links.push_back({{"name", fabric.links()[link].name}, {"gb_per_s", fabric.capacity(link) / kGiga}});
    if (loads.empty()) continue;
    links.back()["utilisation"] = loads[link].utilisation;
    links.back()["share"] = by_axis_part(loads[link].share);
  }
  return Json{{"links", std::move(links)}}.dump(2);
}

std::string write_memory(const Forecast& forecast, MemoryView view) {
  Json json = {
      {"schema", kMemoryName}, {"job", job_json(forecast.step.job)}, {"memory", memory_part(forecast.result.memory)}};
  if (forecast.result.packing) json["packing"] = fields_json(packing_fields(), *forecast.result.packing);
  if (view == MemoryView::kOverTime) {
    Json ranks = Json::array();
    for (const RankMemory& rank : forecast.memory) {
      Json points = Json::array();
      for (const MemoryPoint& point : rank.points) {
        points.push_back(
            {static_cast<double>(point.time) * forecast.timeline.units_per_tick, gibibytes(Bytes(point.bytes))});
      }
      ranks.push_back(std::move(points));
    }
    json["over_time"] = std::move(ranks);
  }
  if (view == MemoryView::kTensors) {
    Json parts = Json::array();
    for (const MemoryPart& part : fullest_rank_parts(forecast.step, forecast.result.memory, forecast.memory)) {
      parts.push_back({{"kind", part.group},
                       {"tensor", part.name},
                       {"each_gib", gibibytes(part.each)},
                       {"count", part.count},
                       {"gib", gibibytes(part.total())}});
    }
    json["fullest_rank"] = {{"rank", fullest_rank(forecast.result.memory)}, {"tensors", std::move(parts)}};
  }
  json["assumptions"] = forecast.result.assumptions;
  json["warnings"] = forecast.result.warnings;
  return dumped(json, 2);
}

std::string write_comparison(const std::vector<ComparedLayout>& layouts) {
  Json others = Json::array();
  for (std::size_t index = 2; index < layouts.size(); ++index) {
    others.push_back({{"b", compared_side(layouts[index])}, {"terms", terms_json(layouts[0], layouts[index])}});
  }
  const Json json = {{"schema", kComparisonName},
                     {"a", compared_side(layouts[0])},
                     {"b", compared_side(layouts[1])},
                     {"terms", terms_json(layouts[0], layouts[1])},
                     {"others", std::move(others)}};
  return dumped(json, 2);
}

bool is_comparison(const Json& json) {
  return json.is_object() && json.value("schema", Json()) == kComparisonName;
}

std::vector<NamedResult> read_comparison(const Json& json, const std::string& file) {
  std::vector<NamedResult> layouts = {compared_layout_of(json, "a", file), compared_layout_of(json, "b", file)};
  if (!json.contains("others")) return layouts;
  if (!json.at("others").is_array())
    throw ConfigError({"others", "is no list", file, "as `flopcast compare` writes it"});
  for (const Json& other : json.at("others")) layouts.push_back(compared_layout_of(other, "b", file));
  return layouts;
}

}  // namespace flopcast
