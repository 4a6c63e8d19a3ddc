#include <gtest/gtest.h>

#include "tests/support/run_command.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

TEST(Cli, PrintsItsVersion) {
  const CommandResult result = start_flopcast({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.standard_output, "flopcast " FLOPCAST_VERSION "\n");
  EXPECT_EQ(result.standard_error, "");
}

TEST(Cli, TellsWhatItIsBuiltOf) {
  const CommandResult result = start_flopcast({"--version", "--verbose"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.standard_output.rfind("flopcast " FLOPCAST_VERSION "\n", 0), 0u);
  for (const char* part : {"fmt 9.", "nlohmann_json 3.", "CLI11 2.", "Boost 1.", "Eigen 3.", "MPL-2.0"}) {
    EXPECT_NE(result.standard_output.find(part), std::string::npos) << part << "\n" << result.standard_output;
  }
  EXPECT_EQ(start_flopcast({"--version", "--verbos"}).exit_code, 2);
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

// A program that calls commands in process keeps its standard input; commands do not read it.
TEST(Cli, CommandsReadTheirCallersInput) {
  CommandOptions options;
  for (const char* layers : {"12", "24"}) {
    options.standard_input = std::string(R"({"model": {"name": "gpt3-125m", "layers": )") + layers +
                             R"(}, "cluster": "dgx-h100", "layout": {"global_batch_size": 8}})";
    const CommandResult result = run_flopcast({"simulate", "-", "--format", "json"}, options);
    ASSERT_EQ(result.exit_code, 0) << result.standard_error;
    EXPECT_NE(result.standard_output.find(std::string("\"layers\": ") + layers), std::string::npos) << layers;
  }
  options.standard_input = "0F0,0B0\n";
  EXPECT_EQ(run_flopcast({"schedule", "check", "-"}, options).exit_code, 0);
  EXPECT_NE(run_flopcast({"timeline", "-"}, options).standard_output, "");
  options.standard_input = R"({"model": 3})";
  EXPECT_EQ(run_flopcast({"plan", "-"}, options).exit_code, 2);
}

}  // namespace
}  // namespace flopcast
