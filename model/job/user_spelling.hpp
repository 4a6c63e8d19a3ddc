#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/catalog/catalogue.hpp"
#include "model/config/document.hpp"
#include "model/job/fields.hpp"

namespace flopcast {

/// A flag as typed: `--tp 16`.
struct FlagValue {
  const JobKey* key = nullptr;
  std::string flag;
  std::string text;
};

/// Sets the key at a dotted path. A name on the path becomes an object based on it.
void set_key(std::string_view field, nlohmann::json value, nlohmann::json& root);

/// True if a JSON document is the output of --show-config: a list of keys with values and origins.
bool lists_keys(const nlohmann::json& document);
/// The job file given by these keys.
nlohmann::json job_of_keys(const nlohmann::json& document);

/// Applies flags to a job file's JSON; flags override the file. A field inside a name (`--model.layers 48` with
/// `"model": "gpt3-175b"`) turns the name into an object based on it. Throws ConfigError if a text does not fit its
/// key.
void apply_flags(const std::vector<FlagValue>& flags, nlohmann::json& root, Origins& origins);

// Conversions of names as people type them to those of job files. Job files themselves accept only the exact names.

/// The catalogue entry for a name in another spelling: case, dashes, a Hub repository's owner and suffixes
/// ("meta-llama/Meta-Llama-3-70B-Instruct" is llama3-70b, "A100" a100-80g). Returns the text unchanged if none matches.
std::string typed_entry(CatalogueKind kind, const std::string& text);

/// Comma-separated schedules with their suffixes: "1F1B,zero-bubble,interleaved_1f1b:2" becomes
/// "1f1b,zb-h1,interleaved:2". File names are unchanged.
std::string typed_schedules(const std::string& text);

/// A cluster: "256xh100" is 256 of that device in the catalogue's nodes that hold it, "h100" one such node; "4xh100" is
/// part of a node, "256xgb200" four racks with 64 of their 72 GPUs in use. "32xdgx-h100" counts nodes, as in a job
/// file. Returns a string, or an object for part of a node.
nlohmann::json typed_cluster(const std::string& text);
/// `devices` devices of a cluster that is named without a number of nodes. Throws ConfigError about --gpus if the name
/// already has a count or whole nodes cannot hold that number.
nlohmann::json typed_cluster(int devices, const std::string& text);

/// Converts a flag's text to the form its key's reader expects: all of the above, "BF16" and "bfloat16", "8k" for
/// tokens of a sequence, "800G" for a network card, "$2.50".
std::string typed_text(const JobKey& key, const std::string& text);

}  // namespace flopcast
