#include "calibrate/device/describe_overlaps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/device/fit/overlap_fit.hpp"

namespace flopcast {

namespace {

/// Every repetition of every pass of one sample.
struct Pooled {
  SampleKey key;
  std::vector<double> seconds;
};
using PooledSamples = std::map<std::string, Pooled>;

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
  ProfileFit kept{what, "channels", fit.errors.median, fit.errors.p95, fit.errors.largest, fit.left_out.median, {}};
  for (const FittedPoint& point : fit.points) {
    kept.points.push_back({point.label, point.x, point.measured_s, point.fitted_s});
  }
  profile.fits.push_back(std::move(kept));
  profile.overlaps.push_back(line);
}

}  // namespace

void describe_overlaps(const Measurement& measurement, DeviceProfile& profile, std::vector<std::string>& notes) {
  PooledSamples samples;
  for (const Sample& sample : measurement.samples) {
    Pooled& pooled = samples[sample.key.text_without_pass()];
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

}  // namespace flopcast
