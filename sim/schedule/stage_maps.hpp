#pragma once

#include <string_view>

#include "sim/schedule/catalogue.hpp"

namespace flopcast {

/// A program with one chain that runs over the ranks to and fro: stages 0 .. p-1 on ranks 0 .. p-1, stages p .. 2p-1
/// on ranks p-1 .. 0, and so on; request.chunks stages a rank. Two chunks make a V. No actions yet.
Program empty_zigzag(std::string_view schedule, const ScheduleRequest& request);

/// A program with two chains, each a whole model over all ranks: stages 0 .. p-1 on ranks 0 .. p-1, and stages p ..
/// 2p-1 on ranks p-1 .. 0. No actions yet.
Program empty_two_chains(std::string_view schedule, const ScheduleRequest& request);

}  // namespace flopcast
