#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "cli/commands.hpp"
#include "cli/forecast/plan_flags.hpp"
#include "cli/options/figure_options.hpp"
#include "cli/options/job_options.hpp"
#include "cli/options/output.hpp"
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
      options.search.memory_limit = flags.memory_limit().value_or(kRoomyMemory);
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
  table.notes.push_back(fmt::format("of {:.0f} GiB each; no: no layout fits{}",
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
  if (const auto endless = endless_run(question.job, answer.options)) {
    throw NegativeAnswer(fmt::format("error: {}\n  help: {}", endless->problem, endless->help));
  }
  require_free_nodes(loaded, question.space, answer.options);
  const std::unique_ptr<PartialRows> rows =
      crew.shares ? rows_beside(output.file(), loaded.root, "plan", arguments, crew) : nullptr;
  // Processes share only the first search: their rows hold results for its memory limit.
  bool shared = rows != nullptr;
  const auto search = [&](const PlanOptions& options) -> std::optional<SearchResult> {
    if (std::exchange(shared, false)) return search_together(loaded, question, options, *rows, crew, parallel_for);
    return search_alone(question, options, parallel_for, streams);
  };
  std::optional<SearchResult> found = search_with_room(answer.options, flags.memory_limit(), search, answer.notes);
  if (!found) return 0;
  answer.search = std::move(*found);
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
