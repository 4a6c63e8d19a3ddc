#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace flopcast {

/// A reader of files, together with the commands that use it.
struct FuzzTarget {
  std::string name;
  std::string file;  ///< file name of the input; some readers use its extension
  bool is_json = false;
  /// Each command reads the input; "@" is replaced by its path.
  std::vector<std::vector<std::string>> commands;
  std::vector<std::string> seeds;  ///< inputs that are accepted
  /// The reader alone, thousands of times as fast as a command. Throws ConfigError.
  std::function<void(const std::string& input)> read = {};
};

/// One target per reader, seeded with examples, the catalogue, and output of the commands themselves.
const std::vector<FuzzTarget>& fuzz_targets();

/// Passes the input to the target's commands, in this process. Returns a fault if a command does anything but answer or
/// print one message with "error:" in plain text, if a JSON answer is invalid, or if its step takes no time.
std::optional<std::string> fault_of(const FuzzTarget& target, const std::string& input,
                                    const std::filesystem::path& folder);

/// Passes the input to the reader alone. Returns a fault if it throws an exception other than ConfigError, or an error
/// without a problem.
std::optional<std::string> fault_of_reader(const FuzzTarget& target, const std::string& input);

}  // namespace flopcast
