#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace flopcast {

/// A command in a document, and the output that the document shows for it.
struct ConsoleCommand {
  std::size_t line = 0;                ///< line of the command, from 1
  std::vector<std::string> arguments;  ///< without the leading "flopcast" or "./flopcast"
  std::string expected;                ///< standard output; a line "…" matches any lines
};

/// The commands of a Markdown text's ```console blocks: lines that begin with "$ flopcast" or "$ ./flopcast", each
/// followed by its output up to the next command or the end of the block. Other commands of a block are not run.
std::vector<ConsoleCommand> console_commands(std::string_view markdown);

/// True if `actual` matches the document's text.
bool matches(std::string_view expected, std::string_view actual);

/// The text with every command's output replaced by that in `outputs`, in order. Blocks with "…" stay unchanged.
std::string with_outputs(std::string_view markdown, const std::vector<std::string>& outputs);

}  // namespace flopcast
