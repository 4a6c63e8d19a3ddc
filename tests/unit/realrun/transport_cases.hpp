#pragma once

#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

// Requirements of every host transport, from the view of one rank of any number. Each function is called by all ranks
// of a run.

/// Sums and maxima of a count that the ranks do not divide, in place and not, and their traffic.
void check_all_reduce(RankTransport& transport);
void check_scatter_gather_and_broadcast(RankTransport& transport);
/// Each rank gets its part of every other rank's data; and the traffic.
void check_all_to_all(RankTransport& transport);
/// Reductions whose bits depend on the order of summation.
void check_order_of_additions(RankTransport& transport);
/// Started collectives and one that waits, all of one group, run in the order of the calls.
void check_order_of_started_collectives(RankTransport& transport);
/// Two messages between neighbours, received by key; empty ones, and some that exceed any eager limit.
void check_messages(RankTransport& transport);
/// A group of every other rank does not involve the remaining ones.
void check_groups(RankTransport& transport);
/// A few hundred collectives of varying groups, kinds and sizes, waited for immediately or later.
void check_random_collectives(RankTransport& transport);

}  // namespace flopcast::realrun
