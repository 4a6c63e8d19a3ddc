#pragma once

#include <string>

namespace flopcast {

/// What the terminal on standard output can show. Colour only on a terminal, never with NO_COLOR or TERM=dumb.
struct Terminal {
  int width = 80;
  bool color = false;
  bool ascii = false;  ///< the locale is not UTF-8
};
Terminal inspect_terminal();

/// The file's text. Throws ConfigError when it is missing, a directory or unreadable.
std::string read_file(const std::string& path);
/// Writes beside the target and renames, so that a full disk leaves no half file. Throws EnvironmentError.
void write_file(const std::string& path, const std::string& text);
/// Throws what write_file would throw where the target's folder is missing or may not be written, before hours of work.
void require_writable(const std::string& path);
/// To the file, or to standard output when there is none; a final newline is added.
void write_output(const std::string& path, const std::string& text);
/// A warning or hint on standard error.
void warn(const std::string& text);

}  // namespace flopcast
