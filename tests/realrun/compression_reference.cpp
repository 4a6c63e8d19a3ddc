#include "tests/realrun/compression_reference.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "realrun/network/layer.hpp"

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

LowRankSum::LowRankSum(std::size_t rows, std::size_t columns, int rank, std::size_t replicas)
    : rows_(rows), columns_(columns), kept_(replicas, std::vector<double>(rows * columns)) {
  const auto width = static_cast<std::size_t>(rank);
  for (std::size_t column = 0; column < width; ++column) {
    std::vector<double> values;
    for (std::size_t row = 0; row < columns; ++row) {
      values.push_back(static_cast<double>(mix(row * width + column) >> 11U) * 0x1p-52 - 1.0);
    }
    right_.push_back(values);
  }
}

Values LowRankSum::operator()(const std::vector<Values>& gradients) {
  for (std::size_t replica = 0; replica < kept_.size(); ++replica) {
    for (std::size_t index = 0; index < rows_ * columns_; ++index) {
      kept_[replica][index] += static_cast<double>(gradients[replica][index]);
    }
  }
  Matrix left;
  for (const std::vector<double>& column : right_) {
    std::vector<double> image(rows_);
    for (const std::vector<double>& kept : kept_) {
      for (std::size_t index = 0; index < kept.size(); ++index) {
        image[index / columns_] += kept[index] * column[index % columns_];
      }
    }
    for (int round = 0; round < 2; ++round) {
      for (const std::vector<double>& before : left) {
        const double along = std::inner_product(image.begin(), image.end(), before.begin(), 0.0);
        for (std::size_t row = 0; row < rows_; ++row) image[row] -= along * before[row];
      }
    }
    const double length = std::sqrt(std::inner_product(image.begin(), image.end(), image.begin(), 0.0));
    for (double& value : image) value /= length;
    left.push_back(image);
  }
  Values sum(rows_ * columns_);
  std::vector<double> total(sum.size());
  for (std::size_t column = 0; column < left.size(); ++column) right_[column].assign(columns_, 0.0);
  for (std::vector<double>& kept : kept_) {
    const std::vector<double> whole = kept;
    for (std::size_t column = 0; column < left.size(); ++column) {
      std::vector<double> right(columns_);
      for (std::size_t index = 0; index < whole.size(); ++index) {
        right[index % columns_] += whole[index] * left[column][index / columns_];
      }
      for (std::size_t index = 0; index < whole.size(); ++index) {
        const double said = left[column][index / columns_] * right[index % columns_];
        kept[index] -= said;
        total[index] += said;
      }
      for (std::size_t row = 0; row < columns_; ++row) right_[column][row] += right[row];
    }
  }
  for (std::size_t index = 0; index < sum.size(); ++index) sum[index] = static_cast<float>(total[index]);
  return sum;
}

}  // namespace flopcast::realrun
