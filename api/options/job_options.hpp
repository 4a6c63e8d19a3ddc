#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/question.hpp"
#include "base/host/terminal.hpp"
#include "import/jobs/load_job.hpp"
#include "model/job.hpp"
#include "model/job/typed_words.hpp"
#include "sim/variation/step_distribution.hpp"

namespace flopcast {

/// The files of this machine, as jobs name them, and the standard input of `streams`; YAML is read where flopcast was
/// built with yaml-cpp.
class FilesOnDisk final : public Files {
 public:
  explicit FilesOnDisk(const Streams& streams) : streams_(streams) {}
  /// In the place of standard input; null: that itself.
  void read_input(const std::string* text) { streams_.in = text; }
  std::string read(const std::string& path) const override;
  Kind kind_of(const std::string& path) const override;
  nlohmann::json parse_yaml(std::string_view text, const std::string& file) const override;
  nlohmann::json parse_toml(std::string_view text, const std::string& file) const override;

 private:
  Streams streams_;
};
/// Those of the program itself.
const Files& files_on_disk();

/// JOB: a file, flags, or both; flags win.
class JobOptions {
 public:
  /// Registers JOB and every flag of the job file's keys.
  void add_to(Form& form);

  /// Lets further files follow JOB.
  void add_more_files(Form& form);

  /// Lets layouts follow JOB: what is no file but key=value, and whatever comes after the first positional argument.
  void add_layouts(Form& form);
  const std::vector<std::string>& layouts() const { return more_files_; }
  /// Takes JOB for the first of the layouts where it is none: `compare --model M … tp=8 tp=4`.
  void sort_out_layouts();
  /// Moves what follows JOB to `files`: a shell has put several files in place of one pattern.
  void take_layouts(std::vector<std::string>& files);
  const std::optional<std::string>& file() const { return file_; }
  const Files& disk() const { return disk_; }
  /// Takes the last file that `is_value` holds for out of the files: behind `prefix` it is the value of a field, which
  /// complaints call `flag`.
  std::optional<std::string> take_file_for(std::string_view field, const std::string& prefix, const std::string& flag,
                                           const std::function<bool(const std::string& file)>& is_value);
  /// load() and read(), with these flags over all.
  LoadedJob load_with(const std::vector<FlagValue>& flags) const;

  /// Whether a model was named, by file or flag: what tells a job from a bare schedule.
  bool names_a_job() const;
  /// What a flag said, nothing when it was not given.
  std::optional<std::string> flag(std::string_view field) const;
  /// The fields that flags set.
  std::vector<const FlagValue*> given() const;
  /// The files and flags as one JSON, before its sections are read.
  LoadedJob load() const;
  Job read() const;
  static Job read(const LoadedJob& loaded);
  /// With --show-config: every key, its value and its origin, in place of the question's answer.
  std::optional<Answer> config_answer(const Context& context) const;
  /// For commands of no single job.
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

/// The job key that a user means by "tp", "--tp", "layout.tp" or "cluster.nodes"; throws ConfigError naming `where`.
const JobKey& key_named(std::string_view name, const std::string& where);

/// "tp=8,pp=4,layout.stage_layers=5,3": keys and values; what follows a comma without a '=' belongs to the value
/// before.
std::vector<FlagValue> parse_layout_text(const std::string& text);

/// --jitter, --straggler, --samples, --seed and --sequence-lengths of `simulate`.
class VariationOptions {
 public:
  void add_to(Form& form);
  /// Nothing when neither jitter nor a straggler is asked for. Throws ConfigError on values that make no sense, and on
  /// --samples or --seed without anything to draw.
  std::optional<Variation> variation() const;

  /// --sequence-lengths alone, as `memory` has it.
  void add_lengths_to(Form& form);
  /// Of the file, in its order: whole numbers, each with *COUNT where it stands for several; or of a distribution, cut
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
