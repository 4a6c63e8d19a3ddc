// Field tables: the single description of a struct's JSON. Reading, writing, JSON Schema, flags, --help, --show-config
// and completion are all derived from a struct's table; only code that computes with a member names it again.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "model/config/document.hpp"
#include "model/config/object_reader.hpp"
#include "model/enum_names.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// JSON type of a key. A quantity is a string with a unit, or a bare number for dimensions without units.
enum class FieldKind { kWhole, kNumber, kBoolean, kText, kWholeList, kChoice, kQuantity, kObject, kList };

/// Source of a layout key's value when layouts are searched: the job (kGiven); the planner unless the job fixes it
/// (kChosen); or the job, but only for layouts that support it (kPossible).
enum class Planning { kGiven, kChosen, kPossible };

struct FieldInfo;
/// The fields of a table, independent of its struct.
using FieldInfos = std::vector<const FieldInfo*>;

/// Description of a key, independent of the struct that stores its value.
struct FieldInfo {
  std::string_view key;  ///< within its object
  FieldKind kind = FieldKind::kText;
  std::string_view help;
  std::string_view value_name;            ///< for --help: N, NAME, SIZE
  std::vector<std::string_view> aliases;  ///< flags besides the path: the short one first, then Megatron's names
  bool listed = false;                    ///< shown by --help; every path is a flag
  bool names_object = false;              ///< its value may be a name for the whole object: "model": "gpt3-175b"
  bool required = false;
  std::string_view needed;     ///< if required: help text of the error; empty: the choices
  std::string_view otherwise;  ///< meaning of an absent key if it depends on other keys
  double smallest = 0.0;       ///< of numbers; for lists in files: minimum number of elements
  double largest = 0.0;        ///< of integers and other numbers; 0: unbounded
  bool above_zero = false;     ///< quantities only
  bool zero_is_none = false;   ///< zero means absent and is not written
  bool of_gpus = false;        ///< applies to GPUs only
  bool kept = false;           ///< stored in the struct, so it can be written
  bool always = false;         ///< written even without a value: null or an empty list
  bool later = false;          ///< files only: absent in early versions or in many files
  unsigned needed_by = 0;      ///< files only: bit mask of the readers that require it
  FieldKind elements{};        ///< of a list without parts
  Planning planning = Planning::kGiven;
  Dimension dimension = Dimension::kCount;
  double unit = 1.0;                                ///< of the member, in the dimension's base unit
  std::vector<std::string> (*choices)() = nullptr;  ///< a fixed set, or the names of a catalogue
  FieldInfos (*parts)() = nullptr;                  ///< of an object, or of a list's elements
  /// Value of an absent key, taken from a default-constructed struct.
  OrderedJsonValue (*fallback)(const FieldInfo& field) = nullptr;
};

/// A field together with access to its value in a struct.
template <class Owner>
struct Field : FieldInfo {
  /// Reads the key if present. Null if the struct's reader does so, or if the key only helps to find others.
  void (*read)(ObjectReader& reader, const FieldInfo& field, Owner& owner) = nullptr;
  /// Returns null JSON if there is no value. Null for keys that the struct does not store.
  OrderedJsonValue (*write)(const FieldInfo& field, const Owner& owner) = nullptr;
  void (*copy)(const Owner& from, Owner& to) = nullptr;

  const FieldInfo& info() const { return *this; }
};
template <class Owner>
using Fields = std::vector<Field<Owner>>;

template <class Member>
struct MemberTraits;
template <class Table>
struct TableTraits;
template <class OwnerType>
struct TableTraits<std::vector<Field<OwnerType>>> {
  using Owner = OwnerType;
};
template <class OwnerType, class ValueType>
struct MemberTraits<ValueType OwnerType::*> {
  using Owner = OwnerType;
  using Value = ValueType;
};
template <class OwnerType, class ValueType>
struct MemberTraits<ValueType (OwnerType::*)() const> {
  using Owner = OwnerType;
  using Value = ValueType;
};
template <class OwnerType, class ValueType>
struct MemberTraits<ValueType (*)(const OwnerType&)> {
  using Owner = OwnerType;
  using Value = ValueType;
};
/// A lambda without captures has the traits of its function pointer.
template <class Function>
requires requires(Function function) {
  +function;
}
struct MemberTraits<Function> : MemberTraits<decltype(+Function())> {};
template <auto Member>
using OwnerOf = typename MemberTraits<decltype(Member)>::Owner;
template <auto Member>
using ValueOf = typename MemberTraits<decltype(Member)>::Value;

inline constexpr double kNoSmallest = -std::numeric_limits<double>::infinity();

template <class Value>
inline constexpr bool kIsOptional = false;
template <class Value>
inline constexpr bool kIsOptional<std::optional<Value>> = true;

/// The number in a member that is an optional, a quantity or plain.
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

template <auto Table>
FieldInfos infos_of() {
  if constexpr (std::is_same_v<decltype(Table()), FieldInfos>) {
    return Table();
  } else {
    FieldInfos infos;
    for (const auto& field : Table()) infos.push_back(&field);
    return infos;
  }
}

/// Placeholder owner of keys that no struct stores.
struct NoOwner {};

/// Builder of a field, so that each table entry reads as a sentence.
template <class Owner>
struct Entry {
  Field<Owner> field;

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
  Entry& later() { return field.later = true, *this; }
  Entry& needed_by(unsigned readers) { return field.needed_by |= readers, *this; }
  Entry& at_least(double smallest) { return field.smallest = smallest, *this; }
  Entry& any_sign() { return at_least(kNoSmallest); }
  Entry& always() { return field.always = true, *this; }
  Entry& chosen() { return field.planning = Planning::kChosen, *this; }
  Entry& possible() { return field.planning = Planning::kPossible, *this; }
  Entry& in_units_of(double unit) { return field.unit = unit, *this; }
  Entry& among(std::vector<std::string> (*choices)()) { return field.choices = choices, *this; }
  template <auto Table>
  Entry& of() {
    return field.parts = &infos_of<Table>, *this;
  }
  // NOLINTBEGIN(google-explicit-constructor, hicpp-explicit-conversions): tables list entries as fields
  template <class Other>
  requires(std::is_same_v<Owner, Other> || std::is_same_v<Owner, NoOwner>) operator Field<Other>() const {
    if constexpr (std::is_same_v<Owner, Other>) {
      return field;
    } else {
      return Field<Other>{field.info()};
    }
  }
  // NOLINTEND(google-explicit-constructor, hicpp-explicit-conversions)
};

template <class Owner>
OrderedJsonValue fallback_of(const FieldInfo& field) {
  static const Owner blank{};
  return static_cast<const Field<Owner>&>(field).write(field, blank);
}

/// A key that no struct stores, or that its struct's reader reads.
inline Entry<NoOwner> other(std::string_view key, FieldKind kind, std::string_view help) {
  Entry<NoOwner> entry;
  entry.field.key = key;
  entry.field.kind = kind;
  entry.field.help = help;
  return entry;
}

/// A key with custom functions to read and write it.
template <class Owner>
Entry<Owner> custom(std::string_view key, FieldKind kind, std::string_view help,
                    void (*read)(ObjectReader&, const FieldInfo&, Owner&),
                    OrderedJsonValue (*write)(const FieldInfo&, const Owner&)) {
  Entry<Owner> entry;
  entry.field.key = key;
  entry.field.kind = kind;
  entry.field.help = help;
  entry.field.read = read;
  entry.field.write = write;
  entry.field.kept = true;
  entry.field.fallback = &fallback_of<Owner>;
  return entry;
}

template <auto Member>
Entry<OwnerOf<Member>> entry_of(std::string_view key, FieldKind kind, std::string_view help,
                                void (*read)(ObjectReader&, const FieldInfo&, OwnerOf<Member>&),
                                OrderedJsonValue (*write)(const FieldInfo&, const OwnerOf<Member>&)) {
  using Owner = OwnerOf<Member>;
  Entry<Owner> entry = custom<Owner>(key, kind, help, read, write);
  entry.field.copy = [](const Owner& from, Owner& to) { to.*Member = from.*Member; };
  return entry;
}

template <auto Member>
OrderedJsonValue write_whole(const FieldInfo& field, const OwnerOf<Member>& owner) {
  const std::optional<double> number = number_in(owner.*Member);
  if (!number || (field.zero_is_none && *number == 0.0)) return nullptr;
  return static_cast<std::int64_t>(*number);
}

template <auto Member>
Entry<OwnerOf<Member>> whole(std::string_view key, double smallest, double largest, std::string_view help) {
  const auto read = [](ObjectReader& reader, const FieldInfo& field, OwnerOf<Member>& owner) {
    const auto number = reader.whole(field.key, static_cast<int>(field.smallest), static_cast<int>(field.largest));
    // NOLINTNEXTLINE(bugprone-optional-value-conversion): the member may be optional itself
    if (number) owner.*Member = *number;
  };
  Entry<OwnerOf<Member>> entry = entry_of<Member>(key, FieldKind::kWhole, help, read, &write_whole<Member>);
  entry.field.smallest = smallest;
  entry.field.largest = largest;
  return entry;
}

template <auto Member>
OrderedJsonValue write_number(const FieldInfo& field, const OwnerOf<Member>& owner) {
  const std::optional<double> number = number_in(owner.*Member);
  if (!number || (field.zero_is_none && *number == 0.0)) return nullptr;
  return *number;
}

/// A number of either sign.
template <auto Member>
Entry<OwnerOf<Member>> number(std::string_view key, std::string_view help = "") {
  const auto read = [](ObjectReader& reader, const FieldInfo& field, OwnerOf<Member>& owner) {
    // NOLINTNEXTLINE(bugprone-optional-value-conversion): the member may be optional itself
    if (const auto number = reader.number(field.key)) owner.*Member = *number;
  };
  return entry_of<Member>(key, FieldKind::kNumber, help, read, &write_number<Member>).any_sign();
}

/// A fraction above 0, up to `largest`.
template <auto Member>
Entry<OwnerOf<Member>> share(std::string_view key, double largest, std::string_view help) {
  const auto read = [](ObjectReader& reader, const FieldInfo& field, OwnerOf<Member>& owner) {
    const auto number = reader.fraction(field.key, field.largest);
    // NOLINTNEXTLINE(bugprone-optional-value-conversion): the member may be optional itself
    if (number) owner.*Member = *number;
  };
  return entry_of<Member>(key, FieldKind::kNumber, help, read, &write_number<Member>).up_to(largest);
}

/// A non-negative number in the unit that the key names.
template <auto Member>
Entry<OwnerOf<Member>> amount(std::string_view key, std::string_view help) {
  const auto read = [](ObjectReader& reader, const FieldInfo& field, OwnerOf<Member>& owner) {
    using Value = ValueOf<Member>;
    const std::optional<double> number = reader.amount(field.key);
    if (!number) return;
    if constexpr (std::is_same_v<Value, std::optional<double>>) {
      owner.*Member = number;
    } else {
      owner.*Member = Value(*number);
    }
  };
  return entry_of<Member>(key, FieldKind::kNumber, help, read, &write_number<Member>);
}

template <auto Member>
Entry<OwnerOf<Member>> boolean(std::string_view key, std::string_view help) {
  const auto read = [](ObjectReader& reader, const FieldInfo& field, OwnerOf<Member>& owner) {
    if (const auto value = reader.boolean(field.key)) owner.*Member = *value;
  };
  const auto write = [](const FieldInfo&, const OwnerOf<Member>& owner) -> OrderedJsonValue { return owner.*Member; };
  return entry_of<Member>(key, FieldKind::kBoolean, help, read, write);
}

/// An empty text counts as absent.
template <auto Member>
Entry<OwnerOf<Member>> text(std::string_view key, std::string_view help) {
  const auto read = [](ObjectReader& reader, const FieldInfo& field, OwnerOf<Member>& owner) {
    if (const auto value = reader.text(field.key)) owner.*Member = *value;
  };
  const auto write = [](const FieldInfo& field, const OwnerOf<Member>& owner) -> OrderedJsonValue {
    const std::string& value = owner.*Member;
    if (value.empty() && !field.always) return nullptr;
    return value;
  };
  return entry_of<Member>(key, FieldKind::kText, help, read, write);
}

template <auto Member>
Entry<OwnerOf<Member>> choice(std::string_view key, std::string_view help) {
  using Enum = ValueOf<Member>;
  const auto read = [](ObjectReader& reader, const FieldInfo& field, OwnerOf<Member>& owner) {
    const auto index = reader.choice(field.key, names_of<Enum>());
    if (index) owner.*Member = static_cast<Enum>(*index);
  };
  const auto write = [](const FieldInfo&, const OwnerOf<Member>& owner) -> OrderedJsonValue {
    return name_of(owner.*Member);
  };
  return entry_of<Member>(key, FieldKind::kChoice, help, read, write).among([] { return names_of<Enum>(); });
}

template <auto Member>
Entry<OwnerOf<Member>> optional_choice(std::string_view key, std::string_view help) {
  using Enum = typename ValueOf<Member>::value_type;
  const auto read = [](ObjectReader& reader, const FieldInfo& field, OwnerOf<Member>& owner) {
    if (const auto index = reader.choice(field.key, names_of<Enum>())) {
      owner.*Member = static_cast<Enum>(*index);
    }
  };
  const auto write = [](const FieldInfo&, const OwnerOf<Member>& owner) -> OrderedJsonValue {
    const auto& value = owner.*Member;
    return value ? OrderedJsonValue(name_of(*value)) : OrderedJsonValue();
  };
  return entry_of<Member>(key, FieldKind::kChoice, help, read, write).among([] { return names_of<Enum>(); });
}

/// The object of the key; throws ConfigError if it is anything else.
JsonValue object_value(ObjectReader& reader, std::string_view key);

/// An object that is stored unchanged.
template <auto Member>
Entry<OwnerOf<Member>> object_as_given(std::string_view key, std::string_view help) {
  const auto read = [](ObjectReader& reader, const FieldInfo& field, OwnerOf<Member>& owner) {
    owner.*Member = object_value(reader, field.key);
  };
  return entry_of<Member>(key, FieldKind::kObject, help, read, nullptr);
}

/// A list such as ["norm", "rotary"]; flags separate the elements with commas.
std::vector<std::string> listed_words(ObjectReader& reader, const FieldInfo& field, const char* such_as);

void read_quantity(ObjectReader& reader, const FieldInfo& field, std::optional<double>& number);
OrderedJsonValue quantity_json(const FieldInfo& field, std::optional<double> number);

template <auto Member>
Entry<OwnerOf<Member>> quantity(std::string_view key, Dimension dimension, std::string_view help) {
  using Value = ValueOf<Member>;
  const auto read = [](ObjectReader& reader, const FieldInfo& field, OwnerOf<Member>& owner) {
    std::optional<double> number;
    read_quantity(reader, field, number);
    if (number) owner.*Member = Value(*number / field.unit);
  };
  const auto write = [](const FieldInfo& field, const OwnerOf<Member>& owner) {
    return quantity_json(field, number_in(owner.*Member));
  };
  Entry<OwnerOf<Member>> entry = entry_of<Member>(key, FieldKind::kQuantity, help, read, write);
  entry.field.dimension = dimension;
  return entry;
}

void add_element(nlohmann::ordered_json& list, nlohmann::ordered_json&& value);
OrderedJsonValue empty_list();

template <class Value>
inline constexpr bool kIsList = false;
template <class Value>
inline constexpr bool kIsList<std::vector<Value>> = true;

/// The JSON of a number, Boolean, text, enumerator name, or list of these; null if absent.
template <class Value>
OrderedJsonValue json_of_value(const Value& value) {
  if constexpr (kIsOptional<Value>) {
    return value ? json_of_value(*value) : OrderedJsonValue();
  } else if constexpr (kIsList<Value>) {
    OrderedJsonValue list = empty_list();
    for (const auto& element : value) add_element(*list, std::move(*json_of_value(element)));
    return list;
  } else if constexpr (std::is_enum_v<Value>) {
    return name_of(value);
  } else if constexpr (std::is_integral_v<Value> && !std::is_same_v<Value, bool>) {
    return static_cast<std::int64_t>(value);
  } else {
    return value;
  }
}

template <class Value>
constexpr FieldKind kind_of_value() {
  if constexpr (kIsOptional<Value>) {
    return kind_of_value<typename Value::value_type>();
  } else if constexpr (std::is_same_v<Value, bool>) {
    return FieldKind::kBoolean;
  } else if constexpr (std::is_integral_v<Value>) {
    return FieldKind::kWhole;
  } else if constexpr (std::is_floating_point_v<Value>) {
    return FieldKind::kNumber;
  } else {
    return kIsList<Value> ? FieldKind::kList : FieldKind::kText;
  }
}

/// A key of results, which are only written: a member, a member function, or a function of the struct.
template <auto Getter>
Entry<OwnerOf<Getter>> answer(std::string_view key, std::string_view help = "") {
  using Owner = OwnerOf<Getter>;
  using Value = std::decay_t<std::invoke_result_t<decltype(Getter), const Owner&>>;
  const auto write = [](const FieldInfo&, const Owner& owner) {
    return json_of_value<Value>(std::invoke(Getter, owner));
  };
  Entry<Owner> entry = custom<Owner>(key, kind_of_value<Value>(), help, nullptr, write);
  if constexpr (kIsList<Value>) entry.field.elements = kind_of_value<typename Value::value_type>();
  return entry;
}

template <auto Member, auto Table>
OrderedJsonValue write_object(const FieldInfo&, const OwnerOf<Member>& owner);
template <auto Member, auto Table>
OrderedJsonValue write_list(const FieldInfo&, const OwnerOf<Member>& owner);

/// A struct or optional struct that the owner's reader reads.
template <auto Member, auto Table>
Entry<OwnerOf<Member>> part(std::string_view key, std::string_view help) {
  return custom<OwnerOf<Member>>(key, FieldKind::kObject, help, nullptr, &write_object<Member, Table>)
      .template of<Table>();
}
/// A list of structs that the owner's reader reads; an empty one is not written.
template <auto Member, auto Table>
Entry<OwnerOf<Member>> parts(std::string_view key, std::string_view help) {
  return custom<OwnerOf<Member>>(key, FieldKind::kList, help, nullptr, &write_list<Member, Table>).template of<Table>();
}

/// True if the reader's object has the key; throws ConfigError if it is required and absent. Marks the key as known.
bool is_given(ObjectReader& reader, const FieldInfo& field);
/// Omits null JSON unless the field is always written.
void add_value(nlohmann::ordered_json& object, const FieldInfo& field, OrderedJsonValue value);
[[noreturn]] void fail_unknown_field(std::string_view key);

/// Reads into `owner` every key that the table can read. Marks all keys as known.
template <class Owner>
void read_fields(const Fields<Owner>& fields, ObjectReader& reader, Owner& owner) {
  for (const Field<Owner>& field : fields) {
    if (is_given(reader, field) && field.read != nullptr) field.read(reader, field, owner);
  }
}

/// Adds every value of `owner` in the table's order.
template <class Owner>
void add_fields(const Fields<Owner>& fields, const Owner& owner, nlohmann::ordered_json& object) {
  for (const Field<Owner>& field : fields) {
    if (field.write != nullptr) add_value(object, field, field.write(field, owner));
  }
}
/// `Json` is a template parameter so that the type need only be complete at the call.
template <class Owner, class Json = nlohmann::ordered_json>
Json write_fields(const Fields<Owner>& fields, const Owner& owner) {
  Json object = Json::object();
  add_fields(fields, owner, object);
  return object;
}

/// Reads the struct of an object inside the reader's, if present; rejects keys that are not in its table.
template <class Owner>
bool read_object(ObjectReader& reader, std::string_view key, const Fields<Owner>& fields, Owner& owner) {
  auto object = reader.object(key);
  if (!object) return false;
  read_fields(fields, *object, owner);
  object->refuse_unknown_keys();
  return true;
}
template <class Owner>
bool read_object(ObjectReader& reader, std::string_view key, const Fields<Owner>& fields, std::optional<Owner>& owner) {
  if (!reader.has(key)) return false;
  return read_object(reader, key, fields, owner.emplace());
}

template <auto Member, auto Table>
OrderedJsonValue write_object(const FieldInfo&, const OwnerOf<Member>& owner) {
  const auto& part = std::invoke(Member, owner);
  if constexpr (kIsOptional<std::decay_t<decltype(part)>>) {
    return part ? OrderedJsonValue(write_fields(Table(), *part)) : OrderedJsonValue();
  } else {
    return write_fields(Table(), part);
  }
}

template <auto Member, auto Table>
OrderedJsonValue write_list(const FieldInfo&, const OwnerOf<Member>& owner) {
  OrderedJsonValue list;
  for (const auto& entry : std::invoke(Member, owner)) add_element(*list, write_fields(Table(), entry));
  return list;
}

/// A struct or optional struct that the table itself reads.
template <auto Member, auto Table>
Entry<OwnerOf<Member>> own_part(std::string_view key, std::string_view help = "") {
  using Owner = OwnerOf<Member>;
  const auto read = [](ObjectReader& reader, const FieldInfo& field, Owner& owner) {
    read_object(reader, field.key, Table(), owner.*Member);
  };
  return custom<Owner>(key, FieldKind::kObject, help, read, &write_object<Member, Table>).template of<Table>();
}
/// A list of structs that the table itself reads; an empty one is not written.
template <auto Member, auto Table>
Entry<OwnerOf<Member>> own_parts(std::string_view key, std::string_view help = "") {
  using Owner = OwnerOf<Member>;
  const auto read = [](ObjectReader& reader, const FieldInfo& field, Owner& owner) {
    for (ObjectReader& element : reader.objects(field.key)) {
      read_fields(Table(), element, (owner.*Member).emplace_back());
      element.refuse_unknown_keys();
    }
  };
  return custom<Owner>(key, FieldKind::kList, help, read, &write_list<Member, Table>).template of<Table>();
}
/// An object whose keys are stored in the owner itself.
template <auto Table>
auto level(std::string_view key, std::string_view help = "") {
  using Owner = typename TableTraits<std::remove_cvref_t<decltype(Table())>>::Owner;
  const auto read = [](ObjectReader& reader, const FieldInfo& field, Owner& owner) {
    read_object(reader, field.key, Table(), owner);
  };
  const auto write = [](const FieldInfo&, const Owner& owner) -> OrderedJsonValue {
    return write_fields(Table(), owner);
  };
  return custom<Owner>(key, FieldKind::kObject, help, read, write).template of<Table>();
}

/// The field of that key, which must exist.
template <class Owner>
const Field<Owner>& field_named(const Fields<Owner>& fields, std::string_view key) {
  for (const Field<Owner>& field : fields) {
    if (field.key == key) return field;
  }
  fail_unknown_field(key);
}

/// JSON Schema of an object with these fields: types, ranges, choices and units; dependencies on other keys appear only
/// in the descriptions.
nlohmann::ordered_json schema_of(const FieldInfos& fields);
/// Like schema_of, for a file that the program writes: all keys are required except `later` ones, and unknown keys are
/// allowed.
nlohmann::ordered_json file_schema_of(const FieldInfos& fields, std::string_view description = "");

}  // namespace flopcast
