#include "tests/realrun/compression_reference.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace flopcast::realrun {

Compression quantized(int bits) {
  return {.kind = Compression::Kind::kQuantized, .bits = bits};
}

Compression top(double fraction) {
  return {.kind = Compression::Kind::kTopK, .fraction = fraction};
}

namespace {

// Blocks of 512: each value becomes the nearest multiple of the block's largest magnitude / 127 (/ 7).
Values rounded(const Values& values, int bits) {
  const float steps = bits == 8 ? 127.0F : 7.0F;
  Values result;
  for (std::size_t start = 0; start < values.size(); start += 512) {
    const std::size_t end = std::min(values.size(), start + 512);
    float peak = 0;
    for (std::size_t index = start; index < end; ++index) peak = std::max(peak, std::abs(values[index]));
    for (std::size_t index = start; index < end; ++index) {
      const float scale = peak / steps;
      result.push_back(scale == 0 ? 0 : scale * std::rint(values[index] / scale));
    }
  }
  return result;
}

void add_to(Values& sum, const Values& values) {
  for (std::size_t index = 0; index < sum.size(); ++index) sum[index] += values[index];
}

}  // namespace

Values quantized_sum(const std::vector<Values>& gradients, int bits) {
  const std::size_t count = gradients.front().size();
  const std::size_t part = (count + gradients.size() - 1) / gradients.size();
  Values result;
  for (std::size_t start = 0; start < count; start += part) {
    const std::size_t end = std::min(count, start + part);
    Values sum(end - start);
    for (const Values& replica : gradients) {
      add_to(sum, rounded({replica.begin() + static_cast<std::ptrdiff_t>(start),
                           replica.begin() + static_cast<std::ptrdiff_t>(end)},
                          bits));
    }
    for (const float value : rounded(sum, bits)) result.push_back(value);
  }
  return result;
}

Values sparse_sum(const std::vector<Values>& gradients, std::vector<Values>& kept, double fraction) {
  const std::size_t count = gradients.front().size();
  Values sum(count);
  for (std::size_t replica = 0; replica < gradients.size(); ++replica) {
    Values& rest = kept[replica];
    rest.resize(count);
    add_to(rest, gradients[replica]);
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return std::abs(rest[a]) > std::abs(rest[b]); });
    order.resize(static_cast<std::size_t>(std::ceil(static_cast<double>(count) * fraction)));
    for (const std::size_t place : order) sum[place] += std::exchange(rest[place], 0.0F);
  }
  return sum;
}

}  // namespace flopcast::realrun
