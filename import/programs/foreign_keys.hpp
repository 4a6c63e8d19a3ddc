#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "import/programs/imported_job.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/config/object_reader.hpp"

namespace flopcast {

/// The tables of import/keys. The source is generated: cmake/embed.cmake.
const std::vector<EmbeddedFile>& embedded_keys();

/// The keys of a program: each is read, has no effect, is not modelled (with how the forecast would change) or is
/// refused (with what it stands for), from a source. A file of import/keys.
class KeyTable {
 public:
  enum class Kind { kRead, kNoEffect, kNotModelled, kRefused };
  struct Entry {
    Kind kind = Kind::kRead;
    std::string why;                    ///< of what is not modelled or refused
    std::vector<std::string> harmless;  ///< values at which it changes nothing after all
    std::string source;
  };

  /// import/keys/NAME.json.
  static const KeyTable& of(std::string_view name);

  /// A key that ends in * stands for all that begin so. Null for an unknown one.
  const Entry* find(const std::string& key) const;
  const std::map<std::string, Entry>& entries() const { return entries_; }
  /// The name that an older or other one stands for; itself where it has none.
  const std::string& name_of(const std::string& key) const;
  /// Why a program is not one that is forecast: the first reason of `group` ("refused", "no_training", "bidirectional")
  /// one of whose words is in the program's name; empty when none is.
  std::string program_reason(const std::string& program, const std::string& group) const;
  /// The nearest word of the table to an unknown one, for "did you mean"; empty when none is near.
  std::string nearest(const std::string& key) const;

 private:
  explicit KeyTable(std::string_view text, const std::string& path);

  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> aliases_;
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> programs_;  ///< group -> word, reason
};

/// Sorts what a reader did not ask for by its program's table: one warning for each reason, a warning for every key
/// that no table has. Throws ConfigError for a key that stands for what is no such model or training.
class KeyJudge {
 public:
  KeyJudge(const KeyTable& table, ImportedJob& imported) : table_(table), imported_(imported) {}

  /// `value` as it was written; `shown` is the key as the file writes it.
  void judge(const std::string& key, const std::string& value, const std::string& shown, const std::string& place);
  void finish(const std::string& file);

 private:
  const KeyTable& table_;
  ImportedJob& imported_;
  std::map<std::string, std::vector<std::string>> places_;  ///< of what is not modelled, by how
  std::vector<std::string> no_effect_;
};

/// Sorts the keys of an object: those that were asked for are read. A section of the table's no-effect keys is not
/// entered.
void judge_keys(const JsonReader& object, const std::string& table, ImportedJob& imported);
/// One note that names every key whose value is "auto".
void note_auto(const JsonReader& object, ImportedJob& imported);

/// The one place that knows which keys of the job file sharding and offloading become.

/// The catalogue's stack for a program, named as an assumption.
void put_stack(const std::string& stack, const std::string& program, const std::string& place, ImportedJob& imported);
/// Where optimizer states and weights live, "cpu" or "nvme", as DeepSpeed and FSDP say it.
void put_offload(const std::optional<std::string>& optimizer, const std::optional<std::string>& weights,
                 const std::string& place, ImportedJob& imported);
/// Checkpointed activations live in host memory.
void put_activation_offload(const std::string& place, ImportedJob& imported);
/// Adapters as other programs describe them; absent members were not given. The one place that knows which keys of the
/// job file they become.
struct ForeignAdapter {
  std::optional<int> rank;
  std::optional<double> alpha;
  std::optional<double> dropout;
  JsonValue targets;  ///< a list of names, a text of them, or an expression; null: not given
  int bits = 0;       ///< of the frozen linears' weights; 0: those of the training format
  std::optional<bool> double_quant;
  bool trains_tables = false;  ///< embedding or head are trained whole
  std::string place;
  std::string targets_place;
};
void put_adapter(const ForeignAdapter& adapter, ImportedJob& imported);
/// Only some layers are trained: the last so many, below 0 the first.
void put_frozen_layers(std::optional<int> layers, const std::string& place, ImportedJob& imported);
/// Whether a list of modules that are trained whole has the embedding or the head.
bool names_tables(const nlohmann::json& modules);
/// The bytes of a gradient bucket.
void put_bucket(double bytes, const std::string& place, ImportedJob& imported);
/// By the names of transformers and DeepSpeed; throws for an optimizer with other states.
void put_optimizer(JsonReader& object, const std::string& key, ImportedJob& imported);

/// Notes how samples shorter than `length`, a key of the file, are forecast.
void note_packing(bool packed, const std::string& length, ImportedJob& imported);

/// A mixture of experts and latent attention as other programs describe them; absent members were not given. The one
/// place that knows which keys of the job file they become.
struct ForeignExperts {
  int count = 0;  ///< 0: a dense model
  int top_k = 1;
  std::optional<int> ffn;         ///< width of one routed expert
  int shared = 0;                 ///< experts that every token visits
  std::optional<int> shared_ffn;  ///< width of one shared expert; absent: as wide as a routed one
  int first_dense = 0;            ///< layers in front that keep a dense MLP
  int every = 1;                  ///< a mixture in every n-th layer after those
  int groups = 0;                 ///< of experts, of which a token's may be in group_top_k; 0 or 1: any experts
  int group_top_k = 0;
};
void put_experts(const ForeignExperts& experts, const std::string& place, ImportedJob& imported);

/// The layers with experts of a Python list, "([0]*3+[1]*58)" or "[0, 1, 1]"; nothing when it is none.
std::optional<std::vector<int>> layers_of_pattern(const std::string& text);
/// Puts the layers with experts (not 0) into `experts`; false when neither leading dense layers nor every n-th tells
/// them.
bool put_layer_pattern(const std::vector<int>& layers, ForeignExperts& experts);
/// The decoder layers of each stage of Megatron's "Et*3|(tt|)*29|L"; nothing when it is not understood.
std::optional<std::vector<int>> stages_of_string(const std::string& text);

struct ForeignLatentAttention {
  std::optional<int> q_rank;  ///< absent: queries are not compressed
  int kv_rank = 0;
  int qk_nope_dim = 0;
  int qk_rope_dim = 0;
  int v_dim = 0;
};
/// A model by the name of a repository of the Hub, or a folder with a config.json beside `file`: false when neither the
/// catalogue nor a folder has it.
bool put_hub_model(const std::string& name, const std::string& file, const std::string& place,
                   const ImportContext& context, ImportedJob& imported);
/// Lays a DeepSpeed JSON over the job, named from where the program runs, beside `file` or from a folder above it, as a
/// repository's root; false when none is there.
bool put_deepspeed_file(const std::string& name, const std::string& file, const ImportContext& context,
                        ImportedJob& imported);
/// How to come by the config.json of a repository of the Hub.
std::string hub_help(const std::string& name);
/// JSON of a here-document, null in place of what the script does not set.
std::string without_open_values(const std::string& text);

void put_latent_attention(const ForeignLatentAttention& attention, const std::string& place, ImportedJob& imported);

}  // namespace flopcast
