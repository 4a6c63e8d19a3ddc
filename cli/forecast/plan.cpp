#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/numbers.hpp"
#include "base/text/words.hpp"
#include "cli/commands.hpp"
#include "cli/options/figure_options.hpp"
#include "cli/options/job_options.hpp"
#include "cli/options/output.hpp"
#include "model/config/document.hpp"
#include "model/job/read_job.hpp"
#include "model/job/typed_words.hpp"
#include "model/units/quantity.hpp"
#include "planner/plan/advice.hpp"
#include "planner/plan/plan.hpp"
#include "planner/plan/question.hpp"
#include "planner/shared/crew.hpp"
#include "planner/shared/plan_parts.hpp"
#include "planner/shared/threads.hpp"
#include "planner/tables/plan_tables.hpp"
#include "sim/run/run_answer.hpp"

namespace flopcast {

namespace {

// The flags of `plan` that are no keys of a job: what is searched, what is wanted, what may go wrong.
class PlanFlags {
 public:
  void add_to(CommandLine& command_line);
  // Refuses --schedules beside --schedule.
  void require_one_list(const std::optional<std::string>& schedule) const;
  // Narrows or widens the space by --schedules and --wide.
  void apply(SearchSpace& space) const;
  bool chooses_schedules() const { return schedules_.has_value(); }
  // Also what no program runs.
  bool is_research() const { return schedules_ && lower_case(*schedules_) == "all"; }
  // The share of the memory that layouts may take, and whether the user said so.
  double memory_limit() const;
  bool has_headroom() const { return headroom_.has_value(); }
  bool verbose() const { return verbose_; }
  bool methods() const { return methods_; }
  // The flags given that --methods, which fixes the GPUs and shows the best layouts alone, has no use for.
  std::vector<std::string> not_of_methods() const;
  // Throws ConfigError on flags that contradict each other, or that need tokens or a price the job does not have.
  PlanOptions options(const Job& job, const JobOptions& asked) const;
  int threads() const;
  const FigureOptions& figure() const { return figure_; }
  const PageOption& page() const { return page_; }
  bool has_threads() const { return threads_.has_value(); }

 private:
  std::vector<int> node_counts(const Job& job) const;
  Objective objective() const;
  std::optional<Interruptions> interruptions(const Job& job) const;

  std::optional<std::string> objective_;
  std::optional<std::string> schedules_;
  std::optional<int> top_;
  std::optional<int> max_gpus_;
  std::optional<std::string> deadline_;
  std::optional<std::string> budget_;
  std::optional<int> threads_;
  FigureOptions figure_;
  PageOption page_;
  std::optional<std::string> headroom_;
  bool verbose_ = false;
  bool min_gpus_ = false;
  bool wide_ = false;
  bool methods_ = false;
  bool whole_front_ = false;
  bool no_failures_ = false;
};

void PlanFlags::add_to(CommandLine& command_line) {
  command_line.begin_group("Question");
  command_line.add_option("--objective", objective_, "KIND",
                          "time (default), cost, gpus or energy; all but time try every number of nodes");
  command_line.add_flag("--min-gpus", min_gpus_, "the fewest nodes that fit: objective gpus, from 1 node on");
  command_line.add_option("--max-gpus", max_gpus_, "N", "try every number of nodes up to so many GPUs");
  command_line.add_option("--deadline", deadline_, "TIME", "the run is done by then: 45d (needs --tokens)");
  command_line.add_option("--budget", budget_, "DOLLARS", "the run costs no more: 200K (needs --tokens and --price)");
  command_line.add_flag("--methods", methods_,
                        "which method of fine-tuning fits one to eight GPUs of a node, side by side: the best layouts");
  command_line.begin_group("Search");
  command_line.add_option("--schedules", schedules_, "A,B,…",
                          "pipeline schedules to choose from; all: also those that the stack does not run");
  command_line.add_option("--headroom", headroom_, "SHARE",
                          "memory left free on each GPU (default 5%, or less where nothing fits so)");
  command_line.add_flag("--wide", wide_, "uneven chunks and lighter first and last stages too");
  command_line.add_flag("--whole-front", whole_front_,
                        "the Pareto front without end, not only within 10 % of the best; takes longer");
  command_line.add_option("--top", top_, "N", "layouts to rank (default 10)");
  command_line.add_option("--threads", threads_, "N", "threads (default: one for each core)");
  figure_.add_to(command_line, "draw the layouts found and their Pareto front");
  page_.add_to(command_line);
  command_line.add_flag("--verbose,-v", verbose_, "the rejected layouts and the rules of thumb, too");
  command_line.begin_group("Interruptions");
  command_line.add_flag("--no-failures", no_failures_, "days as if nothing ever failed");
}

void PlanFlags::require_one_list(const std::optional<std::string>& schedule) const {
  if (!schedules_ || !schedule) return;
  throw ConfigError({"--schedules", fmt::format("contradicts --schedule {}", *schedule), "", "give one of the two"});
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
      throw ConfigError({"--schedules", fmt::format("{} fixes the chunks", text), "",
                         fmt::format("leave :{} out and give --vpp {}", *name.chunks, *name.chunks)});
    }
    space.schedules.push_back(schedule_choice(text));
  }
}

std::vector<std::string> PlanFlags::not_of_methods() const {
  std::vector<std::string> given;
  for (const auto& [there, flag] :
       {std::pair(figure_.file().has_value(), "--svg"), std::pair(page_.wanted(), "--html"),
        std::pair(max_gpus_.has_value(), "--max-gpus"), std::pair(min_gpus_, "--min-gpus"),
        std::pair(objective_ == "gpus", "--objective gpus"), std::pair(top_.has_value(), "--top"),
        std::pair(whole_front_, "--whole-front"), std::pair(verbose_, "--verbose")}) {
    if (there) given.emplace_back(flag);
  }
  return given;
}

double PlanFlags::memory_limit() const {
  constexpr double kUsualHeadroom = 0.05;
  if (!headroom_) return 1.0 - kUsualHeadroom;
  const bool is_percent = headroom_->ends_with('%');
  const auto number = parse_number(is_percent ? headroom_->substr(0, headroom_->size() - 1) : *headroom_);
  const double share = number.value_or(-1.0) / (is_percent ? 100.0 : 1.0);
  if (!(share >= 0.0 && share < 1.0)) {
    throw ConfigError({"--headroom", fmt::format("\"{}\" is no share of the memory", *headroom_), "",
                       "from 0 up to 1, such as 5% or 0.05"});
  }
  return 1.0 - share;
}

double quantity_of(const char* flag, const std::string& text, Dimension dimension) {
  const ParsedQuantity parsed = parse_quantity(text, dimension);
  if (parsed.value) return *parsed.value;
  throw ConfigError(
      {flag, fmt::format("\"{}\" {}", text, parsed.problem), "", fmt::format("units: {}", accepted_units(dimension))});
}

double seconds_of(const char* flag, const std::string& text) {
  return quantity_of(flag, text, Dimension::kTime);
}

Objective PlanFlags::objective() const {
  if (!objective_) {
    // Who asks for the fewest, or for a deadline, wants no more GPUs than that takes.
    return min_gpus_ || (deadline_ && !budget_) ? Objective::kGpus : Objective::kTime;
  }
  const std::vector<std::string>& names = objective_names();
  const auto place = std::find(names.begin(), names.end(), *objective_);
  if (place == names.end()) {
    throw ConfigError(
        {"--objective", fmt::format("unknown value \"{}\"", *objective_), "", choices_help(*objective_, names)});
  }
  const auto objective = static_cast<Objective>(place - names.begin());
  if (min_gpus_ && objective != Objective::kGpus) {
    throw ConfigError(
        {"--min-gpus", fmt::format("contradicts --objective {}", *objective_), "", "give one of the two"});
  }
  return objective;
}

std::vector<int> PlanFlags::node_counts(const Job& job) const {
  const bool sizes_asked_about = min_gpus_ || max_gpus_ || objective_ == "gpus";
  const bool varies = sizes_asked_about || deadline_ || budget_ || objective() != Objective::kTime;
  if (job.cluster.uneven() && sizes_asked_about) {
    throw ConfigError({"cluster.nodes", "a list of uneven nodes cannot be made larger or smaller", "",
                       "a count of nodes, or plan without --min-gpus, --max-gpus and --objective gpus"});
  }
  if (!varies || job.cluster.uneven()) return {job.cluster.nodes};
  int most = job.cluster.nodes;
  constexpr int kMostNodes = 16'384;
  if (max_gpus_) {
    most = *max_gpus_ / job.cluster.devices_per_node;
    if (most < 1) {
      throw ConfigError({"--max-gpus", fmt::format("{} is less than a node", *max_gpus_), "",
                         fmt::format("at least {}", job.cluster.devices_per_node)});
    }
    if (most > kMostNodes) {
      throw ConfigError({"--max-gpus", fmt::format("{} is {} nodes, each number a search", *max_gpus_, most), "",
                         fmt::format("at most {} nodes", kMostNodes)});
    }
  }
  std::vector<int> counts(static_cast<std::size_t>(most));
  std::iota(counts.begin(), counts.end(), 1);
  return counts;
}

std::optional<Interruptions> PlanFlags::interruptions(const Job& job) const {
  if (!no_failures_) return job.failures ? interruptions_of(job) : Interruptions();
  if (job.failures) {
    throw ConfigError({"--no-failures", "contradicts what the job says of failures", "",
                       "leave out one of --no-failures and --failures, --mtbf, --checkpoint-time, --restart-time"});
  }
  return std::nullopt;
}

PlanOptions PlanFlags::options(const Job& job, const JobOptions& asked) const {
  PlanOptions options;
  constexpr int kMostRanked = 1'000;
  options.search.objective = objective();
  options.search.ranked = top_.value_or(options.search.ranked);
  if (options.search.ranked < 1 || options.search.ranked > kMostRanked) {
    throw ConfigError({"--top", fmt::format("{} is out of range", *top_), "", fmt::format("1 to {}", kMostRanked)});
  }
  if (whole_front_) options.search.pareto_reach = std::numeric_limits<double>::infinity();
  options.nodes = node_counts(job);
  if (options.search.objective == Objective::kEnergy && !device_watts(job.cluster)) {
    throw ConfigError({"cluster.device.tdp", "is not given, and the objective energy needs it", "",
                       R"(in the job file, such as "device": {"name": "h100", "tdp": "700W"}, or plan for time)"});
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
    need(job.training.price_per_gpu_hour.has_value(), "--budget", "a price", "give --price, dollars a GPU hour");
    const bool has_sign = !budget_->empty() && budget_->front() == '$';
    options.budget_usd = quantity_of("--budget", has_sign ? budget_->substr(1) : *budget_, Dimension::kCount);
  }
  return options;
}

int PlanFlags::threads() const {
  return thread_count(threads_, std::numeric_limits<std::size_t>::max());
}

PlanEntry entry_of(const LoadedJob& loaded, const PlannedLayout& planned) {
  PlanEntry entry;
  entry.planned = planned;
  Job job = read_job(job_file_of(loaded.root, planned), Origins());
  job.assumptions.insert(job.assumptions.begin(), loaded.notes.begin(), loaded.notes.end());
  job.warnings = loaded.warnings;
  entry.forecast = forecast(job, read_file);
  FLOPCAST_CHECK(entry.forecast.result.memory.fits);
  // A thousand rows would hold every action of a thousand steps.
  entry.forecast.timeline = Timeline();
  entry.forecast.messages.clear();
  entry.forecast.memory.clear();
  entry.forecast.step.program = Program();
  return entry;
}

std::vector<PlanEntry> entries_of(const LoadedJob& loaded, const std::vector<PlannedLayout>& planned,
                                  const ParallelFor& parallel_for) {
  std::vector<PlanEntry> entries(planned.size());
  parallel_for(planned.size(), [&](std::size_t index) { entries[index] = entry_of(loaded, planned[index]); });
  return entries;
}

// Before anything is searched: on the fewest GPUs asked about failures are rarest.
void require_an_end(const Job& job, const PlanOptions& options) {
  if (!job.training.tokens || !options.interruptions) return;
  const Interruptions& interruptions = *options.interruptions;
  const int devices = on_nodes(job, options.nodes.front()).cluster.devices();
  const Goodput goodput = goodput_of(interruptions, devices);
  if (goodput.finishes()) return;
  throw NegativeAnswer(fmt::format(
      "error: the run never finishes: a failure every {} on {} GPUs, {} for each checkpoint and {} for each restart "
      "leave less than 1 % of the time to train\n"
      "  help: --mtbf is the mean time between failures of one GPU; of the whole cluster it is that over {}",
      time_in_days(interruptions.gpu_mtbf_s / devices), devices, time_in_days(interruptions.checkpoint_s),
      time_in_days(interruptions.restart_s), devices));
}

void require_free_nodes(const LoadedJob& loaded, const SearchSpace& space, const PlanOptions& options) {
  const auto most = static_cast<std::size_t>(options.nodes.back());
  if (space.free_nodes.empty() || space.free_nodes.size() >= most) return;
  const nlohmann::json& network = loaded.root->at("cluster").at("network");
  const std::string field = network.contains("allocation") ? "cluster.network.allocation" : "cluster.network.nodes";
  throw ConfigError({field, fmt::format("{} nodes are free for a plan on {}", space.free_nodes.size(), most),
                     loaded.origins.where(field), fmt::format("{} or more, or plan on fewer", most)});
}

// Nothing fits, or not in time: what is closest, and what would.
[[noreturn]] void refuse(const PlanQuestion& question, const PlanAnswer& answer, const ParallelFor& parallel_for) {
  const Refusal refusal = nearest_feasible(question.job, question.space, answer.options, answer.search, parallel_for);
  std::string text = fmt::format("error: no layout {}\n", refusal.missed);
  for (const RejectedLayouts& one : answer.search.rejected)
    text += fmt::format("  {:>10}  {}\n", one.count, one.reason);
  for (const std::string& change : refusal.changes) text += fmt::format("  help: {}\n", change);
  text.pop_back();
  throw NegativeAnswer(text);
}

// The first of the ranked layouts that the program can be told. Throws the complaint about the best when there is none.
LaunchFile launch_file_of(LaunchProgram program, const PlanAnswer& answer) {
  std::optional<ConfigError> complaint;
  for (std::size_t place = 0; place < answer.ranked.size(); ++place) {
    const Forecast& forecast = answer.ranked[place].forecast;
    try {
      LaunchFile file = write_launch(program, forecast.step.job);
      if (const auto& allocation = answer.ranked[place].planned.allocation) {
        file.notes.push_back(fmt::format("forecast on nodes {} of the fabric, ranks in this order: ask for them",
                                         places_text(allocation->nodes, allocation->nodes.size())));
      }
      if (place > 0)
        file.notes.push_back(fmt::format("number {} of those found is the first that it can be told", place + 1));
      file.notes.push_back(fmt::format("forecast: {:.4g} s a step, {:.1f} of {:.0f} GiB",
                                       forecast.result.iteration.time_s, forecast.result.memory.peak_gib,
                                       forecast.result.memory.capacity_gib));
      return file;
    } catch (const ConfigError& error) {
      if (!complaint) complaint = error;
    }
  }
  throw ConfigError(*complaint);
}

// The layouts were ranked by the closed form.
void check_best_by_simulation(PlanAnswer& answer) {
  Forecast& best = answer.ranked.front().forecast;
  add_run(best, WithOptions::kYes);
  if (!best.result.run) return;
  answer.notes.push_back(
      fmt::format("the best layout's run, simulated: goodput {} % ({} to {}), where the closed form says {} %",
                  percent(best.result.run->goodput.p50), percent(best.result.run->goodput.p5),
                  percent(best.result.run->goodput.p95), percent(best.result.run->closed_form_goodput)));
}

// As plan() does, with a bar for the sizes.
SearchResult search_alone(const PlanQuestion& question, const PlanOptions& options, const ParallelFor& parallel_for,
                          const Streams& streams) {
  const SizedPlan sized(question.job, question.space, options, parallel_for);
  Progress progress(streams, sized.parts() > 1);
  progress.begin(sized.parts());
  std::vector<SearchResult> parts;
  for (std::size_t part = 0; part < sized.parts(); ++part) {
    parts.push_back(sized.search(part));
    progress.step();
    if (sized.ends_with(parts.back())) break;
  }
  return sized.merge(parts);
}

// The sizes of the cluster are shared. Nothing when another process writes the answer.
std::optional<SearchResult> search_together(const LoadedJob& loaded, const PlanQuestion& question,
                                            const PlanOptions& options, PartialRows& rows, const Crew& crew,
                                            const ParallelFor& parallel_for) {
  const SizedPlan sized(question.job, question.space, options, parallel_for);
  SharedWork work;
  work.parts = sized.parts();
  work.compute = [&](std::size_t part) { return write_part(loaded.root, sized.search(part)); };
  work.is_row = [&](const std::string& row) { return read_part(loaded.root, row).has_value(); };
  if (options.search.objective == Objective::kGpus) {
    work.ends = [&](const std::string& row) { return sized.ends_with(*read_part(loaded.root, row)); };
  }
  // A search uses the threads itself.
  const auto answered = answer_together(work, rows, crew, serial_for, 1);
  if (!answered) return std::nullopt;
  std::vector<SearchResult> parts;
  for (std::size_t part = 0; part < *answered; ++part) {
    std::optional<SearchResult> read = read_part(loaded.root, answered_row(work, rows, part));
    FLOPCAST_CHECK(read.has_value());
    parts.push_back(std::move(*read));
  }
  return sized.merge(parts);
}

bool layout_says(const LoadedJob& loaded, const char* key) {
  const auto layout = loaded.root->find("layout");
  return layout != loaded.root->end() && layout->is_object() && layout->contains(key);
}

// The job with a method of fine-tuning; what it says of others is left out. `own` is the job's method.
JsonValue with_method(const JsonValue& root, FinetuneMethod method, FinetuneMethod own) {
  nlohmann::json changed = *root;
  nlohmann::json& training = changed["training"];
  if (!training.is_object()) training = nlohmann::json::object();
  nlohmann::json finetune = nlohmann::json::object();
  if (training.contains("finetune") && training["finetune"].is_object()) finetune = training["finetune"];
  const bool adapts = method == FinetuneMethod::kLora || method == FinetuneMethod::kQlora;
  const bool all = method == FinetuneMethod::kFull;
  for (const char* key : {"base", "double_quant"}) {
    if (method != own) finetune.erase(key);
  }
  for (const char* key : {"rank", "alpha", "targets", "dropout"}) {
    if (!adapts) finetune.erase(key);
  }
  if (method != FinetuneMethod::kFreeze) finetune.erase("trainable_layers");
  if (all) finetune.erase("embeddings");
  finetune["method"] = name_of(method);
  training["finetune"] = finetune;
  return changed;
}

// So many GPUs of one node.
void keep_devices(const Job& job, int devices, nlohmann::json& root) {
  nlohmann::json& cluster = root["cluster"];
  if (!cluster.is_object()) cluster = {{"name", job.cluster.name}};
  cluster["nodes"] = 1;
  if (devices < job.cluster.devices_per_node) {
    cluster["nodes"] = nlohmann::json::array({{{"devices", devices}}});
  }
}

// A method of fine-tuning on so many GPUs of a node: the best layout, none where none fits.
struct MethodOnGpus {
  FinetuneMethod method = FinetuneMethod::kFull;
  int gpus = 1;
  std::optional<PlannedLayout> best;
};

// By methods, then by numbers of GPUs.
std::vector<MethodOnGpus> plan_methods(const LoadedJob& loaded, const Job& job, const PlanFlags& flags,
                                       const JobOptions& asked, const ParallelFor& parallel_for) {
  constexpr int kMost = 8;
  const FinetuneMethod own = job.training.finetune ? job.training.finetune->method : FinetuneMethod::kFull;
  std::vector<MethodOnGpus> all;
  for (const FinetuneMethod method :
       {FinetuneMethod::kFull, FinetuneMethod::kFreeze, FinetuneMethod::kLora, FinetuneMethod::kQlora}) {
    for (int gpus = 1; gpus <= std::min(kMost, job.cluster.devices_per_node); gpus *= 2) {
      nlohmann::json root = *with_method(loaded.root, method, own);
      keep_devices(job, gpus, root);
      PlanQuestion question = read_question(root, loaded.origins);
      flags.apply(question.space);
      keep_runnable(question.job, flags.chooses_schedules(), question.space);
      PlanOptions options = flags.options(question.job, asked);
      options.nodes = {question.job.cluster.nodes};
      options.search.memory_limit = flags.memory_limit();
      const SearchResult found = plan(question.job, question.space, options, parallel_for);
      all.push_back({method, gpus, found.ranked.empty() ? std::nullopt : std::optional(found.ranked.front())});
    }
  }
  return all;
}

// Methods by rows, numbers of GPUs by columns: the best layout's step and memory.
Table methods_table(const std::vector<MethodOnGpus>& all, const Job& job, const PlanFlags& flags) {
  Table table;
  table.title = fmt::format("{} on GPUs of {}: the best step and its memory", job.model.name, job.cluster.name);
  table.columns = {text_column("method")};
  constexpr double kTight = 0.95;
  for (const MethodOnGpus& one : all) {
    if (one.method == all.front().method) {
      table.columns.push_back({fmt::format("{} GPU{}", one.gpus, one.gpus > 1 ? "s" : ""), Align::kLeft,
                               fmt::format("gpus_{}", one.gpus), false});
    }
    if (one.gpus == all.front().gpus) table.rows.push_back({std::string(name_of(one.method))});
    const std::optional<PlannedLayout>& best = one.best;
    table.rows.back().push_back(!best ? "no"
                                      : fmt::format("{}, {:.1f} GiB{}", time_in_seconds(best->time_s),
                                                    gibibytes(Bytes(best->memory_bytes)),
                                                    best->memory_share > kTight ? " (tight)" : ""));
  }
  table.notes.push_back(fmt::format("of {:.0f} GiB each; no: no layout fits{}",
                                    gibibytes(job.cluster.device.memory_capacity),
                                    flags.has_headroom() ? "" : " with 5 % of the memory to spare"));
  return table;
}

Table methods_rows(const std::vector<MethodOnGpus>& all) {
  Table table;
  table.columns = {text_column("method"), number_column("GPUs", "gpus"), text_column("fits"),
                   number_column("time s", "time_s"), number_column("memory GiB", "memory_gib")};
  for (const MethodOnGpus& one : all) {
    table.rows.push_back({std::string(name_of(one.method)), fmt::format("{}", one.gpus), one.best ? "yes" : "no",
                          one.best ? fmt::format("{:.6g}", one.best->time_s) : "",
                          one.best ? fmt::format("{:.6g}", gibibytes(Bytes(one.best->memory_bytes))) : ""});
  }
  return table;
}

// An object for each method and number of GPUs; time and memory are null where nothing fits.
std::string write_methods(const std::vector<MethodOnGpus>& all) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const MethodOnGpus& one : all) {
    nlohmann::ordered_json row = {{"method", name_of(one.method)},
                                  {"gpus", one.gpus},
                                  {"fits", one.best.has_value()},
                                  {"time_s", nullptr},
                                  {"memory_gib", nullptr}};
    if (one.best) {
      row["time_s"] = one.best->time_s;
      row["memory_gib"] = gibibytes(Bytes(one.best->memory_bytes));
    }
    rows.push_back(std::move(row));
  }
  return dumped(rows, 2) + "\n";
}

void narrow_to(LaunchProgram program, PlanQuestion& question, bool tells, const Streams& streams) {
  const std::vector<std::string> left_out = keep_launchable(program, question.job, question.space);
  if (left_out.empty() || !tells) return;
  std::fputs(fmt::format("note: not searched, since {} cannot be told: {}\n",
                         launch_program_names()[static_cast<std::size_t>(program)], fmt::join(left_out, ", "))
                 .c_str(),
             streams.err);
}

// The ranking whole, the front, and the best layouts as forecasts.
void write_plan_page(const PageOption& page, PlanAnswer& answer) {
  constexpr std::size_t kMostDrawn = 3;
  answer.verbose = true;
  PageParts parts;
  parts.tables = plan_tables(answer);
  const std::string& title = parts.tables.front().title;
  const std::size_t first = title.find('\n');
  const std::string said = title.substr(0, first);
  const std::string asked = first == std::string::npos ? "" : title.substr(first + 1);
  parts.tables.front().title = "Layouts, the best first";
  parts.figures.push_back({"Layouts found and their Pareto front", plan_svg(answer, {})});
  std::vector<std::pair<std::string, const Forecast*>> drawn;
  for (const PlanEntry& entry : answer.ranked) {
    if (drawn.size() == kMostDrawn) break;
    drawn.emplace_back(fmt::format("{}: {}", drawn.size() + 1, short_name(entry.planned.layout)), &entry.forecast);
  }
  const Job& job = answer.ranked.front().forecast.step.job;
  page.write(fmt::format("Plan: {} on {}", job.model.name, job.cluster.name), asked, said, parts, drawn);
}

}  // namespace

int run_plan(const Arguments& arguments, const Streams& streams) {
  return run_plan_among(arguments, Crew(), streams);
}

int run_plan_among(const Arguments& arguments, const Crew& crew, const Streams& streams) {
  CommandLine command_line(
      streams, "plan", "flopcast plan [JOB] [FILE…] [options]",
      "Ranks every layout of a model on a cluster: tp, cp, pp, vpp, dp, ep, microbatch, schedule, recomputation, ZeRO, "
      "sequence parallelism and stage split. What the job or a flag says of the layout stays as it is.",
      {"flopcast plan --model gpt3-175b --cluster 128xdgx-a100-80g --gbs 1536",
       "flopcast plan --model llama3-70b --cluster 64xdgx-h100 --gbs 1024 --tokens 2T --deadline 45d --price 2.5",
       "flopcast plan --model gpt3-175b --cluster 64xdgx-a100-80g --gbs 512 --min-gpus",
       "flopcast plan job.json --tp 8 --schedules 1f1b,interleaved -o plan.json",
       "flopcast plan job.json --emit torchrun -o train.sh"});
  JobOptions job;
  OutputOptions output;
  PlanFlags flags;
  EmitOption emit;
  job.add_to(command_line);
  job.add_more_files(command_line);
  flags.add_to(command_line);
  output.add_to(command_line);
  emit.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;

  job.refuse_show_config("plan");
  const Format format = emit.program() ? output.format() : output.format_of_file();
  if (emit.program() && output.has_format()) {
    throw ConfigError(
        {"--format", "contradicts --emit, whose program sets the format", "", "leave one of the two out"});
  }
  flags.require_one_list(job.flag("layout.schedule"));
  flags.figure().check();
  const LoadedJob loaded = job.load();
  require_named_cluster(loaded);
  PlanQuestion question = read_question(loaded.root, loaded.origins);
  if (flags.methods()) {
    std::vector<std::string> others = flags.not_of_methods();
    if (emit.program()) others.emplace_back("--emit");
    if (!others.empty() || crew.shares) {
      throw ConfigError({"--methods", "compares the best layouts on one to eight GPUs of a node, and is no single plan",
                         "", others.empty() ? "plan alone" : fmt::format("leave out {}", fmt::join(others, ", "))});
    }
    const std::vector<MethodOnGpus> all = plan_methods(loaded, question.job, flags, job, threaded_for(flags.threads()));
    output.write({.tables = [&] { return std::vector<Table>{methods_table(all, question.job, flags)}; },
                  .rows = [&] { return methods_rows(all); },
                  .json = [&] { return write_methods(all); }},
                 format);
    return 0;
  }
  flags.apply(question.space);
  const std::optional<LaunchProgram> program = emit.program();
  std::vector<std::string> search_notes;
  if (program) {
    narrow_to(*program, question, crew.leads(), streams);
  } else if (!flags.is_research()) {
    const bool given = flags.chooses_schedules() || layout_says(loaded, "schedule");
    const std::vector<std::string> left_out = keep_runnable(question.job, given, question.space);
    if (!left_out.empty()) {
      search_notes.push_back(fmt::format("not searched, since {} does not run it: {}; --schedules all for research",
                                         question.job.training.stack.name, fmt::join(left_out, ", ")));
    }
  }
  const ParallelFor parallel_for = threaded_for(crew.shares && !flags.has_threads() ? 1 : flags.threads());

  PlanAnswer answer;
  answer.options = flags.options(question.job, job);
  answer.notes = std::move(search_notes);
  answer.verbose = flags.verbose();
  require_an_end(question.job, answer.options);
  require_free_nodes(loaded, question.space, answer.options);
  // Of layouts that are equal one is shown.
  const int wanted = answer.options.search.ranked;
  constexpr int kEquals = 3;
  answer.options.search.ranked *= kEquals;
  answer.options.search.memory_limit = flags.memory_limit();
  const std::unique_ptr<PartialRows> rows =
      crew.shares ? rows_beside(output.file(), loaded.root, "plan", arguments, crew) : nullptr;
  std::optional<SearchResult> found = rows
                                          ? search_together(loaded, question, answer.options, *rows, crew, parallel_for)
                                          : search_alone(question, answer.options, parallel_for, streams);
  if (!found) return 0;
  answer.search = std::move(*found);
  if (answer.search.ranked.empty() && !flags.has_headroom()) {
    answer.options.search.memory_limit = 1.0;
    answer.search = search_alone(question, answer.options, parallel_for, streams);
    if (!answer.search.ranked.empty())
      answer.notes.emplace_back("nothing fits with 5 % of the memory to spare: what is shown may run out of it");
  }
  settle_ranking(static_cast<std::size_t>(wanted), answer.search.ranked);
  answer.options.search.ranked = wanted;
  if (answer.search.ranked.empty()) {
    if (rows) rows->remove();
    refuse(question, answer, parallel_for);
  }
  answer.ranked = entries_of(loaded, answer.search.ranked, parallel_for);
  answer.pareto = entries_of(loaded, answer.search.pareto, parallel_for);
  if (question.job.failures) check_best_by_simulation(answer);
  if (program) {
    emit.write(launch_file_of(*program, answer), output.file());
  } else {
    output.write({.tables = [&] { return plan_tables(answer); },
                  .rows = [&] { return ranked_table(answer); },
                  .json = [&] { return write_plan(answer, loaded.root); }},
                 format);
  }
  if (flags.figure().file()) flags.figure().write(plan_svg(answer, flags.figure().style()));
  if (flags.page().wanted()) write_plan_page(flags.page(), answer);
  if (rows) rows->remove();
  return 0;
}

}  // namespace flopcast
