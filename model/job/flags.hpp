#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/document.hpp"
#include "model/job/fields.hpp"

namespace flopcast {

/// A flag as given: `--tp 16`.
struct FlagValue {
  const JobKey* key = nullptr;
  std::string flag;
  std::string text;
};

/// Sets the key of a dotted path. An object that goes by its name becomes one that starts from it.
void lay_over(std::string_view field, nlohmann::json value, nlohmann::json& root);

/// Whether a JSON document is what --show-config prints: a list of keys with values and origins.
bool lists_keys(const nlohmann::json& document);
/// The job file that those keys make.
nlohmann::json job_of_keys(const nlohmann::json& document);

/// Lays flags over a job file's JSON; flags win. A field inside a name (`--model.layers 48` over `"model":
/// "gpt3-175b"`) turns the name into an object that starts from it. Throws ConfigError when a text does not fit its
/// key.
void apply_flags(const std::vector<FlagValue>& flags, nlohmann::json& root, Origins& origins);

}  // namespace flopcast
