#include "realrun/transport/mpi/run_mpi.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "model/error/error.hpp"
#include "realrun/transport/mpi/watchdog.hpp"

namespace flopcast::realrun {

namespace {

// Longer than any wait: those that still look after their waits tell first.
std::chrono::milliseconds longest_silence(std::chrono::milliseconds patience) {
  return 2 * patience + std::chrono::seconds(1);
}

[[noreturn]] void give_up(const std::string& whereabouts, std::chrono::milliseconds patience) {
  constexpr int kEnvironmentFailed = 4;
  std::fputs(fmt::format("error: {} is stuck: neither a computation nor MPI has come back for {} ms\n", whereabouts,
                         longest_silence(patience).count())
                 .c_str(),
             stderr);
  std::fflush(stderr);
  std::_Exit(kEnvironmentFailed);
}

}  // namespace

void run_mpi(Processes& processes, const MpiOptions& options, const std::function<void(MpiTransport&)>& body) {
  MpiTransport transport(processes, options.patience);
  const Watchdog watchdog(transport.beats(), longest_silence(options.patience),
                          [&] { give_up(processes.whereabouts(processes.rank()), options.patience); });
  try {
    transport.note({});
    body(transport);
    transport.finish();
    transport.note({.kind = Activity::Kind::kDone, .action = {}});
    return;
  } catch (const Aborted&) {
    // told already
  } catch (const std::exception& error) {
    const Activity activity = processes.board().activity_of(processes.rank()).value_or(Activity{});
    processes.report_failure(
        fmt::format("rank {} failed in {}: {}", transport.rank(), to_string(activity), error.what()));
  }
  throw EnvironmentError(processes.failure());
}

}  // namespace flopcast::realrun
