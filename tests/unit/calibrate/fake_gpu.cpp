#include "tests/unit/calibrate/fake_gpu.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/cost/compute.hpp"
#include "model/job/read_job.hpp"

namespace flopcast {

namespace {

Device catalogued() {
  std::vector<std::string> ignored;
  return read_device("h200", "device", ignored, {});
}

Precision precision_of(const std::string& dtype) {
  const auto& names = names_of<Precision>();
  return static_cast<Precision>(std::find(names.begin(), names.end(), dtype) - names.begin());
}

}  // namespace

class FakeGpu::Work : public QueuedWork {
 public:
  Work(FakeGpu& gpu, SampleKey key) : gpu_(gpu), key_(std::move(key)) {}

  QueuedTime run(int times, int neighbours) override {
    constexpr double kHold = 1e-4;
    ++gpu_.batches_;
    const bool hiccup = gpu_.hiccup_every > 0 && gpu_.batches_ % gpu_.hiccup_every == 0;
    const double factor = gpu_.slowdown * (hiccup ? 10.0 : 1.0);
    QueuedTime time;
    time.device_s = times * gpu_.seconds_of(key_) * factor;
    time.host_s = times * kDispatch * factor;
    // A GEMM overlaps with a copy of 256 MiB; anything else overlaps with a GEMM of 0.2 ms.
    constexpr double kCopied = 268435456.0;
    constexpr double kProduct = 2e-4;
    const double neighbour =
        key_.kind == SampleKind::kGemm ? kCopied / (kChannelRate * std::max(1, key_.channels)) : kProduct;
    time.covered = !key_.beside || (!gpu_.uncovered && neighbours * neighbour > time.device_s);
    gpu_.now_ += kHold + time.device_s;
    return time;
  }

 private:
  FakeGpu& gpu_;
  SampleKey key_;
};

FakeGpu::FakeGpu(int gpus) {
  facts_.name = "NVIDIA H200";
  facts_.multiprocessors = catalogued().multiprocessors;
  facts_.compute_capability = 90;
  facts_.memory_bytes = 150e9;
  facts_.workspace_bytes = 8e9;
  facts_.gpus = gpus;
  facts_.libraries = {{"cuda_driver", "13.0"}, {"cublaslt", "13.0.2"}};
  facts_.clocks_mhz = {{"memory", 3201.0}, {"multiprocessors", 1980.0}};
}

PreparedWork FakeGpu::prepare(const SampleKey& key) {
  ++prepared;
  now_ += costs_to_prepare;
  if (refuses.count(key.text_without_pass()) > 0) return {nullptr, "no algorithm"};
  return {std::make_unique<Work>(*this, key), {}};
}

Device FakeGpu::truth() const {
  Device device = catalogued();
  device.gemm_efficiency = kGemmEfficiency;
  device.gemm_efficiency_by_precision[static_cast<std::size_t>(Precision::kFp8)] = kFp8Efficiency;
  device.gemm_efficiency_by_precision[static_cast<std::size_t>(Precision::kTf32)] = kTf32Efficiency;
  device.kernel_launch = Seconds(kLaunch);
  device.memory_bandwidth = BytesPerSecond(kMemory);
  device.memory_efficiency = kMemoryEfficiency;
  return device;
}

double FakeGpu::seconds_of(const SampleKey& key) const {
  const double bytes = key.bytes.value_or(0.0);
  switch (key.kind) {
    case SampleKind::kGemm: {
      const Device device = truth();
      const Precision precision = precision_of(key.dtype);
      const double alone = ComputeModel(device, precision)
                               .gemm({key.shape->m, key.shape->n, key.shape->k, 1}, element_size(precision).value(),
                                     precision == Precision::kFp8)
                               .value();
      return alone * (key.beside ? 1.0 + kComputeSlowdown * key.channels : 1.0);
    }
    case SampleKind::kMemoryCopy:
      return kLaunch + bytes / kMemory;
    case SampleKind::kLaunch:
    case SampleKind::kHostDispatch:
      return kLaunch;
    case SampleKind::kHostCopy:
      return 1e-5 + bytes / kHostRate;
    case SampleKind::kChannelCopy:
      return bytes / (kChannelRate * key.channels) * (key.beside ? 1.0 + kCopySlowdown : 1.0);
    case SampleKind::kAttentionForward:
    case SampleKind::kAttentionBackward: {
      constexpr double kRate = 12e12;
      const double work = key.kind == SampleKind::kAttentionBackward ? kAttentionBackwardWork : 1.0;
      return kLaunch + work * key.attention->flops() / kRate;
    }
    default:
      break;
  }
  if (is_memory_bound(key.kind)) return kLaunch + bytes / (kMemory * kMemoryEfficiency);
  const double alone = kAlpha + bytes / kLink;
  return alone * (key.beside ? 1.0 + kCopySlowdown : 1.0);
}

}  // namespace flopcast
