// Four ranks under 1F1B. Depending on the argument, rank 1 throws, falls silent or exits at one of its messages, or all
// ranks block in MPI. launch_test.cpp checks the reports and the exit from outside.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "base/text/error.hpp"
#include "realrun/training/train.hpp"
#include "realrun/transport/mpi/mpi_transport.hpp"
#include "tests/realrun/lossy_transport.hpp"
#include "tests/realrun/plans.hpp"

namespace flopcast::realrun {
namespace {

bool may_send(const std::string& fault, const MessageKey& key) {
  const bool is_the_one = key.microbatch == 3 && key.activation;
  if (is_the_one && fault == "throws") throw std::runtime_error("the disk is full");
  if (is_the_one && fault == "leaves") _exit(0);
  return !is_the_one || fault != "is silent";
}

// Blocks all ranks, so that none can notice.
void block(RankTransport& transport) {
  transport.note({.kind = Activity::Kind::kAction, .action = {3, 1, ActionKind::kForward}});
  int never = 0;
  MPI_Recv(&never, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

int run(const std::string& fault) {
  Processes processes;
  ScheduleRequest request;
  request.pipeline_ranks = processes.count();
  request.microbatches = 6;
  const TrainingPlan plan = plan_for(tiny_transformer(4), *find_schedule("1f1b"), request);
  const std::chrono::milliseconds patience(fault == "is silent" || fault == "blocks" ? 500 : 60'000);
  try {
    run_mpi(processes, {.patience = patience}, [&](MpiTransport& transport) {
      if (fault == "blocks") block(transport);
      LossyTransport lossy(transport,
                           [&](const MessageKey& key) { return transport.rank() != 1 || may_send(fault, key); });
      RankResult result;
      train_rank(plan, lossy, result);
    });
  } catch (const EnvironmentError& error) {
    if (processes.tells()) std::fprintf(stderr, "reported: %s\n", error.what());
    processes.end(4);
  }
  return 0;
}

}  // namespace
}  // namespace flopcast::realrun

int main(int argc, char** argv) {
  return flopcast::realrun::run(argc > 1 ? argv[1] : "");
}
