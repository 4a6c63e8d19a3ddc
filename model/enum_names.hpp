#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flopcast {

/// Names of an enum's values as spelled in job files and outputs, in the order of the enumerators. Declared next to the
/// enum:
///   template <>
///   struct EnumNames<Norm> {
///     static constexpr std::string_view kNames[] = {"layernorm", "rmsnorm"};
///   };
template <class Enum>
struct EnumNames;

template <class Enum, class = decltype(EnumNames<Enum>::kNames)>
constexpr std::string_view name_of(Enum value) {
  return EnumNames<Enum>::kNames[static_cast<std::size_t>(value)];
}

/// Returns nothing if no value has that name.
template <class Enum>
constexpr std::optional<Enum> parse(std::string_view name) {
  const auto& names = EnumNames<Enum>::kNames;
  const auto found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) return std::nullopt;
  return static_cast<Enum>(found - std::begin(names));
}

/// All names, for help texts and messages.
template <class Enum>
const std::vector<std::string>& names_of() {
  static const std::vector<std::string> names(std::begin(EnumNames<Enum>::kNames), std::end(EnumNames<Enum>::kNames));
  return names;
}

}  // namespace flopcast
