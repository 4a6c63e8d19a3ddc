#include "cli/compare_variants.hpp"

#include <fmt/format.h>

#include "cli/terminal.hpp"
#include "model/config/read_job.hpp"
#include "planner/compare/strategies.hpp"
#include "planner/plan/read_question.hpp"
#include "sim/forecast/forecast.hpp"

namespace flopcast {

Table strategies_table(const LoadedJob& loaded, const ParallelFor& parallel_for) {
  require_named_cluster(loaded);
  nlohmann::json open = loaded.root;
  for (const char* axis : {"tp", "pp", "cp", "dp", "vpp", "schedule", "stage_layers"}) {
    if (open.contains("layout") && open["layout"].is_object()) open["layout"].erase(axis);
  }
  const PlanQuestion question = read_question(open, loaded.origins);
  Table table;
  table.title = "the fastest layout of each strategy";
  table.columns = {text_column("strategy"),
                   text_column("layout"),
                   number_column("step s", "step_s"),
                   number_column("MFU %", "mfu_percent"),
                   number_column("exposed communication %", "exposed_percent"),
                   number_column("GB sent per GPU", "gb_sent"),
                   number_column("peak GiB", "peak_gib"),
                   text_column("fits"),
                   number_column("memory saved %", "memory_saved_percent")};
  double whole_gib = 0.0;
  for (const StrategyAnswer& answer : compare_strategies(question.job, question.space, parallel_for)) {
    if (!answer.planned) {
      table.rows.push_back({answer.strategy.name, "none divides model, batch and GPUs", "", "", "", "", "", "", ""});
      continue;
    }
    const Result result = forecast(read_job(job_file_of(open, *answer.planned), Origins()), read_file).result;
    const Layout& layout = answer.planned->layout;
    const CommunicationResult& sent = result.communication;
    double bytes = 0.0;
    for (const AxisCommunication* axis : {&sent.tp, &sent.pp, &sent.dp, &sent.cp, &sent.ep})
      bytes += axis->bytes_sent_per_rank;
    if (whole_gib == 0.0) whole_gib = result.memory.peak_gib;
    table.rows.push_back(
        {answer.strategy.name,
         fmt::format("tp {} pp {} dp {} mbs {} zero {} {} {}", layout.tp, layout.pp, layout.dp, layout.micro_batch_size,
                     layout.zero, recompute_names()[static_cast<std::size_t>(layout.recompute)], layout.schedule),
         fmt::format("{:.4g}", result.iteration.time_s), fmt::format("{:.1f}", 100 * result.iteration.mfu),
         fmt::format("{:.1f}", 100 * sent.exposed_fraction), fmt::format("{:.3g}", bytes / 1e9),
         fmt::format("{:.1f}", result.memory.peak_gib), answer.fits ? "yes" : "no",
         fmt::format("{:.0f}", 100 * (1 - result.memory.peak_gib / whole_gib))});
  }
  table.notes = {"memory saved beside the first strategy that any layout of the job has"};
  return table;
}

namespace {

// What has no row, and why.
std::vector<std::string> optimization_notes(const Job& job) {
  std::vector<std::string> notes;
  if (job.cluster.host_bandwidth.value() <= 0.0) {
    notes.emplace_back("Gloo and MPI go through host memory: cluster.host_bandwidth is not given");
  }
  if (job.layout.weight_shards() <= 1) {
    notes.emplace_back("preallocated gather buffers: this job gathers no sharded weights");
  } else if (job.training.stack.gather_allocation.value() <= 0.0) {
    notes.push_back(fmt::format(
        "preallocated gather buffers: {} keeps them; a stack that does not has a gather_allocation, measured",
        job.training.stack.name));
  }
  notes.emplace_back("times are of the job's batch: what changes the batch is scaled to it");
  return notes;
}

}  // namespace

Table optimizations_table(const Job& job) {
  Table table;
  table.title = "what each buys on this job";
  table.columns = {text_column("optimization"),
                   text_column("what changes", "changes"),
                   number_column("step s without", "without_s"),
                   number_column("with", "with_s"),
                   number_column("step faster %", "faster_percent"),
                   number_column("exposed dp s without", "dp_without_s"),
                   number_column("with", "dp_with_s"),
                   text_column("fits"),
                   text_column("usually claimed", "claim")};
  for (const Optimization& one : optimizations_of(job)) {
    const Result without = forecast(one.without, read_file).result;
    const Result with = forecast(one.with, read_file).result;
    // Per sample: accumulation changes how many a step has.
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

}  // namespace flopcast
