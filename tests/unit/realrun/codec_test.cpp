// Messages of compressed gradients, byte by byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "realrun/compute/host_device.hpp"

namespace flopcast::realrun {
namespace {

Buffer floats(const std::vector<float>& values) {
  const Buffer buffer = allocate_host(values.size() * sizeof(float));
  std::copy(values.begin(), values.end(), host_floats(buffer));
  return buffer;
}

std::vector<float> values_of(const Buffer& buffer) {
  return {host_floats(buffer), host_floats(buffer) + buffer.bytes() / sizeof(float)};
}

std::unique_ptr<GradientCodec> quantizer(int bits) {
  return make_host_codec({.kind = Compression::Kind::kQuantized, .bits = bits});
}

std::unique_ptr<GradientCodec> largest_few(double fraction) {
  return make_host_codec({.kind = Compression::Kind::kTopK, .fraction = fraction});
}

// Values decoded from a message.
std::vector<float> decoded(GradientCodec& codec, const std::vector<float>& values) {
  const Buffer message = allocate_host(codec.message_bytes(values.size()));
  codec.encode(floats(values), codec.keeps_residual() ? allocate_host(values.size() * sizeof(float)) : Buffer{},
               message);
  const Buffer sum = allocate_host(values.size() * sizeof(float));
  codec.add_decoded(message, sum);
  return values_of(sum);
}

TEST(Codec, NoneIsNoCodec) {
  EXPECT_EQ(make_host_codec({}), nullptr);
}

TEST(Codec, MessagesAreAsLongAsTheModelSays) {
  EXPECT_EQ(quantizer(8)->message_bytes(1024), 1024U + 2 * 4);
  EXPECT_EQ(quantizer(8)->message_bytes(1025), 1025U + 3 * 4);
  EXPECT_EQ(quantizer(4)->message_bytes(1024), 512U + 2 * 4);
  EXPECT_EQ(quantizer(4)->message_bytes(5), 3U + 4);
  EXPECT_EQ(quantizer(4)->message_bytes(0), 0U);
  EXPECT_EQ(largest_few(0.01)->message_bytes(1000), 10U * 8);
  EXPECT_EQ(largest_few(0.01)->message_bytes(1001), 11U * 8);
  EXPECT_EQ(largest_few(1.0)->message_bytes(7), 7U * 8);
}

TEST(Codec, EightBitsAreTheScaleAndRoundedQuotients) {
  const auto codec = quantizer(8);
  const Buffer message = allocate_host(codec->message_bytes(5));
  codec->encode(floats({254, -254, 3, 5, 0.9F}), {}, message);  // scale 2: 1.5 and 2.5 both round to the even 2
  float scale = 0;
  std::memcpy(&scale, message.address(), sizeof scale);
  EXPECT_EQ(scale, 2.0F);
  const auto* codes = reinterpret_cast<const std::int8_t*>(message.address() + sizeof scale);
  EXPECT_EQ(std::vector<int>(codes, codes + 5), (std::vector<int>{127, -127, 2, 2, 0}));
  EXPECT_EQ(decoded(*codec, {254, -254, 3, 5, 0.9F}), (std::vector<float>{254, -254, 4, 4, 0}));
}

TEST(Codec, FourBitsShareBytes) {
  const auto codec = quantizer(4);
  const Buffer message = allocate_host(codec->message_bytes(3));
  codec->encode(floats({7, -7, -1}), {}, message);
  const auto* codes = reinterpret_cast<const std::uint8_t*>(message.address() + sizeof(float));
  EXPECT_EQ(codes[0], 0x97);  // 7 below, -7 above
  EXPECT_EQ(codes[1], 0x0F);
  EXPECT_EQ(decoded(*codec, {7, -7, -1}), (std::vector<float>{7, -7, -1}));
}

TEST(Codec, EveryBlockHasItsOwnScale) {
  for (const int bits : {4, 8}) {
    std::vector<float> values(1100, 1e-6F);
    values[0] = 1e6F;
    const std::vector<float> back = decoded(*quantizer(bits), values);
    EXPECT_EQ(back[511], 0.0F) << "lost next to a million";
    EXPECT_NEAR(back[512], 1e-6F, 1e-12F);
    EXPECT_NEAR(back[1099], 1e-6F, 1e-12F);
  }
}

TEST(Codec, WhatIsNotFiniteStaysSo) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {infinity, -infinity, nan}) {
    EXPECT_FALSE(std::isfinite(decoded(*quantizer(8), {1, bad, 2})[1]));
    EXPECT_FALSE(std::isfinite(decoded(*quantizer(4), {1, bad, 2})[1]));
    EXPECT_FALSE(std::isfinite(decoded(*largest_few(0.3), {1, bad, 2})[1]));
  }
  EXPECT_EQ(decoded(*quantizer(8), {0, 0}), (std::vector<float>{0, 0}));
  for (const float value : decoded(*quantizer(8), {1e-44F, -1e-45F})) EXPECT_TRUE(std::isfinite(value));
}

TEST(Codec, TheLargestFewAreSentAndTheRestIsKept) {
  const auto codec = largest_few(0.4);  // two of five
  const Buffer message = allocate_host(codec->message_bytes(5));
  const Buffer residual = floats({0, 0, 0, 0, 0});
  codec->encode(floats({1, -4, 2, 4, -2}), residual, message);
  EXPECT_EQ(values_of(residual), (std::vector<float>{1, 0, 2, 0, -2}));
  std::uint32_t places[2];
  std::memcpy(places, message.address() + 2 * sizeof(float), sizeof places);
  EXPECT_EQ(places[0], 1U);
  EXPECT_EQ(places[1], 3U);
  const Buffer sum = floats({10, 10, 10, 10, 10});
  codec->add_decoded(message, sum);
  EXPECT_EQ(values_of(sum), (std::vector<float>{10, 6, 10, 14, 10}));
  // The residual is added to the next values: 2, 0.5, 4, 0, -4. Of equals the earlier is sent first.
  codec->encode(floats({1, 0.5F, 2, 0, -2}), residual, message);
  EXPECT_EQ(values_of(residual), (std::vector<float>{2, 0.5F, 0, 0, 0}));
}

}  // namespace
}  // namespace flopcast::realrun
