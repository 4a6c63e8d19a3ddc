#include "tests/realrun/mpi/under_mpi.hpp"

#include <gtest/gtest.h>

#include <iostream>

#include "realrun/transport/mpi/processes.hpp"

namespace flopcast::realrun {

namespace {

Processes* processes = nullptr;

class FailuresOnly : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::cerr << "rank " << test_processes().rank() << ": " << result.file_name() << ":" << result.line_number() << ": "
              << result.summary() << "\n";
  }
};

int run_tests() {
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (processes->rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly);
  }
  const int own = RUN_ALL_TESTS();
  if (!processes->failure().empty()) processes->end(1);
  int worst = 0;
  check_mpi(MPI_Allreduce(&own, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD), "compare results");
  return worst;
}

}  // namespace

Processes& test_processes() {
  return *processes;
}

}  // namespace flopcast::realrun

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  flopcast::realrun::Processes all;
  flopcast::realrun::processes = &all;
  return flopcast::realrun::run_tests();
}
