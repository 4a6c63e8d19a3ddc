#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "import/programs/imported_job.hpp"
#include "model/config/document.hpp"
#include "model/job/typed_words.hpp"

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

/// Where failures.log names a CSV of interruptions, puts failures.causes in its place: a cause for each name, with as
/// many events as the file has rows of it.
///   time,cause,per,takes,count
///   2026-03-01T04:10,GPU memory,gpu,,
/// `cause` is needed. `per` is gpu, node, link, rack or site (gpu), `takes` nothing, node, rack or site, both the same
/// in all rows of a cause; `count` rows of them are told in one; other columns are left alone. Fields in quotes may
/// hold commas and doubled quotes. failures.observed tells the fleet and the days, so that counts become rates; a cause
/// that was seen n times is known to about 1 / sqrt(n), and every run drawn has rates of its own (sim/run/run.hpp).
/// Left out: when they came, so that neither bursts nor a fleet that matures are seen. Throws ConfigError with the
/// line.
void read_interruption_log(const Files& files, nlohmann::json& root, Origins& origins);

}  // namespace flopcast
