#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "model/config/document.hpp"
#include "model/enum_names.hpp"
#include "model/job/fields.hpp"

namespace flopcast {

// How the tables reach the members of their structs, and the bounds they share. For the files that hold tables.

inline constexpr int kLargestLayers = 100'000;
inline constexpr int kMostRanks = 1'000'000;

template <class Member>
struct MemberTraits;
template <class OwnerType, class ValueType>
struct MemberTraits<ValueType OwnerType::*> {
  using Owner = OwnerType;
  using Value = ValueType;
};
template <auto Member>
using OwnerOf = typename MemberTraits<decltype(Member)>::Owner;
template <auto Member>
using ValueOf = typename MemberTraits<decltype(Member)>::Value;

template <auto Member>
ValueOf<Member>& member_of(void* owner) {
  return static_cast<OwnerOf<Member>*>(owner)->*Member;
}
template <auto Member>
const ValueOf<Member>& member_of(const void* owner) {
  return static_cast<const OwnerOf<Member>*>(owner)->*Member;
}

template <class Value>
inline constexpr bool kIsOptional = false;
template <class Value>
inline constexpr bool kIsOptional<std::optional<Value>> = true;

/// A number of a member, which may be an optional, a quantity or plain.
template <class Value>
std::optional<double> number_in(const Value& value) {
  if constexpr (kIsOptional<Value>) {
    return value ? number_in(*value) : std::nullopt;
  } else if constexpr (std::is_arithmetic_v<Value>) {
    return static_cast<double>(value);
  } else {
    return value.value();
  }
}

/// A field in the making: the table's entries read as a sentence each.
struct Entry {
  Field field;

  Entry& flag(std::string_view value_name, std::initializer_list<std::string_view> aliases = {}) {
    field.listed = true;
    field.value_name = value_name;
    field.aliases = aliases;
    return *this;
  }
  Entry& names_object() { return field.names_object = true, *this; }
  Entry& required(std::string_view help = "") { return field.required = true, field.needed = help, *this; }
  Entry& otherwise(std::string_view what) { return field.otherwise = what, *this; }
  Entry& above_zero() { return field.above_zero = true, *this; }
  Entry& up_to(double largest) { return field.largest = largest, *this; }
  Entry& zero_is_none() { return field.zero_is_none = true, *this; }
  Entry& of_gpus() { return field.of_gpus = true, *this; }
  Entry& chosen() { return field.planning = Planning::kChosen, *this; }
  Entry& possible() { return field.planning = Planning::kPossible, *this; }
  Entry& in_units_of(double unit) { return field.unit = unit, *this; }
  Entry& among(std::vector<std::string> (*choices)()) { return field.choices = choices, *this; }
  Entry& of(const Fields& (*parts)()) { return field.parts = parts, *this; }
  operator Field() const { return field; }  // NOLINT(google-explicit-constructor): tables list entries as fields
};

template <class Owner>
OrderedJsonValue fallback_of(const Field& field) {
  static const Owner blank{};
  return field.write(field, &blank);
}

/// A key that no struct keeps, or that its struct's reader reads.
inline Entry other(std::string_view key, FieldKind kind, std::string_view help) {
  Entry entry;
  entry.field.key = key;
  entry.field.kind = kind;
  entry.field.help = help;
  return entry;
}

/// A key with ways of its own to be read and written.
template <class Owner>
Entry custom(std::string_view key, FieldKind kind, std::string_view help,
             void (*read)(ObjectReader&, const Field&, void*), OrderedJsonValue (*write)(const Field&, const void*)) {
  Entry entry = other(key, kind, help);
  entry.field.read = read;
  entry.field.write = write;
  entry.field.fallback = &fallback_of<Owner>;
  return entry;
}

template <auto Member>
Entry entry_of(std::string_view key, FieldKind kind, std::string_view help,
               void (*read)(ObjectReader&, const Field&, void*), OrderedJsonValue (*write)(const Field&, const void*)) {
  Entry entry = custom<OwnerOf<Member>>(key, kind, help, read, write);
  entry.field.copy = [](const void* from, void* to) { member_of<Member>(to) = member_of<Member>(from); };
  return entry;
}

template <auto Member>
OrderedJsonValue write_whole(const Field& field, const void* owner) {
  const std::optional<double> number = number_in(member_of<Member>(owner));
  if (!number || (field.zero_is_none && *number == 0.0)) return nullptr;
  return static_cast<std::int64_t>(*number);
}

template <auto Member>
Entry whole(std::string_view key, double smallest, double largest, std::string_view help) {
  const auto read = [](ObjectReader& reader, const Field& field, void* owner) {
    const auto number = reader.whole(field.key, static_cast<int>(field.smallest), static_cast<int>(field.largest));
    // NOLINTNEXTLINE(bugprone-optional-value-conversion): the member may be optional itself
    if (number) member_of<Member>(owner) = *number;
  };
  Entry entry = entry_of<Member>(key, FieldKind::kWhole, help, read, &write_whole<Member>);
  entry.field.smallest = smallest;
  entry.field.largest = largest;
  return entry;
}

template <auto Member>
OrderedJsonValue write_number(const Field& field, const void* owner) {
  const std::optional<double> number = number_in(member_of<Member>(owner));
  if (!number || (field.zero_is_none && *number == 0.0)) return nullptr;
  return *number;
}

/// A share: above 0, up to `largest`.
template <auto Member>
Entry share(std::string_view key, double largest, std::string_view help) {
  const auto read = [](ObjectReader& reader, const Field& field, void* owner) {
    const auto number = reader.fraction(field.key, field.largest);
    // NOLINTNEXTLINE(bugprone-optional-value-conversion): the member may be optional itself
    if (number) member_of<Member>(owner) = *number;
  };
  return entry_of<Member>(key, FieldKind::kNumber, help, read, &write_number<Member>).up_to(largest);
}

/// A number of 0 or more in the unit that the key names.
template <auto Member>
Entry amount(std::string_view key, std::string_view help) {
  const auto read = [](ObjectReader& reader, const Field& field, void* owner) {
    using Value = ValueOf<Member>;
    const std::optional<double> number = reader.amount(field.key);
    if (!number) return;
    if constexpr (std::is_same_v<Value, std::optional<double>>) {
      member_of<Member>(owner) = number;
    } else {
      member_of<Member>(owner) = Value(*number);
    }
  };
  return entry_of<Member>(key, FieldKind::kNumber, help, read, &write_number<Member>);
}

template <auto Member>
Entry boolean(std::string_view key, std::string_view help) {
  const auto read = [](ObjectReader& reader, const Field& field, void* owner) {
    if (const auto value = reader.boolean(field.key)) member_of<Member>(owner) = *value;
  };
  const auto write = [](const Field&, const void* owner) -> OrderedJsonValue { return member_of<Member>(owner); };
  return entry_of<Member>(key, FieldKind::kBoolean, help, read, write);
}

/// An empty text is no text.
template <auto Member>
Entry text(std::string_view key, std::string_view help) {
  const auto read = [](ObjectReader& reader, const Field& field, void* owner) {
    if (const auto value = reader.text(field.key)) member_of<Member>(owner) = *value;
  };
  const auto write = [](const Field&, const void* owner) -> OrderedJsonValue {
    const std::string& value = member_of<Member>(owner);
    if (value.empty()) return nullptr;
    return value;
  };
  return entry_of<Member>(key, FieldKind::kText, help, read, write);
}

template <auto Member>
Entry choice(std::string_view key, std::string_view help) {
  using Enum = ValueOf<Member>;
  const auto read = [](ObjectReader& reader, const Field& field, void* owner) {
    const auto index = reader.choice(field.key, names_of<Enum>());
    if (index) member_of<Member>(owner) = static_cast<Enum>(*index);
  };
  const auto write = [](const Field&, const void* owner) -> OrderedJsonValue {
    return name_of(member_of<Member>(owner));
  };
  return entry_of<Member>(key, FieldKind::kChoice, help, read, write).among([] { return names_of<Enum>(); });
}

template <auto Member>
Entry optional_choice(std::string_view key, std::string_view help) {
  using Enum = typename ValueOf<Member>::value_type;
  const auto read = [](ObjectReader& reader, const Field& field, void* owner) {
    if (const auto index = reader.choice(field.key, names_of<Enum>())) {
      member_of<Member>(owner) = static_cast<Enum>(*index);
    }
  };
  const auto write = [](const Field&, const void* owner) -> OrderedJsonValue {
    const auto& value = member_of<Member>(owner);
    return value ? nlohmann::ordered_json(name_of(*value)) : nlohmann::ordered_json(nullptr);
  };
  return entry_of<Member>(key, FieldKind::kChoice, help, read, write).among([] { return names_of<Enum>(); });
}

/// Of attention: flash and unfused.
const std::vector<std::string>& attention_names();

/// flash or unfused, kept as whether it is flash.
template <auto Member>
Entry attention(std::string_view help) {
  const auto read = [](ObjectReader& reader, const Field& field, void* owner) {
    if (const auto index = reader.choice(field.key, attention_names())) member_of<Member>(owner) = *index == 0;
  };
  const auto write = [](const Field&, const void* owner) -> OrderedJsonValue {
    return attention_names()[member_of<Member>(owner) ? 0 : 1];
  };
  return entry_of<Member>("attention", FieldKind::kChoice, help, read, write).among([] { return attention_names(); });
}

/// What the elements of a tensor may be kept in.
std::vector<std::string> element_format_names();

/// ["norm", "rotary"]; flags name them with commas between.
std::vector<std::string> listed_words(ObjectReader& reader, const Field& field, const char* such_as);

void read_quantity(ObjectReader& reader, const Field& field, std::optional<double>& number);
OrderedJsonValue quantity_json(const Field& field, std::optional<double> number);

template <auto Member>
Entry quantity(std::string_view key, Dimension dimension, std::string_view help) {
  using Value = ValueOf<Member>;
  const auto read = [](ObjectReader& reader, const Field& field, void* owner) {
    std::optional<double> number;
    read_quantity(reader, field, number);
    if (number) member_of<Member>(owner) = Value(*number / field.unit);
  };
  const auto write = [](const Field& field, const void* owner) {
    return quantity_json(field, number_in(member_of<Member>(owner)));
  };
  Entry entry = entry_of<Member>(key, FieldKind::kQuantity, help, read, write);
  entry.field.dimension = dimension;
  return entry;
}

}  // namespace flopcast
