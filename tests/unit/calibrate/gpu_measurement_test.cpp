// A synthetic measurement of a GPU with every kind of sample, made from known figures without noise: reading, fitting
// and refusing it.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "calibrate/device/build_profile.hpp"
#include "calibrate/device/fits.hpp"
#include "model/cost/compute.hpp"
#include "model/job/read_job.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/unit/calibrate/damage.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

constexpr double kLaunch = 4e-6;
constexpr double kShare = 0.7;    // share of the memory bandwidth
constexpr double kForward = 0.5;  // share of the peak
constexpr double kBackward = 0.4;
constexpr double kHostRate = 50e9;

Device catalogued() {
  std::vector<std::string> ignored;
  return read_device("h200", "device", ignored, {});
}

void add(Measurement& measurement, SampleKey key, double seconds) {
  measurement.samples.push_back({std::move(key), {seconds, 1.01 * seconds, 0.99 * seconds}, std::nullopt});
}

SampleKey kernel(SampleKind kind, const std::string& op, double bytes) {
  SampleKey key;
  key.kind = kind;
  key.op = op;
  key.bytes = bytes;
  return key;
}

void add_products(Measurement& measurement, const Device& device) {
  Device real = device;
  real.gemm_efficiency = 0.8;
  real.kernel_launch = Seconds(kLaunch);
  const ComputeModel model(real, Precision::kBf16);
  for (const int m : {128, 512, 2048, 8192}) {
    for (const int k : {256, 1024, 4096}) {
      SampleKey key;
      key.shape = SampleShape{m, 4096, k};
      key.dtype = "bf16";
      add(measurement, key, model.gemm({m, 4096, k, 1}, 2.0).value());
      key.op = "dgrad";
      add(measurement, key, 1.1 * model.gemm({m, 4096, k, 1}, 2.0).value());
      key.op = {};
      key.beside = sample_of(CollectiveKind::kAllReduce);
      key.channels = 16;
      add(measurement, key, 1.3 * model.gemm({m, 4096, k, 1}, 2.0).value());
    }
  }
}

void add_attention(Measurement& measurement, const Device& device) {
  const double peak = device.peak_of(Precision::kBf16).value();
  for (const int sequence : {1024, 2048, 4096, 8192}) {
    SampleKey key;
    key.attention = AttentionShape{2, 32, sequence, 128, true};
    key.dtype = "bf16";
    const double flops = 2.0 * 2 * 32 * 128 * static_cast<double>(sequence) * sequence;
    EXPECT_DOUBLE_EQ(key.attention->flops(), flops);
    key.kind = SampleKind::kAttentionForward;
    add(measurement, key, kLaunch + flops / (kForward * peak));
    key.kind = SampleKind::kAttentionBackward;
    add(measurement, key, kLaunch + 2.5 * flops / (kBackward * peak));
  }
}

Measurement measured_gpu() {
  Measurement measurement;
  const Device device = catalogued();
  measurement.device = "NVIDIA H200";
  measurement.multiprocessors = device.multiprocessors;
  measurement.date = "2026-01-02";
  add_products(measurement, device);
  add_attention(measurement, device);
  const double rate = kShare * device.memory_bandwidth.value();
  for (const double bytes : {1e6, 1e7, 1e8, 1e9}) {
    add(measurement, kernel(SampleKind::kNorm, "layernorm forward", bytes), kLaunch + bytes / rate);
    add(measurement, kernel(SampleKind::kElementwise, "gelu", bytes), kLaunch + bytes / rate);
    add(measurement, kernel(SampleKind::kEmbedding, "backward", bytes), kLaunch + 3.0 * bytes / rate);
    add(measurement, kernel(SampleKind::kLoss, "", bytes), kLaunch + 2.0 * bytes / rate);
    add(measurement, kernel(SampleKind::kOptimizerStep, "adam", bytes), kLaunch + bytes / rate);
    for (const double size : {bytes, 3.0 * bytes}) {
      add(measurement, kernel(SampleKind::kHostCopy, "to host", size), 1e-5 + size / kHostRate);
    }
    SampleKey message = kernel(sample_of(CollectiveKind::kAllReduce), "", bytes);
    message.ranks = 8;
    add(measurement, message, 2e-5 + bytes / 1e11);
    message.beside = SampleKind::kGemm;
    add(measurement, message, 3e-5 + bytes / 0.8e11);
  }
  SampleKey key;
  key.kind = SampleKind::kLaunch;
  add(measurement, key, 2.5e-6);
  key.kind = SampleKind::kHostDispatch;
  add(measurement, key, 6e-6);
  return measurement;
}

ProfileRequest request_for(const std::string& device) {
  ProfileRequest request;
  request.device = device;
  request.source = "a test";
  request.confidence = "measured";
  return request;
}

const ProfileFit* fit_of(const DeviceProfile& profile, const std::string& what) {
  for (const ProfileFit& fit : profile.fits) {
    if (fit.what == what) return &fit;
  }
  return nullptr;
}

// A fitted launch of 1 ns, which no real kernel has, would otherwise price every element-wise kernel of a forecast.
TEST(GpuMeasurement, ALaunchThatProductsDoNotShowStaysTheCatalogues) {
  Device device = catalogued();
  Measurement measurement;
  measurement.device = "NVIDIA H200";
  measurement.multiprocessors = device.multiprocessors;
  for (const double launch : {0.0, kLaunch}) {
    device.gemm_efficiency = 0.8;
    device.kernel_launch = Seconds(launch);
    const ComputeModel model(device, Precision::kBf16);
    measurement.samples.clear();
    for (const int m : {1024, 4096, 16384}) {
      for (const int k : {512, 2048, 8192}) {
        SampleKey key;
        key.shape = SampleShape{m, 4096, k};
        key.dtype = "bf16";
        add(measurement, key, model.gemm({m, 4096, k, 1}, 2.0).value());
      }
    }
    const DeviceProfile profile = build_profile(measurement, request_for("h200"));
    EXPECT_EQ(profile.cluster.at("device").contains("kernel_launch"), launch > 0.0) << launch;
  }
}

TEST(GpuMeasurement, EveryKindIsWrittenAndRead) {
  const Measurement written = measured_gpu();
  const std::string text = write_measurement(written);
  const Measurement read = read_measurement(text, "m.json");
  ASSERT_EQ(read.samples.size(), written.samples.size());
  for (std::size_t index = 0; index < read.samples.size(); ++index) {
    EXPECT_EQ(read.samples[index].key, written.samples[index].key) << written.samples[index].key.text();
  }
  EXPECT_EQ(write_measurement(read), text);
  const Json schema = Json::parse(read_text(project_folder() / "docs" / "schema" / "measurement-1.schema.json"));
  EXPECT_EQ(schema_violation(schema, Json::parse(text)), "");
  for (const std::string& kind : names_of<SampleKind>()) {
    EXPECT_NE(std::find(schema["properties"]["samples"]["items"]["properties"]["kind"]["enum"].begin(),
                        schema["properties"]["samples"]["items"]["properties"]["kind"]["enum"].end(), kind),
              schema["properties"]["samples"]["items"]["properties"]["kind"]["enum"].end())
        << kind;
  }
}

TEST(GpuMeasurement, TheFiguresItWasMadeWithAreFound) {
  const DeviceProfile profile = build_profile(measured_gpu(), request_for("h200"));
  const Json& device = profile.cluster.at("device");
  EXPECT_NEAR(device.at("kernel_efficiency").get<double>(), 0.8, 0.01);
  EXPECT_FALSE(device.contains("gemm_efficiency"));
  ProfileRequest in_step = request_for("h200");
  in_step.in_step = true;
  const Json traced = build_profile(measured_gpu(), in_step).cluster.at("device");
  EXPECT_EQ(traced.at("gemm_efficiency"), device.at("kernel_efficiency"));
  EXPECT_FALSE(traced.contains("kernel_efficiency"));
  EXPECT_NEAR(device.at("memory_efficiency").get<double>(), kShare, 1e-3);
  EXPECT_NEAR(device.at("flash_forward_efficiency").get<double>(), kForward, 1e-3);
  EXPECT_NEAR(device.at("flash_backward_efficiency").get<double>(), kBackward, 1e-3);
  EXPECT_EQ(device.at("kernel_launch"), "2.5us");
  const std::string host = profile.cluster.at("host_bandwidth");
  EXPECT_NEAR(std::stod(host), kHostRate / 1e9, 0.5) << host;
  for (const char* what :
       {"norm (layernorm forward)", "elementwise (gelu)", "embedding (backward)", "loss", "optimizer_step (adam)",
        "attention_forward bf16", "attention_backward bf16", "gemm bf16", "gemm bf16 (dgrad)", "all_reduce, 8 ranks"}) {
    const ProfileFit* fit = fit_of(profile, what);
    ASSERT_NE(fit, nullptr) << what;
    EXPECT_LT(fit->median_error, 0.01) << what;
    EXPECT_LT(fit->left_out_median_error, 0.05) << what;
  }
  // Overlapped samples do not affect the curves.
  EXPECT_NEAR(profile.curves.at(0).curve.time(Bytes(1e9)).value(), 2e-5 + 1e-2, 1e-5);
}

TEST(GpuMeasurement, ImpossibleKernelsAreRefused) {
  Measurement measurement = measured_gpu();
  for (Sample& sample : measurement.samples) {
    if (sample.key.kind != SampleKind::kNorm && sample.key.kind != SampleKind::kElementwise) continue;
    for (double& second : sample.seconds) second /= 4.0;
  }
  EXPECT_THROW(build_profile(measurement, request_for("h200")), ConfigError);
  measurement = measured_gpu();
  for (Sample& sample : measurement.samples) {
    if (!is_attention(sample.key.kind)) continue;
    for (double& second : sample.seconds) second /= 4.0;
  }
  EXPECT_THROW(build_profile(measurement, request_for("h200")), ConfigError);
  EXPECT_THROW(build_profile(measured_gpu(), request_for("")), ConfigError);
}

// A fit that no forecast needs must not discard eight minutes of GPU time.
TEST(GpuMeasurement, FitsOfWhichNoFigureFollowsAreLeftOutWhereTheyRefuse) {
  Measurement measurement = measured_gpu();
  for (Sample& sample : measurement.samples) {
    if (sample.key.kind != SampleKind::kOptimizerStep && sample.key.kind != SampleKind::kLoss) continue;
    for (double& second : sample.seconds) second = 1.0 / *sample.key.bytes;  // faster with size
  }
  for (const int sequence : {1024, 2048, 4096, 8192}) {
    SampleKey key;
    key.kind = SampleKind::kAttentionForward;
    key.attention = AttentionShape{2, 32, sequence, 128, true};
    key.dtype = "fp32";
    key.op = "flopcast's own";
    add(measurement, key, 1.0 / sequence);
  }
  SampleKey copy = kernel(SampleKind::kChannelCopy, "", 1e8);
  for (const int channels : {1, 2, 4, 8}) {
    copy.channels = channels;
    copy.beside.reset();
    add(measurement, copy, 1e-2 / channels);
    copy.beside = SampleKind::kGemm;
    add(measurement, copy, 0.8e-2 / channels);  // faster when overlapped with a GEMM
  }
  std::vector<std::string> notes;
  const DeviceProfile profile = build_profile(measurement, request_for("h200"), &notes);
  ASSERT_EQ(notes.size(), 4u);
  EXPECT_EQ(notes[0].rfind("not fitted: loss: ", 0), 0u) << notes[0];
  EXPECT_EQ(notes[1].rfind("not fitted: optimizer_step (adam): ", 0), 0u) << notes[1];
  EXPECT_EQ(notes[2].rfind("not fitted: attention_forward (flopcast's own) fp32: ", 0), 0u) << notes[2];
  EXPECT_EQ(notes[3].rfind("not fitted: channel_copy overlapped with gemm: takes only 0.80 of its time alone; ", 0), 0u)
      << notes[3];
  EXPECT_TRUE(profile.overlaps.empty());
  EXPECT_EQ(fit_of(profile, "optimizer_step (adam)"), nullptr);
  // Adam then uses the share of the other kernels.
  Json device = build_profile(measured_gpu(), request_for("h200")).cluster.at("device");
  EXPECT_EQ(device.erase("adam_efficiency"), 1u);
  EXPECT_EQ(profile.cluster.at("device"), device);
  EXPECT_NE(fit_of(profile, "norm (layernorm forward)"), nullptr);
  build_profile(measured_gpu(), request_for("h200"), &notes);
  EXPECT_TRUE(notes.empty());
}

TEST(GpuMeasurement, APrecisionAboveItsPeakIsToldOf) {
  for (const char* dtype : {"fp16", "fp32"}) {
    Measurement measurement = measured_gpu();
    Measurement more;
    for (const Sample& sample : measurement.samples) {
      if (sample.key.kind != SampleKind::kGemm || sample.key.beside || !sample.key.op.empty()) continue;
      Sample fast = sample;
      fast.key.dtype = dtype;
      for (double& second : fast.seconds) second /= 4.0;
      more.samples.push_back(fast);
    }
    more.samples.pop_back();  // bf16 has the most shapes
    measurement.samples.insert(measurement.samples.end(), more.samples.begin(), more.samples.end());
    std::vector<std::string> notes;
    const Json device = build_profile(measurement, request_for("h200"), &notes).cluster.at("device");
    EXPECT_EQ(device.count("kernel_efficiency_by_precision"), 0u);
    const bool by_tensor_cores = std::string(dtype) == "fp32";
    ASSERT_EQ(notes.size(), by_tensor_cores ? 0u : 1u);
    if (!by_tensor_cores) {
      EXPECT_EQ(notes[0].rfind("gemm fp16 ran at ", 0), 0u) << notes[0];
    }
  }
}

TEST(OperatorFit, RefusesWhatCannotBeFitted) {
  EXPECT_THROW(fit_operator("norm", {{"a", 1e6, 1e-5}, {"b", 2e6, 2e-5}}), ConfigError);
  EXPECT_THROW(fit_operator("norm", {{"a", 1e6, 1e-5}, {"b", 2e6, 2e-5}, {"c", 3e6, 0.0}}), ConfigError);
  EXPECT_THROW(fit_operator("norm", {{"a", 1e6, 1e-5}, {"b", 2e6, 2e-5}, {"c", 3e6, std::nan("")}}), ConfigError);
  EXPECT_THROW(fit_operator("norm", {{"a", 1e6, 3e-5}, {"b", 2e6, 2e-5}, {"c", 3e6, 1e-5}}), ConfigError);
}

TEST(GpuMeasurement, ComplaintsTellThePlace) {
  const auto message_of = [](const std::string& sample) {
    try {
      read_measurement(R"({"schema": "flopcast.measurement/1", "device": "d", "samples": [)" + sample + "]}", "m.json");
    } catch (const ConfigError& error) {
      return error.diagnostic().where;
    }
    return std::string();
  };
  EXPECT_EQ(message_of(R"({"kind": "attention_forward", "seconds": [1]})"), "m.json");
  EXPECT_EQ(message_of(R"({"kind": "attention_forward", "attention": [1, 2], "seconds": [1]})"),
            "m.json:/samples/0/attention");
  EXPECT_EQ(message_of(R"({"kind": "norm", "seconds": [1]})"), "m.json");
  EXPECT_EQ(message_of(R"({"kind": "launch", "channels": 3, "seconds": [1]})"), "m.json:/samples/0/channels");
  EXPECT_EQ(message_of(R"({"kind": "launch", "beside": "nothing", "seconds": [1]})"), "m.json:/samples/0/beside");
  EXPECT_EQ(message_of(R"({"kind": "launch", "bytes": 3, "seconds": [1]})"), "m.json:/samples/0/bytes");
}

TEST(GpuMeasurement, ChannelsBelongToMessagesChannelCopiesAndNeighbours) {
  Measurement measurement;
  measurement.device = "d";
  SampleKey copy = kernel(SampleKind::kChannelCopy, "", 1e6);
  copy.channels = 4;
  add(measurement, copy, 1e-3);
  copy.beside = SampleKind::kGemm;
  add(measurement, copy, 2e-3);
  SampleKey message = kernel(sample_of(CollectiveKind::kAllReduce), "", 1e6);
  message.ranks = 2;
  message.channels = 4;
  add(measurement, message, 1e-3);
  const std::string text = write_measurement(measurement);
  EXPECT_EQ(write_measurement(read_measurement(text, "m.json")), text);
  std::string without = text;
  while (without.find("\"channels\":4,") != std::string::npos) without.erase(without.find("\"channels\":4,"), 13);
  EXPECT_THROW(read_measurement(without, "m.json"), ConfigError);
}

// The schema accepts exactly what the reader accepts.
TEST(GpuMeasurement, TheSchemaSaysWhatTheReaderSaysOfChannels) {
  const Json schema = Json::parse(read_text(project_folder() / "docs" / "schema" / "measurement-1.schema.json"));
  const auto agrees = [&schema](const Json& more) {
    Json sample = {{"kind", "channel_copy"}, {"bytes", 1000}, {"seconds", {1e-3}}};
    sample.update(more);
    const Json file = {{"schema", "flopcast.measurement/1"}, {"device", "d"}, {"samples", {sample}}};
    const bool valid = schema_violation(schema, file).empty();
    try {
      read_measurement(file.dump(), "m.json");
      EXPECT_TRUE(valid) << sample;
    } catch (const ConfigError&) {
      EXPECT_FALSE(valid) << sample;
    }
    return valid;
  };
  EXPECT_FALSE(agrees(Json::object()));
  EXPECT_TRUE(agrees({{"channels", 1}}));
  EXPECT_TRUE(agrees({{"channels", 1024}}));
  EXPECT_FALSE(agrees({{"channels", 1025}}));
  EXPECT_FALSE(agrees({{"channels", 0}}));
  EXPECT_TRUE(agrees({{"kind", "memory_copy"}}));
}

TEST(GpuMeasurement, NumbersThatNoMachineHasAreRefused) {
  const auto message_of = [](const Json& sample) {
    try {
      read_measurement(Json{{"schema", "flopcast.measurement/1"}, {"device", "d"}, {"samples", {sample}}}.dump(),
                       "m.json");
    } catch (const ConfigError& error) {
      return error.diagnostic().field;
    }
    return std::string();
  };
  for (const double wrong : {1e308, 1e19, 1e-300, 0.0, -1.0}) {
    EXPECT_EQ(message_of({{"kind", "norm"}, {"bytes", wrong}, {"seconds", {1e-3}}}), "samples.0.bytes") << wrong;
    EXPECT_EQ(message_of({{"kind", "norm"}, {"bytes", 1e6}, {"seconds", {1e-3, wrong}}}), "samples.0.seconds") << wrong;
  }
}

TEST(GpuMeasurement, AGpuTellsWhichDeviceItIs) {
  for (const auto& [gpu, device] :
       std::vector<std::pair<std::string, std::string>>{{"NVIDIA H200", "h200"},
                                                        {"NVIDIA H100 80GB HBM3", "h100"},
                                                        {"NVIDIA H100 PCIe", "h100-pcie"},
                                                        {"NVIDIA GH200 480GB", "gh200"},
                                                        {"NVIDIA A100-SXM4-80GB", "a100-80g"},
                                                        {"NVIDIA A100 80GB PCIe", "a100-80g-pcie"},
                                                        {"NVIDIA A100-SXM4-40GB", "a100-40g"},
                                                        {"NVIDIA A10", "a10"},
                                                        {"Tesla V100-SXM2-32GB", "v100-32g"},
                                                        {"NVIDIA GB200", "gb200"},
                                                        {"NVIDIA H20", "h20"},
                                                        {"NVIDIA L40S", "l40s"}}) {
    EXPECT_EQ(catalogued_device(gpu).value_or("none"), device) << gpu;
  }
  for (const char* unknown : {"NVIDIA B100", "Tesla V100", "NVIDIA T400", "NVIDIA H100 NVL", "NVIDIA H200 NVL",
                              "NVIDIA H200 MIG 1g.18gb", "NVIDIA A100-SXM4-80GB MIG 3g.40gb", ""}) {
    EXPECT_FALSE(catalogued_device(unknown)) << unknown;
  }
  EXPECT_TRUE(is_part_of_gpu("NVIDIA H200 MIG 1g.18gb"));
  EXPECT_FALSE(is_part_of_gpu("NVIDIA H200"));
}

RC_GTEST_PROP(GpuMeasurement, DamagedFilesAreRefusedOrRead, ()) {
  static const std::string whole = write_measurement(measured_gpu());
  try {
    const DeviceProfile profile = build_profile(read_measurement(damaged(whole), "m.json"), request_for("h200"));
    // Written profiles can be read back.
    RC_ASSERT(write_profile(read_device_profile(Json::parse(write_profile(profile)), "", {})) ==
              write_profile(profile));
  } catch (const ConfigError&) {
    RC_SUCCEED("refused");
  }
}

}  // namespace
}  // namespace flopcast
