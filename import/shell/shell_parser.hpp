#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "import/shell/shell.hpp"

namespace flopcast {

/// An array, or a plain variable as an array of one word, which is split where it is used unquoted.
struct ShellVariable {
  std::vector<ShellWord> words;
};

/// The body of name() { … }.
struct ShellFunction {
  std::string body;
  std::string file;
  int line = 0;
  int file_index = 0;
};

/// An if, a case, a group or a loop that is still open.
struct ShellBranching {
  enum class Kind { kIf, kCase, kGroup, kSubshell, kLoop };
  Kind kind = Kind::kIf;
  int line = 0;
  bool reads_condition = true;  // or the pattern of a case
  ShellCommand condition;       // or the patterns read so far
  std::string subject;          // of a case
  bool taken = false;           // no later branch runs
  bool doubtful = false;        // an earlier branch may run
  std::optional<bool> runs;     // the current branch
  std::optional<bool> before;   // for a group: the status of the command before it
  // For a loop: where to read it again from, and the remaining words.
  std::size_t again_at = 0;
  int again_line = 0;
  std::string variable;
  std::vector<ShellWord> rest;
  std::string holds;  // condition of for ((…; …; …)), and its step
  std::string step;
  bool is_while = false;
  bool continues = false;  // the rest of this round is skipped
  // For a subshell: the variables that it must not change.
  std::shared_ptr<const std::map<std::string, ShellVariable>> variables;
  std::string function;  // the function whose body the group is; read when it is called
};

bool is_name_character(char character);
bool is_name(std::string_view text);
/// True for -c, -lc, -ec: flags after which a shell takes a script as its next word.
bool takes_script(const std::string& text);
/// True for export, local, readonly and declare, words before assignments.
bool declares(const std::string& word);
/// The beginning of a command, for a message.
std::string shown(const ShellCommand& words);

/// Reads a script from top to bottom: the meaning of words (shell_words.cpp, shell_expansion.cpp), branches (shell.cpp)
/// and commands (shell_commands.cpp).
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
  bool continues_after_blanks();
  void read_double_quotes();
  void read_single_quotes();
  void read_back_ticks(bool quoted);
  void read_dollar(bool quoted);
  void read_braces(bool quoted);
  std::string until_closing(char open, char close, int levels);
  void expand(const std::string& name, bool quoted);
  void append_split(const std::string& text, int line, bool quoted);
  void append(const std::string& text);
  bool assigns() const;
  void append_words(std::vector<ShellWord> words, bool quoted, bool one_word);
  void read_words(const std::string& name, const std::string& rest, bool quoted);
  bool read_element(const std::string& name, const std::string& subscript, bool quoted);
  void read_escaped_quotes();
  std::string scalar(const std::string& name) const;
  void mark_unset(const std::string& name) { append(kUnset + name + kUnset); }

  void end_word();
  void end_command(const std::string& by = ";");
  bool read_branching(ShellCommand& command, const std::string& by);
  void begin_branch(ShellBranching& branching, std::optional<bool> holds);
  void begin_case_branch();
  bool is_dead() const;
  const ShellBranching* undecided() const;
  void judge_short_circuit(const ShellCommand& command, std::size_t assigned, const std::string& by);
  void join(std::optional<bool> status, int doubt, const std::string& by);
  void begin_group(ShellBranching::Kind kind, int line);
  void end_group(const std::string& by);
  bool begin_subshell();
  void leave_loops(const ShellCommand& command);
  void add_command(ShellCommand command);
  bool read_function_head();
  void call(ShellFunction function, const ShellCommand& command);
  void inherit(const ShellParser& from);
  void run_nested(const ShellCommand& prefix, const std::string& text, int line);
  void follow(const ShellCommand& command);
  void take_over(ShellParser& nested, const ShellCommand& prefix);
  ShellParser nested_in(std::string_view text, int line) const;
  std::optional<std::string> substitute(const std::string& inside) const;
  std::string expanded(const std::string& text) const;
  void write_file(const std::string& redirection, std::string_view body, bool as_it_is);
  void set_arguments(const std::vector<ShellWord>& arguments);
  void shift(std::size_t count);
  void read_sbatch(const ShellCommand& command);
  void begin_loop(const ShellCommand& command, const std::string& by);
  bool end_loop();
  bool read_arithmetic_command();
  void calculate(const std::string& text);
  std::optional<bool> counts_on(const ShellBranching& loop) const;
  void judge_loop_condition(ShellBranching& branching);
  std::optional<bool> decide(const ShellCommand& condition, int line);
  std::optional<std::string> operated(const std::string& value, std::string rest) const;
  void note_undecided(const std::string& name, const ShellVariable& value, bool append_to_it);
  void assign(const std::string& name, ShellVariable value, bool append_to_it);
  void read_operator();
  void read_here_document();
  void read_array(std::string name);

  std::string_view text_;
  const std::string& file_;
  const ShellInput& input_;
  int file_index_ = 0;
  std::size_t command_at_ = 0;  // where the current command begins
  int command_line_ = 1;
  int loops_ = 0;  // rounds read so far
  std::size_t at_ = 0;
  int line_ = 1;
  std::size_t expanded_ = 0;

  std::map<std::string, ShellVariable> variables_;
  std::map<std::string, ShellFunction> functions_;
  std::map<std::string, std::optional<ShellVariable>>
      locals_;  // local variables of this function, with their values outside it
  bool in_function_ = false;
  std::string function_;  // name() was read, and { follows
  ShellWord word_;
  bool in_word_ = false;
  ShellCommand command_;
  bool in_array_ = false;
  ShellScript script_;
  std::vector<ShellBranching> branchings_;
  std::optional<bool> status_;     // status of the last command before && or ||
  bool skips_next_ = false;        // right side of && after a false command
  ShellBranching undecided_test_;  // its line is that of an undecidable [ … ] before &&, else 0
  bool read_array_ = false;        // an array was read in this command
  // Status of a command whose redirections are still being read, and its line if it cannot be decided, else 0.
  std::optional<std::pair<std::optional<bool>, int>> redirected_;
  bool read_arithmetic_ = false;  // this command is (( … )), and its value
  std::optional<bool> arithmetic_holds_;
  bool closes_subshell_ =
      false;       // its parenthesis was read, and the operator that joins it to the next command follows
  int depth_ = 0;  // nesting depth of sh -c "sh -c …"
};

/// The value of the inside of $((…)): whole numbers, names, parentheses and C's arithmetic, comparison and logical
/// operators. Nothing if it contains anything else, a name without a whole value, a division by zero, or numbers beyond
/// 10^15.
std::optional<std::int64_t> shell_arithmetic(std::string_view text,
                                             const std::function<std::string(const std::string&)>& value_of);

/// True if the words between `if` and `then` hold; the operators && || ; are separate words. Supported: [ … ], [[ … ]]
/// and test with = == != -eq -ne -lt -le -gt -ge -z -n and !, true and false, and (( … )). Nothing if there is anything
/// else, such as a command or a file test. Unset variables count as empty; those that are compared with something are
/// added to `assumed_empty`.
std::optional<bool> shell_condition(const ShellCommand& words, std::vector<std::string>* assumed_empty = nullptr);

/// The numbers from the first to the last, separated by blanks; nothing if the range does not end or is too long.
std::optional<std::string> shell_range(std::int64_t first, std::int64_t last, std::int64_t step);

/// True if a pattern of `case` or of [[ == ]] with * and ? matches. Nothing for [ … ] and for the output of commands.
std::optional<bool> shell_matches(const std::string& text, const std::string& pattern);

/// The text without unset variables; nothing if it contains the output of a command.
std::optional<std::string> without_unset(const std::string& text);

}  // namespace flopcast
