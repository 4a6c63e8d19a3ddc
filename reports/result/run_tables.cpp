#include "reports/result/result_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/text/by_member.hpp"
#include "base/text/words.hpp"
#include "sim/forecast/result.hpp"

namespace flopcast {

namespace {

// Quantiles over the simulated runs.
Table run_table(const RunResult& run, const std::optional<StepTimeInterval>& interval) {
  Table table;
  table.columns = {text_column(fmt::format("whole run, {} simulations", run.runs), "run"),
                   {"5th percentile", Align::kRight, "p5"},
                   {"median", Align::kRight, "p50"},
                   {"95th percentile", Align::kRight, "p95"}};
  const auto shares = [](const Quantiles& of) {
    return std::vector<std::string>{percent(of.p5) + " %", percent(of.p50) + " %", percent(of.p95) + " %"};
  };
  const auto add = [&table](const std::string& name, const std::vector<std::string>& cells) {
    table.rows.push_back({name});
    table.rows.back().insert(table.rows.back().end(), cells.begin(), cells.end());
  };
  add("days (wall-clock)", {rounded(run.days.p5, 4), rounded(run.days.p50, 4), rounded(run.days.p95, 4)});
  add("goodput (time of steps / wall-clock time)", shares(run.goodput));
  add("ETTR (time that advances training / wall-clock time)", shares(run.ettr));
  if (run.cost_usd) {
    add("cost (including spares)", {dollars(run.cost_usd->p5), dollars(run.cost_usd->p50), dollars(run.cost_usd->p95)});
  }
  if (run.interruptions_per_day > 0.0) {
    table.notes.push_back(
        fmt::format("an interruption every {}", time_in_days(kSecondsADay / run.interruptions_per_day)));
  }
  if (interval) {
    table.notes.push_back(fmt::format("step times as forecast, with an uncertainty of {}", plus_minus(*interval)));
  }
  const auto level = [&](const char* where, double interval_s) {
    if (interval_s > 0.0)
      table.notes.push_back(fmt::format("a checkpoint {} every {}", where, time_in_days(interval_s)));
  };
  level("in storage", run.storage_interval_s);
  level("in peer memory", run.memory_interval_s);
  if (run.checkpoint_interval_s > 0.0) {
    table.notes.push_back(
        fmt::format("a checkpoint takes {} GiB; it stops the run for {}, and restoring from storage takes {}",
                    thousands(run.checkpoint_gib), time_in_days(run.checkpoint_cost_s), time_in_days(run.restore_s)));
  }
  if (run.nodes_in_repair > 0.0) {
    table.notes.push_back(fmt::format(
        "{} nodes are in repair on average; {} spares suffice for 95 % of the time, {} are worth their cost",
        rounded(run.nodes_in_repair, 3), run.spares_for_95, run.spares_worth));
  }
  return table;
}

Table losses_table(const RunResult& run, bool all) {
  Table table;
  table.columns = {text_column("lost to", "lost_to"), {"time"}, {"share", Align::kRight, "share"}};
  const auto add = [&](const std::string& name, double seconds) {
    table.rows.push_back({name, time_in_days(seconds), percent(seconds / (run.days.p50 * kSecondsADay)) + " %"});
  };
  for (const NamedSeconds& part : run.lost_by_phase) {
    std::string words = part.name;
    std::replace(words.begin(), words.end(), '_', ' ');
    if (part.seconds > 0.0) add(words, part.seconds);
  }
  std::vector<NamedSeconds> causes = run.lost_by_cause;
  std::stable_sort(causes.begin(), causes.end(), descending_by(&NamedSeconds::seconds));
  constexpr std::size_t kShownCauses = 5;
  double others = 0.0;
  for (std::size_t place = 0; place < causes.size(); ++place) {
    if (causes[place].seconds <= 0.0) continue;
    if (all || place < kShownCauses) {
      add("cause: " + causes[place].name, causes[place].seconds);
    } else {
      others += causes[place].seconds;
    }
  }
  if (others > 0.0) add("other causes", others);
  return table;
}

Table options_table(const RunResult& run) {
  Table table;
  table.columns = {text_column("change to the run", "change"), {"goodput"}, {"days saved"}};
  const bool priced = std::any_of(run.options.begin(), run.options.end(),
                                  [](const RunOption& one) { return one.saved_usd.has_value(); });
  if (priced) table.columns.push_back({"money saved", Align::kRight, "saved"});
  for (const RunOption& option : run.options) {
    table.rows.push_back(
        {option.change, percent(option.goodput_p50) + " %", fmt::format("{:+.2f}", option.days_saved)});
    if (!priced) continue;
    const double saved = option.saved_usd.value_or(0.0);
    table.rows.back().push_back((saved < 0.0 ? "-" : "") + dollars(std::abs(saved)));
  }
  return table;
}

}  // namespace

std::vector<Table> run_tables(const Result& result, bool all) {
  if (!result.run) return {};
  std::vector<Table> tables = {run_table(*result.run, result.interval)};
  if (!losses_table(*result.run, true).rows.empty()) tables.push_back(losses_table(*result.run, all));
  if (!result.run->options.empty()) tables.push_back(options_table(*result.run));
  return tables;
}

}  // namespace flopcast
