/// Comparators on one member, for the iterator algorithms. `std::ranges` projections would do, but the library of
/// Emscripten 3.1, which builds the web page, lacks them.
#pragma once

#include <functional>

namespace flopcast {

/** Orders elements by a member, smallest first. */
template <class Owner, class Value>
auto by(Value Owner::*member) {
  return [member](const Owner& a, const Owner& b) { return a.*member < b.*member; };
}

/** Orders elements by a member or by the result of a const member function, largest first. */
template <class Owner, class Value>
auto descending_by(Value Owner::*member) {
  return [member](const Owner& a, const Owner& b) { return std::invoke(member, a) > std::invoke(member, b); };
}

/** Matches elements whose member equals a value. */
template <class Owner, class Value, class Wanted>
auto where(Value Owner::*member, Wanted wanted) {
  return [member, wanted](const Owner& one) { return one.*member == wanted; };
}

}  // namespace flopcast
