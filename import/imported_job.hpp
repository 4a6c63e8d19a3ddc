#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/document.hpp"

namespace flopcast {

/// The files of other programs that are read as jobs. Each describes a part of one; flags and --model give the rest.
enum class JobFormat {
  kJobFile,       ///< flopcast's own JSON
  kHuggingFace,   ///< config.json of a model
  kMegatron,      ///< an argument list, or the shell script that launches it
  kDeepSpeed,     ///< ds_config.json
  kSizes,         ///< {"data_parallel_size": 4, "pipeline_parallel_size": 2, "tensor_parallel_size": 4}
  kAccelerate,    ///< Hugging Face Accelerate's YAML
  kLlamaFactory,  ///< LLaMA-Factory's YAML
  kAnswer,        ///< what flopcast itself printed as JSON: a plan, whose job is the best layout's, or a result
};
std::string_view name_of(JobFormat format);

/// What the core cannot do itself, handed in by the program; each may be empty.
struct ImportContext {
  std::set<std::string> given;  ///< fields that flags set: the file need not tell them
  std::function<nlohmann::json(std::string_view text, std::string_view file)> parse_yaml;
  /// The text of a file that another one names, nothing when it cannot be read.
  std::function<std::optional<std::string>(const std::string& path)> read_file;
};

/// A file of another program in the words of the job file, possibly only a part of a job.
struct ImportedJob {
  JobFormat format = JobFormat::kJobFile;
  nlohmann::json job = nlohmann::json::object();
  std::map<std::string, std::string> places;  ///< "model.layers" -> "config.json:/num_hidden_layers"
  std::vector<std::string> notes;             ///< assumptions, and what has no effect
  std::vector<std::string> warnings;          ///< what is not modelled, or what the other program refuses

  /// Sets a dotted field of the job; `place` is where complaints about it point.
  void put(const std::string& field, nlohmann::json value, const std::string& place);
  bool has(const std::string& field) const;
  /// A dotted field that was put as a whole number; 0 when it was not.
  int whole(const std::string& field) const;
  /// Lays another import over this one: its values win.
  void merge(const ImportedJob& other);
};

/// The format by content, with the file's name deciding between shell scripts and YAML. Text that looks like nothing
/// known counts as a job file, whose reader then complains.
JobFormat detect_format(std::string_view text, std::string_view file);

/// Reads a file of any format; a job file comes back as it is. Throws ConfigError located in the file.
ImportedJob import_job(std::string_view text, const std::string& file, const ImportContext& context);

/// What the other program refuses once the file, the flags and --model are one job, such as DeepSpeed's ZeRO 2 and 3
/// with pipelines.
std::vector<std::string> refused_combinations(const ImportedJob& imported, const nlohmann::json& job);

/// A reference to a file rather than a catalogue name: it holds a slash or ends in .json.
bool is_path(std::string_view name);
/// A path written in `file`, as seen from where the program runs.
std::string path_beside(const std::string& file, const std::string& path);

}  // namespace flopcast
