#include "realrun/measure/measure_cpu.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/compute/host_device.hpp"
#include "realrun/device/arithmetic.hpp"
#include "realrun/network/kernels.hpp"

namespace flopcast {

namespace {

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  constexpr std::size_t kPeriod = 97;
  for (std::size_t index = 0; index < count; ++index) {
    values[index] = static_cast<float>(index % kPeriod) / static_cast<float>(kPeriod) - 0.5F;
  }
  return values;
}

Work product_work(const SampleShape& shape) {
  const std::size_t m = static_cast<std::size_t>(shape.m);
  const std::size_t n = static_cast<std::size_t>(shape.n);
  const std::size_t k = static_cast<std::size_t>(shape.k);
  return [m, n, k, a = numbers(m * k), b = numbers(k * n), c = std::vector<float>(m * n)]() mutable {
    realrun::multiply<float>({a.data(), m, k, k}, {b.data(), k, n, n}, {c.data(), m, n, n});
  };
}

// Half of the bytes are read, half are written.
Work copy_work(double bytes) {
  const std::size_t size = static_cast<std::size_t>(bytes / 2.0);
  return [from = std::vector<char>(size, 1), to = std::vector<char>(size, 0)]() mutable {
    std::memcpy(to.data(), from.data(), to.size());
    // Keeps the compiler from removing the unused copy.
    asm volatile("" : : "r"(to.data()) : "memory");
  };
}

// Reads weights, gradient and moments; writes weights and moments.
Work adam_work(double bytes) {
  const realrun::UpdateRule rule;
  const auto moved = static_cast<std::size_t>(3 + 2 * rule.states()) * sizeof(float);
  const auto filled = [count = static_cast<std::size_t>(bytes) / moved] {
    const std::vector<float> values = numbers(count);
    realrun::Buffer buffer = realrun::allocate_host(count * sizeof(float));
    std::memcpy(buffer.address(), values.data(), buffer.bytes());
    return buffer;
  };
  // Zeros from allocate_host use no memory until they are written: the warm-up writes the second moment.
  const realrun::Buffer weights = filled();
  const std::vector<realrun::Buffer> moments = {filled(), realrun::allocate_host(weights.bytes())};
  return [rule, weights, gradients = filled(), moments] {
    constexpr int kStep = 100;
    realrun::HostDevice().optimize(rule, kStep, weights, gradients, moments, weights);
  };
}

}  // namespace

Work host_work(const SampleKey& key) {
  if (key.kind == SampleKind::kGemm) return product_work(*key.shape);
  if (key.kind == SampleKind::kOptimizerStep) return adam_work(*key.bytes);
  FLOPCAST_CHECK(key.kind == SampleKind::kMemoryCopy);
  return copy_work(*key.bytes);
}

Sample measure_compute(const SampleKey& key, const Repetitions& repetitions, const Clock& clock, const Work& work) {
  constexpr int kWarmUp = 2;
  for (int round = 0; round < kWarmUp; ++round) work();
  Sample sample;
  sample.key = key;
  const double processor = clock.processor();
  const double begin = clock.wall();
  for (int round = 0; round < repetitions.most; ++round) {
    const double start = clock.wall();
    work();
    const double end = clock.wall();
    sample.seconds.push_back(end - start);
    if (round + 1 >= repetitions.fewest && end - begin >= repetitions.seconds) break;
  }
  sample.processor_seconds = clock.processor() - processor;
  return sample;
}

namespace {

int repetitions_of(std::size_t bytes, bool quick) {
  constexpr std::size_t kKib = 1024;
  const int usual = bytes <= 4 * kKib ? 200 : bytes <= 256 * kKib ? 60 : bytes <= 4 * kKib * kKib ? 20 : 9;
  constexpr int kFewest = 5;
  return quick ? std::max(kFewest, usual / 4) : usual;
}

double ping_pong(MeasuredRank& rank, const Clock& clock, std::size_t bytes) {
  const double start = clock.wall();
  if (rank.rank() == 0) {
    rank.send(1, bytes);
    rank.receive(1, bytes);
  } else if (rank.rank() == 1) {
    rank.receive(0, bytes);
    rank.send(0, bytes);
  }
  return 0.5 * (clock.wall() - start);
}

double from_barrier(MeasuredRank& rank, const Clock& clock, SampleKind kind, std::size_t bytes) {
  rank.barrier();
  const double start = clock.wall();
  rank.collective(kind, bytes);
  return clock.wall() - start;
}

}  // namespace

Sample measure_message(const SampleKey& key, const RunRanks& run, const Clock& clock, bool quick) {
  const std::size_t bytes = static_cast<std::size_t>(*key.bytes);
  const int repetitions = repetitions_of(bytes, quick);
  constexpr int kWarmUp = 3;
  Sample sample;
  sample.key = key;
  run(key.ranks, bytes, [&](MeasuredRank& rank) {
    for (int round = -kWarmUp; round < repetitions; ++round) {
      const bool message = key.kind == SampleKind::kPointToPoint;
      const double own = message ? ping_pong(rank, clock, bytes) : from_barrier(rank, clock, key.kind, bytes);
      const double time = message ? own : rank.largest(own);
      if (rank.rank() == 0 && round >= 0) sample.seconds.push_back(time);
    }
  });
  return sample;
}

namespace {

constexpr int kPasses = 2;
constexpr double kKib = 1024.0;
constexpr double kMib = kKib * kKib;
const char* const kDtype = "fp32";

std::vector<SampleShape> shapes(bool quick) {
  std::vector<SampleShape> all = {{32, 32, 32},    {64, 64, 64},    {128, 128, 128}, {256, 256, 256}, {48, 192, 96},
                                  {16, 256, 256},  {256, 16, 256},  {256, 256, 16},  {32, 512, 512},  {384, 128, 256},
                                  {512, 512, 128}, {128, 512, 512}, {100, 300, 200}, {512, 512, 512}};
  const std::vector<SampleShape> more = {
      {8, 1024, 1024},  {32, 1024, 1024}, {128, 1024, 1024}, {1024, 128, 1024}, {1024, 1024, 128}, {1024, 1024, 1024},
      {256, 1024, 256}, {256, 256, 1024}, {1024, 256, 256},  {96, 96, 96},      {192, 192, 192},   {384, 384, 384},
      {64, 768, 768},   {768, 64, 768},   {768, 768, 64},    {768, 768, 768},   {200, 700, 500}};
  if (!quick) all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

std::vector<double> growing_sizes(double from, double to, double factor) {
  std::vector<double> all;
  for (double size = from; size <= to; size *= factor) all.push_back(size);
  return all;
}

std::vector<SampleKey> cpu_samples(const CpuSet& set) {
  constexpr double kFactor = 2.0;
  std::vector<SampleKey> keys;
  for (int pass = 1; pass <= kPasses; ++pass) {
    for (const SampleShape& shape : shapes(set.quick)) {
      keys.push_back({SampleKind::kGemm, shape, std::nullopt, 1, 1, kDtype, pass});
    }
    for (const double bytes : growing_sizes(64 * kKib, set.quick ? 128 * kMib : 512 * kMib, kFactor)) {
      keys.push_back({SampleKind::kMemoryCopy, std::nullopt, bytes, 1, 1, "", pass});
    }
    for (const double bytes : growing_sizes(8 * kMib, set.quick ? 64 * kMib : 256 * kMib, kFactor)) {
      SampleKey adam{SampleKind::kOptimizerStep, std::nullopt, bytes, 1, 1, "", pass};
      adam.op = "adam";
      keys.push_back(std::move(adam));
    }
    const std::vector<double> messages = growing_sizes(kKib, set.quick ? 4 * kMib : 32 * kMib, kFactor);
    for (const double bytes : messages) {
      keys.push_back({SampleKind::kPointToPoint, std::nullopt, bytes, 2, 1, "", pass});
    }
    for (const int ranks : set.ranks) {
      for (const SampleKind kind : {sample_of(CollectiveKind::kAllReduce), sample_of(CollectiveKind::kAllGather),
                                    sample_of(CollectiveKind::kReduceScatter)}) {
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
  if (std::all_of(keys.begin(), keys.end(), [&file](const SampleKey& key) { return file.has(key); }))
    file.clear_samples();
  for (std::size_t index = 0; index < keys.size(); ++index) {
    const SampleKey& key = keys[index];
    if (file.has(key)) continue;
    show(index, keys.size(), key);
    file.append(!is_message(key.kind) ? measure_compute(key, repetitions, host.clock, host.work(key))
                                      : measure_message(key, host.run, host.clock, set.quick));
  }
}

}  // namespace flopcast
