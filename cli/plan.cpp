#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.hpp"
#include "cli/job_options.hpp"
#include "cli/output_options.hpp"
#include "cli/plan_options.hpp"
#include "cli/plan_report.hpp"
#include "cli/terminal.hpp"
#include "cli/threads.hpp"
#include "model/config/read_job.hpp"
#include "model/error/error.hpp"
#include "planner/plan/feasible.hpp"

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

// Nothing fits: what is closest, and what would.
[[noreturn]] void refuse(const PlanQuestion& question, const PlanAnswer& answer, const ParallelFor& parallel_for) {
  std::string text = "error: no layout fits\n";
  for (const RejectedLayouts& one : answer.search.rejected)
    text += fmt::format("  {:>10}  {}\n", one.count, one.reason);
  for (const std::string& change :
       nearest_feasible(question.job, question.space, answer.options, answer.search, parallel_for)) {
    text += fmt::format("  help: {}\n", change);
  }
  text.pop_back();
  throw NegativeAnswer(text);
}

}  // namespace

int run_plan(const Arguments& arguments) {
  CommandLine command_line(
      "plan", "flopcast plan [JOB] [options]",
      "Ranks every layout of a model on a cluster: tp, cp, pp, vpp, dp, ep, microbatch, schedule, recomputation, ZeRO, "
      "sequence parallelism and stage split. What the job or a flag says of the layout stays as it is.",
      {"flopcast plan --model gpt3-175b --cluster 128xdgx-a100-80g --gbs 1536",
       "flopcast plan --model llama3-70b --cluster 64xdgx-h100 --gbs 1024 --tokens 2T --deadline 45d --price 2.5",
       "flopcast plan --model gpt3-175b --cluster 64xdgx-a100-80g --gbs 512 --min-gpus",
       "flopcast plan job.json --tp 8 --schedules 1f1b,interleaved -o plan.json"});
  JobOptions job;
  OutputOptions output;
  PlanFlags flags;
  job.add_to(command_line);
  flags.add_to(command_line);
  output.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;

  const Format format = output.format_or(output.names_json_file() ? Format::kJson : Format::kTable);
  const LoadedJob loaded = job.load();
  require_named_cluster(loaded);
  PlanQuestion question = read_question(loaded.root, loaded.origins);
  flags.apply(question.space);
  const ParallelFor parallel_for = threaded_for(flags.threads());

  PlanAnswer answer;
  answer.options = flags.options(question.job);
  answer.search = plan(question.job, question.space, answer.options, parallel_for);
  if (answer.search.ranked.empty()) refuse(question, answer, parallel_for);
  answer.job = job_file_of(loaded.root, answer.search.ranked.front());
  answer.ranked = entries_of(loaded, answer.search.ranked);
  answer.pareto = entries_of(loaded, answer.search.pareto);
  if (flags.svg()) write_file(*flags.svg(), plan_svg(answer));
  switch (format) {
    case Format::kJson:
      output.write(plan_json(answer).dump(2));
      break;
    case Format::kCsv:
      output.write(write_table(ranked_table(answer), format));
      break;
    case Format::kTable:
    case Format::kMarkdown:
      output.write(plan_tables(answer));
      break;
  }
  return 0;
}

}  // namespace flopcast
