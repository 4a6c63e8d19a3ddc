#include "realrun/measure/measure_gpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

constexpr int kGpuPasses = 2;
constexpr double kKibibyte = 1024.0;
constexpr double kMebibyte = kKibibyte * kKibibyte;
constexpr double kGib = kMebibyte * kKibibyte;
constexpr int kFirstWithFp8 = 89;
// A multiple of the row size of every memory-bound kernel: two to seven tensors, 1024 to 8192 columns, 32 bits.
constexpr double kWholeRows = 420.0 * 16384.0;

using Keys = std::vector<SampleKey>;
using Shapes = std::vector<SampleShape>;

SampleKey product(const SampleShape& shape, const std::string& dtype, const std::string& op) {
  SampleKey key;
  key.kind = SampleKind::kGemm;
  key.shape = shape;
  key.dtype = dtype;
  key.op = op;
  return key;
}

SampleKey moved(SampleKind kind, const std::string& op, double bytes) {
  SampleKey key;
  key.kind = kind;
  key.op = op;
  key.bytes = bytes;
  return key;
}

void add_products(Keys& keys, const Shapes& shapes, const std::string& dtype, const std::string& op = {}) {
  for (const SampleShape& shape : shapes) keys.push_back(product(shape, dtype, op));
}

void add_sizes(Keys& keys, SampleKind kind, const std::string& op, const std::vector<double>& sizes) {
  for (const double bytes : sizes) keys.push_back(moved(kind, op, bytes));
}

// Products of transformer layers, and squares that show launch time and rate.
Shapes training_shapes() {
  return {{256, 256, 256},    {1024, 1024, 1024},  {2048, 2048, 2048},  {4096, 4096, 4096},
          {8192, 8192, 8192}, {4096, 12288, 4096}, {4096, 4096, 16384}, {8192, 4096, 1024},
          {2048, 8192, 2048}, {1024, 4096, 4096},  {128, 4096, 4096},   {16384, 2048, 512}};
}

// Skinny, odd and huge shapes; grids of 128 x 256 tiles that fill the multiprocessors exactly once, and one row more.
Shapes edge_shapes(int multiprocessors) {
  constexpr int kTileRows = 128;
  constexpr int kColumns = 512;  // two tiles
  constexpr int kDepth = 2048;
  const int wave = kTileRows * std::max(1, multiprocessors / 2);
  return {
      {128, 128, 128},      {128, 128, 16384},     {16384, 128, 4096},         {128, 16384, 1024},
      {512, 512, 512},      {256, 8192, 8192},     {2056, 3080, 1544},         {1000, 5000, 3000},
      {520, 1032, 8200},    {4096, 1024, 8192},    {wave, kColumns, kDepth},   {wave + kTileRows, kColumns, kDepth},
      {16384, 4096, 16384}, {16384, 16384, 16384}, {2 * wave, kColumns, 1024}, {2 * wave + kTileRows, kColumns, 1024}};
}

// Input and weight gradients of linears with the rows of activations first.
Shapes layout_shapes() {
  return {{4096, 4096, 4096}, {8192, 8192, 2048}, {2048, 8192, 2048},  {4096, 4096, 12288},
          {1024, 1024, 8192}, {512, 2048, 4096},  {4096, 1024, 16384}, {256, 4096, 1024}};
}

// Enough shapes to fit each further precision.
Shapes precision_shapes() {
  return {{512, 512, 512},     {1024, 1024, 1024},  {2048, 2048, 2048}, {4096, 4096, 4096}, {8192, 8192, 8192},
          {4096, 12288, 4096}, {4096, 4096, 16384}, {256, 4096, 4096},  {2048, 8192, 512}};
}

Keys basics(const GpuSet& set) {
  Keys keys;
  keys.push_back(moved(SampleKind::kLaunch, {}, 0.0));
  keys.push_back(moved(SampleKind::kHostDispatch, {}, 0.0));
  for (SampleKey& key : keys) key.bytes.reset();
  add_sizes(keys, SampleKind::kMemoryCopy, {}, growing_sizes(256 * kKibibyte, set.quick ? 1 * kGib : 4 * kGib, 4.0));
  add_products(keys, training_shapes(), "bf16");
  return keys;
}

Keys memory_kernels(const GpuSet& set) {
  const std::vector<double> all = set.quick ? growing_sizes(4 * kWholeRows, 144 * kWholeRows, 6.0)
                                            : growing_sizes(kWholeRows, 256 * kWholeRows, 4.0);
  Keys keys;
  for (const char* op : {"layernorm forward", "layernorm backward"}) add_sizes(keys, SampleKind::kNorm, op, all);
  for (const char* op : {"gelu", "gelu backward", "add", "to bf16"}) add_sizes(keys, SampleKind::kElementwise, op, all);
  for (const char* op : {"adam", "sgd"}) add_sizes(keys, SampleKind::kOptimizerStep, op, all);
  const std::vector<double> copies = growing_sizes(kMebibyte, 256 * kMebibyte, 4.0);
  for (const char* op : {"to device", "to host"}) add_sizes(keys, SampleKind::kHostCopy, op, copies);
  return keys;
}

Keys messages(const GpuSet& set, const GpuFacts& facts) {
  Keys keys;
  if (facts.gpus < 2) return keys;
  std::vector<int> groups = set.ranks;
  if (groups.empty()) groups = facts.gpus == 2 ? std::vector<int>{2} : std::vector<int>{2, facts.gpus};
  const std::vector<double> all =
      growing_sizes(kKibibyte, set.quick ? 64 * kMebibyte : 1 * kGib, set.quick ? 8.0 : 4.0);
  for (const int ranks : groups) {
    for (const SampleKind kind :
         {SampleKind::kPointToPoint, sample_of(CollectiveKind::kAllReduce), sample_of(CollectiveKind::kAllGather),
          sample_of(CollectiveKind::kReduceScatter), sample_of(CollectiveKind::kAllToAll)}) {
      const bool pair = kind == SampleKind::kPointToPoint;
      if (pair && ranks != groups.front()) continue;  // two ranks, whatever the groups
      for (const double bytes : all) {
        SampleKey key = moved(kind, {}, bytes);
        key.ranks = pair ? 2 : ranks;
        key.dtype = pair ? "" : "fp32";
        keys.push_back(key);
      }
    }
  }
  return keys;
}

Keys layouts(const GpuSet& set, const GpuFacts& facts) {
  Keys keys;
  if (!set.quick) add_products(keys, edge_shapes(facts.multiprocessors), "bf16");
  for (const char* op : {"dgrad", "wgrad"}) add_products(keys, layout_shapes(), "bf16", op);
  return keys;
}

// Each alone and overlapped with the other, for every number of channels. With several GPUs, also an all-reduce between
// them.
Keys overlaps(const GpuSet& set, const GpuFacts& facts) {
  constexpr double kCopied = 256 * kMebibyte;
  const Shapes shapes = set.quick ? Shapes{{4096, 4096, 4096}} : Shapes{{4096, 4096, 4096}, {8192, 8192, 8192}};
  Keys keys;
  for (const int channels : set.quick ? std::vector<int>{2, 8, 24} : std::vector<int>{1, 2, 4, 8, 16, 24, 32}) {
    for (const SampleKind kind : {SampleKind::kChannelCopy, sample_of(CollectiveKind::kAllReduce)}) {
      const bool message = kind == sample_of(CollectiveKind::kAllReduce);
      if (message && facts.gpus < 2) continue;
      SampleKey traffic = moved(kind, {}, kCopied);
      traffic.channels = channels;
      if (message) traffic.ranks = facts.gpus;
      if (message) traffic.dtype = "fp32";
      keys.push_back(traffic);
      traffic.beside = SampleKind::kGemm;
      keys.push_back(traffic);
      for (const SampleShape& shape : shapes) {
        SampleKey slowed = product(shape, "bf16", {});
        slowed.beside = kind;
        slowed.channels = channels;
        keys.push_back(slowed);
      }
    }
  }
  return keys;
}

Keys other_precisions(const GpuSet& set, const GpuFacts& facts) {
  Keys keys;
  add_products(keys, precision_shapes(), "tf32");
  add_products(keys, precision_shapes(), "fp16");
  if (facts.compute_capability >= kFirstWithFp8) add_products(keys, precision_shapes(), "fp8");
  const std::vector<double> all = growing_sizes(4 * kWholeRows, 144 * kWholeRows, set.quick ? 6.0 : 3.0);
  for (const char* op : {"forward", "backward"}) {
    add_sizes(keys, SampleKind::kEmbedding, op, all);
    add_sizes(keys, SampleKind::kLoss, op, all);
  }
  return keys;
}

Keys least_important(const GpuSet& set) {
  Keys keys;
  for (const int head_dim : {64, 128}) {
    for (const int sequence : {512, 1024, 2048, 4096}) {
      for (const SampleKind kind : {SampleKind::kAttentionForward, SampleKind::kAttentionBackward}) {
        SampleKey key;
        key.kind = kind;
        key.attention = AttentionShape{2, 16, sequence, head_dim, true};
        key.dtype = "fp32";
        key.op = kOwnKernel;
        keys.push_back(key);
      }
    }
  }
  if (set.quick) return keys;
  for (const char* dtype : {"tf32", "fp16"}) {
    for (const char* op : {"dgrad", "wgrad"}) add_products(keys, layout_shapes(), dtype, op);
  }
  return keys;
}

double element_bytes(const std::string& dtype) {
  return dtype == "fp8" ? 1.0 : dtype == "fp16" || dtype == "bf16" ? 2.0 : 4.0;
}

}  // namespace

double buffer_bytes(const SampleKey& key) {
  if (key.shape) {
    const double m = key.shape->m;
    const double n = key.shape->n;
    const double k = key.shape->k;
    constexpr double kWidest = 4.0;  // result element
    return element_bytes(key.dtype) * (m * k + k * n) + kWidest * m * n;
  }
  if (key.attention) {
    const AttentionShape& shape = *key.attention;
    constexpr double kTensors = 9.0;  // queries, keys and values, their gradients, the output and its gradient, sums
    return kTensors * sizeof(float) * static_cast<double>(shape.batch) * shape.sequence * shape.heads * shape.head_dim;
  }
  return key.bytes.value_or(0.0);
}

std::vector<SampleKey> gpu_samples(const GpuSet& set, const GpuFacts& facts) {
  std::vector<Keys> groups = {basics(set), memory_kernels(set), layouts(set, facts), other_precisions(set, facts),
                              least_important(set)};
  const auto append = [](Keys& keys, const Keys& more) { keys.insert(keys.end(), more.begin(), more.end()); };
  append(groups[1], messages(set, facts));
  append(groups[2], overlaps(set, facts));
  Keys all;
  for (const Keys& group : groups) {
    for (int pass = 1; pass <= kGpuPasses; ++pass) {
      for (SampleKey key : group) {
        key.pass = pass;
        if (buffer_bytes(key) <= facts.workspace_bytes) all.push_back(std::move(key));
      }
    }
  }
  return all;
}

namespace {

constexpr int kMostTimes = 100;
constexpr int kMostNeighbours = 4096;

// Long enough that the resolution of events, and the start and end of concurrent work, are negligible.
double batch_seconds(const SampleKey& key) {
  return key.beside ? 2e-3 : 2e-4;
}

int times_of(const SampleKey& key, double single) {
  if (key.kind == SampleKind::kLaunch || key.kind == SampleKind::kHostDispatch) return kMostTimes;
  const double wanted = std::ceil(batch_seconds(key) / std::max(single, 1e-9));
  return static_cast<int>(std::clamp(wanted, 1.0, static_cast<double>(kMostTimes)));
}

/// A work with enough neighbours to outlast its batch.
class Batch {
 public:
  Batch(const SampleKey& key, QueuedWork& work) : of_host_(key.kind == SampleKind::kHostDispatch), work_(work) {
    work_.run(1, 1);  // libraries load their kernels at the first call
    times_ = times_of(key, work_.run(1, 1).device_s);
    run();
  }

  double run() {
    while (true) {
      const QueuedTime time = work_.run(times_, neighbours_);
      if (!time.host_ahead && !of_host_) {
        if (times_ == 1) throw EnvironmentError("the host takes longer to queue it than the GPU to run it");
        times_ = (times_ + 1) / 2;
        continue;
      }
      if (time.covered) return (of_host_ ? time.host_s : time.device_s) / times_;
      if (neighbours_ >= kMostNeighbours) {
        throw EnvironmentError("the concurrent work ends first, even if queued repeatedly");
      }
      neighbours_ *= 2;
    }
  }

 private:
  bool of_host_;
  QueuedWork& work_;
  int times_ = 1;
  int neighbours_ = 1;
};

// "gemm bf16 (dgrad) overlapped with channel_copy": name shared by a group of samples, as in profiles.
std::string group_of(const SampleKey& key) {
  std::string words(name_of(key.kind));
  if (!key.op.empty()) words += fmt::format(" ({})", key.op);
  if (!key.dtype.empty()) words += " " + key.dtype;
  if (key.ranks > 1) words += fmt::format(", {} ranks", key.ranks);
  if (key.beside) words += fmt::format(" overlapped with {}", name_of(*key.beside));
  return words;
}

/// "12 of gemm fp8 (dgrad)", ordered by first occurrence.
class CountedPhrases {
 public:
  void add(const std::string& phrase) {
    if (counts_[phrase]++ == 0) order_.push_back(phrase);
  }
  std::vector<std::string> phrases() const {
    std::vector<std::string> all;
    for (const std::string& phrase : order_) all.push_back(fmt::format("{} of {}", counts_.at(phrase), phrase));
    return all;
  }

 private:
  std::map<std::string, int> counts_;
  std::vector<std::string> order_;
};

class Calibrator {
 public:
  Calibrator(const GpuSet& set, MeasuredGpu& gpu, const std::function<double()>& seconds, MeasurementFile& file,
             const ShowProgress& show)
      : set_(set), gpu_(gpu), seconds_(seconds), file_(file), show_(show), keys_(gpu_samples(set, gpu.facts())) {}

  GpuOutcome run() {
    begin_ = seconds_();
    if (std::all_of(keys_.begin(), keys_.end(), [this](const SampleKey& key) { return file_.has(key); })) {
      file_.clear_samples();
    }
    measure_missing();
    // Only samples refused earlier are missing: the previous run had also finished.
    if (outcome_.measured == 0 && outcome_.no_time.empty() && !file_.measurement().samples.empty()) {
      file_.clear_samples();
      outcome_ = {};
      measure_missing();
    }
    return outcome_;
  }

 private:
  void measure_missing() {
    CountedPhrases late;
    CountedPhrases refusals;
    std::set<std::string> refused;
    for (std::size_t index = 0; index < keys_.size(); ++index) {
      const SampleKey& key = keys_[index];
      if (file_.has(key) || refused.count(key.text_without_pass()) > 0) continue;
      if (seconds_() - begin_ >= set_.seconds) {
        late.add(group_of(key));
        continue;
      }
      show_(index, keys_.size(), key);
      warm_up();
      PreparedWork prepared = gpu_.prepare(key);
      const std::optional<Sample> sample = measure(key, prepared);
      if (sample) {
        file_.append(*sample);
        ++outcome_.measured;
      } else {
        refused.insert(key.text_without_pass());
        refusals.add(fmt::format("{}: {}", group_of(key), prepared.refusal));
      }
    }
    outcome_.no_time = late.phrases();
    outcome_.refused = refusals.phrases();
  }

  // Absent if the GPU cannot run it, with the reason in `prepared`. A GPU that no longer works is reported when the
  // next sample is prepared.
  std::optional<Sample> measure(const SampleKey& key, PreparedWork& prepared) const {
    if (prepared.work == nullptr) return std::nullopt;
    try {
      return measure_work(key, set_.quick, seconds_, *prepared.work);
    } catch (const EnvironmentError& error) {
      const std::string reason = error.what();
      prepared.refusal = reason.substr(0, reason.find('\n'));
      return std::nullopt;
    }
  }

  // An idle GPU runs at a fraction of its clock rate, and takes time to ramp up.
  void warm_up() {
    if (warm_) return;
    warm_ = true;
    const auto large = std::find_if(keys_.begin(), keys_.end(), [](const SampleKey& key) {
      constexpr int kLarge = 2048;
      return key.shape && std::min({key.shape->m, key.shape->n, key.shape->k}) >= kLarge;
    });
    if (large == keys_.end()) return;
    const PreparedWork prepared = gpu_.prepare(*large);
    if (prepared.work == nullptr) return;
    constexpr int kTimes = 20;
    const double begin = seconds_();
    while (seconds_() - begin < (set_.quick ? 0.3 : 1.0)) prepared.work->run(kTimes, 1);
  }

  const GpuSet& set_;
  MeasuredGpu& gpu_;
  const std::function<double()>& seconds_;
  MeasurementFile& file_;
  const ShowProgress& show_;
  std::vector<SampleKey> keys_;
  double begin_ = 0.0;
  bool warm_ = false;
  GpuOutcome outcome_;
};

}  // namespace

Sample measure_work(const SampleKey& key, bool quick, const std::function<double()>& seconds, QueuedWork& work) {
  const int fewest = quick ? 5 : 11;
  const int most = quick ? 15 : 50;
  const double enough = quick ? 0.02 : 0.1;
  constexpr double kLong = 1.0;  // a message of a gigabyte over slow links
  constexpr int kFewestOfAll = 3;
  Sample sample;
  sample.key = key;
  Batch batch(key, work);
  const double begin = seconds();
  for (int round = 0; round < most; ++round) {
    sample.seconds.push_back(batch.run());
    const double passed = seconds() - begin;
    if (passed >= (round + 1 >= fewest ? enough : kLong) && round + 1 >= kFewestOfAll) break;
  }
  return sample;
}

GpuOutcome measure_gpu(const GpuSet& set, MeasuredGpu& gpu, const std::function<double()>& seconds,
                       MeasurementFile& file, const ShowProgress& show) {
  return Calibrator(set, gpu, seconds, file, show).run();
}

Measurement describe_gpu(const GpuFacts& facts, const Measurement& host) {
  Measurement about;
  about.device = facts.name;
  about.multiprocessors = facts.multiprocessors;
  about.memory_bytes = facts.memory_bytes;
  about.host = host.host;
  about.date = host.date;
  about.libraries = facts.libraries;
  about.clocks_mhz = facts.clocks_mhz;
  return about;
}

}  // namespace flopcast
