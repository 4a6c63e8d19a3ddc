#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

#include "model/enum_names.hpp"

namespace flopcast {

/// The forms of parallelism whose number of ranks a layout chooses: tensor, context, expert, data, pipeline.
enum class Axis { kTensor, kContext, kExpert, kData, kPipeline };
template <>
struct EnumNames<Axis> {
  static constexpr std::string_view kNames[] = {"tp", "cp", "ep", "dp", "pp"};
};
inline constexpr std::array kAxes = {Axis::kTensor, Axis::kContext, Axis::kExpert, Axis::kData, Axis::kPipeline};
inline constexpr std::size_t kAxisCount = kAxes.size();
static_assert(std::size(EnumNames<Axis>::kNames) == kAxisCount);

/// The axes along which ranks are laid out, innermost first. Expert parallelism takes its ranks from those of dp and
/// cp.
inline constexpr std::array kGridAxes = {Axis::kTensor, Axis::kContext, Axis::kData, Axis::kPipeline};

/// One value for each axis, by its name where one is meant, by `axis` where all are.
template <class Value>
struct ByAxis {
  Value tp{};
  Value cp{};
  Value ep{};
  Value dp{};
  Value pp{};

  constexpr Value& operator[](Axis axis) { return of(*this, axis); }
  constexpr const Value& operator[](Axis axis) const { return of(*this, axis); }

 private:
  // No table of pointers to members: GCC 12 folds those of values of one size into each other, and then takes the
  // offsets of a third.
  template <class Self>
  static constexpr auto& of(Self& self, Axis axis) {
    switch (axis) {
      case Axis::kTensor:
        return self.tp;
      case Axis::kContext:
        return self.cp;
      case Axis::kExpert:
        return self.ep;
      case Axis::kData:
        return self.dp;
      case Axis::kPipeline:
        break;
    }
    return self.pp;
  }
};

/// The ranks along each axis.
struct AxisSizes : ByAxis<int> {
  constexpr AxisSizes() {
    for (const Axis axis : kAxes) (*this)[axis] = 1;
  }
  AxisSizes& sizes() { return *this; }
  const AxisSizes& sizes() const { return *this; }

  friend bool operator==(const AxisSizes& a, const AxisSizes& b) {
    return std::all_of(kAxes.begin(), kAxes.end(), [&](Axis axis) { return a[axis] == b[axis]; });
  }
};

}  // namespace flopcast
