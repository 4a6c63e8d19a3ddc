#include "tests/fuzz/mutation.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <nlohmann/json.hpp>

namespace flopcast {

namespace {

using Json = nlohmann::json;
using Random = std::mt19937_64;

const std::string& one_text(const std::vector<std::string>& texts, Random& random) {
  return texts[random() % texts.size()];
}

const std::vector<std::string>& extreme_words() {
  static const std::vector<std::string> words = {"-1",
                                                 "0",
                                                 "-0",
                                                 "1e308",
                                                 "1e-308",
                                                 "NaN",
                                                 "inf",
                                                 "99999999999999999999",
                                                 "2147483648",
                                                 "4294967296",
                                                 "1.5",
                                                 "1e9",
                                                 "true",
                                                 "null",
                                                 "\"\"",
                                                 "[]",
                                                 "{}",
                                                 "..",
                                                 "/dev/null",
                                                 "\xff",
                                                 std::string(1, '\0'),
                                                 "\x1b[31m",
                                                 "\xe2\x80\xae",
                                                 "'",
                                                 "$(x)",
                                                 "${a:-${b}}",
                                                 "&a [*a]",
                                                 "%s%n",
                                                 "A",
                                                 "::",
                                                 "=",
                                                 ",",
                                                 ";",
                                                 "\n",
                                                 "\r\n",
                                                 "\t",
                                                 "#",
                                                 "//",
                                                 "/*",
                                                 "1GiB",
                                                 "0us"};
  return words;
}

void edit_number(std::string& text, std::size_t at, Random& random) {
  std::size_t begin = text.find_first_of("0123456789", at);
  if (begin == std::string::npos) return;
  std::size_t end = begin;
  while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
  text.replace(begin, end - begin, one_text(extreme_words(), random));
}

void edit_bytes(std::string& text, const std::vector<std::string>& seeds, Random& random) {
  const std::size_t at = text.empty() ? 0 : random() % text.size();
  switch (random() % 8) {
    case 0:
      if (!text.empty()) text[at] = static_cast<char>(random() % 256);
      break;
    case 1:
      text.erase(at, 1 + random() % 16);
      break;
    case 2:
      text.insert(at, one_text(extreme_words(), random));
      break;
    case 3:
      text.insert(at, text.substr(text.empty() ? 0 : random() % text.size(), 1 + random() % 64));
      break;
    case 4: {
      const std::string& other = one_text(seeds, random);
      if (!other.empty()) text.insert(at, other.substr(random() % other.size(), 1 + random() % 200));
      break;
    }
    case 5:
      if (random() % 8 == 0) text.resize(at);
      break;
    case 6: {  // moves a line
      const std::size_t begin = text.rfind('\n', at) == std::string::npos ? 0 : text.rfind('\n', at) + 1;
      const std::string line = text.substr(begin, text.find('\n', begin) - begin + 1);
      if (random() % 2 == 0) text.erase(begin, line.size());
      text.insert(text.empty() ? 0 : std::min(text.size(), random() % text.size()), line);
      break;
    }
    default:
      edit_number(text, at, random);
  }
}

// A random value in the tree.
Json* some_place(Json& root, Random& random) {
  Json* at = &root;
  while (at->is_structured() && !at->empty() && random() % 5 != 0) {
    auto next = at->begin();
    std::advance(next, static_cast<std::ptrdiff_t>(random() % at->size()));
    at = &*next;
  }
  return at;
}

Json extreme_value(Random& random) {
  static const std::vector<Json> values = {nullptr,
                                           true,
                                           false,
                                           0,
                                           -1,
                                           1,
                                           2,
                                           3,
                                           7,
                                           64,
                                           1'000'000,
                                           2147483648U,
                                           1e308,
                                           -1e308,
                                           1e-308,
                                           0.5,
                                           "",
                                           "x",
                                           "auto",
                                           "1e308",
                                           "-3us",
                                           "80GiB",
                                           "\x1b[31m",
                                           Json::array(),
                                           Json::object(),
                                           Json({1, 2, 3}),
                                           Json({{"name", "x"}}),
                                           std::string(300, 'n')};
  return values[random() % values.size()];
}

void edit_tree(Json& root, const std::vector<std::string>& seeds, Random& random) {
  Json& place = *some_place(root, random);
  switch (random() % 6) {
    case 0:
      place = extreme_value(random);
      break;
    case 1: {
      const Json copy = *some_place(root, random);
      place = copy;
      break;
    }
    case 2:
      if (place.is_object() && !place.empty()) {
        place.erase(std::next(place.begin(), static_cast<std::ptrdiff_t>(random() % place.size())).key());
      } else if (place.is_array() && !place.empty()) {
        place.erase(random() % place.size());
      }
      break;
    case 3:
      if (place.is_array()) place.push_back(place.empty() ? extreme_value(random) : place.front());
      break;
    case 4:
      if (place.is_number()) place = place.get<double>() * (random() % 2 == 0 ? 1e6 : -0.001);
      break;
    default: {  // inserts part of another seed, under its own key
      Json other = Json::parse(one_text(seeds, random), nullptr, false, true);
      if (other.is_discarded()) break;
      const Json& piece = *some_place(other, random);
      if (place.is_object() && piece.is_object()) place.update(piece);
    }
  }
}

}  // namespace

std::string mutated(const std::vector<std::string>& seeds, bool is_json, std::mt19937_64& random) {
  std::string text = one_text(seeds, random);
  const std::size_t edits = 1 + random() % 5;
  if (is_json && random() % 4 != 0) {
    Json root = Json::parse(text, nullptr, false, true);
    if (!root.is_discarded()) {
      for (std::size_t edit = 0; edit < edits; ++edit) edit_tree(root, seeds, random);
      return root.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
  }
  for (std::size_t edit = 0; edit < edits; ++edit) edit_bytes(text, seeds, random);
  return text;
}

}  // namespace flopcast
