#include "planner/tables/tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "model/job/read_job.hpp"
#include "planner/compare/compare.hpp"
#include "planner/plan/plan.hpp"
#include "sim/forecast/forecast.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

// Sums taken in different orders differ in their last digits, so differences below 10 ps are shown as 0.
std::string seconds_text(double seconds) {
  constexpr double kNothing = 1e-11;
  return fmt::format("{:.4g}", std::abs(seconds) < kNothing ? 0.0 : seconds);
}

// "tp=4 is 1.05 ± 0.01 times faster than job": the interval covers only what the two spend differently.
std::optional<std::string> faster_text(const ComparedLayout& a, const ComparedLayout& b) {
  const bool second_wins = b.result.iteration.time_s < a.result.iteration.time_s;
  const ComparedLayout& winner = second_wins ? b : a;
  const ComparedLayout& loser = second_wins ? a : b;
  const std::optional<TimeRatio> times = compare_times(winner.result, loser.result);
  constexpr double kSame = 0.0005;
  const double ratio = loser.result.iteration.time_s / winner.result.iteration.time_s;
  if (ratio < 1.0 + kSame) return fmt::format("{} and {} take equally long", a.name, b.name);
  if (!times) return fmt::format("{} is {:.2f} times faster than {}", winner.name, ratio, loser.name);
  std::string text = fmt::format("{} is {:.2f} ± {:.2f} times faster than {}", winner.name, times->ratio,
                                 times->half_width, loser.name);
  if (times->ratio - times->half_width < 1.0) text += ": too close for the forecast to separate them";
  return text;
}

Table terms_table(const std::vector<ComparedLayout>& layouts) {
  Table table;
  table.columns = {text_column("seconds per step", "term")};
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
      cells.push_back(seconds_text(terms[index][row].b_s));
      if (index > 0) cells.push_back(seconds_text(terms[index][row].delta_s()));
    }
    table.rows.push_back(std::move(cells));
  }
  std::vector<std::string> total = {"step time"};
  for (std::size_t index = 0; index < layouts.size(); ++index) {
    const double time_s = layouts[index].result.iteration.time_s;
    total.push_back(seconds_text(time_s));
    if (index > 0) total.push_back(seconds_text(time_s - layouts.front().result.iteration.time_s));
  }
  table.rows.push_back(std::move(total));
  for (std::size_t index = 1; index < layouts.size(); ++index) {
    if (auto said = faster_text(layouts.front(), layouts[index])) table.notes.push_back(std::move(*said));
  }
  return table;
}

Table summary_table(const std::vector<ComparedLayout>& layouts) {
  Table table;
  table.columns = {text_column("layout"),
                   number_column("step s"),
                   number_column("MFU %"),
                   number_column("bubble %"),
                   number_column("exposed %", "exposed_communication_percent"),
                   number_column("peak GiB"),
                   text_column("fits")};
  for (const ComparedLayout& layout : layouts) {
    const Result& result = layout.result;
    table.rows.push_back({layout.name, seconds_text(result.iteration.time_s),
                          fmt::format("{:.1f}", 100 * result.iteration.mfu),
                          fmt::format("{:.1f}", 100 * result.bubble.fraction),
                          fmt::format("{:.1f}", 100 * result.communication.exposed_fraction),
                          fmt::format("{:.1f}", result.memory.peak_gib), result.memory.fits ? "yes" : "no"});
  }
  return table;
}

Table runs_table(const std::vector<ComparedLayout>& layouts) {
  Table table;
  table.columns = {text_column("whole run", "layout"),
                   number_column("days"),
                   number_column("from"),
                   number_column("to"),
                   number_column("goodput %"),
                   number_column("interruptions per day", "interruptions_a_day")};
  for (const ComparedLayout& layout : layouts) {
    if (!layout.result.run) continue;
    const RunResult& run = *layout.result.run;
    table.rows.push_back({layout.name, fmt::format("{:.4g}", run.days.p50), fmt::format("{:.4g}", run.days.p5),
                          fmt::format("{:.4g}", run.days.p95), fmt::format("{:.1f}", 100 * run.goodput.p50),
                          fmt::format("{:.3g}", run.interruptions_per_day)});
  }
  table.notes.emplace_back("days: median, and 5th to 95th percentile, of the simulated runs");
  return table;
}

}  // namespace

std::vector<Table> comparison_tables(const std::vector<ComparedLayout>& layouts) {
  std::vector<Table> tables = {summary_table(layouts), terms_table(layouts)};
  Table runs = runs_table(layouts);
  if (!runs.rows.empty()) tables.push_back(std::move(runs));
  return tables;
}

Table strategies_table(const nlohmann::json& job_file, const Origins& origins, const ReadFile& read_file,
                       const ParallelFor& parallel_for) {
  nlohmann::json open = job_file;
  for (const char* axis : {"tp", "pp", "cp", "dp", "vpp", "schedule", "stage_layers"}) {
    if (open.contains("layout") && open["layout"].is_object()) open["layout"].erase(axis);
  }
  const PlanQuestion question = read_question(open, origins);
  Table table = {.title = "fastest layout of each strategy",
                 .columns = {text_column("strategy"), text_column("layout"), number_column("step s"),
                             number_column("MFU %"), number_column("exposed communication %", "exposed_percent"),
                             number_column("GB sent per GPU", "gb_sent"), number_column("peak GiB"),
                             text_column("fits"), number_column("memory saved %")}};
  double whole_gib = 0.0;
  for (const StrategyAnswer& answer : compare_strategies(question.job, question.space, parallel_for)) {
    if (!answer.planned) {
      table.rows.push_back(
          {answer.strategy.name, "no layout divides model, batch and GPUs", "", "", "", "", "", "", ""});
      continue;
    }
    const Result result = forecast(read_job(job_file_of(open, *answer.planned), Origins()), read_file).result;
    const Layout& layout = answer.planned->layout;
    const CommunicationResult& sent = result.communication;
    double bytes = 0.0;
    for (const Axis axis : kResultAxes) bytes += sent[axis].bytes_sent_per_rank;
    if (whole_gib == 0.0) whole_gib = result.memory.peak_gib;
    table.rows.push_back({answer.strategy.name,
                          fmt::format("tp {} pp {} dp {} mbs {} zero {} {} {}", layout.tp, layout.pp, layout.dp,
                                      layout.micro_batch_size, layout.zero, recompute_text(layout), layout.schedule),
                          fmt::format("{:.4g}", result.iteration.time_s),
                          fmt::format("{:.1f}", 100 * result.iteration.mfu),
                          fmt::format("{:.1f}", 100 * sent.exposed_fraction), fmt::format("{:.3g}", bytes / 1e9),
                          fmt::format("{:.1f}", result.memory.peak_gib), answer.fits ? "yes" : "no",
                          fmt::format("{:.0f}", 100 * (1 - result.memory.peak_gib / whole_gib))});
  }
  table.notes = {"memory saved relative to the first strategy with a layout"};
  return table;
}

namespace {

// Explains which optimizations have no row.
std::vector<std::string> optimization_notes(const Job& job) {
  std::vector<std::string> notes;
  if (job.cluster.host_bandwidth.value() <= 0.0) {
    notes.emplace_back("Gloo and MPI omitted: they copy through host memory, and cluster.host_bandwidth is not set");
  }
  if (job.layout.weight_shards() <= 1) {
    notes.emplace_back("preallocated gather buffers omitted: this job does not gather sharded weights");
  } else if (job.training.stack.gather_allocation.value() <= 0.0) {
    notes.push_back(
        fmt::format("preallocated gather buffers omitted: {} already keeps them; stacks that allocate need a measured "
                    "gather_allocation",
                    job.training.stack.name));
  }
  notes.emplace_back("times are per batch of the job; optimizations that change the batch are scaled to it");
  return notes;
}

}  // namespace

Table optimizations_table(const Job& job, const ReadFile& read_file) {
  Table table = {.title = "gain of each optimization on this job",
                 .columns = {text_column("optimization"), text_column("what changes", "changes"),
                             number_column("step s without", "without_s"), number_column("with", "with_s"),
                             number_column("step faster %", "faster_percent"),
                             number_column("exposed dp s without", "dp_without_s"), number_column("with", "dp_with_s"),
                             text_column("fits"), text_column("usually claimed", "claim")}};
  for (const Optimization& one : optimizations_of(job)) {
    const Result without = forecast(one.without, read_file).result;
    const Result with = forecast(one.with, read_file).result;
    // Scaled per sample: accumulation changes the number of samples in a step.
    const double before = one.without.layout.global_batch_size;
    const double scale = one.with.layout.global_batch_size / before;
    const double without_s = without.iteration.time_s * scale;
    table.rows.push_back({one.name, one.changes, fmt::format("{:.4g}", without_s),
                          fmt::format("{:.4g}", with.iteration.time_s),
                          fmt::format("{:.1f}", 100 * (without_s / with.iteration.time_s - 1)),
                          fmt::format("{:.4g}", without.breakdown.dp_comm_s * scale),
                          fmt::format("{:.4g}", with.breakdown.dp_comm_s), with.memory.fits ? "yes" : "no", one.claim});
  }
  table.notes = optimization_notes(job);
  return table;
}

namespace {

// A term of the forecast and the gap to the measurement.
struct GapTerm {
  std::string name;
  double forecast_s = 0.0;
  double gap_s = 0.0;  // share of the gap if every term were off by the same factor
  // Factor by which the term would exceed its forecast if it caused the whole gap; nothing if that were negative.
  std::optional<double> alone;
  std::string check;  // where to look
};

// A spread this wide is reported as a separate finding.
constexpr double kWideSpread = 0.05;

std::vector<std::string> notes_of(double gap, const MeasuredStep& measured) {
  std::vector<std::string> notes;
  if (measured.steps > 0) {
    notes.push_back(fmt::format("{} logged steps, 5th to 95th percentile {:.4g} to {:.4g} s", measured.steps,
                                measured.p5_s, measured.p95_s));
    if (measured.p95_s - measured.p5_s > kWideSpread * measured.median_s) {
      notes.emplace_back(
          "step times vary: check data loading, checkpoints and slow devices first (simulate --straggler)");
    }
  }
  notes.emplace_back(
      "gap s: share of the gap if every term is off by the same factor; alone: measured over forecast time of the term "
      "if it alone caused the gap");
  if (gap < 0.0)
    notes.emplace_back(
        "the run is faster than its forecast: check that both do the same work (sequence length, recompute)");
  notes.emplace_back("to measure each term, use flopcast run or calibrate on a trace");
  return notes;
}

// Sorted by time, largest first. The parts sum to the gap.
std::vector<GapTerm> gap_terms(const Result& forecast, double measured_s) {
  const double time_s = forecast.iteration.time_s;
  const double gap = measured_s - time_s;
  std::vector<GapTerm> terms;
  for (const ComparedTerm& term : compare_terms(forecast, forecast)) {
    if (term.a_s <= 0.0) continue;
    GapTerm part = {term.name, term.a_s, gap * term.a_s / time_s, std::nullopt, step_term(term.id).check};
    if (term.a_s + gap >= 0.0) part.alone = (term.a_s + gap) / term.a_s;
    terms.push_back(std::move(part));
  }
  std::stable_sort(terms.begin(), terms.end(),
                   [](const GapTerm& one, const GapTerm& other) { return one.forecast_s > other.forecast_s; });
  return terms;
}

}  // namespace

Table gap_table(const Result& forecast, const MeasuredStep& measured) {
  const double time_s = forecast.iteration.time_s;
  const double gap = measured.median_s - time_s;
  Table table;
  table.title =
      fmt::format("forecast {:.4g} s, measured {:.4g} s, {:+.1f} %", time_s, measured.median_s, 100.0 * gap / time_s);
  table.columns = {text_column("term"),
                   number_column("forecast s"),
                   number_column("share %"),
                   number_column("gap s", "gap_s"),
                   {"alone", Align::kRight, "alone", false},
                   text_column("what to check", "check")};
  for (const GapTerm& term : gap_terms(forecast, measured.median_s)) {
    constexpr double kMostTimes = 100.0;
    std::string alone = "impossible";
    if (term.alone) alone = *term.alone > kMostTimes ? "> 100 x" : fmt::format("{:.2f} x", *term.alone);
    table.rows.push_back({term.name, fmt::format("{:.4g}", term.forecast_s),
                          fmt::format("{:.1f}", 100.0 * term.forecast_s / time_s), fmt::format("{:.4g}", term.gap_s),
                          std::move(alone), term.check});
  }
  table.notes = notes_of(gap, measured);
  return table;
}

std::string write_gap(const Result& forecast, const MeasuredStep& measured) {
  Json terms = Json::array();
  for (const GapTerm& term : gap_terms(forecast, measured.median_s)) {
    Json entry = {{"name", term.name}, {"forecast_s", term.forecast_s}, {"gap_s", term.gap_s}};
    if (term.alone) entry["alone"] = *term.alone;
    entry["check"] = term.check;
    terms.push_back(std::move(entry));
  }
  Json json = {{"schema", "flopcast.gap/1"},
               {"forecast_s", forecast.iteration.time_s},
               {"measured_s", measured.median_s},
               {"gap_s", measured.median_s - forecast.iteration.time_s}};
  if (measured.steps > 0) {
    json["logged"] = {{"steps", measured.steps}, {"p5_s", measured.p5_s}, {"p95_s", measured.p95_s}};
  }
  json["terms"] = std::move(terms);
  return dumped(json, 2);
}

namespace {

struct Change {
  std::string name;
  std::function<void(Layout&)> make;
};

std::vector<Change> changes_of(const Layout& layout) {
  std::vector<Change> changes;
  const auto add = [&changes](std::string name, std::function<void(Layout&)> make) {
    changes.push_back({std::move(name), std::move(make)});
  };
  const int gbs = layout.global_batch_size;
  const int mbs = layout.micro_batch_size;
  add(fmt::format("twice the batch, {} sequences per step", 2 * gbs),
      [gbs](Layout& other) { other.global_batch_size = 2 * gbs; });
  add(fmt::format("microbatches of {} sequences", 2 * mbs), [mbs](Layout& other) { other.micro_batch_size = 2 * mbs; });
  if (mbs % 2 == 0) {
    add(fmt::format("microbatches of {} sequences", mbs / 2),
        [mbs](Layout& other) { other.micro_batch_size = mbs / 2; });
  }
  if (!layout.recompute_modules && !layout.recompute_layers) {
    for (const Recompute kind : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      if (kind == layout.recompute) continue;
      add(fmt::format("recompute {}", name_of(kind)), [kind](Layout& other) { other.recompute = kind; });
    }
  }
  if (layout.schedule == "1f1b") {
    add("2 chunks per rank, interleaved", [](Layout& other) {
      other.schedule = "interleaved";
      other.vpp = 2;
    });
  } else if (layout.schedule == "interleaved" && layout.vpp) {
    const int chunks = 2 * *layout.vpp;
    add(fmt::format("{} chunks per rank", chunks), [chunks](Layout& other) { other.vpp = chunks; });
  }
  if (layout.zero == 0 && layout.replicas() > 1 && layout.data_parallel == DataParallel::kDdp) {
    add("optimizer state sharded over replicas (ZeRO 1)", [](Layout& other) { other.zero = 1; });
  }
  if (!layout.sequence_parallel && layout.tp > 1) {
    add("sequence parallelism", [](Layout& other) { other.sequence_parallel = true; });
  }
  for (const Axis axis : {Axis::kTensor, Axis::kPipeline}) {
    const int ranks = layout[axis];
    const int dp = layout.dp;
    const auto add_split = [&](int wanted, int replicas) {
      add(fmt::format("{} {} and dp {}", name_of(axis), wanted, replicas), [=](Layout& other) {
        other[axis] = wanted;
        other.dp = replicas;
      });
    };
    if (ranks % 2 == 0) add_split(ranks / 2, 2 * dp);
    if (dp % 2 == 0) add_split(2 * ranks, dp / 2);
  }
  return changes;
}

// Returns nothing if the change does not give a valid job.
std::optional<Result> changed(Job job, const Change& change, const ReadFile& read_file) {
  change.make(job.layout);
  try {
    return forecast_figures(read_job(nlohmann::json(job_json(job)), Origins()), read_file).result;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

std::string largest_loss(const Result& result) {
  const StepTerm* largest = nullptr;
  for (const StepTerm& term : breakdown_terms()) {
    if (term.id == TermId::kCompute) continue;
    if (largest == nullptr || term.seconds(result) > largest->seconds(result)) largest = &term;
  }
  const double step = result.iteration.time_s;
  return fmt::format("{:.1f} % of the step is compute; the largest other part is {}: {:.1f} % ({}).",
                     100.0 * result.breakdown.compute_s / step, largest->name, 100.0 * largest->seconds(result) / step,
                     largest->what);
}

struct Tried {
  std::string name;
  double gain = 0.0;  ///< relative, in samples per second
  Result result;
};

constexpr double kWorthwhile = 0.01;

// Sorted: layouts that fit first, then by speed.
std::vector<Tried> changes_that_help(const Forecast& forecast, const ReadFile& read_file) {
  const Result& now = forecast.result;
  const Job& job = forecast.step.job;
  std::vector<Tried> tried;
  for (const Change& change : changes_of(job.layout)) {
    const std::optional<Result> result = changed(job, change, read_file);
    if (!result) continue;
    const double gain = result->iteration.samples_per_s / now.iteration.samples_per_s - 1.0;
    const bool helps = now.memory.fits ? gain >= kWorthwhile : result->memory.fits;
    if (helps) tried.push_back({change.name, gain, *result});
  }
  std::stable_sort(tried.begin(), tried.end(), [](const Tried& a, const Tried& b) {
    return std::pair(a.result.memory.fits, a.gain) > std::pair(b.result.memory.fits, b.gain);
  });
  return tried;
}

}  // namespace

std::vector<std::string> what_fits(const Forecast& forecast, const ReadFile& read_file) {
  constexpr std::size_t kMostListed = 3;
  if (forecast.result.memory.fits) return {};
  std::vector<std::string> lines;
  for (const Tried& one : changes_that_help(forecast, read_file)) {
    if (lines.size() == kMostListed) break;
    lines.push_back(fmt::format("{} fits: {:.1f} of {:.1f} GiB, {:.0f} % {} samples per second", one.name,
                                one.result.memory.shown_gib, one.result.memory.capacity_gib, 100.0 * std::abs(one.gain),
                                one.gain >= 0.0 ? "more" : "fewer"));
  }
  if (lines.empty()) lines.emplace_back("no single change tried makes it fit; flopcast plan searches all layouts");
  return lines;
}

std::vector<std::string> advice_on(const Forecast& forecast, const ReadFile& read_file) {
  constexpr std::size_t kMostListed = 5;
  const Result& now = forecast.result;
  const std::vector<Tried> tried = changes_that_help(forecast, read_file);
  std::vector<std::string> lines = {largest_loss(now)};
  if (!now.memory.fits) {
    lines.push_back(fmt::format(
        "The job needs {:.1f} GiB, but a GPU has {:.1f} GiB{}", now.memory.shown_gib, now.memory.capacity_gib,
        tried.empty() ? "; no single change tried makes it fit: flopcast plan searches all layouts."
                      : ". Changes that make it fit:"));
  }
  for (const Tried& one : tried) {
    if (lines.size() > kMostListed) break;
    const MemoryResult& memory = one.result.memory;
    std::string bubble;
    if (std::abs(one.result.bubble.fraction - now.bubble.fraction) >= kWorthwhile) {
      bubble = fmt::format(", bubble {:.1f} instead of {:.1f} %", 100.0 * one.result.bubble.fraction,
                           100.0 * now.bubble.fraction);
    }
    const std::string needs = fmt::format("{:.1f} of {:.1f} GiB", memory.shown_gib, memory.capacity_gib);
    lines.push_back(fmt::format("{}: {:.1f} % {} samples per second{}, {}{}.", one.name, 100.0 * std::abs(one.gain),
                                one.gain >= 0.0 ? "more" : "fewer", bubble, memory.fits ? "" : "but it needs ", needs));
  }
  if (now.memory.fits && tried.empty()) lines.emplace_back("None of the single changes tried gains 1 % or more.");
  return lines;
}

}  // namespace flopcast
