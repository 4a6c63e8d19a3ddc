#include "cli/refit_tables.hpp"

#include <fmt/format.h>

namespace flopcast {

std::vector<Table> refit_tables(const std::vector<Refit>& fits) {
  Table constants;
  constants.title = "Constants";
  constants.columns = {text_column("fit"),
                       text_column("entry"),
                       text_column("figure"),
                       text_column("unit"),
                       number_column("shipped"),
                       number_column("refitted"),
                       text_column("at a bound", "at_bound")};
  Table errors;
  errors.title = "Mean absolute error of the step time, %";
  errors.columns = {text_column("fit"),
                    text_column("source"),
                    number_column("rows"),
                    number_column("models"),
                    number_column("shipped"),
                    number_column("refitted"),
                    number_column("left out", "left_out")};
  const auto percent = [](double fraction) { return fmt::format("{:.2f}", fraction * 100.0); };
  for (const Refit& fit : fits) {
    for (std::size_t index = 0; index < fit.values.size(); ++index) {
      const FittedConstant& constant = fit.plan.constants[index];
      const double value = fit.values[index];
      constants.rows.push_back({fit.plan.name, constant.entry, constant.figure, constant.unit,
                                fmt::format("{:.4g}", constant.shipped), fmt::format("{:.4g}", value),
                                at_bound(constant, value) ? "yes" : "no"});
    }
    for (const RefitSource& source : fit.sources) {
      errors.rows.push_back({fit.plan.name, source.source, fmt::format("{}", source.rows),
                             fmt::format("{}", source.models), percent(source.shipped), percent(source.refitted),
                             source.left_out ? percent(*source.left_out) : ""});
    }
  }
  errors.notes.emplace_back("left out: every row with constants fitted without any row of its model");
  return {constants, errors};
}

}  // namespace flopcast
