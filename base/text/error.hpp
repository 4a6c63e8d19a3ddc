#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace flopcast {

/// Description of an error: the problem, its location and how to fix it. Every error caused by user input carries one.
struct Diagnostic {
  std::string field;    ///< dotted path or flag, e.g. "layout.tp"
  std::string problem;  ///< one sentence that includes the offending value
  std::string where;    ///< "job.json:/layout/tp", "job.json:3:14", "--tp"; empty if there is no location
  std::string help;     ///< valid choices or nearest valid values; empty if there is no advice
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

/// A valid question with a negative answer: exit code 3.
class NegativeAnswer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The environment failed (no GPU, disk full, dead rank): exit code 4.
class EnvironmentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A bug in flopcast: exit code 1.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Rejects the content of a file at `where` ("all_reduce.log:17", "trace.json:/traceEvents/3") with a ConfigError
/// without a field.
[[noreturn]] void refuse_at(const std::string& where, const std::string& problem, const std::string& help = "");

[[noreturn]] void fail_internal_check(const char* expression, const char* file, int line);

/// Suggestions for a mistyped word, ignoring case. If the word has two or more letters and is a prefix of at most six
/// choices, these are returned. Otherwise at most three closest choices, best first: Damerau-Levenshtein distance of at
/// most a third of the word's length (at least 1), or choices that contain the word.
std::vector<std::string> nearest_choices(std::string_view word, const std::vector<std::string>& choices);

/// "did you mean a or b? valid: a, b, c, …", nearest choices first; with more than a dozen choices, only the nearest
/// are listed.
std::string choices_help(std::string_view word, const std::vector<std::string>& choices);

/// Returns the index of `word` among the choices. Throws ConfigError (unknown `what` "word") if it is none of them.
std::size_t choice_of(const std::string& field, const std::string& word, const std::vector<std::string>& choices,
                      std::string_view what = "value");

}  // namespace flopcast

/// Checks an internal invariant that no user input can violate.
#define FLOPCAST_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::flopcast::fail_internal_check(#condition, __FILE__, __LINE__))
