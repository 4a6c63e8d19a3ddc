// A flopcast-run built with CUDA but without a GPU: it starts, does what needs no GPU, and reports what is missing.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/folders.hpp"
#include "tests/support/run_command.hpp"

namespace flopcast {
namespace {

constexpr int kBadUsage = 2;
constexpr int kEnvironmentFailed = 4;
constexpr int kDiffers = 1;  // exit codes of torch_losses.py
constexpr int kLeftOut = 77;

CommandResult run(std::vector<std::string> flags, const CommandOptions& options = {}) {
  std::vector<std::string> words = {FLOPCAST_RUN, (project_folder() / "examples/real-run/job.json").string()};
  words.insert(words.end(), flags.begin(), flags.end());
  return run_command(words, options);
}

// Hides any GPU from the program.
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
  EXPECT_NE(result.standard_error.find("of 2 ranks, 0 has not arrived within 1 s"), std::string::npos)
      << result.standard_error;
}

TEST(GpuPrograms, WrongVariablesOfALauncherAreNamed) {
  CommandOptions options;
  options.environment = {{"RANK", "5"}, {"WORLD_SIZE", "2"}};
  const CommandResult result = run({"--backend", "nccl"}, options);
  EXPECT_EQ(result.exit_code, kBadUsage);
  EXPECT_NE(result.standard_error.find("RANK: \"5\" is not a whole number from 0 to 1"), std::string::npos)
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

// An interactive shell of Slurm is itself a launched process.
TEST(GpuPrograms, AProcessThatWasLaunchedAloneForksTheRanks) {
  CommandOptions options = without_gpu();
  options.environment["SLURM_PROCID"] = "0";
  options.environment["SLURM_STEP_NUM_TASKS"] = "1";
  options.environment["SLURM_LOCALID"] = "0";
  EXPECT_EQ(run({"--backend", "nccl"}, options).exit_code, kEnvironmentFailed);
}

// Our losses compared with PyTorch's, of the same network with the same weights and data.
TEST(TorchLosses, AreOursWhereTorchIs) {
  const std::string script = (project_folder() / "tests/gpu/torch_losses.py").string();
  const std::string file = testing::TempDir() + "/torch_losses.json";
  ASSERT_EQ(run({"--steps", "2", "-o", file}).exit_code, 0);
  const CommandResult result = run_command({"python3", script, file});
  if (result.exit_code == kLeftOut) {
    EXPECT_EQ(result.standard_output.find("left out: no PyTorch and numpy here ("), 0U) << result.standard_output;
    EXPECT_NE(result.standard_output.find("); 2 losses in fp32 to compare\n"), std::string::npos);
  } else {
    EXPECT_EQ(result.exit_code, 0) << result.standard_output << result.standard_error;
    EXPECT_NE(result.standard_output.find("| 1 | "), std::string::npos) << result.standard_output;
  }
}

// A PyTorch library that cannot be loaded does not cause a traceback.
TEST(TorchLosses, ABrokenTorchIsNone) {
  const std::string folder = testing::TempDir() + "/broken_torch";
  std::filesystem::create_directories(folder);
  write_text(folder + "/numpy.py", "");
  write_text(folder + "/torch.py", "raise OSError('libcudart.so.12: cannot open shared object file')\n");
  const std::string file = testing::TempDir() + "/broken_torch.json";
  ASSERT_EQ(run({"--steps", "2", "-o", file}).exit_code, 0);
  CommandOptions options;
  options.environment["PYTHONPATH"] = folder;
  const CommandResult result =
      run_command({"python3", (project_folder() / "tests/gpu/torch_losses.py").string(), file}, options);
  EXPECT_EQ(result.exit_code, kLeftOut) << result.standard_error;
  EXPECT_NE(result.standard_output.find("libcudart.so.12"), std::string::npos) << result.standard_output;
}

// Replaces PyTorch's losses: `theirs` is a Python expression of `ours` and the training parameters.
CommandResult compare_losses(const std::string& file, const std::string& theirs) {
  const std::string program =
      "import sys\n"
      "sys.dont_write_bytecode = True\n"
      "sys.path.insert(0, sys.argv.pop(1))\n"
      "import torch_losses\n"
      "ours = torch_losses.read_run(sys.argv[1])[4]\n"
      "torch_losses.torch = torch_losses\n"
      "torch_losses.train = lambda model, samples, chunk, steps, rate, seed: " +
      theirs + "\ntorch_losses.main()\n";
  return run_command({"python3", "-c", program, (project_folder() / "tests/gpu").string(), file});
}

TEST(TorchLosses, WhatDiffersIsFound) {
  const std::string file = testing::TempDir() + "/torch_losses_differ.json";
  ASSERT_EQ(run({"--steps", "3", "--seed", "5", "--learning-rate", "0.002", "-o", file}).exit_code, 0);
  const std::string text = read_text(file);
  const auto variant = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    for (std::size_t at = 0; (at = changed.find(from, at)) != std::string::npos; at += to.size()) {
      changed.replace(at, from.size(), to);
    }
    EXPECT_NE(changed, text) << from;
    write_text(file, changed);
  };
  EXPECT_EQ(compare_losses(file, "ours").exit_code, 0);
  EXPECT_EQ(compare_losses(file, "ours if seed == 5 and abs(rate - 0.002) < 1e-8 else []").exit_code, 0);
  EXPECT_EQ(compare_losses(file, "[1.001 * loss for loss in ours]").exit_code, kDiffers);
  const CommandResult none = compare_losses(file, "[ours[0], float('nan'), ours[2]]");
  EXPECT_EQ(none.exit_code, kDiffers);
  EXPECT_EQ(none.standard_error, "error: PyTorch: the loss of step 1 is not a finite number\n");
  // In bf16 losses may differ as much as a doubled learning rate would make them; their changes may not.
  variant("\"dtype\":\"fp32\"", "\"dtype\":\"bf16\"");
  EXPECT_EQ(compare_losses(file, "[1.001 * loss for loss in ours]").exit_code, 0);
  const CommandResult half = compare_losses(file, "[ours[0] + (loss - ours[0]) / 2 for loss in ours]");
  EXPECT_EQ(half.exit_code, kDiffers) << half.standard_output;
  EXPECT_NE(half.standard_output.find("(2e-02 allowed); their changes by 1.0e+00 of the largest (1e-01 allowed)"),
            std::string::npos)
      << half.standard_output;
  const std::size_t loss = text.find("\"loss\":") + 7;
  variant(text.substr(loss, text.find(',', loss) - loss), "null");
  const CommandResult diverged = compare_losses(file, "ours");
  EXPECT_EQ(diverged.exit_code, kDiffers);
  EXPECT_EQ(diverged.standard_error, "error: " + file + ": the loss of step 0 is not a finite number\n");
  variant("\"compression\":\"none\"", "\"compression\":\"8bit\"");
  const CommandResult lossy = compare_losses(file, "ours");
  EXPECT_EQ(lossy.exit_code, kBadUsage);
  EXPECT_NE(lossy.standard_error.find("run.compression: 8bit leaves out"), std::string::npos) << lossy.standard_error;
  variant("\"layout\":{", "\"layout\":{\"cp\":2,");
  const CommandResult shared = compare_losses(file, "ours");
  EXPECT_EQ(shared.exit_code, kBadUsage);
  EXPECT_NE(shared.standard_error.find("run.job.layout.cp: "), std::string::npos) << shared.standard_error;
}

TEST(TorchLosses, WhatIsNotComparedIsSaid) {
  const std::string script = (project_folder() / "tests/gpu/torch_losses.py").string();
  const std::string file = testing::TempDir() + "/torch_losses_not.json";
  ASSERT_EQ(run({"--steps", "2", "--model.post_norms", "true", "-o", file}).exit_code, 0);
  const std::pair<std::string, const char*> cases[] = {
      {file, "run.job.model: not compared here: post_norms; compared: layers, hidden"},
      {(project_folder() / "examples/real-run/job.json").string(), "not the file of a run with steps: KeyError 'run'"},
      {"/nowhere/run.json", "/nowhere/run.json: not the file of a run with steps: FileNotFoundError"}};
  for (const auto& [path, words] : cases) {
    const CommandResult result = run_command({"python3", script, path});
    EXPECT_EQ(result.exit_code, kBadUsage);
    EXPECT_NE(result.standard_error.find(words), std::string::npos) << result.standard_error;
  }
}

TEST(TorchBlock, IsLeftOutWithoutPytorch) {
  const std::string folder = testing::TempDir() + "/no_torch";
  std::filesystem::create_directories(folder);
  write_text(folder + "/torch.py", "raise OSError('libcudart.so.12: cannot open shared object file')\n");
  CommandOptions options;
  options.environment["PYTHONPATH"] = folder;
  options.environment["PYTHONDONTWRITEBYTECODE"] = "1";
  const CommandResult result = run_command(
      {"python3", (project_folder() / "tests/gpu/torch_block.py").string(), "-o", folder + "/rows.json"}, options);
  EXPECT_EQ(result.exit_code, kLeftOut) << result.standard_error;
  EXPECT_EQ(result.standard_output, "left out: no PyTorch here (libcudart.so.12: cannot open shared object file)\n");
}

// MPI gives both processes the meeting address, so that only the GPU is missing.
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
  EXPECT_EQ(result.standard_error.find("help: "), result.standard_error.rfind("help: ")) << result.standard_error;
  EXPECT_NE(result.standard_error.find("help: "), std::string::npos) << result.standard_error;
#else
  GTEST_SKIP() << "built without MPI";
#endif
}

// If many processes fail in the same way, only one reports it.
TEST(GpuPrograms, ProcessesOfALauncherTellOnce) {
  const std::string job = (project_folder() / "examples/real-run/job.json").string();
  const std::string folder = "/tmp/flopcast-gpu-once-" + std::to_string(getpid());
  const std::string start = "for rank in 0 1; do RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 " FLOPCAST_RUN " " + job +
                            " --backend nccl --timeout 20 --store file:" + folder;
  const auto all = [&](const std::string& flags) {
    const std::string script = start + flags + " & done; wait -n; first=$?; wait; rm -rf " + folder + "*; exit $first";
    return run_command({"bash", "-c", script}, without_gpu());
  };
  const auto lines_with = [](const std::string& text, const std::string& what) {
    int count = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
    return count;
  };
  const CommandResult no_gpu = all("");
  EXPECT_EQ(no_gpu.exit_code, kEnvironmentFailed) << no_gpu.standard_error;
  EXPECT_EQ(lines_with(no_gpu.standard_error, "error: "), 1) << no_gpu.standard_error;
  const CommandResult bad_job = all("c --pp 1 --cluster.nodes 1");
  EXPECT_EQ(bad_job.exit_code, kBadUsage) << bad_job.standard_error;
  EXPECT_EQ(lines_with(bad_job.standard_error, "2 processes were started, but the job has 1 ranks"), 1)
      << bad_job.standard_error;
}

// The machine's own memory does not matter.
TEST(GpuPrograms, ModelsMayBeLargerThanTheMachine) {
  const CommandResult result = run({"--backend", "virtual-gpus", "--model.layers", "200", "--model.hidden", "65536",
                                    "--model.heads", "512", "--model.ffn", "262144"},
                                   without_gpu());
  EXPECT_EQ(result.exit_code, kEnvironmentFailed) << result.standard_error;
}

TEST(GpuPrograms, WhatGpusCannotDoIsRefusedFirst) {
  const CommandResult result =
      run({"--backend", "virtual-gpus", "--layout.compression", "8bit", "--layout.dp", "2", "--layout.pp", "1"});
  EXPECT_EQ(result.exit_code, kBadUsage) << result.standard_error;
  EXPECT_NE(result.standard_error.find("layout.compression: 8bit is not supported on GPUs"), std::string::npos)
      << result.standard_error;
  const CommandResult recipe = run({"--backend", "virtual-gpus", "--training.precision", "fp8", "--training.fp8_recipe",
                                    "delayed", "--cluster.device", "h200"});
  EXPECT_EQ(recipe.exit_code, kBadUsage) << recipe.standard_error;
  EXPECT_NE(recipe.standard_error.find("training.fp8_recipe: delayed"), std::string::npos) << recipe.standard_error;
}

}  // namespace
}  // namespace flopcast
