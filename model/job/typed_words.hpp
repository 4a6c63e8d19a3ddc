#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/catalog/catalogue.hpp"
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

// Names as people type them, in the words of the job file. Job files are not read so: there one thing has one name.

/// An entry of the catalogue for a name in another spelling: case, dashes, a Hub repository's owner and endings
/// ("meta-llama/Meta-Llama-3-70B-Instruct" is llama3-70b, "A100" a100-80g). The text itself where none is meant.
std::string typed_entry(CatalogueKind kind, const std::string& text);

/// Schedules, comma separated, each with its suffix: "1F1B,zero-bubble,interleaved_1f1b:2" is "1f1b,zb-h1,
/// interleaved:2". What is in a file stays.
std::string typed_schedules(const std::string& text);

/// A cluster: "256xh100" is 256 of the device, in nodes of the catalogue that has it, and "h100" such a node;
/// "4xh100" a part of one, "256xgb200" four racks with 64 of their 72 in use. "32xdgx-h100" are nodes, as in a job
/// file. A text, or an object for a part of a node.
nlohmann::json typed_cluster(const std::string& text);
/// So many devices of a cluster that is named without its nodes. Throws ConfigError, of --gpus, where it has a count
/// already or whole nodes do not hold them.
nlohmann::json typed_cluster(int devices, const std::string& text);

/// The text of a flag as its key's reader knows it: any of the above, "BF16" and "bfloat16", "8k" tokens of a sequence,
/// "800G" of a network card, "$2.50".
std::string typed_text(const JobKey& key, const std::string& text);

}  // namespace flopcast
