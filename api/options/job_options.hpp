#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/question.hpp"
#include "base/host/terminal.hpp"
#include "import/jobs/load_job.hpp"
#include "model/job.hpp"
#include "model/job/user_spelling.hpp"
#include "sim/variation/step_distribution.hpp"

namespace flopcast {

/// The files of this machine, as jobs name them, and the standard input of `streams`. Reads YAML and TOML if flopcast
/// was built with yaml-cpp and toml++.
class FilesOnDisk final : public Files {
 public:
  explicit FilesOnDisk(const Streams& streams) : streams_(streams) {}
  /// Uses the text as standard input; null: reads standard input itself.
  void read_input(const std::string* text) { streams_.in = text; }
  std::string read(const std::string& path) const override;
  Kind kind_of(const std::string& path) const override;
  nlohmann::json parse_yaml(std::string_view text, const std::string& file) const override;
  nlohmann::json parse_toml(std::string_view text, const std::string& file) const override;

 private:
  Streams streams_;
};
/// The files and standard streams of this process.
const Files& files_on_disk();

/// JOB: a file, flags, or both; flags override the file.
class JobOptions {
 public:
  /// Registers JOB and a flag for every key of the job file.
  void add_to(Form& form);

  /// Accepts further files after JOB.
  void add_more_files(Form& form);

  /// Accepts layouts after JOB: files, key=value lists, and every positional argument after the first.
  void add_layouts(Form& form);
  const std::vector<std::string>& layouts() const { return more_files_; }
  /// Treats JOB as the first layout if it is key=value: `compare --model M … tp=8 tp=4`.
  void treat_job_as_layout();
  /// Moves the arguments after JOB to `files`: the shell expanded a pattern into several files.
  void take_layouts(std::vector<std::string>& files);
  const std::optional<std::string>& file() const { return file_; }
  const Files& disk() const { return disk_; }
  /// Removes the last file for which `is_value` holds from the files, and sets `field` to `prefix` plus its name;
  /// errors refer to it as `flag`.
  std::optional<std::string> take_file_for(std::string_view field, const std::string& prefix, const std::string& flag,
                                           const std::function<bool(const std::string& file)>& is_value);
  /// Like load(), with these flags overriding all others.
  LoadedJob load_with(const std::vector<FlagValue>& flags) const;

  /// True if a file or a flag names a model or cluster; otherwise the question is about a bare schedule.
  bool names_a_job() const;
  /// Text of a flag; nullopt if it was not given.
  std::optional<std::string> flag(std::string_view field) const;
  /// Fields set by flags.
  std::vector<const FlagValue*> given() const;
  /// Files and flags as one JSON, before its sections are read.
  LoadedJob load() const;
  Job read() const;
  static Job read(const LoadedJob& loaded);
  /// With --show-config: every key, its value and its origin, which replace the question's answer.
  std::optional<Answer> config_answer(const Context& context) const;
  /// For commands without a single job.
  void refuse_show_config(const char* command) const;

 private:
  ImportOptions import_options() const;
  std::vector<FlagValue> with_gpus(std::vector<FlagValue> flags) const;
  std::vector<std::string> files() const;
  void remember_flag(const JobKey& key, const std::string& name, const std::string& text);

  FilesOnDisk disk_{standard_streams()};
  std::optional<std::string> file_;
  std::vector<std::string> more_files_;
  std::vector<FlagValue> flags_;
  std::optional<std::string> gpus_;
  bool show_config_ = false;
  std::vector<std::string> script_arguments_;
  std::vector<std::string> environment_;
  bool strict_ = false;
};

/// The job key that the user means by "tp", "--tp", "layout.tp" or "cluster.nodes"; throws ConfigError naming `where`.
const JobKey& key_named(std::string_view name, const std::string& where);

/// "tp=8,pp=4,layout.stage_layers=5,3": keys and values; text after a comma without '=' continues the previous value.
std::vector<FlagValue> parse_layout_text(const std::string& text);

/// --jitter, --straggler, --samples, --seed and --sequence-lengths of `simulate`.
class VariationOptions {
 public:
  void add_to(Form& form);
  /// Nullopt without jitter and stragglers. Throws ConfigError on invalid values, and on --samples or --seed without
  /// anything to sample.
  std::optional<Variation> variation() const;

  /// Only --sequence-lengths, for `memory`.
  void add_lengths_to(Form& form);
  /// Lengths from the file, in its order: whole numbers, repeated ones as LENGTH*COUNT; or from a distribution, clipped
  /// to `longest`.
  std::optional<std::vector<int>> sequence_lengths(int longest) const;

 private:
  std::optional<std::string> jitter_;
  std::vector<std::string> stragglers_;
  std::optional<int> samples_;
  std::optional<std::string> seed_;
  std::optional<std::string> lengths_;
};

}  // namespace flopcast
