#include "calibrate/device/import/trace_arguments.hpp"

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <map>

namespace flopcast {

namespace {

using Json = nlohmann::json;

// Two numbers of a matrix's shape.
std::optional<std::pair<int, int>> matrix_of(const Json& dimensions, std::size_t index) {
  constexpr std::int64_t kLargest = 100'000'000;
  if (!dimensions.is_array() || index >= dimensions.size()) return std::nullopt;
  const Json& shape = dimensions[index];
  if (!shape.is_array() || shape.size() != 2) return std::nullopt;
  std::pair<int, int> sides;
  for (std::size_t side = 0; side < 2; ++side) {
    if (!shape[side].is_number_integer()) return std::nullopt;
    const auto length = shape[side].get<std::int64_t>();
    if (length < 1 || length > kLargest) return std::nullopt;
    (side == 0 ? sides.first : sides.second) = static_cast<int>(length);
  }
  return sides;
}

}  // namespace

const Json* trace_member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string trace_text(const Json& object, const char* key) {
  const Json* value = trace_member(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

std::optional<double> trace_number(const Json& object, const char* key) {
  const Json* value = trace_member(object, key);
  if (value == nullptr) return std::nullopt;
  double number = 0.0;
  if (value->is_number()) {
    number = value->get<double>();
  } else if (value->is_string()) {
    const std::string& text = value->get_ref<const std::string&>();
    char* end = nullptr;
    number = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0') return std::nullopt;
  } else {
    return std::nullopt;
  }
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::optional<int> trace_count(const Json& object, const char* key) {
  constexpr double kMost = 1e9;
  const auto number = trace_number(object, key);
  if (!number || *number < 1.0 || *number > kMost || *number != std::floor(*number)) return std::nullopt;
  return static_cast<int>(*number);
}

std::optional<std::int64_t> external_id(const Json& arguments) {
  for (const char* key : {"External id", "external id"}) {
    constexpr double kLargest = 9e15;
    const auto number = trace_number(arguments, key);
    if (number && std::abs(*number) < kLargest) return static_cast<std::int64_t>(*number);
  }
  return std::nullopt;
}

std::optional<TracedType> traced_type(std::string name) {
  const std::size_t scope = name.rfind(':');
  if (scope != std::string::npos) name.erase(0, scope + 1);
  static const std::map<std::string, TracedType> types = {
      {"float", {"fp32", 4}},      {"Float", {"fp32", 4}},         {"Half", {"fp16", 2}},
      {"BFloat16", {"bf16", 2}},   {"double", {"fp64", 8}},        {"Double", {"fp64", 8}},
      {"Int", {"int32", 4}},       {"Long", {"int64", 8}},         {"Byte", {"uint8", 1}},
      {"Char", {"int8", 1}},       {"Bool", {"uint8", 1}},         {"Float8_e4m3fn", {"fp8", 1}},
      {"Float8_e5m2", {"fp8", 1}}, {"Float8_e4m3fnuz", {"fp8", 1}}};
  const auto known = types.find(name);
  return known == types.end() ? std::nullopt : std::optional(known->second);
}

std::optional<TracedProduct> traced_product(const std::string& name, const Json& arguments) {
  const bool added = name == "aten::addmm";
  if (!added && name != "aten::mm" && name != "aten::_scaled_mm") return std::nullopt;
  const Json* dimensions = trace_member(arguments, "Input Dims");
  const Json* types = trace_member(arguments, "Input type");
  if (dimensions == nullptr || types == nullptr || !types->is_array()) return std::nullopt;
  const std::size_t first = added ? 1 : 0;
  const auto left = matrix_of(*dimensions, first);
  const auto right = matrix_of(*dimensions, first + 1);
  if (!left || !right || left->second != right->first || first >= types->size() || !(*types)[first].is_string()) {
    return std::nullopt;
  }
  const auto dtype = traced_type((*types)[first].get<std::string>());
  if (!dtype) return std::nullopt;
  return TracedProduct{{left->first, right->second, left->second}, dtype->precision};
}

std::optional<SampleKind> traced_collective(std::string name) {
  std::erase(name, '_');
  // The longer names first.
  static const std::vector<std::pair<const char*, SampleKind>> kinds = {
      {"allreduce", SampleKind::kAllReduce},         {"allgather", SampleKind::kAllGather},
      {"reducescatter", SampleKind::kReduceScatter}, {"alltoall", SampleKind::kAllToAll},
      {"broadcast", SampleKind::kBroadcast},         {"reduce", SampleKind::kReduce},
      {"send", SampleKind::kPointToPoint},           {"recv", SampleKind::kPointToPoint}};
  for (const auto& [word, kind] : kinds) {
    if (name.find(word) != std::string::npos) return kind;
  }
  return std::nullopt;
}

std::vector<int> traced_ranks(const Json& arguments) {
  const Json* value = trace_member(arguments, "Process Group Ranks");
  if (value == nullptr) return {};
  const std::string text = value->is_string() ? value->get<std::string>() : value->dump();
  if (text.find('.') != std::string::npos) return {};
  std::vector<int> ranks;
  const char* rest = text.c_str();
  while (*rest != '\0') {
    if (*rest < '0' || *rest > '9') {
      ++rest;
      continue;
    }
    constexpr long kMostRanks = 1'000'000;
    char* end = nullptr;
    const long rank = std::strtol(rest, &end, 10);
    if (rank > kMostRanks) return {};
    ranks.push_back(static_cast<int>(rank));
    rest = end;
  }
  return ranks;
}

}  // namespace flopcast
