#pragma once

#include "sim/schedule/activation_rule.hpp"
#include "sim/schedule/order_times.hpp"

namespace flopcast {

/// What no order of one chain can fall below: a rank starts once its first input can be there, works without a break,
/// and has nothing but forwards, as many as its memory holds, until its first gradient can be back. Full backwards
/// (`split` false) still have to pass the stages before. Not always reached.
///
/// `program` is asked for its stages only.
OrderTimes order_bound(const Program& program, int microbatches, const StepTimes& times, const ActivationRule& rule,
                       bool split);

}  // namespace flopcast
