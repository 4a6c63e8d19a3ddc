#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "api/schedule/options.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "planner/tables/tables.hpp"
#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {

namespace {

struct UpdateRule {
  WeightPolicy policy = WeightPolicy::kFlushed;
  int accumulation = 1;
};

WeightPolicy policy_named(const std::string& text) {
  return static_cast<WeightPolicy>(choice_of("--policy", text, names_of<WeightPolicy>(), "policy"));
}

// A schedule from a file is executed with a flush unless --policy selects another policy.
UpdateRule rule_of_file(const Program& program, const ScheduleOptions& schedule,
                        const std::optional<std::string>& policy) {
  UpdateRule rule;
  rule.policy = policy ? policy_named(*policy) : WeightPolicy::kFlushed;
  if (schedule.accumulation() && *schedule.accumulation() < 1) {
    throw ConfigError(
        {"--accumulation", fmt::format("{} is out of range", *schedule.accumulation()), "", "give at least 1"});
  }
  if (rule.policy == WeightPolicy::kFlushed) {
    if (schedule.accumulation()) {
      throw ConfigError({"--accumulation",
                         fmt::format("{} has no effect if all microbatches make one update", *schedule.accumulation()),
                         "", "give --policy stashed, vertical-sync, double-buffered or newest"});
    }
    rule.accumulation = std::max(1, program.microbatches_of(program.chains.front()));
  } else {
    const int fewest = rule.policy == WeightPolicy::kDoubleBuffered ? program.rank_count() : 1;
    rule.accumulation = schedule.accumulation().value_or(fewest);
  }
  return rule;
}

UpdateRule rule_of_schedule(const Program& program, const ScheduleOptions& schedule,
                            const std::optional<std::string>& policy) {
  const ScheduleInfo& info = *parse_schedule_name(*schedule.schedule()).info;
  ScheduleRequest request = schedule.request();
  UpdateRule rule;
  rule.policy = info.weight_policy(request);
  if (policy && rule.policy == WeightPolicy::kStashed && policy_named(*policy) == WeightPolicy::kVerticalSync) {
    rule.policy = WeightPolicy::kVerticalSync;
  }
  if (policy && policy_named(*policy) != rule.policy) {
    throw ConfigError({"--policy",
                       fmt::format("{} conflicts with {}, which uses {}", *policy, info.name, name_of(rule.policy)), "",
                       "leave it out; vertical-sync is valid with --schedule pipedream"});
  }
  // With all microbatches in one update, an asynchronous schedule would show only one version.
  const bool shows_updates = schedule.accumulation() || request.microbatches < 2 * request.pipeline_ranks;
  if (!shows_updates && info.asynchronous) {
    ScheduleRequest shorter = request;
    shorter.accumulation = request.pipeline_ranks;
    if (!refuse_request(info, shorter)) request = shorter;
  }
  rule.accumulation =
      info.asynchronous ? info.weights.accumulation(request) : program.microbatches_of(program.chains.front());
  return rule;
}

void require_comparable_updates(const Program& program, const UpdateRule& rule) {
  for (const Chain& chain : program.chains) {
    for (int stage = chain.first_stage; stage <= chain.last_stage; ++stage) {
      if (rule.policy != WeightPolicy::kVerticalSync || program.replicas(stage) == program.replicas(chain.first_stage))
        continue;
      throw ConfigError(
          {"--policy",
           fmt::format("vertical-sync compares the updates of stages, but stage {} has {} replicas and "
                       "stage {} has {}",
                       chain.first_stage, program.replicas(chain.first_stage), stage, program.replicas(stage)),
           "", "use the same number of replicas on every stage"});
    }
  }
}

std::string ranks_of(const Program& program, int stage) {
  const int first = program.rank_of_stage[static_cast<std::size_t>(stage)];
  const int last = first + program.replicas(stage) - 1;
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

nlohmann::ordered_json versions_json(const Program& program, const UpdateRule& rule,
                                     const std::vector<StageVersions>& stages) {
  nlohmann::ordered_json json = {{"schedule", program.schedule},
                                 {"policy", name_of(rule.policy)},
                                 {"accumulation", rule.accumulation},
                                 {"stages", nlohmann::ordered_json::array()}};
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const StageVersions& weights = stages[stage];
    json["stages"].push_back({{"stage", stage},
                              {"rank", program.rank_of_stage[stage]},
                              {"replicas", program.replicas(static_cast<int>(stage))},
                              {"versions_kept", weights.versions_kept},
                              {"staleness", weights.largest_delay()},
                              {"version", weights.version},
                              {"backward_version", weights.backward_version},
                              {"delay", weights.delay}});
  }
  return json;
}

Table versions_table(const Program& program, const UpdateRule& rule, const std::vector<StageVersions>& stages) {
  Table table;
  // A flush waits for all replicas; otherwise each counts its own microbatches.
  const bool by_replica = !program.replicas_of_stage.empty() && rule.policy != WeightPolicy::kFlushed;
  table.title = fmt::format("{}: {} weights, updated every {} microbatch{}{}{}", program.schedule, name_of(rule.policy),
                            rule.accumulation, rule.accumulation == 1 ? "" : "es", by_replica ? " of each replica" : "",
                            program.chains.size() > 1 ? " of each copy" : "");
  table.columns = {number_column("stage"),
                   text_column("rank"),
                   number_column("versions kept"),
                   number_column("staleness"),
                   text_column("version of F0, F1, …", "versions"),
                   text_column("version of B0, B1, …", "backward_versions")};
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const StageVersions& weights = stages[stage];
    table.rows.push_back({fmt::format("{}", stage), ranks_of(program, static_cast<int>(stage)),
                          fmt::format("{}", weights.versions_kept), fmt::format("{}", weights.largest_delay()),
                          fmt::format("{}", fmt::join(weights.version, " ")),
                          fmt::format("{}", fmt::join(weights.backward_version, " "))});
  }
  table.notes = {
      "a version is the number of updates before it",
      "staleness: largest number of updates between a forward pass's version and the one that its gradient updates"};
  return table;
}

}  // namespace

Answer versions_answer(const ScheduleOptions& schedule, const std::optional<std::string>& policy,
                       const Streams& streams) {
  auto program = std::make_shared<const Program>(schedule.program(streams));
  require_valid(*program);
  const UpdateRule rule =
      schedule.file() ? rule_of_file(*program, schedule, policy) : rule_of_schedule(*program, schedule, policy);
  require_comparable_updates(*program, rule);
  auto stages =
      std::make_shared<const std::vector<StageVersions>>(weight_versions(*program, rule.policy, rule.accumulation));
  return {.tables = [=] { return std::vector<Table>{versions_table(*program, rule, *stages)}; },
          .json = [=] { return dumped(versions_json(*program, rule, *stages), 2); }};
}

namespace {

using Json = nlohmann::ordered_json;

// Whole numbers stay integers, so that readers can compare them exactly.
Json number_in_units(double ticks) {
  const double units = in_units(ticks);
  return std::floor(units) == units && std::abs(units) < 1e15 ? Json(static_cast<std::int64_t>(units)) : Json(units);
}
Json number_in_units(Ticks ticks) {
  return number_in_units(static_cast<double>(ticks));
}

Json metrics_json(const TimelineMetrics& metrics) {
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < metrics.ranks.size(); ++rank) {
    const RankMetrics& row = metrics.ranks[rank];
    ranks.push_back({{"busy", number_in_units(row.busy)},
                     {"first_start", number_in_units(row.first_start)},
                     {"last_end", number_in_units(row.last_end)},
                     {"idle_fraction", metrics.idle_fraction(rank)},
                     {"span", number_in_units(row.span())},
                     {"peak_in_flight", row.peak_in_flight}});
  }
  return {
      {"makespan", number_in_units(metrics.makespan)}, {"bubble_fraction", metrics.idle_fraction()}, {"ranks", ranks}};
}

Table metrics_table(const Program& program, const TimelineMetrics& metrics) {
  const auto number = [](Ticks ticks) { return number_in_units(ticks).dump(); };
  Table table = {
      .title = fmt::format("{}: makespan {}, bubble fraction {:.4f} (idle share of all ranks), bubble ratio {:.4f} "
                           "(over the busiest rank)",
                           program.schedule, number(metrics.makespan), metrics.idle_fraction(), metrics.bubble_ratio()),
      .columns = {number_column("rank"), number_column("busy"), number_column("first start"), number_column("last end"),
                  number_column("idle share", "idle_fraction"), number_column("span"),
                  number_column("peak in flight")}};
  for (std::size_t rank = 0; rank < metrics.ranks.size(); ++rank) {
    const RankMetrics& row = metrics.ranks[rank];
    table.rows.push_back({fmt::format("{}", rank), number(row.busy), number(row.first_start), number(row.last_end),
                          fmt::format("{:.6f}", metrics.idle_fraction(rank)), number(row.span()),
                          fmt::format("{}", row.peak_in_flight)});
  }
  return table;
}

// Steady state of a pipeline that never flushes.
struct Steady {
  SteadyState state;
  CriticalCycle cycle;
};

// Only for generated asynchronous schedules; a file does not determine further microbatches.
std::optional<Steady> steady_of(const ScheduleOptions& schedule, const StepTimes& times) {
  if (schedule.file()) return std::nullopt;
  const ScheduleInfo& info = *parse_schedule_name(*schedule.schedule()).info;
  if (!info.asynchronous) return std::nullopt;
  const auto generate = [&](int microbatches) {
    ScheduleRequest request = schedule.request();
    request.microbatches = microbatches;
    return info.generate(request);
  };
  const std::optional<CriticalCycle> cycle = critical_cycle(generate, times);
  if (!cycle) return std::nullopt;
  return Steady{steady_state(generate, times), *cycle};
}

Json steady_json(const Steady& steady) {
  Json steps = Json::array();
  for (const CriticalCycle::Step& step : steady.cycle.steps) {
    steps.push_back({{"rank", step.rank}, {"action", to_string(step.action)}});
  }
  return {{"period", number_in_units(steady.cycle.period_ticks())},
          {"fill", number_in_units(steady.state.fill_ticks)},
          {"idle_fraction", steady.state.idle_fraction},
          {"cycle",
           {{"time", number_in_units(steady.cycle.time)},
            {"microbatches", steady.cycle.microbatches},
            {"actions", std::move(steps)}}}};
}

std::string steady_note(const Steady& steady) {
  const std::optional<int> busy = steady.cycle.only_rank();
  const std::string why = busy ? fmt::format("rank {} never waits", *busy)
                               : fmt::format("{} every {} microbatch{}", number_in_units(steady.cycle.time).dump(),
                                             steady.cycle.microbatches, steady.cycle.microbatches == 1 ? "" : "es");
  return fmt::format("steady state: period {} per microbatch, fill {} once, cycle {} ({})",
                     number_in_units(steady.cycle.period_ticks()).dump(),
                     number_in_units(steady.state.fill_ticks).dump(), describe(steady.cycle), why);
}

class ScheduleSimulate final : public Question {
 public:
  void declare(Form& form) override {
    schedule_.add_to(form);
    times_.add_to(form);
    form.place_output();
  }

  Answer ask(const Context& context) override {
    const auto times_of = [this](const Program& stages) { return times_.times_for(stages); };
    program_ = schedule_.program(times_of, context.streams);
    require_valid(program_);
    const StepTimes step_times = times_.times_for(program_);
    refuse_unused_fused(times_, has_pairs(program_), "schedule " + program_.schedule);
    if (const std::string assumed = times_.assumed_for(program_); !assumed.empty()) context.warn(assumed);
    metrics_ = measure(simulate(program_, step_times));
    steady_ = steady_of(schedule_, step_times);
    return {.tables = [this] { return std::vector<Table>{table()}; }, .json = [this] { return json(); }};
  }

 private:
  Table table() const {
    Table table = metrics_table(program_, metrics_);
    if (steady_) table.notes.push_back(steady_note(*steady_));
    return table;
  }
  std::string json() const {
    Json values = metrics_json(metrics_);
    if (steady_) values["steady"] = steady_json(*steady_);
    return dumped(values, 2);
  }

  ScheduleOptions schedule_;
  TimeOptions times_;

  Program program_;
  TimelineMetrics metrics_;
  std::optional<Steady> steady_;
};

}  // namespace

QuestionInfo schedule_simulate_question() {
  return {
      "schedule simulate",
      "simulate a schedule with given times: makespan, idle time, activations",
      "flopcast schedule simulate (FILE.csv | --schedule NAME --pp P --microbatches M) --forward T --backward T "
      "[options]",
      "Simulates a schedule: every rank executes its order, and an action starts when its rank is free and its inputs "
      "have "
      "arrived. Transfers have latency only.",
      {"flopcast schedule simulate --schedule 1f1b --pp 4 --microbatches 8 --forward 1 --backward 2",
       "flopcast schedule simulate mine.csv --forward 10,12 --backward-input 11 --backward-weight 9 --p2p 1 --format "
       "json"},
      make_question<ScheduleSimulate>};
}

}  // namespace flopcast
