#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flopcast {

/// A word of a shell script after expansion, and where it was written.
struct ShellWord {
  std::string text;
  int line = 0;
  int file = 0;  ///< of ShellScript::files
};
using ShellCommand = std::vector<ShellWord>;

/// Marks what the script does not set inside a word: kUnset name kUnset.
inline constexpr char kUnset = '\x1f';
/// The name of the first thing in the word that the script does not set ("$1", "SLURM_NNODES"); empty when all is set.
std::string unset_name(const std::string& text);

/// What a script is started with.
struct ShellInput {
  std::vector<std::string> arguments;              ///< $1, $2, …
  std::map<std::string, std::string> environment;  ///< wins over what #SBATCH says of SLURM's variables
  /// A file that the script sources; nothing when there is none. May be empty.
  std::function<std::optional<std::string>(const std::string& path)> read;
};

/// The commands of a launch script, read from top to bottom without running anything. Understood: comments, line
/// continuation, quotes, assignments (also export), arrays, $V ${V} ${V:-default} ${V[@]} and the other operators of
/// ${…}, $((…)) over whole numbers, functions where they are called, source, here-documents that write a file,
/// arguments, loops over words, and while loops that conditions of constants end; of commands in $(…) those that only
/// rewrite text or paths. #SBATCH tells SLURM's variables. Scripts in sh -c "…" and eval are read with the same
/// variables. Of if, case and && the branch that runs is read: what nothing sets counts as empty in a condition, as the
/// shell has it. Where a command decides, every branch is read as if it ran. Throws ConfigError for text that ends
/// inside a quote and for expansions beyond 1 MB.
struct ShellScript {
  std::vector<ShellCommand> commands;
  std::vector<std::string> files;                 ///< the script, and what it sources
  std::map<std::string, ShellCommand> variables;  ///< at the end
  std::map<std::string, std::string> written;     ///< files written by here-documents
  std::vector<std::string> not_found;             ///< sourced, and not there: "train.sh:3: models/a.sh"
  bool takes_arguments = false;                   ///< $1 … are used, and were not given
  bool has_conditions = false;                    ///< a loop, or an if or case that cannot be decided
  std::vector<std::string> warnings;  ///< branches that cannot be decided and give a variable different values
  std::vector<std::string> notes;     ///< what was added as if such a branch ran
};
ShellScript parse_shell(std::string_view text, const std::string& file, const ShellInput& input = {});

}  // namespace flopcast
