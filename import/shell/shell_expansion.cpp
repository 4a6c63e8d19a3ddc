#include "import/shell/shell_parser.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

constexpr std::size_t kLongestExpansion = std::size_t{1} << 20;

// seq LAST, seq FIRST LAST and seq FIRST STEP LAST, for whole numbers.
std::optional<std::string> counted(const ShellCommand& command) {
  constexpr std::size_t kMostWords = 4;
  constexpr std::size_t kMostDigits = 9;
  if (command.size() < 2 || command.size() > kMostWords) return std::nullopt;
  std::vector<std::int64_t> numbers;
  for (std::size_t index = 1; index < command.size(); ++index) {
    const std::string& text = command[index].text;
    const auto number = shell_arithmetic(text, [](const std::string&) { return std::string(); });
    if (!number || text.size() > kMostDigits) return std::nullopt;
    numbers.push_back(*number);
  }
  const std::int64_t step = numbers.size() > 2 ? numbers[1] : 1;
  return shell_range(numbers.size() > 1 ? numbers[0] : 1, numbers.back(), step);
}

}  // namespace

bool is_name_character(char character) {
  return std::isalnum(static_cast<unsigned char>(character)) != 0 || character == '_';
}

bool is_name(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(), is_name_character);
}

// A mark of an enclosing script for an unset variable, copied unchanged.
std::string ShellParser::marked() {
  std::string text(1, take());
  while (!done() && peek() != kUnset) text += take();
  if (!done()) text += take();
  return text;
}

char ShellParser::take() {
  const char character = text_[at_++];
  if (character == '\n') ++line_;
  return character;
}

void ShellParser::fail(const std::string& problem, int line) const {
  throw ConfigError({"", problem, fmt::format("{}:{}", file_, line),
                     "flopcast reads launch scripts like bash; check whether bash -n accepts the file"});
}

void ShellParser::append(const std::string& text) {
  if (!in_word_) word_ = {"", line_, file_index_};
  in_word_ = true;
  word_.text += text;
  expanded_ += text.size();
  if (expanded_ > kLongestExpansion) fail("the script's variables expand to more than 1 MB", line_);
}

void ShellParser::append_split(const std::string& text, int line, bool quoted) {
  if (quoted || assigns()) {
    append(text);
    return;
  }
  for (std::size_t begin = 0; begin < text.size();) {
    // An unset part is one piece, including its blanks.
    std::size_t end = begin;
    while (end < text.size() && text[end] != ' ' && text[end] != '\t' && text[end] != '\n') {
      end = text[end] == kUnset ? std::min(text.find(kUnset, end + 1), text.size() - 1) + 1 : end + 1;
    }
    if (end > begin) {
      const bool starts = !in_word_;
      append(text.substr(begin, end - begin));
      if (starts) word_.line = line;
    }
    if (end < text.size()) end_word();
    begin = end + 1;
  }
}

// True inside NAME=…, where the shell does not split words and an array becomes one word.
bool ShellParser::assigns() const {
  if (in_array_ || !in_word_) return false;
  const auto is_assignment = [](const std::string& text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) return false;
    return is_name(std::string_view(text).substr(0, text[equals - 1] == '+' ? equals - 1 : equals));
  };
  return is_assignment(word_.text) && std::all_of(command_.begin(), command_.end(), [&](const ShellWord& word) {
           return is_assignment(word.text) || declares(word.text) || word.text.starts_with('-');
         });
}

void ShellParser::append_words(std::vector<ShellWord> words, bool quoted, bool one_word) {
  const bool joined = one_word || assigns();
  for (std::size_t index = 0; index < words.size(); ++index) {
    if (index > 0 && joined) append(" ");
    if (index > 0 && !joined) end_word();
    const bool starts = !in_word_;
    append_split(words[index].text, words[index].line, quoted || joined);
    if (starts && quoted) word_.line = words[index].line;
  }
}

// ${NAME[@]} and "$@", and what may follow inside the braces: + - :+ :- :from:count.
void ShellParser::read_words(const std::string& name, const std::string& rest, bool quoted) {
  const std::size_t bracket = rest.find(']');
  const bool one_word = quoted && rest.find('*') < rest.find(']');
  const std::string after = bracket == std::string::npos ? rest.substr(1) : rest.substr(bracket + 1);
  const auto variable = variables_.find(name);
  const std::vector<ShellWord> words = variable == variables_.end() ? std::vector<ShellWord>() : variable->second.words;
  const bool colon = after.size() > 1 && after[0] == ':';
  const char sign = after.empty() ? '\0' : after[colon ? 1 : 0];
  const std::string operand = after.size() > (colon ? 2u : 1u) ? after.substr(colon ? 2 : 1) : "";
  if (sign == '+' || (sign == '-' && (colon || variable == variables_.end()))) {
    if (words.empty() == (sign == '+')) return;
    const bool again = operand.find(name + "[@]") != std::string::npos || sign == '-';
    if (sign == '-' && words.empty()) return append_split(expanded(operand), line_, quoted);
    return again ? append_words(words, quoted || operand.starts_with('"'), false)
                 : append_split(expanded(operand), line_, quoted);
  }
  if (variable == variables_.end() && name != "@") return mark_unset(name);
  if (after.empty() || sign == '-') return append_words(words, quoted, one_word);
  if (!colon) return mark_unset(name + rest.substr(0, 8));
  const std::string range = after.substr(1);
  const std::size_t cut = range.find(':');
  const auto value_of = [this](const std::string& each) { return scalar(each); };
  auto from = shell_arithmetic(range.substr(0, cut), value_of);
  const auto count = cut == std::string::npos ? std::optional<std::int64_t>(static_cast<std::int64_t>(words.size()))
                                              : shell_arithmetic(range.substr(cut + 1), value_of);
  if (from && name == "@") *from -= 1;
  if (!from || !count || *from < 0 || *count < 0) return mark_unset(name + rest.substr(0, 8));
  const std::int64_t size = static_cast<std::int64_t>(words.size());
  const std::int64_t begin = std::min(*from, size);
  const std::int64_t end = begin + std::min(*count, size - begin);
  append_words({words.begin() + begin, words.begin() + end}, quoted, one_word);
}

// ${NAME[1]} and ${NAME[key]}; the elements of declare -A are written [key]=value.
bool ShellParser::read_element(const std::string& name, const std::string& subscript, bool quoted) {
  const auto variable = variables_.find(name);
  if (variable == variables_.end()) return false;
  const std::string key = "[" + expanded(subscript) + "]=";
  for (const ShellWord& word : variable->second.words) {
    if (!word.text.starts_with(key)) continue;
    append_split(word.text.substr(key.size()), word.line, quoted);
    return true;
  }
  const auto index = shell_arithmetic(subscript, [this](const std::string& each) { return scalar(each); });
  if (!index || *index < 0 || static_cast<std::size_t>(*index) >= variable->second.words.size()) return false;
  const ShellWord word = variable->second.words[static_cast<std::size_t>(*index)];
  if (word.text.starts_with('[') && word.text.find("]=") != std::string::npos) return false;
  append_split(word.text, word.line, quoted);
  return true;
}

std::optional<std::string> shell_range(std::int64_t first, std::int64_t last, std::int64_t step) {
  constexpr std::int64_t kMost = 4096;
  if (step == 0 || (last - first) / step > kMost) return std::nullopt;
  std::string all;
  for (std::int64_t each = first; step > 0 ? each <= last : each >= last; each += step)
    all += fmt::format("{}{}", all.empty() ? "" : " ", each);
  return all;
}

// $'…', where \n and \t have their meaning in C.
void ShellParser::read_escaped_quotes() {
  const int line = line_;
  take();
  append("");
  while (!done() && peek() != '\'') {
    char character = take();
    if (character == '\\' && !done()) {
      character = take();
      if (character == 'n') character = '\n';
      if (character == 't') character = '\t';
    }
    append(std::string(1, character));
  }
  if (done()) fail("a single quote is not closed", line);
  take();
}

std::string ShellParser::scalar(const std::string& name) const {
  const auto variable = variables_.find(name);
  return variable == variables_.end() || variable->second.words.empty() ? "" : variable->second.words.front().text;
}

void ShellParser::expand(const std::string& name, bool quoted) {
  const auto variable = variables_.find(name);
  if (variable == variables_.end()) {
    const bool is_argument = std::isdigit(static_cast<unsigned char>(name[0])) != 0;
    script_.takes_arguments = script_.takes_arguments || (is_argument && !in_function_ && !is_dead());
    // Missing arguments expand to nothing in the shell.
    if (!is_argument || (input_.arguments.empty() && !in_function_)) mark_unset(name);
  } else if (!variable->second.words.empty()) {
    append_split(variable->second.words.front().text, variable->second.words.front().line, quoted);
  }
}

// Returns the text up to the matching `close`, given `levels` open ones, and consumes the closing characters.
std::string ShellParser::until_closing(char open, char close, int levels) {
  const int line = line_;
  std::string inside;
  while (!done()) {
    const char character = take();
    if (character == open) ++levels;
    if (character == close && --levels == 0) return inside;
    inside += character;
  }
  fail(fmt::format("\"{}\" is not closed", open), line);
}

void ShellParser::read_braces(bool quoted) {
  const std::string inside = until_closing('{', '}', 1);
  const std::size_t end =
      static_cast<std::size_t>(std::find_if_not(inside.begin(), inside.end(), is_name_character) - inside.begin());
  const std::string name = inside.substr(0, end);
  const std::string rest = inside.substr(end);
  const auto variable = variables_.find(name);
  if (rest.starts_with("[@]") || rest.starts_with("[*]")) return read_words(name, rest, quoted);
  if (name.empty() && (rest[0] == '@' || rest[0] == '*')) return read_words("@", rest, quoted);
  if (name.empty() && rest[0] == '!' && is_name(rest.substr(1)) && is_name(scalar(rest.substr(1))))
    return expand(scalar(rest.substr(1)), quoted);
  if (name.empty() && rest == "#") return append(scalar("#"));
  if (name.empty() && rest.size() > 1 && rest[0] == '#') {
    const std::string counted = rest.substr(1, rest.find('[') - 1);
    const auto array = variables_.find(counted);
    const bool elements = rest.find('[') != std::string::npos;
    if (array == variables_.end()) return append("0");
    return append(fmt::format("{}", elements ? array->second.words.size() : scalar(counted).size()));
  }
  if (name.empty()) return mark_unset("{" + inside.substr(0, 20) + "}");
  if (rest.empty()) return expand(name, quoted);
  if (rest[0] == '[') {
    const std::size_t close = rest.find(']');
    if (close + 1 == rest.size() && read_element(name, rest.substr(1, close - 1), quoted)) return;
    return mark_unset(name + rest.substr(0, 8));
  }
  const bool colon = rest[0] == ':' && rest.size() > 1;
  const char sign = rest[colon ? 1 : 0];
  const bool is_set = variable != variables_.end() && (!colon || !scalar(name).empty());
  const std::string operand = rest.substr(colon ? 2 : 1);
  if (sign == '+') {
    if (is_set) append_split(expanded(operand), line_, quoted);
    return;
  }
  if (sign == '-' || sign == '=' || sign == '?') {
    if (is_set) return expand(name, quoted);
    if (sign == '?') return mark_unset(name);
    const std::string fallback = expanded(operand);
    if (sign == '=') assign(name, {{{fallback, line_, file_index_}}}, false);
    return append_split(fallback, line_, quoted);
  }
  if (variable == variables_.end()) return mark_unset(name);
  const auto changed = operated(scalar(name), rest);
  return changed ? append_split(*changed, line_, quoted) : mark_unset(name);
}

// ${V%suffix} ${V#prefix} ${V/from/to} ${V,,} ${V^^} ${V:from:count}; nothing for patterns other than one * at an end.
std::optional<std::string> ShellParser::operated(const std::string& value, std::string rest) const {
  if (value.find(kUnset) != std::string::npos) return value;
  if (rest == ",," || rest == "^^") {
    std::string turned = value;
    for (char& c : turned) {
      const auto byte = static_cast<unsigned char>(c);
      c = static_cast<char>(rest == ",," ? std::tolower(byte) : std::toupper(byte));
    }
    return turned;
  }
  const char sign = rest[0];
  const bool twice = rest.size() > 1 && rest[1] == sign;
  const std::string operand = expanded(rest.substr(twice ? 2 : 1));
  if (sign == '/') {
    const std::size_t cut = operand.find('/');
    const std::string from = operand.substr(0, cut);
    const std::string to = cut == std::string::npos ? "" : operand.substr(cut + 1);
    if (from.empty() || from.find_first_of("*?[#%") != std::string::npos) return std::nullopt;
    std::string text = value;
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
      if (!twice || text.size() > kLongestExpansion) break;
    }
    return text;
  }
  if (sign == '#' || sign == '%') {
    for (std::size_t length = 0; length <= value.size(); ++length) {
      const std::size_t taken = twice ? value.size() - length : length;
      const std::string part = sign == '#' ? value.substr(0, taken) : value.substr(value.size() - taken);
      const auto matches = shell_matches(part, operand);
      if (!matches) return std::nullopt;
      if (*matches) return sign == '#' ? value.substr(taken) : value.substr(0, value.size() - taken);
    }
    return value;
  }
  if (sign == ':') {
    const auto no_names = [this](const std::string& each) { return scalar(each); };
    const std::size_t cut = operand.find(':');
    const auto from = shell_arithmetic(operand.substr(0, cut), no_names);
    const auto count = cut == std::string::npos ? std::optional<std::int64_t>(kLongestExpansion)
                                                : shell_arithmetic(operand.substr(cut + 1), no_names);
    if (!from || !count || *from < 0 || *count < 0 || static_cast<std::size_t>(*from) > value.size())
      return std::nullopt;
    return value.substr(static_cast<std::size_t>(*from), static_cast<std::size_t>(*count));
  }
  return std::nullopt;
}

void ShellParser::read_dollar(bool quoted) {
  take();
  if (peek() == '(' && peek(1) == '(') {
    take();
    take();
    const std::string inside = until_closing('(', ')', 2);
    const std::string expression =
        !inside.empty() && inside.back() == ')' ? inside.substr(0, inside.size() - 1) : inside;
    std::string without_value;
    const auto value = shell_arithmetic(expression, [&](const std::string& name) {
      const std::string text = scalar(name);
      const std::string unset = unset_name(text);
      if (without_value.empty() && (text.empty() || !unset.empty())) {
        without_value = unset.empty() ? name : unset;
      }
      return text;
    });
    if (value) return append(fmt::format("{}", *value));
    return mark_unset(without_value.empty() ? fmt::format("(({}))", expression.substr(0, 60)) : without_value);
  }
  if (peek() == '(') {
    take();
    const std::string inside = until_closing('(', ')', 1);
    const auto value = substitute(inside);
    return value ? append_split(*value, line_, quoted) : mark_unset(fmt::format("({})", inside.substr(0, 60)));
  }
  if (peek() == '{') {
    take();
    return read_braces(quoted);
  }
  std::string name;
  if (std::isdigit(static_cast<unsigned char>(peek())) != 0 || peek() == '#')
    return expand(std::string(1, take()), quoted);
  if (peek() == '@' || peek() == '*') {
    const bool one_word = take() == '*' && quoted;
    return append_words(variables_["@"].words, quoted, one_word);
  }
  if (peek() == '\'' && !quoted) return read_escaped_quotes();
  if (peek() == '?' || peek() == '$' || peek() == '!') return mark_unset(fmt::format("${}", take()));
  while (is_name_character(peek())) name += take();
  if (name.empty()) return append("$");
  expand(name, quoted);
}

// The output of a command that only rewrites text, numbers or paths: echo, expr, seq, bc, dirname, basename, pwd,
// realpath, cat of a file that the script wrote.
std::optional<std::string> ShellParser::substitute(const std::string& inside) const {
  constexpr int kDeepest = 8;
  if (depth_ >= kDeepest) return std::nullopt;
  ShellParser nested = nested_in(inside, line_);
  const std::vector<ShellCommand> commands = nested.parse().commands;
  if (commands.empty()) return std::nullopt;
  const auto words_of = [](const ShellCommand& command) {
    std::string text;
    for (std::size_t index = 1; index < command.size(); ++index) {
      if (index == 1 && (command[index].text == "-e" || command[index].text == "-n")) continue;
      text += (text.empty() ? "" : " ") + command[index].text;
    }
    return text;
  };
  const auto calculated = [](const std::string& text) -> std::optional<std::string> {
    const auto number = shell_arithmetic(text, [](const std::string&) { return std::string(); });
    return number ? std::optional<std::string>(fmt::format("{}", *number)) : std::nullopt;
  };
  const std::string& first = commands.front().front().text;
  const std::string& last = commands.back().back().text;
  const auto folder_of = [](const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
  };
  if (commands.size() == 2 && first == "echo" && commands[1].front().text == "bc")
    return calculated(words_of(commands[0]));
  if (first == "cd" && last == "pwd" && commands.front().size() > 1) return commands.front().back().text;
  if (commands.size() != 1) return std::nullopt;
  if (first == "echo") return words_of(commands[0]);
  if (first == "expr") return calculated(words_of(commands[0]));
  if (first == "seq") return counted(commands[0]);
  if (commands[0].size() < 2) return std::nullopt;
  if (first == "dirname") return folder_of(last);
  if (first == "basename" && commands[0].size() == 2) return last.substr(last.rfind('/') + 1);
  if (first == "realpath" || first == "readlink") return last;
  if (first == "cat" && script_.written.count(last) > 0) return script_.written.at(last);
  return std::nullopt;
}

// ((…)) as a command or a condition, and the head of for ((…; …; …)); returns false where neither is allowed.
bool ShellParser::read_arithmetic_command() {
  static const std::vector<std::string> before = {"if", "elif", "while", "until", "!", "for"};
  const bool fits =
      command_.empty() || (command_.size() == 1 && std::count(before.begin(), before.end(), command_[0].text) > 0);
  if (!fits) return false;
  take();
  take();
  std::string inside = until_closing('(', ')', 2);
  if (!inside.empty() && inside.back() == ')') inside.pop_back();
  if (command_.size() == 1 && command_[0].text == "for") {
    ShellBranching loop;
    loop.kind = ShellBranching::Kind::kLoop;
    loop.line = line_;
    const std::size_t first = std::min(inside.find(';'), inside.size());
    const std::size_t second = std::min(inside.find(';', std::min(first + 1, inside.size())), inside.size());
    calculate(inside.substr(0, first));
    loop.holds = first < inside.size() ? inside.substr(first + 1, second - first - 1) : "";
    loop.step = second < inside.size() ? inside.substr(second + 1) : "";
    command_.clear();
    branchings_.push_back(std::move(loop));
    return true;
  }
  if (command_.empty()) {
    const auto holds = shell_arithmetic(inside, [this](const std::string& name) { return scalar(name); });
    read_arithmetic_ = true;
    arithmetic_holds_ = holds ? std::optional<bool>(*holds != 0) : std::nullopt;
    calculate(inside);
    return true;
  }
  const auto value = shell_arithmetic(inside, [this](const std::string& name) { return scalar(name); });
  append(!value ? "((" : *value != 0 ? "true" : "false");
  end_word();
  return true;
}

// Evaluates i=0, i++, i+=2.
void ShellParser::calculate(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return;
  std::size_t end = begin;
  while (end < text.size() && is_name_character(text[end])) ++end;
  const std::string name = text.substr(begin, end - begin);
  const std::string rest = text.substr(std::min(text.find_first_not_of(" \t", end), text.size()));
  if (!is_name(name) || rest.empty() || rest.starts_with("==")) return;
  const bool counts = rest.starts_with("++") || rest.starts_with("--");
  const bool adds = rest.size() > 1 && rest[1] == '=';
  if (!counts && !adds && rest[0] != '=') return;
  const std::string operand = counts ? "1" : rest.substr(adds ? 2 : 1);
  const std::string expression = rest[0] == '=' ? operand : fmt::format("({}){}({})", name, rest[0], operand);
  const auto value = shell_arithmetic(expression, [this](const std::string& each) { return scalar(each); });
  if (value) assign(name, {{{fmt::format("{}", *value), line_, file_index_}}}, false);
}

// Expands text as inside double quotes, after removing quotes around all of it.
std::string ShellParser::expanded(const std::string& text) const {
  constexpr int kDeepest = 8;
  if (depth_ >= kDeepest) return text;
  const bool is_quoted =
      text.size() > 1 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front();
  if (is_quoted && text.front() == '\'') return text.substr(1, text.size() - 2);
  const std::string inside = is_quoted ? text.substr(1, text.size() - 2) : text;
  ShellParser nested = nested_in(inside, line_);
  nested.append("");
  while (!nested.done()) {
    if (nested.peek() == '$') {
      nested.read_dollar(true);
    } else if (nested.peek() == '`') {
      nested.read_back_ticks(true);
    } else if (nested.peek() == kUnset) {
      nested.append(nested.marked());
    } else {
      const bool escapes =
          nested.peek() == '\\' && (nested.peek(1) == '$' || nested.peek(1) == '`' || nested.peek(1) == '"');
      if (escapes) nested.take();
      nested.append(std::string(1, nested.take()));
    }
  }
  std::string all;
  for (const ShellWord& word : nested.command_) all += word.text + " ";
  return all + nested.word_.text;
}

ShellParser ShellParser::nested_in(std::string_view text, int line) const {
  ShellParser nested(text, file_, input_);
  nested.inherit(*this);
  nested.line_ = line;
  return nested;
}

// The state in which a nested script starts.
void ShellParser::inherit(const ShellParser& from) {
  depth_ = from.depth_ + 1;
  expanded_ = from.expanded_;
  variables_ = from.variables_;
  functions_ = from.functions_;
  in_function_ = from.in_function_;
  file_index_ = from.file_index_;
  script_.files = from.script_.files;
  script_.written = from.script_.written;
  loops_ = from.loops_;
}

}  // namespace flopcast
