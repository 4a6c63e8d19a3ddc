#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "import/shell/shell.hpp"

namespace flopcast {

/// The value of the inside of $((…)): whole numbers, names, parentheses and C's arithmetic, comparing and logical
/// operators. Nothing when it holds anything else, a name without a whole value, a division by zero, or numbers beyond
/// 10^15.
std::optional<std::int64_t> shell_arithmetic(std::string_view text,
                                             const std::function<std::string(const std::string&)>& value_of);

/// Whether the words between `if` and `then` hold, with their operators && || ; as words of their own. Understood: [ …
/// ],
/// [[ … ]] and test with = == != -eq -ne -lt -le -gt -ge -z -n and !, true and false, and (( … )). Nothing when it
/// holds anything else, such as a command or a file test. What the script does not set counts as empty; such names that
/// are compared with something are added to `assumed_empty`.
std::optional<bool> shell_condition(const ShellCommand& words, std::vector<std::string>* assumed_empty = nullptr);

/// Whether a pattern of `case` or of [[ == ]] matches: * and ?. Nothing for [ … ] and for the output of commands.
std::optional<bool> shell_matches(const std::string& text, const std::string& pattern);

/// The text with what variables nothing sets taken out; nothing when it holds the output of a command.
std::optional<std::string> without_unset(const std::string& text);

}  // namespace flopcast
