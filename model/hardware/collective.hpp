#pragma once

#include <cstdint>
#include <string_view>

#include "model/enum_names.hpp"

namespace flopcast {

/// What the ranks of a group do together. realrun/transport/transport.hpp says what each leaves where, and
/// model/cost/collectives.hpp what it costs; a barrier sends nothing, and nobody prices it.
enum class CollectiveKind : std::uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast, kBarrier };
template <>
struct EnumNames<CollectiveKind> {
  static constexpr std::string_view kNames[] = {"all_reduce", "all_gather", "reduce_scatter",
                                                "all_to_all", "broadcast",  "barrier"};
};

}  // namespace flopcast
