#include "model/catalog/profiles.hpp"

#include <nlohmann/json.hpp>

#include "model/catalog/embedded.hpp"

namespace flopcast {

namespace {

constexpr std::string_view kFolder = "profiles/";
constexpr std::string_view kSuffix = ".json";

std::string_view name_in(std::string_view path) {
  return path.substr(kFolder.size(), path.size() - kFolder.size() - kSuffix.size());
}

}  // namespace

std::vector<std::string> shipped_profile_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_profiles()) names.emplace_back(name_in(file.path));
  return names;
}

nlohmann::json shipped_profile(std::string_view name) {
  for (const EmbeddedFile& file : embedded_profiles()) {
    if (name_in(file.path) == name) return nlohmann::json::parse(file.text);
  }
  return {};
}

}  // namespace flopcast
