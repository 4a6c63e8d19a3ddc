// The whole calibration of a GPU whose clock only advances when work is queued: which samples are measured, in which
// order, and that the fits recover the GPU's parameters.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/text/error.hpp"
#include "calibrate/device/build_profile.hpp"
#include "model/job/read_job.hpp"
#include "realrun/device/device.hpp"
#include "realrun/measure/measure_gpu.hpp"
#include "sim/forecast/forecast.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/unit/calibrate/fake_gpu.hpp"

namespace flopcast {
namespace {

constexpr double kPlenty = 1e9;
const ShowProgress kSilent = [](std::size_t, std::size_t, const SampleKey&) {};

Measurement about(const FakeGpu& gpu) {
  Measurement host;
  host.host = "fake";
  host.date = "2026-01-02";
  return describe_gpu(gpu.facts(), host);
}

GpuSet quick(double seconds = kPlenty) {
  GpuSet set;
  set.quick = true;
  set.seconds = seconds;
  return set;
}

Measurement measured(FakeGpu& gpu, const GpuSet& set) {
  MeasurementFile file("", about(gpu));
  const GpuOutcome outcome = measure_gpu(set, gpu, gpu.clock(), file, kSilent);
  EXPECT_TRUE(outcome.no_time.empty());
  EXPECT_TRUE(outcome.refused.empty());
  return file.measurement();
}

ProfileRequest gpu_request() {
  ProfileRequest request;
  request.device = "h200";
  request.source = "a test";
  request.confidence = "measured";
  return request;
}

TEST(FakeGpu, TheSetNamesEverySampleTwiceAndTheImportantFirst) {
  for (const int multiprocessors : {40, 64, 108, 114, 132, 148}) {
    for (const bool few : {true, false}) {
      FakeGpu gpu(8);
      gpu.facts_.multiprocessors = multiprocessors;
      GpuSet set;
      set.quick = few;
      std::set<std::string> names;
      std::set<std::string> without_pass;
      for (const SampleKey& key : gpu_samples(set, gpu.facts())) {
        EXPECT_TRUE(names.insert(key.text()).second) << key.text();
        without_pass.insert(key.text_without_pass());
        if (key.shape) {
          EXPECT_EQ(key.shape->m % 8 + key.shape->n % 8 + key.shape->k % 8, 0) << key.text();
        }
        if (key.dtype == "fp8") {
          EXPECT_EQ(key.shape->m % 16 + key.shape->n % 16 + key.shape->k % 16, 0) << key.text();
        }
      }
      EXPECT_EQ(names.size(), 2 * without_pass.size());
    }
  }
  const FakeGpu gpu;
  const std::vector<SampleKey> keys = gpu_samples({}, gpu.facts());
  const auto first = [&keys](const auto& is_it) {
    return std::find_if(keys.begin(), keys.end(), is_it) - keys.begin();
  };
  const auto of = [](SampleKind kind) { return [kind](const SampleKey& key) { return key.kind == kind; }; };
  EXPECT_LT(first(of(SampleKind::kMemoryCopy)), first(of(SampleKind::kNorm)));
  EXPECT_LT(first(of(SampleKind::kNorm)), first([](const SampleKey& key) { return key.beside.has_value(); }));
  EXPECT_LT(first([](const SampleKey& key) { return key.beside.has_value(); }),
            first([](const SampleKey& key) { return key.dtype == "fp8"; }));
  // Both passes of a group come before the next group.
  EXPECT_LT(first([](const SampleKey& key) { return key.pass == 2 && key.kind == SampleKind::kMemoryCopy; }),
            first(of(SampleKind::kNorm)));
}

TEST(FakeGpu, TheSetFitsTheGpu) {
  const auto any = [](const FakeGpu& gpu, const auto& is_it) {
    const std::vector<SampleKey> keys = gpu_samples({}, gpu.facts());
    return std::any_of(keys.begin(), keys.end(), is_it);
  };
  const auto fp8 = [](const SampleKey& key) { return key.dtype == "fp8"; };
  const auto message = [](const SampleKey& key) { return is_message(key.kind); };
  const auto of_eight = [](const SampleKey& key) { return key.ranks == 8; };
  const auto huge = [](const SampleKey& key) { return key.shape && key.shape->m == 16384 && key.shape->k == 16384; };
  FakeGpu gpu;
  EXPECT_TRUE(any(gpu, fp8));
  EXPECT_TRUE(any(gpu, huge));
  EXPECT_FALSE(any(gpu, message));
  gpu.facts_.compute_capability = 80;
  gpu.facts_.workspace_bytes = 8e8;
  EXPECT_FALSE(any(gpu, fp8));
  EXPECT_FALSE(any(gpu, huge));
  EXPECT_TRUE(any(FakeGpu(8), message));
  EXPECT_TRUE(any(FakeGpu(8), of_eight));
  EXPECT_FALSE(any(FakeGpu(2), of_eight));
}

TEST(FakeGpu, CalibrationFindsWhatItIsMadeOf) {
  for (const bool few : {true, false}) {
    FakeGpu gpu(8);
    GpuSet set;
    set.quick = few;
    set.seconds = kPlenty;
    const Measurement measurement = measured(gpu, set);
    require_agreement(measurement, "");
    const DeviceProfile profile = build_profile(measurement, gpu_request());
    for (const ProfileFit& fit : profile.fits) EXPECT_LT(fit.median_error, 0.02) << fit.what;
    const nlohmann::json& device = profile.cluster.at("device");
    EXPECT_NEAR(device.at("kernel_efficiency").get<double>(), FakeGpu::kGemmEfficiency, 0.02);
    const nlohmann::json& shares = device.at("kernel_efficiency_by_precision");
    EXPECT_NEAR(shares.at("bf16").get<double>(), FakeGpu::kGemmEfficiency, 0.02);
    EXPECT_NEAR(shares.at("fp16").get<double>(), FakeGpu::kGemmEfficiency, 0.02);
    EXPECT_NEAR(shares.at("fp8").get<double>(), FakeGpu::kFp8Efficiency, 0.02);
    EXPECT_NEAR(shares.at("tf32").get<double>(), FakeGpu::kTf32Efficiency, 0.02);
    EXPECT_NEAR(device.at("memory_efficiency").get<double>(), FakeGpu::kMemoryEfficiency, 0.01);
    EXPECT_EQ(device.at("memory_bandwidth"), "4200GB/s");
    EXPECT_EQ(device.at("kernel_launch"), "2.2us");
    EXPECT_NEAR(std::stod(profile.cluster.at("host_bandwidth").get<std::string>()), FakeGpu::kHostRate / 1e9, 0.5);
    // Users do not train with flopcast's attention kernel: its fit is kept, but no figure follows.
    EXPECT_FALSE(device.contains("flash_forward_efficiency"));
    EXPECT_EQ(profile.curves.size(), 9u) << "p2p, and four collectives for each of two groups";
    ASSERT_EQ(profile.overlaps.size(), 4u);
    EXPECT_EQ(profile.overlaps[0].what, "all_reduce, 8 ranks fp32 overlapped with gemm");
    EXPECT_NEAR(profile.overlaps[0].factor(8), 1.0 + FakeGpu::kCopySlowdown, 1e-3);
    EXPECT_EQ(profile.overlaps[2].what, "gemm bf16 overlapped with all_reduce");
    const OverlapLine& copy = profile.overlaps[1];
    EXPECT_EQ(copy.what, "channel_copy overlapped with gemm");
    EXPECT_NEAR(copy.factor(2), 1.0 + FakeGpu::kCopySlowdown, 1e-3);
    EXPECT_NEAR(copy.factor(24), 1.0 + FakeGpu::kCopySlowdown, 1e-3);
    const OverlapLine& product = profile.overlaps[3];
    EXPECT_EQ(product.what, "gemm bf16 overlapped with channel_copy");
    EXPECT_NEAR(product.at_none, 1.0, 1e-3);
    EXPECT_NEAR(product.per_channel, FakeGpu::kComputeSlowdown, 1e-4);
    EXPECT_EQ(product.most_channels, few ? 24 : 32);
    const nlohmann::json written = nlohmann::json::parse(write_profile(profile));
    const std::filesystem::path schemas = project_folder() / "docs" / "schema";
    EXPECT_EQ(schema_violation(nlohmann::json::parse(read_text(schemas / "profile-1.schema.json")), written), "");
    const DeviceProfile read = read_device_profile(written, "", {});
    EXPECT_EQ(write_profile(read), write_profile(profile));
  }
}

Job step_on(const nlohmann::json& profile, const std::string& precision) {
  nlohmann::json root = {
      {"model",
       {{"layers", 8}, {"hidden", 2048}, {"heads", 16}, {"ffn", 8192}, {"vocab", 32000}, {"sequence_length", 2048}}},
      {"cluster", {{"name", "dgx-h200"}, {"devices_per_node", 8}, {"nodes", 1}}},
      {"layout", {{"global_batch_size", 32}, {"tp", 2}}},
      {"training", {{"precision", precision}}}};
  if (!profile.is_null()) root["training"]["profile"] = profile;
  return read_job(root, {});
}

double step_time(const Job& job) {
  return forecast(job, [](const std::string&) -> std::string { throw std::runtime_error("no files"); })
      .result.iteration.time_s;
}

// From the clock of a GPU that runs one kernel at a time to a training step of eight GPUs.
TEST(FakeGpu, ASmallTrainingStepIsForecastFromTheProfile) {
  for (const bool few : {true, false}) {
    FakeGpu gpu(8);
    gpu.hiccup_every = 9;
    GpuSet set;
    set.quick = few;
    set.seconds = kPlenty;
    const nlohmann::json profile =
        nlohmann::json::parse(write_profile(build_profile(measured(gpu, set), gpu_request())));
    for (const char* precision : {"bf16", "tf32", "fp8"}) {
      Job truth = step_on(nullptr, precision);
      truth.cluster.device = gpu.truth();
      truth.cluster.host_bandwidth = BytesPerSecond(FakeGpu::kHostRate);
      for (const int ranks : {2, 8}) {
        for (const auto& kind : kCurveKinds) {
          const MessageSegment all{Bytes(0), Seconds(FakeGpu::kAlpha), 1.0 / FakeGpu::kLink};
          truth.cluster.curves.push_back({kind, ranks, 1, MessageCurve({all})});
        }
      }
      const double expected = step_time(truth);
      EXPECT_NEAR(step_time(step_on(profile, precision)), expected, 0.02 * expected) << precision << few;
      const double by_catalogue = step_time(step_on(nullptr, precision));
      EXPECT_GT(std::abs(by_catalogue / expected - 1.0), 0.04) << precision << ": the catalogue would do as well";
    }
  }
}

TEST(FakeGpu, HiccupsDoNotMoveTheMedians) {
  FakeGpu gpu;
  gpu.hiccup_every = 7;
  const DeviceProfile profile = build_profile(measured(gpu, quick()), gpu_request());
  EXPECT_EQ(profile.cluster.at("device").at("memory_bandwidth"), "4200GB/s");
}

TEST(FakeGpu, PassesThatDisagreeAreRefused) {
  FakeGpu gpu;
  MeasurementFile file("", about(gpu));
  measure_gpu(quick(), gpu, gpu.clock(), file,
              [&](std::size_t, std::size_t, const SampleKey& next) { gpu.slowdown = next.pass == 2 ? 1.25 : 1.0; });
  EXPECT_NEAR(compare_passes(file.measurement()).median, 0.25, 1e-6);
  EXPECT_THROW(require_agreement(file.measurement(), ""), EnvironmentError);
}

TEST(FakeGpu, TheBudgetIsKeptAndWhatIsLeftOutIsTheLeastImportant) {
  FakeGpu whole;
  const std::size_t all = measured(whole, quick()).samples.size();
  const double needed = whole.now();
  for (const double share : {0.02, 0.3, 0.6, 0.9}) {
    FakeGpu gpu;
    MeasurementFile file("", about(gpu));
    const GpuSet set = quick(share * needed);
    const GpuOutcome outcome = measure_gpu(set, gpu, gpu.clock(), file, kSilent);
    constexpr double kLongestSample = 2.0;
    EXPECT_LT(gpu.now(), set.seconds + kLongestSample);
    ASSERT_FALSE(outcome.no_time.empty());
    EXPECT_EQ(outcome.measured, file.measurement().samples.size());
    const std::vector<SampleKey> keys = gpu_samples(set, gpu.facts());
    int left_out = 0;
    for (const std::string& phrase : outcome.no_time) left_out += std::stoi(phrase);
    EXPECT_EQ(file.measurement().samples.size() + static_cast<std::size_t>(left_out), all);
    for (std::size_t index = 0; index < keys.size(); ++index) {
      EXPECT_EQ(file.has(keys[index]), index < file.measurement().samples.size()) << keys[index].text();
    }
  }
}

// Wherever the calibration is stopped, the file finally contains the whole set and no sample is measured twice. However
// short the time is, whatever was measured is fitted and the rest is listed.
TEST(FakeGpu, AProfileIsMadeOfWhatTheTimeSufficedFor) {
  FakeGpu whole(8);
  const std::size_t all = measured(whole, quick()).samples.size();
  for (std::size_t count = 3; count < all; count += 11) {
    FakeGpu gpu(8);
    MeasurementFile file("", about(gpu));
    struct Enough {};
    try {
      measure_gpu(quick(), gpu, gpu.clock(), file, [count](std::size_t done, std::size_t, const SampleKey&) {
        if (done == count) throw Enough{};
      });
    } catch (const Enough&) {
      EXPECT_EQ(file.measurement().samples.size(), count);
    }
    Measurement measurement = file.measurement();
    require_agreement(measurement, "");
    const std::vector<std::string> sentences = leave_out_small_groups(measurement);
    constexpr std::size_t kFewest = 15;  // launches, the first pass of copies, six GEMMs
    if (count < kFewest) {
      EXPECT_FALSE(sentences.empty()) << count;
      continue;
    }
    const DeviceProfile profile = build_profile(measurement, gpu_request());
    EXPECT_NEAR(profile.cluster.at("device").at("kernel_efficiency").get<double>(), FakeGpu::kGemmEfficiency, 0.02)
        << count;
  }
}

TEST(FakeGpu, AStoppedCalibrationGoesOnWhereItWas) {
  struct Stopped {};
  const TemporaryFolder folder;
  const std::size_t all = gpu_samples(quick(), FakeGpu().facts()).size();
  for (const std::size_t stop : {std::size_t{0}, std::size_t{1}, all / 3, all - 1}) {
    const std::string path = (folder.path() / ("m" + std::to_string(stop) + ".json")).string();
    FakeGpu gpu;
    try {
      MeasurementFile file(path, about(gpu));
      measure_gpu(quick(), gpu, gpu.clock(), file, [stop](std::size_t done, std::size_t, const SampleKey&) {
        if (done == stop) throw Stopped{};
      });
      FAIL() << "was not stopped";
    } catch (const Stopped&) {
    }
    MeasurementFile file(path, about(gpu));
    EXPECT_EQ(file.measurement().samples.size(), stop);
    EXPECT_EQ(measure_gpu(quick(), gpu, gpu.clock(), file, kSilent).measured, all - stop);
    EXPECT_EQ(read_measurement(read_text(path), path).samples.size(), all);
  }
}

TEST(FakeGpu, OtherLibrariesDoNotGoOnWithAFile) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "m.json").string();
  FakeGpu gpu;
  { const MeasurementFile begun(path, about(gpu)); }
  gpu.facts_.libraries["nccl"] = "2.28.3";
  EXPECT_EQ(MeasurementFile(path, about(gpu)).measurement().libraries.at("nccl"), "2.28.3")
      << "it was not in the file before";
  gpu.facts_.libraries["cublaslt"] = "13.1.0";
  try {
    const MeasurementFile mixed(path, about(gpu));
    ADD_FAILURE() << "continued with the file";
  } catch (const ConfigError& error) {
    EXPECT_NE(error.diagnostic().problem.find("was measured with cublaslt 13.0.2, but this machine has 13.1.0"),
              std::string::npos)
        << error.what();
  }
}

TEST(FakeGpu, AFinishedCalibrationBeginsAnewAlsoWhereSamplesAreRefused) {
  const std::string refused = "gemm 4096x4096x4096 fp8";
  FakeGpu gpu;
  gpu.refuses = {refused};
  MeasurementFile file("", about(gpu));
  const std::size_t all = gpu_samples(quick(), gpu.facts()).size() - 2;
  for (int round = 0; round < 3; ++round) {
    const GpuOutcome outcome = measure_gpu(quick(), gpu, gpu.clock(), file, kSilent);
    EXPECT_EQ(outcome.measured, all) << round;
    ASSERT_EQ(outcome.refused.size(), 1u) << "reported once, not for each pass";
    EXPECT_EQ(outcome.refused.front(), "1 of gemm fp8: no algorithm");
    EXPECT_EQ(file.measurement().samples.size(), all);
  }
}

TEST(FakeGpu, WhatRunsBesideOutlastsTheBatchOrIsRefused) {
  class Unlucky : public QueuedWork {
   public:
    QueuedTime run(int, int neighbours) override {
      most = std::max(most, neighbours);
      QueuedTime time{1e-3, 1e-4};
      time.covered = false;
      return time;
    }
    int most = 0;
  };
  SampleKey key;
  key.kind = SampleKind::kGemm;
  key.shape = SampleShape{128, 128, 128};
  key.beside = SampleKind::kChannelCopy;
  key.channels = 2;
  Unlucky work;
  const std::function<double()> still = [] { return 0.0; };
  EXPECT_THROW(measure_work(key, true, still, work), EnvironmentError);
  EXPECT_GT(work.most, 1000);
  // The remaining samples are measured anyway.
  FakeGpu gpu;
  gpu.uncovered = true;
  MeasurementFile file("", about(gpu));
  const GpuOutcome outcome = measure_gpu(quick(), gpu, gpu.clock(), file, kSilent);
  ASSERT_EQ(outcome.refused.size(), 2u);
  EXPECT_EQ(outcome.refused[0].rfind("3 of channel_copy overlapped with gemm: the concurrent work", 0), 0u)
      << outcome.refused[0];
  EXPECT_EQ(outcome.refused[1].rfind("3 of gemm bf16 overlapped with channel_copy: ", 0), 0u) << outcome.refused[1];
  EXPECT_EQ(outcome.measured, gpu_samples(quick(), gpu.facts()).size() - 12);
}

TEST(FakeGpu, TimesOfTheHostAreNoTimesOfTheGpu) {
  // The host is fast enough for a certain number of repetitions; a longer batch is as slow as the host.
  class Hurried : public QueuedWork {
   public:
    explicit Hurried(int most) : most_(most) {}
    QueuedTime run(int times, int) override {
      const bool ahead = times <= most_;
      return {times * (ahead ? 2e-6 : 9e-6), times * 9e-6, ahead};
    }

   private:
    int most_;
  };
  SampleKey key;
  key.kind = SampleKind::kElementwise;
  key.op = "add";
  key.bytes = 1e6;
  const std::function<double()> still = [] { return 0.0; };
  for (const int most : {1, 3, 25, 1000}) {
    Hurried work(most);
    for (const double seconds : measure_work(key, true, still, work).seconds) EXPECT_DOUBLE_EQ(seconds, 2e-6) << most;
  }
  Hurried never(0);
  EXPECT_THROW(measure_work(key, true, still, never), EnvironmentError);
  key = {};
  key.kind = SampleKind::kHostDispatch;
  for (const double seconds : measure_work(key, true, still, never).seconds) {
    EXPECT_DOUBLE_EQ(seconds, 9e-6) << "the sample is the host's time";
  }
}

TEST(Watchdog, BitesOnceWhenItLivesTooLong) {
  using std::chrono::milliseconds;
  std::atomic<int> bites{0};
  for (int round = 0; round < 100; ++round) const realrun::Watchdog dog(milliseconds(60'000), [&] { ++bites; });
  EXPECT_EQ(bites, 0);
  {
    const realrun::Watchdog dog(milliseconds(5), [&] { ++bites; });
    while (bites == 0) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(bites, 1);
}

TEST(Watchdog, IsKeptQuietByBeats) {
  using std::chrono::milliseconds;
  std::atomic<std::uint64_t> beats{0};
  std::atomic<int> bites{0};
  const realrun::Watchdog dog(
      milliseconds(1000), [&] { ++bites; }, &beats);
  for (int beat = 0; beat < 60; ++beat, ++beats) std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(bites, 0);
}

TEST(FakeGpu, TheHeadOfTheFileTellsLibrariesAndClocks) {
  const FakeGpu gpu;
  const Measurement read = read_measurement(write_measurement(about(gpu)), "m.json");
  EXPECT_EQ(read.device, "NVIDIA H200");
  EXPECT_EQ(read.libraries.at("cublaslt"), "13.0.2");
  EXPECT_EQ(read.clocks_mhz, gpu.facts().clocks_mhz);
  EXPECT_EQ(read.multiprocessors, 132);
}

}  // namespace
}  // namespace flopcast
