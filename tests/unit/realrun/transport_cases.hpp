#pragma once

#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

// What every transport of the host has to do, as one rank of any number sees it. Each is called by all ranks of a run.

/// Sums and maxima of a count that the ranks do not divide, in place and not, and the bytes that they take.
void check_all_reduce(RankTransport& transport);
void check_scatter_gather_and_broadcast(RankTransport& transport);
/// Each rank gets its part of what every other one has, and the bytes that takes.
void check_all_to_all(RankTransport& transport);
/// Reductions whose bits depend on the order of the additions.
void check_order_of_additions(RankTransport& transport);
/// Started collectives and one that waits, all of one group, run in the order of the calls.
void check_order_of_started_collectives(RankTransport& transport);
/// Two messages between neighbours, taken by key; empty ones and some that are longer than any eager limit.
void check_messages(RankTransport& transport);
/// A group of every other rank is none of the others' business.
void check_groups(RankTransport& transport);
/// A few hundred collectives of changing groups, kinds and sizes, waited for at once or later.
void check_random_collectives(RankTransport& transport);

}  // namespace flopcast::realrun
