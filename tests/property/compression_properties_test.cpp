// Compressed sums over any number of values and replicas: bitwise equal to the serial definition.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "realrun/compute/host_device.hpp"
#include "realrun/network/layer.hpp"
#include "realrun/parallel/buckets.hpp"
#include "realrun/transport/threads/thread_transport.hpp"
#include "tests/realrun/compression_reference.hpp"

namespace flopcast::realrun {
namespace {

constexpr std::size_t kRounds = 3;

// Values with magnitudes from 2^-20 to 1, including zeros and repetitions.
Values drawn(std::size_t count, std::uint64_t seed) {
  Values values(count);
  for (std::size_t index = 0; index < count; ++index) {
    const std::uint64_t chance = mix(seed * 65'537 + index);
    if (chance % 8 == 0) continue;
    const float size = std::ldexp(static_cast<float>(chance >> 56U), -static_cast<int>(chance / 8 % 20) - 8);
    values[index] = chance / 256 % 2 == 0 ? size : -size;
  }
  return values;
}

// Sums by round, as replica 0 has them; all replicas have the same.
std::vector<Values> sums_on_threads(const Compression& compression, const std::vector<std::vector<Values>>& gradients) {
  const int replicas = static_cast<int>(gradients.front().size());
  const std::size_t count = gradients.front().front().size();
  std::vector<int> members(gradients.front().size());
  std::iota(members.begin(), members.end(), 0);
  std::vector<std::vector<Values>> sums(members.size());
  run_threads(replicas, {}, [&](RankTransport& transport) {
    HostDevice device;
    const auto codec = make_host_codec(compression);
    const Group group = transport.form_group(Axis::kData, members);
    const Buffer residual = codec->keeps_residual() ? allocate_host(count * sizeof(float)) : Buffer{};
    const auto rank = static_cast<std::size_t>(transport.rank());
    for (const std::vector<Values>& round : gradients) {
      const Buffer values = allocate_host(count * sizeof(float));
      std::copy(round[rank].begin(), round[rank].end(), host_floats(values));
      CompressedSum sum({device, transport, *codec, group}, values, residual);
      sum.proceed();
      sum.finish();
      sums[rank].emplace_back(host_floats(values), host_floats(values) + count);
    }
  });
  for (const std::vector<Values>& replica : sums) RC_ASSERT(replica == sums.front());
  return sums.front();
}

RC_GTEST_PROP(CompressedSum, EqualsItsSerialDefinition, ()) {
  const int replicas = *rc::gen::inRange(1, 6);
  const auto count = static_cast<std::size_t>(*rc::gen::inRange(1, 2500));
  const auto seed = *rc::gen::arbitrary<std::uint32_t>();
  const Compression compression =
      *rc::gen::element(quantized(8), quantized(4), top(0.001), top(0.1), top(0.77), top(1.0));
  std::vector<std::vector<Values>> gradients(kRounds);
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (int replica = 0; replica < replicas; ++replica) {
      gradients[round].push_back(drawn(count, seed + round * 100 + static_cast<std::size_t>(replica)));
    }
  }
  const std::vector<Values> sums = sums_on_threads(compression, gradients);
  std::vector<Values> kept(static_cast<std::size_t>(replicas));
  for (std::size_t round = 0; round < kRounds; ++round) {
    const Values expected = compression.kind == Compression::Kind::kQuantized
                                ? quantized_sum(gradients[round], compression.bits)
                                : sparse_sum(gradients[round], kept, compression.fraction);
    RC_ASSERT(sums[round] == expected);
  }
}

}  // namespace
}  // namespace flopcast::realrun
