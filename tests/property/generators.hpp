#pragma once

#include <rapidcheck.h>

namespace flopcast {

/// first, first + 1, ... past_last - 1 with equal probability, however large the case has grown; smaller values when
/// shrinking.
template <class Value>
Value between(Value first, Value past_last) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<Value>(first, past_last));
}

}  // namespace flopcast
