#include "import/shell/shell.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
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
  enum class Kind { kIf, kCase, kGroup };
  Kind kind = Kind::kIf;
  int line = 0;
  bool reads_condition = true;  // or the pattern of a case
  ShellCommand condition;       // or the patterns read so far
  std::string subject;          // of a case
  bool taken = false;           // no later branch runs
  bool doubtful = false;        // an earlier branch may run
  std::optional<bool> runs;     // the branch at hand
};

// Reads a script from top to bottom: words first, then commands and branches.
class ShellParser {
 public:
  ShellParser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

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
  void tell_undecided(const std::string& name, const Variable& value, bool append_to_it);
  void assign(const std::string& name, Variable value, bool append_to_it);
  void read_operator();
  void read_here_document();
  void read_array(std::string name);

  std::string_view text_;
  const std::string& file_;
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
  throw ConfigError({"", problem, fmt::format("{}:{}", file_, line), ""});
}

void ShellParser::append(const std::string& text) {
  if (!in_word_) word_ = {"", line_};
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
    const std::size_t end = std::min(text.find_first_of(" \t\n", begin), text.size());
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
    mark_unset(name);
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
  const bool has_default = rest.rfind(":-", 0) == 0 || rest.rfind('-', 0) == 0 || rest.rfind(":=", 0) == 0;
  if (!name.empty() && (rest.empty() || (has_default && variable != variables_.end()))) return expand(name, quoted);
  if (!name.empty() && has_default) {
    const std::string fallback = rest.substr(rest[0] == ':' ? 2 : 1);
    if (fallback.find('$') != std::string::npos) return mark_unset(name);
    return append_split(fallback, line_, quoted);
  }
  mark_unset(name.empty() ? "{" + inside.substr(0, 20) + "}" : name);
}

void ShellParser::read_dollar(bool quoted) {
  take();
  if (peek() == '(' && peek(1) == '(') {
    take();
    take();
    const std::string inside = until_closing('(', ')', 2);
    const std::string expression =
        !inside.empty() && inside.back() == ')' ? inside.substr(0, inside.size() - 1) : inside;
    const auto value = shell_arithmetic(expression, [this](const std::string& name) { return scalar(name); });
    if (value) return append(fmt::format("{}", *value));
    return mark_unset(fmt::format("(({}))", expression.substr(0, 60)));
  }
  if (peek() == '(') {
    take();
    return mark_unset(fmt::format("({})", until_closing('(', ')', 1).substr(0, 60)));
  }
  if (peek() == '{') {
    take();
    return read_braces(quoted);
  }
  std::string name;
  if (std::isdigit(static_cast<unsigned char>(peek())) != 0 || peek() == '@' || peek() == '*' || peek() == '#' ||
      peek() == '?') {
    return mark_unset(fmt::format("${}", take()));
  }
  while (is_name_character(peek())) name += take();
  if (name.empty()) return append("$");
  expand(name, quoted);
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
    } else {
      append(std::string(1, take()));
    }
  }
  if (done()) fail("a double quote is never closed", line);
  take();
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
  append_split(comment, line, false);
  end_command();
}

void ShellParser::read_word_piece() {
  const char character = peek();
  switch (character) {
    case ' ':
    case '\t':
    case '\r':
      take();
      return end_word();
    case '\n':
      end_command();
      take();
      return;
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
      take();
      return mark_unset(fmt::format("`{}`", until_closing('\0', '`', 1).substr(0, 60)));
    case kUnset:
      return append(marked());
    case '(':
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
    case '<':
    case '>':
      return read_operator();
    default:
      append(std::string(1, take()));
  }
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
  if (text_.substr(first, close - first).find("--") != std::string_view::npos) return;
  while (at_ < close) take();
}

void ShellParser::read_operator() {
  const char character = take();
  const bool twice = peek() == character;
  if (twice && (character == '&' || character == '|' || character == ';')) take();
  const std::string written(twice ? 2 : 1, character);
  if (written != ";;") end_command(written);
  if (in_array_) return;
  if (written == ";;") end_command();
  if (character == '<' && twice) read_here_document();
  if (branchings_.empty() || branchings_.back().kind != Branching::Kind::kCase) return;
  Branching& branching = branchings_.back();
  if (written == ";;") branching.reads_condition = true;
  if (character == ')' && branching.reads_condition) begin_case_branch();
}

ShellScript ShellParser::parse() {
  while (!done()) read_word_piece();
  end_command();
  if (!branchings_.empty() && branchings_.back().reads_condition) {
    const Branching& open = branchings_.back();
    fail(open.kind == Branching::Kind::kIf ? "an if has no then" : "a case has no esac", open.line);
  }
  return std::move(script_);
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
    const auto match = pattern.text == "*" ? std::optional<bool>(true) : shell_matches(branching.subject, pattern.text);
    if (match && *match) {
      any = true;
      break;
    }
    if (!match) any = std::nullopt;
  }
  begin_branch(branching, any);
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
      begin_branch(*inner, shell_condition(inner->condition));
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

// "[ … ] && NAME=…" outside of an if.
void ShellParser::judge_short_circuit(const ShellCommand& command, const std::string& by) {
  const bool pending = skips_next_ || doubt_.line > 0;
  if (command.empty() && !read_array_) return;
  read_array_ = false;
  if (pending && by == joint_) return;
  const std::string first = command.empty() ? "" : command.front().text;
  const bool judges = by == "&&" || by == "||";
  const bool is_test = judges && (first == "[" || first == "[[" || first == "test");
  const auto holds = is_test ? shell_condition(command) : std::nullopt;
  skips_next_ = holds && *holds == (by == "||");
  doubt_.line = is_test && !holds ? command.front().line : 0;
  joint_ = by;
}

// A script inside a word, after sh -c; what stands before it, such as srun and its flags, counts for its commands too.
void ShellParser::run_nested(const ShellCommand& prefix, const std::string& text, int line) {
  constexpr int kDeepest = 8;
  if (depth_ >= kDeepest) fail("sh -c is nested too deeply", line);
  ShellParser nested(text, file_);
  nested.line_ = line;
  nested.depth_ = depth_ + 1;
  nested.expanded_ = expanded_;
  nested.variables_ = variables_;
  ShellScript inside = nested.parse();
  expanded_ = nested.expanded_;
  for (ShellCommand& command : inside.commands) {
    command.insert(command.begin(), prefix.begin(), prefix.end());
    script_.commands.push_back(std::move(command));
  }
  script_.has_conditions = script_.has_conditions || inside.has_conditions;
  script_.warnings.insert(script_.warnings.end(), inside.warnings.begin(), inside.warnings.end());
  script_.notes.insert(script_.notes.end(), inside.notes.begin(), inside.notes.end());
}

void ShellParser::add_command(ShellCommand command) {
  if (command.front().text == "eval" && command.size() > 1) {
    std::string text;
    for (std::size_t index = 1; index < command.size(); ++index) text += command[index].text + " ";
    return run_nested({}, text, command[1].line);
  }
  for (std::size_t index = 0; index + 2 < command.size(); ++index) {
    const std::string& path = command[index].text;
    const std::string name = path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1);
    if (name != "sh" && name != "bash" && name != "dash" && name != "zsh") continue;
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
  static const std::vector<std::string> conditions = {"for", "while", "until", "select"};
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
    if (!skipped) assign(name, {{{text.substr(equals + 1), command[first].line}}}, adds);
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

ShellScript parse_shell(std::string_view text, const std::string& file) {
  return ShellParser(text, file).parse();
}

}  // namespace flopcast
