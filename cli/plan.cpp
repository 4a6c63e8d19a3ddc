#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.hpp"
#include "cli/emit_option.hpp"
#include "cli/job_options.hpp"
#include "cli/output_options.hpp"
#include "cli/plan_options.hpp"
#include "cli/progress.hpp"
#include "cli/shared_commands.hpp"
#include "cli/terminal.hpp"
#include "model/config/read_job.hpp"
#include "model/error/error.hpp"
#include "planner/plan/feasible.hpp"
#include "planner/plan/launchable.hpp"
#include "planner/shared/crew.hpp"
#include "planner/shared/plan_parts.hpp"
#include "planner/shared/threads.hpp"
#include "planner/tables/plan_tables.hpp"

namespace flopcast {

namespace {

PlanEntry entry_of(const LoadedJob& loaded, const PlannedLayout& planned) {
  PlanEntry entry;
  entry.planned = planned;
  entry.layout = layout_section_of(loaded.root, planned);
  Job job = read_job(job_file_of(loaded.root, planned), Origins());
  job.assumptions.insert(job.assumptions.begin(), loaded.notes.begin(), loaded.notes.end());
  job.warnings = loaded.warnings;
  entry.forecast = forecast(job, read_file);
  FLOPCAST_CHECK(entry.forecast.result.memory.fits);
  return entry;
}

std::vector<PlanEntry> entries_of(const LoadedJob& loaded, const std::vector<PlannedLayout>& planned) {
  std::vector<PlanEntry> entries;
  for (const PlannedLayout& one : planned) entries.push_back(entry_of(loaded, one));
  return entries;
}

std::string duration(double seconds) {
  constexpr double kMinute = 60.0;
  constexpr double kHour = 3600.0;
  constexpr double kDay = 86'400.0;
  if (seconds < kMinute) return fmt::format("{:.3g} s", seconds);
  if (seconds < kHour) return fmt::format("{:.3g} min", seconds / kMinute);
  return seconds < kDay ? fmt::format("{:.3g} h", seconds / kHour) : fmt::format("{:.3g} days", seconds / kDay);
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
      duration(interruptions.gpu_mtbf_s / devices), devices, duration(interruptions.checkpoint_s),
      duration(interruptions.restart_s), devices));
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

// As plan() does, with a bar for the sizes.
SearchResult search_alone(const PlanQuestion& question, const PlanOptions& options, const ParallelFor& parallel_for) {
  const SizedPlan sized(question.job, question.space, options, parallel_for);
  Progress progress(sized.parts() > 1);
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
  const auto part_in = [&](const nlohmann::ordered_json& row) { return part_of(loaded.root, row); };
  SharedWork work;
  work.parts = sized.parts();
  work.compute = [&](std::size_t part) { return part_json(loaded.root, sized.search(part)); };
  work.is_row = [&](const nlohmann::ordered_json& row) { return is_part(loaded.root, row); };
  if (options.search.objective == Objective::kGpus) {
    work.ends = [&](const nlohmann::ordered_json& row) { return sized.ends_with(part_in(row)); };
  }
  // A search uses the threads itself.
  const auto answered = answer_together(work, rows, crew, serial_for, 1);
  if (!answered) return std::nullopt;
  std::vector<SearchResult> parts;
  for (const nlohmann::ordered_json& row : *answered) parts.push_back(part_in(row));
  return sized.merge(parts);
}

void write_answer(const PlanAnswer& answer, Format format, const OutputOptions& output) {
  switch (format) {
    case Format::kJson:
      output.write(plan_json(answer).dump(2));
      break;
    case Format::kCsv:
      output.write(write_table(ranked_table(answer), format));
      break;
    case Format::kTable:
    case Format::kMarkdown:
      output.write(plan_tables(answer), format);
      break;
  }
}

void narrow_to(LaunchProgram program, PlanQuestion& question, bool tells) {
  const std::vector<std::string> left_out = keep_launchable(program, question.job, question.space);
  if (left_out.empty() || !tells) return;
  std::fputs(fmt::format("note: not searched, since {} cannot be told: {}\n",
                         launch_program_names()[static_cast<std::size_t>(program)], fmt::join(left_out, ", "))
                 .c_str(),
             stderr);
}

}  // namespace

int run_plan(const Arguments& arguments) {
  return run_plan_among(arguments, Crew());
}

int run_plan_among(const Arguments& arguments, const Crew& crew) {
  CommandLine command_line(
      "plan", "flopcast plan [JOB] [options]",
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
  const LoadedJob loaded = job.load();
  require_named_cluster(loaded);
  PlanQuestion question = read_question(loaded.root, loaded.origins);
  flags.apply(question.space);
  const std::optional<LaunchProgram> program = emit.program();
  if (program) narrow_to(*program, question, crew.leads());
  const ParallelFor parallel_for = threaded_for(crew.shares && !flags.has_threads() ? 1 : flags.threads());

  PlanAnswer answer;
  answer.options = flags.options(question.job);
  require_an_end(question.job, answer.options);
  const std::unique_ptr<PartialRows> rows =
      crew.shares ? partial_rows(output, {{"job", loaded.root}, {"plan", arguments}}, crew) : nullptr;
  std::optional<SearchResult> found = rows
                                          ? search_together(loaded, question, answer.options, *rows, crew, parallel_for)
                                          : search_alone(question, answer.options, parallel_for);
  if (!found) return 0;
  answer.search = std::move(*found);
  if (answer.search.ranked.empty()) {
    if (rows) rows->remove();
    refuse(question, answer, parallel_for);
  }
  answer.job = job_file_of(loaded.root, answer.search.ranked.front());
  answer.ranked = entries_of(loaded, answer.search.ranked);
  answer.pareto = entries_of(loaded, answer.search.pareto);
  if (program) {
    EmitOption::write(launch_file_of(*program, answer), output.file());
  } else {
    write_answer(answer, format, output);
  }
  if (flags.svg()) write_file(*flags.svg(), plan_svg(answer));
  if (rows) rows->remove();
  return 0;
}

}  // namespace flopcast
