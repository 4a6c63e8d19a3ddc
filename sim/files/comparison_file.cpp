#include "sim/files/comparison_file.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/terms.hpp"

namespace flopcast {

namespace {

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
