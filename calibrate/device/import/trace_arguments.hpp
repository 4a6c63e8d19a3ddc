#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/device/measurement.hpp"

namespace flopcast {

/// The arguments of a trace's events, for trace.cpp. Absent and malformed members give nothing.
const nlohmann::json* trace_member(const nlohmann::json& object, const char* key);
std::string trace_text(const nlohmann::json& object, const char* key);
/// Numbers are also written as text.
std::optional<double> trace_number(const nlohmann::json& object, const char* key);
std::optional<int> trace_count(const nlohmann::json& object, const char* key);  ///< 1 or more
std::optional<std::int64_t> external_id(const nlohmann::json& arguments);

struct TracedType {
  const char* precision;
  int bytes;
};
/// "c10::BFloat16" of an operator's argument, "BFloat16" of a collective's.
std::optional<TracedType> traced_type(std::string name);

struct TracedProduct {
  SampleShape shape;
  std::string dtype;
};
std::optional<TracedProduct> traced_product(const std::string& name, const nlohmann::json& arguments);
std::optional<SampleKind> traced_collective(std::string name);
/// "[0, 1, 2]", also as a list; nothing where it is shortened with dots.
std::vector<int> traced_ranks(const nlohmann::json& arguments);

}  // namespace flopcast
