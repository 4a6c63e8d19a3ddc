#include "realrun/measure/measure_cpu.hpp"

#include <algorithm>
#include <cstddef>

#include "realrun/measure/thread_ranks.hpp"

namespace flopcast {

namespace {

constexpr int kPasses = 2;
constexpr double kKib = 1024.0;
constexpr double kMib = kKib * kKib;
const char* const kDtype = "fp32";

std::vector<SampleShape> shapes(bool quick) {
  std::vector<SampleShape> all = {{32, 32, 32},    {64, 64, 64},    {128, 128, 128}, {256, 256, 256}, {48, 192, 96},
                                  {16, 256, 256},  {256, 16, 256},  {256, 256, 16},  {32, 512, 512},  {384, 128, 256},
                                  {512, 512, 128}, {128, 512, 512}, {100, 300, 200}, {512, 512, 512}};
  if (quick) return all;
  for (const SampleShape& more : {SampleShape{8, 1024, 1024},
                                  {32, 1024, 1024},
                                  {128, 1024, 1024},
                                  {1024, 128, 1024},
                                  {1024, 1024, 128},
                                  {1024, 1024, 1024},
                                  {256, 1024, 256},
                                  {256, 256, 1024},
                                  {1024, 256, 256},
                                  {96, 96, 96},
                                  {192, 192, 192},
                                  {384, 384, 384},
                                  {64, 768, 768},
                                  {768, 64, 768},
                                  {768, 768, 64},
                                  {768, 768, 768},
                                  {200, 700, 500}}) {
    all.push_back(more);
  }
  return all;
}

std::vector<double> sizes(double from, double to, double factor) {
  std::vector<double> all;
  for (double size = from; size <= to; size *= factor) all.push_back(size);
  return all;
}

}  // namespace

std::vector<SampleKey> cpu_samples(const CpuSet& set) {
  constexpr double kFactor = 2.0;
  std::vector<SampleKey> keys;
  for (int pass = 1; pass <= kPasses; ++pass) {
    for (const SampleShape& shape : shapes(set.quick)) {
      keys.push_back({SampleKind::kGemm, shape, std::nullopt, 1, 1, kDtype, pass});
    }
    for (const double bytes : sizes(64 * kKib, set.quick ? 128 * kMib : 512 * kMib, kFactor)) {
      keys.push_back({SampleKind::kMemoryCopy, std::nullopt, bytes, 1, 1, "", pass});
    }
    const std::vector<double> messages = sizes(kKib, set.quick ? 4 * kMib : 32 * kMib, kFactor);
    for (const double bytes : messages) {
      keys.push_back({SampleKind::kPointToPoint, std::nullopt, bytes, 2, 1, "", pass});
    }
    for (const int ranks : set.ranks) {
      for (const SampleKind kind : {SampleKind::kAllReduce, SampleKind::kAllGather, SampleKind::kReduceScatter}) {
        for (const double bytes : messages) keys.push_back({kind, std::nullopt, bytes, ranks, 1, kDtype, pass});
      }
    }
  }
  return keys;
}

MeasuredHost this_host() {
  return {machine_clock(), host_work, run_thread_ranks};
}

void measure_cpu(const CpuSet& set, const MeasuredHost& host, MeasurementFile& file, const ShowProgress& show) {
  Repetitions repetitions;
  if (set.quick) repetitions = {5, 200, 0.03};
  const std::vector<SampleKey> keys = cpu_samples(set);
  if (std::all_of(keys.begin(), keys.end(), [&file](const SampleKey& key) { return file.has(key); })) file.begin_anew();
  for (std::size_t index = 0; index < keys.size(); ++index) {
    const SampleKey& key = keys[index];
    if (file.has(key)) continue;
    show(index, keys.size(), key);
    const bool alone = key.kind == SampleKind::kGemm || key.kind == SampleKind::kMemoryCopy;
    file.append(alone ? measure_compute(key, repetitions, host.clock, host.work(key))
                      : measure_message(key, host.run, host.clock, set.quick));
  }
}

}  // namespace flopcast
