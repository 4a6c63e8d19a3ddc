#include "realrun/measure/measure_compute.hpp"

#include <cstddef>
#include <cstring>
#include <functional>
#include <vector>

#include "model/error/error.hpp"
#include "realrun/measure/product.hpp"

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
  return [shape, a = numbers(m * k), b = numbers(k * n), c = std::vector<float>(m * n)]() mutable {
    multiply(a.data(), b.data(), c.data(), shape.m, shape.n, shape.k);
  };
}

// Half of the bytes are read, half are written.
Work copy_work(double bytes) {
  const std::size_t size = static_cast<std::size_t>(bytes / 2.0);
  return [from = std::vector<char>(size, 1), to = std::vector<char>(size, 0)]() mutable {
    std::memcpy(to.data(), from.data(), to.size());
    // The copy must happen although nobody looks at it.
    asm volatile("" : : "r"(to.data()) : "memory");
  };
}

}  // namespace

Work host_work(const SampleKey& key) {
  if (key.kind == SampleKind::kGemm) return product_work(*key.shape);
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

}  // namespace flopcast
