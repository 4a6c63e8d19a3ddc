#include "calibrate/device/device_name.hpp"

#include <cctype>
#include <cstddef>
#include <sstream>

#include "model/catalog/catalogue.hpp"
#include "model/units/lower_case.hpp"

namespace flopcast {

namespace {

bool is_digit(char letter) {
  return std::isdigit(static_cast<unsigned char>(letter)) != 0;
}

// A10 is no word of A100, and H200 none of GH200.
bool has_word(const std::string& text, const std::string& word) {
  for (std::size_t place = text.find(word); place != std::string::npos; place = text.find(word, place + 1)) {
    const bool begins = place == 0 || std::isalnum(static_cast<unsigned char>(text[place - 1])) == 0;
    const std::size_t end = place + word.size();
    if (begins && (end == text.size() || !is_digit(text[end]))) return true;
  }
  return false;
}

}  // namespace

bool is_part_of_gpu(const std::string& gpu) {
  return has_word(lower_case(gpu), "mig");
}

std::optional<std::string> catalogued_device(const std::string& gpu) {
  if (is_part_of_gpu(gpu)) return std::nullopt;
  const std::string name = lower_case(gpu);
  constexpr const char* kOtherForm = "nvl";
  std::optional<std::string> best;
  std::size_t most = 0;
  bool several = false;
  for (const std::string& known : catalogue_names(CatalogueKind::kDevices)) {
    std::istringstream words(known);
    std::size_t count = 0;
    bool all = true;
    for (std::string word; std::getline(words, word, '-'); ++count) all = all && has_word(name, word);
    if (has_word(name, kOtherForm) && !has_word(known, kOtherForm)) continue;
    if (!all || count < most) continue;
    several = count == most;
    most = count;
    best = known;
  }
  return several ? std::nullopt : best;
}

}  // namespace flopcast
