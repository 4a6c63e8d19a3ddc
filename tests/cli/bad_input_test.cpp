// A user's mistake ends with exit code 2, nothing on standard output, and one message that names what is wrong.

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

using Arguments = std::vector<std::string>;

void expect_refused(const Arguments& arguments, const std::vector<std::string>& mentioned) {
  const CommandResult result = run_flopcast(arguments);
  std::string shown;
  for (const std::string& argument : arguments) shown += argument.substr(0, 100) + " ";
  EXPECT_EQ(result.exit_code, 2) << shown << "\n" << result.standard_error;
  EXPECT_EQ(result.standard_output, "") << shown;
  EXPECT_EQ(result.standard_error.rfind("error: ", 0), 0u) << shown << "\n" << result.standard_error;
  for (const std::string& text : mentioned) {
    EXPECT_NE(result.standard_error.find(text), std::string::npos) << shown << "\nlacks " << text << ":\n"
                                                                   << result.standard_error;
  }
}

const Arguments kJob = {"simulate", "--model", "gpt3-175b", "--cluster", "8xdgx-a100-80g", "--tp", "8",
                        "--pp",     "8",       "--gbs",     "64"};

Arguments job_with(const Arguments& more) {
  Arguments arguments = kJob;
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(BadInput, FlagsOfAJob) {
  expect_refused({"simulate"}, {"model", "is required", "gpt3-175b"});
  expect_refused(job_with({"--tpp", "4"}), {"--tpp", "unknown flag", "--tp"});
  expect_refused(job_with({"--dp"}), {"--dp: needs a value, N"});
  expect_refused(job_with({"--dp", "x"}), {"layout.dp", "\"x\" is not a whole number", "--dp"});
  expect_refused(job_with({"--dp", "2"}), {"layout.dp", "128 ranks", "64 devices", "--> --dp"});
  expect_refused(job_with({"--dp", "-1"}), {"layout.dp", "-1 is out of range"});
  expect_refused(job_with({"--dp", "99999999999999999999"}), {"layout.dp", "99999999999999999999"});
  expect_refused(job_with({"--mbs", "5"}), {"layout.global_batch_size", "64 is no multiple", "60, 65"});
  expect_refused(job_with({"--schedule", "1f1c"}), {"layout.schedule", "1f1c", "1f1b"});
  expect_refused(job_with({"--schedule", "interleaved:x"}), {"layout.schedule", "interleaved:x"});
  expect_refused(job_with({"--schedule", "file:/nonexistent.csv"}), {"/nonexistent.csv", "no such file"});
  expect_refused(job_with({"--vpp", "13", "--schedule", "interleaved"}), {"layout.pp", "vpp 13", "96"});
  expect_refused(job_with({"--cluster.nic_bandwidth", "400"}), {"cluster.nic_bandwidth", "has no unit", "GB/s"});
  expect_refused(job_with({"--cluster.intra_efficiency", "nan"}), {"cluster.intra_efficiency"});
  expect_refused(job_with({"--format", "yaml"}), {"--format", "yaml", "json"});
  expect_refused(job_with({"--precision", "fp12"}), {"training.precision", "fp12", "bf16"});
  expect_refused(job_with({"--stack", "megatron"}), {"training.stack", "megatron-core"});
  expect_refused({"schedule", "list", "more"}, {"unexpected argument", "more"});
  expect_refused({"simulate", "--model", "gpt3-175b", "--cluster", "0xdgx-a100-80g", "--gbs", "8"}, {"cluster.nodes"});
}

TEST(BadInput, NothingGivenIsIgnored) {
  expect_refused(job_with({"--sp=maybe"}), {"layout.sequence_parallel", "maybe", "true, false"});
  expect_refused({"schedule", "show", "--schedule", "1f1b", "--pp", "2", "--microbatches", "4", "--vpp", "2"},
                 {"--vpp", "1f1b"});
  expect_refused({"schedule", "show", "--schedule", "1f1b", "--pp", "2", "--microbatches", "4", "--group", "2"},
                 {"--group", "1f1b"});
  const TemporaryFolder scratch;
  const std::string file = (scratch.path() / "s.csv").string();
  write_text(file, "0F0,0B0\n1F0,1B0\n");
  expect_refused({"schedule", "show", file, "--pp", "7"}, {"--pp", "7"});
  expect_refused({"schedule", "simulate", file, "--forward", "1", "--backward", "1", "--p2p-link", "0:1:1:1",
                  "--p2p-link", "0:1:2:2"},
                 {"--p2p-link", "second time"});
  write_text(file, "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n");
  expect_refused({"simulate", "--model", "gpt3-175b", "--cluster", "2xdgx-a100-80g", "--tp", "8", "--pp", "2", "--gbs",
                  "2", "--schedule", "file:" + file},
                 {"layout.schedule", "<-- here"});
}

TEST(BadInput, JobFiles) {
  const TemporaryFolder scratch;
  const auto file = [&scratch](const char* name, const std::string& text) {
    const std::filesystem::path path = scratch.path() / name;
    write_text(path, text);
    return path.string();
  };
  expect_refused({"simulate", (scratch.path() / "missing.json").string()}, {"missing.json", "no such file"});
  expect_refused({"simulate", scratch.path().string()}, {"is a directory"});
  expect_refused({"simulate", file("empty.json", "")}, {"empty.json", "is empty"});
  expect_refused({"simulate", file("list.json", "[1, 2]")}, {"list.json", "object"});
  expect_refused({"simulate", file("binary.json", std::string("\x7f"
                                                              "ELF\0\xff\xfe",
                                                              8))},
                 {"binary.json"});
  expect_refused({"simulate", file("half.json", R"({"model": "gpt3-175b", "cluster": {"na)")}, {"half.json:1:"});
  expect_refused({"simulate", file("deep.json", std::string(200'000, '['))}, {"deep.json", "nested deeper"});
  expect_refused({"simulate", file("twice.json", R"({"model": "gpt3-175b", "model": "megatron-1t"})")},
                 {"model", "given twice"});
  expect_refused(
      {"simulate",
       file("key.json",
            R"({"model": "gpt3-175b", "cluster": "dgx-a100-80g", "layout": {"global_batch_size": 8, "tensor": 2}})")},
      {"layout.tensor", "unknown key", "key.json:/layout/tensor"});
  expect_refused(
      {"simulate",
       file("nan.json", R"({"model": "gpt3-175b", "cluster": "dgx-a100-80g", "layout": {"global_batch_size": NaN}})")},
      {"nan.json:1:"});
  expect_refused({"simulate",
                  file("huge.json",
                       R"({"model": "gpt3-175b", "cluster": "dgx-a100-80g", "layout": {"global_batch_size": 1e400}})")},
                 {"huge.json", "out of range"});
}

TEST(BadInput, Schedules) {
  const TemporaryFolder scratch;
  const auto file = [&scratch](const char* name, const std::string& text) {
    const std::filesystem::path path = scratch.path() / name;
    write_text(path, text);
    return path.string();
  };
  const auto simulate = [](const std::string& path) {
    return Arguments{"schedule", "simulate", path, "--forward", "1", "--backward", "2"};
  };
  expect_refused(simulate(file("cycle.csv", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")), {"<-- here"});
  expect_refused(simulate(file("half.csv", "0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n")), {"half.csv"});
  expect_refused(simulate(file("empty.csv", "")), {"empty.csv"});
  expect_refused(simulate(file("words.csv", "hello,world\n")), {"words.csv:1:1", "hello"});
  expect_refused(simulate(file("semicolons.csv", "0F0;0B0\n")), {"semicolons.csv:1:1", "separate cells with commas"});
  expect_refused(simulate(file("letters.csv", "0F0,0F1,0B0,0BW1\n")), {"letters.csv:1:4", "rename B to I"});
  expect_refused(simulate(scratch.path().string()), {"is a directory"});
  expect_refused({"schedule", "show", "--schedule", "1f1b", "--pp", "2", "-m", "2", "--defer-recv"},
                 {"--defer-recv", "--with-comm"});
  expect_refused({"schedule", "show", "--schedule", "pipedream", "--pp", "2", "-m", "2", "--versions", "--with-comm"},
                 {"--versions"});
  expect_refused({"schedule", "show", file("cycle.csv", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n"), "--with-comm"},
                 {"<-- here"});
  expect_refused({"simulate", "--model", "gpt3-175b", "--cluster", "2xdgx-a100-80g", "--tp", "8", "--pp", "2", "--gbs",
                  "2", "--schedule", "1f1b", "--chains", "0-1"},
                 {"layout.chains", "--chains", "file"});
  expect_refused({"timeline", "--pp", "2", "--microbatches", "2", "--schedule", "1f1b", "--chains", "0-1"},
                 {"--chains", "file:PATH"});
  expect_refused({"schedule", "simulate"}, {"--schedule"});
  expect_refused({"schedule", "simulate", "--schedule", "1f1b", "--pp", "4"}, {"--microbatches"});
  const Arguments valid = {"schedule", "simulate", "--schedule", "1f1b", "--pp", "4", "--microbatches", "8"};
  const auto with = [&valid](const Arguments& more) {
    Arguments arguments = valid;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  expect_refused(with({}), {"--forward"});
  expect_refused(with({"--forward", "1"}), {"--backward"});
  expect_refused(with({"--forward", "1,2", "--backward", "2"}), {"--forward", "2 numbers for 4 stages"});
  expect_refused(with({"--forward", "-1", "--backward", "2"}), {"--forward", "-1"});
  expect_refused(with({"--forward", "1e3", "--backward", "2"}), {"--forward", "1e3"});
  expect_refused(with({"--forward", "0.1234567", "--backward", "2"}), {"--forward", "more than six decimals"});
  expect_refused(with({"--forward", "99999999999999999999", "--backward", "2"}), {"--forward", "too large"});
  expect_refused(with({"--forward", "9000000000000", "--backward", "9000000000000"}), {"error"});
  expect_refused(with({"--forward", "nan", "--backward", "2"}), {"--forward", "nan"});
  expect_refused(with({"--forward", "1", "--backward", "2", "--p2p-link", "0:2:1:1"}), {"--p2p-link", "0:2:1:1"});
  expect_refused({"schedule", "show", "--schedule", "interleaved", "--pp", "3", "--microbatches", "7", "--vpp", "2"},
                 {"7", "6"});
  expect_refused({"schedule", "show", "--schedule", "1f1b", "--pp", "0", "--microbatches", "7"},
                 {"--pp", "0 is out of range"});
  expect_refused({"timeline", "--schedule", "gpipe,", "--pp", "2", "--microbatches", "2"}, {"schedule"});
  expect_refused({"timeline", "--schedule", "gpipe", "--pp", "2", "--microbatches", "2", "--tp", "2"},
                 {"--tp", "needs a job"});
  expect_refused({"timeline", "--schedule", "gpipe,1f1b", "--pp", "2", "--microbatches", "2", "--trace", "x.json"},
                 {"--trace"});
}

TEST(BadInput, CatalogAndCommands) {
  expect_refused({"catalog"}, {"models"});
  expect_refused({"catalog", "gadgets"}, {"gadgets", "devices"});
  expect_refused({"catalog", "models", "gpt3"}, {"gpt3", "gpt3-13b"});
  expect_refused({"schedule", "chek"}, {"chek", "check"});
}

}  // namespace
}  // namespace flopcast
