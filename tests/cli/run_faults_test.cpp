// `flopcast run` when the machine fails: killed, interrupted, disk full. Measured steps stay readable.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/small_run.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/run_command.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr int kEnvironmentFailed = 4;

std::string contents_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

class RunFaults : public testing::Test {
 protected:
  fs::path folder_ = fs::temp_directory_path() / ("flopcast-run-faults-test-" + std::to_string(getpid()));
  fs::path file_ = folder_ / "measured.json";
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<std::string> run_of(std::vector<std::string> more) const {
    more.insert(more.end(), {"--pp", "4", "-o", file_.string()});
    return small_run(more);
  }

  std::size_t steps_in_file() const {
    const std::string text = contents_of(file_);
    return text.empty() ? 0 : Json::parse(text).at("run").at("steps").size();
  }

  // The flopcast-run process that writes this test's file.
  std::optional<pid_t> launcher() const {
    for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      if (contents_of(entry.path() / "comm") != "flopcast-run\n") continue;
      if (contents_of(entry.path() / "cmdline").find(file_.string()) == std::string::npos) continue;
      return static_cast<pid_t>(std::stol(name));
    }
    return std::nullopt;
  }

  static pid_t parent_of(pid_t child) {
    const std::string status = contents_of(fs::path("/proc") / std::to_string(child) / "status");
    return static_cast<pid_t>(std::stol(status.substr(status.find("PPid:") + 5)));
  }

  // Starts a run that would take hours, and sends its flopcast-run a signal after the first step.
  CommandResult run_with_signal(int signal, bool to_parent = false) {
    auto running = std::async(std::launch::async, [&] { return start_flopcast(run_of({"--steps", "1000000"})); });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(50);
    while (steps_in_file() == 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const std::optional<pid_t> child = launcher();
    EXPECT_TRUE(child.has_value());
    if (child) kill(to_parent ? parent_of(*child) : *child, signal);
    CommandResult result = running.get();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (launcher() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(launcher().has_value()) << "a child outlives its parent";
    return result;
  }
};

TEST_F(RunFaults, AKilledRunLeavesItsFinishedSteps) {
  const CommandResult result = run_with_signal(SIGKILL);
  EXPECT_EQ(result.exit_code, kEnvironmentFailed) << result.standard_error;
  EXPECT_NE(result.standard_error.find("killed by signal 9"), std::string::npos) << result.standard_error;
  EXPECT_NE(result.standard_error.find(file_.string() + " contains the "), std::string::npos) << result.standard_error;
  const Json run = Json::parse(contents_of(file_)).at("run");
  EXPECT_EQ(run.at("complete"), false);
  ASSERT_GE(run.at("steps").size(), 1U);
  EXPECT_EQ(run.at("steps")[0].at("timeline").at("ranks").size(), 4U);
}

TEST_F(RunFaults, AnInterruptedRunSaysWhereItWas) {
  const CommandResult result = run_with_signal(SIGTERM);
  EXPECT_EQ(result.exit_code, kEnvironmentFailed) << result.standard_error;
  EXPECT_NE(result.standard_error.find("stopped by signal 15 while rank "), std::string::npos) << result.standard_error;
  const Json run = Json::parse(contents_of(file_)).at("run");
  EXPECT_EQ(run.at("complete"), false);
  EXPECT_EQ(run.at("failure").get<std::string>().rfind("stopped by signal 15", 0), 0U) << run.at("failure");
  EXPECT_GE(run.at("steps").size(), 1U);
}

TEST_F(RunFaults, ARunEndsWithTheProgramThatStartedIt) {
  const CommandResult killed = run_with_signal(SIGKILL, true);
  EXPECT_EQ(killed.exit_code, 128 + SIGKILL);
  fs::remove(file_);
  for (const int signal : {SIGINT, SIGHUP, SIGTERM}) {
    const CommandResult result = run_with_signal(signal, true);
    EXPECT_EQ(result.exit_code, kEnvironmentFailed) << signal << result.standard_error;
    fs::remove(file_);
  }
}

TEST_F(RunFaults, NoFolderForTemporaryFilesIsNoBug) {
  CommandOptions options;
  options.environment = {{"TMPDIR", "/nowhere"}};
  const CommandResult result = start_flopcast(run_of({"--steps", "1"}), options);
  EXPECT_EQ(result.exit_code, kEnvironmentFailed);
  EXPECT_NE(result.standard_error.find("TMPDIR"), std::string::npos) << result.standard_error;
}

TEST_F(RunFaults, AFullDiskForTheTraceLosesNothingElse) {
  for (const char* flag : {"--trace", "--svg"}) {
    const CommandResult result = start_flopcast(run_of({"--steps", "2", flag, "/dev/full"}));
    EXPECT_EQ(result.exit_code, kEnvironmentFailed) << flag;
    EXPECT_NE(result.standard_error.find("/dev/full"), std::string::npos) << result.standard_error;
    const Json run = Json::parse(contents_of(file_)).at("run");
    EXPECT_EQ(run.at("complete"), true);
    EXPECT_EQ(run.at("steps").size(), 2U);
    fs::remove(file_);
  }
}

// A limit on file sizes makes a write fail as on a full disk. The last complete file stays.
TEST_F(RunFaults, ADiskThatFillsUpKeepsWhatWasWritten) {
  std::vector<std::string> words = {"sh", "-c", "ulimit -f 200; exec \"$@\"", "sh", FLOPCAST_PROGRAM};
  const std::vector<std::string> run = run_of({"--steps", "40"});
  words.insert(words.end(), run.begin(), run.end());
  const CommandResult result = run_command(words);
  EXPECT_EQ(result.exit_code, kEnvironmentFailed) << result.standard_error;
  EXPECT_NE(result.standard_error.find("cannot write " + file_.string()), std::string::npos) << result.standard_error;
  const Json kept = Json::parse(contents_of(file_)).at("run");
  EXPECT_EQ(kept.at("complete"), false);
  EXPECT_GE(kept.at("steps").size(), 1U);
  EXPECT_LT(kept.at("steps").size(), 40U);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1) << "half a file is left";
}

TEST_F(RunFaults, ALimitOnFilesEndsOtherCommandsLikeAFullDisk) {
  const CommandResult result =
      run_command({"sh", "-c", "ulimit -f 2; exec \"$@\"", "sh", FLOPCAST_PROGRAM, "simulate", "--model", "llama3-8b",
                   "--cluster", "4xdgx-h100", "--gbs", "64", "--format", "json", "-o", file_.string()});
  EXPECT_EQ(result.exit_code, kEnvironmentFailed) << result.standard_error;
  EXPECT_NE(result.standard_error.find("File too large"), std::string::npos) << result.standard_error;
  EXPECT_TRUE(fs::is_empty(folder_)) << "half a file is left";
}

TEST_F(RunFaults, AnOlderFileIsNotTakenForThisRuns) {
  ASSERT_EQ(start_flopcast(run_of({"--steps", "2"})).exit_code, 0);
  const CommandResult result = start_flopcast(run_of({"--steps", "2", "--backend", "smoke"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.standard_error.find("note:"), std::string::npos) << result.standard_error;
}

TEST_F(RunFaults, TheMeasurementCanGoToAPipe) {
  const CommandResult result = start_flopcast(small_run({"--steps", "1", "-o", "/dev/stdout"}));
  EXPECT_EQ(result.exit_code, 0) << result.standard_error;
  EXPECT_EQ(result.standard_output.rfind("{\"schema\":\"flopcast.measurement/1\"", 0), 0U);
  EXPECT_NE(result.standard_output.find("step time"), std::string::npos);
}

}  // namespace
}  // namespace flopcast
