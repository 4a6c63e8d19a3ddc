#include "import/shell/shell_conditions.hpp"

#include <cctype>
#include <cstdint>

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
    const ShellNumber value = sum(0);
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
      const ShellNumber value = sum(depth + 1);
      if (next() != ')') return std::nullopt;
      ++at_;
      return value;
    }
    if (first == '-') {
      ++at_;
      const ShellNumber value = factor(depth + 1);
      return value ? ShellNumber(-*value) : std::nullopt;
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

bool is_unset(const std::string& text) {
  return text.find(kUnset) != std::string::npos;
}

Verdict compare_numbers(const std::string& left, const std::string& comparison, const std::string& right) {
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

Verdict compare(const std::vector<std::string>& words, bool with_patterns) {
  for (const std::string& word : words) {
    if (is_unset(word)) return std::nullopt;
  }
  if (words.size() == 1) return !words[0].empty();
  if (words.size() == 2 && words[0] == "-z") return words[1].empty();
  if (words.size() == 2 && words[0] == "-n") return !words[1].empty();
  if (words.size() != 3) return std::nullopt;
  const std::string& sign = words[1];
  if (sign == "=" || sign == "==" || sign == "!=") {
    const Verdict same = with_patterns ? shell_matches(words[0], words[2]) : Verdict(words[0] == words[2]);
    return same ? Verdict(*same == (sign != "!=")) : std::nullopt;
  }
  return compare_numbers(words[0], sign, words[2]);
}

// One comparison; `bracket` is the bracket it stands in, which it may open and close.
Verdict simple(std::vector<std::string> words, std::string& bracket) {
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
  const Verdict verdict = compare(words, with_patterns);
  return verdict ? Verdict(*verdict != turned) : std::nullopt;
}

}  // namespace

std::optional<bool> shell_matches(const std::string& text, const std::string& pattern) {
  if (is_unset(text) || is_unset(pattern) || pattern.find('[') != std::string::npos) return std::nullopt;
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

std::optional<bool> shell_condition(const ShellCommand& words) {
  std::vector<std::string> part;
  std::string bracket;
  std::string joint;  // between what was judged and the part at hand
  Verdict verdict;
  std::string only_joint;
  for (std::size_t index = 0; index <= words.size(); ++index) {
    const std::string text = index < words.size() ? words[index].text : ";";
    if (text != "&&" && text != "||" && text != ";") {
      part.push_back(text);
      continue;
    }
    if (part.empty() && text == ";") continue;
    const Verdict judged = simple(std::move(part), bracket);
    part.clear();
    if (!judged || joint == ";") return std::nullopt;
    verdict = joint.empty() ? judged : joint == "&&" ? Verdict(*verdict && *judged) : Verdict(*verdict || *judged);
    joint = text;
    if (text == ";") continue;
    // && binds more strongly inside [[ ]] than outside.
    if (!only_joint.empty() && only_joint != text) return std::nullopt;
    only_joint = text;
  }
  return bracket.empty() ? verdict : std::nullopt;
}

}  // namespace flopcast
