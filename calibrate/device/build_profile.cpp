#include "calibrate/device/build_profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/text/error.hpp"
#include "calibrate/device/fits.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/hardware/device.hpp"
#include "model/job/read_job.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

namespace {

bool is_digit(char letter) {
  return std::isdigit(static_cast<unsigned char>(letter)) != 0;
}

// A10 is no word of A100, and H200 none of GH200.
bool has_word(const std::string& text, const std::string& word) {
  for (std::size_t place = text.find(word); place != std::string::npos; place = text.find(word, place + 1)) {
    const bool begins = place == 0 || std::isalnum(static_cast<unsigned char>(text[place - 1])) == 0;
    const std::size_t end = place + word.size();
    if (begins && (end == text.size() || !is_digit(text[end]))) return true;
  }
  return false;
}

}  // namespace

bool is_part_of_gpu(const std::string& gpu) {
  return has_word(lower_case(gpu), "mig");
}

std::optional<std::string> catalogued_device(const std::string& gpu) {
  if (is_part_of_gpu(gpu)) return std::nullopt;
  const std::string name = lower_case(gpu);
  constexpr const char* kOtherForm = "nvl";
  std::optional<std::string> best;
  std::size_t most = 0;
  bool several = false;
  for (const std::string& known : catalogue_names(CatalogueKind::kDevices)) {
    std::istringstream words(known);
    std::size_t count = 0;
    bool all = true;
    for (std::string word; std::getline(words, word, '-'); ++count) all = all && has_word(name, word);
    if (has_word(name, kOtherForm) && !has_word(known, kOtherForm)) continue;
    if (!all || count < most) continue;
    several = count == most;
    most = count;
    best = known;
  }
  return several ? std::nullopt : best;
}

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

// What ran beside something else is fitted where there is enough of it (describe.cpp).
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
  const auto& precisions = names_of<Precision>();
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

namespace {

using ProductName = std::pair<std::string, std::string>;  // dtype, operator
using Shapes = std::map<std::tuple<int, int, int>, std::vector<double>>;
using GroupName = std::tuple<SampleKind, int, int>;  // kind, ranks, nodes

// Every repetition of every pass, by what was measured.
struct Pooled {
  std::map<ProductName, Shapes> products;
  std::map<double, std::vector<double>> copies;
  std::map<GroupName, std::map<double, std::vector<double>>> messages;
};

Pooled pool(const Measurement& measurement) {
  Pooled pooled;
  for (const Sample& sample : measurement.samples) {
    const SampleKey& key = sample.key;
    std::vector<double>* times = nullptr;  // of a training step: it is no device's
    if (key.beside || key.channels > 0) continue;
    if (key.kind == SampleKind::kGemm) {
      times = &pooled.products[{key.dtype, key.op}][{key.shape->m, key.shape->n, key.shape->k}];
    } else if (key.kind == SampleKind::kMemoryCopy) {
      times = &pooled.copies[*key.bytes];
    } else if (is_message(key.kind)) {
      times = &pooled.messages[{key.kind, key.ranks, key.nodes}][*key.bytes];
    }
    if (times != nullptr) times->insert(times->end(), sample.seconds.begin(), sample.seconds.end());
  }
  return pooled;
}

Precision precision_of(const std::string& dtype) {
  const auto& names = names_of<Precision>();
  const auto match = std::find(names.begin(), names.end(), dtype);
  if (match == names.end()) {
    refuse_fit("gemm " + dtype, fmt::format("unknown precision \"{}\"", dtype), choices_help(dtype, names));
  }
  return static_cast<Precision>(match - names.begin());
}

class Builder {
 public:
  Builder(const Measurement& measurement, const ProfileRequest& request)
      : measurement_(measurement), request_(request), pooled_(pool(measurement)) {}

  DeviceProfile build() {
    const std::string device = measurement_.device.empty() ? request_.device : measurement_.device;
    profile_.name = request_.name.empty() ? device : request_.name;
    if (profile_.name.empty()) profile_.name = "unnamed";
    profile_.cluster = request_.cluster;
    profile_.source = request_.source;
    profile_.date = measurement_.date;
    profile_.confidence = request_.confidence;
    fit_memory();
    fit_products();
    const Device catalogue = catalogue_device();
    describe_kernels(measurement_, catalogue, bandwidth_.value_or(catalogue.memory_bandwidth), profile_, device_,
                     notes_);
    for (const auto& [group, sizes] : pooled_.messages) fit_messages(group, sizes);
    describe_overlaps(measurement_, profile_, notes_);
    if (profile_.fits.empty() && request_.cluster->empty()) {
      refuse_fit("samples", "hold nothing that a forecast uses", "measure gemm, memory_copy or messages");
    }
    if (request_.host) describe_host();
    const bool says_something = !device_.is_null() || !request_.cluster->empty();
    if (!request_.device.empty() && says_something) device_["name"] = request_.device;
    if (!device_.is_null()) profile_.cluster["device"] = device_;
    return std::move(profile_);
  }

  const std::vector<std::string>& notes() const { return notes_; }

 private:
  MessageFit fit_curve(const std::string& what, const std::map<double, std::vector<double>>& sizes) {
    std::vector<MessagePoint> points;
    for (const auto& [bytes, seconds] : sizes) points.push_back({bytes, median_of(seconds)});
    MessageFit fit = fit_message_curve(what, points);
    profile_.fits.push_back(fit.told(what, "bytes"));
    return fit;
  }

  void fit_memory() {
    if (pooled_.copies.empty()) return;
    const MessageFit fit = fit_curve("memory_copy", pooled_.copies);
    const double slope = request_.host ? slope_beyond_caches() : fit.curve.segments().back().beta;
    if (slope <= 0.0) {
      refuse_fit("memory_copy", "does not slow down with size", "measure copies larger than the caches");
    }
    bandwidth_ = BytesPerSecond(1.0 / slope);
    device_["memory_bandwidth"] = fmt::format("{:.6g}GB/s", bandwidth_->value() / 1e9);
    device_["memory_efficiency"] = 1.0;
  }

  // Seconds a byte between the largest copy and one of a quarter of its size. On a host most sizes lie in its caches,
  // which are many times as fast: one piece through all of them describes these best, and the largest not at all.
  double slope_beyond_caches() const {
    const auto largest = std::prev(pooled_.copies.end());
    constexpr double kFar = 4.0;
    const auto other = pooled_.copies.lower_bound(largest->first / kFar);
    if (other == largest) return 0.0;
    return (median_of(largest->second) - median_of(other->second)) / (largest->first - other->first);
  }

  static std::vector<GemmPoint> points_of(const Shapes& shapes) {
    std::vector<GemmPoint> points;
    for (const auto& [shape, seconds] : shapes) {
      const auto& [m, n, k] = shape;
      points.push_back({{m, n, k, 1}, median_of(seconds)});
    }
    return points;
  }

  void fit_products() {
    std::size_t most = 0;
    GemmKernel kernel;
    for (const auto& [name, shapes] : pooled_.products) {
      const auto& [dtype, op] = name;
      const std::string what = "gemm " + dtype + (op.empty() ? "" : " (" + op + ")");
      const std::vector<GemmPoint> points = points_of(shapes);
      const Precision precision = precision_of(dtype);
      const GemmFit fit = fit_gemm(what, points, precision, measurement_.multiprocessors,
                                   request_.host ? cpu_gemm_search() : gpu_gemm_search());
      profile_.fits.push_back(fit.told(what, "FLOP"));
      describe_rate(what, fit, precision, points.size() > most);
      if (points.size() > most) kernel = fit.kernel;
      most = std::max(most, points.size());
    }
    if (!request_.host) describe_precisions(kernel);
  }

  // The shares of all precisions of which the forward layout was measured, by the kernel that a forecast will use.
  void describe_precisions(const GemmKernel& kernel) {
    const GemmSearch search{{kernel.tile}, {kernel.overhead_depth}, kernel.overlapped, {kernel.wave_share}};
    nlohmann::json shares = nlohmann::json::object();
    for (const auto& [name, shapes] : pooled_.products) {
      const auto& [dtype, op] = name;
      const Precision precision = precision_of(dtype);
      const double peak = catalogue_device().peak_of(precision).value();
      if (!op.empty() || peak <= 0.0) continue;
      const GemmFit fit = fit_gemm("gemm " + dtype, points_of(shapes), precision, measurement_.multiprocessors, search);
      const double share = fit.rate.value() / peak;
      if (share <= 1.0) {
        shares[dtype] = share;
      } else if (precision != Precision::kFp32) {  // frameworks multiply "fp32" in tf32
        notes_.push_back(fmt::format(
            "gemm {} ran at {:.0f} TFLOP/s, above the {:.0f} of {}'s datasheet: no share of that peak is told", dtype,
            fit.rate.value() / 1e12, peak / 1e12, request_.device));
      }
    }
    const char* key = request_.in_step ? "gemm_efficiency_by_precision" : "kernel_efficiency_by_precision";
    if (shares.size() > 1) device_[key] = std::move(shares);
  }

  void describe_rate(const std::string& what, const GemmFit& fit, Precision precision, bool describes_kernel) {
    if (request_.host) {
      // Nobody publishes what a core's vector units reach: the rate of full tiles is the peak.
      device_["peak"][std::string(name_of(precision))] = fmt::format("{:.6g}GFLOP/s", fit.rate.value() / 1e9);
      device_["gemm_efficiency"] = 1.0;
    } else if (describes_kernel) {
      device_[request_.in_step ? "gemm_efficiency" : "kernel_efficiency"] = share_of_peak(what, fit, precision);
    }
    if (!describes_kernel) return;
    // Large products do not show a launch. It is not absent then, but not known from them: a device of the catalogue
    // keeps its own, a host gets a short one, because a forecast divides by it.
    constexpr double kShortestLaunch = 1e-9;
    if (fit.launch.value() > kShortestLaunch || request_.device.empty()) {
      device_["kernel_launch"] = fmt::format("{:.6g}us", std::max(kShortestLaunch, fit.launch.value()) * 1e6);
    }
    nlohmann::json kernel = {{"tile", fit.kernel.tile},
                             {"overhead_depth", static_cast<int>(fit.kernel.overhead_depth)},
                             {"overlapped", fit.kernel.overlapped},
                             {"wave_share", fit.kernel.wave_share}};
    const BytesPerSecond memory = bandwidth_.value_or(catalogue_device().memory_bandwidth);
    constexpr double kUnseen = 1e6;  // streams that no shape waited for
    const double share = fit.stream && memory.value() > 0 ? *fit.stream / memory : kUnseen;
    kernel["memory_efficiency"] = std::min(share, kUnseen);
    device_["gemm_kernel"] = std::move(kernel);
  }

  Device catalogue_device() const {
    if (request_.device.empty()) return {};
    std::vector<std::string> ignored;
    return read_device(request_.device, "device", ignored, {});
  }

  double share_of_peak(const std::string& what, const GemmFit& fit, Precision precision) const {
    const double peak = catalogue_device().peak_of(precision).value();
    if (peak <= 0.0) {
      refuse_fit(what, "needs the device's peak of that precision", "name the catalogue's device: --device NAME");
    }
    const double share = fit.rate.value() / peak;
    if (share > 1.0) {
      refuse_fit(what,
                 fmt::format("ran at {:.0f} TFLOP/s, above the {:.0f} of {}'s datasheet", fit.rate.value() / 1e12,
                             peak / 1e12, request_.device),
                 "check precision and device: the products were perhaps not computed");
    }
    return share;
  }

  void fit_messages(const GroupName& name, const std::map<double, std::vector<double>>& sizes) {
    const auto& [sample_kind, ranks, nodes] = name;
    const std::optional<CollectiveKind> collective = collective_of(sample_kind);
    // A forecast prices no broadcasts and no reductions to one rank.
    const bool priced = is_message(sample_kind) && sample_kind < sample_of(CollectiveKind::kBroadcast);
    if (!priced || ranks < 2) return;
    const std::string what =
        fmt::format("{}, {} ranks{}", name_of(sample_kind), ranks, nodes > 1 ? fmt::format(" on {} nodes", nodes) : "");
    const MessageFit fit = fit_curve(what, sizes);
    profile_.curves.push_back({collective, ranks, nodes, fit.curve});
    if (!collective && nodes == 1) describe_link(fit.curve);
  }

  void describe_link(const MessageCurve& curve) {
    if (!request_.host) return;
    const MessageSegment& last = curve.segments().back();
    if (last.beta <= 0.0) return;
    link_ = fmt::format("{:.6g}GB/s", 1e-9 / last.beta);
    latency_ = fmt::format("{:.6g}us", curve.time(Bytes(0)).value() * 1e6);
  }

  // Everything a forecast asks of a cluster, so that none of the catalogue's is needed.
  void describe_host() {
    if (!device_.contains("peak") || !bandwidth_ || link_.empty() || !measurement_.memory_bytes) {
      refuse_fit("samples", "do not describe a host: gemm, memory_copy, p2p and memory_bytes are all needed",
                 "calibrate again without leaving kinds out");
    }
    device_["name"] = measurement_.device;
    device_["generation"] = "cpu";
    // Ranks on one host share its memory.
    device_["memory_capacity"] = fmt::format("{:.6g}GiB", *measurement_.memory_bytes / kGibibyte / ranks_measured());
    device_["multiprocessors"] = measurement_.multiprocessors;
    profile_.cluster["name"] = measurement_.host.empty() ? measurement_.device : measurement_.host;
    profile_.cluster["devices_per_node"] = ranks_measured();
    profile_.cluster["intra_bandwidth"] = link_;
    profile_.cluster["intra_latency"] = latency_;
    profile_.cluster["nic_bandwidth"] = link_;
    profile_.cluster["inter_latency"] = latency_;
    profile_.cluster["host_bandwidth"] = link_;
    profile_.cluster["host_memory_bandwidth"] = device_["memory_bandwidth"];
  }

  int ranks_measured() const {
    int most = 1;
    for (const GroupCurve& group : profile_.curves) most = std::max(most, group.ranks);
    return most;
  }

  const Measurement& measurement_;
  const ProfileRequest& request_;
  Pooled pooled_;
  DeviceProfile profile_;
  std::vector<std::string> notes_;
  nlohmann::json device_;
  std::optional<BytesPerSecond> bandwidth_;
  std::string link_;
  std::string latency_;
};

}  // namespace

DeviceProfile build_profile(const Measurement& measurement, const ProfileRequest& request,
                            std::vector<std::string>* notes) {
  Builder builder(measurement, request);
  DeviceProfile profile = builder.build();
  if (notes != nullptr) *notes = builder.notes();
  return profile;
}

}  // namespace flopcast
