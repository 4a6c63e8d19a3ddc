// A build without MPI reports that it is missing.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/run_command.hpp"

namespace flopcast {
namespace {

TEST(WithoutMpi, TheBackendIsRefused) {
  const CommandResult result = run_command({FLOPCAST_RUN, "--backend", "mpi"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_NE(result.standard_error.find("built without MPI"), std::string::npos) << result.standard_error;
}

}  // namespace
}  // namespace flopcast
