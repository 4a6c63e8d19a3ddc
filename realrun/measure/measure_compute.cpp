#include "realrun/measure/measure_compute.hpp"

#include <cstddef>
#include <cstring>
#include <functional>
#include <vector>

#include "model/error/error.hpp"
#include "realrun/measure/clock.hpp"
#include "realrun/measure/product.hpp"

namespace flopcast {

namespace {

Sample timed(const SampleKey& key, const Repetitions& repetitions, const std::function<void()>& work) {
  constexpr int kWarmUp = 2;
  for (int round = 0; round < kWarmUp; ++round) work();
  Sample sample;
  sample.key = key;
  const double processor = processor_seconds();
  const double begin = wall_seconds();
  for (int round = 0; round < repetitions.most; ++round) {
    const double start = wall_seconds();
    work();
    const double end = wall_seconds();
    sample.seconds.push_back(end - start);
    if (round + 1 >= repetitions.fewest && end - begin >= repetitions.seconds) break;
  }
  sample.processor_seconds = processor_seconds() - processor;
  return sample;
}

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  constexpr std::size_t kPeriod = 97;
  for (std::size_t index = 0; index < count; ++index) {
    values[index] = static_cast<float>(index % kPeriod) / static_cast<float>(kPeriod) - 0.5F;
  }
  return values;
}

Sample measure_product(const SampleKey& key, const Repetitions& repetitions) {
  const SampleShape shape = *key.shape;
  const std::size_t m = static_cast<std::size_t>(shape.m);
  const std::size_t n = static_cast<std::size_t>(shape.n);
  const std::size_t k = static_cast<std::size_t>(shape.k);
  const std::vector<float> a = numbers(m * k);
  const std::vector<float> b = numbers(k * n);
  std::vector<float> c(m * n);
  return timed(key, repetitions, [&] { multiply(a.data(), b.data(), c.data(), shape.m, shape.n, shape.k); });
}

// Half of the bytes are read, half are written.
Sample measure_copy(const SampleKey& key, const Repetitions& repetitions) {
  const std::size_t size = static_cast<std::size_t>(*key.bytes / 2.0);
  std::vector<char> from(size, 1);
  std::vector<char> to(size, 0);
  return timed(key, repetitions, [&] {
    std::memcpy(to.data(), from.data(), size);
    // The copy must happen although nobody looks at it.
    asm volatile("" : : "r"(to.data()) : "memory");
  });
}

}  // namespace

Sample measure_compute(const SampleKey& key, const Repetitions& repetitions) {
  if (key.kind == SampleKind::kGemm) return measure_product(key, repetitions);
  FLOPCAST_CHECK(key.kind == SampleKind::kMemoryCopy);
  return measure_copy(key, repetitions);
}

}  // namespace flopcast
