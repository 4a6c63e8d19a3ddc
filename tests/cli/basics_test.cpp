#include <gtest/gtest.h>

#include "tests/support/run_command.hpp"

namespace flopcast {
namespace {

TEST(Cli, PrintsItsVersion) {
  const CommandResult result = start_flopcast({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.standard_output, "flopcast " FLOPCAST_VERSION "\n");
  EXPECT_EQ(result.standard_error, "");
}

TEST(Cli, HelpNamesTheCommands) {
  const CommandResult result = start_flopcast({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.standard_error, "");
  for (const char* command : {"simulate", "memory", "timeline", "schedule", "partition", "catalog"}) {
    EXPECT_NE(result.standard_output.find(command), std::string::npos) << command;
  }
}

TEST(Cli, UnknownCommandIsAUsageError) {
  const CommandResult result = start_flopcast({"simulat"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.standard_output, "");
  EXPECT_NE(result.standard_error.find("simulat"), std::string::npos) << result.standard_error;
}

}  // namespace
}  // namespace flopcast
