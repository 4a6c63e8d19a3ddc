#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "base/host/guard.hpp"
#include "base/host/processes.hpp"
#include "base/text/error.hpp"
#include "realrun/launch/launch.hpp"
#include "realrun/rendezvous/meeting.hpp"

namespace flopcast::realrun {
namespace {

// Set by a signal; the run notices it at its next action, writes its results and ends.
std::atomic<int> interruption{0};
static_assert(std::atomic<int>::is_always_lock_free);

// A second signal ends the process immediately. One that follows the first within a short time is the same signal, sent
// to the process group and forwarded by one of its processes.
extern "C" void interrupt(int signal) {
  static volatile std::time_t first_s = 0;
  static volatile long first_ns = 0;
  constexpr long kSecond = 1'000'000'000;
  constexpr long kSame = kSecond / 2;
  const int error = errno;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (interruption == 0) {
    first_s = now.tv_sec;
    first_ns = now.tv_nsec;
    interruption = signal;
  } else if ((now.tv_sec - first_s) * kSecond + now.tv_nsec - first_ns > kSame) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  errno = error;
}

void take_signals() {
  struct sigaction action {};
  action.sa_handler = interrupt;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN)
      sigaction(signal, &action, nullptr);  // ignored signals stay ignored, as with nohup
  }
  // Writing to a closed pipe, or past a file size limit, then fails like writing to a full disk.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

// A hanging rank may still write to its results: the file kept after the last step must do.
[[noreturn]] void end_process(const std::string& failure) {
  print_error("error: " + failure);
  std::_Exit(kEnvironmentFailed);
}

ThreadOptions thread_options(const LaunchOptions& options) {
  return {.patience = std::chrono::seconds(options.patience_s), .interruption = &interruption, .abandon = end_process};
}

int launch_on_threads(const LaunchOptions& options, const ThreadOptions& threads) {
  const PreparedRun run = prepare_run(options);
  RunRecord about;
  about.backend = "threads";
  run_with_result_file(options, run, about, [&](std::vector<RankResult>& results, const BetweenSteps& between) {
    train_on_threads(run.plan, threads, results, between);
  });
  return 0;
}

using Words = std::vector<std::string>;

// Backend named by the arguments before they are checked: processes started together that find an error must agree on
// which of them reports it.
const Backend* named_backend(const Words& words) {
  const std::string flag = "--backend";
  for (std::size_t index = 0; index < words.size(); ++index) {
    if (words[index].rfind(flag + "=", 0) == 0) return find_backend(words[index].substr(flag.size() + 1));
    if (words[index] == flag && index + 1 < words.size()) return find_backend(words[index + 1]);
  }
  return nullptr;
}

const Backend& backend_for(const Words& words) {
  const Backend* named = named_backend(words);
  if (named != nullptr && named->meets) return *named;
  if (launched_processes() > 1) return *find_backend("mpi");
  return named == nullptr ? kBackends.front() : *named;
}

using Launch = int (*)(const LaunchOptions& options, const ThreadOptions& threads);

// In the order of kBackends.
constexpr std::array<Launch, kBackends.size()> kLaunches = {launch_on_threads, nullptr, launch_on_virtual_gpus,
                                                            launch_on_nccl};

int launch(const Words& words) {
  const Backend& backend = backend_for(words);
  if (backend.needs_mpirun) return launch_on_mpi(words);
  const LaunchOptions options = parse_launch_options(words);
  if (show_help(options)) return 0;
  const auto index = static_cast<std::size_t>(&backend - kBackends.data());
  return kLaunches.at(index)(options, thread_options(options));
}

}  // namespace

// Without CUDA, this reports the missing build option instead of running.

#ifndef FLOPCAST_HAS_CUDA
namespace {

// Errors of the job do not depend on GPUs, so they are reported first.
int refuse_gpus(const LaunchOptions& options) {
  check_for_gpus(options, prepare_run(options));
  throw EnvironmentError(
      "flopcast-run was built without CUDA: only --backend threads and mpi are available\n  help: configure with "
      "-DFLOPCAST_WITH_CUDA=ON where nvcc is installed (CUDA 12.5 or later), and build");
}

}  // namespace

int launch_on_virtual_gpus(const LaunchOptions& options, const ThreadOptions& /*threads*/) {
  return refuse_gpus(options);
}

int launch_on_nccl(const LaunchOptions& options, const ThreadOptions& /*threads*/) {
  return refuse_gpus(options);
}
#endif

}  // namespace flopcast::realrun

int main(int argc, char** argv) {
  using namespace flopcast;
  using namespace flopcast::realrun;
  take_signals();
  keep_freed_memory();
  return exit_code_of([&] { return launch({argv + 1, argv + argc}); }, true, standard_streams());
}
