#include "import/shell/shell_parser.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace flopcast {

namespace {

// <PATH TO THE CHECKPOINT>, a placeholder to be filled in: a value, not a redirection.
std::size_t placeholder_size(std::string_view text) {
  if (text.size() < 3 || std::isalpha(static_cast<unsigned char>(text[1])) == 0) return 0;
  const std::size_t end = text.find_first_of("<>\n\"'`$|;&()", 1);
  if (end == std::string_view::npos || text[end] != '>' || text[end - 1] == ' ') return 0;
  const bool stands_alone =
      end + 1 == text.size() || std::string_view(" \t\r\n\\\"')").find(text[end + 1]) != std::string_view::npos;
  return stands_alone ? end + 1 : 0;
}

}  // namespace

// A backslash followed by blanks and the end of the line: the shell would end the command there, which is never
// intended.
bool ShellParser::continues_after_blanks() {
  std::size_t end = at_ + 1;
  while (end < text_.size() && (text_[end] == ' ' || text_[end] == '\t')) ++end;
  if (end == at_ + 1 || end >= text_.size() || text_[end] != '\n') return false;
  script_.warnings.push_back(
      fmt::format("{}:{}: blanks after the backslash end the command in a shell; here it is read as if it continued",
                  file_, line_));
  while (at_ < end) take();
  return true;
}

void ShellParser::read_double_quotes() {
  const int line = line_;
  take();
  append("");
  while (!done() && peek() != '"') {
    if (peek() == kUnset) {
      append(marked());
    } else if (peek() == '\\' && continues_after_blanks()) {
      take();
      append(" ");
    } else if (peek() == '\\' && peek(1) == '\n') {
      // A script for sh -c keeps the line break, so that the lines of its commands are known.
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
  if (done()) fail("a double quote is not closed", line);
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
  if (done()) fail("a back-tick is not closed", line);
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
  if (done()) fail("a single quote is not closed", line);
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
  if (done()) fail(fmt::format("the array {} is not closed", name), line);
  take();
  end_word();
  ShellVariable value{std::move(command_)};
  command_ = std::move(outer);
  assign(name, std::move(value), adds);
  in_array_ = false;
  read_array_ = true;
}

// "#SBATCH --nodes=16" carries as much information as a command.
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
  read_sbatch(command_);
  end_command();
}

// name (), to be followed by {; returns false for all other parentheses.
bool ShellParser::read_function_head() {
  const std::size_t close = text_.find_first_not_of(" \t", at_ + 1);
  if (close == std::string_view::npos || text_[close] != ')') return false;
  ShellCommand head = command_;
  if (in_word_) head.push_back(word_);
  if (!head.empty() && head.front().text == "function") head.erase(head.begin());
  if (head.size() != 1) return false;
  const std::string& name = head.front().text;
  const bool fits = std::all_of(name.begin(), name.end(), [](char each) {
    return is_name_character(each) || std::string_view("-:.").find(each) != std::string_view::npos;
  });
  if (!fits || name.empty()) return false;
  while (at_ <= close) take();
  function_ = name;
  command_.clear();
  in_word_ = false;
  return true;
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
      // Consumed first: a loop may be read again from its beginning.
      take();
      return end_command();
    case '#':
      if (!in_word_) return read_comment();
      return append(std::string(1, take()));
    case '\\':
      if (continues_after_blanks()) {
        take();
        return end_word();
      }
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
      if (!in_array_ && read_function_head()) return;
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

// Skips the text of <<NAME, unless it contains flags: then it is a script that is written or run.
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

// Records the file that a here-document writes with > PATH on its line.
void ShellParser::write_file(const std::string& redirection, std::string_view body, bool as_it_is) {
  const std::size_t sign = redirection.find('>');
  if (sign == std::string::npos || (depth_ > 0 && !in_function_) || (sign > 0 && redirection[sign - 1] == '2')) return;
  const std::size_t begin = redirection.find_first_not_of("> \t'", sign);
  if (begin == std::string::npos) return;
  const std::size_t end = std::min(redirection.find_first_of(" \t;|&<'", begin), redirection.size());
  const std::string path = expanded(redirection.substr(begin, end - begin));
  script_.written[path] = as_it_is ? std::string(body) : expanded(std::string(body));
}

void ShellParser::read_operator() {
  const char character = take();
  const bool twice = peek() == character;
  if (twice && (character == '&' || character == '|' || character == ';')) take();
  const std::string written(twice ? 2 : 1, character);
  if (written != ";;") end_command(written);
  if (in_array_) return;
  if (written == ";;") end_command();
  if (character == '(' && begin_subshell()) return;
  if (character == ')' && !branchings_.empty() && branchings_.back().kind == ShellBranching::Kind::kSubshell) {
    closes_subshell_ = true;
    return;
  }
  if (character == '<' && twice && peek(1) == '<') {
    take();
    take();
    return;
  }
  if (character == '<' && twice) read_here_document();
  if (branchings_.empty() || branchings_.back().kind != ShellBranching::Kind::kCase) return;
  ShellBranching& branching = branchings_.back();
  if (written == ";;") branching.reads_condition = true;
  if (character == ')' && branching.reads_condition) begin_case_branch();
}

}  // namespace flopcast
