#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/forecast/plan_flags.hpp"
#include "api/options/job_options.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/config/document.hpp"
#include "model/job/read_job.hpp"
#include "model/units/quantity.hpp"
#include "planner/plan/plan.hpp"
#include "planner/shared/crew.hpp"
#include "planner/tables/tables.hpp"
#include "sim/run/run.hpp"

namespace flopcast {

namespace {

PlanEntry entry_of(const LoadedJob& loaded, const PlannedLayout& planned) {
  PlanEntry entry;
  entry.planned = planned;
  Job job = read_job(job_file_of(loaded.root, planned), Origins());
  job.assumptions.insert(job.assumptions.begin(), loaded.notes.begin(), loaded.notes.end());
  job.warnings = loaded.warnings;
  entry.forecast = forecast_figures(job, read_file);
  FLOPCAST_CHECK(entry.forecast.result.memory.fits);
  entry.forecast.step.program = Program();
  entry.forecast.step.held.clear();
  return entry;
}

std::vector<PlanEntry> entries_of(const LoadedJob& loaded, const std::vector<PlannedLayout>& planned,
                                  const ParallelFor& parallel_for) {
  std::vector<PlanEntry> entries(planned.size());
  parallel_for(planned.size(), [&](std::size_t index) { entries[index] = entry_of(loaded, planned[index]); });
  return entries;
}

void require_free_nodes(const LoadedJob& loaded, const SearchSpace& space, const PlanOptions& options) {
  const auto most = static_cast<std::size_t>(options.nodes.back());
  if (space.free_nodes.empty() || space.free_nodes.size() >= most) return;
  const nlohmann::json& network = loaded.root->at("cluster").at("network");
  const std::string field = network.contains("allocation") ? "cluster.network.allocation" : "cluster.network.nodes";
  throw ConfigError({field, fmt::format("has {} free nodes for a plan on {}", space.free_nodes.size(), most),
                     loaded.origins.where(field), fmt::format("give {} or more, or plan on fewer", most)});
}

// Nothing fits, or nothing is fast enough: reports the nearest layout, and changes that would help.
[[noreturn]] void refuse(const PlanQuestion& question, const PlanAnswer& answer, const ParallelFor& parallel_for) {
  const Refusal refusal = nearest_feasible(question.job, question.space, answer.options, answer.search, parallel_for);
  std::string text = fmt::format("error: no layout {}\n", refusal.missed);
  for (const RejectedLayouts& one : answer.search.rejected)
    text += fmt::format("  {:>10}  {}\n", one.count, one.reason);
  for (const std::string& change : refusal.changes) text += fmt::format("  help: {}\n", change);
  text.pop_back();
  throw NegativeAnswer(text);
}

// First of the ranked layouts that the program can run. If there is none, throws the error of the best layout.
LaunchFile launch_file_of(LaunchProgram program, const PlanAnswer& answer) {
  std::optional<ConfigError> first_error;
  for (std::size_t place = 0; place < answer.ranked.size(); ++place) {
    const Forecast& forecast = answer.ranked[place].forecast;
    try {
      LaunchFile file = write_launch(program, forecast.step.job);
      if (const auto& allocation = answer.ranked[place].planned.allocation) {
        file.notes.push_back(
            fmt::format("the forecast uses nodes {} of the fabric, with ranks in this order: request them",
                        places_text(allocation->nodes, allocation->nodes.size())));
      }
      if (place > 0)
        file.notes.push_back(fmt::format("layout {} of the ranking is the first that the program can run", place + 1));
      file.notes.push_back(fmt::format("forecast: {:.4g} s per step, {:.1f} of {:.0f} GiB",
                                       forecast.result.iteration.time_s, forecast.result.memory.peak_gib,
                                       forecast.result.memory.capacity_gib));
      return file;
    } catch (const ConfigError& error) {
      if (!first_error) first_error = error;
    }
  }
  throw ConfigError(*first_error);
}

// Simulates the run of the best layout; the ranking used the closed form.
void check_best_by_simulation(PlanAnswer& answer) {
  Forecast& best = answer.ranked.front().forecast;
  add_run(best, WithOptions::kYes);
  if (!best.result.run) return;
  answer.notes.push_back(fmt::format("the best layout's run, simulated: goodput {} % ({} to {}); closed form: {} %",
                                     percent(best.result.run->goodput.p50), percent(best.result.run->goodput.p5),
                                     percent(best.result.run->goodput.p95),
                                     percent(best.result.run->closed_form_goodput)));
}

// Same as plan(), with a progress bar over the sizes.
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

// Processes share the sizes of the cluster. Nullopt if another process writes the answer.
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
  // Each search uses the threads itself.
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

// The job with a method of fine-tuning, without the keys of other methods. `own` is the job's method.
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

// Reduces the cluster to a number of GPUs in one node.
void keep_devices(const Job& job, int devices, nlohmann::json& root) {
  nlohmann::json& cluster = root["cluster"];
  if (!cluster.is_object()) cluster = {{"name", job.cluster.name}};
  cluster["nodes"] = 1;
  if (devices < job.cluster.devices_per_node) {
    cluster["nodes"] = nlohmann::json::array({{{"devices", devices}}});
  }
}

// A method of fine-tuning on a number of GPUs of one node, with the best layout; nullopt if none fits.
struct MethodOnGpus {
  FinetuneMethod method = FinetuneMethod::kFull;
  int gpus = 1;
  std::optional<PlannedLayout> best;
};

// Ordered by method, then by number of GPUs.
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
      options.search.memory_limit = flags.memory_limit().value_or(kRoomyMemory);
      const SearchResult found = plan(question.job, question.space, options, parallel_for);
      all.push_back({method, gpus, found.ranked.empty() ? std::nullopt : std::optional(found.ranked.front())});
    }
  }
  return all;
}

// One row per method, one column per number of GPUs: step time and memory of the best layout.
Table methods_table(const std::vector<MethodOnGpus>& all, const Job& job, const PlanFlags& flags) {
  Table table;
  table.title =
      fmt::format("{} on GPUs of {}: step time and memory of the best layout", job.model.name, job.cluster.name);
  table.columns = {text_column("method")};
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
                                                    best->memory_share > kRoomyMemory ? " (tight)" : ""));
  }
  table.notes.push_back(fmt::format("GPUs have {:.0f} GiB each; no: no layout fits{}",
                                    gibibytes(job.cluster.device.memory_capacity),
                                    flags.memory_limit() ? "" : " with 5 % of the memory to spare"));
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

// One object per method and number of GPUs; time and memory are null if nothing fits.
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

class Plan final : public Question {
 public:
  void declare(Form& form) override {
    job_.add_to(form);
    job_.add_more_files(form);
    flags_.add_to(form);
    form.place_output({.format_by_ending = true});
    emit_.add_to(form);
  }

  Answer ask(const Context& context) override {
    job_.refuse_show_config("plan");
    program_ = emit_.program();
    if (program_ && context.format_given) {
      throw ConfigError({"--format", "conflicts with --emit, which sets the format", "", "give only one of them"});
    }
    flags_.require_one_list(job_.flag("layout.schedule"));
    loaded_ = job_.load();
    require_named_cluster(loaded_);
    question_ = read_question(loaded_.root, loaded_.origins);
    const Crew alone;
    const Crew& crew = context.crew != nullptr ? *context.crew : alone;
    if (flags_.methods()) return methods(crew, context);
    flags_.apply(question_.space);
    narrow(crew, context);
    return search(crew, context) ? answer_of_plan(context) : Answer();
  }

 private:
  Answer methods(const Crew& crew, const Context& context) {
    std::vector<std::string> others = flags_.unsupported_by_methods(context);
    if (program_) others.emplace_back("--emit");
    if (!others.empty() || crew.shares) {
      throw ConfigError({"--methods",
                         "compares the best layouts on one to eight GPUs of a node instead of making one plan", "",
                         others.empty() ? "run a single process" : fmt::format("omit {}", fmt::join(others, ", "))});
    }
    methods_ = plan_methods(loaded_, question_.job, flags_, job_, threaded_for(flags_.threads()));
    return {.tables = [this] { return std::vector<Table>{methods_table(methods_, question_.job, flags_)}; },
            .rows = [this] { return methods_rows(methods_); },
            .json = [this] { return write_methods(methods_); }};
  }

  // Narrows the search to layouts that can be run and started.
  void narrow(const Crew& crew, const Context& context) {
    if (program_) {
      const std::vector<std::string> left_out = keep_launchable(*program_, question_.job, question_.space);
      if (left_out.empty() || !crew.leads()) return;
      context.tell(fmt::format("note: not searched, because {} does not support it: {}", name_of(*program_),
                               fmt::join(left_out, ", ")));
      return;
    }
    if (flags_.is_research()) return;
    const bool given = flags_.chooses_schedules() || layout_says(loaded_, "schedule");
    const std::vector<std::string> left_out = keep_runnable(question_.job, given, question_.space);
    if (left_out.empty()) return;
    plan_.notes.push_back(
        fmt::format("not searched, because {} does not support it: {}; --schedules all includes everything",
                    question_.job.training.stack.name, fmt::join(left_out, ", ")));
  }

  // False if another process writes the answer.
  bool search(const Crew& crew, const Context& context) {
    const ParallelFor parallel_for = threaded_for(crew.shares && !flags_.has_threads() ? 1 : flags_.threads());
    plan_.options = flags_.options(question_.job, job_);
    plan_.verbose = flags_.verbose();
    if (const auto endless = endless_run(question_.job, plan_.options)) {
      throw NegativeAnswer(fmt::format("error: {}\n  help: {}", endless->problem, endless->help));
    }
    require_free_nodes(loaded_, question_.space, plan_.options);
    if (crew.shares) rows_ = open_partial_rows(context.file, loaded_.root, "plan", {context.command}, crew);
    // Processes share only the first search: their rows hold results for its memory limit.
    bool shared = rows_ != nullptr;
    const auto search_once = [&](const PlanOptions& options) -> std::optional<SearchResult> {
      if (std::exchange(shared, false)) {
        return search_together(loaded_, question_, options, *rows_, crew, parallel_for);
      }
      return search_alone(question_, options, parallel_for, context.streams);
    };
    std::optional<SearchResult> found =
        search_with_room(plan_.options, flags_.memory_limit(), search_once, plan_.notes);
    if (!found) return false;
    plan_.search = std::move(*found);
    if (plan_.search.ranked.empty()) {
      if (rows_) rows_->remove();
      refuse(question_, plan_, parallel_for);
    }
    plan_.ranked = entries_of(loaded_, plan_.search.ranked, parallel_for);
    plan_.pareto = entries_of(loaded_, plan_.search.pareto, parallel_for);
    if (question_.job.failures) check_best_by_simulation(plan_);
    return true;
  }

  Answer answer_of_plan(const Context& context) {
    Answer answer;
    if (program_) {
      answer = EmitOption::answer(launch_file_of(*program_, plan_), context);
    } else {
      answer.tables = [this] { return plan_tables(plan_); };
      answer.rows = [this] { return ranked_table(plan_); };
      answer.json = [this] { return write_plan(plan_, loaded_.root); };
    }
    answer.figure = [this](const FigureStyle& style) { return plan_svg(plan_, style); };
    answer.page = [this](PageInfo info) { return page(std::move(info)); };
    answer.files_come_last = true;
    answer.done = [this] {
      if (rows_) rows_->remove();
    };
    return answer;
  }

  // The full ranking, the Pareto front, and forecasts of the best layouts.
  std::string page(PageInfo info) {
    constexpr std::size_t kMostDrawn = 3;
    plan_.verbose = true;
    PageParts parts;
    parts.tables = plan_tables(plan_);
    const std::string title = std::exchange(parts.tables.front().title, "Layouts, best first");
    const std::size_t first = title.find('\n');
    parts.figures.push_back({"Layouts found and their Pareto front", plan_svg(plan_, {})});
    std::vector<std::pair<std::string, const Forecast*>> drawn;
    for (const PlanEntry& entry : plan_.ranked) {
      if (drawn.size() == kMostDrawn) break;
      drawn.emplace_back(fmt::format("{}: {}", drawn.size() + 1, short_name(entry.planned.layout)), &entry.forecast);
    }
    const Job& job = plan_.ranked.front().forecast.step.job;
    info.title = fmt::format("Plan: {} on {}", job.model.name, job.cluster.name);
    info.question = first == std::string::npos ? "" : title.substr(first + 1);
    info.answer = title.substr(0, first);
    return forecasts_page(info, drawn, parts);
  }

  JobOptions job_;
  PlanFlags flags_;
  EmitOption emit_;

  std::optional<LaunchProgram> program_;
  LoadedJob loaded_;
  PlanQuestion question_;
  std::unique_ptr<PartialRows> rows_;
  std::vector<MethodOnGpus> methods_;
  PlanAnswer plan_;
};

}  // namespace

QuestionInfo plan_question() {
  return {"plan",
          "rank every layout of a model on a cluster by time, GPUs, cost or energy",
          "flopcast plan [JOB] [FILE…] [options]",
          "Ranks every layout of a model on a cluster: tp, cp, pp, vpp, dp, ep, microbatch, schedule, recomputation, "
          "ZeRO, sequence parallelism and stage split. Layout keys set by the job or a flag stay fixed.",
          {"flopcast plan --model gpt3-175b --cluster 128xdgx-a100-80g --gbs 1536",
           "flopcast plan --model llama3-70b --cluster 64xdgx-h100 --gbs 1024 --tokens 2T --deadline 45d --price 2.5",
           "flopcast plan --model gpt3-175b --cluster 64xdgx-a100-80g --gbs 512 --min-gpus",
           "flopcast plan job.json --tp 8 --schedules 1f1b,interleaved -o plan.json",
           "flopcast plan job.json --emit torchrun -o train.sh"},
          make_question<Plan>};
}

}  // namespace flopcast
