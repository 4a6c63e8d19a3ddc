
#include <fmt/format.h>

#include <chrono>

#include "base/host/guard.hpp"
#include "base/text/error.hpp"
#include "realrun/compute/host_device.hpp"
#include "realrun/launch/launch.hpp"
#include "realrun/training/train.hpp"
#include "realrun/transport/mpi/mpi_transport.hpp"

namespace flopcast::realrun {

namespace {

struct MpiRun {
  LaunchOptions options;
  PreparedRun prepared;
};

void check_processes(const TrainingPlan& plan, int processes) {
  if (plan.servers > 0) {
    throw ConfigError({"layout.spare_hosts", "spare hosts run as threads only", {}, "--backend threads, or 0"});
  }
  if (processes == plan.ranks()) return;
  throw ConfigError({"--backend",
                     fmt::format("mpi: {} process{} started, but the job has {} ranks (dp {}{}, tp {}, pp {})",
                                 processes, processes == 1 ? " was" : "es were", plan.ranks(), plan.dp,
                                 plan.cp == 1 ? "" : fmt::format(", cp {}", plan.cp), plan.tp, plan.pipeline_ranks()),
                     "--backend",
                     fmt::format("mpirun -n {0} flopcast-run …, srun -n {0} flopcast-run …, or: flopcast run … "
                                 "--backend mpi",
                                 plan.ranks())});
}

MpiRun prepare_on_mpi(const std::vector<std::string>& arguments, int processes) {
  MpiRun run;
  run.options = parse_launch_options(arguments);
  if (!run.options.help.empty()) return run;
  if (run.options.backend == find_backend("threads")) {
    throw ConfigError({"--backend", fmt::format("threads: each of {} processes would run the whole job", processes),
                       "--backend", "mpi, or start one process"});
  }
  run.prepared = prepare_run(run.options);
  check_processes(run.prepared.plan, processes);
  return run;
}

// Invalid arguments are reported once MPI runs, by only one process.
std::chrono::milliseconds patience_of(const std::vector<std::string>& arguments) {
  try {
    return std::chrono::seconds(parse_launch_options(arguments).patience_s);
  } catch (const ConfigError&) {
    return std::chrono::seconds(LaunchOptions().patience_s);
  }
}

// Exchanges complaints: the lowest rank that has one reports it, and all ranks return its exit code.
int agree(Processes& processes, const MpiOptions& options, const ErrorReport& own) {
  std::vector<float> codes(static_cast<std::size_t>(processes.count()));
  run_mpi(processes, options, [&](MpiTransport& transport) {
    std::vector<int> all;
    for (int rank = 0; rank < transport.rank_count(); ++rank) all.push_back(rank);
    const Group everybody = transport.form_group(Axis::kPipeline, all);
    const Buffer input = allocate_host(sizeof(float));
    const Buffer output = allocate_host(sizeof(float) * codes.size());
    *host_floats(input) = static_cast<float>(own.exit_code);
    transport.run(everybody, {.kind = CollectiveKind::kAllGather, .input = input, .output = output});
    codes.assign(host_floats(output), host_floats(output) + codes.size());
  });
  for (std::size_t rank = 0; rank < codes.size(); ++rank) {
    if (codes[rank] == 0) continue;
    if (static_cast<int>(rank) == processes.rank()) print_error(own.text);
    return static_cast<int>(codes[rank]);
  }
  return 0;
}

// Rank 0 keeps the file; the other ranks send it their measurements.
ErrorReport train(Processes& processes, const MpiRun& run, const MpiOptions& mpi) {
  const bool keeps_file = processes.rank() == 0;
  std::vector<RankResult> results(static_cast<std::size_t>(processes.count()));
  // The load of other programs is unknown: one process's meter would count the other ranks as such.
  RunRecord about;
  about.backend = "mpi";
  about.job = run.prepared.job;
  about.warmup = run.options.warmup;
  ResultFile file(run.options.output, [&](const std::string& failure) {
    about.failure = failure;
    return run_file(run.prepared.plan, results, about);
  });
  ErrorReport report;
  std::string failure;
  std::string unwritten;
  try {
    if (keeps_file) file.keep();
  } catch (const EnvironmentError& error) {
    processes.report_failure(fmt::format("rank 0 failed in its set-up: {}", error.what()));
  }
  try {
    train_on_mpi(processes, run.prepared.plan, mpi, results, [&] { file.keep(); });
  } catch (const EnvironmentError& error) {
    failure = error.what();
  }
  // Reported before the file is written: mpirun may leave less time than a large file takes.
  if (!failure.empty() && processes.tells()) print_error("error: " + failure);
  try {
    if (keeps_file) file.finish(failure);
  } catch (const std::exception& error) {
    report = error_report(error);
    unwritten = error.what();
  }
  if (failure.empty()) return report;
  const bool is_new = failure.find(unwritten) == std::string::npos;
  if (report.exit_code != 0 && is_new) print_error(report.text);
  processes.end(kEnvironmentFailed);
}

}  // namespace

int launch_on_mpi(const std::vector<std::string>& arguments) {
  Processes processes(patience_of(arguments));
  MpiRun run;
  ErrorReport report;
  try {
    run = prepare_on_mpi(arguments, processes.count());
  } catch (const std::exception& error) {
    report = error_report(error);
  }
  const MpiOptions mpi{std::chrono::seconds(run.options.patience_s)};
  if (const int exit_code = agree(processes, mpi, report)) return exit_code;
  if (!run.options.help.empty()) {
    if (processes.rank() == 0) show_help(run.options);
    return 0;
  }
  report = train(processes, run, mpi);
  return agree(processes, mpi, report);
}

}  // namespace flopcast::realrun
