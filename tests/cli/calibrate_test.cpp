// `flopcast calibrate` seen from outside. No test depends on the speed of the machine.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/folders.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/run_flopcast.hpp"

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
  std::vector<std::string> job = {
      "simulate", "--model", "gpt2-124m", "--cluster", "dgx-a100-80g", "--cluster.devices_per_node", "2",
      "--tp",     "2",       "--gbs",     "4"};
  // Faster messages would otherwise be hidden by a slow host.
  job.insert(job.end(), {"--training.stack.host_time_per_kernel", "0us"});
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
  EXPECT_NE(forecast["assumptions"].dump().find("measured curves set the times of all_reduce of 2 ranks"),
            std::string::npos);
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
  EXPECT_NE(report.standard_output.find("worst samples"), std::string::npos);
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
  EXPECT_NE(result.standard_error.find("disagree by 30.0 %"), std::string::npos) << result.standard_error;
  EXPECT_FALSE(std::filesystem::exists(path("p.json")));
}

TEST_F(Calibrate, NoFileIsWrittenOverAnother) {
  const std::string log = file("run.log", kLog);
  ASSERT_EQ(run_flopcast({"calibrate", "--nccl-tests", log, "-o", path("p.json"), "--measurements", path("m.json")})
                .exit_code,
            0);
  const std::string measured = read_text(path("m.json"));
  const std::string profile = read_text(path("p.json"));
  std::filesystem::create_symlink(path("m.json"), path("link.json"));
  const std::vector<std::vector<std::string>> clashes = {
      {"--from", path("m.json"), "-o", path("m.json")},
      {"--from", path("m.json"), "-o", path("./m.json")},
      {"--from", path("m.json"), "-o", path("link.json")},
      {"--from", path("m.json"), "--svg", path("m.json")},
      {"--from", path("m.json"), "--measurements", path("m.json")},
      {"--nccl-tests", log, "-o", path("x.json"), "--measurements", path("x.json")},
      {"--nccl-tests", log, "-o", path("x.json"), "--svg", path("x.json")},
      {"--nccl-tests", log, "-o", log},
      {"--cpu", "-o", path("x.json"), "--measurements", path("x.json")},
      {"--cpu", "-o", path("x.json"), "--html", path("x.measurements.json")},
      {"--report", path("p.json"), "--svg", path("p.json")}};
  for (std::vector<std::string> clash : clashes) {
    clash.insert(clash.begin(), "calibrate");
    const CommandResult result = run_flopcast(clash);
    EXPECT_EQ(result.exit_code, 2) << clash[2];
    EXPECT_NE(result.standard_error.find("use a different"), std::string::npos) << result.standard_error;
  }
  EXPECT_EQ(read_text(path("m.json")), measured);
  EXPECT_EQ(read_text(path("p.json")), profile);
  EXPECT_EQ(read_text(log), kLog);
  EXPECT_FALSE(std::filesystem::exists(path("x.json")));
  EXPECT_EQ(
      run_flopcast({"calibrate", "--nccl-tests", log, "-o", "/dev/null", "--measurements", "/dev/null"}).exit_code, 0);
}

TEST_F(Calibrate, WhatCannotBeWrittenIsToldFirst) {
  const std::string log = file("run.log", kLog);
  const std::string missing = path("no-folder") + "/x";
  for (const char* flag : {"-o", "--svg", "--measurements"}) {
    for (const std::vector<std::string>& source :
         {std::vector<std::string>{"calibrate", "--cpu"}, {"calibrate", "--nccl-tests", log}}) {
      std::vector<std::string> words = source;
      words.insert(words.end(), {flag, missing});
      for (const char* other : {"-o", "--measurements"}) {
        if (std::string(other) != flag) words.insert(words.end(), {other, path(std::string("free") + other)});
      }
      const CommandResult result = run_flopcast(words);
      EXPECT_EQ(result.exit_code, 4) << result.standard_error;
      EXPECT_NE(result.standard_error.find("does not exist"), std::string::npos) << result.standard_error;
      for (const char* other : {"-o", "--measurements"}) {
        EXPECT_FALSE(std::filesystem::exists(path(std::string("free") + other))) << flag;
      }
    }
  }
}

TEST_F(Calibrate, WithoutSamplesThereIsNothingToDraw) {
  const std::string profile = file("p.json", R"({"schema": "flopcast.profile/1", "name": "n", "source": "s",
    "confidence": "published", "cluster": {"intra_latency": "5us"}})");
  const CommandResult result = run_flopcast({"calibrate", "--report", profile, "--svg", path("p.svg")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.standard_error.find("nothing to draw"), std::string::npos) << result.standard_error;
  EXPECT_FALSE(std::filesystem::exists(path("p.svg")));
}

// A profile with invalid numbers leads to an error that names the place, or to a report and a drawing.
TEST_F(Calibrate, NumbersThatNoFitHasAreRefused) {
  const Json sound = Json::parse(R"({"schema": "flopcast.profile/1", "name": "n", "source": "s",
    "confidence": "measured",
    "fits": [{"what": "norm overlapped with gemm", "unit": "channels", "median_error": 0.1, "p95_error": 0.1,
              "largest_error": 0.1, "left_out_median_error": 0.1,
              "points": [{"label": "a", "x": 2, "measured_s": 1, "fitted_s": 2}]}],
    "overlaps": [{"what": "norm overlapped with gemm", "at_none": 1.0, "per_channel": 0.01, "most_channels": 8}]})");
  const auto run = [this](const Json& profile) {
    return run_flopcast({"calibrate", "--report", file("p.json", profile.dump()), "--svg", path("p.svg")});
  };
  EXPECT_EQ(run(sound).exit_code, 0);
  for (const char* key : {"x", "measured_s", "fitted_s"}) {
    for (const double wrong : {0.0, -1.0, 1e-300, 1e300}) {
      Json profile = sound;
      profile["fits"][0]["points"][0][key] = wrong;
      const CommandResult result = run(profile);
      EXPECT_EQ(result.exit_code, 2) << key << wrong;
      EXPECT_NE(result.standard_error.find(std::string("p.json:/fits/0/points/0/") + key), std::string::npos)
          << result.standard_error;
    }
  }
  for (const double slope : {1e308, -0.125, -1e308}) {
    Json profile = sound;
    profile["overlaps"][0]["per_channel"] = slope;
    const CommandResult result = run(profile);
    EXPECT_EQ(result.exit_code, 2) << slope;
    EXPECT_NE(result.standard_error.find("p.json:/overlaps/0/per_channel"), std::string::npos) << result.standard_error;
  }
  for (const double extreme : {1e-30, 1e60}) {
    Json profile = sound;
    profile["fits"][0]["points"][0]["measured_s"] = extreme;
    EXPECT_EQ(run(profile).exit_code, 0) << extreme;
    profile["overlaps"].clear();
    EXPECT_EQ(run(profile).exit_code, 0) << extreme;
  }
}

TEST_F(Calibrate, BadUsageTellsWhatIsRight) {
  const auto message_of = [](const std::vector<std::string>& arguments) {
    const CommandResult result = start_flopcast(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.standard_error;
    return result.standard_error;
  };
  EXPECT_NE(message_of({"calibrate"}).find("--cpu; --cuda; any of --nccl-tests"), std::string::npos);
  EXPECT_NE(message_of({"calibrate", "--cuda", "--cpu"}).find("cannot be combined with --cpu"), std::string::npos);
  EXPECT_NE(message_of({"calibrate", "--cpu", "--seconds", "5"}).find("valid with: --cuda"), std::string::npos);
  EXPECT_NE(message_of({"calibrate", "--cuda", "--seconds", "soon"}).find("number of seconds"), std::string::npos);
  EXPECT_NE(message_of({"calibrate", "--cpu", "--from", "x"}).find("cannot be combined with --cpu"), std::string::npos);
  EXPECT_NE(message_of({"calibrate", "--report", "x", "--quick"}).find("valid with: --cpu"), std::string::npos);
  EXPECT_NE(message_of({"calibrate", "--report", path("missing")}).find("no such file"), std::string::npos);
  EXPECT_NE(message_of({"calibrate", "--nccl-tests", file("l", kLog), "--collective", "all_reduc"}).find("all_reduce"),
            std::string::npos);
  EXPECT_NE(message_of({"calibrate", "--nccl-tests", file("l", kLog), "--device", "a100"}).find("a100-80g"),
            std::string::npos);
  EXPECT_NE(message_of({"calibrate", "--cpu", "--ranks", "1", "-o", path("p.json")}).find("expected numbers from 2"),
            std::string::npos);
  EXPECT_NE(message_of({"simulate", "--model", "gpt2-124m", "--cluster", "dgx-a100-80g", "--gbs", "8", "--profile",
                        file("bad.json", R"({"schema": "flopcast.profile/1", "name": "n", "source": "s",
                       "confidence": "measured", "cluster": {"intra_latency": "5"}})")})
                .find("bad.json:/cluster/intra_latency"),
            std::string::npos);
}

// A small version of the samples of calibrate --cuda: GEMMs that reach 70 % of the peak, and lose a share to each
// channel.
TEST_F(Calibrate, TheReportHoldsAGpuAgainstItsDatasheet) {
  Json samples = Json::array();
  const auto add = [&samples](Json sample, double seconds) {
    for (int pass = 1; pass <= 2; ++pass) {
      sample["pass"] = pass;
      sample["seconds"] = {seconds};
      samples.push_back(sample);
    }
  };
  for (const int side : {512, 1024, 2048, 4096, 6144, 8192, 12288}) {
    const double flops = 2.0 * side * side * side;
    const Json product = {{"kind", "gemm"}, {"shape", {side, side, side}}, {"dtype", "bf16"}};
    add(product, 3e-6 + flops / 692e12);
    if (side != 4096) continue;
    for (const int channels : {2, 8, 32}) {
      Json slowed = product;
      slowed.update({{"beside", "channel_copy"}, {"channels", channels}});
      add(slowed, (3e-6 + flops / 692e12) * (1.0 + 0.01 * channels));
    }
  }
  for (const double bytes : {1e6, 1e7, 1e8, 1e9, 2e9}) {
    add({{"kind", "memory_copy"}, {"bytes", bytes}}, 2e-6 + bytes / 4.32e12);
  }
  add({{"kind", "launch"}}, 2.4e-6);
  const Json measurement = {{"schema", "flopcast.measurement/1"},
                            {"device", "NVIDIA H200"},
                            {"multiprocessors", 132},
                            {"clocks_mhz", {{"memory", 3201}}},
                            {"samples", samples}};
  const std::string profile = path("h200.json");
  const CommandResult made =
      run_flopcast({"calibrate", "--from", file("gpu.json", measurement.dump()), "--device", "h200", "-o", profile});
  ASSERT_EQ(made.exit_code, 0) << made.standard_error;
  EXPECT_EQ(schema_violation(schema("measurement-1"), measurement), "");
  EXPECT_EQ(schema_violation(schema("profile-1"), Json::parse(read_text(profile))), "");
  // The GPU's name identifies the device.
  const CommandResult unnamed = run_flopcast({"calibrate", "--from", path("gpu.json"), "-o", path("again.json")});
  ASSERT_EQ(unnamed.exit_code, 0) << unnamed.standard_error;
  EXPECT_EQ(Json::parse(read_text(path("again.json"))), Json::parse(read_text(profile)));
  Json unknown = measurement;
  unknown["device"] = "a GPU of tomorrow";
  const CommandResult asked = run_flopcast({"calibrate", "--from", file("new.json", unknown.dump())});
  EXPECT_EQ(asked.exit_code, 2);
  EXPECT_NE(asked.standard_error.find("does not match a device of the catalogue"), std::string::npos)
      << asked.standard_error;
  Json other = measurement;
  other["device"] = "NVIDIA H200 MIG 1g.18gb";
  const CommandResult slice = run_flopcast(
      {"calibrate", "--from", file("mig.json", other.dump()), "--device", "h200", "-o", path("mig-p.json")});
  EXPECT_EQ(slice.exit_code, 2);
  EXPECT_NE(slice.standard_error.find("is a partition of a GPU"), std::string::npos) << slice.standard_error;
  EXPECT_FALSE(std::filesystem::exists(path("mig-p.json")));
  other["device"] = "NVIDIA H200";
  other["multiprocessors"] = 114;
  const CommandResult fewer = run_flopcast({"calibrate", "--from", file("114.json", other.dump())});
  EXPECT_NE(fewer.standard_error.find("the GPU has 114 multiprocessors, but h200 has 132"), std::string::npos)
      << fewer.standard_error;
  EXPECT_EQ(made.standard_error.find("multiprocessors"), std::string::npos) << made.standard_error;
  const CommandResult report = run_flopcast({"calibrate", "--report", profile, "--svg", path("h200.svg")});
  ASSERT_EQ(report.exit_code, 0) << report.standard_error;
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(report.standard_output, "fastest samples compared with the datasheet")) << report.standard_output;
  EXPECT_TRUE(has(report.standard_output, "691.6 TFLOP/s  989.4 TFLOP/s")) << report.standard_output;
  EXPECT_TRUE(has(report.standard_output, "4301 GB/s")) << report.standard_output;
  EXPECT_TRUE(has(report.standard_output, "4800 GB/s")) << report.standard_output;
  EXPECT_TRUE(has(report.standard_output, "slowdown under overlap")) << report.standard_output;
  EXPECT_TRUE(has(report.standard_output, "32.0")) << report.standard_output;
  const std::string drawing = read_text(path("h200.svg"));
  EXPECT_TRUE(has(drawing, "datasheet"));
  EXPECT_TRUE(has(drawing, "overlapped time / time alone"));
  const CommandResult forecast =
      run_flopcast({"simulate", "--model", "gpt2-124m", "--cluster", "dgx-h200", "--gbs", "64", "--profile", profile});
  EXPECT_EQ(forecast.exit_code, 0) << forecast.standard_error;
}

// Without a GPU, or in a build without CUDA: one line, and nothing is written.
TEST_F(Calibrate, WithoutAGpuOneLineSaysSo) {
  const std::string name = path("gpu.json");
  CommandOptions options;
  options.environment["CUDA_VISIBLE_DEVICES"] = "";
  const CommandResult result = start_flopcast({"calibrate", "--cuda", "--device", "h200", "-o", name}, options);
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(std::count(result.standard_error.begin(), result.standard_error.end(), '\n'), 1) << result.standard_error;
  EXPECT_EQ(result.standard_error.rfind("error: ", 0), 0u);
  EXPECT_EQ(result.standard_output, "");
  EXPECT_FALSE(std::filesystem::exists(name));
  EXPECT_FALSE(std::filesystem::exists(path("gpu.measurements.json")));
}

// gzip with stored blocks (RFC 1951, 1952).
std::string gzip(const std::string& text) {
  const auto number = [](std::size_t value, int bytes) {
    std::string digits;
    for (int index = 0; index < bytes; ++index) digits += static_cast<char>((value >> (8 * index)) & 0xFF);
    return digits;
  };
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320 : 0);
  }
  std::string packed("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  constexpr std::size_t kBlock = 0xFFFF;
  for (std::size_t start = 0; start < text.size(); start += kBlock) {
    const std::string block = text.substr(start, kBlock);
    packed += number(start + kBlock >= text.size() ? 1 : 0, 1);
    packed += number(block.size(), 2) + number(~block.size() & 0xFFFF, 2) + block;
  }
  return packed + number(~crc & 0xFFFFFFFF, 4) + number(text.size(), 4);
}

Json traced(const std::string& category, const std::string& name, int id, double duration) {
  return {{"ph", "X"}, {"cat", category}, {"name", name}, {"dur", duration}, {"args", {{"External id", id}}}};
}

std::string trace() {
  Json root = {{"deviceProperties", {{{"name", "NVIDIA A100"}, {"numSms", 108}}}}, {"traceEvents", Json::array()}};
  int id = 0;
  for (const int m : {1024, 2048, 4096}) {
    for (const int n : {1024, 4096, 12288}) {
      constexpr int kDepth = 4096;
      Json call = traced("cpu_op", "aten::mm", ++id, 5);
      call["args"]["Input Dims"] = {{m, kDepth}, {kDepth, n}};
      call["args"]["Input type"] = {"c10::BFloat16", "c10::BFloat16"};
      root["traceEvents"].push_back(call);
      root["traceEvents"].push_back(traced("kernel", "gemm", id, 5.0 + 2e6 * m * n * kDepth / 200e12));
    }
  }
  Json message = traced("kernel", "ncclDevKernel_AllReduce", 0, 20.0);
  message["args"] = {{"Collective name", "allreduce"},  {"In msg nelems", 1000},
                     {"Out msg nelems", 1000},          {"Group size", 2},
                     {"Process Group Ranks", "[0, 1]"}, {"dtype", "Half"}};
  root["traceEvents"].push_back(message);
  return root.dump();
}

TEST_F(Calibrate, APackedTraceTellsTimesAndFitsADevice) {
  const std::string packed = file("t.json.gz", gzip(trace()));
  const CommandResult shown = run_flopcast({"calibrate", "--trace", packed});
  ASSERT_EQ(shown.exit_code, 0) << shown.standard_error;
  EXPECT_NE(shown.standard_output.find("9 of 9 kernels other than communication have an operator"), std::string::npos)
      << shown.standard_output;
  const CommandResult made = run_flopcast(
      {"calibrate", "--trace", packed, "--device", "a100-80g", "-o", path("p.json"), "--devices-per-node", "8"});
  ASSERT_EQ(made.exit_code, 0) << made.standard_error;
  EXPECT_NE(made.standard_error.find("not fitted: all_reduce, 2 ranks: 1 size, but a fit needs 4"), std::string::npos)
      << made.standard_error;
  const Json profile = Json::parse(read_text(path("p.json")));
  EXPECT_EQ(schema_violation(schema("profile-1"), profile), "");
  // A trace is from training steps, so its GEMM rates are sustained rates.
  EXPECT_NEAR(profile.at("cluster").at("device").at("gemm_efficiency").get<double>(), 200.0 / 312.0, 0.1);
  const CommandResult cut = run_flopcast({"calibrate", "--trace", file("cut.gz", gzip(trace()).substr(0, 700))});
  EXPECT_EQ(cut.exit_code, 2);
  EXPECT_NE(cut.standard_error.find("decompression failed before its end"), std::string::npos) << cut.standard_error;
}

TEST_F(Calibrate, ATopologyIsAProfileAndJoinsOthers) {
  const std::string topology = file("topo.txt",
                                    "\tGPU0\tGPU1\tCPU Affinity\n"
                                    "GPU0\t X \tNV12\t0-7\n"
                                    "GPU1\tNV12\t X \t0-7\n");
  const CommandResult made = run_flopcast({"calibrate", "--topology", topology, "--device", "a100-80g", "--nccl-tests",
                                           file("run.log", kLog), "-o", path("node.json")});
  ASSERT_EQ(made.exit_code, 0) << made.standard_error;
  const Json profile = Json::parse(read_text(path("node.json")));
  EXPECT_EQ(schema_violation(schema("profile-1"), profile), "");
  EXPECT_EQ(profile["cluster"]["devices_per_node"], 2);
  EXPECT_EQ(profile["cluster"]["intra_bandwidth"], "300GB/s");
  EXPECT_EQ(profile["curves"].size(), 1u);
  const CommandResult alone = run_flopcast({"calibrate", "--topology", topology});
  EXPECT_EQ(alone.exit_code, 0);
  EXPECT_NE(alone.standard_error.find("pass --device NAME"), std::string::npos);
  const CommandResult forecast = run_flopcast({"simulate", "--model", "gpt2-124m", "--cluster", "dgx-a100-80g", "--tp",
                                               "2", "--gbs", "4", "--profile", path("node.json")});
  EXPECT_EQ(forecast.exit_code, 0) << forecast.standard_error;
}

TEST_F(Calibrate, ProfilesComeAlong) {
  const CommandResult list = run_flopcast({"catalog", "profiles", "--format", "csv"});
  ASSERT_EQ(list.exit_code, 0) << list.standard_error;
  EXPECT_NE(list.standard_output.find("a100-perlmutter,a100-80g,imported"), std::string::npos) << list.standard_output;
  const CommandResult one = run_flopcast({"catalog", "profiles", "gh200-vista"});
  EXPECT_NE(one.standard_output.find("all_reduce, 8 ranks on 8 nodes"), std::string::npos) << one.standard_output;
  EXPECT_EQ(run_flopcast({"catalog", "profiles", "gh200"}).exit_code, 2);
  const std::vector<std::string> job = {"simulate", "--model", "llama3-8b", "--cluster", "dgx-h100",
                                        "--tp",     "8",       "--gbs",     "16"};
  const auto with = [&job](const std::string& profile) {
    std::vector<std::string> arguments = job;
    arguments.insert(arguments.end(), {"--profile", profile});
    return run_flopcast(arguments);
  };
  const CommandResult measured = with("h100-nccl");
  ASSERT_EQ(measured.exit_code, 0) << measured.standard_error;
  EXPECT_NE(measured.standard_output, run_flopcast(job).standard_output);
  EXPECT_NE(measured.standard_output.find("profile h100-nccl"), std::string::npos);
  const CommandResult unknown = with("h100-ncc");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.standard_error.find("h100-nccl"), std::string::npos) << unknown.standard_error;
  // The profile was measured on another device.
  EXPECT_EQ(with("a100-perlmutter").exit_code, 2);
  const CommandResult validated = run_flopcast({"validate", "--profile", "h100-nccl", "--source", "mosaic_fsdp"});
  ASSERT_EQ(validated.exit_code, 0) << validated.standard_error;
  EXPECT_NE(validated.standard_output.find("device differs from the profile's"), std::string::npos);
  EXPECT_EQ(run_flopcast({"validate", "--profile", "h100-nccl", "--refit"}).exit_code, 2);
}

// Curves measured over sockets on four Slingshot cards do not apply to InfiniBand, with the same or another number of
// cards.
TEST_F(Calibrate, CurvesStayOnTheFabricThatWasMeasured) {
  const auto error = [](const std::string& source, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"validate", "--source", source, "--format", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = run_flopcast(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.standard_error;
    return Json::parse(result.standard_output).at("sources").at(0).at("mape").get<double>();
  };
  for (const char* source : {"bigscience_bloom", "vtrain_multinode"}) {
    EXPECT_LT(error(source, {"--profile", "a100-perlmutter"}), 2.0 * error(source, {})) << source;
  }
}

TEST_F(Calibrate, ATrainingLogTellsItsSteps) {
  std::string log = "  world_size ............ 8\n";
  for (int step = 1; step <= 5; ++step) {
    log += "iteration " + std::to_string(step) +
           "/ 10 | elapsed time per iteration (ms): 500.0 | global batch size: 64 |\n";
  }
  const CommandResult shown = run_flopcast(
      {"calibrate", "--training-log", file("run.log", log), "--measurements", path("m.json"), "--format", "json"});
  ASSERT_EQ(shown.exit_code, 0) << shown.standard_error;
  EXPECT_EQ(Json::parse(shown.standard_output)[0]["samples_per_s"], 128);
  EXPECT_EQ(schema_violation(schema("measurement-1"), Json::parse(read_text(path("m.json")))), "");
}

// On a busy machine the two passes may disagree: exit code 4 and no profile; otherwise a complete profile.
TEST_F(Calibrate, MeasuresThisMachine) {
  const CommandResult result = start_flopcast({"calibrate", "--cpu", "--quick", "-o", path("cpu.json")});
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
