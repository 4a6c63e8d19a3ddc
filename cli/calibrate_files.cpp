#include "cli/calibrate_files.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "cli/terminal.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

bool is_one_file(const std::string& a, const std::string& b) {
  std::error_code code;
  const auto resolved = [&code](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path, code), code);
  };
  const std::filesystem::path file = resolved(a);
  if (file != resolved(b)) return false;
  return !std::filesystem::exists(file, code) || std::filesystem::is_regular_file(file, code);
}

}  // namespace

void check_files(const std::vector<NamedFile>& written, const std::vector<NamedFile>& read) {
  std::vector<NamedFile> others = read;
  for (const NamedFile& file : written) {
    for (const NamedFile& other : others) {
      if (!is_one_file(file.path, other.path)) continue;
      throw ConfigError({file.flag, fmt::format("{} is the file of {} too", file.path, other.flag), file.flag,
                         "give each a file of its own"});
    }
    others.push_back(file);
  }
  for (const NamedFile& file : written) require_writable(file.path);
}

}  // namespace flopcast
