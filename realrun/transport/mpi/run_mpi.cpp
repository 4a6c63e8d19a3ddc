#include "realrun/transport/mpi/run_mpi.hpp"

#include <fmt/format.h>

#include <exception>

#include "model/error/error.hpp"

namespace flopcast::realrun {

void run_mpi(Processes& processes, const MpiOptions& options, const std::function<void(MpiTransport&)>& body) {
  MpiTransport transport(processes, options.patience);
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
