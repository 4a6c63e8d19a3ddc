#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// This member's share of a collective whose buffers all members can read, `members[group.index]` its own. Calls
/// `meet`, which waits for all members, between phases; they have to meet once more before anybody touches its buffers.
/// Returns the bytes this member sends: as many as it reads of the others' memory. With n members and S bytes that is
/// (n-1)/n·S for the reduction of its own part, and as much for the collection of the others' parts.
std::size_t exchange(const std::vector<Collective>& members, const Group& group, const Collective& collective,
                     const std::function<void()>& meet);

}  // namespace flopcast::realrun
