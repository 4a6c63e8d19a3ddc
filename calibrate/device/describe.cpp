#include "calibrate/device/build_profile.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "calibrate/device/fits.hpp"
#include "model/cost/compute.hpp"
#include "model/hardware/device.hpp"

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
    profile_.fits.push_back(fitted.told(what, unit));
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

  // Without a figure of its own Adam has that of other kernels.
  void describe_adam(const std::string& what, const std::vector<OperatorPoint>& points) {
    try {
      const OperatorFit fitted = fit_operator(what, points);
      check_share(what, fitted);
      profile_.fits.push_back(fitted.told(what, "bytes"));
      device_["adam_efficiency"] = std::min(1.0, fitted.rate / bandwidth_.value());
    } catch (const ConfigError& refusal) {
      notes_.push_back(not_fitted(refusal));
    }
  }

  // One device has one share for all others: that of norms and element-wise kernels, which are most of what memory
  // bounds.
  void describe_memory() {
    std::vector<OperatorPoint> common;
    for (const auto& [name, points] : memory_) {
      const SampleKind kind = std::get<SampleKind>(name);
      if (kind == SampleKind::kOptimizerStep && std::get<1>(name) == "adam") {
        describe_adam(words_of(name), points);
        continue;
      }
      fit_if_possible(words_of(name), "bytes", points);
      if (kind != SampleKind::kNorm && kind != SampleKind::kElementwise) continue;
      common.insert(common.end(), points.begin(), points.end());
    }
    if (common.empty()) return;
    const char* what = "norms and element-wise kernels";
    const OperatorFit fitted = fit_operator(what, common);
    check_share(what, fitted);
    device_["memory_efficiency"] = std::min(1.0, fitted.rate / bandwidth_.value());
  }

  void check_share(const std::string& what, const OperatorFit& fitted) const {
    // Tensors that stay in a cache beat the memory a little.
    constexpr double kMostShare = 1.2;
    if (bandwidth_.value() > 0.0 && fitted.rate / bandwidth_.value() <= kMostShare) return;
    refuse_fit(
        what, fmt::format("move {:.0f} GB/s, and the memory gives {:.0f}", fitted.rate / 1e9, bandwidth_.value() / 1e9),
        "name the catalogue's device (--device NAME), and measure tensors larger than its caches");
  }

  void describe_attention(const KernelName& name, const std::vector<OperatorPoint>& points) {
    const auto& [kind, op, dtype] = name;
    const std::string what = words_of(name);
    // A kernel that is named is one of several: what trains elsewhere is another.
    if (!op.empty()) return fit_if_possible(what, "FLOP", points);
    const OperatorFit fitted = fit(what, "FLOP", points);
    const auto precision = parse<Precision>(dtype);
    const double peak = precision ? catalogue_.peak_of(*precision).value() : 0.0;
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

namespace {

/// Every repetition of every pass of one sample.
struct PooledSample {
  SampleKey key;
  std::vector<double> seconds;
};
using PooledSamples = std::map<std::string, PooledSample>;

// The same sample alone; what it ran beside had the channels, unless it has them itself.
SampleKey alone(SampleKey key) {
  const bool has_channels = key.kind == SampleKind::kChannelCopy || is_message(key.kind);
  key.beside.reset();
  if (!has_channels) key.channels = 0;
  return key;
}

std::string words_of(const SampleKey& key) {
  std::string words(name_of(key.kind));
  if (!key.op.empty()) words += fmt::format(" ({})", key.op);
  if (key.ranks > 1) words += fmt::format(", {} ranks", key.ranks);
  if (!key.dtype.empty()) words += " " + key.dtype;
  return words + fmt::format(" beside {}", name_of(*key.beside));
}

void add(const std::string& what, const OverlapFit& fit, int most_channels, DeviceProfile& profile) {
  const OverlapLine line{what, fit.at_none, fit.per_channel, most_channels};
  if (line.factor(0) <= 0.0 || line.factor(most_channels) <= 0.0) {
    refuse_fit(what, "takes no time at all at one end of the line", "measure more numbers of channels");
  }
  profile.fits.push_back(fit.told(what, "channels"));
  profile.overlaps.push_back(line);
}

}  // namespace

void describe_overlaps(const Measurement& measurement, DeviceProfile& profile, std::vector<std::string>& notes) {
  PooledSamples samples;
  for (const Sample& sample : measurement.samples) {
    PooledSample& pooled = samples[sample.key.text_without_pass()];
    pooled.key = sample.key;
    pooled.seconds.insert(pooled.seconds.end(), sample.seconds.begin(), sample.seconds.end());
  }
  std::map<std::string, std::vector<OverlapPoint>> groups;
  for (const auto& [label, beside] : samples) {
    if (!beside.key.beside || beside.key.channels == 0) continue;
    const auto reference = samples.find(alone(beside.key).text_without_pass());
    if (reference == samples.end()) continue;
    groups[words_of(beside.key)].push_back(
        {label, beside.key.channels, median_of(reference->second.seconds), median_of(beside.seconds)});
  }
  for (auto& [what, points] : groups) {
    std::set<int> channels;
    for (const OverlapPoint& point : points) channels.insert(point.channels);
    if (channels.size() < kFewestChannels) continue;
    std::stable_sort(points.begin(), points.end(),
                     [](const OverlapPoint& a, const OverlapPoint& b) { return a.channels < b.channels; });
    try {
      add(what, fit_overlap(what, points), *channels.rbegin(), profile);
    } catch (const ConfigError& refusal) {
      notes.push_back(not_fitted(refusal));
    }
  }
}

Agreement compare_passes(const Measurement& measurement) {
  std::map<std::string, std::vector<double>> medians;
  for (const Sample& sample : measurement.samples) {
    medians[sample.key.text_without_pass()].push_back(sample.median());
  }
  Agreement agreement;
  std::vector<double> differences;
  for (const auto& [name, times] : medians) {
    if (times.size() < 2) continue;
    const auto [least, most] = std::minmax_element(times.begin(), times.end());
    const double difference = *most / *least - 1.0;
    differences.push_back(difference);
    if (difference < agreement.largest) continue;
    agreement.largest = difference;
    agreement.worst = name;
  }
  agreement.compared = static_cast<int>(differences.size());
  agreement.median = median_of(differences);
  return agreement;
}

void require_agreement(const Measurement& measurement, const std::string& file) {
  const Agreement agreement = compare_passes(measurement);
  if (agreement.median <= kAgreementTolerance) return;
  throw EnvironmentError(fmt::format(
      "the two passes of the calibration disagree by {:.1f} % in the median of {} samples (tolerance {:.1f} "
      "%), most on {} ({:.1f} %): no profile is written. Something else used this machine; calibrate again "
      "when it is quiet{}",
      1e2 * agreement.median, agreement.compared, 1e2 * kAgreementTolerance, agreement.worst, 1e2 * agreement.largest,
      file.empty() ? "" : fmt::format(" (the measurements are in {})", file)));
}

std::optional<double> disturbance(const Measurement& measurement) {
  std::vector<double> ratios;
  for (const Sample& sample : measurement.samples) {
    if (!sample.processor_seconds) continue;
    ratios.push_back(std::accumulate(sample.seconds.begin(), sample.seconds.end(), 0.0) / *sample.processor_seconds);
  }
  if (ratios.empty()) return std::nullopt;
  return median_of(ratios);
}

}  // namespace flopcast
