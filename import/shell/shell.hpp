#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flopcast {

/// A word of a shell script after expansion, with its place in the source.
struct ShellWord {
  std::string text;
  int line = 0;
  int file = 0;  ///< index into ShellScript::files
};
using ShellCommand = std::vector<ShellWord>;

/// Marks a variable inside a word that the script does not set: kUnset name kUnset.
inline constexpr char kUnset = '\x1f';
/// The name of the first unset variable in the word ("$1", "SLURM_NNODES"); empty if all are set.
std::string unset_name(const std::string& text);

/// The inputs that a script is started with.
struct ShellInput {
  std::vector<std::string> arguments;              ///< $1, $2, …
  std::map<std::string, std::string> environment;  ///< overrides SLURM's variables from #SBATCH
  /// Reads a file that the script sources; nothing if there is none. May be empty.
  std::function<std::optional<std::string>(const std::string& path)> read;
};

/// The commands of a launch script, read from top to bottom without running anything. Supported: comments, line
/// continuation, quotes, assignments (also export), arrays, $V ${V} ${V:-default} ${V[@]} and the other operators of
/// ${…}, $((…)) on whole numbers, function calls, source, here-documents that write a file, arguments, loops over
/// words, and while loops that end by conditions on constants; in $(…) only commands that rewrite text or paths.
/// #SBATCH sets SLURM's variables. Scripts in sh -c "…" and eval are read with the same variables. For if, case and &&
/// the branch that runs is read: unset variables count as empty in a condition, as in the shell. If a command decides,
/// every branch is read as if it ran. Throws ConfigError for text that ends inside a quote and for expansions beyond 1
/// MB.
struct ShellScript {
  std::vector<ShellCommand> commands;
  std::vector<std::string> files;                 ///< the script and the files that it sources
  std::map<std::string, ShellCommand> variables;  ///< values at the end of the script
  std::map<std::string, std::string> written;     ///< files written by here-documents
  std::vector<std::string> not_found;             ///< sourced files that were not found: "train.sh:3: models/a.sh"
  bool takes_arguments = false;                   ///< $1 … are used but were not given
  bool has_conditions = false;                    ///< has a loop, or an if or case that cannot be decided
  std::vector<std::string> warnings;              ///< undecidable branches that give a variable different values
  std::vector<std::string> notes;                 ///< values added as if such a branch ran
};
ShellScript parse_shell(std::string_view text, const std::string& file, const ShellInput& input = {});

}  // namespace flopcast
