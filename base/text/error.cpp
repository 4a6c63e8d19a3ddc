#include "base/text/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

#include "base/text/words.hpp"

namespace flopcast {

std::string render(const Diagnostic& diagnostic) {
  std::string text = "error: ";
  if (!diagnostic.field.empty()) text += diagnostic.field + ": ";
  text += diagnostic.problem;
  if (!diagnostic.where.empty()) text += "\n  --> " + diagnostic.where;
  if (!diagnostic.help.empty()) text += "\n  help: " + diagnostic.help;
  return text;
}

ConfigError::ConfigError(Diagnostic diagnostic)
    : std::runtime_error(printable(render(diagnostic))), diagnostic_(std::move(diagnostic)) {}

void refuse_at(const std::string& where, const std::string& problem, const std::string& help) {
  throw ConfigError({"", problem, where, help});
}

void fail_internal_check(const char* expression, const char* file, int line) {
  throw InternalError(fmt::format("{}:{}: expected {}", file, line, expression));
}

namespace {

// Optimal string alignment distance: an insertion, deletion, replacement or swap of adjacent characters costs 1.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t row = 0; row <= a.size(); ++row) cost[row][0] = row;
  for (std::size_t column = 0; column <= b.size(); ++column) cost[0][column] = column;
  for (std::size_t row = 1; row <= a.size(); ++row) {
    for (std::size_t column = 1; column <= b.size(); ++column) {
      const std::size_t replaced = cost[row - 1][column - 1] + (a[row - 1] == b[column - 1] ? 0 : 1);
      cost[row][column] = std::min({replaced, cost[row - 1][column] + 1, cost[row][column - 1] + 1});
      const bool swapped = row > 1 && column > 1 && a[row - 1] == b[column - 2] && a[row - 2] == b[column - 1];
      if (swapped) cost[row][column] = std::min(cost[row][column], cost[row - 2][column - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

constexpr std::size_t kLongestWordWorthComparing = 64;

}  // namespace

std::vector<std::string> nearest_choices(std::string_view word, const std::vector<std::string>& choices) {
  if (word.empty() || word.size() > kLongestWordWorthComparing) return {};
  const std::size_t limit = std::max<std::size_t>(1, word.size() / 3);
  struct Candidate {
    std::size_t distance;
    bool other_start;  // people usually get the first letter right
    std::string name;
  };
  std::vector<Candidate> near;
  std::vector<std::string> going_on;
  // Case is ignored: GPipe matches gpipe.
  const std::string lower_word = lower_case(word);
  for (const std::string& choice : choices) {
    if (choice.empty()) continue;
    const std::string lower_choice = lower_case(choice);
    if (word.size() >= 2 && lower_choice.starts_with(lower_word)) going_on.push_back(choice);
    const std::size_t distance = edit_distance(lower_word, lower_choice);
    const bool part_of_choice = word.size() >= 3 && lower_choice.find(lower_word) != std::string::npos;
    if (distance <= limit || part_of_choice) {
      near.push_back({distance, lower_choice.front() != lower_word.front(), choice});
    }
  }
  constexpr std::size_t kMostThatGoOn = 6;
  if (!going_on.empty() && going_on.size() <= kMostThatGoOn) return going_on;
  std::stable_sort(near.begin(), near.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.distance, a.other_start) < std::tie(b.distance, b.other_start);
  });
  std::vector<std::string> names;
  constexpr std::size_t kMostSuggestions = 3;
  for (const Candidate& candidate : near) {
    if (names.size() < kMostSuggestions) names.push_back(candidate.name);
  }
  return names;
}

std::string choices_help(std::string_view word, const std::vector<std::string>& choices) {
  std::string text;
  const std::vector<std::string> near = nearest_choices(word, choices);
  if (!near.empty()) text = fmt::format("did you mean {}? ", fmt::join(near, " or "));
  // The full list would bury the suggestion.
  constexpr std::size_t kMostBeside = 12;
  if (!near.empty() && choices.size() > kMostBeside) return text.substr(0, text.size() - 1);
  if (!choices.empty()) text += fmt::format("valid: {}", fmt::join(choices, ", "));
  return text;
}

std::size_t choice_of(const std::string& field, const std::string& word, const std::vector<std::string>& choices,
                      std::string_view what) {
  const auto found = std::find(choices.begin(), choices.end(), word);
  if (found != choices.end()) return static_cast<std::size_t>(found - choices.begin());
  throw ConfigError({field, fmt::format("unknown {} \"{}\"", what, word), "", choices_help(word, choices)});
}

}  // namespace flopcast
