#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace flopcast {

/// The project's root.
std::filesystem::path project_folder();

/// Schedules of other programs and published measurements, which are not part of the repository: the folder in
/// FLOPCAST_REFERENCE, or else ../shared/reference next to the project. Absent if neither exists; tests that need it
/// are then skipped. Throws std::runtime_error if FLOPCAST_REFERENCE is not a folder.
std::optional<std::filesystem::path> reference_folder();

/// Content of the file; throws std::runtime_error if it cannot be read.
std::string read_text(const std::filesystem::path& file);
void write_text(const std::filesystem::path& file, std::string_view text);

/// A new empty folder that is deleted, with its content, at the end of its scope.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace flopcast
