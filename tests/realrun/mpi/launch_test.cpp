// flopcast-run under mpirun, and `flopcast run --backend mpi`: reports and files on success, for invalid arguments, and
// if ranks fail.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/folders.hpp"
#include "tests/support/run_command.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;
namespace fs = std::filesystem;

constexpr const char* kMark = "FLOPCAST_TEST_RUN";

CommandOptions mpi_options() {
  CommandOptions options;
  options.environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                         {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                         {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                         {"OMPI_MCA_mpi_yield_when_idle", "1"},
                         {"OMPI_MCA_hwloc_base_binding_policy", "none"},
                         {kMark, std::to_string(getpid())}};
  return options;
}

CommandResult mpirun(int ranks, const char* program, const Words& arguments) {
  Words words = {FLOPCAST_MPIRUN, "--quiet", "-n", std::to_string(ranks), program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run_command(words, mpi_options());
}

std::optional<Json> read_run(const fs::path& file) {
  std::ifstream stream(file);
  const Json measurement = Json::parse(stream, nullptr, false);
  if (measurement.is_discarded()) return std::nullopt;
  return measurement.at("run");
}

class MpiLaunch : public testing::Test {
 protected:
  fs::path folder_ = fs::temp_directory_path() / ("flopcast-mpi-test-" + std::to_string(getpid()));
  fs::path file_ = folder_ / "measured.json";
  void SetUp() override {
    fs::create_directories(folder_);
    std::ofstream(folder_ / "job.json") << R"({"model": {"layers": 4, "hidden": 16, "heads": 4, "vocab": 32,
      "sequence_length": 8}, "cluster": {"name": "dgx-a100-80g", "nodes": [{"devices": 4}]},
      "layout": {"pp": 4, "global_batch_size": 8}, "training": {"precision": "fp32"}})";
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string job() const { return (folder_ / "job.json").string(); }
};

std::vector<double> losses_of(const Json& run) {
  std::vector<double> losses;
  for (const Json& step : run.at("steps")) losses.push_back(step.at("loss"));
  return losses;
}

TEST_F(MpiLaunch, TrainsAsThreadsDo) {
  const auto run_with = [&](const std::string& backend) {
    const CommandResult result =
        start_flopcast({"run", job(), "--backend", backend, "-o", file_.string(), "--format", "json"}, mpi_options());
    EXPECT_EQ(result.exit_code, 0) << result.standard_error;
    EXPECT_TRUE(Json::accept(result.standard_output)) << result.standard_output;
    return read_run(file_).value();
  };
  const Json threads = run_with("threads");
  const Json mpi = run_with("mpi");
  EXPECT_EQ(mpi.at("backend"), "mpi");
  EXPECT_EQ(mpi.at("complete"), true);
  EXPECT_EQ(losses_of(mpi), losses_of(threads));
  EXPECT_EQ(mpi.at("peak_activation_bytes_by_rank"), threads.at("peak_activation_bytes_by_rank"));
  ASSERT_EQ(mpi.at("steps").size(), 17U);
  for (std::size_t step = 0; step < 5; ++step) {
    EXPECT_EQ(mpi.at("steps")[step].at("traffic_by_rank"), threads.at("steps")[step].at("traffic_by_rank"));
  }
  // One clock: no message arrives before it is sent, and its inputs are complete by then.
  const Json& timeline = mpi.at("steps")[2].at("timeline");
  EXPECT_EQ(timeline.at("transfers").size(), 48U);
  for (const Json& transfer : timeline.at("transfers")) {
    EXPECT_LE(transfer.at("start_ps").get<std::int64_t>(), transfer.at("end_ps").get<std::int64_t>());
  }
  for (const Json& spans : timeline.at("ranks")) EXPECT_GE(spans.size(), 16U);
}

TEST_F(MpiLaunch, RunsUnderMpirunByHand) {
  const CommandResult result = mpirun(4, FLOPCAST_RUN, {job(), "--steps", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.standard_error;
  ASSERT_TRUE(Json::accept(result.standard_output)) << result.standard_output;
  EXPECT_EQ(Json::parse(result.standard_output).at("run").at("backend"), "mpi");
}

TEST_F(MpiLaunch, OneProcessTellsOfAMistake) {
  const auto message_of = [](const CommandResult& result, int exit_code) {
    EXPECT_EQ(result.exit_code, exit_code) << result.standard_error;
    EXPECT_EQ(result.standard_error.find("error: "), result.standard_error.rfind("error: ")) << result.standard_error;
    return result.standard_error;
  };
  EXPECT_NE(message_of(mpirun(3, FLOPCAST_RUN, {job()}), 2).find("3 processes were started, but the job has 4 ranks"),
            std::string::npos);
  EXPECT_NE(message_of(mpirun(2, FLOPCAST_RUN, {job(), "--stpes", "3"}), 2).find("--steps"), std::string::npos);
  EXPECT_NE(message_of(mpirun(2, FLOPCAST_RUN, {job(), "--backend", "threads"}), 2).find("each of 2 processes"),
            std::string::npos);
  EXPECT_NE(message_of(mpirun(4, FLOPCAST_RUN, {job(), "-o", "/dev/full"}), 4).find("cannot write /dev/full"),
            std::string::npos);
  EXPECT_NE(message_of(run_command({FLOPCAST_RUN, job(), "--backend", "mpi"}), 2).find("1 process was started"),
            std::string::npos);
  CommandOptions without_mpirun = mpi_options();
  without_mpirun.environment["PATH"] = "/nowhere";
  const CommandResult missing = start_flopcast({"run", job(), "--backend", "mpi"}, without_mpirun);
  EXPECT_NE(message_of(missing, 4).find("mpirun, which is not on the path"), std::string::npos);
}

TEST_F(MpiLaunch, ARankThatThrowsIsNamedWithItsAction) {
  const CommandResult result = mpirun(4, FLOPCAST_FAULTY_RANK, {"throws"});
  EXPECT_EQ(result.exit_code, 4) << result.standard_error;
  EXPECT_NE(result.standard_error.find("reported: rank 1 failed in 1F3: the disk is full"), std::string::npos)
      << result.standard_error;
}

TEST_F(MpiLaunch, APeerThatNeverSendsIsFoundOut) {
  const CommandResult result = mpirun(4, FLOPCAST_FAULTY_RANK, {"is silent"});
  EXPECT_EQ(result.exit_code, 4) << result.standard_error;
  EXPECT_NE(result.standard_error.find("reported: rank "), std::string::npos) << result.standard_error;
  EXPECT_NE(result.standard_error.find("it has waited 500 ms for the "), std::string::npos) << result.standard_error;
}

TEST_F(MpiLaunch, RanksThatMpiNeverLetsGoAreNamed) {
  const CommandResult result = mpirun(4, FLOPCAST_FAULTY_RANK, {"blocks"});
  EXPECT_EQ(result.exit_code, 4) << result.standard_error;
  EXPECT_NE(result.standard_error.find("which is in 1F3 is stuck"), std::string::npos) << result.standard_error;
}

TEST_F(MpiLaunch, ARankThatLeavesIsNamedWithItsAction) {
  const CommandResult result = mpirun(4, FLOPCAST_FAULTY_RANK, {"leaves"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.standard_error.find("reported: rank 1 has died in 1F3"), std::string::npos) << result.standard_error;
}

// The process of a rank of this test, found by the environment that mpirun has set.
std::optional<pid_t> process_of_rank(int rank) {
  const std::string mark = std::string(kMark) + "=" + std::to_string(getpid());
  const std::string place = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank);
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const pid_t process = static_cast<pid_t>(std::atol(entry.path().filename().c_str()));
    if (process <= 0) continue;
    std::ifstream stream(entry.path() / "environ", std::ios::binary);
    bool is_of_test = false;
    bool is_rank = false;
    for (std::string word; std::getline(stream, word, '\0');) {
      is_of_test = is_of_test || word == mark;
      is_rank = is_rank || word == place;
    }
    if (is_of_test && is_rank) return process;
  }
  return std::nullopt;
}

// Sends the signal to rank 1 in the middle of a long run.
CommandResult run_and_signal(const Words& words, const fs::path& file, int signal) {
  std::future<CommandResult> running =
      std::async(std::launch::async, [&] { return start_flopcast(words, mpi_options()); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const std::optional<Json> run = read_run(file);
    if (run && !run->at("steps").empty()) break;
  }
  const std::optional<pid_t> process = process_of_rank(1);
  EXPECT_TRUE(process.has_value());
  if (process) kill(*process, signal);
  return running.get();
}

void expect_partial_file(const fs::path& file, const std::string& failure) {
  const std::optional<Json> run = read_run(file);
  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(run->at("complete"), false);
  EXPECT_NE(run->at("failure").get<std::string>().find(failure), std::string::npos) << run->at("failure");
  ASSERT_FALSE(run->at("steps").empty());
  EXPECT_EQ(run->at("steps")[0].at("timeline").at("ranks").size(), 4U);
}

TEST_F(MpiLaunch, AKilledRankIsNamedAndTheFileStays) {
  const Words words = {"run", job(), "--backend", "mpi", "--steps", "500000", "-o", file_.string()};
  const CommandResult result = run_and_signal(words, file_, SIGKILL);
  EXPECT_EQ(result.exit_code, 4) << result.standard_error;
  EXPECT_FALSE(result.timed_out);
  EXPECT_NE(result.standard_error.find("error: rank 1 has died in "), std::string::npos) << result.standard_error;
  expect_partial_file(file_, "rank 1 has died in ");
}

TEST_F(MpiLaunch, AStoppedRankIsNamedAndTheFileStays) {
  const Words words = {"run", job(), "--backend", "mpi", "--steps", "500000", "--timeout", "2", "-o", file_.string()};
  const CommandResult result = run_and_signal(words, file_, SIGSTOP);
  EXPECT_EQ(result.exit_code, 4) << result.standard_error;
  EXPECT_FALSE(result.timed_out);
  EXPECT_NE(result.standard_error.find("it has waited 2000 ms for "), std::string::npos) << result.standard_error;
  expect_partial_file(file_, "it has waited 2000 ms for ");
}

}  // namespace
}  // namespace flopcast
