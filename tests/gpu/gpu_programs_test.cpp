// A flopcast-run built with CUDA, where it has no GPU: it starts, does what needs none, and says what is missing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/support/folders.hpp"
#include "tests/support/run_command.hpp"

namespace flopcast {
namespace {

constexpr int kBadUsage = 2;
constexpr int kEnvironmentFailed = 4;

CommandResult run(std::vector<std::string> flags, const CommandOptions& options = {}) {
  std::vector<std::string> words = {FLOPCAST_RUN, (project_folder() / "examples/real-run/job.json").string()};
  words.insert(words.end(), flags.begin(), flags.end());
  return run_command(words, options);
}

// No GPU for the program even where there is one.
CommandOptions without_gpu() {
  CommandOptions options;
  options.environment["CUDA_VISIBLE_DEVICES"] = "-1";
  return options;
}

TEST(GpuPrograms, CpuRanksNeedNothingOfCuda) {
  const CommandResult result = run({"--steps", "2", "-o", "/dev/null"}, without_gpu());
  EXPECT_EQ(result.exit_code, 0) << result.standard_error;
}

TEST(GpuPrograms, WhatIsMissingIsSaid) {
  for (const char* backend : {"virtual-gpus", "nccl"}) {
    const CommandResult result = run({"--backend", backend}, without_gpu());
    EXPECT_EQ(result.exit_code, kEnvironmentFailed) << backend;
    const std::string& said = result.standard_error;
    const bool names = said.find("no NVIDIA driver was found: libcuda.so.1") != std::string::npos ||
                       said.find("no GPU can be used") != std::string::npos;
    EXPECT_TRUE(names) << said;
    EXPECT_NE(said.find("help: "), std::string::npos) << said;
  }
}

TEST(GpuPrograms, AProcessOfALauncherSaysItToo) {
  CommandOptions options = without_gpu();
  options.environment = {{"CUDA_VISIBLE_DEVICES", "-1"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}};
  const std::string folder = "file:/tmp/flopcast-gpu-programs-" + std::to_string(getpid());
  const CommandResult one = run({"--backend", "nccl", "--store", folder, "--pp", "1", "--cluster.nodes", "1"}, options);
  EXPECT_EQ(one.exit_code, kEnvironmentFailed) << one.standard_error;
}

TEST(GpuPrograms, RanksThatDoNotComeAreNamed) {
  CommandOptions options = without_gpu();
  options.environment = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}};
  const std::string folder = "file:/tmp/flopcast-gpu-late-" + std::to_string(getpid());
  const CommandResult result = run({"--backend", "nccl", "--store", folder, "--timeout", "1"}, options);
  EXPECT_EQ(result.exit_code, kEnvironmentFailed);
  EXPECT_NE(result.standard_error.find("of 2 ranks 0 has not come within 1 s"), std::string::npos)
      << result.standard_error;
}

TEST(GpuPrograms, WrongVariablesOfALauncherAreNamed) {
  CommandOptions options;
  options.environment = {{"RANK", "5"}, {"WORLD_SIZE", "2"}};
  const CommandResult result = run({"--backend", "nccl"}, options);
  EXPECT_EQ(result.exit_code, kBadUsage);
  EXPECT_NE(result.standard_error.find("RANK: \"5\" is no whole number from 0 to 1"), std::string::npos)
      << result.standard_error;
}

TEST(GpuPrograms, ProcessesThatCannotMeetSayWhatIsMissing) {
  CommandOptions options = without_gpu();
  options.environment = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}};
  const CommandResult result = run({"--backend", "nccl"}, options);
  EXPECT_EQ(result.exit_code, kBadUsage);
  EXPECT_NE(result.standard_error.find("set MASTER_ADDR and MASTER_PORT, or --store file:FOLDER"), std::string::npos)
      << result.standard_error;
}

// An interactive shell of Slurm is a launched process itself.
TEST(GpuPrograms, AProcessThatWasLaunchedAloneForksTheRanks) {
  CommandOptions options = without_gpu();
  options.environment["SLURM_PROCID"] = "0";
  options.environment["SLURM_STEP_NUM_TASKS"] = "1";
  options.environment["SLURM_LOCALID"] = "0";
  EXPECT_EQ(run({"--backend", "nccl"}, options).exit_code, kEnvironmentFailed);
}

// Both meet where MPI has told them: what is missing then is the GPU.
TEST(GpuPrograms, MpiTellsWhereToMeet) {
#ifdef FLOPCAST_MPIRUN
  CommandOptions options = without_gpu();
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                           "OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_mpi_yield_when_idle"}) {
    options.environment[name] = "1";
  }
  options.environment["OMPI_MCA_hwloc_base_binding_policy"] = "none";
  const CommandResult result =
      run_command({FLOPCAST_MPIRUN, "-n", "2", FLOPCAST_RUN, (project_folder() / "examples/real-run/job.json").string(),
                   "--backend", "nccl"},
                  options);
  EXPECT_EQ(result.exit_code, kEnvironmentFailed) << result.standard_error;
  EXPECT_EQ(result.standard_error.find("--store"), std::string::npos) << result.standard_error;
  EXPECT_NE(result.standard_error.find("help: "), std::string::npos) << result.standard_error;
#else
  GTEST_SKIP() << "built without MPI";
#endif
}

TEST(GpuPrograms, WhatGpusCannotDoIsRefusedFirst) {
  const CommandResult result =
      run({"--backend", "virtual-gpus", "--layout.compression", "8bit", "--layout.dp", "2", "--layout.pp", "1"});
  EXPECT_EQ(result.exit_code, kBadUsage) << result.standard_error;
  EXPECT_NE(result.standard_error.find("layout.compression: 8bit is not done on GPUs"), std::string::npos)
      << result.standard_error;
}

}  // namespace
}  // namespace flopcast
