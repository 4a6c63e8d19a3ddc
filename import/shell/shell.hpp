#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace flopcast {

/// A word of a shell script after expansion, and the line it was written in.
struct ShellWord {
  std::string text;
  int line = 0;
};
using ShellCommand = std::vector<ShellWord>;

/// Marks what the script does not set inside a word: kUnset name kUnset.
inline constexpr char kUnset = '\x1f';
/// The name of the first thing in the word that the script does not set ("$1", "SLURM_NNODES"); empty when all is set.
std::string unset_name(const std::string& text);

/// The commands of a launch script, read from top to bottom without running anything. Understood: comments, line
/// continuation, quotes, assignments (also export), arrays, $V ${V} ${V:-default} ${V[@]}, $((…)) over whole numbers.
/// Scripts in sh -c "…" and eval are read with the same variables. Of if, case and && the branch that runs is read when
/// constants decide it. Left out: else every branch is read as if it ran, loops once; functions, here-documents and the
/// output of commands are unknown. Throws ConfigError for text that ends inside a quote and for expansions beyond 1 MB.
struct ShellScript {
  std::vector<ShellCommand> commands;
  bool has_conditions = false;        ///< a loop, or an if or case that cannot be decided
  std::vector<std::string> warnings;  ///< branches that cannot be decided and give a variable different values
  std::vector<std::string> notes;     ///< what was added as if such a branch ran
};
ShellScript parse_shell(std::string_view text, const std::string& file);

}  // namespace flopcast
