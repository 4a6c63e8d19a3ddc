// Logs in every format that nccl-tests has printed, written here with known times.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include "base/text/error.hpp"
#include "calibrate/device/imports.hpp"
#include "tests/unit/calibrate/damage.hpp"

namespace flopcast {
namespace {

// Eight ranks, all-reduce: busbw = 1.75 algbw.
const char* const kDevices =
    "# nThread 1 nGpus 8 minBytes 8 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1\n";
std::string device_lines(int ranks, int nodes) {
  std::string text = kDevices;
  for (int rank = 0; rank < ranks; ++rank) {
    text += fmt::format("#  Rank {:2} Group  0 Pid {} on node{} device {:2} [0x0{}] NVIDIA H100 80GB HBM3\n", rank,
                        100 + rank, rank * nodes / ranks, rank, rank % 10);
  }
  return text;
}

const char* const kNewHeader =
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw "
    "#wrong\n#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  "
    "(GB/s)       \n";
const char* const kNewRows =
    "           0             0     float     sum      -1     0.05    0.00    0.00      0     0.04    0.00    0.00     "
    " 0\n"
    "     1048576        262144     float     sum      -1    52.43   20.00   35.00      0    41.94   25.00   43.75     "
    " 0\n"
    "     2097152        524288     float     sum      -1    83.89   25.00   43.75    N/A    69.91   30.00   52.50    "
    "N/A\n";
const char* const kFooter = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 39.4\n";

std::string new_log() {
  return "# Collective test starting: all_reduce_perf\n" + device_lines(8, 1) + kNewHeader + kNewRows + kFooter;
}

std::string prefixed(const std::string& text, const std::string& prefix) {
  std::string all = prefix;
  for (const char character : text) {
    all += character;
    if (character == '\n') all += prefix;
  }
  return all;
}

Measurement import(const std::string& text, const NcclTestsRequest& request = {}) {
  return import_nccl_tests(text, "run.log", request);
}

Diagnostic log_complaint(const std::string& text, const NcclTestsRequest& request = {}) {
  try {
    import(text, request);
  } catch (const ConfigError& error) {
    return error.diagnostic();
  }
  return {};
}

TEST(NcclTests, ReadsTodaysColumns) {
  const Measurement measurement = import(new_log());
  EXPECT_EQ(measurement.device, "NVIDIA H100 80GB HBM3");
  ASSERT_EQ(measurement.samples.size(), 2u) << "size 0 is left out";
  EXPECT_EQ(measurement.samples[0].key.text(), "all_reduce 1048576 B, 8 ranks fp32, pass 1");
  EXPECT_NEAR(measurement.samples[0].seconds[0], 52.43e-6, 1e-12);
  NcclTestsRequest in_place;
  in_place.in_place = true;
  EXPECT_NEAR(import(new_log(), in_place).samples[1].seconds[0], 69.91e-6, 1e-12);
}

TEST(NcclTests, ReadsWhateverStandsInFront) {
  for (const char* prefix : {"[1,0]<stdout>:", "[1,0]<stdout>: ", "0: ", "2026-01-02T03:04:05.678Z ", "worker-0 | ",
                             "2026-01-02 03:04:05 stdout F "}) {
    const Measurement measurement = import(prefixed(new_log(), prefix));
    ASSERT_EQ(measurement.samples.size(), 2u) << prefix;
    EXPECT_EQ(measurement.samples[1].key.ranks, 8) << prefix;
    EXPECT_NEAR(measurement.samples[1].seconds[0], 83.89e-6, 1e-12) << prefix;
  }
}

TEST(NcclTests, ReadsOldColumns) {
  const std::string old =
      "# all_gather_perf\n" + device_lines(4, 2) +
      "#       size         count    type    time   algbw   busbw  error     time   algbw   busbw  error\n"
      "     1048576         65536   half    52.4   20.01   15.01  0e+00     41.9   25.03   18.77  4e-07\n";
  const Measurement measurement = import(old);
  ASSERT_EQ(measurement.samples.size(), 1u);
  EXPECT_EQ(measurement.samples[0].key.text(), "all_gather 1048576 B, 4 ranks on 2 nodes fp16, pass 1");
}

TEST(NcclTests, RowsAloneTellTheRanksByTheirBandwidths) {
  NcclTestsRequest request;
  request.kind = sample_of(CollectiveKind::kAllReduce);
  EXPECT_EQ(import(kNewRows, request).samples[0].key.ranks, 8);
  EXPECT_NE(log_complaint(kNewRows).problem.find("does not name the collective"), std::string::npos);
  request.kind = sample_of(CollectiveKind::kBroadcast);
  EXPECT_NE(log_complaint(kNewRows, request).problem.find("the number of ranks"), std::string::npos);
}

const char* const kReport =
    R"({"version": 2, "start_time": "2026-01-02 03:04:05", "args": ["./build/all_reduce_perf", "-g", "8"],
    "env": ["SECRET=xyz"], "nccl_version": 22809,
    "config": {"devices": [{"rank": 0, "hostname": "a", "device_info": "H100"}, {"rank": 1, "hostname": "b", "device_info": "H100"}]},
    "results": [{"size": 1048576, "count": 262144, "type": "float", "redop": "sum", "root": "    -1",
      "out_of_place": {"time": 52.428800, "alg_bw": 20.000000, "bus_bw": 20.000000, "nwrong": null},
      "in_place": {"time": 41.943040, "alg_bw": 25.000000, "bus_bw": 25.000000, "nwrong": 0.000000}}]})";

TEST(NcclTests, ReadsTheJsonReportWithoutItsEnvironment) {
  const std::string json = kReport;
  const Measurement measurement = import(json);
  ASSERT_EQ(measurement.samples.size(), 1u);
  EXPECT_EQ(measurement.samples[0].key.text(), "all_reduce 1048576 B, 2 ranks on 2 nodes fp32, pass 1");
  EXPECT_EQ(measurement.date, "2026-01-02");
  EXPECT_EQ(measurement.libraries.at("nccl"), "22809");
  EXPECT_EQ(write_measurement(measurement).find("SECRET"), std::string::npos);
  std::string broken = json;
  broken.replace(broken.find("52.428800"), 9, "\"nan\"    ");
  EXPECT_EQ(log_complaint(broken).where, "run.log:/results/0/out_of_place/time");
}

TEST(NcclTests, SeveralRunsInOneFile) {
  const std::string gather = "# Collective test starting: all_gather_perf\n" + device_lines(4, 1) + kNewHeader +
                             "     1048576         65536     float    none      -1    52.43   20.00   15.00      0    "
                             "52.43   20.00   15.00      0\n";
  const Measurement measurement = import(new_log() + gather);
  ASSERT_EQ(measurement.samples.size(), 3u);
  EXPECT_EQ(measurement.samples[2].key.text(), "all_gather 1048576 B, 4 ranks fp32, pass 1");
}

TEST(NcclTests, ComplaintsTellTheLine) {
  std::string log = new_log();
  const std::string cut = log.substr(0, log.find("83.89") + 2);
  EXPECT_EQ(log_complaint(cut).where, "run.log:15");
  std::string garbled = log;
  garbled.replace(garbled.find("52.43"), 5, "52,43");
  EXPECT_EQ(log_complaint(garbled).where, "run.log:14");
  std::string moved = log;
  moved.replace(moved.find("35.00"), 5, "33.00");
  EXPECT_NE(log_complaint(moved).problem.find("reports busbw 33"), std::string::npos);
  std::string wrong = log;
  wrong.replace(wrong.find("35.00      0"), 12, "35.00      7");
  EXPECT_NE(log_complaint(wrong).problem.find("7 elements"), std::string::npos);
  EXPECT_NE(log_complaint("nothing of the kind\n").problem.find("no result"), std::string::npos);
  EXPECT_NE(log_complaint("").problem.find("no result"), std::string::npos);
}

RC_GTEST_PROP(NcclTests, DamagedLogsAreRefusedOrRead, ()) {
  try {
    const Measurement measurement = import(damaged(new_log()));
    for (const Sample& sample : measurement.samples) RC_ASSERT(sample.seconds.at(0) > 0.0);
    read_measurement(write_measurement(measurement), "m.json");
  } catch (const ConfigError&) {
  }
}

RC_GTEST_PROP(NcclTests, DamagedReportsAreRefusedOrRead, ()) {
  try {
    for (const Sample& sample : import(damaged(kReport)).samples) RC_ASSERT(sample.seconds.at(0) > 0.0);
  } catch (const ConfigError&) {
  }
}

}  // namespace
}  // namespace flopcast
