#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace flopcast {

/// A reader of files, as commands reach it.
struct FuzzTarget {
  std::string name;
  std::string file;  ///< what the input is called: its ending tells some readers what it is
  bool is_json = false;
  /// Each is given the input; "@" stands for its path.
  std::vector<std::vector<std::string>> commands;
  std::vector<std::string> seeds;  ///< inputs that are answered
  /// The reader alone, thousands of times as quick as a command. Throws ConfigError.
  std::function<void(const std::string& input)> read = {};
};

/// One for each reader, seeded with examples, the catalogue, and what the commands themselves write.
const std::vector<FuzzTarget>& fuzz_targets();

/// Gives the input to the target's commands, in this process. What is wrong with how they took it: anything but an
/// answer or one message that says "error:" in plain text; an answer in JSON that is none, or with a step that takes no
/// time.
std::optional<std::string> fault_of(const FuzzTarget& target, const std::string& input,
                                    const std::filesystem::path& folder);

/// Gives the input to the reader alone. What is wrong with how it took it: an exception but ConfigError, or a complaint
/// without a problem.
std::optional<std::string> fault_of_reader(const FuzzTarget& target, const std::string& input);

}  // namespace flopcast
