#include "calibrate/device/describe_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "calibrate/device/fit/message_fit.hpp"
#include "calibrate/device/fit/operator_fit.hpp"
#include "model/cost/compute.hpp"
#include "model/workload/precision.hpp"

namespace flopcast {

namespace {

using KernelName = std::tuple<SampleKind, std::string, std::string>;  // kind, operator, dtype

std::string words_of(const KernelName& name) {
  const auto& [kind, op, dtype] = name;
  std::string words(name_of(kind));
  if (!op.empty()) words += " (" + op + ")";
  return dtype.empty() ? words : words + " " + dtype;
}

class Kernels {
 public:
  Kernels(const Measurement& measurement, const Device& catalogue, BytesPerSecond bandwidth, DeviceProfile& profile,
          nlohmann::json& device, std::vector<std::string>& notes)
      : catalogue_(catalogue), bandwidth_(bandwidth), profile_(profile), device_(device), notes_(notes) {
    std::map<std::string, std::pair<const Sample*, std::vector<double>>> pooled;
    for (const Sample& sample : measurement.samples) {
      if (sample.key.beside) continue;
      auto& [first, seconds] = pooled[sample.key.text_without_pass()];
      if (first == nullptr) first = &sample;
      seconds.insert(seconds.end(), sample.seconds.begin(), sample.seconds.end());
    }
    for (const auto& [label, times] : pooled) add(label, times.first->key, median_of(times.second));
  }

  void describe() {
    describe_memory();
    for (const auto& [name, points] : attention_) describe_attention(name, points);
    if (!launches_.empty()) device_["kernel_launch"] = fmt::format("{:.6g}us", median_of(launches_) * 1e6);
    if (!host_copies_.empty()) describe_host_copies();
  }

 private:
  void add(const std::string& label, const SampleKey& key, double seconds) {
    const KernelName name = {key.kind, key.op, key.dtype};
    if (is_memory_bound(key.kind)) memory_[name].push_back({label, *key.bytes, seconds});
    if (is_attention(key.kind)) {
      const double share = key.kind == SampleKind::kAttentionBackward ? kAttentionBackwardWork : 1.0;
      attention_[name].push_back({label, key.attention->flops() * share, seconds});
    }
    if (key.kind == SampleKind::kLaunch) launches_.push_back(seconds);
    if (key.kind == SampleKind::kHostCopy) host_copies_.push_back({*key.bytes, seconds});
  }

  OperatorFit fit(const std::string& what, const char* unit, const std::vector<OperatorPoint>& points) {
    OperatorFit fitted = fit_operator(what, points);
    ProfileFit kept{what, unit, fitted.errors.median, fitted.errors.p95, fitted.errors.largest, fitted.left_out.median,
                    {}};
    for (const FittedPoint& point : fitted.points) {
      kept.points.push_back({point.label, point.x, point.measured_s, point.fitted_s});
    }
    profile_.fits.push_back(std::move(kept));
    return fitted;
  }

  // Of which no figure follows.
  void fit_if_possible(const std::string& what, const char* unit, const std::vector<OperatorPoint>& points) {
    try {
      fit(what, unit, points);
    } catch (const ConfigError& refusal) {
      notes_.push_back(not_fitted(refusal));
    }
  }

  // One device has one share for all: that of norms and element-wise kernels, which are most of what memory bounds.
  void describe_memory() {
    std::vector<OperatorPoint> common;
    for (const auto& [name, points] : memory_) {
      fit_if_possible(words_of(name), "bytes", points);
      const SampleKind kind = std::get<SampleKind>(name);
      if (kind != SampleKind::kNorm && kind != SampleKind::kElementwise) continue;
      common.insert(common.end(), points.begin(), points.end());
    }
    if (common.empty()) return;
    const char* what = "norms and element-wise kernels";
    const OperatorFit fitted = fit_operator(what, common);
    const double share = fitted.rate / bandwidth_.value();
    // Tensors that stay in a cache beat the memory a little.
    constexpr double kMostShare = 1.2;
    if (bandwidth_.value() <= 0.0 || share > kMostShare) {
      refuse_fit(
          what,
          fmt::format("move {:.0f} GB/s, and the memory gives {:.0f}", fitted.rate / 1e9, bandwidth_.value() / 1e9),
          "name the catalogue's device (--device NAME), and measure tensors larger than its caches");
    }
    device_["memory_efficiency"] = std::min(1.0, share);
  }

  void describe_attention(const KernelName& name, const std::vector<OperatorPoint>& points) {
    const auto& [kind, op, dtype] = name;
    const std::string what = words_of(name);
    // A kernel that is named is one of several: what trains elsewhere is another.
    if (!op.empty()) return fit_if_possible(what, "FLOP", points);
    const OperatorFit fitted = fit(what, "FLOP", points);
    const auto& precisions = precision_names();
    const auto precision = std::find(precisions.begin(), precisions.end(), dtype);
    const double peak = precision == precisions.end()
                            ? 0.0
                            : catalogue_.peak_of(static_cast<Precision>(precision - precisions.begin())).value();
    if (peak <= 0.0 || fitted.rate > peak) {
      refuse_fit(what,
                 fmt::format("ran at {:.0f} TFLOP/s, and the device's peak is {:.0f}", fitted.rate / 1e12, peak / 1e12),
                 "check dtype, causal and --device NAME");
    }
    const bool forward = kind == SampleKind::kAttentionForward;
    device_[forward ? "flash_forward_efficiency" : "flash_backward_efficiency"] = fitted.rate / peak;
  }

  void describe_host_copies() {
    std::sort(host_copies_.begin(), host_copies_.end(),
              [](const MessagePoint& a, const MessagePoint& b) { return a.bytes < b.bytes; });
    const MessageFit fitted = fit_message_curve("host_copy", host_copies_);
    const double slope = fitted.curve.segments().back().beta;
    if (slope > 0.0) profile_.cluster["host_bandwidth"] = fmt::format("{:.6g}GB/s", 1e-9 / slope);
  }

  const Device& catalogue_;
  BytesPerSecond bandwidth_;
  DeviceProfile& profile_;
  nlohmann::json& device_;
  std::vector<std::string>& notes_;
  std::map<KernelName, std::vector<OperatorPoint>> memory_;
  std::map<KernelName, std::vector<OperatorPoint>> attention_;
  std::vector<double> launches_;
  std::vector<MessagePoint> host_copies_;
};

}  // namespace

void describe_kernels(const Measurement& measurement, const Device& catalogue, BytesPerSecond bandwidth,
                      DeviceProfile& profile, nlohmann::json& device, std::vector<std::string>& notes) {
  Kernels(measurement, catalogue, bandwidth, profile, device, notes).describe();
}

}  // namespace flopcast
