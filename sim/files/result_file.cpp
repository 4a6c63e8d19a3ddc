#include "sim/files/result_file.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "model/config/codec.hpp"
#include "model/config/document.hpp"
#include "model/job/read_job.hpp"
#include "model/units/quantity.hpp"
#include "sim/forecast/memory.hpp"
#include "sim/forecast/terms.hpp"
#include "sim/metrics/metrics.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::ordered_json;

CriticalPathResult critical_path_result(const Timeline& timeline) {
  const CriticalPath path = critical_path(timeline);
  const auto seconds = [&timeline](Ticks ticks) { return static_cast<double>(ticks) * timeline.units_per_tick; };
  CriticalPathResult result{
      seconds(path.total()), static_cast<int>(path.steps.size()), {}, seconds(path.lag), seconds(path.wait)};
  for (std::size_t kind = 0; kind < path.time_by_kind.size(); ++kind) {
    if (path.time_by_kind[kind] == 0) continue;
    result.by_kind.push_back({std::string(name_of(static_cast<SpanKind>(kind))), seconds(path.time_by_kind[kind])});
  }
  return result;
}

// The figures of a saved result that comparisons need. A missing one is reported with its place.
nlohmann::json figures_for_comparisons(const nlohmann::json& json, const FieldInfos& fields, const std::string& place,
                                       const std::string& file) {
  constexpr double kMost = 1e30;
  nlohmann::json figures = nlohmann::json::object();
  for (const FieldInfo* field : fields) {
    if ((field->needed_by & kComparison) == 0) continue;
    const std::string key(field->key);
    const std::string here = fmt::format("{}/{}", place, key);
    const nlohmann::json value = json.is_object() ? json.value(key, nlohmann::json()) : nlohmann::json();
    if (field->kind == FieldKind::kObject) {
      figures[key] = figures_for_comparisons(value, field->parts(), here, file);
      continue;
    }
    if (!value.is_number()) {
      throw ConfigError({here, "is missing or not a number", file, "expected the output of simulate --format json"});
    }
    if (!(std::abs(value.get<double>()) <= kMost)) {
      throw ConfigError({here, fmt::format("{} is not a plausible figure", value.get<double>()), file,
                         "expected the output of simulate --format json"});
    }
    figures[key] = value;
  }
  return figures;
}

// Checks the fields of results inside a JSON file that a page needs.
class PageChecker {
 public:
  explicit PageChecker(const std::string& file) : file_(file) {}

  void walk(const Json& json, const std::string& place) const {
    if (json.is_array()) {
      for (std::size_t index = 0; index < json.size(); ++index) walk(json[index], fmt::format("{}[{}]", place, index));
    }
    if (!json.is_object()) return;
    if (has_schema(json, kResultName)) return check_result(json, place);
    for (const auto& item : json.items()) {
      // Pages read no results from timelines, which make up most of a file.
      if (item.key() != "timelines") walk(item.value(), joined(place, item.key()));
    }
  }

 private:
  static std::string joined(const std::string& place, std::string_view key) {
    return place.empty() ? std::string(key) : fmt::format("{}.{}", place, key);
  }
  [[noreturn]] void fail(const std::string& place, const std::string& problem) const {
    throw ConfigError({place, problem, file_, "expected the output of simulate, compare or run with --format json"});
  }
  void number(const Json& value, const std::string& place) const {
    if (!value.is_number()) fail(place, fmt::format("{} is not a number", dumped(value)));
  }
  void object(const Json& value, const std::string& place, const FieldInfos& fields) const {
    if (!value.is_object()) fail(place, "is not an object");
    for (const FieldInfo* field : fields) check(value, joined(place, field->key), *field);
  }

  // Checks required fields, and optional ones that would break the page: figures that early versions did not write,
  // flags and texts.
  void check(const Json& owner, const std::string& place, const FieldInfo& field) const {
    const bool needed = (field.needed_by & kPage) != 0;
    if (needed && !owner.contains(field.key)) fail(place, "is missing");
    if (!owner.contains(field.key)) return;
    const Json& value = owner.at(std::string(field.key));
    const bool texts = field.kind == FieldKind::kList && field.elements == FieldKind::kText;
    if (field.kind == FieldKind::kBoolean && !value.is_boolean()) fail(place, "is neither true nor false");
    if (field.kind == FieldKind::kNumber && (needed || field.later)) number(value, place);
    if (field.kind == FieldKind::kObject && needed) object(value, place, field.parts());
    if (field.kind != FieldKind::kList || !(needed || texts)) return;
    if (!value.is_array()) fail(place, texts ? "is not a list of strings" : "is not a list");
    for (std::size_t index = 0; index < value.size(); ++index) {
      if (!texts) object(value[index], fmt::format("{}[{}]", place, index), field.parts());
      if (texts && !value[index].is_string()) fail(place, fmt::format("{} is not a string", dumped(value[index])));
    }
  }

  void check_result(const Json& result, const std::string& place) const {
    object(result, place, infos_of<result_fields>());
    for (const auto& item : result.at("breakdown").items()) {
      number(item.value(), joined(joined(place, "breakdown"), item.key()));
    }
    if (!result.contains("job")) return;
    const std::string job = joined(place, "job");
    object(result.at("job"), job, {});
    if (!result.at("job").contains("model")) fail(job + ".model", "is missing");
    const Json& model = result.at("job").at("model");
    object(model, job + ".model", {});
    if (model.contains("name") && !model.at("name").is_string()) fail(job + ".model.name", "is not a string");
  }

  const std::string& file_;
};

const Fields<ComparedTerm>& compared_term_fields() {
  using C = ComparedTerm;
  static const Fields<C> fields = {answer<&C::name>("name"), answer<&C::a_s>("a_s"), answer<&C::b_s>("b_s"),
                                   answer<&C::delta_s>("delta_s")};
  return fields;
}

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
    terms.push_back(write_fields(compared_term_fields(), term));
  }
  return terms;
}

NamedResult compared_layout_of(const Json& holder, const char* side, const std::string& file) {
  const Json* const layout = holder.is_object() && holder.contains(side) ? &holder.at(side) : nullptr;
  if (layout == nullptr || !layout->contains("result") || !has_schema(layout->at("result"), kResultName)) {
    throw ConfigError({side, "contains no result", file, "expected the output of `flopcast compare --format json`"});
  }
  const bool named = layout->contains("name") && layout->at("name").is_string();
  return {named ? layout->at("name").get<std::string>() : side, &layout->at("result")};
}

}  // namespace

std::optional<Result> read_result(const std::string& text, const std::string& file) {
  if (text.find(kResultName) == std::string::npos) return std::nullopt;
  const nlohmann::json json = parse_json(text, file);
  if (!json.is_object() || json.value("schema", nlohmann::json()) != kResultName) return std::nullopt;
  Result result;
  const nlohmann::json::json_pointer fits("/memory/fits");
  Origins origins;
  origins.file = file;
  const nlohmann::json figures = figures_for_comparisons(json, infos_of<result_fields>(), "", file);
  ObjectReader reader(figures, "", origins);
  read_fields(result_fields(), reader, result);
  if (!(result.iteration.time_s >= kSecondsPerTick)) {
    throw ConfigError({"/iteration/time_s", fmt::format("{} s is not a valid step time", result.iteration.time_s), file,
                       "expected the output of simulate --format json"});
  }
  result.memory.fits = !json.contains(fits) || json.at(fits) == true;
  return result;
}

void check_results(const Json& json, const std::string& file) {
  PageChecker(file).walk(json, "");
}

bool has_schema(const Json& json, std::string_view schema) {
  return json.is_object() && json.value("schema", Json()) == schema;
}

Json result_json(const Job& job, const Result& result) {
  Json json = {{"schema", kResultName}, {"job", job_json(job)}};
  add_fields(result_fields(), result, json);
  return json;
}

Json result_json(const Forecast& forecast) {
  return result_json(forecast.step.job, forecast.result);
}

std::string write_result(const Forecast& forecast) {
  return dumped(result_json(forecast));
}

std::string write_simulation(const Forecast& forecast) {
  Result result = forecast.result;
  result.critical_path = critical_path_result(forecast.timeline);
  return dumped(result_json(forecast.step.job, result), 2);
}

std::string write_links(const NetworkFabric& fabric, const std::vector<LinkLoad>& loads) {
  constexpr double kGiga = 1e9;
  Json links = Json::array();
  for (std::uint32_t link = 0; link < fabric.links().size(); ++link) {
    links.push_back({{"name", fabric.links()[link].name}, {"gb_per_s", fabric.capacity(link) / kGiga}});
    if (loads.empty()) continue;
    links.back()["utilisation"] = loads[link].utilisation;
    links.back()["share"] = write_fields(by_axis_fields(), loads[link].share);
  }
  return Json{{"links", std::move(links)}}.dump(2);
}

std::string write_memory(const Forecast& forecast, MemoryView view) {
  const Result& result = forecast.result;
  MemoryFile file{result.memory, result.packing, {}, {}, result.assumptions, result.warnings};
  if (view == MemoryView::kOverTime) {
    file.over_time.emplace();
    for (const RankMemory& rank : forecast.memory) {
      auto& points = file.over_time->emplace_back();
      for (const MemoryPoint& point : rank.points) {
        points.emplace_back(static_cast<double>(point.time) * forecast.timeline.units_per_tick,
                            gibibytes(Bytes(point.bytes)));
      }
    }
  }
  if (view == MemoryView::kTensors) {
    file.fullest_rank = {fullest_rank(result.memory),
                         fullest_rank_parts(forecast.step, result.memory, forecast.memory)};
  }
  Json json = {{"schema", kMemoryName}, {"job", job_json(forecast.step.job)}};
  add_fields(memory_file_fields(), file, json);
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

std::vector<NamedResult> read_comparison(const Json& json, const std::string& file) {
  std::vector<NamedResult> layouts = {compared_layout_of(json, "a", file), compared_layout_of(json, "b", file)};
  if (!json.contains("others")) return layouts;
  if (!json.at("others").is_array())
    throw ConfigError({"others", "is not a list", file, "expected the output of `flopcast compare --format json`"});
  for (const Json& other : json.at("others")) layouts.push_back(compared_layout_of(other, "b", file));
  return layouts;
}

}  // namespace flopcast
