#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "api/options/job_options.hpp"
#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/job/read_job.hpp"
#include "model/partition/balanced_split.hpp"
#include "model/partition/pipedream_planner.hpp"
#include "model/units/quantity.hpp"
#include "planner/tables/tables.hpp"
#include "reports/result/result_tables.hpp"
#include "sim/forecast/forecast.hpp"

namespace flopcast {

namespace {

struct PlannerFlags {
  std::optional<std::string> costs;
  std::optional<int> stages;
  std::optional<std::string> graph;
  std::optional<std::string> workers;
  std::optional<std::string> bandwidth;
  std::optional<std::string> rules;
  std::optional<std::string> memory;
  std::optional<std::string> compression;
  bool straight = false;
  bool fewer = false;
};

[[noreturn]] void refuse(const char* flag, const std::string& problem, const std::string& help) {
  throw ConfigError({flag, problem, "", help});
}

double number(const char* flag, const std::string& text) {
  const std::optional<double> value = parse_number(text);
  const bool valid = value && *value >= 0 && *value < 1e300;
  if (!valid) refuse(flag, fmt::format("\"{}\" is not a number of 0 or more", text), "");
  return *value;
}

double quantity(const char* flag, const std::string& text, Dimension dimension) {
  const ParsedQuantity parsed = parse_quantity(text, dimension);
  if (!parsed.value) {
    refuse(flag, fmt::format("\"{}\" {}", text, parsed.problem), "units: " + accepted_units(dimension));
  }
  return *parsed.value;
}

std::vector<PlannerLevel> levels_of(const PlannerFlags& flags) {
  if (!flags.workers) refuse("--workers", "is missing", "give a count such as 16, or 4x2 for two nodes of four");
  std::vector<PlannerLevel> levels;
  for (const std::string& units : split(*flags.workers, 'x')) {
    constexpr double kMost = 1e6;
    const double count = number("--workers", units);
    if (count < 1 || count > kMost || count != static_cast<int>(count)) {
      refuse("--workers", fmt::format("\"{}\" is not a number of workers", units), "give a count such as 16, or 4x2");
    }
    levels.push_back({static_cast<int>(count), BytesPerSecond()});
  }
  const std::string help = fmt::format(
      "--workers {} has {} levels: give one rate per level, innermost first, such as "
      "10GB/s,1GB/s",
      *flags.workers, levels.size());
  if (!flags.bandwidth) refuse("--bandwidth", "is missing", help);
  const std::vector<std::string> rates = split(*flags.bandwidth, ',');
  if (rates.size() != levels.size()) refuse("--bandwidth", fmt::format("has {} rates", rates.size()), help);
  for (std::size_t index = 0; index < rates.size(); ++index) {
    levels[index].bandwidth = BytesPerSecond(quantity("--bandwidth", rates[index], Dimension::kBandwidth));
    if (!(levels[index].bandwidth.value() > 0)) refuse("--bandwidth", "is 0 B/s", "give more than 0");
  }
  return levels;
}

PlannerOptions options_of(const PlannerFlags& flags) {
  PlannerOptions options;
  options.rules = static_cast<PlannerRules>(choice_of("--rules", flags.rules.value_or("paper"), {"paper", "code"}));
  options.straight = flags.straight;
  options.fewer_workers = flags.fewer;
  if (flags.memory) options.memory = Bytes(quantity("--memory", *flags.memory, Dimension::kBytes));
  if (flags.compression) {
    options.activation_compression = number("--activation-compression", *flags.compression);
    if (*options.activation_compression == 0) refuse("--activation-compression", "is 0", "give more than 0");
  }
  return options;
}

std::string last_layers(const LayerGraph& graph, const CutStates& cuts, const CutState& state) {
  std::string names;
  for (const std::size_t layer : cuts.kept) {
    const std::vector<std::size_t>& next = graph.layers[layer].successors;
    const bool inner = std::any_of(next.begin(), next.end(), [&](std::size_t other) { return state.holds(other); });
    if (state.holds(layer) && !inner) names += (names.empty() ? "" : " ") + graph.layers[layer].name;
  }
  return names;
}

// The plan as layer counts along the order in which a profile's layers are simulated; nullopt if a stage is not
// contiguous in that order.
std::optional<std::vector<int>> along_the_row(const LayerGraph& graph, const CutStates& cuts,
                                              const PipelinePlan& plan) {
  const std::set<std::size_t> kept(cuts.kept.begin(), cuts.kept.end());
  std::vector<std::size_t> row;
  std::copy_if(graph.row.begin(), graph.row.end(), std::back_inserter(row),
               [&graph](std::size_t layer) { return !graph.layers[layer].is_input; });
  std::vector<int> counts;
  std::size_t before = 0;
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
    const CutState& state = cuts.states[plan.stages[stage].last_state];
    std::size_t end = before;
    while (end < row.size() && (kept.count(row[end]) == 0 || state.holds(row[end]))) ++end;
    const auto beyond = [&](std::size_t layer) { return state.holds(layer); };
    if (std::any_of(row.begin() + static_cast<std::ptrdiff_t>(end), row.end(), beyond)) return std::nullopt;
    counts.push_back(static_cast<int>(end - before));
    before = end;
  }
  return before == row.size() ? std::optional(counts) : std::nullopt;
}

int kept_layers(const CutStates& cuts, std::size_t state) {
  return static_cast<int>(std::count_if(cuts.kept.begin(), cuts.kept.end(),
                                        [&](std::size_t layer) { return cuts.states[state].holds(layer); }));
}

PartitionAnswer answer_for_graph(const PlannerFlags& flags) {
  const std::vector<PlannerLevel> levels = levels_of(flags);
  const PlannerOptions options = options_of(flags);
  const LayerGraph graph = read_layer_graph(read_file(*flags.graph), *flags.graph);
  const CutStates cuts = cut_states(graph);
  const auto plan = plan_pipeline(cuts, levels, options);
  if (!plan) {
    throw NegativeAnswer(options.memory ? fmt::format("no plan fits into {} per worker", *flags.memory)
                                        : std::string("no split has a stage for every worker: add --fewer"));
  }
  PartitionAnswer answer;
  const bool published = options.rules == PlannerRules::kPublishedCode;
  answer.method = published ? "pipedream code" : "pipedream paper";
  answer.title =
      fmt::format("{}: {} stage{} on {} workers of {}, rules of PipeDream's {}", *flags.graph, plan->stages.size(),
                  plan->stages.size() == 1 ? "" : "s", plan->workers, *flags.workers, published ? "code" : "paper");
  answer.work = "minibatch";
  answer.bottleneck = plan->time_per_minibatch.value();
  for (const PlannedStage& planned : plan->stages) {
    PartitionStage stage;
    stage.layers = kept_layers(cuts, planned.last_state) -
                   (planned.first_state == 0 ? 0 : kept_layers(cuts, planned.first_state - 1));
    stage.time = planned.compute.value();
    stage.replicas = planned.replicas;
    stage.last_layers = last_layers(graph, cuts, cuts.states[planned.last_state]);
    answer.stages.push_back(stage);
  }
  answer.stage_layers = along_the_row(graph, cuts, *plan);
  answer.notes.push_back(fmt::format("{:.2f} x one worker; {:.2f} x data parallelism on all",
                                     plan->one_worker / plan->time_per_minibatch,
                                     plan->data_parallel / plan->time_per_minibatch));
  if (!answer.stage_layers)
    answer.notes.emplace_back("a stage is not contiguous in the layer order: no list of counts");
  if (cuts.in_a_row) answer.notes.emplace_back("too many cuts in the graph: its layers were treated as a chain");
  return answer;
}

PartitionAnswer answer_for_costs(const PlannerFlags& flags) {
  if (!flags.stages) refuse("--stages", "is missing", "give the number of stages");
  std::vector<double> costs;
  for (const std::string& text : split(*flags.costs, ',')) costs.push_back(number("--costs", text));
  if (*flags.stages < 1 || static_cast<std::size_t>(*flags.stages) > costs.size()) {
    refuse("--stages", fmt::format("is {} for {} costs", *flags.stages, costs.size()),
           fmt::format("valid: 1 to {}", costs.size()));
  }
  PartitionAnswer answer;
  answer.method = "min-max";
  answer.title = fmt::format("{} layers in {} stages, minimizing the slowest", costs.size(), *flags.stages);
  answer.in_seconds = false;
  answer.stage_layers = min_max_partition(costs, *flags.stages);
  const std::vector<double> times = part_costs(costs, *answer.stage_layers);
  for (std::size_t index = 0; index < times.size(); ++index) {
    PartitionStage stage;
    stage.layers = (*answer.stage_layers)[index];
    stage.time = times[index];
    answer.stages.push_back(stage);
    answer.bottleneck = std::max(answer.bottleneck, stage.time);
  }
  return answer;
}

Forecast forecast_with(Job job, StageSplit split) {
  job.layout.stage_split = split;
  return forecast(job, read_file);
}

PartitionAnswer answer_for_job(const Job& job) {
  if (!job.layout.stage_layers.empty() || job.layout.stage_split) {
    throw ConfigError({"layout.stage_layers", "is computed by this command", job.origins.where("layout.stage_layers"),
                       "leave it out"});
  }
  const Forecast balanced = forecast_with(job, StageSplit::kBalanced);
  const PreparedStep& step = balanced.step;
  PartitionAnswer answer;
  answer.method = "balanced";
  answer.title = describe_job(step.job);
  answer.work = "microbatch";
  answer.stage_layers = step.job.layout.stage_layers;
  answer.step_s = balanced.result.iteration.time_s;
  answer.uniform_step_s = forecast_with(job, StageSplit::kUniform).result.iteration.time_s;
  std::vector<double> ranks(static_cast<std::size_t>(step.job.layout.pp), 0.0);
  for (int index = 0; index < step.stages.stages(); ++index) {
    const StageCosts& costs = step.costs.stages[static_cast<std::size_t>(index)];
    PartitionStage stage;
    stage.layers = costs.layers;
    stage.time = (costs.forward.total() + costs.recompute.total() + costs.input_gradient.total() +
                  costs.weight_gradient.total() - costs.tp_hidden)
                     .value();
    stage.rank = step.stages.rank_of_stage[static_cast<std::size_t>(index)];
    stage.replicas = step.job.layout.dp;
    ranks[static_cast<std::size_t>(*stage.rank)] += stage.time;
    answer.stages.push_back(stage);
  }
  // A bidirectional schedule takes two microbatches through each rank in that time.
  answer.bottleneck = *std::max_element(ranks.begin(), ranks.end()) * step.stages.model_stages /
                      static_cast<double>(step.stages.stages());
  if (!balanced.result.memory.fits) answer.notes.emplace_back("none of the splits tried fits");
  return answer;
}

void check_combination(const PlannerFlags& flags, const JobOptions& job) {
  const bool has_job = job.names_a_job();
  const int questions = (flags.costs ? 1 : 0) + (flags.graph ? 1 : 0) + (has_job ? 1 : 0);
  const char* const help = "give one of: a job, --costs 3,1,4 --stages N, --graph FILE --workers N --bandwidth RATE";
  if (questions == 0) refuse("partition", "has nothing to split", help);
  if (questions > 1) refuse("partition", "has more than one thing to split", help);
  for (const FlagValue* value : job.given()) {
    if (!has_job)
      refuse(value->flag.c_str(), "applies only to a job", "leave it out, or give JOB or --model and --cluster");
  }
  const auto belongs = [](bool given, bool allowed, const char* flag, const char* to) {
    if (given && !allowed) refuse(flag, fmt::format("applies only to {}", to), "leave it out");
  };
  belongs(flags.stages.has_value(), flags.costs.has_value(), "--stages", "--costs; for a job, set layout.pp");
  const bool graph = flags.graph.has_value();
  belongs(flags.workers.has_value(), graph, "--workers", "--graph");
  belongs(flags.bandwidth.has_value(), graph, "--bandwidth", "--graph");
  belongs(flags.rules.has_value(), graph, "--rules", "--graph");
  belongs(flags.memory.has_value(), graph, "--memory", "--graph");
  belongs(flags.compression.has_value(), graph, "--activation-compression", "--graph");
  belongs(flags.straight, graph, "--straight", "--graph");
  belongs(flags.fewer, graph, "--fewer", "--graph");
}

class Partition final : public Question {
 public:
  void declare(Form& form) override {
    form.begin_group("Bare costs");
    form.add_option("--costs", flags_.costs, "T,T,…", "time of each layer, in any unit");
    form.add_option("--stages", flags_.stages, "N", "number of stages to split them into");
    form.begin_group("PipeDream's planner");
    form.add_option("--graph", flags_.graph, "FILE", "profile in PipeDream's graph.txt format");
    form.add_option("--workers", flags_.workers, "N[xN…]", "workers per level of the network, innermost first");
    form.add_option("--bandwidth", flags_.bandwidth, "RATE[,…]", "bandwidth of each level");
    form.add_option("--rules", flags_.rules, "RULES", "paper (default) or code (as in the published optimizer)");
    form.add_option("--memory", flags_.memory, "SIZE", "memory per worker (default: unlimited)");
    form.add_option("--activation-compression", flags_.compression, "RATIO",
                    "divides the bytes sent at cuts; with --rules code, activations count only if it is given");
    form.add_flag("--straight", flags_.straight, "no replication");
    form.add_flag("--fewer", flags_.fewer, "leave workers idle if that is faster");
    form.begin_group("Options");
    job_.add_to(form);
    form.place_output();
  }

  Answer ask(const Context& context) override {
    check_combination(flags_, job_);
    const bool of_job = !flags_.costs && !flags_.graph;
    if (std::optional<Answer> config = of_job ? job_.config_answer(context) : std::nullopt) return std::move(*config);
    partition_ = flags_.costs   ? answer_for_costs(flags_)
                 : flags_.graph ? answer_for_graph(flags_)
                                : answer_for_job(job_.read());
    return {.tables = [this] { return std::vector<Table>{partition_table(partition_)}; },
            .json = [this] { return write_partition(partition_); }};
  }

 private:
  PlannerFlags flags_;
  JobOptions job_;
  PartitionAnswer partition_;
};

}  // namespace

QuestionInfo partition_question() {
  return {"partition",
          "assign layers to pipeline stages",
          "flopcast partition (JOB | --costs T,T,… --stages N | --graph FILE --workers N --bandwidth RATE) [options]",
          "Assigns layers to pipeline stages: for a job by the costs of its stages and simulation, for bare costs by "
          "the exact "
          "min-max split, for a PipeDream profile by PipeDream's planner, with replication.",
          {"flopcast partition --model llama3-8b --cluster 1xdgx-h100 --pp 8 --gbs 32",
           "flopcast partition --costs 3,1,4,1,5,9,2,6 --stages 3",
           "flopcast partition --graph vgg16.graph.txt --workers 4x2 --bandwidth 10GB/s,1GB/s --memory 16GB"},
          make_question<Partition>};
}

}  // namespace flopcast
