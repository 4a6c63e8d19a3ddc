
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "base/text/error.hpp"
#include "calibrate/validation/evaluate.hpp"
#include "calibrate/validation/published_row.hpp"

namespace flopcast {

namespace {

// True if the value refers to the entry by its name or one of its releases, directly or in an object with "name".
bool names(const nlohmann::json& value, const std::string& entry) {
  const nlohmann::json name = value.is_object() ? value.value("name", nlohmann::json()) : value;
  return name.is_string() && (name == entry || name.get<std::string>().rfind(entry + "@", 0) == 0);
}

bool apply_to(nlohmann::json& place, const CatalogueChange& change) {
  if (!names(place, change.entry)) return false;
  if (!place.is_object()) place = {{"name", place}};
  if (!place.contains(change.figure)) place[change.figure] = change.value;
  return true;
}

}  // namespace

bool apply(const CatalogueChange& change, nlohmann::json& job) {
  if (change.kind == CatalogueKind::kDevices) return apply_to(job["cluster"]["device"], change);
  const bool has_stack = job.contains("training") && job["training"].contains("stack");
  return change.kind == CatalogueKind::kStacks && has_stack && apply_to(job["training"]["stack"], change);
}

namespace {

using Values = std::vector<double>;

constexpr int kNone = -1;

struct RefitRow {
  const PublishedRow* row = nullptr;
  MappedRow mapped;
  std::size_t source = 0;
  int model = 0;  ///< numbered over all sources together
  int part = 0;   ///< the unit that it is left out with: its model or its source
};

nlohmann::json value_of(const FittedConstant& constant, double value) {
  return constant.unit.empty() ? nlohmann::json(value) : nlohmann::json(fmt::format("{:.6g}{}", value, constant.unit));
}

double number_of(const nlohmann::json& value) {
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

Values shipped_values(const FitPlan& plan) {
  Values values;
  for (const FittedConstant& constant : plan.constants) values.push_back(constant.shipped);
  return values;
}

// Rows with a measured step whose job uses at least one of the constants.
std::vector<RefitRow> rows_of(const FitPlan& plan, const std::vector<PublishedFile>& files) {
  const std::vector<CatalogueChange> changes = changes_of(plan, shipped_values(plan));
  std::vector<RefitRow> rows;
  for (const PublishedFile& file : files) {
    const auto source = std::find(plan.sources.begin(), plan.sources.end(), file.source);
    if (source == plan.sources.end()) continue;
    for (const PublishedRow& row : file.rows) {
      MappedRow mapped = map_row(row, file.about);
      if (!mapped.skip_reason.empty() || row.out_of_memory) continue;
      nlohmann::json job = mapped.job;
      const bool touched = std::count_if(changes.begin(), changes.end(),
                                         [&job](const CatalogueChange& change) { return apply(change, job); }) > 0;
      if (touched) rows.push_back({&row, mapped, static_cast<std::size_t>(source - plan.sources.begin()), 0});
    }
  }
  return rows;
}

// Numbers the models from 0; the same model in several sources counts once.
int number_models(std::vector<RefitRow>& rows) {
  std::map<std::tuple<int, int, int>, int> known;
  for (RefitRow& row : rows) {
    const std::tuple<int, int, int> model = {*row.row->layers, *row.row->hidden, *row.row->heads};
    row.model = known.emplace(model, static_cast<int>(known.size())).first->second;
  }
  return static_cast<int>(known.size());
}

// Errors of the rows near `at`: error + slopes · (values - at).
struct Linearised {
  Values at;
  std::vector<std::optional<double>> errors;  // by row
  std::vector<Values> slopes;
};

class Fitter {
 public:
  Fitter(const FitPlan& plan, const std::vector<RefitRow>& rows, const ReadFile& read_file)
      : plan_(plan), rows_(rows), read_file_(read_file) {}

  std::vector<std::optional<double>> errors(const Values& values) const {
    std::vector<std::optional<double>> all;
    for (const RefitRow& row : rows_) all.push_back(error(row, values));
    return all;
  }

  std::optional<double> error(const RefitRow& row, const Values& values) const {
    MappedRow mapped = row.mapped;
    for (const CatalogueChange& change : changes_of(plan_, values)) apply(change, *mapped.job);
    return evaluate_row(*row.row, mapped, read_file_).error();
  }

  Linearised fit(const Values& values) const {
    constexpr int kRounds = 4;
    constexpr double kConverged = 0.003;
    Linearised near = linearise(values);
    for (int round = 0; round < kRounds; ++round) {
      const Values next = improve(near);
      double moved = 0.0;
      for (std::size_t index = 0; index < next.size(); ++index) {
        moved = std::max(moved, std::abs(next[index] - near.at[index]) / range(index));
      }
      if (moved == 0.0) break;
      near = linearise(next);
      if (moved < kConverged) break;
    }
    return near;
  }

  // The best values near a linearisation without the rows of one part, or with all rows (kNone). Coordinate descent; a
  // step is halved if neither direction improves.
  Values minimise(const Linearised& near, int without) const {
    Values values = near.at;
    double best = linear_loss(near, values, without);
    Values steps;
    constexpr double kFirstStep = 0.05;
    for (std::size_t index = 0; index < values.size(); ++index) steps.push_back(kFirstStep * range(index));
    constexpr int kRounds = 60;
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t index = 0; index < values.size(); ++index) {
        const double before = best;
        for (const double step : {steps[index], -steps[index]}) {
          Values tried = values;
          tried[index] = bounded(near, index, values[index] + step);
          const double found = linear_loss(near, tried, without);
          if (found >= best) continue;
          best = found;
          values = tried;
          break;
        }
        if (best == before) steps[index] /= 2.0;
      }
    }
    return values;
  }

 private:
  double range(std::size_t index) const { return plan_.constants[index].high - plan_.constants[index].low; }

  // Limits values to where the linearisation is valid.
  double bounded(const Linearised& near, std::size_t index, double value) const {
    constexpr double kTrusted = 0.2;  // of the range, in either direction
    const FittedConstant& constant = plan_.constants[index];
    const double reach = kTrusted * range(index);
    const double inside = std::clamp(value, near.at[index] - reach, near.at[index] + reach);
    return std::clamp(inside, constant.low, constant.high);
  }

  Linearised linearise(const Values& values) const {
    constexpr double kStep = 0.02;  // of the range
    Linearised near{values, errors(values), {}};
    near.slopes.assign(rows_.size(), Values(values.size(), 0.0));
    for (std::size_t index = 0; index < values.size(); ++index) {
      Values moved = values;
      const bool room = values[index] + kStep * range(index) <= plan_.constants[index].high;
      moved[index] += (room ? kStep : -kStep) * range(index);
      for (std::size_t row = 0; row < rows_.size(); ++row) {
        if (!near.errors[row]) continue;
        const auto other = error(rows_[row], moved);
        near.slopes[row][index] =
            (other.value_or(*near.errors[row]) - *near.errors[row]) / (moved[index] - values[index]);
      }
    }
    return near;
  }

  // Halves the change, repeatedly, until the true errors confirm the improvement.
  Values improve(const Linearised& near) const {
    Values next = minimise(near, kNone);
    const double before = loss(near.errors, kNone);
    constexpr int kHalvings = 4;
    for (int halving = 0; halving < kHalvings; ++halving) {
      if (loss(errors(next), kNone) < before) return next;
      for (std::size_t index = 0; index < next.size(); ++index) next[index] = (next[index] + near.at[index]) / 2.0;
    }
    return near.at;
  }

  double linear_loss(const Linearised& near, const Values& values, int without) const {
    std::vector<std::optional<double>> all = near.errors;
    for (std::size_t row = 0; row < all.size(); ++row) {
      if (!all[row]) continue;
      for (std::size_t index = 0; index < values.size(); ++index) {
        *all[row] += near.slopes[row][index] * (values[index] - near.at[index]);
      }
    }
    return loss(all, without);
  }

  double loss(const std::vector<std::optional<double>>& all, int without) const {
    constexpr double kScale = 0.04;
    std::vector<double> sums(plan_.sources.size(), 0.0);
    std::vector<int> counts(plan_.sources.size(), 0);
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      if (rows_[row].part == without || !all[row]) continue;
      const double scaled = *all[row] / kScale;
      sums[rows_[row].source] += std::log1p(scaled * scaled);
      ++counts[rows_[row].source];
    }
    double total = 0.0;
    for (std::size_t source = 0; source < sums.size(); ++source) total += sums[source] / std::max(1, counts[source]);
    return total;
  }

  const FitPlan& plan_;
  const std::vector<RefitRow>& rows_;
  const ReadFile& read_file_;
};

}  // namespace

bool at_bound(const FittedConstant& constant, double value) {
  return value <= constant.low || value >= constant.high;
}

std::vector<FitPlan> shipped_fits() {
  std::vector<FitPlan> plans;
  for (const nlohmann::json& fit : nlohmann::json::parse(embedded_fits().front().text)) {
    FitPlan plan{fit.at("name"), fit.at("sources"), {}};
    for (const nlohmann::json& json : fit.at("constants")) {
      FittedConstant constant;
      constant.kind = json.contains("device") ? CatalogueKind::kDevices : CatalogueKind::kStacks;
      constant.entry = json.at(json.contains("device") ? "device" : "stack");
      constant.figure = json.at("figure");
      constant.low = json.at("low");
      constant.high = json.at("high");
      constant.unit = json.value("unit", "");
      const nlohmann::json values = catalogue_values(constant.kind, constant.entry);
      FLOPCAST_CHECK(values.contains(constant.figure));
      constant.shipped = number_of(values.at(constant.figure));
      plan.constants.push_back(constant);
    }
    plans.push_back(plan);
  }
  return plans;
}

namespace {

using Errors = std::vector<std::optional<double>>;  // by row

struct MeanError {
  double sum = 0.0;
  int rows = 0;

  void add(const std::optional<double>& error) {
    if (!error) return;
    sum += std::abs(*error);
    ++rows;
  }
  double mean() const { return rows == 0 ? 0.0 : sum / rows; }
};

std::vector<RefitSource> by_source(const FitPlan& plan, const std::vector<RefitRow>& rows, const Errors& shipped,
                                   const Errors& refitted, const Errors& left_out) {
  std::vector<RefitSource> sources;
  for (std::size_t source = 0; source < plan.sources.size(); ++source) {
    MeanError before;
    MeanError after;
    MeanError without;
    std::set<int> models;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (rows[row].source != source || !shipped[row]) continue;
      models.insert(rows[row].model);
      before.add(shipped[row]);
      after.add(refitted[row]);
      without.add(left_out[row]);
    }
    RefitSource errors{plan.sources[source], before.rows,  static_cast<int>(models.size()),
                       before.mean(),        after.mean(), std::nullopt};
    if (without.rows > 0) errors.left_out = without.mean();
    sources.push_back(errors);
  }
  return sources;
}

}  // namespace

Refit refit(const FitPlan& plan, const std::vector<PublishedFile>& files, const ReadFile& read_file,
            LeftOut without_its) {
  std::vector<RefitRow> rows = rows_of(plan, files);
  const bool models = without_its == LeftOut::kModels;
  const int count = number_models(rows);
  for (RefitRow& row : rows) row.part = models ? row.model : static_cast<int>(row.source);
  const int parts = models ? count : static_cast<int>(plan.sources.size());
  const Fitter fitter(plan, rows, read_file);
  const Values shipped = shipped_values(plan);
  const Linearised fitted = fitter.fit(shipped);
  Errors left_out(rows.size());
  for (int part = 0; parts > 1 && part < parts; ++part) {
    const Values without = fitter.minimise(fitted, part);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (rows[row].part == part) left_out[row] = fitter.error(rows[row], without);
    }
  }
  std::vector<LeftOutRow> rows_left_out;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (left_out[row]) rows_left_out.push_back({rows[row].row->id, *left_out[row]});
  }
  return {plan, fitted.at, by_source(plan, rows, fitter.errors(shipped), fitted.errors, left_out), rows_left_out};
}

Refit residuals_of(const FitPlan& plan, const std::vector<PublishedFile>& files, const ReadFile& read_file) {
  std::vector<RefitRow> rows = rows_of(plan, files);
  number_models(rows);
  const Values shipped = shipped_values(plan);
  const Errors errors = Fitter(plan, rows, read_file).errors(shipped);
  return {plan, shipped, by_source(plan, rows, errors, errors, Errors(rows.size())), {}};
}

namespace {

// Six digits exceed the precision of these figures and keep the file readable.
double rounded_figure(double value) {
  constexpr double kDigits = 1e6;
  return std::round(value * kDigits) / kDigits;
}

}  // namespace

std::string write_refits(const std::vector<Refit>& fits) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Refit& fit : fits) {
    nlohmann::ordered_json constants = nlohmann::ordered_json::array();
    for (std::size_t index = 0; index < fit.values.size(); ++index) {
      const FittedConstant& constant = fit.plan.constants[index];
      constants.push_back({{"entry", constant.entry},
                           {"figure", constant.figure},
                           {"unit", constant.unit},
                           {"shipped", rounded_figure(constant.shipped)},
                           {"refitted", rounded_figure(fit.values[index])},
                           {"at_bound", at_bound(constant, fit.values[index])}});
    }
    nlohmann::ordered_json sources = nlohmann::ordered_json::array();
    for (const RefitSource& source : fit.sources) {
      nlohmann::ordered_json json = {{"source", source.source},
                                     {"rows", source.rows},
                                     {"models", source.models},
                                     {"shipped", rounded_figure(source.shipped)},
                                     {"refitted", rounded_figure(source.refitted)}};
      json["left_out"] =
          source.left_out ? nlohmann::ordered_json(rounded_figure(*source.left_out)) : nlohmann::ordered_json(nullptr);
      sources.push_back(std::move(json));
    }
    all.push_back({{"name", fit.plan.name}, {"constants", std::move(constants)}, {"sources", std::move(sources)}});
  }
  return nlohmann::ordered_json{{"fits", std::move(all)}}.dump(2);
}

std::vector<Refit> stored_refits() {
  std::vector<Refit> fits;
  const std::vector<FitPlan> plans = shipped_fits();
  const nlohmann::ordered_json file = nlohmann::ordered_json::parse(embedded_residuals().front().text);
  for (const nlohmann::ordered_json& json : file.at("fits")) {
    Refit fit;
    for (const FitPlan& plan : plans) {
      if (plan.name == json.at("name").get<std::string>()) fit.plan = plan;
    }
    for (const nlohmann::ordered_json& constant : json.at("constants")) fit.values.push_back(constant.at("refitted"));
    for (const nlohmann::ordered_json& source : json.at("sources")) {
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
