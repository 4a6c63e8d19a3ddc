#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/host/exit_code.hpp"
#include "base/host/launcher.hpp"
#include "base/text/error.hpp"
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

// A rank that hangs may still write to its results: what was kept after the last step has to do.
[[noreturn]] void end_process(const std::string& failure) {
  complain("error: " + failure);
  std::_Exit(kEnvironmentFailed);
}

ThreadOptions thread_options(const LaunchOptions& options) {
  return {.patience = std::chrono::seconds(options.patience_s), .interruption = &interruption, .abandon = end_process};
}

using Words = std::vector<std::string>;

int on_threads(const Words& words) {
  const LaunchOptions options = parse_launch_options(words);
  if (show_help(options)) return 0;
  const PreparedRun run = prepare_run(options);
  keep_run(options, run, {.backend = "threads"}, [&](std::vector<RankResult>& results, const BetweenSteps& between) {
    train_on_threads(run.plan, thread_options(options), results, between);
  });
  return 0;
}

int on_virtual_gpus(const Words& words) {
  const LaunchOptions options = parse_launch_options(words);
  return show_help(options) ? 0 : launch_on_virtual_gpus(options, thread_options(options));
}

int on_nccl(const Words& words) {
  const LaunchOptions options = parse_launch_options(words);
  return show_help(options) ? 0 : launch_on_nccl(options, &interruption);
}

using Launch = int (*)(const Words& words);

// In the order of kBackends.
constexpr std::array<Launch, kBackends.size()> kLaunches = {on_threads, launch_on_mpi, on_virtual_gpus, on_nccl};

// What the words name, before they are judged: processes that were started together and find a mistake have to agree on
// who tells.
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

}  // namespace
}  // namespace flopcast::realrun

int main(int argc, char** argv) {
  using namespace flopcast;
  using namespace flopcast::realrun;
  take_signals();
  keep_freed_memory();
  return exit_code_of(
      [&] {
        const Words words(argv + 1, argv + argc);
        const auto index = static_cast<std::size_t>(&backend_for(words) - kBackends.data());
        return kLaunches.at(index)(words);
      },
      true, standard_streams());
}
