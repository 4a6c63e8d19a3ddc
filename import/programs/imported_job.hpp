#pragma once

#include <initializer_list>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "model/config/object_reader.hpp"

namespace flopcast {

struct JobFormat;

/// Access to the files that a job may name, and to parsers of formats other than JSON; the core itself opens no files.
/// Owned by the program that loads a job.
class Files {
 public:
  Files() = default;
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  Files(Files&&) = delete;
  Files& operator=(Files&&) = delete;
  virtual ~Files() = default;

  /// Returns the text of a file. Throws ConfigError if it cannot be read.
  virtual std::string read(const std::string& path) const = 0;
  /// Returns nothing if the file cannot be read.
  std::optional<std::string> try_read(const std::string& path) const;
  enum class Kind { kNone, kFile, kFolder };
  virtual Kind kind_of(const std::string& path) const { return try_read(path) ? Kind::kFile : Kind::kNone; }
  /// Parses YAML into JSON. Throws ConfigError, also if this build cannot read YAML.
  virtual nlohmann::json parse_yaml(std::string_view text, const std::string& file) const = 0;
  /// Parses TOML into JSON. Throws ConfigError as parse_yaml does.
  virtual nlohmann::json parse_toml(std::string_view text, const std::string& file) const = 0;
};

/// Information besides the text of a file.
struct ImportContext {
  /// Fields set by flags or other files, which this file therefore need not set; with the flag's text if there is one.
  std::map<std::string, std::string> given;
  const Files* files = nullptr;                    ///< null: no other file is followed, and YAML is refused
  std::vector<std::string> arguments;              ///< of a launch script: $1, $2, …
  std::map<std::string, std::string> environment;  ///< of a launch script

  bool has(const std::string& field) const { return given.count(field) > 0; }
  /// The whole number that a flag gives; 0 if there is none.
  int whole(const std::string& field) const;
};

/// The keys of a file by their meaning for the forecast, as written in the file.
struct KeyUse {
  std::vector<std::string> read;          ///< used in the job
  std::vector<std::string> no_effect;     ///< known to change neither time nor memory
  std::vector<std::string> not_modelled;  ///< would change the forecast; each has a warning
  std::vector<std::string> unknown;       ///< in no table; each has a warning

  std::size_t count() const { return read.size() + no_effect.size() + not_modelled.size() + unknown.size(); }
  void add(const KeyUse& other);
};

/// A file of another program expressed in keys of the job file, possibly only part of a job.
struct ImportedJob {
  const JobFormat* format = nullptr;  ///< format of the file that it was read from
  JsonValue job = JsonValue::object();
  std::map<std::string, std::string> places;  ///< "model.layers" -> "config.json:/num_hidden_layers"
  std::vector<std::string> notes;             ///< assumptions, and keys without effect
  std::vector<std::string> warnings;          ///< keys that are not modelled, or that the other program refuses
  KeyUse keys;

  /// Sets a dotted field of the job; `place` is where errors about it point.
  void put(const std::string& field, nlohmann::json value, const std::string& place);
  bool has(const std::string& field) const;
  /// A dotted field that was put as a whole number; 0 if it was not.
  int whole(const std::string& field) const;
  /// Warns that `key` is not, or not fully, modelled; `how` describes what the forecast uses instead.
  void warn_of(const std::string& key, const std::string& place, const std::string& how);
  /// Merges another import into this one; its values override.
  void merge(const ImportedJob& other);
};

/// A size key of another program, and the corresponding field of the job.
struct JobSize {
  const char* key;
  const char* field;
};
/// Puts the given sizes, whole numbers of at least 1; returns true if there are any.
bool take_sizes(JsonReader& object, std::span<const JobSize> sizes, ImportedJob& imported);

/// The text of a file and, for JSON, its values: parsed once for detection and for reading.
class ForeignFile {
 public:
  enum class Syntax { kJson, kYaml, kToml, kShell };

  ForeignFile(std::string_view text, std::string file);

  std::string_view text() const { return text_; }
  const std::string& name() const { return name_; }
  /// Determined by content; the name distinguishes shell scripts, YAML and TOML. Unrecognised text counts as JSON.
  Syntax syntax() const { return syntax_; }
  /// True for a JSON object with at least one of these keys.
  bool has_any(std::initializer_list<const char*> keys) const;
  bool is_list() const;
  bool is_object() const;
  /// The JSON values. Throws the parser's error, a ConfigError.
  const nlohmann::json& values() const;

 private:
  std::string_view text_;
  std::string name_;
  Syntax syntax_ = Syntax::kJson;
  JsonValue values_;
  std::optional<Diagnostic> problem_;  ///< why it is not valid JSON
};

/// A kind of file that is read as a job, or as a part of one that flags and --model complete. Each is defined in the
/// source of its reader.
struct JobFormat {
  std::string_view name;
  bool (*detect)(const ForeignFile& file);
  ImportedJob (*read)(const ForeignFile& file, const ImportContext& context);
  bool is_job_file = false;     ///< a job file: paths in it are relative to it
  bool is_model = false;        ///< describes a model only
  bool runs_deepspeed = false;  ///< may run on DeepSpeed's engine
};

/// Unrecognised text counts as a job file, whose reader then reports the error.
const JobFormat& format_of(const ForeignFile& file);

/// Reads a file of any format; a job file is returned unchanged. Throws ConfigError with the place in the file.
ImportedJob import_job(const ForeignFile& file, const ImportContext& context);

/// Combinations that the other program refuses once the file, the flags and --model are merged into one job, such as
/// ZeRO 2 and 3 with pipelines in DeepSpeed.
std::vector<std::string> refused_combinations(const ImportedJob& imported, const nlohmann::json& job);

/// True for a reference to a file rather than a catalogue name: one that contains a slash or ends in .json.
bool is_path(std::string_view name);
/// A path written in `file`, resolved relative to the working directory.
std::string sibling_path(const std::string& file, const std::string& path);

/// The formats of other programs, each defined by its reader: its name, how it is recognised and how it is read.
/// import_job tries them in the order of its list.
const JobFormat& megatron_format();       ///< an argument list, or the shell script that launches it
const JobFormat& llama_factory_format();  ///< LLaMA-Factory's YAML
const JobFormat& recipe_format();         ///< YAML or TOML whose keys a table of import/keys maps one by one
const JobFormat& adapter_format();        ///< PEFT's adapter_config.json
const JobFormat& megatron_yaml_format();  ///< YAML with Megatron Core's fields: NeMo, Megatron-Bridge
const JobFormat& accelerate_format();     ///< Hugging Face Accelerate's YAML
const JobFormat& deepspeed_format();      ///< ds_config.json
const JobFormat& hugging_face_format();   ///< config.json of a model

/// "flopcast reads …": the formats with a reader, for errors about other files.
std::string readable_formats();

/// The values of a file in JSON, YAML or TOML. Throws ConfigError.
nlohmann::json parsed_values(const ForeignFile& file, const ImportContext& context);

}  // namespace flopcast
