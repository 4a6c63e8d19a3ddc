// A usage error ends with exit code 2, nothing on standard output, and one message that names the mistake.

#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/host/files.hpp"
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
  expect_refused(job_with({"--mbs", "5"}), {"layout.global_batch_size", "64 is not a multiple", "60, 65"});
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
                 {"--p2p-link", "sets a boundary twice"});
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

TEST(BadInput, TwoOutputsAreTwoFiles) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "x.svg").string();
  const std::string same = (folder.path() / "." / "x.svg").string();
  expect_refused(job_with({"--svg", file, "-o", same}), {"--svg", "is also the output of --output"});
  expect_refused(job_with({"--svg", file, "--html", file}), {"--html", "is also the output of --svg"});
  expect_refused(job_with({"--trace", file, "--html", file}), {"is also the output of"});
  expect_refused({"timeline", "--pp", "2", "-m", "2", "--schedule", "1f1b", "--svg", file, "-o", file},
                 {"is also the output of"});
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_EQ(run_flopcast(job_with({"--svg", "/dev/null", "-o", "/dev/null"})).exit_code, 0);
}

TEST(BadInput, WhatIsReadIsNotWritten) {
  const TemporaryFolder folder;
  const std::string job = (folder.path() / "job.json").string();
  const std::string same = (folder.path() / "." / "job.json").string();
  const std::string text = R"({"model": "gpt3-125m", "cluster": "dgx-h100", "layout": {"global_batch_size": 8}})";
  write_text(job, text);
  expect_refused({"simulate", job, "-o", same}, {"--output", "is also an input"});
  expect_refused({"sweep", job, "--vary", "layout.micro_batch_size=1,2", "--format", "csv", "--output=" + job},
                 {"is also an input"});
  expect_refused({"plan", job, "--html", job}, {"--html", "is also an input"});
  EXPECT_EQ(read_text(job), text);
  const std::string answer = (folder.path() / "answer.json").string();
  for (int time = 0; time < 2; ++time) {
    EXPECT_EQ(run_flopcast({"simulate", job, "--format", "json", "-o", answer}).exit_code, 0);
  }
}

TEST(BadInput, FiguresThatNothingHas) {
  const TemporaryFolder folder;
  const auto file = [&folder](const char* name, const std::string& text) {
    write_text(folder.path() / name, text);
    return (folder.path() / name).string();
  };
  for (const char* factor : {"1e12", "1e308", "0.5", "nan"}) {
    expect_refused(job_with({"--straggler", std::string("0:") + factor}), {"--straggler", "from 1 to 1000"});
  }
  expect_refused(job_with({"--tokens", "1T", "--failures", R"({"stragglers": {"share": 0.1, "factor": 1e308}})"}),
                 {"failures.stragglers.factor", "from 1 to 1000"});
  expect_refused({"network", "show", "8xdgx-h100", "--network", "two-tier-2to1", "--oversubscription", "1e-320"},
                 {"cluster.network.oversubscription", "0.001"});
  expect_refused({"network", "flows", file("flows.json", R"({"links": [{"name": "a", "bandwidth": 1e-300}],
                   "flows": [{"src": 0, "dst": 1, "bytes": 1e300, "start": 0, "links": [0]}]})")},
                 {"flows[0]", "takes more than"});
  expect_refused({"validate", "--documented", file("run.json", R"({"job": 5, "published": {"iteration.time_s": 1}})")},
                 {"job", "is not an object"});
  expect_refused({"validate", "--constants", "--svg", file("x.svg", "")}, {"--constants", "prints only a table"});
  expect_refused({"validate", "--published", file("rows.json", R"({"rows": [{"id": "a", "source": "b", "job": {},
                   "measured": {"iteration_s": 1e-320}}]})")},
                 {"iteration_s", "is not a plausible step time"});
  expect_refused({"simulate", "--model", "gpt3-125m", "--cluster", "dgx-h100", "--gbs", "8", "--tokens", "1e-320"},
                 {"training.tokens", "is below 1"});
  expect_refused({"network", "show", file("links.json", R"({"model": "gpt3-125m", "layout": {"global_batch_size": 8},
                   "cluster": {"name": "dgx-h100", "nodes": 2, "network": {"links": [
                   {"from": "node0", "to": "s", "bandwidth": "1e300B/s"}, {"from": "node1", "to": "s", "bandwidth": "1GB/s"}]}}})")},
                 {"cluster.network.links[0].bandwidth", "1e18"});
  const std::string job =
      file("job.json", R"({"model": "gpt3-125m", "cluster": "dgx-h100", "layout": {"global_batch_size": 8}})");
  nlohmann::json told = nlohmann::json::parse(run_flopcast({"simulate", job, "--format", "json"}).standard_output);
  told["bubble"]["fraction"] = -1e308;
  expect_refused({"compare", file("result.json", told.dump()), job}, {"/bubble/fraction", "not a plausible figure"});
  told["bubble"]["fraction"] = 0.0;
  told["iteration"]["time_s"] = 1e-320;
  expect_refused({"compare", file("result.json", told.dump()), job}, {"/iteration/time_s", "not a valid step time"});
  // Durations this long are not shown in years.
  const CommandResult never = run_flopcast(job_with({"--tokens", "1T", "--mtbf", "1e-300h"}));
  EXPECT_EQ((never.standard_output + never.standard_error).find("nan"), std::string::npos) << never.standard_error;
  // Tables may be shown in a terminal, so names in them must not contain control characters.
  const CommandResult swept = run_flopcast({"sweep", "--model", "gpt3-125m", "--cluster", "dgx-h100", "--gbs", "8",
                                            "--vary", "layout.schedule=1f1b,\x1b[31mx", "--format", "csv"});
  EXPECT_EQ(swept.standard_output.find('\x1b'), std::string::npos);
  EXPECT_NE(swept.standard_output.find("\\x1b[31mx"), std::string::npos) << swept.standard_output;
  // A byte order mark is not part of a name.
  const CommandResult logged = run_flopcast(
      job_with({"--tokens", "300B", "--failures", R"({"observed": {"gpus": 1000, "days": 30}})", "--failure-log",
                file("log.csv",
                     "\xef\xbb\xbf"
                     "cause,per,takes,count\ngpu,gpu,nothing,12\n")}));
  EXPECT_EQ(logged.exit_code, 0) << logged.standard_error;
}

TEST(BadInput, ProductsOfFiguresStayNumbers) {
  for (const char* command : {"simulate", "plan"}) {
    expect_refused({command, "--model", "llama3-8b", "--cluster", "4xdgx-h100", "--gbs", "64", "--tokens", "1e308",
                    "--price", "1e308"},
                   {"too large"});
  }
  const CommandResult most = run_flopcast({"simulate", "--model", "llama3-8b", "--cluster", "4xdgx-h100", "--gbs", "64",
                                           "--tokens", "1e18", "--price", "1e9", "--format", "json"});
  EXPECT_EQ(most.exit_code, 0) << most.standard_error;
  EXPECT_EQ(most.standard_output.find("null,\n    \"cost_usd\""), std::string::npos);
}

TEST(BadInput, ATimelineThatGoesInACircle) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "t.json").string();
  ASSERT_EQ(run_flopcast({"timeline", "--pp", "2", "-m", "2", "--schedule", "1f1b", "--format", "json", "-o", file})
                .exit_code,
            0);
  nlohmann::json timeline = nlohmann::json::parse(read_text(file));
  for (nlohmann::json& span : timeline["timelines"][0]["ranks"][0]) {
    if (span.value("action", "") == "0F0") span.update({{"start", 4.0}, {"end", 5.0}});
    if (span.value("action", "") == "0B0") span.update({{"start", 0.0}, {"end", 1.0}});
  }
  write_text(file, timeline.dump());
  expect_refused({"report", file, "-o", (folder.path() / "t.html").string()}, {"cycle"});
}

// Names must not act as terminal control sequences, HTML tags or spreadsheet formulas.
TEST(BadInput, NamesAreShownAsTheyAre) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "job.json").string();
  const auto job = [&](const std::string& name) {
    write_text(file, R"({"model": {"name": ")" + name +
                         R"(", "layers": 2, "hidden": 64, "heads": 4, "vocab": 100, "sequence_length": 128},
      "cluster": "dgx-h100", "layout": {"global_batch_size": 8}})");
    return file;
  };
  const CommandResult steering = run_flopcast({"simulate", job(R"(a\u001b[31mb\u009bc)")});
  EXPECT_EQ(steering.exit_code, 0) << steering.standard_error;
  EXPECT_NE(steering.standard_output.find("a\\x1b[31mb\\x9bc"), std::string::npos) << steering.standard_output;
  EXPECT_EQ(steering.standard_output.find('\x1b'), std::string::npos);
  EXPECT_EQ(run_flopcast({"simulate", job(R"(<img src=x>)"), "--format", "markdown"}).standard_output.find("<img"),
            std::string::npos);
  const CommandResult computed = run_flopcast({"simulate", job("=cmd()"), "--format", "csv", "--show-config"});
  EXPECT_NE(computed.standard_output.find(",'=cmd(),"), std::string::npos) << computed.standard_output;
  expect_refused({"simulate", job(R"(a\u0000b)")}, {"NUL"});
  expect_refused({"simulate", (folder.path() / "no\x1b[2Jfile.json").string()}, {"no\\x1b[2Jfile"});
}

TEST(BadInput, WhatIsAskedForIsWrittenOrTold) {
  for (const char* question : {"--help", "--version", "completion bash", "simulate --help", "help plan"}) {
    const CommandResult result =
        run_command({"sh", "-c", std::string("exec \"$0\" ") + question + " >/dev/full", FLOPCAST_PROGRAM});
    EXPECT_EQ(result.exit_code, 4) << question;
    EXPECT_NE(result.standard_error.find("standard output"), std::string::npos) << question;
  }
}

// If one of several outputs cannot be written, none is.
TEST(BadInput, OutputsAreAllWrittenOrNone) {
  const TemporaryFolder folder;
  const std::string figure = (folder.path() / "x.svg").string();
  const std::string nowhere = (folder.path() / "missing" / "x.json").string();
  for (const std::vector<std::string>& question : {
           job_with({"--svg", figure, "-o", nowhere}),
           job_with({"--svg", figure, "--trace", nowhere}),
           std::vector<std::string>{"catalog", "models", "-o", nowhere},
           std::vector<std::string>{"network", "show", "64xdgx-h100", "--network", "rail-1to1", "--svg", figure, "-o",
                                    nowhere},
       }) {
    const CommandResult result = run_flopcast(question);
    EXPECT_EQ(result.exit_code, 4) << question.front();
    EXPECT_NE(result.standard_error.find("cannot write " + nowhere), std::string::npos) << result.standard_error;
    EXPECT_FALSE(std::filesystem::exists(figure)) << question.front();
  }
}

// Files that the shell has opened for the program are written from their current position, and not replaced.
TEST(BadInput, WhatIsOpenIsNeitherReplacedNorBegunAgain) {
  const TemporaryFolder folder;
  const std::string log = (folder.path() / "log.txt").string();
  const auto shell = [&log](const std::string& line) { return run_command({"sh", "-c", line, FLOPCAST_PROGRAM, log}); };
  const std::string question = "\"$0\" simulate --model gpt2-124m --cluster dgx-h100 --gbs 8 ";
  for (const std::string name : {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
    const CommandResult result =
        shell("(echo first; " + question + "--format json -o " + name + "; echo last) > \"$1\"");
    EXPECT_EQ(result.exit_code, 0) << result.standard_error;
    const std::string text = read_text(log);
    EXPECT_EQ(text.rfind("first\n{", 0), 0U) << text.substr(0, 40);
    EXPECT_NE(text.find("}\nlast\n"), std::string::npos) << name;
  }
  EXPECT_EQ(shell("echo kept > \"$1\"; " + question + "--svg /dev/stderr 2>> \"$1\"").exit_code, 0);
  EXPECT_EQ(read_text(log).rfind("kept\n<svg", 0), 0U);
  EXPECT_EQ(shell(question + "--svg /dev/stdout | head -c 1 > /dev/null").standard_error, "");
}

// Files that a job names, too long names, a dash and invalid endings are detected before anything is computed.
TEST(BadInput, OutputsThatCannotBe) {
  const TemporaryFolder folder;
  const auto path = [&folder](const std::string& name) { return (folder.path() / name).string(); };
  const std::string stack = R"({"name": "megatron-core"})";
  write_text(path("stack.json"), stack);
  write_text(path("job.json"), R"({"model": "gpt2-124m", "cluster": "dgx-h100", "layout": {"global_batch_size": 8},
    "training": {"stack": ")" + path("stack.json") +
                                   R"("}})");
  expect_refused({"simulate", path("job.json"), "-o", path("stack.json")}, {"is also an input"});
  EXPECT_EQ(read_text(path("stack.json")), stack);
  const std::string figure = path("x.svg");
  const CommandResult too_long = run_flopcast(job_with({"--svg", figure, "-o", path(std::string(300, 'x'))}));
  EXPECT_EQ(too_long.exit_code, 4);
  EXPECT_NE(too_long.standard_error.find("File name too long"), std::string::npos) << too_long.standard_error;
  expect_refused(job_with({"--svg", figure, "--html", "-"}), {"--html", "/dev/stdout"});
  expect_refused(job_with({"--svg", figure, "--roofline", path("x.foo")}), {"--roofline", "valid endings"});
  expect_refused({"run", path("job.json"), "-o", "-"}, {"--output", "/dev/stdout"});
  EXPECT_FALSE(std::filesystem::exists(figure));
  // A link to a missing file remains a link.
  std::filesystem::create_symlink("real.txt", path("link"));
  EXPECT_EQ(run_flopcast(job_with({"-o", path("link")})).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_TRUE(std::filesystem::is_regular_file(path("real.txt")));
}

// Without a limit, the parsed values would take 64 bytes for every three bytes of the file.
TEST(BadInput, ASmallFileMakesNoLargeTree) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "many.json").string();
  std::string text = "[[]";
  constexpr int kLists = 8'500'000;
  for (int list = 0; list < kLists; ++list) text += ",[]";
  write_text(file, text + "]");
  expect_refused({"report", file}, {"many.json need more than 256 MiB of memory"});
  expect_refused({"simulate", file}, {"many.json need more than 256 MiB of memory"});
  const std::string recipe = (folder.path() / "many.yaml").string();
  write_text(recipe, std::string((std::size_t{1} << 20) + 1, '#'));
  expect_refused({"convert", recipe}, {"many.yaml is larger than 1 MiB, too large for YAML"});
}

// Regression, found by mutation: bytes that are not UTF-8 caused an internal error, a bare bracket failed toml++'s
// assertion.
TEST(BadInput, BytesOfOtherProgramsFiles) {
  const TemporaryFolder folder;
  const auto converted = [&folder](const std::string& file, const std::string& text) {
    write_text(folder.path() / file, text);
    return run_flopcast({"convert", (folder.path() / file).string(), "--format", "json"});
  };
  const CommandResult script =
      converted("train.sh",
                "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
                "--seq-length 128 --vocab-size 99 --micro-batch-size 1 --global-batch-size 8 "
                "--max-position\xff"
                "embeddings 128\n");
  EXPECT_EQ(script.exit_code, 0) << script.standard_error;
  EXPECT_NE(script.standard_output.find("\uFFFD"), std::string::npos) << script.standard_output;
  const CommandResult recipe = converted("recipe.toml", "[job]\n\n[\n\n[model]\nname = \"llama3\"\n");
  EXPECT_EQ(recipe.exit_code, 2);
  EXPECT_NE(recipe.standard_error.find("recipe.toml is not valid TOML"), std::string::npos) << recipe.standard_error;
}

// A process killed while writing leaves no file.
TEST(BadInput, AnOutputHasNoNameUntilItIsWhole) {
  const TemporaryFolder folder;
  const int probe = open(folder.path().c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (probe < 0) GTEST_SKIP() << "this file system has no files without names";
  close(probe);
  const auto names = [&folder] { return std::distance(std::filesystem::directory_iterator(folder.path()), {}); };
  const std::string file = (folder.path() / "out.txt").string();
  const std::string text(1 << 20, 'x');
  {
    OutputPieces abandoned(standard_streams(), file);
    EXPECT_TRUE(abandoned.write(text));
    EXPECT_EQ(names(), 0);
  }
  EXPECT_EQ(names(), 0);
  write_text(file, "before");
  std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  OutputPieces pieces(standard_streams(), file);
  EXPECT_TRUE(pieces.write(text));
  EXPECT_EQ(read_text(file), "before");
  pieces.finish();
  EXPECT_EQ(read_text(file), text);
  EXPECT_EQ(names(), 1);
  EXPECT_EQ(std::filesystem::status(file).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST(BadInput, AFileOfTheLongestNameIsWritten) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / std::string(255, 'x');
  EXPECT_EQ(run_flopcast(job_with({"--format", "json", "-o", file.string()})).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(file));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  const std::filesystem::path rows = folder.path() / (std::string(251, 'y') + ".csv");
  const CommandResult swept = run_flopcast({"sweep", "--model", "gpt3-125m", "--cluster", "dgx-h100", "--gbs", "8",
                                            "--vary", "layout.micro_batch_size=1,2", "-o", rows.string()});
  EXPECT_EQ(swept.exit_code, 0) << swept.standard_error;
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
}

// A link at the name of the temporary file is never followed.
TEST(BadInput, NoLinkIsFollowedBesideAnOutput) {
  const TemporaryFolder folder;
  write_text(folder.path() / "victim", "mine");
  std::filesystem::create_symlink(folder.path() / "victim",
                                  folder.path() / ("out.json." + std::to_string(getpid()) + ".tmp"));
  EXPECT_EQ(run_flopcast(job_with({"--format", "json", "-o", (folder.path() / "out.json").string()})).exit_code, 0);
  EXPECT_EQ(read_text(folder.path() / "victim"), "mine");
  // A link that the user names is followed.
  std::filesystem::create_symlink("victim", folder.path() / "named.json");
  EXPECT_EQ(run_flopcast(job_with({"--format", "json", "-o", (folder.path() / "named.json").string()})).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path() / "named.json"));
  EXPECT_NE(read_text(folder.path() / "victim"), "mine");
}

TEST(BadInput, CatalogAndCommands) {
  expect_refused({"catalog"}, {"models"});
  expect_refused({"catalog", "gadgets"}, {"gadgets", "devices"});
  expect_refused({"catalog", "models", "gpt3"}, {"gpt3", "gpt3-13b"});
  expect_refused({"schedule", "chek"}, {"chek", "check"});
}

}  // namespace
}  // namespace flopcast
