#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace flopcast {

/// What is wrong, where, and what would be right. Every error a user can cause carries one.
struct Diagnostic {
  std::string field;    ///< dotted path or flag, e.g. "layout.tp"
  std::string problem;  ///< one sentence that holds the offending value
  std::string where;    ///< "job.json:/layout/tp", "job.json:3:14", "--tp"; empty when there is no place to point at
  std::string help;     ///< the valid choices or the nearest valid values; empty when nothing helps
};

/// The terminal form, without a trailing newline:
///   error: layout.tp: 16 does not divide attention heads 40
///     --> job.json:/layout/tp
///     help: valid for this model on 8-GPU nodes: 1, 2, 4, 8
std::string render(const Diagnostic& diagnostic);

/// The user's input is wrong: exit code 2. Thrown anywhere in the libraries, caught only by the command line.
class ConfigError : public std::runtime_error {
 public:
  explicit ConfigError(Diagnostic diagnostic);
  const Diagnostic& diagnostic() const { return diagnostic_; }

 private:
  Diagnostic diagnostic_;
};

/// A valid question whose answer is no: exit code 3.
class NegativeAnswer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The machine failed us (no GPU, disk full, dead rank): exit code 4.
class EnvironmentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A bug of flopcast: exit code 1.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Refuses what a file holds at `where` ("all_reduce.log:17", "trace.json:/traceEvents/3"): a ConfigError without a
/// field.
[[noreturn]] void refuse_at(const std::string& where, const std::string& problem, const std::string& help = "");

[[noreturn]] void fail_internal_check(const char* expression, const char* file, int line);

/// What a mistyped word may mean. A word of two letters or more that was cut short: the choices that go on from it,
/// where they are at most six. Else the closest choices, best first, at most three: Damerau-Levenshtein distance of at
/// most a third of the word's length (at least 1), or the word being part of a choice. Upper case is lower case.
std::vector<std::string> nearest_choices(std::string_view word, const std::vector<std::string>& choices);

/// "did you mean a or b? valid: a, b, c, …" over the choices, the nearest first when there is a near one; of more than
/// a dozen choices these alone.
std::string choices_help(std::string_view word, const std::vector<std::string>& choices);

/// The place of `word` among the choices. Throws ConfigError where it is none of them: unknown value "word", or what
/// else `what` calls it.
std::size_t choice_of(const std::string& field, const std::string& word, const std::vector<std::string>& choices,
                      std::string_view what = "value");

}  // namespace flopcast

/// Guards an invariant of flopcast's own; a user can never make it fail.
#define FLOPCAST_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::flopcast::fail_internal_check(#condition, __FILE__, __LINE__))
