#include "import/shell/shell.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "import/shell/shell_conditions.hpp"
#include "import/shell/shell_parser.hpp"

namespace flopcast {

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
    const ShellBranching& open = branchings_.back();
    fail(open.kind == ShellBranching::Kind::kIf ? "an if has no then" : "a case has no esac", open.line);
  }
  for (const auto& [name, variable] : variables_) script_.variables[name] = variable.words;
  return std::move(script_);
}

// The innermost branch that may or may not run.
const ShellBranching* ShellParser::undecided() const {
  if (doubt_.line > 0) return &doubt_;
  for (auto each = branchings_.rbegin(); each != branchings_.rend(); ++each) {
    if (!each->reads_condition && !each->runs) return &*each;
  }
  return nullptr;
}

bool ShellParser::is_dead() const {
  return skips_next_ || std::any_of(branchings_.begin(), branchings_.end(), [](const ShellBranching& each) {
           return !each.reads_condition && each.runs && !*each.runs;
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

// At the parenthesis that ends the patterns of a branch.
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
    script_.warnings.push_back(
        fmt::format("{}:{}: {} is not set: the condition is decided as if it were empty; give it {}", file_, line, name,
                    is_argument ? "after --" : "by --env NAME=VALUE"));
  }
  return holds;
}

void ShellParser::tell_undecided(const std::string& name, const ShellVariable& value, bool append_to_it) {
  const ShellBranching* branching = undecided();
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

void ShellParser::assign(const std::string& name, ShellVariable value, bool append_to_it) {
  if (is_dead()) return;
  tell_undecided(name, value, append_to_it);
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
  if (first || subject) end_command();
}

// Words that open, part or close an if or a case, and those of conditions; false for all others.
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
    group.line = doubt_.line > 0 ? doubt_.line : command.front().line;
    group.runs = skips_next_ ? std::optional<bool>(false) : doubt_.line > 0 ? std::nullopt : std::optional<bool>(true);
    skips_next_ = false;
    doubt_.line = 0;
    branchings_.push_back(std::move(group));
    return true;
  }
  const bool closes_group = first == "}" && inner != nullptr && inner->kind == ShellBranching::Kind::kGroup;
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
    loop.rest.assign(command.begin() + 3, command.end());
  } else if (command.size() == 2 && is_name(command[1].text)) {
    loop.variable = command[1].text;
    loop.rest = variables_["@"].words;
  }
  branchings_.push_back(std::move(loop));
}

// At `do`.
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

// At `done`: goes back while there is another round.
bool ShellParser::end_loop() {
  constexpr int kMostRounds = 500;
  ShellBranching& loop = branchings_.back();
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
