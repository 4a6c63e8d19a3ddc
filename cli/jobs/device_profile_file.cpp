#include "cli/jobs/device_profile_file.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "base/host/files.hpp"
#include "cli/jobs/file_places.hpp"
#include "model/catalog/catalogue.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

// A word that is neither a file nor anything like one was meant as a name.
void refuse_unknown_name(const std::string& text) {
  const bool like_a_path = text.find_first_of("/.\\") != std::string::npos;
  std::error_code ignored;
  if (like_a_path || std::filesystem::exists(text, ignored)) return;
  throw ConfigError({"training.profile", fmt::format("\"{}\" is neither a file nor a profile that comes along", text),
                     "training.profile", choices_help(text, shipped_profile_names())});
}

}  // namespace

void read_device_profile_file(nlohmann::json& root, Origins& origins) {
  const auto training = root.find("training");
  if (training == root.end() || !training->is_object() || !training->contains("profile")) return;
  nlohmann::json& profile = training->at("profile");
  if (!profile.is_string()) return;
  const std::string path = profile.get<std::string>();
  if (nlohmann::json shipped = shipped_profile(path); !shipped.is_null()) {
    profile = std::move(shipped);
    return;
  }
  refuse_unknown_name(path);
  nlohmann::json values = parse_json(read_file(path), path);
  add_file_places(values, path, "", "training.profile", origins);
  const auto cluster = values.find("cluster");
  if (cluster != values.end() && cluster->is_object()) {
    const nlohmann::json given = root.value("cluster", nlohmann::json());
    for (const auto& item : cluster->items()) {
      const bool overridden = given.is_object() && given.contains(item.key());
      if (!overridden) add_file_places(item.value(), path, "/cluster/" + item.key(), "cluster." + item.key(), origins);
    }
  }
  profile = std::move(values);
}

}  // namespace flopcast
