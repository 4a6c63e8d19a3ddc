#include "realrun/compute/host_device.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/device/device.hpp"
#include "realrun/network/kernels.hpp"
#include "realrun/network/layer.hpp"

namespace flopcast::realrun {

int UpdateRule::states() const {
  return kind == Optimizer::kSgd ? 1 : 2;
}

float* host_floats(const Buffer& buffer) {
  return reinterpret_cast<float*>(buffer.address());
}

namespace {

std::size_t float_count(const Buffer& buffer) {
  return buffer.bytes() / sizeof(float);
}

}  // namespace

void HostDevice::draw(const Draw& draw, const Buffer& to) {
  float* const values = host_floats(to);
  for (std::size_t index = 0; index < float_count(to); ++index) values[index] = draw.at(index);
}

void HostDevice::copy(const Buffer& from, const Buffer& to) {
  FLOPCAST_CHECK(from.bytes() == to.bytes());
  if (!from.empty()) std::memcpy(to.address(), from.address(), from.bytes());
}

void HostDevice::add(const Buffer& from, const Buffer& to) {
  FLOPCAST_CHECK(from.bytes() == to.bytes());
  const float* source = host_floats(from);
  float* target = host_floats(to);
  for (std::size_t index = 0; index < float_count(from); ++index) target[index] += source[index];
}

void HostDevice::optimize(const UpdateRule& rule, int step, const Buffer& weights, const Buffer& gradients,
                          const std::vector<Buffer>& states, const Buffer& updated) {
  FLOPCAST_CHECK(static_cast<int>(states.size()) == rule.states() && weights.bytes() == gradients.bytes());
  const Update update{host_floats(weights), host_floats(gradients), host_floats(updated), float_count(weights)};
  float* const first = host_floats(states[0]);
  if (rule.kind == Optimizer::kSgd) {
    for (std::size_t index = 0; index < update.count; ++index) update_by_sgd(rule, update, first, index);
    return;
  }
  const AdamStep adam(rule, step);
  float* const second = host_floats(states[1]);
  for (std::size_t index = 0; index < update.count; ++index) adam.update(update, first, second, index);
}

namespace {

constexpr std::size_t kBlock = 512;

std::size_t blocks_of(std::size_t count) {
  return (count + kBlock - 1) / kBlock;
}

// Treats NaN as infinite, so that it is not ignored.
float magnitude(float value) {
  return std::isnan(value) ? std::numeric_limits<float>::infinity() : std::abs(value);
}

class Quantizer : public GradientCodec {
 public:
  explicit Quantizer(int bits) : bits_(bits), largest_(bits == 8 ? 127.0F : 7.0F) {}

  Exchange exchange() const override { return Exchange::kByParts; }
  bool keeps_residual() const override { return false; }
  std::size_t message_bytes(std::size_t count) const override {
    return blocks_of(count) * sizeof(float) + (bits_ == 8 ? count : (count + 1) / 2);
  }

  void encode(const Buffer& values, const Buffer& residual, const Buffer& message) override {
    FLOPCAST_CHECK(residual.empty());
    const std::size_t count = float_count(values);
    const float* value = host_floats(values);
    std::uint8_t* codes = codes_of(message, count);
    // Two codes that share a byte are written separately.
    std::memset(codes, 0, message_bytes(count) - blocks_of(count) * sizeof(float));
    for (std::size_t block = 0; block < blocks_of(count); ++block) {
      const std::size_t first = block * kBlock;
      const std::size_t last = std::min(count, first + kBlock);
      float peak = 0;
      for (std::size_t index = first; index < last; ++index) peak = std::max(peak, magnitude(value[index]));
      const float scale = peak / largest_;
      std::memcpy(message.address() + block * sizeof(float), &scale, sizeof(float));
      if (scale == 0 || !std::isfinite(scale)) continue;
      for (std::size_t index = first; index < last; ++index) write(codes, index, value[index] / scale);
    }
  }

  void add_decoded(const Buffer& message, const Buffer& sum) override {
    const std::size_t count = float_count(sum);
    const std::uint8_t* codes = codes_of(message, count);
    float* total = host_floats(sum);
    float scale = 0;
    for (std::size_t index = 0; index < count; ++index) {
      if (index % kBlock == 0) {
        std::memcpy(&scale, message.address() + index / kBlock * sizeof(float), sizeof(float));
      }
      total[index] += scale * read(codes, index);  // infinity times the code 0 is not a number
    }
  }

 private:
  static std::uint8_t* codes_of(const Buffer& message, std::size_t count) {
    return reinterpret_cast<std::uint8_t*>(message.address() + blocks_of(count) * sizeof(float));
  }
  void write(std::uint8_t* codes, std::size_t index, float scaled) const {
    // A subnormal scale is so coarse that quotients may exceed the range.
    const float code = std::nearbyint(std::clamp(scaled, -largest_, largest_));
    const auto bits = static_cast<std::uint8_t>(static_cast<std::int8_t>(code));
    if (bits_ == 8) {
      codes[index] = bits;
    } else {
      const auto half = static_cast<std::uint8_t>(bits & 0xFU);
      codes[index / 2] |= static_cast<std::uint8_t>(index % 2 == 0 ? half : half << 4U);
    }
  }
  float read(const std::uint8_t* codes, std::size_t index) const {
    if (bits_ == 8) return static_cast<float>(static_cast<std::int8_t>(codes[index]));
    const unsigned half = index % 2 == 0 ? codes[index / 2] & 0xFU : codes[index / 2] >> 4U;
    return static_cast<float>(half < 8 ? static_cast<int>(half) : static_cast<int>(half) - 16);
  }

  int bits_;
  float largest_;
};

class LargestFew : public GradientCodec {
 public:
  explicit LargestFew(double fraction) : fraction_(fraction) {}

  Exchange exchange() const override { return Exchange::kGathered; }
  bool keeps_residual() const override { return true; }
  std::size_t message_bytes(std::size_t count) const override {
    return kept(count) * (sizeof(float) + sizeof(std::uint32_t));
  }

  void encode(const Buffer& values, const Buffer& residual, const Buffer& message) override {
    const std::size_t count = float_count(values);
    FLOPCAST_CHECK(residual.bytes() == values.bytes() && count <= std::numeric_limits<std::uint32_t>::max());
    const float* value = host_floats(values);
    float* rest = host_floats(residual);
    for (std::size_t index = 0; index < count; ++index) rest[index] += value[index];
    const std::vector<std::uint32_t> places = largest(rest, count);
    std::byte* target = message.address();
    for (const std::uint32_t place : places) {
      std::memcpy(target, rest + place, sizeof(float));
      target += sizeof(float);
      rest[place] = 0;
    }
    std::memcpy(target, places.data(), places.size() * sizeof(std::uint32_t));
  }

  void add_decoded(const Buffer& message, const Buffer& sum) override {
    const std::size_t count = kept(float_count(sum));
    float* total = host_floats(sum);
    for (std::size_t index = 0; index < count; ++index) {
      float value = 0;
      std::uint32_t place = 0;
      std::memcpy(&value, message.address() + index * sizeof(float), sizeof(float));
      std::memcpy(&place, message.address() + count * sizeof(float) + index * sizeof place, sizeof place);
      total[place] += value;
    }
  }

 private:
  std::size_t kept(std::size_t count) const {
    return static_cast<std::size_t>(std::ceil(static_cast<double>(count) * fraction_));
  }
  std::vector<std::uint32_t> largest(const float* values, std::size_t count) const {
    std::vector<std::uint32_t> places(count);
    std::iota(places.begin(), places.end(), 0U);
    const auto comes_first = [&](std::uint32_t a, std::uint32_t b) {
      const float size_a = magnitude(values[a]);
      const float size_b = magnitude(values[b]);
      return size_a != size_b ? size_a > size_b : a < b;
    };
    const auto end = places.begin() + static_cast<std::ptrdiff_t>(kept(count));
    std::nth_element(places.begin(), end, places.end(), comes_first);
    places.erase(end, places.end());
    std::sort(places.begin(), places.end());
    return places;
  }

  double fraction_;
};

}  // namespace

std::unique_ptr<GradientCodec> make_host_codec(const Compression& compression) {
  switch (compression.kind) {
    case Compression::Kind::kNone:
    case Compression::Kind::kPowerSgd:
      return nullptr;
    case Compression::Kind::kQuantized:
      return std::make_unique<Quantizer>(compression.bits);
    case Compression::Kind::kTopK:
      return std::make_unique<LargestFew>(compression.fraction);
  }
  FLOPCAST_CHECK(false && "no codec for this compression");
  return nullptr;
}

namespace {

MatrixView<const float> matrix(const Buffer& buffer, std::size_t rows, std::size_t columns,
                               Transposed transposed = Transposed::kNo) {
  return {host_floats(buffer), rows, columns, columns, transposed};
}

MatrixView<float> target(const Buffer& buffer, std::size_t rows, std::size_t columns) {
  return {host_floats(buffer), rows, columns, columns};
}

class HostLowRankProducts : public LowRankProducts {
 public:
  void start(const Shape& shape, const Buffer& right) override {
    for (std::size_t column = 0; column < shape.rank; ++column) start_column(shape, column, host_floats(right));
  }
  void project(const Shape& shape, const Buffer& gradient, const Buffer& residual, const Buffer& right,
               const Buffer& left) override {
    const float* added = host_floats(gradient);
    float* rest = host_floats(residual);
    for (std::size_t index = 0; index < shape.rows * shape.columns; ++index) rest[index] += added[index];
    multiply<float>(matrix(residual, shape.rows, shape.columns), matrix(right, shape.columns, shape.rank),
                    target(left, shape.rows, shape.rank));
  }
  void fit(const Shape& shape, const Buffer& left, const Buffer& residual, const Buffer& right) override {
    orthonormalise(shape, host_floats(left));
    multiply<float>(matrix(residual, shape.rows, shape.columns, Transposed::kYes), matrix(left, shape.rows, shape.rank),
                    target(right, shape.columns, shape.rank));
    multiply<float>(matrix(left, shape.rows, shape.rank), matrix(right, shape.columns, shape.rank, Transposed::kYes),
                    target(residual, shape.rows, shape.columns), -1.0F, true);
  }
  void rebuild(const Shape& shape, const Buffer& left, const Buffer& right, const Buffer& gradient) override {
    multiply<float>(matrix(left, shape.rows, shape.rank), matrix(right, shape.columns, shape.rank, Transposed::kYes),
                    target(gradient, shape.rows, shape.columns));
    float* values = host_floats(right);
    for (std::size_t column = 0; column < shape.rank; ++column) {
      bool zero = true;
      for (std::size_t row = 0; row < shape.columns; ++row) zero = zero && values[row * shape.rank + column] == 0;
      if (zero) start_column(shape, column, values);
    }
  }

 private:
  // Uniform between -1 and 1.
  static void start_column(const Shape& shape, std::size_t column, float* right) {
    for (std::size_t row = 0; row < shape.columns; ++row) {
      const std::size_t place = row * shape.rank + column;
      right[place] = static_cast<float>(static_cast<double>(mix(place) >> 11U) * 0x1p-52 - 1.0);
    }
  }

  static double product_of(const Shape& shape, const float* left, std::size_t one, std::size_t other) {
    double sum = 0;
    for (std::size_t row = 0; row < shape.rows; ++row) {
      sum += static_cast<double>(left[row * shape.rank + one]) * static_cast<double>(left[row * shape.rank + other]);
    }
    return sum;
  }

  // Gram-Schmidt, twice per column: once is inaccurate if columns are nearly dependent.
  static void orthonormalise(const Shape& shape, float* left) {
    constexpr double kDependent = 1e-6;  // relative to its length: a smaller remainder of a column is rounding error
    for (std::size_t column = 0; column < shape.rank; ++column) {
      const double length = std::sqrt(product_of(shape, left, column, column));
      for (int round = 0; round < 2; ++round) {
        for (std::size_t before = 0; before < column; ++before) {
          const double along = product_of(shape, left, column, before);
          for (std::size_t row = 0; row < shape.rows; ++row) {
            float& value = left[row * shape.rank + column];
            value = static_cast<float>(static_cast<double>(value) -
                                       along * static_cast<double>(left[row * shape.rank + before]));
          }
        }
      }
      const double rest = std::sqrt(product_of(shape, left, column, column));
      // Keeps a NaN in the gradient.
      const double factor = rest <= kDependent * length ? 0.0 : 1.0 / rest;
      for (std::size_t row = 0; row < shape.rows; ++row) {
        float& value = left[row * shape.rank + column];
        value = static_cast<float>(static_cast<double>(value) * factor);
      }
    }
  }
};

}  // namespace

LowRankProducts& host_low_rank_products() {
  static HostLowRankProducts products;
  return products;
}

}  // namespace flopcast::realrun
