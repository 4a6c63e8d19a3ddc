#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>

#include "tests/support/folders.hpp"
#include "tests/support/run_command.hpp"

namespace flopcast {
namespace {

using std::chrono::milliseconds;

TEST(RunCommand, KeepsStreamsApart) {
  const CommandResult result = run_command({"sh", "-c", "printf out; printf err >&2; exit 3"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.standard_output, "out");
  EXPECT_EQ(result.standard_error, "err");
  EXPECT_FALSE(result.timed_out);
}

TEST(RunCommand, PassesArgumentsWithoutAShell) {
  EXPECT_EQ(run_command({"printf", "%s|", "a b", "$HOME", "*", ""}).standard_output, "a b|$HOME|*||");
}

TEST(RunCommand, CarriesMoreThanAPipeHolds) {
  CommandOptions options;
  options.standard_input = std::string(1'000'000, 'x');
  EXPECT_EQ(run_command({"cat"}, options).standard_output, options.standard_input);
  EXPECT_EQ(run_command({"true"}, options).exit_code, 0) << "a program that does not read its input";
}

TEST(RunCommand, SetsFolderAndEnvironment) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  options.environment["FLOPCAST_SAMPLE"] = "sample";
  options.unset = {"HOME"};
  EXPECT_EQ(run_command({"sh", "-c", "pwd; echo $FLOPCAST_SAMPLE ${HOME-none}"}, options).standard_output,
            folder.path().string() + "\nsample none\n");
}

TEST(RunCommand, KillsWhatTakesTooLong) {
  CommandOptions options;
  options.timeout = milliseconds(1000);  // long enough for a shell to start on a busy machine
  const auto start = std::chrono::steady_clock::now();
  const CommandResult result = run_command({"sh", "-c", "printf begun; sleep 30 & wait"}, options);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.exit_code, 128 + 9);
  EXPECT_EQ(result.standard_output, "begun");
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(10'000));
}

TEST(RunCommand, SaysWhatCannotBeStarted) {
  EXPECT_THROW(run_command({"/nowhere/no-such-program"}), std::runtime_error);
  EXPECT_THROW(run_command({}), std::runtime_error);
}

TEST(TemporaryFolderTest, IsDeletedWithItsContent) {
  std::filesystem::path path;
  {
    const TemporaryFolder folder;
    path = folder.path();
    write_text(path / "file", "text");
    EXPECT_EQ(read_text(path / "file"), "text");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THROW(read_text(path / "file"), std::runtime_error);
}

TEST(ReferenceFolder, ObeysTheEnvironment) {
  const TemporaryFolder folder;
  ASSERT_EQ(setenv("FLOPCAST_REFERENCE", folder.path().c_str(), 1), 0);
  EXPECT_EQ(reference_folder(), folder.path());
  ASSERT_EQ(setenv("FLOPCAST_REFERENCE", "/nowhere/at/all", 1), 0);
  EXPECT_THROW(reference_folder(), std::runtime_error);
  ASSERT_EQ(unsetenv("FLOPCAST_REFERENCE"), 0);
}

}  // namespace
}  // namespace flopcast
