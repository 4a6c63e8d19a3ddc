#include "calibrate/device/build_profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "calibrate/device/fits.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/cost/compute.hpp"
#include "model/job/read_job.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

namespace {

bool is_digit(char letter) {
  return std::isdigit(static_cast<unsigned char>(letter)) != 0;
}

// A10 is not a word of A100, and H200 is not a word of GH200.
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

using ProductName = std::pair<std::string, std::string>;              // dtype, operator
using GroupName = std::tuple<SampleKind, int, int>;                   // kind, ranks, nodes
using KernelName = std::tuple<SampleKind, std::string, std::string>;  // kind, operator, dtype
using Sizes = std::map<double, std::vector<double>>;
using Shapes = std::map<std::tuple<int, int, int>, std::vector<double>>;

// All repetitions of all passes, grouped by what was measured.
struct PooledSample {
  SampleKey key;
  std::vector<double> seconds;
};
struct Pooled {
  std::map<ProductName, Shapes> products;
  Sizes copies;
  std::map<GroupName, Sizes> messages;
  std::map<std::string, PooledSample> all;  // by sample key without its pass
};

Pooled pool(const Measurement& measurement) {
  Pooled pooled;
  for (const Sample& sample : measurement.samples) {
    const SampleKey& key = sample.key;
    const auto add = [&sample](std::vector<double>& times) {
      times.insert(times.end(), sample.seconds.begin(), sample.seconds.end());
    };
    PooledSample& same = pooled.all.try_emplace(key.text_without_pass(), PooledSample{key, {}}).first->second;
    add(same.seconds);
    if (key.beside || key.channels > 0) continue;
    if (key.kind == SampleKind::kGemm)
      add(pooled.products[{key.dtype, key.op}][{key.shape->m, key.shape->n, key.shape->k}]);
    if (key.kind == SampleKind::kMemoryCopy) add(pooled.copies[*key.bytes]);
    if (is_message(key.kind)) add(pooled.messages[{key.kind, key.ranks, key.nodes}][*key.bytes]);
  }
  return pooled;
}

std::string words_of(const KernelName& name) {
  const auto& [kind, op, dtype] = name;
  std::string words(name_of(kind));
  if (!op.empty()) words += " (" + op + ")";
  return dtype.empty() ? words : words + " " + dtype;
}

std::string words_of(const SampleKey& key) {
  std::string words(name_of(key.kind));
  if (!key.op.empty()) words += fmt::format(" ({})", key.op);
  if (key.ranks > 1) words += fmt::format(", {} ranks", key.ranks);
  if (!key.dtype.empty()) words += " " + key.dtype;
  return words + fmt::format(" overlapped with {}", name_of(*key.beside));
}

// Key of the same sample measured alone. The channels belong to what it overlapped with, unless the sample has channels
// itself.
SampleKey alone(SampleKey key) {
  const bool has_channels = key.kind == SampleKind::kChannelCopy || is_message(key.kind);
  key.beside.reset();
  if (!has_channels) key.channels = 0;
  return key;
}

Precision precision_of(const std::string& dtype) {
  const std::optional<Precision> precision = parse<Precision>(dtype);
  if (precision) return *precision;
  refuse_fit("gemm " + dtype, fmt::format("unknown precision \"{}\"", dtype),
             choices_help(dtype, names_of<Precision>()));
}

class Builder {
 public:
  Builder(const Measurement& measurement, const ProfileRequest& request)
      : measurement_(measurement), request_(request), pooled_(pool(measurement)) {
    if (request.device.empty()) return;
    std::vector<std::string> ignored;
    catalogue_ = read_device(request.device, "device", ignored, {});
  }

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
    describe_kernels();
    for (const auto& [group, sizes] : pooled_.messages) fit_messages(group, sizes);
    describe_overlaps();
    if (profile_.fits.empty() && request_.cluster->empty()) {
      refuse_fit("samples", "contain nothing that a forecast uses", "measure gemm, memory_copy or messages");
    }
    if (request_.host) describe_host();
    const bool has_figures = !device_.is_null() || !request_.cluster->empty();
    if (!request_.device.empty() && has_figures) device_["name"] = request_.device;
    if (!device_.is_null()) profile_.cluster["device"] = device_;
    return std::move(profile_);
  }

  const std::vector<std::string>& notes() const { return notes_; }

 private:
  MessageFit fit_curve(const std::string& what, const Sizes& sizes) {
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

  // Seconds per byte between the largest copy and one of a quarter of its size. On a host most sizes fit in its caches,
  // which are many times as fast: a single segment through all sizes describes the cached ones best, and the largest
  // not at all.
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

  // Shares of the peak for all precisions whose forward layout was measured, with the kernel that a forecast will use.
  void describe_precisions(const GemmKernel& kernel) {
    const GemmSearch search{{kernel.tile}, {kernel.overhead_depth}, kernel.overlapped, {kernel.wave_share}};
    nlohmann::json shares = nlohmann::json::object();
    for (const auto& [name, shapes] : pooled_.products) {
      const auto& [dtype, op] = name;
      const Precision precision = precision_of(dtype);
      const double peak = catalogue_.peak_of(precision).value();
      if (!op.empty() || peak <= 0.0) continue;
      const GemmFit fit = fit_gemm("gemm " + dtype, points_of(shapes), precision, measurement_.multiprocessors, search);
      const double share = fit.rate.value() / peak;
      if (share <= 1.0) {
        shares[dtype] = share;
      } else if (precision != Precision::kFp32) {  // frameworks multiply "fp32" in tf32
        notes_.push_back(fmt::format(
            "gemm {} ran at {:.0f} TFLOP/s, above the {:.0f} of {}'s datasheet: its share of the peak is left out",
            dtype, fit.rate.value() / 1e12, peak / 1e12, request_.device));
      }
    }
    const char* key = request_.in_step ? "gemm_efficiency_by_precision" : "kernel_efficiency_by_precision";
    if (shares.size() > 1) device_[key] = std::move(shares);
  }

  void describe_rate(const std::string& what, const GemmFit& fit, Precision precision, bool describes_kernel) {
    if (request_.host) {
      // Nobody publishes the peak rate of a core's vector units: the rate of full tiles is the peak.
      device_["peak"][std::string(name_of(precision))] = fmt::format("{:.6g}GFLOP/s", fit.rate.value() / 1e9);
      device_["gemm_efficiency"] = 1.0;
    } else if (describes_kernel) {
      device_[request_.in_step ? "gemm_efficiency" : "kernel_efficiency"] = share_of_peak(what, fit, precision);
    }
    if (!describes_kernel) return;
    // Large GEMMs do not reveal the launch time; that does not make it zero. A device of the catalogue keeps its own
    // value, and a host gets a short one, because a forecast divides by it.
    constexpr double kShortestLaunch = 1e-9;
    if (fit.launch.value() > kShortestLaunch || request_.device.empty()) {
      device_["kernel_launch"] = fmt::format("{:.6g}us", std::max(kShortestLaunch, fit.launch.value()) * 1e6);
    }
    nlohmann::json kernel = {{"tile", fit.kernel.tile},
                             {"overhead_depth", static_cast<int>(fit.kernel.overhead_depth)},
                             {"overlapped", fit.kernel.overlapped},
                             {"wave_share", fit.kernel.wave_share}};
    const BytesPerSecond memory = bandwidth_.value_or(catalogue_.memory_bandwidth);
    constexpr double kUnseen = 1e6;  // operand streams that no shape waited for
    const double share = fit.stream && memory.value() > 0 ? *fit.stream / memory : kUnseen;
    kernel["memory_efficiency"] = std::min(share, kUnseen);
    device_["gemm_kernel"] = std::move(kernel);
  }

  double share_of_peak(const std::string& what, const GemmFit& fit, Precision precision) const {
    const double peak = catalogue_.peak_of(precision).value();
    if (peak <= 0.0) {
      refuse_fit(what, "needs the device's peak in that precision", "name the catalogue's device: --device NAME");
    }
    const double share = fit.rate.value() / peak;
    if (share > 1.0) {
      refuse_fit(what,
                 fmt::format("ran at {:.0f} TFLOP/s, above the {:.0f} of {}'s datasheet", fit.rate.value() / 1e12,
                             peak / 1e12, request_.device),
                 "check precision and device; perhaps the GEMMs were never computed");
    }
    return share;
  }

  void fit_messages(const GroupName& name, const Sizes& sizes) {
    const auto& [sample_kind, ranks, nodes] = name;
    const std::optional<CollectiveKind> collective = collective_of(sample_kind);
    // Forecasts do not price broadcasts and reductions to one rank.
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

  // Sets everything a forecast needs to know about a cluster, so that nothing comes from the catalogue.
  void describe_host() {
    if (!device_.contains("peak") || !bandwidth_ || link_.empty() || !measurement_.memory_bytes) {
      refuse_fit("samples", "do not describe a host completely: gemm, memory_copy, p2p and memory_bytes are all needed",
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

  using Points = std::vector<OperatorPoint>;

  // Fits of kernels other than GEMMs, and the figures they yield:
  //   norm, elementwise           memory_efficiency: their common rate over the bandwidth
  //   optimizer                   adam_efficiency: the rate of Adam's update over the bandwidth, if it can be
  //                               fitted; SGD has a fit, but no figure
  //   embedding, loss             a fit each, but no figure: a forecast knows their bytes
  //   attention                   flash_forward_efficiency and flash_backward_efficiency, shares of the peak; a fit
  //                               but no figure if `operator` names the kernel, because others train with another
  //   launch                      kernel_launch, the median
  //   host_copy                   the cluster's host_bandwidth
  // Host dispatches and overlapped samples stay in the measurements; no figure follows from them. A fit that yields no
  // figure and rejects its data is left out, with the reason in the notes.
  void describe_kernels() {
    memory_rate_ = bandwidth_.value_or(catalogue_.memory_bandwidth).value();
    std::map<KernelName, Points> memory;
    std::map<KernelName, Points> attention;
    std::vector<double> launches;
    std::vector<MessagePoint> host_copies;
    for (const auto& [label, sample] : pooled_.all) {
      const SampleKey& key = sample.key;
      if (key.beside) continue;
      const double seconds = median_of(sample.seconds);
      const KernelName name = {key.kind, key.op, key.dtype};
      if (is_memory_bound(key.kind)) memory[name].push_back({label, *key.bytes, seconds});
      if (is_attention(key.kind)) {
        const double share = key.kind == SampleKind::kAttentionBackward ? kAttentionBackwardWork : 1.0;
        attention[name].push_back({label, key.attention->flops() * share, seconds});
      }
      if (key.kind == SampleKind::kLaunch) launches.push_back(seconds);
      if (key.kind == SampleKind::kHostCopy) host_copies.push_back({*key.bytes, seconds});
    }
    describe_memory(memory);
    for (const auto& [name, points] : attention) describe_attention(name, points);
    if (!launches.empty()) device_["kernel_launch"] = fmt::format("{:.6g}us", median_of(launches) * 1e6);
    if (!host_copies.empty()) describe_host_copies(std::move(host_copies));
  }

  // Runs a fit that may be refused without losing the rest of the profile.
  template <class Fit>
  void if_possible(const Fit& fit) {
    try {
      fit();
    } catch (const ConfigError& refusal) {
      notes_.push_back(not_fitted(refusal));
    }
  }

  OperatorFit fit_kernel(const std::string& what, const char* unit, const Points& points) {
    OperatorFit fitted = fit_operator(what, points);
    profile_.fits.push_back(fitted.told(what, unit));
    return fitted;
  }

  // One share covers all kernels but Adam: that of norms and element-wise kernels, which are most of the memory-bound
  // work. Adam uses it too if it has no figure of its own.
  void describe_memory(const std::map<KernelName, Points>& memory) {
    Points common;
    for (const auto& [name, points] : memory) {
      const SampleKind kind = std::get<SampleKind>(name);
      const std::string what = words_of(name);
      const bool adam = kind == SampleKind::kOptimizerStep && std::get<1>(name) == "adam";
      if_possible([&, &points = points] {
        const OperatorFit fitted = fit_operator(what, points);
        if (adam) check_share(what, fitted);
        profile_.fits.push_back(fitted.told(what, "bytes"));
        if (adam) device_["adam_efficiency"] = std::min(1.0, fitted.rate / memory_rate_);
      });
      if (kind != SampleKind::kNorm && kind != SampleKind::kElementwise) continue;
      common.insert(common.end(), points.begin(), points.end());
    }
    if (common.empty()) return;
    const char* what = "norms and element-wise kernels";
    const OperatorFit fitted = fit_operator(what, common);
    check_share(what, fitted);
    device_["memory_efficiency"] = std::min(1.0, fitted.rate / memory_rate_);
  }

  void check_share(const std::string& what, const OperatorFit& fitted) const {
    // Tensors that stay in a cache exceed the memory bandwidth a little.
    constexpr double kMostShare = 1.2;
    if (memory_rate_ > 0.0 && fitted.rate / memory_rate_ <= kMostShare) return;
    refuse_fit(what,
               fmt::format("move {:.0f} GB/s, but the memory provides {:.0f}", fitted.rate / 1e9, memory_rate_ / 1e9),
               "name the catalogue's device (--device NAME), and measure tensors larger than its caches");
  }

  void describe_attention(const KernelName& name, const Points& points) {
    const auto& [kind, op, dtype] = name;
    const std::string what = words_of(name);
    // A kernel that is named is one of several, and training elsewhere uses another one.
    if (!op.empty()) return if_possible([&] { fit_kernel(what, "FLOP", points); });
    const OperatorFit fitted = fit_kernel(what, "FLOP", points);
    const auto precision = parse<Precision>(dtype);
    const double peak = precision ? catalogue_.peak_of(*precision).value() : 0.0;
    if (peak <= 0.0 || fitted.rate > peak) {
      refuse_fit(what,
                 fmt::format("ran at {:.0f} TFLOP/s, but the device's peak is {:.0f}", fitted.rate / 1e12, peak / 1e12),
                 "check dtype, causal and --device NAME");
    }
    const bool forward = kind == SampleKind::kAttentionForward;
    device_[forward ? "flash_forward_efficiency" : "flash_backward_efficiency"] = fitted.rate / peak;
  }

  void describe_host_copies(std::vector<MessagePoint> copies) {
    std::sort(copies.begin(), copies.end(),
              [](const MessagePoint& a, const MessagePoint& b) { return a.bytes < b.bytes; });
    const MessageFit fitted = fit_message_curve("host_copy", copies);
    const double slope = fitted.curve.segments().back().beta;
    if (slope > 0.0) profile_.cluster["host_bandwidth"] = fmt::format("{:.6g}GB/s", 1e-9 / slope);
  }

  // Slowdowns of overlapped samples as a function of the channels of the message or channel copy among the two. A
  // sample counts only if it was also measured alone; kinds with fewer than three channel counts are left out. No
  // figure of a device follows: the overlap that forecasts assume between computation and communication is fitted to
  // whole steps (model/cost/stage_costs.cpp).
  void describe_overlaps() {
    std::map<std::string, std::vector<OverlapPoint>> groups;
    for (const auto& [label, beside] : pooled_.all) {
      if (!beside.key.beside || beside.key.channels == 0) continue;
      const auto reference = pooled_.all.find(alone(beside.key).text_without_pass());
      if (reference == pooled_.all.end()) continue;
      groups[words_of(beside.key)].push_back(
          {label, beside.key.channels, median_of(reference->second.seconds), median_of(beside.seconds)});
    }
    for (auto& [what, points] : groups) {
      std::set<int> channels;
      for (const OverlapPoint& point : points) channels.insert(point.channels);
      if (channels.size() < kFewestChannels) continue;
      std::stable_sort(points.begin(), points.end(),
                       [](const OverlapPoint& a, const OverlapPoint& b) { return a.channels < b.channels; });
      if_possible([&, &what = what, &points = points] {
        const OverlapFit fit = fit_overlap(what, points);
        const OverlapLine line{what, fit.at_none, fit.per_channel, *channels.rbegin()};
        if (line.factor(0) <= 0.0 || line.factor(line.most_channels) <= 0.0) {
          refuse_fit(what, "fits a line that falls to zero time at one end", "measure more channel counts");
        }
        profile_.fits.push_back(fit.told(what, "channels"));
        profile_.overlaps.push_back(line);
      });
    }
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
  Device catalogue_;
  std::optional<BytesPerSecond> bandwidth_;
  double memory_rate_ = 0.0;  // bytes per second that a forecast will use
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
