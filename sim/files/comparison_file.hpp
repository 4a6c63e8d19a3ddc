#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/forecast/result.hpp"

namespace flopcast {

/// One of the compared layouts, forecast now or read from a result.
struct ComparedLayout {
  std::string name;  ///< as the user gave it
  Result result;
  std::string document;  ///< the whole result, flopcast.result/1
};

/// Schema flopcast.comparison/1, what `flopcast compare` prints of two layouts or more: a, b and the terms of the first
/// two, and others for what follows.
std::string write_comparison(const std::vector<ComparedLayout>& layouts);

/// Whether `json` calls itself a flopcast.comparison/1.
bool is_comparison(const nlohmann::ordered_json& json);
/// What pages read of one: every layout's name and its whole result, which lies in `json`. Throws ConfigError with the
/// side that is none.
struct NamedResult {
  std::string name;
  const nlohmann::ordered_json* result = nullptr;
};
std::vector<NamedResult> read_comparison(const nlohmann::ordered_json& json, const std::string& file);

}  // namespace flopcast
