// Files of other programs as JOB, and `convert`.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

std::string example(const std::string& file) {
  return (project_folder() / "examples" / file).string();
}

double step_time(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "simulate");
  arguments.insert(arguments.end(), {"--format", "json"});
  const CommandResult result = run_flopcast(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.standard_error;
  if (result.exit_code != 0) return 0;
  return nlohmann::json::parse(result.standard_output).at("iteration").at("time_s").get<double>();
}

TEST(Readers, AConfigJsonIsTheModelOfTheCatalogue) {
  const std::vector<std::string> rest = {"--cluster", "8xdgx-h100", "--tp", "8", "--pp", "4", "--gbs", "128"};
  std::vector<std::string> file = {example("llama3-70b-config/config.json")};
  std::vector<std::string> flag = {"--model", example("llama3-70b-config/config.json")};
  std::vector<std::string> named = {"--model", "llama3-70b"};
  for (auto* arguments : {&file, &flag, &named}) arguments->insert(arguments->end(), rest.begin(), rest.end());
  const double expected = step_time(named);
  EXPECT_GT(expected, 0);
  EXPECT_DOUBLE_EQ(step_time(file), expected);
  EXPECT_DOUBLE_EQ(step_time(flag), expected);
}

TEST(Readers, AStackFileIsTheObjectThatItHolds) {
  const TemporaryFolder folder;
  const std::string stack = (folder.path() / "ours.json").string();
  const std::vector<std::string> run = {"--model", "gpt3-13b", "--cluster", "2xdgx-a100-80g",
                                        "--tp",    "8",        "--gbs",     "16"};
  const auto with = [&run](std::vector<std::string> more) {
    more.insert(more.begin(), run.begin(), run.end());
    return step_time(more);
  };
  write_text(stack, R"({"name": "megatron-2021", "host_time_per_kernel": "200us"})");
  const double slow = with({"--stack", stack});
  EXPECT_GT(slow, 1.2 * with({"--stack", "megatron-2021"}));
  const std::string job = (folder.path() / "job.json").string();
  write_text(job, R"({"training": {"stack": "ours.json"}})");
  std::vector<std::string> beside = {job};
  beside.insert(beside.end(), run.begin(), run.end());
  // A plain file name is relative to the job's folder, whatever the current one.
  EXPECT_DOUBLE_EQ(step_time(beside), slow);
  // In the catalogue's notation.
  for (const char* name : {"megatron-2022", "zero-bubble"}) {
    const std::string entry = (project_folder() / "model/catalog/stacks" / (std::string(name) + ".json")).string();
    EXPECT_DOUBLE_EQ(with({"--stack", entry}), with({"--stack", name}));
  }
}

TEST(Readers, AStackFileIsComplainedAboutByNameAndPlace) {
  const TemporaryFolder folder;
  const std::string stack = (folder.path() / "ours.json").string();
  const auto message_of = [&stack] {
    const CommandResult result = run_flopcast({"simulate", "--model", "gpt3-13b", "--cluster", "2xdgx-a100-80g", "--tp",
                                               "8", "--gbs", "16", "--stack", stack});
    EXPECT_EQ(result.exit_code, 2);
    return result.standard_error;
  };
  EXPECT_NE(message_of().find(stack), std::string::npos) << "no such file";
  write_text(stack, R"({"gradient_bites": 2})");
  EXPECT_NE(message_of().find("gradient_bytes"), std::string::npos) << "the key that was meant";
  write_text(stack, R"({"gradient_bytes": 20})");
  EXPECT_NE(message_of().find(stack + ":/gradient_bytes"), std::string::npos) << message_of();
  write_text(stack, "[2]");
  EXPECT_NE(message_of().find("must hold a JSON object"), std::string::npos);
  write_text(stack, R"({"name": "ours"})");
  EXPECT_NE(message_of().find("unknown stack"), std::string::npos);
}

TEST(Readers, AScriptWithoutALayoutIsNoCrash) {
  const TemporaryFolder folder;
  const std::string script = (folder.path() / "train.sh").string();
  write_text(script,
             "torchrun --nproc_per_node 8 p.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 "
             "--seq-length 1024 --vocab-size 1000 --bf16 --train-iters 1000\n");
  const CommandResult result = run_flopcast({"convert", script});
  EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 2) << result.standard_error;
}

TEST(Readers, AConvertedJobMeansTheSame) {
  const TemporaryFolder folder;
  const std::string job = (folder.path() / "job.json").string();
  const std::vector<std::vector<std::string>> jobs = {
      {example("llama3-70b-config/config.json"), "--cluster", "8xdgx-h100", "--tp", "8", "--gbs", "128"},
      {example("megatron-175b-script/train.sh"), "--cluster", "dgx-a100-80g"},
      {example("deepspeed-zero/ds_config.json"), "--model", "llama3-8b", "--cluster", "2xdgx-a100-80g"},
      {example("gpt3-175b-64-gpus/job.json")}};
  for (const std::vector<std::string>& arguments : jobs) {
    std::vector<std::string> convert = arguments;
    convert.insert(convert.begin(), "convert");
    convert.insert(convert.end(), {"-o", job});
    const CommandResult first = run_flopcast(convert);
    ASSERT_EQ(first.exit_code, 0) << first.standard_error;
    const std::string text = read_text(job);
    const CommandResult again = run_flopcast({"convert", job});
    EXPECT_EQ(again.standard_output, text) << arguments.front();
    EXPECT_EQ(again.standard_error, "");
    EXPECT_DOUBLE_EQ(step_time({job}), step_time(arguments)) << arguments.front();
  }
}

TEST(Readers, ConvertJoinsFiles) {
  const CommandResult result = run_flopcast({"convert", example("llama3-70b-config/config.json"),
                                             example("deepspeed-zero/ds_config.json"), "--cluster", "2xdgx-h100"});
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  const nlohmann::json job = nlohmann::json::parse(result.standard_output);
  EXPECT_EQ(job.at("model").at("layers"), 80);
  EXPECT_EQ(job.at("layout").at("zero"), 3);
  EXPECT_EQ(job.at("cluster"), "2xdgx-h100");
  EXPECT_NE(result.standard_error.find("note: "), std::string::npos);
}

TEST(Readers, StrictRefusesWhatIsNotModelledOrUnknown) {
  const TemporaryFolder folder;
  const auto convert = [&folder](const std::string& argument, bool strict) {
    const std::string file = (folder.path() / "train.sh").string();
    write_text(file,
               "torchrun pretrain_gpt.py --num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
               "--vocab-size 1000 --micro-batch-size 1 --lr 1e-4 " +
                   argument);
    std::vector<std::string> words = {"convert", file, "--cluster", "1xdgx-h100", "--format", "json"};
    if (strict) words.emplace_back("--strict");
    return run_flopcast(words);
  };
  EXPECT_EQ(convert("", true).exit_code, 0);
  for (const char* argument : {"--cuda-graph-scope full", "--quux 3"}) {
    EXPECT_EQ(convert(argument, false).exit_code, 0);
    const CommandResult refused = convert(argument, true);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.standard_error.find("error: --strict: " + std::string(argument).substr(0, 6)), std::string::npos)
        << refused.standard_error;
    EXPECT_NE(refused.standard_error.find("help: "), std::string::npos);
  }
  const nlohmann::json keys =
      nlohmann::json::parse(convert("--quux 3 --cuda-graph-scope full", false).standard_output).at("keys");
  EXPECT_EQ(keys.at("unknown"), nlohmann::json::parse(R"(["--quux"])"));
  EXPECT_EQ(keys.at("not_modelled"), nlohmann::json::parse(R"(["--cuda-graph-scope"])"));
  EXPECT_EQ(keys.at("no_effect"), nlohmann::json::parse(R"(["--lr"])"));
  EXPECT_EQ(keys.at("read").size(), 6u);
}

TEST(Readers, APathInAJobFileIsRelativeToTheFile) {
  const TemporaryFolder folder;
  write_text(folder.path() / "config.json", read_text(example("llama3-70b-config/config.json")));
  const std::string job = (folder.path() / "job.json").string();
  write_text(job,
             R"({"model": "./config.json", "cluster": "8xdgx-h100", "layout": {"tp": 8, "global_batch_size": 8}})");
  EXPECT_GT(step_time({job}), 0);
  write_text(job, R"({"model": "./missing.json", "cluster": "8xdgx-h100", "layout": {"global_batch_size": 8}})");
  const CommandResult result = run_flopcast({"simulate", job});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.standard_error.find("missing.json"), std::string::npos) << result.standard_error;
  EXPECT_NE(result.standard_error.find("job.json:/model"), std::string::npos) << result.standard_error;
}

// Late errors of the core's readers must still point into the user's file.
TEST(Readers, LateComplaintsPointIntoTheFile) {
  const TemporaryFolder folder;
  const auto message_of = [&folder](const std::string& name, const std::string& text, std::vector<std::string> flags) {
    const std::string file = (folder.path() / name).string();
    write_text(file, text);
    flags.insert(flags.begin(), {"simulate", file});
    const CommandResult result = run_flopcast(flags);
    EXPECT_EQ(result.exit_code, 2) << text;
    return result.standard_error;
  };
  std::string script = read_text(example("megatron-175b-script/train.sh"));
  script.replace(script.find("TENSOR=8"), 8, "TENSOR=7");
  EXPECT_NE(message_of("train.sh", script, {"--cluster", "16xdgx-a100-80g"}).find("train.sh:"), std::string::npos);
  const std::string sizes = R"({"data_parallel_size":4,"pipeline_parallel_size":2,"tensor_parallel_size":4})";
  const std::string text =
      message_of("sizes.json", sizes, {"--model", "gpt3-13b", "--cluster", "2xdgx-a100-80g", "--gbs", "16"});
  EXPECT_NE(text.find("sizes.json:/data_parallel_size"), std::string::npos) << text;
  const std::string nameless = message_of("train.sh", read_text(example("megatron-175b-script/train.sh")), {});
  EXPECT_NE(nameless.find("give --cluster NAME"), std::string::npos) << nameless;
}

TEST(Readers, DeepSpeedRefusesZero3WithPipelines) {
  const CommandResult result =
      run_flopcast({"simulate", example("deepspeed-zero/ds_config.json"), "--model", "llama3-8b", "--cluster",
                    "2xdgx-a100-80g", "--pp", "4", "--format", "json"});
  EXPECT_NE(result.standard_error.find("DeepSpeed refuses ZeRO 3"), std::string::npos) << result.standard_error;
}

TEST(Readers, Yaml) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "fsdp.yaml").string();
  write_text(file,
             "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD # all of it\n"
             "mixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n");
  const CommandResult result =
      run_flopcast({"convert", file, "--model", "gpt2-1.5b", "--cluster", "dgx-a100-80g", "--gbs", "64"});
  if (result.standard_error.find("cannot read") != std::string::npos) GTEST_SKIP() << "built without yaml-cpp";
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  const nlohmann::json job = nlohmann::json::parse(result.standard_output);
  EXPECT_EQ(job.at("layout").at("data_parallel"), "fsdp");
  EXPECT_EQ(job.at("cluster").at("nodes"), 1);
  EXPECT_GT(step_time({file, "--model", "gpt2-1.5b", "--cluster", "dgx-a100-80g", "--gbs", "64"}), 0);

  write_text(file, "distributed_type: FSDP\nnum_processes: 8\nnum_processes: 4\n");
  EXPECT_NE(run_flopcast({"convert", file}).standard_error.find("fsdp.yaml:3:1"), std::string::npos);
  write_text(file, "distributed_type: [FSDP\nnum_processes: 8\n");
  EXPECT_EQ(run_flopcast({"convert", file}).exit_code, 2);
  const std::string train = (folder.path() / "train.yaml").string();
  write_text(train, "finetuning_type: oft\nper_device_train_batch_size: 1\n");
  EXPECT_NE(run_flopcast({"convert", train}).standard_error.find("train.yaml:/finetuning_type"), std::string::npos);
}

}  // namespace
}  // namespace flopcast
