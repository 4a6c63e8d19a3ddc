#include "planner/tables/tables.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/text/words.hpp"
#include "model/config/document.hpp"
#include "planner/compare/compare.hpp"
#include "planner/plan/plan.hpp"
#include "reports/result/result_tables.hpp"
#include "reports/svg/charts.hpp"
#include "sim/files/result_file.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

std::string grouped(std::int64_t number) {
  return thousands(static_cast<double>(number));
}

std::optional<RunLength> length_of(const PlanAnswer& answer, const PlanEntry& entry) {
  return run_length(entry.forecast.step.job, entry.forecast.result.iteration.time_s, entry.planned.devices,
                    answer.options.interruptions);
}

Json run_json(const RunLength& length) {
  Json run = {{"steps", length.steps}, {"days", length.days}, {"gpu_hours", length.gpu_hours}};
  if (length.cost_usd) run["cost_usd"] = *length.cost_usd;
  if (length.energy_kwh) run["energy_kwh"] = *length.energy_kwh;
  run["goodput"] = length.goodput ? length.goodput->fraction : 1.0;
  if (length.goodput) {
    run["checkpoint_interval_s"] = length.goodput->interval_s;
    run["failures_per_day"] = length.goodput->failures_per_day;
  }
  return run;
}

bool is_tight(const PlanEntry& entry) {
  return entry.planned.memory_share > kRoomyMemory;
}

Json entry_json(const PlanAnswer& answer, const PlanEntry& entry, const nlohmann::json& root) {
  Json json = {{"layout", layout_section_of(root, entry.planned)}, {"result", result_json(entry.forecast)}};
  if (const auto& allocation = entry.planned.allocation) {
    json["allocation"] = {{"name", allocation->name}, {"nodes", allocation->nodes}};
  }
  // Without a pipeline there is nothing to schedule.
  if (entry.planned.layout.pp == 1) json["layout"]["schedule"] = nullptr;
  if (is_tight(entry)) json["tight"] = true;
  if (const std::optional<RunLength> length = length_of(answer, entry)) json["run"] = run_json(*length);
  return json;
}

Json entries_json(const PlanAnswer& answer, const std::vector<PlanEntry>& entries, const nlohmann::json& root) {
  Json list = Json::array();
  for (const PlanEntry& entry : entries) list.push_back(entry_json(answer, entry, root));
  return list;
}

// In kWh for the run, or in kJ for a step if the run's length is unknown.
double energy(const PlanAnswer& answer, const PlanEntry& entry) {
  if (const std::optional<RunLength> length = length_of(answer, entry)) return *length->energy_kwh;
  constexpr double kJoulesPerKilojoule = 1e3;
  return entry.forecast.result.iteration.time_s * entry.planned.devices *
         *device_watts(entry.forecast.step.job.cluster) / kJoulesPerKilojoule;
}

// The axes that tables list: expert parallelism only if the model has experts.
std::vector<Axis> listed_axes(const Job& job) {
  if (!job.model.experts) return {Axis::kTensor, Axis::kContext, Axis::kPipeline, Axis::kData};
  return {Axis::kTensor, Axis::kExpert, Axis::kContext, Axis::kPipeline, Axis::kData};
}

std::string placement_text(const Layout& layout) {
  std::string text;
  for (const Axis axis : layout.placement) text += (text.empty() ? "" : "-") + std::string(name_of(axis));
  return text;
}

std::vector<std::string> row_of(const PlanAnswer& answer, const PlanEntry& entry, std::size_t rank,
                                const std::vector<Axis>& axes) {
  const Layout& layout = entry.planned.layout;
  const Result& result = entry.forecast.result;
  std::vector<std::string> row = {std::to_string(rank), std::to_string(entry.planned.devices)};
  for (const Axis axis : axes) row.push_back(std::to_string(layout[axis]));
  if (entry.forecast.step.job.model.experts) row.push_back(std::to_string(layout.expert_tensor_ranks()));
  for (const int number : {*layout.vpp, layout.micro_batch_size, layout.zero}) row.push_back(std::to_string(number));
  row.push_back(layout.sequence_parallel ? "yes" : "no");
  row.emplace_back(recompute_text(layout));
  row.push_back(layout.pp == 1 ? "–" : layout.schedule);
  row.push_back(layout.stage_layers.empty() ? "even" : "uneven");
  if (entry.forecast.step.job.cluster.shares_links()) row.push_back(placement_text(layout));
  if (entry.planned.allocation) row.push_back(entry.planned.allocation->name);
  row.push_back(fmt::format("{:.4g}", result.iteration.time_s));
  row.push_back(percent(result.iteration.mfu));
  row.push_back(percent(result.bubble.fraction));
  row.push_back(percent(result.communication.exposed_fraction));
  row.push_back(fmt::format("{:.1f}", result.memory.peak_gib));
  row.push_back(percent(entry.planned.memory_share));
  row.emplace_back(is_tight(entry) ? "tight" : "yes");
  if (const std::optional<RunLength> length = length_of(answer, entry)) {
    row.push_back(fmt::format("{:.4g}", length->days));
    if (length->cost_usd) row.push_back(fmt::format("{:.0f}", *length->cost_usd));
  }
  if (answer.options.search.objective == Objective::kEnergy)
    row.push_back(fmt::format("{:.4g}", energy(answer, entry)));
  return row;
}

Table layouts_table(const PlanAnswer& answer, const std::vector<PlanEntry>& entries) {
  const Job& job = answer.ranked.front().forecast.step.job;
  const std::vector<Axis> axes = listed_axes(job);
  Table table;
  table.columns = {number_column("#", "rank"), number_column("GPUs")};
  for (const Axis axis : axes) table.columns.push_back(number_column(std::string(name_of(axis))));
  if (job.model.experts) table.columns.push_back(number_column("etp"));
  for (const char* number : {"vpp", "mbs", "zero"}) table.columns.push_back(number_column(number));
  table.columns.push_back(text_column("sp"));
  table.columns.push_back(text_column("recompute"));
  table.columns.push_back(text_column("schedule"));
  table.columns.push_back(text_column("split"));
  if (job.cluster.shares_links()) table.columns.push_back(text_column("axes"));
  if (entries.front().planned.allocation) table.columns.push_back(text_column("nodes", "allocation"));
  table.columns.push_back(number_column("step s"));
  table.columns.push_back(number_column("MFU %"));
  table.columns.push_back(number_column("bubble %"));
  table.columns.push_back(number_column("exposed %", "exposed_communication_percent"));
  table.columns.push_back(number_column("peak GiB"));
  table.columns.push_back(number_column("memory %", "memory_percent"));
  table.columns.push_back(text_column("fits"));
  if (const std::optional<RunLength> length = length_of(answer, answer.ranked.front())) {
    table.columns.push_back(number_column("days"));
    if (length->cost_usd) table.columns.push_back(number_column("cost $", "cost_usd"));
  }
  if (answer.options.search.objective == Objective::kEnergy) {
    table.columns.push_back(job.training.tokens ? number_column("kWh", "energy_kwh")
                                                : number_column("kJ per step", "step_energy_kj"));
  }
  for (std::size_t index = 0; index < entries.size(); ++index) {
    table.rows.push_back(row_of(answer, entries[index], index + 1, axes));
  }
  return table;
}

std::string listed(const std::vector<ComparedTerm>& terms) {
  std::string text;
  constexpr std::size_t kMostTerms = 3;
  for (std::size_t index = 0; index < std::min(kMostTerms, terms.size()); ++index) {
    text += fmt::format("{}{:.3g} s {}", index == 0 ? "" : ", ", std::abs(terms[index].delta_s()), terms[index].name);
  }
  return text;
}

bool is_another_kind(const Layout& a, const Layout& b) {
  return a.tp != b.tp || a.pp != b.pp || a.cp != b.cp || a.ep != b.ep || a.etp != b.etp || a.zero != b.zero ||
         a.recompute != b.recompute;
}

// The reason if no term of the step differs by enough to be named.
std::string small_reason(const PlannedLayout& best, const PlannedLayout& other) {
  if (best.devices != other.devices) return fmt::format("{} GPUs instead of {}", best.devices, other.devices);
  if (best.time_s < other.time_s) {
    return fmt::format("{:.2g} % faster in total, no single term stands out",
                       100.0 * (other.time_s / best.time_s - 1.0));
  }
  return best.memory_share < other.memory_share ? "less memory" : "simpler layout";
}

// Compares with the best layout of another kind, not with the same layout and another microbatch.
std::vector<std::string> why(const PlanAnswer& answer) {
  const PlanEntry& best = answer.ranked.front();
  for (std::size_t index = 1; index < answer.ranked.size(); ++index) {
    const PlanEntry& other = answer.ranked[index];
    if (!is_another_kind(best.planned.layout, other.planned.layout)) continue;
    constexpr double kWorthNaming = 0.001;
    const Reasons reasons = reasons_for(best.forecast.result, other.forecast.result, kWorthNaming);
    std::string text = fmt::format("why 1 beats {}: ", index + 1);
    text +=
        reasons.in_favour.empty() ? small_reason(best.planned, other.planned) : "saves " + listed(reasons.in_favour);
    if (!reasons.against.empty()) text += "; costs " + listed(reasons.against);
    return {text};
  }
  return {};
}

}  // namespace

std::string places_text(const std::vector<int>& places, std::size_t most) {
  std::vector<std::string> ranges;
  for (std::size_t first = 0; first < places.size();) {
    std::size_t last = first;
    while (last + 1 < places.size() && places[last + 1] == places[last] + 1) ++last;
    if (ranges.size() == most) {
      ranges.push_back(fmt::format("and {} more", places.size() - first));
      break;
    }
    ranges.push_back(last == first ? std::to_string(places[first]) : fmt::format("{}-{}", places[first], places[last]));
    first = last + 1;
  }
  return fmt::format("{}", fmt::join(ranges, ", "));
}

namespace {

// Lists the rows that the forecast cannot separate, and the optimism from picking the best of many.
std::vector<std::string> certainty_notes(const PlanAnswer& answer) {
  std::vector<const Result*> results;
  for (const PlanEntry& entry : answer.ranked) results.push_back(&entry.forecast.result);
  const std::optional<RankingCertainty> certainty = certainty_of(results);
  if (!certainty || results.size() < 2) return {};
  std::string rows;
  for (std::size_t row = 1; row < certainty->alike.size(); ++row) {
    if (certainty->alike[row]) rows += fmt::format("{}{}", rows.empty() ? "" : ", ", row + 1);
  }
  std::vector<std::string> notes;
  // The spread of neighbouring rows' errors is itself an estimate, so the probability is capped.
  constexpr double kSurest = 0.99;
  const std::string chance =
      certainty->first_is_best > kSurest ? "more than 99 %" : fmt::format("{:.0f} %", 100.0 * certainty->first_is_best);
  notes.push_back(fmt::format("1 is the fastest of these with {} probability{}", chance,
                              rows.empty() ? "" : fmt::format("; too close to separate from {}", rows)));
  constexpr double kRelevantShare = 0.001;
  if (certainty->optimism > kRelevantShare) {
    notes.push_back(fmt::format("picking the best of many forecasts is optimistic: expect {:.1f} % more time",
                                100.0 * certainty->optimism));
  }
  return notes;
}

Table advice_table(const PlanAnswer& answer) {
  Table table = {
      .title = "rules of thumb",
      .columns = {text_column("rule"), text_column("the best layout"), text_column("here"), text_column("source")}};
  for (const RuleOfThumb& rule : rules_of_thumb(answer.ranked.front().forecast)) {
    table.rows.push_back({rule.rule, rule.followed ? "agrees" : "disagrees", rule.here, rule.source});
  }
  return table;
}

std::vector<std::string> run_notes(const PlanAnswer& answer) {
  const PlanEntry& best = answer.ranked.front();
  const std::optional<RunLength> length = length_of(answer, best);
  if (!length || !length->goodput) return {};
  const Goodput& goodput = *length->goodput;
  return {fmt::format(
      "days include interruptions: {:.2g} failures per day on {} GPUs, a checkpoint every {:.0f} min, {:.1f} % "
      "of the time spent training",
      goodput.failures_per_day, best.planned.devices, goodput.interval_s / 60.0, 100.0 * goodput.fraction)};
}

// Explains how an objective is measured if the table has no column for it.
std::optional<std::string> objective_note(const PlanAnswer& answer) {
  const Job& job = answer.ranked.front().forecast.step.job;
  const Objective objective = answer.options.search.objective;
  if (objective == Objective::kEnergy) {
    return fmt::format(
        "energy covers the GPUs at {:.0f} W each (datasheet), busy or waiting: an upper estimate without hosts, "
        "network and cooling",
        *device_watts(job.cluster));
  }
  const bool priced = job.training.tokens && job.training.price_per_gpu_hour;
  if (objective != Objective::kCost || priced) return std::nullopt;
  return "cost is proportional to GPU time; give --tokens and --price for dollars";
}

// Uses the days and cost that the table below shows.
Result with_interruptions(const PlanAnswer& answer, const PlanEntry& entry) {
  Result result = entry.forecast.result;
  const std::optional<RunLength> length = length_of(answer, entry);
  if (!length || !result.training) return result;
  result.training->days = length->days;
  result.training->cost_usd = length->cost_usd;
  return result;
}

}  // namespace

std::string write_plan(const PlanAnswer& answer, const nlohmann::json& root) {
  Json rejected = Json::array();
  for (const RejectedLayouts& one : answer.search.rejected) {
    rejected.push_back({{"reason", one.reason}, {"count", one.count}});
  }
  const SpaceCounts& space = answer.search.space;
  const PlanEntry& best = answer.ranked.front();
  const Json json = {
      {"schema", "flopcast.plan/1"},
      {"job", job_file_of(root, best.planned)},
      {"best", entry_json(answer, best, root)},
      {"ranked", entries_json(answer, answer.ranked, root)},
      {"pareto", entries_json(answer, answer.pareto, root)},
      {"rejected", std::move(rejected)},
      {"space", {{"enumerated", space.enumerated}, {"pruned", space.pruned}, {"simulated", space.simulated}}}};
  return dumped(json, 2);
}

Table ranked_table(const PlanAnswer& answer) {
  return layouts_table(answer, answer.ranked);
}

std::string short_name(const Layout& layout) {
  std::string name;
  for (const Axis axis : kAxes) {
    if (layout[axis] == 1) continue;
    name += fmt::format("{}{} {}", name.empty() ? "" : " ", name_of(axis), layout[axis]);
    if (axis == Axis::kPipeline && layout.vpp.value_or(1) > 1) name += fmt::format("x{}", *layout.vpp);
  }
  if (layout.micro_batch_size > 1) name += fmt::format(" mbs {}", layout.micro_batch_size);
  return name.empty() ? "one GPU" : name;
}

std::string plan_svg(const PlanAnswer& answer, const FigureStyle& style) {
  std::vector<const PlanEntry*> entries;
  bool several_sizes = false;
  for (const std::vector<PlanEntry>* list : {&answer.ranked, &answer.pareto}) {
    for (const PlanEntry& entry : *list) {
      const auto same = [&entry](const PlanEntry* other) {
        return other->planned.devices == entry.planned.devices && other->planned.order == entry.planned.order;
      };
      if (std::any_of(entries.begin(), entries.end(), same)) continue;
      entries.push_back(&entry);
      several_sizes = several_sizes || entry.planned.devices != entries.front()->planned.devices;
    }
  }
  std::vector<SeriesPoint> points;
  for (const PlanEntry* entry : entries) {
    const Result& result = entry->forecast.result;
    points.push_back({several_sizes ? entry->planned.devices : result.memory.peak_gib, result.iteration.time_s,
                      short_name(entry->planned.layout)});
  }
  const std::string described = describe_job(answer.ranked.front().forecast.step.job);
  const SeriesChart chart = pareto_chart(described.substr(0, described.find(',')),
                                         {several_sizes ? "GPUs" : "peak memory, GiB"}, {"step time, seconds"}, points);
  SeriesSvgOptions options;
  static_cast<FigureStyle&>(options) = style;
  return write_series_svg({chart}, options);
}

Table rejected_table(const SearchResult& result) {
  Table table = {.title = "rejected layouts", .columns = {text_column("reason"), number_column("layouts", "count")}};
  for (const RejectedLayouts& one : result.rejected) table.rows.push_back({one.reason, std::to_string(one.count)});
  return table;
}

std::vector<Table> plan_tables(const PlanAnswer& answer) {
  const SpaceCounts& space = answer.search.space;
  std::int64_t rejected = 0;
  for (const RejectedLayouts& one : answer.search.rejected) rejected += one.count;
  Table ranked = ranked_table(answer);
  const std::string described = describe_job(answer.ranked.front().forecast.step.job);
  const Job& best_job = answer.ranked.front().forecast.step.job;
  ranked.title = fmt::format(
      "{}\n{}\ngbs {} sequences of {} tokens, {}, {}\n{} layouts: {} rejected, {} ruled out by bounds, "
      "{} simulated",
      answer_line(with_interruptions(answer, answer.ranked.front())), described.substr(0, described.find('\n')),
      best_job.layout.global_batch_size, best_job.training.sequence_length, name_of(best_job.training.precision),
      best_job.training.stack.name, grouped(space.enumerated), grouped(rejected), grouped(space.pruned),
      grouped(space.simulated));
  ranked.notes = why(answer);
  const PlanEntry& best = answer.ranked.front();
  const MemoryResult& memory = best.forecast.result.memory;
  if (const auto& allocation = answer.ranked.front().planned.allocation) {
    constexpr std::size_t kMostRanges = 8;
    ranked.notes.push_back(fmt::format("1 uses nodes {} of the fabric ({})",
                                       places_text(allocation->nodes, kMostRanges), allocation->name));
  }
  ranked.notes.push_back(fmt::format("the best leaves {:.1f} GiB of {:.0f} GiB free on its fullest GPU",
                                     memory.capacity_gib - memory.shown_gib, memory.capacity_gib));
  if (const auto& interval = best.forecast.result.interval) {
    ranked.notes.push_back(fmt::format("nine of ten measured steps are within {} of the forecast: {}",
                                       plus_minus(*interval), interval->evidence));
  }
  for (std::string& note : certainty_notes(answer)) ranked.notes.push_back(std::move(note));
  if (const std::optional<std::string> note = exchanges_compared(answer.ranked.front().forecast))
    ranked.notes.push_back(*note);
  for (const std::string& note : answer.notes) ranked.notes.push_back(note);
  for (std::string& note : run_notes(answer)) ranked.notes.push_back(std::move(note));
  if (const std::optional<std::string> note = objective_note(answer)) ranked.notes.push_back(*note);
  std::vector<Table> tables = {std::move(ranked)};
  if (answer.pareto.size() > 1) {
    Table front = layouts_table(answer, answer.pareto);
    const double reach = answer.options.search.pareto_reach;
    const std::string within =
        std::isfinite(reach) ? fmt::format(" within {:.0f} % of the best", 100.0 * (reach - 1.0)) : "";
    front.title = fmt::format("Pareto front: no other layout{} is better in time, memory and GPUs", within);
    tables.push_back(std::move(front));
  }
  if (!answer.verbose) return tables;
  if (!answer.search.rejected.empty()) tables.push_back(rejected_table(answer.search));
  tables.push_back(advice_table(answer));
  return tables;
}

}  // namespace flopcast
