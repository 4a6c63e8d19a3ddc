#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "import/programs/imported_job.hpp"
#include "model/config/document.hpp"
#include "model/job/flags.hpp"

namespace flopcast {

/// A job before its sections are read: files, the model's file, and flags over them.
struct LoadedJob {
  JsonValue root = JsonValue::object();
  Origins origins;
  std::vector<std::string> notes;     ///< assumptions of the files' readers, and what had no effect
  std::vector<std::string> warnings;  ///< what is not modelled, or what the other program refuses
  KeyUse keys;                        ///< of the files of other programs

  /// Another tp, cp, pp or number of GPUs leaves over another dp than a file says.
  void leave_dp_over();
};

/// How files of other programs are to be read.
struct ImportOptions {
  std::vector<std::string> arguments;              ///< of a launch script: $1, $2, …
  std::map<std::string, std::string> environment;  ///< of a launch script
  bool strict = false;                             ///< what is not modelled or unknown is an error
};

/// Reads job files and files of other programs, a later one winning over an earlier one, then flags. A model that is
/// the path of a config.json is read too; in a job file the path is relative to the file.
LoadedJob load_job(const std::vector<std::string>& names, const std::vector<FlagValue>& flags, const Files& files,
                   const ImportOptions& options = {});

/// Refuses a cluster of which a launch script told the size and nothing names the devices.
void require_named_cluster(const LoadedJob& loaded);

/// When training.profile is a path, puts the device profile that the file holds in its place, and tells `origins` which
/// of the cluster's keys come from there. Throws ConfigError when it cannot be read.
void read_device_profile_file(const Files& files, nlohmann::json& root, Origins& origins);

}  // namespace flopcast
