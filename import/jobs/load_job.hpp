#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "import/programs/imported_job.hpp"
#include "model/config/document.hpp"
#include "model/job/user_spelling.hpp"

namespace flopcast {

/// A job before its sections are read: files, the model's file, and flags over them.
struct LoadedJob {
  JsonValue root = JsonValue::object();
  Origins origins;
  std::vector<std::string> notes;     ///< assumptions of the files' readers, and keys without effect
  std::vector<std::string> warnings;  ///< keys that are not modelled, or that the other program refuses
  KeyUse keys;                        ///< of the files of other programs

  /// Drops dp, so that it follows from another tp, cp, pp or number of GPUs than the file has.
  void clear_dp();
};

/// Options for reading files of other programs.
struct ImportOptions {
  std::vector<std::string> arguments;              ///< of a launch script: $1, $2, …
  std::map<std::string, std::string> environment;  ///< of a launch script
  bool strict = false;                             ///< keys that are unknown or not modelled are errors
};

/// Reads job files and files of other programs, later ones overriding earlier ones, then flags. A model that is the
/// path of a config.json is read too; in a job file the path is relative to that file.
LoadedJob load_job(const std::vector<std::string>& names, const std::vector<FlagValue>& flags, const Files& files,
                   const ImportOptions& options = {});

/// Refuses a cluster whose size comes from a launch script but whose devices are not named.
void require_named_cluster(const LoadedJob& loaded);

/// If training.profile is a path, replaces it with the device profile in that file, and records in `origins` which keys
/// of the cluster come from there. Throws ConfigError if it cannot be read.
void read_device_profile_file(const Files& files, nlohmann::json& root, Origins& origins);

/// If failures.log names a CSV of interruptions, replaces it with failures.causes: a cause for each name, with one
/// event per row.
///   time,cause,per,takes,count
///   2026-03-01T04:10,GPU memory,gpu,,
/// `cause` is required. `per` is gpu, node, link, rack or site (default gpu), `takes` is nothing, node, rack or site;
/// both must be the same in all rows of a cause. `count` is the number of interruptions in a row; other columns are
/// ignored. Quoted fields may contain commas and doubled quotes. failures.observed gives the fleet and the days, so
/// that counts become rates; a cause that was seen n times is known to about 1 / sqrt(n), and every simulated run draws
/// its own rates (sim/run/run.hpp). Left out: the times of interruptions, so neither bursts nor a fleet that matures
/// are modelled. Throws ConfigError with the line.
void read_interruption_log(const Files& files, nlohmann::json& root, Origins& origins);

}  // namespace flopcast
