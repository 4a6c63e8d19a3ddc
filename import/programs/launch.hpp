#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "import/programs/foreign_keys.hpp"
#include "import/programs/imported_job.hpp"
#include "import/shell/shell.hpp"
#include "model/enum_names.hpp"
#include "model/job.hpp"

namespace flopcast {

/// Programs for which a layout can be written. The readers in this folder read the output back.
enum class LaunchProgram {
  kMegatron,    ///< Megatron-LM's arguments, one per line
  kDeepSpeed,   ///< ds_config.json
  kTorchrun,    ///< a script that starts Megatron-LM on every node with torchrun
  kAccelerate,  ///< the YAML for `accelerate launch --config_file`
};
template <>
struct EnumNames<LaunchProgram> {
  static constexpr std::string_view kNames[] = {"megatron", "deepspeed", "torchrun", "accelerate"};
};

struct LaunchFile {
  std::string text;
  std::vector<std::string> notes;  ///< settings to make elsewhere, one sentence each
};

/// Writes what a program needs to train `job` with its layout. Expects schedule, vpp and stage_layers to be filled in,
/// as prepare (sim) does. Throws ConfigError that names everything the program cannot express.
LaunchFile write_launch(LaunchProgram program, const Job& job);

/// Collects what a program's flags cannot express, so that one error names everything.
class Expressible {
 public:
  explicit Expressible(std::string program) : program_(std::move(program)) {}

  /// `instead` completes "give …", and may be empty.
  void require(bool holds, const std::string& what, const std::string& instead);
  /// Requirements common to all programs: no grids of tensor-parallel ranks, compression, placement, parameter servers
  /// …
  void require_common(const Job& job);
  /// Throws ConfigError if any requirement does not hold.
  void enforce() const;

 private:
  std::string program_;
  std::vector<std::string> missing_;
  std::vector<std::string> help_;
};

/// "1f1b" of "1f1b", "interleaved" of "interleaved:2".
std::string schedule_base_name(const Layout& layout);
/// True for a schedule with a single microbatch, whatever its name.
bool runs_one_microbatch(const Layout& layout);

LaunchFile write_deepspeed(const Job& job);
LaunchFile write_accelerate(const Job& job);

LaunchFile write_megatron(const Job& job);
LaunchFile write_torchrun(const Job& job);

/// An argument that does not come from a command line, such as "num-layers" of the key model/num_layers.
struct GivenArgument {
  std::string name;
  std::vector<std::string> values;  ///< empty: a switch
  std::string written;              ///< as the file writes it
  std::string place;                ///< its place, for errors
};

/// The arguments that a launch script passes to Megatron-LM or one of its descendants and to the launcher (torchrun,
/// srun, ray), by name without leading dashes, with underscores as dashes and old names replaced by current ones (the
/// aliases of import/keys/megatron.json). Looking one up marks it as read; the rest is judged by the table.
class LaunchArguments {
 public:
  /// Throws ConfigError if the text does not start a training.
  LaunchArguments(std::string_view text, const std::string& file, const ImportContext& context, ImportedJob& imported);
  /// The same arguments, from a configuration file.
  LaunchArguments(const std::vector<GivenArgument>& given, std::string program, const std::string& file,
                  const ImportContext& context);

  /// True if the argument is given and not "false".
  bool has(const std::string& name);
  /// Nothing if the argument is absent or if the script does not set its value; refuse_open reports the latter unless
  /// flags set `field`. Throws for a value that is not a whole number of at least `smallest`.
  std::optional<int> whole(const std::string& name, int smallest, const std::string& field = "");
  std::optional<double> number(const std::string& name, const std::string& field = "");
  std::optional<std::string> text(const std::string& name, const std::string& field = "");
  /// All its values, joined by blanks.
  std::string all_text(const std::string& name);
  /// Sets a default for an argument that the script does not give.
  void set_default(const std::string& name, const std::string& value);
  /// True if the file writes the name this way, with underscores as dashes: an old name may have a different meaning.
  bool is_written_as(const std::string& name, std::string_view written) const;
  /// The final value of one of the script's variables; empty if it is not set.
  std::string variable(const std::string& name) const;
  /// The text of a file that the script writes.
  std::optional<std::string> written_file(const std::string& path) const;

  /// "pretrain_gpt.py", "megatron sft"; empty if no program is named.
  const std::string& program() const { return program_; }
  /// True if the file only contains arguments, without a command that uses them.
  bool is_part() const { return is_part_; }

  /// "train.sh:27: --num-layers".
  std::string place(const std::string& name) const;
  [[noreturn]] void fail(const std::string& name, const std::string& problem, const std::string& help) const;
  /// Records a required argument that is absent, for refuse_open.
  void report_missing(const std::string& name, const std::string& field);
  /// True if the argument is missing or not set, which refuse_open will report.
  bool is_missing(const std::string& name) const;
  /// Throws one error that lists everything missing or not set by the script.
  void refuse_open() const;
  /// Warns that a given argument is not modelled.
  void warn_of(const std::string& name, const std::string& how, ImportedJob& imported);
  /// Sorts every argument by its meaning; warns of arguments given twice with different values.
  void finish(ImportedJob& imported) const;

 private:
  struct Argument {
    std::string written;
    std::vector<ShellWord> values;
    ShellWord at;
    std::string place;  ///< empty: the place of `at`
  };
  struct Open {
    std::string name;
    std::string unset;  ///< "$TP"; empty if the argument is absent
    std::string field;
  };
  void compare_with(const std::map<std::string, Argument>& before);
  void add_command(const ShellCommand& command);
  void add_variables();
  void note_program(const ShellCommand& command);
  const Argument* find(const std::string& name);
  const std::string* value_of(const std::string& name, const std::string& field);

  const std::string& file_;
  const ImportContext& context_;
  const KeyTable& table_;
  ShellScript script_;
  std::string program_;
  bool is_part_ = false;
  std::map<std::string, Argument> arguments_;
  std::map<std::string, std::string> twice_;  ///< warnings about names that have two values
  std::vector<std::string> asked_;
  std::vector<Open> open_;
};

}  // namespace flopcast
