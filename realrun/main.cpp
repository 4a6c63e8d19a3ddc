#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "base/host/exit_code.hpp"
#include "model/error/error.hpp"
#include "realrun/launch/command_line.hpp"
#include "realrun/launch/host_load.hpp"
#include "realrun/launch/kept_run.hpp"
#include "realrun/launch/launch.hpp"
#include "realrun/launch/prepared_run.hpp"

namespace flopcast::realrun {
namespace {

// Set by a signal; the run notices at its next action, writes what it has and ends.
std::atomic<int> interruption{0};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void interrupt(int signal) {
  interruption = signal;
}

// A second signal ends the process at once.
void take_signals() {
  struct sigaction action {};
  action.sa_handler = interrupt;
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // Writing where nobody reads, or past a limit, fails like writing to a full disk.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

bool names_nccl(const std::vector<std::string>& arguments) {
  for (std::size_t index = 0; index < arguments.size(); ++index) {
    if (arguments[index] == "--backend=nccl") return true;
    if (arguments[index] == "--backend" && index + 1 < arguments.size() && arguments[index + 1] == "nccl") return true;
  }
  return false;
}

// A rank that hangs may still write to its results: what was kept after the last step has to do.
[[noreturn]] void end_process(const std::string& failure) {
  complain("error: " + failure);
  std::_Exit(kEnvironmentFailed);
}

int launch(const LaunchOptions& options) {
  if (options.help) {
    std::fputs(launch_help().c_str(), stdout);
    return 0;
  }
  const ThreadOptions threads{
      .patience = std::chrono::seconds(options.patience_s), .interruption = &interruption, .abandon = end_process};
  if (options.backend == "virtual-gpus") return launch_on_virtual_gpus(options, threads);
  const PreparedRun run = prepare_run(options);
  keep_run(options, run, {.backend = "threads"}, [&](std::vector<RankResult>& results, const BetweenSteps& between) {
    train_on_threads(run.plan, threads, results, between);
  });
  return 0;
}

}  // namespace
}  // namespace flopcast::realrun

int main(int argc, char** argv) {
  using namespace flopcast;
  using namespace flopcast::realrun;
  take_signals();
  keep_freed_memory();
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    // Under a launcher too: each process has its GPU.
    if (names_nccl(arguments)) return launch_on_nccl(parse_launch_options(arguments), &interruption);
    // Started together, processes that find a mistake have to agree on who tells.
    if (launched_processes() > 1) return launch_on_mpi(arguments);
    const LaunchOptions options = parse_launch_options(arguments);
    return options.backend == "mpi" && !options.help ? launch_on_mpi(arguments) : launch(options);
  } catch (const std::exception& error) {
    const Complaint complaint = complaint_about(error);
    complain(complaint.text);
    return complaint.exit_code;
  }
}
