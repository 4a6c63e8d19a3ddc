#include "api/forecast/plan_flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/text/error.hpp"
#include "model/job/user_spelling.hpp"
#include "model/units/quantity.hpp"
#include "planner/shared/crew.hpp"

namespace flopcast {

namespace {

double quantity_of(const char* flag, const std::string& text, Dimension dimension) {
  const ParsedQuantity parsed = parse_quantity(text, dimension);
  if (parsed.value) return *parsed.value;
  throw ConfigError(
      {flag, fmt::format("\"{}\" {}", text, parsed.problem), "", fmt::format("units: {}", accepted_units(dimension))});
}

double seconds_of(const char* flag, const std::string& text) {
  return quantity_of(flag, text, Dimension::kTime);
}

}  // namespace

void PlanFlags::add_to(Form& form) {
  form.begin_group("Question");
  form.add_option("--objective", objective_, "KIND",
                  "time (default), cost, gpus or energy; all except time try every number of nodes");
  form.add_flag("--min-gpus", min_gpus_, "find the fewest nodes that fit: objective gpus, from 1 node");
  form.add_option("--max-gpus", max_gpus_, "N", "try every number of nodes up to N GPUs");
  form.add_option("--deadline", deadline_, "TIME", "limit for the whole run: 45d (needs --tokens)");
  form.add_option("--budget", budget_, "DOLLARS", "limit for the cost of the run: 200K (needs --tokens and --price)");
  form.add_flag("--methods", methods_,
                "compare methods of fine-tuning on one to eight GPUs of a node, each with its best layout");
  form.begin_group("Search");
  form.add_option("--schedules", schedules_, "A,B,…",
                  "pipeline schedules to search; all: also those that the stack does not support");
  form.add_option("--headroom", headroom_, "SHARE",
                  "memory left free on each GPU (default 5%, or less if nothing fits)");
  form.add_flag("--wide", wide_, "also search uneven chunks and lighter first and last stages");
  form.add_flag("--whole-front", whole_front_,
                "search the whole Pareto front, not only within 10 % of the best; takes longer");
  form.add_option("--top", top_, "N", "number of layouts to rank (default 10)");
  form.add_option("--threads", threads_, "N", "number of threads (default: one per core)");
  form.place_figure("draw the layouts found and their Pareto front");
  form.place_page();
  form.add_flag("--verbose,-v", verbose_, "also show rejected layouts and rules of thumb");
  form.begin_group("Interruptions");
  form.add_flag("--no-failures", no_failures_, "compute the duration without failures");
}

void PlanFlags::require_one_list(const std::optional<std::string>& schedule) const {
  if (!schedules_ || !schedule) return;
  throw ConfigError(
      {"--schedules", fmt::format("conflicts with --schedule {}", *schedule), "", "give only one of them"});
}

void PlanFlags::apply(SearchSpace& space) const {
  if (wide_) {
    const bool open = space.splits.size() > 1;
    if (open) space.splits = all_splits();
    space.uneven_chunks = true;
  }
  if (!schedules_ || is_research()) return;
  space.schedules.clear();
  for (const std::string& text : split(typed_schedules(*schedules_))) {
    const ScheduleName name = parse_schedule_name(text);
    if (name.chunks) {
      throw ConfigError({"--schedules", fmt::format("{} fixes the number of chunks", text), "",
                         fmt::format("omit :{} and give --vpp {}", *name.chunks, *name.chunks)});
    }
    space.schedules.push_back(schedule_choice(text));
  }
}

std::vector<std::string> PlanFlags::unsupported_by_methods(const Context& context) const {
  std::vector<std::string> given;
  for (const auto& [there, flag] :
       {std::pair(context.has_figure, "--svg"), std::pair(context.has_page, "--html"),
        std::pair(max_gpus_.has_value(), "--max-gpus"), std::pair(min_gpus_, "--min-gpus"),
        std::pair(objective_ == "gpus", "--objective gpus"), std::pair(top_.has_value(), "--top"),
        std::pair(whole_front_, "--whole-front"), std::pair(verbose_, "--verbose")}) {
    if (there) given.emplace_back(flag);
  }
  return given;
}

std::optional<double> PlanFlags::memory_limit() const {
  if (!headroom_) return std::nullopt;
  const bool is_percent = headroom_->ends_with('%');
  const auto number = parse_number(is_percent ? headroom_->substr(0, headroom_->size() - 1) : *headroom_);
  const double share = number.value_or(-1.0) / (is_percent ? 100.0 : 1.0);
  if (!(share >= 0.0 && share < 1.0)) {
    throw ConfigError({"--headroom", fmt::format("\"{}\" is not a fraction of the memory", *headroom_), "",
                       "give a fraction from 0 to 1, such as 5% or 0.05"});
  }
  return 1.0 - share;
}

Objective PlanFlags::objective() const {
  if (!objective_) {
    // --min-gpus and deadlines without a budget ask for the fewest GPUs that suffice.
    return min_gpus_ || (deadline_ && !budget_) ? Objective::kGpus : Objective::kTime;
  }
  const auto objective = static_cast<Objective>(choice_of("--objective", *objective_, names_of<Objective>()));
  if (min_gpus_ && objective != Objective::kGpus) {
    throw ConfigError(
        {"--min-gpus", fmt::format("conflicts with --objective {}", *objective_), "", "give only one of them"});
  }
  return objective;
}

std::vector<int> PlanFlags::node_counts(const Job& job) const {
  const bool sizes_asked_about = min_gpus_ || max_gpus_ || objective_ == "gpus";
  const bool varies = sizes_asked_about || deadline_ || budget_ || objective() != Objective::kTime;
  if (job.cluster.uneven() && sizes_asked_about) {
    throw ConfigError({"cluster.nodes", "a list of uneven nodes has a fixed size", "",
                       "give a number of nodes, or plan without --min-gpus, --max-gpus and --objective gpus"});
  }
  if (!varies || job.cluster.uneven()) return {job.cluster.nodes};
  int most = job.cluster.nodes;
  constexpr int kMostNodes = 16'384;
  if (max_gpus_) {
    most = *max_gpus_ / job.cluster.devices_per_node;
    if (most < 1) {
      throw ConfigError({"--max-gpus", fmt::format("{} is less than one node", *max_gpus_), "",
                         fmt::format("give at least {}", job.cluster.devices_per_node)});
    }
    if (most > kMostNodes) {
      throw ConfigError({"--max-gpus",
                         fmt::format("{} is {} nodes, and each number of nodes takes a search", *max_gpus_, most), "",
                         fmt::format("give at most {} nodes", kMostNodes)});
    }
  }
  std::vector<int> counts(static_cast<std::size_t>(most));
  std::iota(counts.begin(), counts.end(), 1);
  return counts;
}

std::optional<Interruptions> PlanFlags::interruptions(const Job& job) const {
  if (!no_failures_) return job.failures ? interruptions_of(job) : Interruptions();
  if (job.failures) {
    throw ConfigError({"--no-failures", "conflicts with the job's failures", "",
                       "give either --no-failures or --failures, --mtbf, --checkpoint-time, --restart-time"});
  }
  return std::nullopt;
}

PlanOptions PlanFlags::options(const Job& job, const JobOptions& asked) const {
  PlanOptions options;
  constexpr int kMostRanked = 1'000;
  options.search.objective = objective();
  options.search.ranked = top_.value_or(options.search.ranked);
  if (options.search.ranked < 1 || options.search.ranked > kMostRanked) {
    throw ConfigError(
        {"--top", fmt::format("{} is out of range", *top_), "", fmt::format("give 1 to {}", kMostRanked)});
  }
  if (whole_front_) options.search.pareto_reach = std::numeric_limits<double>::infinity();
  options.nodes = node_counts(job);
  if (options.search.objective == Objective::kEnergy && !device_watts(job.cluster)) {
    throw ConfigError(
        {"cluster.device.tdp", "is not given, but objective energy needs it", "",
         R"(set it in the job file, such as "device": {"name": "h100", "tdp": "700W"}, or plan for time)"});
  }
  options.interruptions = interruptions(job);
  const auto need = [](bool there, const char* flag, const char* what, const char* help) {
    if (!there) throw ConfigError({flag, fmt::format("needs {}", what), "", help});
  };
  for (const auto& [field, flag] :
       {std::pair("failures.mtbf", "--mtbf"), std::pair("failures.checkpoint.cost", "--checkpoint-time"),
        std::pair("failures.checkpoint.restore", "--restart-time")}) {
    if (asked.flag(field))
      need(job.training.tokens.has_value(), flag, "the tokens of the run", "give --tokens, such as 300B");
  }
  if (deadline_) {
    need(job.training.tokens.has_value(), "--deadline", "the tokens of the run", "give --tokens, such as 300B");
    options.deadline_s = seconds_of("--deadline", *deadline_);
  }
  if (budget_) {
    need(job.training.tokens.has_value(), "--budget", "the tokens of the run", "give --tokens, such as 300B");
    need(job.training.price_per_gpu_hour.has_value(), "--budget", "a price", "give --price, in dollars per GPU hour");
    const bool has_sign = !budget_->empty() && budget_->front() == '$';
    options.budget_usd = quantity_of("--budget", has_sign ? budget_->substr(1) : *budget_, Dimension::kCount);
  }
  return options;
}

int PlanFlags::threads() const {
  return thread_count(threads_, std::numeric_limits<std::size_t>::max());
}

}  // namespace flopcast
