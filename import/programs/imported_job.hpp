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

/// The files that one of them may name, and what is not JSON in them: the core itself opens none. The program that
/// loads a job owns it.
class Files {
 public:
  Files() = default;
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  Files(Files&&) = delete;
  Files& operator=(Files&&) = delete;
  virtual ~Files() = default;

  /// The text of a file. Throws ConfigError when it cannot be read.
  virtual std::string read(const std::string& path) const = 0;
  /// Nothing when it cannot be read.
  std::optional<std::string> try_read(const std::string& path) const;
  enum class Kind { kNone, kFile, kFolder };
  virtual Kind kind_of(const std::string& path) const { return try_read(path) ? Kind::kFile : Kind::kNone; }
  /// YAML as JSON. Throws ConfigError, also where it cannot be read at all.
  virtual nlohmann::json parse_yaml(std::string_view text, const std::string& file) const = 0;
  /// TOML as JSON. Throws ConfigError likewise.
  virtual nlohmann::json parse_toml(std::string_view text, const std::string& file) const = 0;
};

/// What is known beside the text of a file.
struct ImportContext {
  /// Fields that flags or other files set, so that this one need not tell them; with the flag's text where there is
  /// one.
  std::map<std::string, std::string> given;
  const Files* files = nullptr;                    ///< none: no other file is followed, and YAML is refused
  std::vector<std::string> arguments;              ///< of a launch script: $1, $2, …
  std::map<std::string, std::string> environment;  ///< of a launch script

  bool has(const std::string& field) const { return given.count(field) > 0; }
  /// The whole number that a flag gives; 0 when none does.
  int whole(const std::string& field) const;
};

/// The keys of a file by what they mean for the forecast, as the file writes them.
struct KeyUse {
  std::vector<std::string> read;          ///< in the job
  std::vector<std::string> no_effect;     ///< known to change neither time nor memory
  std::vector<std::string> not_modelled;  ///< would change the forecast: each has its warning
  std::vector<std::string> unknown;       ///< no table has them: each has its warning

  std::size_t count() const { return read.size() + no_effect.size() + not_modelled.size() + unknown.size(); }
  void add(const KeyUse& other);
};

/// A file of another program in the words of the job file, possibly only a part of a job.
struct ImportedJob {
  const JobFormat* format = nullptr;  ///< of the file that it was read from
  JsonValue job = JsonValue::object();
  std::map<std::string, std::string> places;  ///< "model.layers" -> "config.json:/num_hidden_layers"
  std::vector<std::string> notes;             ///< assumptions, and what has no effect
  std::vector<std::string> warnings;          ///< what is not modelled, or what the other program refuses
  KeyUse keys;

  /// Sets a dotted field of the job; `place` is where complaints about it point.
  void put(const std::string& field, nlohmann::json value, const std::string& place);
  bool has(const std::string& field) const;
  /// A dotted field that was put as a whole number; 0 when it was not.
  int whole(const std::string& field) const;
  /// Warns that `key` is not modelled, or not fully; `how` says what the forecast has instead.
  void warn_of(const std::string& key, const std::string& place, const std::string& how);
  /// Lays another import over this one: its values win.
  void merge(const ImportedJob& other);
};

/// A key that another program has for a size, and the job's field that it is.
struct JobSize {
  const char* key;
  const char* field;
};
/// Takes those that are given, whole numbers of 1 or more; whether any is.
bool take_sizes(JsonReader& object, std::span<const JobSize> sizes, ImportedJob& imported);

/// The text of a file and, where it is JSON, its values: parsed once, for those who ask what it is and who read it.
class ForeignFile {
 public:
  enum class Syntax { kJson, kYaml, kToml, kShell };

  ForeignFile(std::string_view text, std::string file);

  std::string_view text() const { return text_; }
  const std::string& name() const { return name_; }
  /// By content, with the name deciding between shell scripts, YAML and TOML. What looks like nothing known counts as
  /// JSON.
  Syntax syntax() const { return syntax_; }
  /// Valid JSON that is an object with at least one of these keys.
  bool has_any(std::initializer_list<const char*> keys) const;
  bool is_list() const;
  bool is_object() const;
  /// The values of JSON. Throws the complaint of its parser, ConfigError.
  const nlohmann::json& values() const;

 private:
  std::string_view text_;
  std::string name_;
  Syntax syntax_ = Syntax::kJson;
  JsonValue values_;
  std::optional<Diagnostic> problem_;  ///< why it is not JSON
};

/// A kind of file that is read as a job, or as a part of one whose rest flags and --model give. Each is told by the
/// file of its reader.
struct JobFormat {
  std::string_view name;
  bool (*detect)(const ForeignFile& file);
  ImportedJob (*read)(const ForeignFile& file, const ImportContext& context);
  bool is_job_file = false;     ///< flopcast's own: paths in it are beside it
  bool is_model = false;        ///< tells a model and nothing else
  bool runs_deepspeed = false;  ///< DeepSpeed's engine runs it, or may
};

/// Text that looks like nothing known counts as a job file, whose reader then complains.
const JobFormat& format_of(const ForeignFile& file);

/// Reads a file of any format; a job file comes back as it is. Throws ConfigError located in the file.
ImportedJob import_job(const ForeignFile& file, const ImportContext& context);

/// What the other program refuses once the file, the flags and --model are one job, such as DeepSpeed's ZeRO 2 and 3
/// with pipelines.
std::vector<std::string> refused_combinations(const ImportedJob& imported, const nlohmann::json& job);

/// A reference to a file rather than a catalogue name: it holds a slash or ends in .json.
bool is_path(std::string_view name);
/// A path written in `file`, as seen from where the program runs.
std::string path_beside(const std::string& file, const std::string& path);

/// The formats of other programs, each told by its reader's file: its name, how it is recognised and how it is read.
/// import_job asks them in the order of its list.
const JobFormat& megatron_format();       ///< an argument list, or the shell script that launches it
const JobFormat& llama_factory_format();  ///< LLaMA-Factory's YAML
const JobFormat& recipe_format();         ///< YAML or TOML whose keys a table of import/keys maps one by one
const JobFormat& adapter_format();        ///< PEFT's adapter_config.json
const JobFormat& megatron_yaml_format();  ///< YAML of Megatron Core's fields: NeMo, Megatron-Bridge
const JobFormat& accelerate_format();     ///< Hugging Face Accelerate's YAML
const JobFormat& deepspeed_format();      ///< ds_config.json
const JobFormat& hugging_face_format();   ///< config.json of a model

/// "flopcast reads …": the files that have a reader, for complaints about others.
std::string readable_formats();

/// The values of a file in JSON, YAML or TOML. Throws ConfigError.
nlohmann::json parsed_values(const ForeignFile& file, const ImportContext& context);

}  // namespace flopcast
