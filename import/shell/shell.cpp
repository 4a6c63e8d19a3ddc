#include "import/shell/shell.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/words.hpp"
#include "import/shell/shell_parser.hpp"

namespace flopcast {

namespace {

// Expands {1..4} and {8..2..2} into separate words.
std::vector<ShellWord> with_ranges(const std::vector<ShellWord>& words) {
  std::vector<ShellWord> all;
  for (const ShellWord& word : words) {
    const std::string& text = word.text;
    const std::size_t open = text.find('{');
    const std::size_t dots = open == std::string::npos ? open : text.find("..", open);
    const std::size_t close = dots == std::string::npos ? dots : text.find('}', dots);
    std::optional<std::string> range;
    if (close != std::string::npos) {
      const std::size_t more = std::min(text.find("..", dots + 2), close);
      const auto first = parse_whole(text.substr(open + 1, dots - open - 1));
      const auto last = parse_whole(text.substr(dots + 2, more - dots - 2));
      const auto step = more < close ? parse_whole(text.substr(more + 2, close - more - 2)) : 1;
      constexpr std::int64_t kLargest = 1'000'000;
      const bool fits =
          first && last && step && std::abs(*first) < kLargest && std::abs(*last) < kLargest && *step != 0;
      if (fits) range = shell_range(*first, *last, *first > *last ? -std::abs(*step) : std::abs(*step));
    }
    if (!range) {
      all.push_back(word);
      continue;
    }
    std::istringstream numbers(*range);
    for (std::string number; numbers >> number;)
      all.push_back({text.substr(0, open) + number + text.substr(close + 1), word.line, word.file});
  }
  return all;
}

}  // namespace

bool declares(const std::string& word) {
  return word == "export" || word == "local" || word == "readonly" || word == "declare" || word == "typeset";
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

ShellScript ShellParser::parse() {
  // If the script ends inside a loop, the loop is read again.
  do {
    while (!done()) read_word_piece();
    end_command();
  } while (!done());
  if (!branchings_.empty() && branchings_.back().reads_condition) {
    const ShellBranching& open = branchings_.back();
    fail(open.kind == ShellBranching::Kind::kIf ? "an if lacks its then" : "a case lacks its esac", open.line);
  }
  for (const auto& [name, variable] : variables_) script_.variables[name] = variable.words;
  return std::move(script_);
}

// The innermost branch whose condition cannot be decided.
const ShellBranching* ShellParser::undecided() const {
  if (undecided_test_.line > 0) return &undecided_test_;
  for (auto each = branchings_.rbegin(); each != branchings_.rend(); ++each) {
    if (!each->reads_condition && !each->runs) return &*each;
  }
  return nullptr;
}

bool ShellParser::is_dead() const {
  return skips_next_ || std::any_of(branchings_.begin(), branchings_.end(), [](const ShellBranching& each) {
           return each.continues || (!each.reads_condition && each.runs && !*each.runs);
         });
}

void ShellParser::begin_branch(ShellBranching& branching, std::optional<bool> holds) {
  branching.reads_condition = false;
  branching.condition.clear();
  const bool fails = branching.taken || (holds && !*holds);
  branching.runs = fails ? std::optional<bool>(false) : branching.doubtful ? std::nullopt : holds;
  if (!branching.runs) script_.has_conditions = true;
  branching.doubtful = branching.doubtful || !branching.runs;
  branching.taken = branching.taken || holds.value_or(false);
}

// Called at the parenthesis that ends the patterns of a branch.
void ShellParser::begin_case_branch() {
  ShellBranching& branching = branchings_.back();
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
    script_.warnings.push_back(fmt::format("{}:{}: {} is not set: treated as empty in the condition; give it {}", file_,
                                           line, name, is_argument ? "after --" : "with --env NAME=VALUE"));
  }
  return holds;
}

void ShellParser::note_undecided(const std::string& name, const ShellVariable& value, bool append_to_it) {
  const ShellBranching* branching = undecided();
  if (branching == nullptr) return;
  const auto before = variables_.find(name);
  const int line = value.words.empty() ? line_ : value.words.front().line;
  if (append_to_it) {
    script_.notes.push_back(fmt::format("{}:{}: {} gets {}, assuming that the condition in line {} holds", file_, line,
                                        name, shown(value.words), branching->line));
    return;
  }
  if (before == variables_.end() || shown(before->second.words) == shown(value.words)) return;
  const int line_before = before->second.words.empty() ? branching->line : before->second.words.front().line;
  script_.warnings.push_back(
      fmt::format("{}:{}: {} is \"{}\" here and \"{}\" in line {}; the condition in line {} cannot be decided, so the "
                  "later one is used",
                  file_, line, name, shown(value.words), shown(before->second.words), line_before, branching->line));
}

void ShellParser::assign(const std::string& name, ShellVariable value, bool append_to_it) {
  if (is_dead()) return;
  note_undecided(name, value, append_to_it);
  if (!append_to_it) {
    variables_[name] = std::move(value);
    return;
  }
  ShellVariable& variable = variables_[name];
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
  if (command_.size() == 3 && command_[0].text == "function" && word_.text == "{") {
    function_ = command_[1].text;
    command_.erase(command_.begin(), command_.begin() + 2);
    return end_command();
  }
  if (first || subject) end_command();
}

// Handles words that open, divide or close an if or a case, and those of conditions; returns false for all others.
bool ShellParser::read_branching(ShellCommand& command, const std::string& by) {
  ShellBranching* inner = branchings_.empty() ? nullptr : &branchings_.back();
  const std::string first = command.empty() ? "" : command.front().text;
  const bool in_if = inner != nullptr && inner->kind == ShellBranching::Kind::kIf;
  const bool in_case = inner != nullptr && inner->kind == ShellBranching::Kind::kCase;
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
    ShellBranching& branching = branchings_.back();
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
  if (inner != nullptr && inner->kind == ShellBranching::Kind::kLoop) {
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
    ShellBranching branching;
    branching.kind = ShellBranching::Kind::kCase;
    branching.line = command.front().line;
    branching.subject = command[1].text;
    branchings_.push_back(std::move(branching));
    return true;
  }
  if (first == "{" && command.size() == 1) {
    ShellBranching group;
    group.kind = ShellBranching::Kind::kGroup;
    group.reads_condition = false;
    if (!function_.empty()) {
      group.function = std::exchange(function_, "");
      group.line = command.front().line;
      group.runs = false;
      group.again_at = at_;
      group.again_line = line_;
      branchings_.push_back(std::move(group));
      return true;
    }
    begin_group(ShellBranching::Kind::kGroup, command.front().line);
    return true;
  }
  const bool closes_group = first == "}" && inner != nullptr && inner->kind == ShellBranching::Kind::kGroup;
  if (closes_group && !inner->function.empty()) {
    const ShellBranching body = *inner;
    branchings_.pop_back();
    const std::string text(text_.substr(body.again_at, command_at_ - body.again_at));
    if (!is_dead()) functions_[body.function] = {text, file_, body.again_line, file_index_};
    return true;
  }
  if (first == "else" && in_if) {
    begin_branch(*inner, true);
  } else if (closes_group) {
    end_group(by);
  } else if ((first == "fi" && in_if) || (first == "esac" && in_case)) {
    branchings_.pop_back();
  } else {
    return false;
  }
  return true;
}

// { … } or ( … ), executed under the same conditions as a command.
void ShellParser::begin_group(ShellBranching::Kind kind, int line) {
  ShellBranching group;
  group.kind = kind;
  group.reads_condition = false;
  group.line = undecided_test_.line > 0 ? undecided_test_.line : line;
  group.runs = skips_next_                ? std::optional<bool>(false)
               : undecided_test_.line > 0 ? std::nullopt
                                          : std::optional<bool>(true);
  group.before = status_;
  skips_next_ = false;
  undecided_test_.line = 0;
  status_.reset();
  branchings_.push_back(std::move(group));
}

void ShellParser::end_group(const std::string& by) {
  const ShellBranching group = branchings_.back();
  branchings_.pop_back();
  if (group.variables) variables_ = *group.variables;
  skips_next_ = group.runs && !*group.runs;
  if (skips_next_) status_ = group.before;
  join(status_, group.runs ? 0 : group.line, by);
}

// Called at a parenthesis that begins a command; assignments inside end with it.
bool ShellParser::begin_subshell() {
  constexpr std::ptrdiff_t kDeepest = 16;
  const ShellBranching* inner = branchings_.empty() ? nullptr : &branchings_.back();
  if (!command_.empty() || in_word_ || !function_.empty() || (inner != nullptr && inner->reads_condition)) return false;
  const auto open = std::count_if(branchings_.begin(), branchings_.end(), [](const ShellBranching& each) {
    return each.kind == ShellBranching::Kind::kSubshell;
  });
  begin_group(ShellBranching::Kind::kSubshell, line_);
  if (open < kDeepest)
    branchings_.back().variables = std::make_shared<std::map<std::string, ShellVariable>>(variables_);
  return true;
}

// break and continue, for the given number of loops.
void ShellParser::leave_loops(const ShellCommand& command) {
  long loops = command.size() > 1 ? std::strtol(command[1].text.c_str(), nullptr, 10) : 1;
  for (auto each = branchings_.rbegin(); each != branchings_.rend() && loops > 0; ++each) {
    if (each->kind != ShellBranching::Kind::kLoop || each->reads_condition) continue;
    --loops;
    if (loops == 0 && command.front().text == "continue") {
      each->continues = true;
    } else {
      each->runs = false;
    }
  }
}

void ShellParser::begin_loop(const ShellCommand& command, const std::string& by) {
  ShellBranching loop;
  loop.kind = ShellBranching::Kind::kLoop;
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
    loop.rest = with_ranges({command.begin() + 3, command.end()});
  } else if (command.size() == 2 && is_name(command[1].text)) {
    loop.variable = command[1].text;
    loop.rest = variables_["@"].words;
  }
  branchings_.push_back(std::move(loop));
}

// Called at `do`.
void ShellParser::judge_loop_condition(ShellBranching& branching) {
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

std::optional<bool> ShellParser::counts_on(const ShellBranching& loop) const {
  const auto value = shell_arithmetic(loop.holds, [this](const std::string& name) { return scalar(name); });
  return value ? std::optional<bool>(*value != 0) : std::nullopt;
}

// Called at `done`; returns to the start of the loop if there is another round.
bool ShellParser::end_loop() {
  constexpr int kMostRounds = 500;
  ShellBranching& loop = branchings_.back();
  loop.continues = false;
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

// "[ … ] && NAME=… || NAME=…" outside an if; the first `assigned` words of the command are assignments.
void ShellParser::judge_short_circuit(const ShellCommand& command, std::size_t assigned, const std::string& by) {
  const bool array = std::exchange(read_array_, false);
  const bool arithmetic = std::exchange(read_arithmetic_, false);
  const bool redirects = by == "<" || by == ">";
  if (redirected_) {
    // Targets of redirections, "/dev/null" or "&1", belong to the previous command.
    if (redirects || (command.empty() && by == "&")) return;
    const auto [status, doubt] = *std::exchange(redirected_, std::nullopt);
    return join(status, doubt, by);
  }
  if (command.empty() && !array && !arithmetic) return;
  const bool judges = by == "&&" || by == "||";
  const std::size_t at = static_cast<std::size_t>(
      std::find_if(command.begin(), command.end(), [](const ShellWord& word) { return word.text != "!"; }) -
      command.begin());
  const std::string first = at < command.size() ? command[at].text : "";
  const int line = command.empty() ? line_ : command.front().line;
  const auto substitutes = [](const ShellWord& word) {
    const std::size_t mark = word.text.find(kUnset);
    return mark != std::string::npos && mark + 1 < word.text.size() &&
           (word.text[mark + 1] == '(' || word.text[mark + 1] == '`');
  };
  if (command.empty()) return join(array ? true : arithmetic_holds_, arithmetic ? line : 0, by);
  if (first == "true" || first == "false" || first == ":") return join((first != "false") == (at % 2 == 0), 0, by);
  if (first == "[" || first == "[[" || first == "test") {
    if (!redirects) return join(judges ? decide(command, line) : std::nullopt, line, by);
    // The number of a redirection, 2>, follows the test; a > inside a test does not end it.
    ShellCommand test = command;
    if (test.back().text == "1" || test.back().text == "2") test.pop_back();
    const bool whole = first == "test" || test.back().text == "]" || test.back().text == "]]";
    redirected_.emplace(whole ? decide(test, line) : std::nullopt, line);
    return;
  }
  // An assignment from a command may fail with that command.
  const bool assigns_all = at == 0 && assigned == command.size();
  const bool succeeds = assigns_all && (declares(first) || std::none_of(command.begin(), command.end(), substitutes));
  join(succeeds ? std::optional<bool>(true) : std::nullopt, 0, by);
}

// Applies && or || after a command to the next one. If the status is unknown, the next command runs; it is in doubt if
// `doubt` is a line.
void ShellParser::join(std::optional<bool> status, int doubt, const std::string& by) {
  const bool goes_on = by == "|" || by == "<" || by == ">";
  if (skips_next_ && goes_on) return;
  const bool judges = by == "&&" || by == "||";
  if (skips_next_) status = status_;  // a skipped command keeps the previous status
  if (undecided_test_.line > 0) {
    status.reset();
    doubt = undecided_test_.line;
  }
  status_ = status;
  skips_next_ = judges && status && *status == (by == "||");
  undecided_test_.line = judges && !status ? doubt : 0;
}

void ShellParser::end_command(const std::string& by) {
  end_word();
  if (in_array_) return;  // inside ( … ) line ends only separate words
  if (std::exchange(closes_subshell_, false)) {
    end_group(command_.empty() ? by : ";");
    if (command_.empty()) return;
  }
  static const std::vector<std::string> conditions = {"select"};
  static const std::vector<std::string> keywords = {"then", "do", "else", "{", "!"};
  ShellCommand command;
  std::swap(command, command_);
  if (command.empty()) return judge_short_circuit(command, 0, by);
  if (command.front().text == "function" && command.size() == 2) {
    function_ = command[1].text;
    return;
  }
  if (read_branching(command, by)) return;
  function_.clear();
  const bool is_local = in_function_ && declares(command.front().text) && command.front().text != "export";
  std::size_t first = 0;
  while (first < command.size()) {
    const std::string& text = command[first].text;
    if (std::count(conditions.begin(), conditions.end(), text) > 0) script_.has_conditions = true;
    const bool is_option = first > 0 && text[0] == '-' && declares(command.front().text);
    const bool skipped = declares(text) || is_option || std::count(keywords.begin(), keywords.end(), text) > 0;
    const std::size_t equals = text.find('=');
    const bool adds = equals != std::string::npos && equals > 0 && text[equals - 1] == '+';
    const std::string name = equals == std::string::npos ? "" : text.substr(0, adds ? equals - 1 : equals);
    if (is_local && !is_dead() && is_name(equals == std::string::npos ? text : name)) {
      const std::string declared = equals == std::string::npos ? text : name;
      const auto before = variables_.find(declared);
      if (!declares(declared))
        locals_.emplace(declared, before == variables_.end() ? std::nullopt : std::optional(before->second));
    }
    if (!skipped && !is_name(name)) break;
    if (!skipped) assign(name, {{{text.substr(equals + 1), command[first].line, command[first].file}}}, adds);
    ++first;
  }
  const bool dead = is_dead();
  const bool decided = undecided() == nullptr;
  judge_short_circuit(command, first, by);
  command.erase(command.begin(), command.begin() + static_cast<std::ptrdiff_t>(first));
  if (command.empty() || dead) return;
  if (command.front().text != "break" && command.front().text != "continue") return add_command(std::move(command));
  if (decided) leave_loops(command);
}

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
