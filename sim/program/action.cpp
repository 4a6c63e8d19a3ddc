#include "sim/program/action.hpp"

#include <fmt/format.h>

#include <cctype>
#include <cstddef>

namespace flopcast {

namespace {

// Reads decimal digits from `text` at `position` on; nothing when there are none or the number exceeds `limit`.
std::optional<std::uint32_t> read_number(std::string_view text, std::size_t& position, std::uint32_t limit) {
  const std::size_t begin = position;
  std::uint64_t number = 0;
  while (position < text.size() && std::isdigit(static_cast<unsigned char>(text[position])) != 0) {
    number = number * 10 + static_cast<std::uint64_t>(text[position] - '0');
    if (number > limit) return std::nullopt;
    ++position;
  }
  if (position == begin) return std::nullopt;
  return static_cast<std::uint32_t>(number);
}

std::optional<ActionKind> kind_of(char letter) {
  switch (letter) {
    case 'F':
      return ActionKind::kForward;
    case 'B':
      return ActionKind::kBackward;
    case 'I':
      return ActionKind::kInputGradient;
    case 'W':
      return ActionKind::kWeightGradient;
    default:
      return std::nullopt;
  }
}

}  // namespace

char letter_of(ActionKind kind) {
  constexpr std::string_view kLetters = "FBIW";
  return kLetters[static_cast<std::size_t>(kind)];
}

std::string to_string(const Action& action) {
  return fmt::format("{}{}{}", action.stage, letter_of(action.kind), action.microbatch);
}

std::optional<Action> parse_action(std::string_view text) {
  std::size_t position = 0;
  const auto stage = read_number(text, position, kMaxStages - 1);
  if (!stage || position >= text.size()) return std::nullopt;
  const auto kind = kind_of(text[position++]);
  if (!kind) return std::nullopt;
  const auto microbatch = read_number(text, position, kMaxMicrobatches - 1);
  if (!microbatch || position != text.size()) return std::nullopt;
  return Action{.microbatch = *microbatch, .stage = static_cast<std::uint16_t>(*stage), .kind = *kind};
}

}  // namespace flopcast
