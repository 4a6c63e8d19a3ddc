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

/// What a layout can be handed to. The readers beside it read back what is written.
enum class LaunchProgram {
  kMegatron,    ///< Megatron-LM's arguments, one a line
  kDeepSpeed,   ///< ds_config.json
  kTorchrun,    ///< a script that starts Megatron-LM on every node by torchrun
  kAccelerate,  ///< the YAML of `accelerate launch --config_file`
};
template <>
struct EnumNames<LaunchProgram> {
  static constexpr std::string_view kNames[] = {"megatron", "deepspeed", "torchrun", "accelerate"};
};

struct LaunchFile {
  std::string text;
  std::vector<std::string> notes;  ///< what has to be given elsewhere, one sentence each
};

/// What a program needs to train `job` as it is laid out. Expects schedule, vpp and stage_layers filled in, as
/// prepare (sim) leaves them. Throws ConfigError that names everything which the program cannot do.
LaunchFile write_launch(LaunchProgram program, const Job& job);

/// Collects what a program's flags cannot say, so that one complaint names everything.
class Expressible {
 public:
  explicit Expressible(std::string program) : program_(std::move(program)) {}

  /// `instead` completes "give …", and may be empty.
  void require(bool holds, const std::string& what, const std::string& instead);
  /// What none of the programs knows: grids of tensor-parallel ranks, compression, placement, parameter servers …
  void require_common(const Job& job);
  /// Throws ConfigError when anything was required in vain.
  void enforce() const;

 private:
  std::string program_;
  std::vector<std::string> missing_;
  std::vector<std::string> help_;
};

/// "1f1b" of "1f1b", "interleaved" of "interleaved:2".
std::string schedule_base_name(const Layout& layout);
/// The schedule of a single microbatch, whatever a program calls it.
bool runs_one_microbatch(const Layout& layout);

LaunchFile write_deepspeed(const Job& job);
LaunchFile write_accelerate(const Job& job);

LaunchFile write_megatron(const Job& job);
LaunchFile write_torchrun(const Job& job);

/// An argument that is not from a command line, such as "num-layers" of the key model/num_layers.
struct GivenArgument {
  std::string name;
  std::vector<std::string> values;  ///< none: a switch
  std::string written;              ///< how the file writes it
  std::string place;                ///< where it stands, for complaints
};

/// The arguments that a launch script hands to Megatron-LM or one of its descendants and to the launcher (torchrun,
/// srun, ray), by name without the leading dashes, underscores as dashes, old names as today's (the aliases of
/// import/keys/megatron.json). Asking for one marks it as read; the rest is judged by the table.
class LaunchArguments {
 public:
  /// Throws ConfigError when the text starts no training.
  LaunchArguments(std::string_view text, const std::string& file, const ImportContext& context, ImportedJob& imported);
  /// The same arguments as a configuration file gives them.
  LaunchArguments(const std::vector<GivenArgument>& given, std::string program, const std::string& file,
                  const ImportContext& context);

  /// Given, and not as "false".
  bool has(const std::string& name);
  /// Nothing when absent, when the script does not set the value, which is told of by refuse_open unless flags set
  /// `field`; throws for a value that is no whole number of at least `smallest`.
  std::optional<int> whole(const std::string& name, int smallest, const std::string& field = "");
  std::optional<double> number(const std::string& name, const std::string& field = "");
  std::optional<std::string> text(const std::string& name, const std::string& field = "");
  /// All its values, joined by blanks.
  std::string all_text(const std::string& name);
  /// What counts as given where the script does not give it.
  void set_default(const std::string& name, const std::string& value);
  /// Its name as the file has it, underscores as dashes: an old one may mean more.
  bool is_written_as(const std::string& name, std::string_view written) const;
  /// The value of one of the script's variables at its end; empty when it is not set.
  std::string variable(const std::string& name) const;
  /// The text of a file that the script writes.
  std::optional<std::string> written_file(const std::string& path) const;

  /// "pretrain_gpt.py", "megatron sft"; empty when no program is named.
  const std::string& program() const { return program_; }
  /// The file holds arguments, and no command that takes them.
  bool is_part() const { return is_part_; }

  /// "train.sh:27: --num-layers".
  std::string place(const std::string& name) const;
  [[noreturn]] void fail(const std::string& name, const std::string& problem, const std::string& help) const;
  /// It is needed and not there: refuse_open tells of it.
  void lack(const std::string& name, const std::string& field);
  /// Its value, where the script does not set it, is of no consequence.
  bool is_open(const std::string& name) const;
  /// One complaint of everything that is lacking or that the script does not set.
  void refuse_open() const;
  /// Warns that a given argument is not modelled.
  void warn_of(const std::string& name, const std::string& how, ImportedJob& imported);
  /// Sorts every argument by what it means; warns of those read that the text gives twice with different values.
  void finish(ImportedJob& imported) const;

 private:
  struct Argument {
    std::string written;
    std::vector<ShellWord> values;
    ShellWord at;
    std::string place;  ///< empty: of `at`
  };
  struct Open {
    std::string name;
    std::string unset;  ///< "$TP"; empty when the argument is absent
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
  std::map<std::string, std::string> twice_;  ///< the warning about a name that has two values
  std::vector<std::string> asked_;
  std::vector<Open> open_;
};

}  // namespace flopcast
