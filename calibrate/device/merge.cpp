#include "calibrate/device/merge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "calibrate/device/fit/gemm_fit.hpp"
#include "calibrate/device/fit/message_fit.hpp"
#include "calibrate/device/fit/operator_fit.hpp"
#include "model/error/error.hpp"
#include "model/workload/precision.hpp"

namespace flopcast {

namespace {

bool is_named(const Measurement& measurement) {
  return !measurement.device.empty() && measurement.device != "unnamed";
}

// What is fitted together.
std::string group_of(const SampleKey& key) {
  if (key.kind == SampleKind::kGemm) {
    return fmt::format("products of {}{}", key.dtype, key.op.empty() ? "" : " (" + key.op + ")");
  }
  if (!is_message(key.kind)) {
    return fmt::format("{}{}{}", name_of(key.kind), key.op.empty() ? "" : " (" + key.op + ")",
                       key.dtype.empty() ? "" : " " + key.dtype);
  }
  return fmt::format("{}, {} ranks{}", name_of(key.kind), key.ranks,
                     key.nodes > 1 ? fmt::format(" on {} nodes", key.nodes) : "");
}

// Different samples that a fit of the group needs; none where nothing is fitted over sizes.
std::size_t needed_for(SampleKind kind) {
  if (kind == SampleKind::kGemm) return kFewestShapes;
  if (is_message(kind) || kind == SampleKind::kMemoryCopy || kind == SampleKind::kHostCopy) return kFewestSizes;
  return is_memory_bound(kind) || is_attention(kind) ? kFewestAmounts : 0;
}

// What ran beside something else is fitted where there is enough of it (describe_overlaps.hpp).
bool is_fitted_alone(const SampleKey& key) {
  return !key.beside && key.channels == 0;
}

}  // namespace

void add_samples(Measurement& all, const Measurement& more, const std::string& file) {
  if (is_named(all) && is_named(more) && all.device != more.device) {
    throw ConfigError({"", fmt::format("was measured on {}, the files before on {}", more.device, all.device), file,
                       "one profile describes one device"});
  }
  if (!is_named(all)) {
    all.device = more.device;
    all.multiprocessors = more.multiprocessors;
    all.memory_bytes = more.memory_bytes;
    all.clocks_mhz = more.clocks_mhz;
  }
  if (all.host.empty()) all.host = more.host;
  all.date = std::max(all.date, more.date);
  all.libraries.insert(more.libraries.begin(), more.libraries.end());
  for (Sample sample : more.samples) {
    while (all.has(sample.key)) ++sample.key.pass;
    all.samples.push_back(std::move(sample));
  }
}

std::vector<std::string> leave_out_small_groups(Measurement& measurement) {
  std::map<std::string, std::set<std::string>> sizes;
  std::map<std::string, std::string> reasons;
  const auto& precisions = precision_names();
  for (const Sample& sample : measurement.samples) {
    if (!is_fitted_alone(sample.key)) continue;
    const std::string group = group_of(sample.key);
    SampleKey size = sample.key;
    // A curve does not tell types apart.
    if (is_message(size.kind)) size.dtype.clear();
    sizes[group].insert(size.text_without_pass());
    if (sample.key.kind == SampleKind::kGemm &&
        std::find(precisions.begin(), precisions.end(), sample.key.dtype) == precisions.end()) {
      reasons[group] = fmt::format("{}: no forecast uses them", group);
    }
  }
  for (const Sample& sample : measurement.samples) {
    if (!is_fitted_alone(sample.key)) continue;
    const bool product = sample.key.kind == SampleKind::kGemm;
    const std::string group = group_of(sample.key);
    const std::size_t known = sizes[group].size();
    const std::size_t needed = needed_for(sample.key.kind);
    if (known >= needed) continue;
    reasons.emplace(group, fmt::format("{}: {} {}{}, but a fit needs {}", group, known, product ? "shape" : "size",
                                       known == 1 ? "" : "s", needed));
  }
  std::erase_if(measurement.samples, [&reasons](const Sample& sample) {
    return is_fitted_alone(sample.key) && reasons.count(group_of(sample.key)) > 0;
  });
  std::vector<std::string> sentences;
  for (auto& [group, reason] : reasons) sentences.push_back(std::move(reason));
  return sentences;
}

}  // namespace flopcast
