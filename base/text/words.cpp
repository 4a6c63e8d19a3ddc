#include "base/text/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <nlohmann/json.hpp>

namespace flopcast {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kWhite = " \t\r\n\v\f";
  const std::size_t begin = text.find_first_not_of(kWhite);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhite) - begin + 1);
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return lower;
}

std::size_t text_columns(std::string_view text) {
  const auto starts_code_point = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; };
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_code_point));
}

std::string quote(std::string_view text) {
  constexpr std::size_t kLongest = 40;
  std::string quoted = "'";
  for (const char character : text.substr(0, kLongest)) {
    quoted += character >= ' ' && character <= '~' ? character : '?';
  }
  return quoted + (text.size() > kLongest ? "...'" : "'");
}

std::string printable(std::string_view text) {
  constexpr unsigned char kBlank = 0x20;
  constexpr unsigned char kDelete = 0x7f;
  constexpr unsigned char kSecondOfLatin = 0xc2;  // U+0080 to U+009F steer terminals as well
  constexpr unsigned char kLastControl = 0x9f;
  std::string shown;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto next = at + 1 < text.size() ? static_cast<unsigned char>(text[at + 1]) : kBlank;
    if (byte == kSecondOfLatin && next >= 0x80 && next <= kLastControl) {
      shown += fmt::format("\\x{:02x}", next);
      ++at;
    } else if ((byte < kBlank && byte != '\n' && byte != '\t') || byte == kDelete) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += text[at];
    }
  }
  return shown;
}

std::string shell_word(std::string_view word) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("%+,-./:=@_").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return std::string(word);
  std::string text = "'";
  for (const char c : word) {
    if (c == '\'') {
      text += "'\\''";
    } else {
      text += c;
    }
  }
  return text + "'";
}

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace flopcast
