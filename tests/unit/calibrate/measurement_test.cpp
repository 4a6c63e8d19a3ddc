#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "calibrate/device/build_profile.hpp"
#include "calibrate/device/measurement.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/json_schema.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

SampleKey message(double bytes, int pass) {
  return {sample_of(CollectiveKind::kAllReduce), std::nullopt, bytes, 2, 1, "fp32", pass};
}

Measurement sample_measurement() {
  Measurement measurement;
  measurement.device = "core";
  measurement.host = "box";
  measurement.date = "2026-01-02";
  measurement.memory_bytes = 1e9;
  measurement.libraries["Eigen"] = "3.4.0";
  measurement.samples.push_back(
      {{SampleKind::kGemm, SampleShape{4, 5, 6}, std::nullopt, 1, 1, "fp32", 1}, {1e-6, 3e-6, 2e-6}, 6e-6});
  measurement.samples.push_back({message(1024, 1), {1.23456789012345e-5}, std::nullopt});
  return measurement;
}

Diagnostic measurement_complaint(const std::string& text) {
  try {
    read_measurement(text, "m.json");
  } catch (const ConfigError& error) {
    return error.diagnostic();
  }
  return {};
}

TEST(MeasurementFile, WhatIsWrittenIsRead) {
  const Measurement written = sample_measurement();
  const std::string text = write_measurement(written);
  const Measurement read = read_measurement(text, "m.json");
  EXPECT_EQ(write_measurement(read), text);
  EXPECT_EQ(read.samples[0].median(), 2e-6);
  EXPECT_EQ(read.samples[1].seconds[0], 1.23456789012345e-5);
  EXPECT_EQ(read.samples[1].key.text(), "all_reduce 1024 B, 2 ranks fp32, pass 1");
  const Json schema = Json::parse(read_text(project_folder() / "docs" / "schema" / "measurement-1.schema.json"));
  EXPECT_EQ(schema_violation(schema, Json::parse(text)), "");
}

TEST(MeasurementFile, ComplaintsTellThePlace) {
  const std::string start = R"({"schema": "flopcast.measurement/1", "device": "d", "samples": [)";
  EXPECT_EQ(measurement_complaint(start + R"({"kind": "p2p", "bytes": 8, "seconds": [0]}]})").where,
            "m.json:/samples/0/seconds");
  EXPECT_EQ(measurement_complaint(start + R"({"kind": "p2p", "bytes": 8, "seconds": []}]})").where,
            "m.json:/samples/0/seconds");
  EXPECT_EQ(measurement_complaint(start + R"({"kind": "p2q", "bytes": 8, "seconds": [1]}]})").where,
            "m.json:/samples/0/kind");
  EXPECT_EQ(measurement_complaint(start + R"({"kind": "gemm", "shape": [1, 2], "seconds": [1]}]})").where,
            "m.json:/samples/0/shape");
  EXPECT_EQ(measurement_complaint(start + R"({"kind": "p2p", "bytes": 8, "second": [1]}]})").where, "m.json");
  EXPECT_EQ(measurement_complaint(start + R"({"kind": "p2p", "bytes": 8, "seconds": [1], "x": 1}]})").where,
            "m.json:/samples/0/x");
  const std::string twice = R"({"kind": "p2p", "bytes": 8, "ranks": 2, "seconds": [1]})";
  EXPECT_NE(measurement_complaint(start + twice + "," + twice + "]}").problem.find("is given twice"),
            std::string::npos);
  EXPECT_EQ(measurement_complaint(R"({"schema": "flopcast.profile/1"})").where, "m.json:/schema");
  EXPECT_EQ(measurement_complaint(start).where, "m.json:1:65");
}

TEST(MeasurementFile, AStoppedRunGoesOn) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "m.json").string();
  Measurement about = sample_measurement();
  about.samples.clear();
  {
    MeasurementFile file(path, about);
    file.append({message(1024, 1), {1e-5}, std::nullopt});
  }
  MeasurementFile again(path, about);
  EXPECT_TRUE(again.has(message(1024, 1)));
  EXPECT_FALSE(again.has(message(1024, 2)));
  EXPECT_FALSE(again.has(message(2048, 1)));
  again.append({message(2048, 1), {2e-5}, std::nullopt});
  EXPECT_EQ(read_measurement(read_text(path), path).samples.size(), 2u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "no temporary file is left";
  about.device = "another";
  EXPECT_THROW(MeasurementFile(path, about), ConfigError);
}

TEST(MeasurementFile, AFullDiskLeavesTheOldFile) {
  const TemporaryFolder folder;
  EXPECT_THROW(replace_measurement_file((folder.path() / "missing" / "m.json").string(), "text"), EnvironmentError);
  const std::string path = (folder.path() / "m.json").string();
  replace_measurement_file(path, "old");
  std::filesystem::create_directory(folder.path() / "d");
  EXPECT_THROW(replace_measurement_file((folder.path() / "d").string(), "text"), EnvironmentError);
  EXPECT_EQ(read_text(path), "old");
}

TEST(Agreement, TwoPassesAreCompared) {
  Measurement measurement = sample_measurement();
  measurement.samples.clear();
  for (int size = 1; size <= 5; ++size) {
    measurement.samples.push_back({message(size * 1024.0, 1), {1e-5}, 1e-5});
    measurement.samples.push_back({message(size * 1024.0, 2), {1e-5 * (size == 3 ? 2.0 : 1.05)}, 1e-5});
  }
  measurement.samples.push_back({message(1 << 20, 1), {1.0}, std::nullopt});
  const Agreement agreement = compare_passes(measurement);
  EXPECT_EQ(agreement.compared, 5);
  EXPECT_NEAR(agreement.median, 0.05, 1e-9);
  EXPECT_NEAR(agreement.largest, 1.0, 1e-9);
  EXPECT_EQ(agreement.worst, "all_reduce 3072 B, 2 ranks fp32");
  EXPECT_NO_THROW(require_agreement(measurement, "m.json"));
  for (Sample& sample : measurement.samples) {
    if (sample.key.pass == 2) sample.seconds[0] *= 1.1;
  }
  EXPECT_THROW(require_agreement(measurement, "m.json"), EnvironmentError);
  EXPECT_NEAR(*disturbance(measurement), 1.0775, 1e-9);
}

}  // namespace
}  // namespace flopcast
