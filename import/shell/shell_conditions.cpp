#include "import/shell/shell_parser.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <utility>

namespace flopcast {

namespace {

constexpr std::int64_t kLargest = 1'000'000'000'000'000;
constexpr int kDeepestNesting = 32;

using ShellNumber = std::optional<std::int64_t>;

class Arithmetic {
 public:
  Arithmetic(std::string_view text, const std::function<std::string(const std::string&)>& value_of)
      : text_(text), value_of_(value_of) {}

  ShellNumber evaluate() {
    const ShellNumber value = choice(0);
    skip_blanks();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  static ShellNumber bounded(double estimate, std::int64_t value) {
    return estimate > static_cast<double>(kLargest) || estimate < -static_cast<double>(kLargest) ? std::nullopt
                                                                                                 : ShellNumber(value);
  }

  void skip_blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }

  char next() {
    skip_blanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool takes(std::string_view sign) {
    skip_blanks();
    if (text_.substr(at_, sign.size()) != sign) return false;
    at_ += sign.size();
    return true;
  }

  ShellNumber choice(int depth) {
    if (depth > kDeepestNesting) return std::nullopt;
    const ShellNumber asked = logical(depth);
    if (!asked || next() != '?') return asked;
    ++at_;
    const ShellNumber yes = choice(depth + 1);
    if (next() != ':') return std::nullopt;
    ++at_;
    const ShellNumber no = choice(depth + 1);
    return *asked != 0 ? yes : no;
  }

  // && and || have equal precedence here: mixed without parentheses they are not decided.
  ShellNumber logical(int depth) {
    ShellNumber left = compared(depth);
    std::string_view joint;
    while (left) {
      const std::string_view sign = takes("&&") ? "&&" : takes("||") ? "||" : "";
      if (sign.empty()) return left;
      if (!joint.empty() && joint != sign) return std::nullopt;
      joint = sign;
      const ShellNumber right = compared(depth);
      if (!right) return std::nullopt;
      const bool holds = sign == "&&" ? *left != 0 && *right != 0 : *left != 0 || *right != 0;
      left = holds ? 1 : 0;
    }
    return left;
  }

  ShellNumber compared(int depth) {
    const ShellNumber left = sum(depth);
    if (!left) return left;
    for (const std::string_view sign : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (!takes(sign)) continue;
      const ShellNumber right = sum(depth);
      if (!right) return std::nullopt;
      const bool holds = sign == "=="   ? *left == *right
                         : sign == "!=" ? *left != *right
                         : sign == "<=" ? *left <= *right
                         : sign == ">=" ? *left >= *right
                         : sign == "<"  ? *left < *right
                                        : *left > *right;
      return holds ? 1 : 0;
    }
    return left;
  }

  ShellNumber sum(int depth) {
    ShellNumber left = product(depth);
    while (left && (next() == '+' || next() == '-')) {
      const char sign = text_[at_++];
      const ShellNumber right = product(depth);
      if (!right) return std::nullopt;
      const std::int64_t result = sign == '+' ? *left + *right : *left - *right;
      left = bounded(static_cast<double>(result), result);
    }
    return left;
  }

  ShellNumber product(int depth) {
    ShellNumber left = factor(depth);
    while (left && (next() == '*' || next() == '/' || next() == '%')) {
      const char sign = text_[at_++];
      const ShellNumber right = factor(depth);
      if (!right || (sign != '*' && *right == 0)) return std::nullopt;
      if (sign == '/') {
        left = *left / *right;
      } else if (sign == '%') {
        left = *left % *right;
      } else {
        const double estimate = static_cast<double>(*left) * static_cast<double>(*right);
        if (!bounded(estimate, 0)) return std::nullopt;
        left = *left * *right;
      }
    }
    return left;
  }

  ShellNumber factor(int depth) {
    if (depth > kDeepestNesting) return std::nullopt;
    const char first = next();
    if (first == '(') {
      ++at_;
      const ShellNumber value = choice(depth + 1);
      if (next() != ')') return std::nullopt;
      ++at_;
      return value;
    }
    if (first == '-' || first == '!') {
      ++at_;
      const ShellNumber value = factor(depth + 1);
      if (!value) return value;
      return first == '-' ? -*value : *value == 0 ? 1 : 0;
    }
    return operand();
  }

  ShellNumber operand() {
    if (next() == '$') ++at_;
    const bool braced = next() == '{';
    if (braced) ++at_;
    const std::size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    const std::string name(text_.substr(begin, at_ - begin));
    if (braced) {
      if (next() != '}') return std::nullopt;
      ++at_;
    }
    if (name.empty()) return std::nullopt;
    return whole(std::isdigit(static_cast<unsigned char>(name[0])) != 0 ? name : value_of_(name));
  }

  static ShellNumber whole(const std::string& text) {
    constexpr std::size_t kMostDigits = 15;
    const std::size_t begin = !text.empty() && text[0] == '-' ? 1 : 0;
    if (text.size() == begin || text.size() - begin > kMostDigits) return std::nullopt;
    std::int64_t number = 0;
    for (const char digit : text.substr(begin)) {
      if (digit < '0' || digit > '9') return std::nullopt;
      constexpr int kBase = 10;
      number = number * kBase + (digit - '0');
    }
    return begin == 1 ? -number : number;
  }

  std::string_view text_;
  const std::function<std::string(const std::string&)>& value_of_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<std::int64_t> shell_arithmetic(std::string_view text,
                                             const std::function<std::string(const std::string&)>& value_of) {
  return Arithmetic(text, value_of).evaluate();
}

namespace {

using Verdict = std::optional<bool>;

constexpr const char* kNot = "!";

Verdict compare_numbers(const std::string& left, const std::string& comparison, const std::string& right) {
  // The shell reports an error for an empty operand and treats the comparison as false.
  if (left.empty() || right.empty()) return false;
  const auto no_names = [](const std::string&) { return std::string(); };
  const auto a = shell_arithmetic(left, no_names);
  const auto b = shell_arithmetic(right, no_names);
  if (!a || !b) return std::nullopt;
  if (comparison == "-eq") return *a == *b;
  if (comparison == "-ne") return *a != *b;
  if (comparison == "-lt") return *a < *b;
  if (comparison == "-le") return *a <= *b;
  if (comparison == "-gt") return *a > *b;
  if (comparison == "-ge") return *a >= *b;
  return std::nullopt;
}

Verdict compare(std::vector<std::string> words, bool with_patterns, std::vector<std::string>* assumed_empty) {
  std::vector<std::string> unset;
  for (std::string& word : words) {
    const std::string name = unset_name(word);
    if (!name.empty()) unset.push_back(name);
    const auto plain = without_unset(word);
    if (!plain) return std::nullopt;
    word = *plain;
  }
  if (words.empty()) return false;
  if (words.size() == 1) return !words[0].empty();
  if (words.size() == 2 && words[0] == "-z") return words[1].empty();
  if (words.size() == 2 && words[0] == "-n") return !words[1].empty();
  // An unquoted empty variable produces no word.
  if (words.size() == 2 && (words[0] == "=" || words[0] == "==")) return words[1].empty();
  if (words.size() == 2 && words[0] == "!=") return !words[1].empty();
  if (words.size() != 3) return std::nullopt;
  if (assumed_empty != nullptr) assumed_empty->insert(assumed_empty->end(), unset.begin(), unset.end());
  const std::string& sign = words[1];
  if (sign == "=" || sign == "==" || sign == "!=") {
    const Verdict same = with_patterns ? shell_matches(words[0], words[2]) : Verdict(words[0] == words[2]);
    return same ? Verdict(*same == (sign != "!=")) : std::nullopt;
  }
  return compare_numbers(words[0], sign, words[2]);
}

// One comparison; `bracket` is the bracket around it, which it may open and close.
Verdict simple(std::vector<std::string> words, std::string& bracket, std::vector<std::string>* assumed_empty) {
  bool turned = false;
  const auto drop_not = [&] {
    while (!words.empty() && words[0] == kNot) {
      words.erase(words.begin());
      turned = !turned;
    }
  };
  drop_not();
  if (words.size() == 1 && bracket.empty() && (words[0] == "true" || words[0] == "false")) {
    return (words[0] == "true") != turned;
  }
  if (bracket.empty()) {
    if (words.empty() || (words[0] != "[" && words[0] != "[[" && words[0] != "test")) return std::nullopt;
    bracket = words[0];
    words.erase(words.begin());
    drop_not();
  }
  const bool with_patterns = bracket == "[[";
  const std::string close = bracket == "[" ? "]" : bracket == "[[" ? "]]" : "";
  if (close.empty() || (!words.empty() && words.back() == close)) {
    if (!close.empty()) words.pop_back();
    bracket.clear();
  } else if (!with_patterns) {
    return std::nullopt;
  }
  const Verdict verdict = compare(std::move(words), with_patterns, assumed_empty);
  return verdict ? Verdict(*verdict != turned) : std::nullopt;
}

}  // namespace

std::optional<std::string> without_unset(const std::string& text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != kUnset) {
      plain += text[at];
      continue;
    }
    const std::size_t end = std::min(text.find(kUnset, at + 1), text.size());
    if (at + 1 < end && (text[at + 1] == '(' || text[at + 1] == '`')) return std::nullopt;
    at = end;
  }
  return plain;
}

std::optional<bool> shell_matches(const std::string& text, const std::string& pattern) {
  const bool unset = text.find(kUnset) != std::string::npos || pattern.find(kUnset) != std::string::npos;
  if (unset || pattern.find('[') != std::string::npos) return std::nullopt;
  std::size_t at = 0;
  std::size_t next = 0;
  std::size_t star = std::string::npos;  // the last one, and where its match ends so far
  std::size_t star_end = 0;
  while (at < text.size()) {
    if (next < pattern.size() && pattern[next] == '*') {
      star = next++;
      star_end = at;
    } else if (next < pattern.size() && (pattern[next] == '?' || pattern[next] == text[at])) {
      ++next;
      ++at;
    } else if (star != std::string::npos) {
      next = star + 1;
      at = ++star_end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', next) == std::string::npos;
}

std::optional<bool> shell_condition(const ShellCommand& words, std::vector<std::string>* assumed_empty) {
  std::vector<std::string> part;
  std::string bracket;
  std::string joint;  // the operator between the part already decided and the current one
  Verdict verdict;
  std::string only_joint;
  for (std::size_t index = 0; index <= words.size(); ++index) {
    const std::string text = index < words.size() ? words[index].text : ";";
    if (text != "&&" && text != "||" && text != ";") {
      part.push_back(text);
      continue;
    }
    if (part.empty() && text == ";") continue;
    const Verdict judged = simple(std::move(part), bracket, assumed_empty);
    part.clear();
    if (!judged || joint == ";") return std::nullopt;
    verdict = joint.empty() ? judged : joint == "&&" ? Verdict(*verdict && *judged) : Verdict(*verdict || *judged);
    joint = text;
    if (text == ";") continue;
    // Inside [[ ]] && binds more strongly than ||.
    if (!only_joint.empty() && only_joint != text) return std::nullopt;
    only_joint = text;
  }
  return bracket.empty() ? verdict : std::nullopt;
}

}  // namespace flopcast
