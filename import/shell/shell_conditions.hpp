#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "import/shell/shell.hpp"

namespace flopcast {

/// The value of the inside of $((…)): whole numbers, names, + - * / % and parentheses. Nothing when it holds anything
/// else, a name without a whole value, a division by zero, or numbers beyond 10^15.
std::optional<std::int64_t> shell_arithmetic(std::string_view text,
                                             const std::function<std::string(const std::string&)>& value_of);

/// Whether the words between `if` and `then` hold, with their operators && || ; as words of their own. Understood: [ …
/// ],
/// [[ … ]] and test with = == != -eq -ne -lt -le -gt -ge -z -n and !, true and false. Nothing when it holds anything
/// else, such as a command, a file test or a value that the script does not set.
std::optional<bool> shell_condition(const ShellCommand& words);

/// Whether a pattern of `case` or of [[ == ]] matches: * and ?. Nothing for [ … ] and for what the script does not set.
std::optional<bool> shell_matches(const std::string& text, const std::string& pattern);

}  // namespace flopcast
