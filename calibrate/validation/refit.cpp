#include "calibrate/validation/refit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "calibrate/validation/evaluate.hpp"
#include "calibrate/validation/shipped.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::json;
using Values = std::vector<double>;

constexpr int kMostGroups = 5;

struct FitRow {
  const PublishedRow* row = nullptr;
  MappedRow mapped;
  std::size_t source = 0;
  int group = 0;
};

Json value_of(const FittedConstant& constant, double value) {
  return constant.unit.empty() ? Json(value) : Json(fmt::format("{:.6g}{}", value, constant.unit));
}

double number_of(const Json& value) {
  return value.is_number() ? value.get<double>() : std::strtod(value.get<std::string>().c_str(), nullptr);
}

std::vector<CatalogueChange> changes_of(const FitPlan& plan, const Values& values) {
  std::vector<CatalogueChange> changes;
  for (std::size_t index = 0; index < values.size(); ++index) {
    const FittedConstant& constant = plan.constants[index];
    changes.push_back({constant.kind, constant.entry, constant.figure, value_of(constant, values[index])});
  }
  return changes;
}

// Rows with a measured step whose job at least one of the constants prices.
std::vector<FitRow> rows_of(const FitPlan& plan, const std::vector<PublishedFile>& files) {
  Values shipped;
  for (const FittedConstant& constant : plan.constants) shipped.push_back(constant.shipped);
  const std::vector<CatalogueChange> changes = changes_of(plan, shipped);
  std::vector<FitRow> rows;
  for (const PublishedFile& file : files) {
    const auto source = std::find(plan.sources.begin(), plan.sources.end(), file.source);
    if (source == plan.sources.end()) continue;
    for (const PublishedRow& row : file.rows) {
      MappedRow mapped = map_row(row, file.about);
      if (!mapped.skip_reason.empty() || row.out_of_memory) continue;
      Json job = mapped.job;
      const bool touched = std::count_if(changes.begin(), changes.end(),
                                         [&job](const CatalogueChange& change) { return apply(change, job); }) > 0;
      if (touched) rows.push_back({&row, mapped, static_cast<std::size_t>(source - plan.sources.begin()), 0});
    }
  }
  return rows;
}

// Numbers the models of each source from 0; more than kMostGroups share groups.
std::vector<int> number_models(std::vector<FitRow>& rows, std::size_t sources) {
  std::vector<std::map<std::tuple<int, int, int>, int>> models(sources);
  for (FitRow& row : rows) {
    auto& known = models[row.source];
    const std::tuple<int, int, int> model = {*row.row->layers, *row.row->hidden, *row.row->heads};
    const int number = known.emplace(model, static_cast<int>(known.size())).first->second;
    row.group = number % kMostGroups;
  }
  std::vector<int> counts;
  for (const auto& known : models) counts.push_back(static_cast<int>(known.size()));
  return counts;
}

class Fitter {
 public:
  Fitter(const FitPlan& plan, const std::vector<FitRow>& rows, const ReadFile& read_file)
      : plan_(plan), rows_(rows), read_file_(read_file) {}

  std::optional<double> error(const FitRow& row, const Values& values) const {
    MappedRow mapped = row.mapped;
    for (const CatalogueChange& change : changes_of(plan_, values)) apply(change, mapped.job);
    return evaluate_row(*row.row, mapped, read_file_).error();
  }

  // Without the rows of one group; -1: of none.
  Values fit(Values values, int without, int rounds) const {
    double best = loss(values, without);
    Values steps;
    constexpr double kFirstStep = 0.08;
    for (const FittedConstant& constant : plan_.constants) steps.push_back(kFirstStep * (constant.high - constant.low));
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t index = 0; index < values.size(); ++index) {
        if (!improve(values, index, steps[index], without, best) &&
            !improve(values, index, -steps[index], without, best)) {
          steps[index] /= 2.0;
        }
      }
    }
    return values;
  }

 private:
  bool improve(Values& values, std::size_t index, double step, int without, double& best) const {
    const FittedConstant& constant = plan_.constants[index];
    Values tried = values;
    tried[index] = std::clamp(values[index] + step, constant.low, constant.high);
    if (tried[index] == values[index]) return false;
    const double found = loss(tried, without);
    if (found >= best) return false;
    best = found;
    values = tried;
    return true;
  }

  double loss(const Values& values, int without) const {
    constexpr double kScale = 0.04;
    std::vector<double> sums(plan_.sources.size(), 0.0);
    std::vector<int> counts(plan_.sources.size(), 0);
    for (const FitRow& row : rows_) {
      if (row.group == without) continue;
      const auto relative = error(row, values);
      if (!relative) continue;
      sums[row.source] += std::log1p((*relative / kScale) * (*relative / kScale));
      ++counts[row.source];
    }
    double total = 0.0;
    for (std::size_t source = 0; source < sums.size(); ++source) total += sums[source] / std::max(1, counts[source]);
    return total;
  }

  const FitPlan& plan_;
  const std::vector<FitRow>& rows_;
  const ReadFile& read_file_;
};

}  // namespace

std::vector<FitPlan> shipped_fits() {
  std::vector<FitPlan> plans;
  for (const Json& fit : Json::parse(embedded_fits().front().text)) {
    FitPlan plan{fit.at("name"), fit.at("sources"), {}};
    for (const Json& json : fit.at("constants")) {
      FittedConstant constant;
      constant.kind = json.contains("device") ? CatalogueKind::kDevices : CatalogueKind::kStacks;
      constant.entry = json.at(json.contains("device") ? "device" : "stack");
      constant.figure = json.at("figure");
      constant.low = json.at("low");
      constant.high = json.at("high");
      constant.unit = json.value("unit", "");
      const Json values = catalogue_values(constant.kind, constant.entry);
      FLOPCAST_CHECK(values.contains(constant.figure));
      constant.shipped = number_of(values.at(constant.figure));
      plan.constants.push_back(constant);
    }
    plans.push_back(plan);
  }
  return plans;
}

Refit refit(const FitPlan& plan, const std::vector<PublishedFile>& files, const ReadFile& read_file) {
  std::vector<FitRow> rows = rows_of(plan, files);
  const std::vector<int> models = number_models(rows, plan.sources.size());
  Values shipped;
  for (const FittedConstant& constant : plan.constants) shipped.push_back(constant.shipped);
  constexpr int kRounds = 6;
  constexpr int kRoundsFromTheFit = 3;
  const Fitter fitter(plan, rows, read_file);
  Refit result{plan, fitter.fit(shipped, -1, kRounds), {}};
  for (std::size_t source = 0; source < plan.sources.size(); ++source) {
    result.sources.push_back({plan.sources[source], 0, models[source], 0.0, 0.0, 0.0});
  }
  for (int group = 0; group < kMostGroups; ++group) {
    const bool any = std::any_of(rows.begin(), rows.end(), [group](const FitRow& row) { return row.group == group; });
    if (!any) continue;
    const Values without = fitter.fit(result.values, group, kRoundsFromTheFit);
    for (const FitRow& row : rows) {
      const auto error = fitter.error(row, shipped);
      if (row.group != group || !error) continue;
      RefitSource& sums = result.sources[row.source];
      ++sums.rows;
      sums.shipped += std::abs(*error);
      sums.refitted += std::abs(fitter.error(row, result.values).value_or(0.0));
      sums.left_out += std::abs(fitter.error(row, without).value_or(0.0));
    }
  }
  for (RefitSource& sums : result.sources) {
    const double count = std::max(1, sums.rows);
    sums.shipped /= count;
    sums.refitted /= count;
    sums.left_out /= count;
  }
  return result;
}

}  // namespace flopcast
