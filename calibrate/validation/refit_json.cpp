#include "calibrate/validation/refit_json.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "calibrate/validation/shipped.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

// Six digits say more than any of these figures knows, and keep a file of them readable.
double rounded_figure(double value) {
  constexpr double kDigits = 1e6;
  return std::round(value * kDigits) / kDigits;
}

}  // namespace

nlohmann::ordered_json refit_json(const std::vector<Refit>& fits) {
  Json all = Json::array();
  for (const Refit& fit : fits) {
    Json constants = Json::array();
    for (std::size_t index = 0; index < fit.values.size(); ++index) {
      const FittedConstant& constant = fit.plan.constants[index];
      constants.push_back({{"entry", constant.entry},
                           {"figure", constant.figure},
                           {"unit", constant.unit},
                           {"shipped", rounded_figure(constant.shipped)},
                           {"refitted", rounded_figure(fit.values[index])},
                           {"at_bound", at_bound(constant, fit.values[index])}});
    }
    Json sources = Json::array();
    for (const RefitSource& source : fit.sources) {
      Json json = {{"source", source.source},
                   {"rows", source.rows},
                   {"models", source.models},
                   {"shipped", rounded_figure(source.shipped)},
                   {"refitted", rounded_figure(source.refitted)}};
      json["left_out"] = source.left_out ? Json(rounded_figure(*source.left_out)) : Json(nullptr);
      sources.push_back(std::move(json));
    }
    all.push_back({{"name", fit.plan.name}, {"constants", std::move(constants)}, {"sources", std::move(sources)}});
  }
  return {{"fits", std::move(all)}};
}

std::vector<Refit> stored_refits() {
  std::vector<Refit> fits;
  const std::vector<FitPlan> plans = shipped_fits();
  const Json file = Json::parse(embedded_residuals().front().text);
  for (const Json& json : file.at("fits")) {
    Refit fit;
    for (const FitPlan& plan : plans) {
      if (plan.name == json.at("name").get<std::string>()) fit.plan = plan;
    }
    for (const Json& constant : json.at("constants")) fit.values.push_back(constant.at("refitted"));
    for (const Json& source : json.at("sources")) {
      RefitSource errors{source.at("source"),  source.at("rows"),     source.at("models"),
                         source.at("shipped"), source.at("refitted"), std::nullopt};
      if (!source.at("left_out").is_null()) errors.left_out = source.at("left_out").get<double>();
      fit.sources.push_back(errors);
    }
    fits.push_back(fit);
  }
  return fits;
}

}  // namespace flopcast
