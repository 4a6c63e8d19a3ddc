#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host/command_line.hpp"

namespace flopcast {

struct Crew;
struct Streams;

/// Commands read their own flags, print to the streams, and return the exit code.
using Arguments = std::vector<std::string>;

struct CommandEntry {
  std::string name;
  std::string_view summary;
  std::function<int(const Arguments&, const Streams&)> run;
  bool has_commands = false;  ///< its first argument names a command of its own
};

/// The program's commands.
const std::vector<CommandEntry>& commands();

int run_completion(const Arguments& arguments, const Streams& streams);

/// The compiler and the libraries that the program was built of, with versions, licences and Debian packages: lines of
/// text, made by cmake/components.cmake.
std::string_view built_of();

/// The whole program: --version, or a command. What it throws ends as a complaint and an exit code.
int run_program(const Arguments& arguments, const Streams& streams);

/// Picks the entry named by the first argument and runs it with the rest; prints an overview for --help.
/// `program` is what the user typed before: "flopcast", "flopcast schedule".
int dispatch(const std::string& program, const std::string& description, const std::vector<CommandEntry>& entries,
             const Arguments& arguments, const Streams& streams);

}  // namespace flopcast
