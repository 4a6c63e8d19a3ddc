#include "import/shell/shell.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "import/shell/shell_conditions.hpp"

namespace flopcast {

namespace {

// An array, or a plain variable as an array of one word that unquoted use splits.
struct Variable {
  std::vector<ShellWord> words;
};

// An if or a case that is not closed yet.
struct Branching {
  enum class Kind { kIf, kCase, kGroup, kLoop };
  Kind kind = Kind::kIf;
  int line = 0;
  bool reads_condition = true;  // or the pattern of a case
  ShellCommand condition;       // or the patterns read so far
  std::string subject;          // of a case
  bool taken = false;           // no later branch runs
  bool doubtful = false;        // an earlier branch may run
  std::optional<bool> runs;     // the branch at hand
  // Of a loop: where it is read again from, and for which words.
  std::size_t again_at = 0;
  int again_line = 0;
  std::string variable;
  std::vector<ShellWord> rest;
  std::string holds;  // of for ((…; …; …)), and its step
  std::string step;
  bool is_while = false;
};

// Reads a script from top to bottom: words first, then commands and branches.
// <PATH TO THE CHECKPOINT>, which an example asks to be filled in: a value, and no files to read and write.
std::size_t placeholder_size(std::string_view text) {
  if (text.size() < 3 || std::isalpha(static_cast<unsigned char>(text[1])) == 0) return 0;
  const std::size_t end = text.find_first_of("<>\n\"'`$|;&()", 1);
  if (end == std::string_view::npos || text[end] != '>' || text[end - 1] == ' ') return 0;
  const bool stands_alone =
      end + 1 == text.size() || std::string_view(" \t\r\n\\\"')").find(text[end + 1]) != std::string_view::npos;
  return stands_alone ? end + 1 : 0;
}

class ShellParser {
 public:
  ShellParser(std::string_view text, const std::string& file, const ShellInput& input)
      : text_(text), file_(file), input_(input) {}

  void start();

  ShellScript parse();

 private:
  bool done() const { return at_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  char take();
  [[noreturn]] void fail(const std::string& problem, int line) const;

  std::string marked();
  void read_comment();
  void read_word_piece();
  void read_double_quotes();
  void read_single_quotes();
  void read_back_ticks(bool quoted);
  void read_dollar(bool quoted);
  void read_braces(bool quoted);
  std::string until_closing(char open, char close, int levels);
  void expand(const std::string& name, bool quoted);
  void append_split(const std::string& text, int line, bool quoted);
  void append(const std::string& text);
  std::string scalar(const std::string& name) const;
  void mark_unset(const std::string& name) { append(kUnset + name + kUnset); }

  void end_word();
  void end_command(const std::string& by = ";");
  bool read_branching(ShellCommand& command, const std::string& by);
  void begin_branch(Branching& branching, std::optional<bool> holds);
  void begin_case_branch();
  bool is_dead() const;
  const Branching* undecided() const;
  void judge_short_circuit(const ShellCommand& command, const std::string& by);
  void add_command(ShellCommand command);
  void run_nested(const ShellCommand& prefix, const std::string& text, int line);
  void follow(const ShellCommand& command);
  void take_over(ShellParser& nested, const ShellCommand& prefix);
  ShellParser nested_in(std::string_view text, int line) const;
  std::optional<std::string> substitute(const std::string& inside) const;
  std::string expanded(const std::string& text) const;
  void write_file(const std::string& redirection, std::string_view body, bool as_it_is);
  void set_arguments(const std::vector<ShellWord>& arguments);
  void shift(std::size_t count);
  void tell_batch(const ShellCommand& command);
  void begin_loop(const ShellCommand& command, const std::string& by);
  bool end_loop();
  bool read_arithmetic_command();
  void calculate(const std::string& text);
  std::optional<bool> counts_on(const Branching& loop) const;
  void judge_loop_condition(Branching& branching);
  std::optional<bool> decide(const ShellCommand& condition, int line);
  std::optional<std::string> operated(const std::string& value, std::string rest) const;
  void tell_undecided(const std::string& name, const Variable& value, bool append_to_it);
  void assign(const std::string& name, Variable value, bool append_to_it);
  void read_operator();
  void read_here_document();
  void read_array(std::string name);

  std::string_view text_;
  const std::string& file_;
  const ShellInput& input_;
  int file_index_ = 0;
  std::size_t command_at_ = 0;  // where the command at hand begins
  int command_line_ = 1;
  int loops_ = 0;  // rounds read so far
  std::size_t at_ = 0;
  int line_ = 1;
  std::size_t expanded_ = 0;

  std::map<std::string, Variable> variables_;
  ShellWord word_;
  bool in_word_ = false;
  ShellCommand command_;
  bool in_array_ = false;
  ShellScript script_;
  std::vector<Branching> branchings_;
  bool skips_next_ = false;  // the right side of && after what does not hold
  Branching doubt_;          // its line is that of a [ … ] before && that cannot be decided, else 0
  std::string joint_;        // the && or || of the two
  bool read_array_ = false;  // in this command
  int depth_ = 0;            // of sh -c "sh -c …"
};

constexpr std::size_t kLongestExpansion = std::size_t{1} << 20;

bool is_name_character(char character) {
  return std::isalnum(static_cast<unsigned char>(character)) != 0 || character == '_';
}

bool is_name(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(), is_name_character);
}

// -c, -lc, -ec: the flag after which a shell takes a script as its next word.
bool takes_script(const std::string& text) {
  constexpr std::size_t kLongest = 5;
  return text.size() > 1 && text.size() <= kLongest && text[0] == '-' && text.back() == 'c' &&
         std::all_of(text.begin() + 1, text.end(), [](unsigned char c) { return std::islower(c) != 0; });
}

std::string shown(const ShellCommand& words) {
  std::string text;
  for (const ShellWord& word : words) {
    const std::string unset = unset_name(word.text);
    text += (text.empty() ? "" : " ") + (unset.empty() ? word.text : unset);
  }
  constexpr std::size_t kLongest = 60;
  return text.size() > kLongest ? text.substr(0, kLongest) + "…" : text;
}

// What an enclosing shell left unset, as it stands.
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
                     "flopcast reads launch scripts as bash would; see whether bash -n takes it"});
}

void ShellParser::append(const std::string& text) {
  if (!in_word_) word_ = {"", line_, file_index_};
  in_word_ = true;
  word_.text += text;
  expanded_ += text.size();
  if (expanded_ > kLongestExpansion) fail("the script's variables expand to more than 1 MB", line_);
}

void ShellParser::append_split(const std::string& text, int line, bool quoted) {
  if (quoted) {
    append(text);
    return;
  }
  for (std::size_t begin = 0; begin < text.size();) {
    // What is not set is one piece, blanks and all.
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

std::string ShellParser::scalar(const std::string& name) const {
  const auto variable = variables_.find(name);
  return variable == variables_.end() || variable->second.words.empty() ? "" : variable->second.words.front().text;
}

void ShellParser::expand(const std::string& name, bool quoted) {
  const auto variable = variables_.find(name);
  if (variable == variables_.end()) {
    const bool is_argument = std::isdigit(static_cast<unsigned char>(name[0])) != 0;
    script_.takes_arguments = script_.takes_arguments || is_argument;
    // The shell leaves nothing where fewer arguments were given.
    if (!is_argument || input_.arguments.empty()) mark_unset(name);
  } else if (!variable->second.words.empty()) {
    append_split(variable->second.words.front().text, variable->second.words.front().line, quoted);
  }
}

// The text up to the matching close, `levels` of which are open already; the closing characters are taken too.
std::string ShellParser::until_closing(char open, char close, int levels) {
  const int line = line_;
  std::string inside;
  while (!done()) {
    const char character = take();
    if (character == open) ++levels;
    if (character == close && --levels == 0) return inside;
    inside += character;
  }
  fail(fmt::format("\"{}\" is never closed", open), line);
}

void ShellParser::read_braces(bool quoted) {
  const std::string inside = until_closing('{', '}', 1);
  const std::size_t end =
      static_cast<std::size_t>(std::find_if_not(inside.begin(), inside.end(), is_name_character) - inside.begin());
  const std::string name = inside.substr(0, end);
  const std::string rest = inside.substr(end);
  const auto variable = variables_.find(name);
  if (rest == "[@]" || rest == "[*]") {
    if (variable == variables_.end()) return mark_unset(name);
    const std::vector<ShellWord> words = variable->second.words;
    const bool one_word = quoted && rest == "[*]";
    for (std::size_t index = 0; index < words.size(); ++index) {
      if (index > 0 && one_word) append(" ");
      if (index > 0 && !one_word) end_word();
      const bool starts = !in_word_;
      append_split(words[index].text, words[index].line, quoted);
      if (starts && quoted) word_.line = words[index].line;
    }
    return;
  }
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
    const auto index = shell_arithmetic(rest.substr(1, close == std::string::npos ? close : close - 1),
                                        [this](const std::string& each) { return scalar(each); });
    const bool has = variable != variables_.end() && index && *index >= 0 &&
                     static_cast<std::size_t>(*index) < variable->second.words.size();
    if (has) {
      const ShellWord word = variable->second.words[static_cast<std::size_t>(*index)];
      return append_split(word.text, word.line, quoted);
    }
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
    take();
    const std::vector<ShellWord> words = variables_["@"].words;
    for (std::size_t index = 0; index < words.size(); ++index) {
      if (index > 0) end_word();
      append_split(words[index].text, words[index].line, quoted);
    }
    return;
  }
  if (peek() == '?' || peek() == '$' || peek() == '!') return mark_unset(fmt::format("${}", take()));
  while (is_name_character(peek())) name += take();
  if (name.empty()) return append("$");
  expand(name, quoted);
}

// The output of a command that only rewrites text or paths: echo, expr, bc, dirname, basename, pwd, realpath, cat of a
// file that the script wrote.
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
  if (commands[0].size() < 2) return std::nullopt;
  if (first == "dirname") return folder_of(last);
  if (first == "basename" && commands[0].size() == 2) return last.substr(last.rfind('/') + 1);
  if (first == "realpath" || first == "readlink") return last;
  if (first == "cat" && script_.written.count(last) > 0) return script_.written.at(last);
  return std::nullopt;
}

void ShellParser::read_double_quotes() {
  const int line = line_;
  take();
  append("");
  while (!done() && peek() != '"') {
    if (peek() == kUnset) {
      append(marked());
    } else if (peek() == '\\' && peek(1) == '\n') {
      // A script for sh -c keeps it, which tells its later lines where they are.
      const bool is_script = !command_.empty() && takes_script(command_.back().text);
      take();
      take();
      if (is_script) append("\\\n");
    } else if (peek() == '\\' && at_ + 1 < text_.size()) {
      take();
      append(std::string(1, take()));
    } else if (peek() == '$') {
      read_dollar(true);
    } else if (peek() == '`') {
      read_back_ticks(true);
    } else {
      append(std::string(1, take()));
    }
  }
  if (done()) fail("a double quote is never closed", line);
  take();
}

void ShellParser::read_back_ticks(bool quoted) {
  const int line = line_;
  take();
  std::string inside;
  while (!done() && peek() != '`') {
    if (peek() == '\\' && at_ + 1 < text_.size()) take();
    inside += take();
  }
  if (done()) fail("a back-tick is never closed", line);
  take();
  const auto value = substitute(inside);
  if (value) return append_split(*value, line, quoted);
  mark_unset(fmt::format("`{}`", inside.substr(0, 60)));
}

void ShellParser::read_single_quotes() {
  const int line = line_;
  take();
  append("");
  while (!done() && peek() != '\'') append(std::string(1, take()));
  if (done()) fail("a single quote is never closed", line);
  take();
}

// NAME=( … ): the words up to the closing parenthesis.
void ShellParser::read_array(std::string name) {
  const bool adds = !name.empty() && name.back() == '+';
  if (adds) name.pop_back();
  const int line = line_;
  ShellCommand outer;
  std::swap(outer, command_);
  in_word_ = false;
  in_array_ = true;
  take();
  while (!done() && peek() != ')') read_word_piece();
  if (done()) fail(fmt::format("the array {} is never closed", name), line);
  take();
  end_word();
  Variable value{std::move(command_)};
  command_ = std::move(outer);
  assign(name, std::move(value), adds);
  in_array_ = false;
  read_array_ = true;
}

// "#SBATCH --nodes=16" tells as much as a command does.
void ShellParser::read_comment() {
  const int line = line_;
  std::string comment;
  while (!done() && peek() != '\n') comment += take();
  constexpr std::string_view kBatch = "#SBATCH ";
  if (comment.rfind(kBatch, 0) != 0 || in_array_) return;
  end_command();
  const std::size_t remark = comment.find(" #", kBatch.size());
  append_split(comment.substr(0, remark), line, false);
  end_word();
  tell_batch(command_);
  end_command();
}

void ShellParser::read_word_piece() {
  const char character = peek();
  if (!in_word_ && command_.empty()) {
    command_at_ = at_;
    command_line_ = line_;
  }
  switch (character) {
    case ' ':
    case '\t':
    case '\r':
      take();
      return end_word();
    case '\n':
      // Taken first: a loop may be read again from its beginning.
      take();
      return end_command();
    case '#':
      if (!in_word_) return read_comment();
      return append(std::string(1, take()));
    case '\\':
      take();
      if (done()) return;
      if (peek() == '\n') {
        take();
        return;
      }
      if (peek() == '\r' && peek(1) == '\n') {
        take();
        take();
        return;
      }
      return append(std::string(1, take()));
    case '"':
      return read_double_quotes();
    case '\'':
      return read_single_quotes();
    case '$':
      return read_dollar(false);
    case '`':
      return read_back_ticks(false);
    case kUnset:
      return append(marked());
    case '<':
      if (const std::size_t size = placeholder_size(text_.substr(at_)); size > 0) {
        for (std::size_t each = 0; each < size; ++each) append(std::string(1, take()));
        return;
      }
      return read_operator();
    case '(':
      if (peek(1) == '(' && !in_word_ && !in_array_ && read_arithmetic_command()) return;
      if (in_word_ && !in_array_ && word_.text.size() > 1 && word_.text.back() == '=') {
        const std::string name = word_.text.substr(0, word_.text.size() - 1);
        const std::string_view bare = name.back() == '+' ? std::string_view(name).substr(0, name.size() - 1) : name;
        if (is_name(bare)) return read_array(name);
      }
      [[fallthrough]];
    case ')':
    case ';':
    case '&':
    case '|':
    case '>':
      return read_operator();
    default:
      append(std::string(1, take()));
  }
}

// ((…)) as a command or a condition, and the head of for ((…; …; …)); false where neither can stand.
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
    Branching loop;
    loop.kind = Branching::Kind::kLoop;
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
    calculate(inside);
    return true;
  }
  const auto value = shell_arithmetic(inside, [this](const std::string& name) { return scalar(name); });
  append(!value ? "((" : *value != 0 ? "true" : "false");
  end_word();
  return true;
}

// i=0, i++, i+=2.
void ShellParser::calculate(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return;
  std::size_t end = begin;
  while (end < text.size() && is_name_character(text[end])) ++end;
  const std::string name = text.substr(begin, end - begin);
  const std::string rest = text.substr(std::min(text.find_first_not_of(" \t", end), text.size()));
  if (!is_name(name) || rest.empty()) return;
  const bool counts = rest.starts_with("++") || rest.starts_with("--");
  const bool adds = rest.size() > 1 && rest[1] == '=';
  if (!counts && !adds && rest[0] != '=') return;
  const std::string operand = counts ? "1" : rest.substr(adds ? 2 : 1);
  const std::string expression = rest[0] == '=' ? operand : fmt::format("({}){}({})", name, rest[0], operand);
  const auto value = shell_arithmetic(expression, [this](const std::string& each) { return scalar(each); });
  if (value) assign(name, {{{fmt::format("{}", *value), line_, file_index_}}}, false);
}

// Skips the text of <<NAME, unless it holds flags: then it is a script that is written or run.
void ShellParser::read_here_document() {
  std::size_t begin = at_ + 1;
  while (begin < text_.size() && std::string_view("-'\" ").find(text_[begin]) != std::string_view::npos) ++begin;
  std::size_t end = begin;
  while (end < text_.size() && is_name_character(text_[end])) ++end;
  const std::string name(text_.substr(begin, end - begin));
  const std::size_t first = text_.find('\n', end);
  if (!is_name(name) || first == std::string_view::npos) return;
  std::size_t close = first;
  while (true) {
    close = text_.find('\n', close);
    if (close == std::string_view::npos) return;
    const std::size_t word = text_.find_first_not_of(" \t", close + 1);
    if (word == std::string_view::npos) return;
    const bool ends = text_.substr(word, name.size()) == name &&
                      (word + name.size() == text_.size() || text_[word + name.size()] == '\n');
    if (ends) break;
    ++close;
  }
  const std::string_view body = text_.substr(first + 1, close > first ? close - first - 1 : 0);
  std::size_t line_begin = text_.rfind('\n', at_);
  line_begin = line_begin == std::string_view::npos ? 0 : line_begin + 1;
  const std::string redirection =
      std::string(text_.substr(line_begin, at_ - line_begin)) + std::string(text_.substr(end, first - end));
  const bool as_it_is = text_[begin - 1] == '\'' || text_[begin - 1] == '"';
  if (!is_dead()) write_file(redirection, body, as_it_is);
  const bool is_script = redirection.find('>') == std::string::npos && body.find("--") != std::string_view::npos;
  if (is_script) return;
  while (at_ < close) take();
}

// What a here-document writes with > PATH on its line.
void ShellParser::write_file(const std::string& redirection, std::string_view body, bool as_it_is) {
  const std::size_t sign = redirection.find('>');
  if (sign == std::string::npos || depth_ > 0 || (sign > 0 && redirection[sign - 1] == '2')) return;
  const std::size_t begin = redirection.find_first_not_of("> \t'", sign);
  if (begin == std::string::npos) return;
  const std::size_t end = std::min(redirection.find_first_of(" \t;|&<'", begin), redirection.size());
  const std::string path = expanded(redirection.substr(begin, end - begin));
  script_.written[path] = as_it_is ? std::string(body) : expanded(std::string(body));
}

// Text as between double quotes, but with quotes around all of it taken off.
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
  nested.line_ = line;
  nested.depth_ = depth_ + 1;
  nested.expanded_ = expanded_;
  nested.variables_ = variables_;
  nested.file_index_ = file_index_;
  nested.script_.files = script_.files;
  nested.script_.written = script_.written;
  nested.loops_ = loops_;
  return nested;
}

void ShellParser::read_operator() {
  const char character = take();
  const bool twice = peek() == character;
  if (twice && (character == '&' || character == '|' || character == ';')) take();
  const std::string written(twice ? 2 : 1, character);
  if (written != ";;") end_command(written);
  if (in_array_) return;
  if (written == ";;") end_command();
  if (character == '<' && twice && peek(1) == '<') {
    take();
    take();
    return;
  }
  if (character == '<' && twice) read_here_document();
  if (branchings_.empty() || branchings_.back().kind != Branching::Kind::kCase) return;
  Branching& branching = branchings_.back();
  if (written == ";;") branching.reads_condition = true;
  if (character == ')' && branching.reads_condition) begin_case_branch();
}

// $0, $1 …, what the environment says.
void ShellParser::start() {
  script_.files = {file_};
  for (const auto& [name, value] : input_.environment) variables_[name] = {{{value, 0}}};
  variables_["0"] = {{{file_, 0}}};
  variables_["BASH_SOURCE"] = {{{file_, 0}}};
  std::vector<ShellWord> arguments;
  for (const std::string& argument : input_.arguments) arguments.push_back({argument, 0});
  set_arguments(arguments);
}

void ShellParser::set_arguments(const std::vector<ShellWord>& arguments) {
  for (std::size_t index = 1; index <= variables_["@"].words.size(); ++index)
    variables_.erase(fmt::format("{}", index));
  for (std::size_t index = 0; index < arguments.size(); ++index)
    variables_[fmt::format("{}", index + 1)] = {{arguments[index]}};
  variables_["#"] = {{{fmt::format("{}", arguments.size()), 0}}};
  variables_["@"] = {arguments};
}

void ShellParser::shift(std::size_t count) {
  std::vector<ShellWord> arguments = variables_["@"].words;
  arguments.erase(arguments.begin(),
                  arguments.begin() + static_cast<std::ptrdiff_t>(std::min(count, arguments.size())));
  set_arguments(arguments);
}

// SLURM sets its variables from the script's own #SBATCH lines (sbatch's manual, "OUTPUT ENVIRONMENT VARIABLES").
void ShellParser::tell_batch(const ShellCommand& command) {
  struct BatchFlag {
    std::string_view flag;
    std::vector<const char*> names;
  };
  static const std::vector<BatchFlag> flags = {{"--nodes", {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}},
                                               {"-N", {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}},
                                               {"--ntasks", {"SLURM_NTASKS", "SLURM_NPROCS"}},
                                               {"-n", {"SLURM_NTASKS", "SLURM_NPROCS"}},
                                               {"--ntasks-per-node", {"SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}},
                                               {"--gpus-per-node", {"SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"}},
                                               {"--gres", {"SLURM_GPUS_ON_NODE"}},
                                               {"--cpus-per-task", {"SLURM_CPUS_PER_TASK"}}};
  for (std::size_t index = 1; index < command.size(); ++index) {
    const std::string& text = command[index].text;
    const std::size_t equals = text.find('=');
    const std::string flag = text.substr(0, equals);
    std::string value = equals != std::string::npos  ? text.substr(equals + 1)
                        : index + 1 < command.size() ? command[index + 1].text
                                                     : "";
    const std::size_t colon = value.rfind(':');  // gpu:a100:8
    if (colon != std::string::npos) value = value.substr(colon + 1);
    for (const BatchFlag& known : flags) {
      if (known.flag != flag) continue;
      for (const char* name : known.names) {
        if (input_.environment.count(name) == 0) variables_[name] = {{{value, command[index].line, file_index_}}};
      }
    }
  }
}

ShellScript ShellParser::parse() {
  while (!done()) read_word_piece();
  end_command();
  if (!branchings_.empty() && branchings_.back().reads_condition) {
    const Branching& open = branchings_.back();
    fail(open.kind == Branching::Kind::kIf ? "an if has no then" : "a case has no esac", open.line);
  }
  for (const auto& [name, variable] : variables_) script_.variables[name] = variable.words;
  return std::move(script_);
}

// The innermost branch that may or may not run.
const Branching* ShellParser::undecided() const {
  if (doubt_.line > 0) return &doubt_;
  for (auto each = branchings_.rbegin(); each != branchings_.rend(); ++each) {
    if (!each->reads_condition && !each->runs) return &*each;
  }
  return nullptr;
}

bool ShellParser::is_dead() const {
  return skips_next_ || std::any_of(branchings_.begin(), branchings_.end(), [](const Branching& each) {
           return !each.reads_condition && each.runs && !*each.runs;
         });
}

void ShellParser::begin_branch(Branching& branching, std::optional<bool> holds) {
  branching.reads_condition = false;
  branching.condition.clear();
  const bool fails = branching.taken || (holds && !*holds);
  branching.runs = fails ? std::optional<bool>(false) : branching.doubtful ? std::nullopt : holds;
  if (!branching.runs) script_.has_conditions = true;
  branching.doubtful = branching.doubtful || !branching.runs;
  branching.taken = branching.taken || holds.value_or(false);
}

// At the parenthesis that ends the patterns of a branch.
void ShellParser::begin_case_branch() {
  Branching& branching = branchings_.back();
  std::optional<bool> any = false;
  for (const ShellWord& pattern : branching.condition) {
    const auto subject = without_unset(branching.subject);
    const auto match = pattern.text == "*" ? std::optional<bool>(true)
                       : subject           ? shell_matches(*subject, pattern.text)
                                           : std::nullopt;
    if (match && *match) {
      any = true;
      break;
    }
    if (!match) any = std::nullopt;
  }
  begin_branch(branching, any);
}

std::optional<bool> ShellParser::decide(const ShellCommand& condition, int line) {
  std::vector<std::string> empty;
  const auto holds = shell_condition(condition, &empty);
  if (!holds || is_dead()) return holds;
  for (const std::string& name : empty) {
    const bool is_argument = name.size() > 1 && std::isdigit(static_cast<unsigned char>(name[1])) != 0;
    script_.warnings.push_back(
        fmt::format("{}:{}: {} is not set: the condition is decided as if it were empty; give it {}", file_, line, name,
                    is_argument ? "after --" : "by --env NAME=VALUE"));
  }
  return holds;
}

void ShellParser::tell_undecided(const std::string& name, const Variable& value, bool append_to_it) {
  const Branching* branching = undecided();
  if (branching == nullptr) return;
  const auto before = variables_.find(name);
  const int line = value.words.empty() ? line_ : value.words.front().line;
  if (append_to_it) {
    script_.notes.push_back(fmt::format("{}:{}: {} gets {} as if the condition of line {} held", file_, line, name,
                                        shown(value.words), branching->line));
    return;
  }
  if (before == variables_.end() || shown(before->second.words) == shown(value.words)) return;
  const int line_before = before->second.words.empty() ? branching->line : before->second.words.front().line;
  script_.warnings.push_back(
      fmt::format("{}:{}: {} is \"{}\" here and \"{}\" in line {}; the condition of line {} cannot be decided, the "
                  "later one is taken",
                  file_, line, name, shown(value.words), shown(before->second.words), line_before, branching->line));
}

void ShellParser::assign(const std::string& name, Variable value, bool append_to_it) {
  if (is_dead()) return;
  tell_undecided(name, value, append_to_it);
  if (!append_to_it) {
    variables_[name] = std::move(value);
    return;
  }
  Variable& variable = variables_[name];
  if (in_array_ || variable.words.empty()) {
    variable.words.insert(variable.words.end(), value.words.begin(), value.words.end());
  } else if (!value.words.empty()) {
    variable.words.front().text += value.words.front().text;
  }
}

void ShellParser::end_word() {
  if (!in_word_) return;
  in_word_ = false;
  command_.push_back(word_);
  if (in_array_) return;
  static const std::vector<std::string> keywords = {"then", "else", "do", "{"};
  const bool first = command_.size() == 1 && std::count(keywords.begin(), keywords.end(), word_.text) > 0;
  const bool subject = command_.size() == 3 && command_[0].text == "case" && command_[2].text == "in";
  if (first || subject) end_command();
}

// Words that open, part or close an if or a case, and those of conditions; false for all others.
bool ShellParser::read_branching(ShellCommand& command, const std::string& by) {
  Branching* inner = branchings_.empty() ? nullptr : &branchings_.back();
  const std::string first = command.empty() ? "" : command.front().text;
  const bool in_if = inner != nullptr && inner->kind == Branching::Kind::kIf;
  const bool in_case = inner != nullptr && inner->kind == Branching::Kind::kCase;
  if (in_case && inner->reads_condition) {
    if (first == "esac") {
      branchings_.pop_back();
    } else {
      inner->condition.insert(inner->condition.end(), command.begin(), command.end());
    }
    return true;
  }
  if (in_if && inner->reads_condition) {
    if (first == "then") {
      begin_branch(*inner, decide(inner->condition, inner->line));
    } else {
      inner->condition.insert(inner->condition.end(), command.begin(), command.end());
      inner->condition.push_back({by, line_});
    }
    return true;
  }
  if (first == "if" || first == "elif") {
    if (first == "if") {
      branchings_.emplace_back();
    } else if (!in_if) {
      return false;
    }
    Branching& branching = branchings_.back();
    branching.line = command.front().line;
    branching.reads_condition = true;
    branching.condition.assign(command.begin() + 1, command.end());
    branching.condition.push_back({by, line_});
    return true;
  }
  if ((first == "for" || first == "while" || first == "until") && command.size() > 1) {
    begin_loop(command, by);
    return true;
  }
  if (inner != nullptr && inner->kind == Branching::Kind::kLoop) {
    if (inner->reads_condition && first == "do") {
      judge_loop_condition(*inner);
      return true;
    }
    if (inner->reads_condition) {
      inner->condition.insert(inner->condition.end(), command.begin(), command.end());
      inner->condition.push_back({by, line_});
      return true;
    }
    if (first == "done") return end_loop();
  }
  if (first == "case" && command.size() == 3) {
    Branching branching;
    branching.kind = Branching::Kind::kCase;
    branching.line = command.front().line;
    branching.subject = command[1].text;
    branchings_.push_back(std::move(branching));
    return true;
  }
  if (first == "{" && command.size() == 1) {
    Branching group;
    group.kind = Branching::Kind::kGroup;
    group.reads_condition = false;
    group.line = doubt_.line > 0 ? doubt_.line : command.front().line;
    group.runs = skips_next_ ? std::optional<bool>(false) : doubt_.line > 0 ? std::nullopt : std::optional<bool>(true);
    skips_next_ = false;
    doubt_.line = 0;
    branchings_.push_back(std::move(group));
    return true;
  }
  const bool closes_group = first == "}" && inner != nullptr && inner->kind == Branching::Kind::kGroup;
  if (first == "else" && in_if) {
    begin_branch(*inner, true);
  } else if ((first == "fi" && in_if) || (first == "esac" && in_case) || closes_group) {
    branchings_.pop_back();
  } else {
    return false;
  }
  return true;
}

void ShellParser::begin_loop(const ShellCommand& command, const std::string& by) {
  Branching loop;
  loop.kind = Branching::Kind::kLoop;
  loop.line = command.front().line;
  loop.is_while = command.front().text != "for";
  loop.again_at = command_at_;
  loop.again_line = command_line_;
  if (loop.is_while) {
    loop.condition.assign(command.begin() + 1, command.end());
    if (command.front().text == "until") loop.condition.insert(loop.condition.begin(), {"!", loop.line});
    loop.condition.push_back({by, line_});
  } else if (command.size() > 2 && command[2].text == "in") {
    loop.variable = command[1].text;
    loop.rest.assign(command.begin() + 3, command.end());
  } else if (command.size() == 2 && is_name(command[1].text)) {
    loop.variable = command[1].text;
    loop.rest = variables_["@"].words;
  }
  branchings_.push_back(std::move(loop));
}

// At `do`.
void ShellParser::judge_loop_condition(Branching& branching) {
  if (branching.is_while) {
    begin_branch(branching, decide(branching.condition, branching.line));
    return;
  }
  branching.again_at = at_;
  branching.again_line = line_;
  if (branching.variable.empty()) {
    begin_branch(branching, counts_on(branching));
    return;
  }
  begin_branch(branching, !branching.rest.empty());
  if (branching.rest.empty()) return;
  const ShellWord word = branching.rest.front();
  branching.rest.erase(branching.rest.begin());
  assign(branching.variable, {{word}}, false);
}

std::optional<bool> ShellParser::counts_on(const Branching& loop) const {
  const auto value = shell_arithmetic(loop.holds, [this](const std::string& name) { return scalar(name); });
  return value ? std::optional<bool>(*value != 0) : std::nullopt;
}

// At `done`: goes back while there is another round.
bool ShellParser::end_loop() {
  constexpr int kMostRounds = 500;
  Branching& loop = branchings_.back();
  const bool runs = loop.runs.value_or(false) && !is_dead();
  const bool counts = !loop.is_while && loop.variable.empty();
  if (runs && counts) calculate(loop.step);
  const bool more = loop.is_while || !loop.rest.empty() || (counts && counts_on(loop).value_or(false));
  const bool again = runs && ++loops_ < kMostRounds && more;
  if (runs && loops_ >= kMostRounds) script_.has_conditions = true;
  if (!again) {
    branchings_.pop_back();
    return true;
  }
  at_ = loop.again_at;
  line_ = loop.again_line;
  if (loop.is_while) {
    branchings_.pop_back();
    return true;
  }
  if (counts) return true;
  const ShellWord word = loop.rest.front();
  loop.rest.erase(loop.rest.begin());
  assign(loop.variable, {{word}}, false);
  return true;
}

// "[ … ] && NAME=…" outside of an if.
void ShellParser::judge_short_circuit(const ShellCommand& command, const std::string& by) {
  const bool pending = skips_next_ || doubt_.line > 0;
  if (command.empty() && !read_array_) return;
  read_array_ = false;
  if (pending && by == joint_) return;
  const std::string first = command.empty() ? "" : command.front().text;
  const bool judges = by == "&&" || by == "||";
  const bool is_test = judges && (first == "[" || first == "[[" || first == "test");
  const auto holds = is_test ? decide(command, command.front().line) : std::nullopt;
  skips_next_ = holds && *holds == (by == "||");
  doubt_.line = is_test && !holds ? command.front().line : 0;
  joint_ = by;
}

// A script inside a word, after sh -c; what stands before it, such as srun and its flags, counts for its commands too.
void ShellParser::run_nested(const ShellCommand& prefix, const std::string& text, int line) {
  constexpr int kDeepest = 8;
  if (depth_ >= kDeepest) fail("sh -c is nested too deeply", line);
  ShellParser nested = nested_in(text, line);
  take_over(nested, prefix);
}

void ShellParser::take_over(ShellParser& nested, const ShellCommand& prefix) {
  ShellScript inside = nested.parse();
  expanded_ = nested.expanded_;
  loops_ = nested.loops_;
  if (prefix.empty()) variables_ = nested.variables_;
  for (ShellCommand& command : inside.commands) {
    command.insert(command.begin(), prefix.begin(), prefix.end());
    script_.commands.push_back(std::move(command));
  }
  script_.has_conditions = script_.has_conditions || inside.has_conditions;
  script_.takes_arguments = script_.takes_arguments || inside.takes_arguments;
  script_.files = std::move(inside.files);
  script_.written.merge(inside.written);
  script_.warnings.insert(script_.warnings.end(), inside.warnings.begin(), inside.warnings.end());
  script_.notes.insert(script_.notes.end(), inside.notes.begin(), inside.notes.end());
  script_.not_found.insert(script_.not_found.end(), inside.not_found.begin(), inside.not_found.end());
}

// source FILE: beside the script, or where its path says.
void ShellParser::follow(const ShellCommand& command) {
  constexpr int kDeepest = 8;
  const std::string& path = command[1].text;
  const std::size_t unset = path.rfind(kUnset);
  const std::string tail = unset == std::string::npos
                               ? path
                               : path.substr(path.find_first_not_of('/', unset + 1) == std::string::npos
                                                 ? unset
                                                 : path.find_first_not_of('/', unset + 1));
  const std::size_t slash = file_.rfind('/');
  const std::string beside = (slash == std::string::npos ? "" : file_.substr(0, slash + 1)) + tail;
  std::optional<std::string> text;
  std::string found;
  if (input_.read && depth_ < kDeepest) {
    for (const std::string& each : {tail, beside}) {
      if (text || each.empty() || each.find(kUnset) != std::string::npos) continue;
      text = input_.read(each);
      found = each;
    }
  }
  if (!text) {
    script_.not_found.push_back(fmt::format("{}:{}: {}", file_, command[1].line,
                                            shown({command[1]}) + (unset == std::string::npos ? "" : "/" + tail)));
    return;
  }
  const std::string name = found;
  const std::string body = *text;
  ShellParser sourced(body, name, input_);
  sourced.depth_ = depth_ + 1;
  sourced.expanded_ = expanded_;
  sourced.variables_ = variables_;
  sourced.variables_["BASH_SOURCE"] = {{{name, 0}}};
  sourced.loops_ = loops_;
  sourced.script_.files = script_.files;
  sourced.script_.written = script_.written;
  sourced.file_index_ = static_cast<int>(script_.files.size());
  sourced.script_.files.push_back(name);
  take_over(sourced, {});
  variables_["BASH_SOURCE"] = {{{file_, 0}}};
}

void ShellParser::add_command(ShellCommand command) {
  if (command.front().text == "eval" && command.size() > 1) {
    std::string text;
    for (std::size_t index = 1; index < command.size(); ++index) text += command[index].text + " ";
    return run_nested({}, text, command[1].line);
  }
  const std::string& name = command.front().text;
  if ((name == "source" || name == ".") && command.size() > 1) return follow(command);
  if (name == "shift")
    return shift(command.size() > 1
                     ? static_cast<std::size_t>(std::max(0L, std::strtol(command[1].text.c_str(), nullptr, 10)))
                     : 1);
  if (name == "printf" && command.size() > 4 && command[1].text == "-v") {
    std::string text = command[3].text;
    const std::size_t place = text.find("%s");
    if (place != std::string::npos) text.replace(place, 2, command[4].text);
    return assign(command[2].text, {{{text, command[4].line, file_index_}}}, false);
  }
  if (name == "set" && command.size() > 1 && command[1].text == "--") {
    return set_arguments(std::vector<ShellWord>(command.begin() + 2, command.end()));
  }
  for (std::size_t index = 0; index + 2 < command.size(); ++index) {
    const std::string& path = command[index].text;
    const std::string program = path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1);
    if (program != "sh" && program != "bash" && program != "dash" && program != "zsh") continue;
    std::size_t option = index + 1;
    while (option + 1 < command.size() && command[option].text[0] == '-' && !takes_script(command[option].text))
      ++option;
    if (option + 1 >= command.size() || !takes_script(command[option].text)) continue;
    const ShellCommand prefix(command.begin(), command.begin() + static_cast<std::ptrdiff_t>(index));
    return run_nested(prefix, command[option + 1].text, command[option + 1].line);
  }
  script_.commands.push_back(std::move(command));
}

void ShellParser::end_command(const std::string& by) {
  end_word();
  if (in_array_) return;  // inside ( … ) a line end only separates words
  static const std::vector<std::string> prefixes = {"export", "local", "readonly", "declare"};
  static const std::vector<std::string> conditions = {"select"};
  static const std::vector<std::string> keywords = {"then", "do", "else", "{", "!"};
  ShellCommand command;
  std::swap(command, command_);
  if (command.empty()) return judge_short_circuit(command, by);
  if (read_branching(command, by)) return;
  std::size_t first = 0;
  while (first < command.size()) {
    const std::string& text = command[first].text;
    if (std::count(conditions.begin(), conditions.end(), text) > 0) script_.has_conditions = true;
    const bool skipped = std::count(prefixes.begin(), prefixes.end(), text) > 0 ||
                         std::count(keywords.begin(), keywords.end(), text) > 0;
    const std::size_t equals = text.find('=');
    const bool adds = equals != std::string::npos && equals > 0 && text[equals - 1] == '+';
    const std::string name = equals == std::string::npos ? "" : text.substr(0, adds ? equals - 1 : equals);
    if (!skipped && !is_name(name)) break;
    if (!skipped) assign(name, {{{text.substr(equals + 1), command[first].line, command[first].file}}}, adds);
    ++first;
  }
  const bool dead = is_dead();
  judge_short_circuit(command, by);
  command.erase(command.begin(), command.begin() + static_cast<std::ptrdiff_t>(first));
  if (!command.empty() && !dead) add_command(std::move(command));
}

}  // namespace

std::string unset_name(const std::string& text) {
  const std::size_t begin = text.find(kUnset);
  if (begin == std::string::npos) return "";
  const std::string name = text.substr(begin + 1, text.find(kUnset, begin + 1) - begin - 1);
  return name.rfind('$', 0) == 0 || name.rfind('`', 0) == 0 ? name : "$" + name;
}

ShellScript parse_shell(std::string_view text, const std::string& file, const ShellInput& input) {
  ShellParser parser(text, file, input);
  parser.start();
  ShellScript script = parser.parse();
  return script;
}

}  // namespace flopcast
