#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "model/layout/layout.hpp"

namespace flopcast::realrun {

enum class CollectiveKind : std::uint8_t { kAllReduce, kReduceScatter, kAllGather, kAllToAll, kBroadcast, kBarrier };
/// "all-reduce", …
std::string_view name_of(CollectiveKind kind);

/// What a rank sent.
struct TrafficCount {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;  ///< payload that left this rank
};

/// Bytes sent by kind and axis. Collectives of a group of n with S bytes of whole data send, over rings or whatever
/// else is bandwidth-optimal: all-reduce 2(n-1)/n·S, reduce-scatter and all-gather (n-1)/n·S. All-to-all sends (n-1)/n
/// of the member's own buffer, the root of a broadcast n-1 times its buffer. A barrier sends nothing.
struct Traffic {
  TrafficCount point_to_point;
  std::map<std::pair<CollectiveKind, Axis>, TrafficCount> collectives;

  TrafficCount of(CollectiveKind kind, Axis axis) const;
  std::uint64_t bytes_of(Axis axis) const;  ///< point-to-point counts under the pipeline axis
};
Traffic operator-(const Traffic& later, const Traffic& earlier);

}  // namespace flopcast::realrun
