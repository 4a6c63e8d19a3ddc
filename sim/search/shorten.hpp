#pragma once

#include <cstddef>
#include <vector>

#include "sim/search/order_times.hpp"

namespace flopcast {

/// A bounded local search from several orders of the same actions, the best one first: the best order seen, so never a
/// worse one than the first. A tabu search that exchanges neighbours on the longest paths, as Nowicki and Smutnicki
/// 1996 (Management Science 42(6)) do for the job shop problem, first for the first half of the goal, then for the
/// second half at no loss of the first. Memory stays within the rule.
///
/// Ends when nothing can be better (no rank idles between its earliest start and its end), or after timing
/// `most_actions` actions: the same orders always give the same result. Expects at least one program; each of them
/// passes find_fault and keeps the rule.
Program shorten(const std::vector<Program>& programs, int microbatches, const StepTimes& times,
                const ActivationRule& rule, const OrderGoal& goal, std::size_t most_actions);

}  // namespace flopcast
