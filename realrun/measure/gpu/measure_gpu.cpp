#include "realrun/measure/gpu/measure_gpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "model/error/error.hpp"

namespace flopcast {

namespace {

constexpr int kMostTimes = 100;
constexpr int kMostNeighbours = 4096;

// Long enough that events, and the begin and end of what runs beside it, weigh nothing.
double batch_seconds(const SampleKey& key) {
  return key.beside ? 2e-3 : 2e-4;
}

int times_of(const SampleKey& key, double single) {
  if (key.kind == SampleKind::kLaunch || key.kind == SampleKind::kHostDispatch) return kMostTimes;
  const double wanted = std::ceil(batch_seconds(key) / std::max(single, 1e-9));
  return static_cast<int>(std::clamp(wanted, 1.0, static_cast<double>(kMostTimes)));
}

/// A work with as many neighbours as outlast its batch.
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
        if (times_ == 1) throw EnvironmentError("the host takes longer to queue it than the GPU to do it");
        times_ = (times_ + 1) / 2;
        continue;
      }
      if (time.covered) return (of_host_ ? time.host_s : time.device_s) / times_;
      if (neighbours_ >= kMostNeighbours) {
        throw EnvironmentError("what runs beside it ends first, however often it is queued");
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

// "gemm bf16 (dgrad) beside channel_copy": samples that are named together.
std::string group_of(const SampleKey& key) {
  std::string words(name_of(key.kind));
  if (!key.op.empty()) words += fmt::format(" ({})", key.op);
  if (!key.dtype.empty()) words += " " + key.dtype;
  if (key.ranks > 1) words += fmt::format(", {} ranks", key.ranks);
  if (key.beside) words += fmt::format(" beside {}", name_of(*key.beside));
  return words;
}

/// "12 of gemm fp8 (dgrad)", in the order of the first of each.
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
             const ShowGpuProgress& show)
      : set_(set), gpu_(gpu), seconds_(seconds), file_(file), show_(show), keys_(gpu_samples(set, gpu.facts())) {}

  GpuOutcome run() {
    begin_ = seconds_();
    if (std::all_of(keys_.begin(), keys_.end(), [this](const SampleKey& key) { return file_.has(key); })) {
      file_.begin_anew();
    }
    measure_missing();
    // Nothing but what was refused before: the run before had finished too.
    if (outcome_.measured == 0 && outcome_.no_time.empty() && !file_.measurement().samples.empty()) {
      file_.begin_anew();
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

  // Absent, with the reason in `prepared`, where the GPU cannot. One that does not work any more says so when the next
  // sample is prepared.
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

  // An idle GPU runs at a fraction of its clock, and takes a while to leave that.
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
  const ShowGpuProgress& show_;
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
  constexpr double kLong = 1.0;  // a message of a gigabyte between slow links
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
                       MeasurementFile& file, const ShowGpuProgress& show) {
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
