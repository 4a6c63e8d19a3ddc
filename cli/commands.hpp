#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host/command_line.hpp"
#include "calibrate/runs/fit_runs.hpp"

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

int run_validate(const Arguments& arguments, const Streams& streams);
int run_run(const Arguments& arguments, const Streams& streams);
int run_report(const Arguments& arguments, const Streams& streams);
int run_calibrate(const Arguments& arguments, const Streams& streams);
int run_fit(const Arguments& arguments, const Streams& streams);
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

/// The rows of a JSON file of one's own runs, {"id", "job", "measured", "date"}, with their jobs read: "job" is a job
/// or a path beside the file; "measured" tells iteration_s or a rate, or names a training "log" beside the file; a row
/// as published measurements have it is mapped as they are. Throws ConfigError with file and row.
std::vector<OwnRun> read_own_runs(const std::string& file);

}  // namespace flopcast
