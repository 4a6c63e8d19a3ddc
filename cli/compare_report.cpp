#include "cli/compare_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/compare/terms.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

Json side_json(const ComparedLayout& layout) {
  return {{"name", layout.name},
          {"time_s", layout.result.iteration.time_s},
          {"mfu", layout.result.iteration.mfu},
          {"peak_gib", layout.result.memory.peak_gib},
          {"fits", layout.result.memory.fits},
          {"result", layout.json}};
}

Json terms_json(const ComparedLayout& a, const ComparedLayout& b) {
  Json terms = Json::array();
  for (const ComparedTerm& term : compare_terms(a.result, b.result)) {
    terms.push_back({{"name", term.name}, {"a_s", term.a_s}, {"b_s", term.b_s}, {"delta_s", term.delta_s()}});
  }
  return terms;
}

// Sums of terms in another order differ in their last digits: a picosecond is nothing.
std::string number(double seconds) {
  constexpr double kNothing = 1e-11;
  return fmt::format("{:.4g}", std::abs(seconds) < kNothing ? 0.0 : seconds);
}

Table terms_table(const std::vector<ComparedLayout>& layouts) {
  Table table;
  table.columns = {text_column("seconds a step", "term")};
  for (std::size_t index = 0; index < layouts.size(); ++index) {
    table.columns.push_back(number_column(layouts[index].name, fmt::format("layout_{}", index + 1)));
    if (index > 0) table.columns.push_back(number_column("change", fmt::format("delta_{}", index + 1)));
  }
  std::vector<std::vector<ComparedTerm>> terms;
  for (const ComparedLayout& layout : layouts) terms.push_back(compare_terms(layouts.front().result, layout.result));
  for (std::size_t row = 0; row < terms.front().size(); ++row) {
    const bool spent = std::any_of(terms.begin(), terms.end(), [row](const auto& column) {
      return column[row].a_s != 0.0 || column[row].b_s != 0.0;
    });
    if (!spent) continue;
    std::vector<std::string> cells = {terms.front()[row].name};
    for (std::size_t index = 0; index < terms.size(); ++index) {
      cells.push_back(number(terms[index][row].b_s));
      if (index > 0) cells.push_back(number(terms[index][row].delta_s()));
    }
    table.rows.push_back(std::move(cells));
  }
  std::vector<std::string> total = {"step time"};
  for (std::size_t index = 0; index < layouts.size(); ++index) {
    const double time_s = layouts[index].result.iteration.time_s;
    total.push_back(number(time_s));
    if (index > 0) total.push_back(number(time_s - layouts.front().result.iteration.time_s));
  }
  table.rows.push_back(std::move(total));
  return table;
}

Table summary_table(const std::vector<ComparedLayout>& layouts) {
  Table table;
  table.columns = {text_column("layout"),
                   number_column("step s", "step_s"),
                   number_column("MFU %", "mfu_percent"),
                   number_column("bubble %", "bubble_percent"),
                   number_column("exposed %", "exposed_communication_percent"),
                   number_column("peak GiB", "peak_gib"),
                   text_column("fits")};
  for (const ComparedLayout& layout : layouts) {
    const Result& result = layout.result;
    table.rows.push_back({layout.name, number(result.iteration.time_s),
                          fmt::format("{:.1f}", 100 * result.iteration.mfu),
                          fmt::format("{:.1f}", 100 * result.bubble.fraction),
                          fmt::format("{:.1f}", 100 * result.communication.exposed_fraction),
                          fmt::format("{:.1f}", result.memory.peak_gib), result.memory.fits ? "yes" : "no"});
  }
  return table;
}

}  // namespace

std::vector<Table> comparison_tables(const std::vector<ComparedLayout>& layouts) {
  return {summary_table(layouts), terms_table(layouts)};
}

Json comparison_json(const std::vector<ComparedLayout>& layouts) {
  Json others = Json::array();
  for (std::size_t index = 2; index < layouts.size(); ++index) {
    others.push_back({{"b", side_json(layouts[index])}, {"terms", terms_json(layouts[0], layouts[index])}});
  }
  return {{"schema", "flopcast.comparison/1"},
          {"a", side_json(layouts[0])},
          {"b", side_json(layouts[1])},
          {"terms", terms_json(layouts[0], layouts[1])},
          {"others", std::move(others)}};
}

}  // namespace flopcast
