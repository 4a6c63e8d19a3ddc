// The whole calibration on a host whose clock only advances when work is done: the fits must recover the host's
// parameters.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "calibrate/device/build_profile.hpp"
#include "model/cost/compute.hpp"
#include "realrun/measure/measure_cpu.hpp"
#include "tests/support/folders.hpp"

namespace flopcast {
namespace {

constexpr double kPeak = 80e9;
constexpr double kMemory = 12e9;
constexpr double kAdamShare = 0.3;
constexpr double kAlpha = 2e-6;
constexpr double kLink = 6e9;

Device fake_core() {
  Device device;
  device.multiprocessors = 1;
  device.gemm_kernel = {32, 16.0, 2.0, false};
  device.gemm_efficiency = 1.0;
  device.peak.fill(FlopsPerSecond(kPeak));
  device.memory_bandwidth = BytesPerSecond(kMemory);
  device.kernel_launch = Seconds(5e-7);
  return device;
}

class FakeHost {
 public:
  double slowdown = 1.0;
  double cache = 0.0;         ///< sizes that are copied ten times as fast
  double hiccup_every = 0.0;  ///< one in this many pieces of work takes ten times as long

  MeasuredHost host() {
    return {{[this] { return now_; }, [this] { return now_; }},
            [this](const SampleKey& key) { return work(key); },
            [this](int ranks, std::size_t, const std::function<void(MeasuredRank&)>& body) {
              FakeRank rank(*this, ranks);
              body(rank);
            }};
  }

 private:
  class FakeRank : public MeasuredRank {
   public:
    FakeRank(FakeHost& host, int ranks) : host_(host), ranks_(ranks) {}
    int rank() const override { return 0; }
    int ranks() const override { return ranks_; }
    void send(int, std::size_t bytes) override { host_.spend(kAlpha + static_cast<double>(bytes) / kLink); }
    void receive(int, std::size_t bytes) override { host_.spend(kAlpha + static_cast<double>(bytes) / kLink); }
    void collective(SampleKind kind, std::size_t bytes) override {
      const double rounds = kind == sample_of(CollectiveKind::kAllReduce) ? 2.0 : 1.0;
      host_.spend(rounds * (kAlpha + 0.5 * static_cast<double>(bytes) / kLink));
    }
    void barrier() override { host_.spend(3e-6); }
    double largest(double value) override { return value; }

   private:
    FakeHost& host_;
    int ranks_;
  };

  Work work(const SampleKey& key) {
    if (key.kind == SampleKind::kMemoryCopy) {
      const double cached = std::min(*key.bytes, cache);
      return [this, cached, bytes = *key.bytes] { spend(cached / (10 * kMemory) + (bytes - cached) / kMemory); };
    }
    if (key.kind == SampleKind::kOptimizerStep) {
      return [this, bytes = *key.bytes] { spend(1e-6 + bytes / (kAdamShare * kMemory)); };
    }
    const Device device = fake_core();
    const ComputeModel model(device, Precision::kFp32);
    const double time = model.gemm({key.shape->m, key.shape->n, key.shape->k, 1}, 4.0).value();
    return [this, time] { spend(time); };
  }

  void spend(double seconds) {
    ++pieces_;
    const bool hiccup = hiccup_every > 0.0 && pieces_ % static_cast<int>(hiccup_every) == 0;
    now_ += seconds * slowdown * (hiccup ? 10.0 : 1.0);
  }

  double now_ = 0.0;
  int pieces_ = 0;
};

Measurement about_fake() {
  Measurement about;
  about.device = "a fake core";
  about.host = "fake";
  about.date = "2026-01-02";
  about.memory_bytes = 16 * kGibibyte;
  return about;
}

ProfileRequest host_request() {
  ProfileRequest request;
  request.source = "a test";
  request.confidence = "measured";
  request.host = true;
  return request;
}

const ShowProgress kUnseen = [](std::size_t, std::size_t, const SampleKey&) {};

DeviceProfile calibrated(FakeHost& fake, const CpuSet& set) {
  MeasurementFile file("", about_fake());
  measure_cpu(set, fake.host(), file, kUnseen);
  require_agreement(file.measurement(), "");
  return build_profile(file.measurement(), host_request());
}

void expect_truth(const DeviceProfile& profile) {
  for (const ProfileFit& fit : profile.fits) EXPECT_LT(fit.median_error, 0.005) << fit.what;
  for (const GroupCurve& group : profile.curves) {
    const double rounds = group.collective == CollectiveKind::kAllReduce ? 2.0 : 1.0;
    const double share = group.collective ? 0.5 : 1.0;
    for (const double bytes : {1500.0, 3e5, 3e6}) {
      const double truth = rounds * (kAlpha + share * bytes / kLink);
      EXPECT_NEAR(group.curve.time(Bytes(bytes)).value(), truth, 0.01 * truth) << group.name() << bytes;
    }
  }
  EXPECT_EQ(profile.cluster.at("device").at("memory_bandwidth"), "12GB/s");
  EXPECT_NEAR(profile.cluster.at("device").at("adam_efficiency").get<double>(), kAdamShare, 1e-3);
}

TEST(FakeHost, TheBandwidthIsThatBeyondTheCaches) {
  for (const bool quick : {true, false}) {
    FakeHost fake;
    fake.cache = 16.0 * 1024 * 1024;
    const DeviceProfile profile = calibrated(fake, {quick, {2}});
    EXPECT_EQ(profile.cluster.at("device").at("memory_bandwidth"), "12GB/s");
    EXPECT_EQ(profile.cluster.at("host_memory_bandwidth"), "12GB/s");
  }
}

TEST(FakeHost, CalibrationFindsWhatItIsMadeOf) {
  for (const bool quick : {true, false}) {
    FakeHost fake;
    CpuSet set;
    set.quick = quick;
    set.ranks = {2, 4};
    const DeviceProfile profile = calibrated(fake, set);
    EXPECT_EQ(profile.curves.size(), 7u) << "p2p and three collectives for each of two groups";
    expect_truth(profile);
  }
}

TEST(FakeHost, HiccupsDoNotMoveTheMedians) {
  FakeHost fake;
  fake.hiccup_every = 7;
  CpuSet set;
  set.quick = true;
  expect_truth(calibrated(fake, set));
}

// The second pass runs on a slower machine: the measurement must not become a profile.
TEST(FakeHost, PassesThatDisagreeAreRefused) {
  for (const double slowdown : {1.05, 1.25}) {
    FakeHost fake;
    CpuSet set;
    set.quick = true;
    MeasurementFile file("", about_fake());
    measure_cpu(set, fake.host(), file, [&](std::size_t, std::size_t, const SampleKey& next) {
      fake.slowdown = next.pass == 2 ? slowdown : 1.0;
    });
    EXPECT_NEAR(compare_passes(file.measurement()).median, slowdown - 1.0, 1e-6);
    if (slowdown > 1.0 + kAgreementTolerance) {
      EXPECT_THROW(require_agreement(file.measurement(), ""), EnvironmentError);
    } else {
      EXPECT_NO_THROW(require_agreement(file.measurement(), ""));
    }
  }
}

TEST(FakeHost, AStoppedCalibrationGoesOnAndAFinishedOneBeginsAnew) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "m.json").string();
  CpuSet set;
  set.quick = true;
  FakeHost fake;
  struct Stopped {};
  const std::size_t all = cpu_samples(set).size();
  constexpr std::size_t kStopAt = 40;
  try {
    MeasurementFile file(path, about_fake());
    measure_cpu(set, fake.host(), file, [](std::size_t done, std::size_t, const SampleKey&) {
      if (done == kStopAt) throw Stopped{};
    });
    FAIL() << "was not stopped";
  } catch (const Stopped&) {
  }
  std::size_t measured = 0;
  const ShowProgress count = [&measured](std::size_t, std::size_t, const SampleKey&) { ++measured; };
  MeasurementFile continued(path, about_fake());
  EXPECT_EQ(continued.measurement().samples.size(), kStopAt);
  measure_cpu(set, fake.host(), continued, count);
  EXPECT_EQ(measured, all - kStopAt);
  EXPECT_EQ(continued.measurement().samples.size(), all);
  measured = 0;
  Measurement later = about_fake();
  later.date = "2026-03-04";
  MeasurementFile again(path, later);
  measure_cpu(set, fake.host(), again, count);
  EXPECT_EQ(measured, all);
  EXPECT_EQ(read_measurement(read_text(path), path).samples.size(), all);
  EXPECT_EQ(read_measurement(read_text(path), path).date, "2026-03-04");
}

}  // namespace
}  // namespace flopcast
