// `flopcast calibrate` from outside. Nothing here depends on how fast the machine is.

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/folders.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/run_command.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

const char* const kLog =
    "[1,0]<stdout>:# Collective test starting: all_reduce_perf\n"
    "[1,0]<stdout>:#  Rank  0 Group  0 Pid 1 on a device  0 [0x0f] NVIDIA A100-SXM4-80GB\n"
    "[1,0]<stdout>:#  Rank  1 Group  0 Pid 2 on a device  1 [0x10] NVIDIA A100-SXM4-80GB\n"
    "[1,0]<stdout>:#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
    "[1,0]<stdout>: 65536 16384 float sum -1 10.00 6.55 6.55 0 10.00 6.55 6.55 0\n"
    "[1,0]<stdout>: 262144 65536 float sum -1 16.00 16.38 16.38 0 16.00 16.38 16.38 0\n"
    "[1,0]<stdout>: 1048576 262144 float sum -1 40.00 26.21 26.21 0 40.00 26.21 26.21 0\n"
    "[1,0]<stdout>: 4194304 1048576 float sum -1 136.0 30.84 30.84 0 136.0 30.84 30.84 0\n"
    "[1,0]<stdout>: 16777216 4194304 float sum -1 520.0 32.26 32.26 0 520.0 32.26 32.26 0\n";

class Calibrate : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string file(const std::string& name, const std::string& text) const {
    write_text(folder_.path() / name, text);
    return path(name);
  }
  static Json schema(const std::string& name) {
    return Json::parse(read_text(project_folder() / "docs" / "schema" / (name + ".schema.json")));
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(Calibrate, ImportedMessagesPriceAForecast) {
  const std::string log = file("run.log", kLog);
  const CommandResult made =
      run_flopcast({"calibrate", "--nccl-tests", log, "-o", path("links.json"), "--measurements", path("m.json")});
  ASSERT_EQ(made.exit_code, 0) << made.standard_error;
  EXPECT_NE(made.standard_output.find("all_reduce, 2 ranks"), std::string::npos);
  EXPECT_EQ(schema_violation(schema("profile-1"), Json::parse(read_text(path("links.json")))), "");
  EXPECT_EQ(schema_violation(schema("measurement-1"), Json::parse(read_text(path("m.json")))), "");
  const std::vector<std::string> job = {
      "simulate", "--model", "gpt2-124m", "--cluster", "dgx-a100-80g", "--cluster.devices_per_node", "2",
      "--tp",     "2",       "--gbs",     "4"};
  std::vector<std::string> with = job;
  with.insert(with.end(), {"--profile", path("links.json"), "--format", "json"});
  const CommandResult result = run_flopcast(with);
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  std::vector<std::string> plain = job;
  plain.insert(plain.end(), {"--format", "json"});
  const Json without = Json::parse(run_flopcast(plain).standard_output);
  const Json forecast = Json::parse(result.standard_output);
  EXPECT_NE(forecast["breakdown"]["tp_comm_s"], without["breakdown"]["tp_comm_s"]);
  EXPECT_NEAR(forecast["breakdown"]["compute_s"].get<double>(), without["breakdown"]["compute_s"].get<double>(), 1e-9);
  EXPECT_NE(forecast["assumptions"].dump().find("measured curves price all_reduce of 2 ranks"), std::string::npos);
}

TEST_F(Calibrate, ADamagedLogLeavesNoProfile) {
  const std::string log = file("run.log", std::string(kLog).substr(0, std::string(kLog).size() - 30));
  const CommandResult result = run_flopcast({"calibrate", "--nccl-tests", log, "-o", path("links.json")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.standard_error.find("run.log:9"), std::string::npos) << result.standard_error;
  EXPECT_FALSE(std::filesystem::exists(path("links.json")));
}

TEST_F(Calibrate, TheReportDrawsAndLists) {
  ASSERT_EQ(run_flopcast({"calibrate", "--nccl-tests", file("run.log", kLog), "-o", path("p.json")}).exit_code, 0);
  const CommandResult report = run_flopcast({"calibrate", "--report", path("p.json"), "--svg", path("p.svg")});
  ASSERT_EQ(report.exit_code, 0) << report.standard_error;
  EXPECT_NE(report.standard_output.find("the worst samples"), std::string::npos);
  EXPECT_EQ(read_text(path("p.svg")).rfind("<svg ", 0), 0u);
  const CommandResult table = run_flopcast({"calibrate", "--report", path("p.json"), "--format", "json"});
  EXPECT_EQ(Json::parse(table.standard_output).size(), 1u);
}

TEST_F(Calibrate, PassesThatDisagreeGiveNoProfile) {
  Json measurement = {{"schema", "flopcast.measurement/1"}, {"device", "d"}, {"samples", Json::array()}};
  for (int pass = 1; pass <= 2; ++pass) {
    for (double bytes = 1024; bytes < 1e6; bytes *= 2) {
      measurement["samples"].push_back({{"kind", "p2p"},
                                        {"bytes", bytes},
                                        {"ranks", 2},
                                        {"pass", pass},
                                        {"seconds", {(1e-6 + bytes * 1e-10) * (pass == 1 ? 1.0 : 1.3)}}});
    }
  }
  const CommandResult result =
      run_flopcast({"calibrate", "--from", file("m.json", measurement.dump()), "-o", path("p.json")});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_NE(result.standard_error.find("disagree by 30 %"), std::string::npos) << result.standard_error;
  EXPECT_FALSE(std::filesystem::exists(path("p.json")));
}

TEST_F(Calibrate, BadUsageTellsWhatIsRight) {
  const auto complaint = [](const std::vector<std::string>& arguments) {
    const CommandResult result = run_flopcast(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.standard_error;
    return result.standard_error;
  };
  EXPECT_NE(complaint({"calibrate"}).find("--cpu, --nccl-tests FILE"), std::string::npos);
  EXPECT_NE(complaint({"calibrate", "--cpu", "--from", "x"}).find("given beside --cpu"), std::string::npos);
  EXPECT_NE(complaint({"calibrate", "--report", "x", "--quick"}).find("valid with: --cpu"), std::string::npos);
  EXPECT_NE(complaint({"calibrate", "--report", path("missing")}).find("no such file"), std::string::npos);
  EXPECT_NE(complaint({"calibrate", "--nccl-tests", file("l", kLog), "--collective", "all_reduc"}).find("all_reduce"),
            std::string::npos);
  EXPECT_NE(complaint({"calibrate", "--nccl-tests", file("l", kLog), "--device", "a100"}).find("a100-80g"),
            std::string::npos);
  EXPECT_NE(complaint({"calibrate", "--cpu", "--ranks", "1", "-o", path("p.json")}).find("expected numbers from 2"),
            std::string::npos);
  EXPECT_NE(complaint({"simulate", "--model", "gpt2-124m", "--cluster", "dgx-a100-80g", "--gbs", "8", "--profile",
                       file("bad.json", R"({"schema": "flopcast.profile/1", "name": "n", "source": "s",
                       "confidence": "measured", "cluster": {"intra_latency": "5"}})")})
                .find("bad.json:/cluster/intra_latency"),
            std::string::npos);
}

// The machine may be too busy for two passes to agree: then the answer is 4 and no profile, else a whole one.
TEST_F(Calibrate, MeasuresThisMachine) {
  const CommandResult result = run_flopcast({"calibrate", "--cpu", "--quick", "-o", path("cpu.json")});
  const Json measurement = Json::parse(read_text(path("cpu.measurements.json")));
  EXPECT_EQ(schema_violation(schema("measurement-1"), measurement), "");
  EXPECT_GT(measurement["samples"].size(), 100u);
  if (result.exit_code != 0) {
    EXPECT_TRUE(result.exit_code == 4 || result.exit_code == 2) << result.standard_error;
    EXPECT_FALSE(std::filesystem::exists(path("cpu.json")));
    return;
  }
  EXPECT_EQ(schema_violation(schema("profile-1"), Json::parse(read_text(path("cpu.json")))), "");
  const CommandResult forecast = run_flopcast(
      {"simulate", "--model", "gpt2-124m", "--profile", path("cpu.json"), "--precision", "fp32", "--gbs", "4"});
  EXPECT_EQ(forecast.exit_code, 0) << forecast.standard_error;
}

}  // namespace
}  // namespace flopcast
