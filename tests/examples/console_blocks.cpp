#include "tests/examples/console_blocks.hpp"

#include <algorithm>
#include <optional>

namespace flopcast {

namespace {

constexpr std::string_view kOpening = "```console";
constexpr std::string_view kClosing = "```";
constexpr std::string_view kEllipsis = "…";

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Splits a line into words like a shell, with single and double quotes.
std::vector<std::string> words_of(std::string_view command) {
  std::vector<std::string> words;
  std::optional<std::string> word;
  char quote = '\0';
  for (const char character : command) {
    if (quote != '\0') {
      if (character == quote) {
        quote = '\0';
      } else {
        *word += character;
      }
    } else if (character == '\'' || character == '"') {
      quote = character;
      if (!word) word.emplace();
    } else if (character == ' ') {
      if (word) words.push_back(*word);
      word.reset();
    } else {
      if (!word) word.emplace();
      *word += character;
    }
  }
  if (word) words.push_back(*word);
  return words;
}

bool is_prompt(const std::string& line) {
  return line.rfind("$ ", 0) == 0;
}

std::optional<std::vector<std::string>> flopcast_arguments(const std::string& line) {
  if (!is_prompt(line)) return std::nullopt;
  std::vector<std::string> words = words_of(std::string_view(line).substr(2));
  if (words.empty() || (words[0] != "flopcast" && words[0] != "./flopcast")) return std::nullopt;
  words.erase(words.begin());
  return words;
}

bool matches_lines(const std::vector<std::string>& expected, std::size_t e, const std::vector<std::string>& actual,
                   std::size_t a) {
  while (e < expected.size()) {
    if (expected[e] == kEllipsis) {
      for (std::size_t rest = a; rest <= actual.size(); ++rest) {
        if (matches_lines(expected, e + 1, actual, rest)) return true;
      }
      return false;
    }
    if (a >= actual.size() || expected[e] != actual[a]) return false;
    ++e;
    ++a;
  }
  return a == actual.size();
}

}  // namespace

std::vector<ConsoleCommand> console_commands(std::string_view markdown) {
  std::vector<ConsoleCommand> commands;
  bool inside = false;
  bool collecting = false;
  const std::vector<std::string> lines = lines_of(markdown);
  for (std::size_t index = 0; index < lines.size(); ++index) {
    const std::string& line = lines[index];
    if (!inside) {
      inside = line == kOpening;
      continue;
    }
    if (line == kClosing) {
      inside = collecting = false;
      continue;
    }
    if (is_prompt(line)) {
      const auto arguments = flopcast_arguments(line);
      collecting = arguments.has_value();
      if (arguments) commands.push_back({index + 1, *arguments, ""});
      continue;
    }
    if (collecting) commands.back().expected += line + "\n";
  }
  return commands;
}

bool matches(std::string_view expected, std::string_view actual) {
  return matches_lines(lines_of(expected), 0, lines_of(actual), 0);
}

std::string with_outputs(std::string_view markdown, const std::vector<std::string>& outputs) {
  std::string text;
  bool inside = false;
  bool dropping = false;
  std::size_t next = 0;
  const std::vector<ConsoleCommand> commands = console_commands(markdown);
  for (const std::string& line : lines_of(markdown)) {
    if (line == (inside ? kClosing : kOpening)) {
      inside = !inside;
      dropping = false;
    } else if (inside && is_prompt(line)) {
      dropping = false;
      if (flopcast_arguments(line)) {
        const std::vector<std::string> shown = lines_of(commands[next].expected);
        const bool keeps = std::find(shown.begin(), shown.end(), kEllipsis) != shown.end();
        text += line + "\n";
        if (!keeps) text += outputs[next];
        dropping = !keeps;
        ++next;
        continue;
      }
    } else if (dropping) {
      continue;
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace flopcast
