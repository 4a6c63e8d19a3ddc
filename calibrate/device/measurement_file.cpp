#include "calibrate/device/measurement_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "model/error/error.hpp"

namespace flopcast {

namespace {

std::string text_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) throw EnvironmentError(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  return text.str();
}

// Other libraries choose other kernels: their times belong to another measurement.
void require_same_libraries(const Measurement& known, const Measurement& about, const std::string& path) {
  for (const auto& [library, version] : about.libraries) {
    const auto before = known.libraries.find(library);
    if (before == known.libraries.end() || before->second == version) continue;
    throw ConfigError(
        {"libraries", fmt::format("{} was measured with {} {}, and here is {}", path, library, before->second, version),
         path, "give another file, or remove this one"});
  }
}

}  // namespace

void replace_file(const std::string& path, const std::string& text) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  std::error_code code;
  const auto fail = [&](const std::string& reason) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw EnvironmentError(fmt::format("cannot write {}: {}", path, reason));
  };
  errno = 0;
  {
    std::ofstream stream(temporary, std::ios::binary);
    stream << text;
    stream.flush();
    if (!stream) fail(std::strerror(errno));
  }
  std::filesystem::rename(temporary, path, code);
  if (code) fail(code.message());
}

MeasurementFile::MeasurementFile(std::string path, const Measurement& about)
    : path_(std::move(path)), about_(about), measurement_(about) {
  if (path_.empty()) return;
  std::error_code code;
  if (!std::filesystem::exists(path_, code)) {
    replace_file(path_, write_measurement(measurement_));
    return;
  }
  Measurement known = read_measurement(text_of(path_), path_);
  if (known.device != about.device || known.multiprocessors != about.multiprocessors || known.host != about.host) {
    throw ConfigError({"device",
                       fmt::format("{} holds measurements of {} on {}, this is {} on {}", path_, known.device,
                                   known.host, about.device, about.host),
                       path_, "give another file"});
  }
  require_same_libraries(known, about, path_);
  // What is new is measured with them.
  known.libraries.insert(about.libraries.begin(), about.libraries.end());
  measurement_ = std::move(known);
}

void MeasurementFile::append(const Sample& sample) {
  FLOPCAST_CHECK(!has(sample.key));
  measurement_.samples.push_back(sample);
  if (!path_.empty()) replace_file(path_, write_measurement(measurement_));
}

}  // namespace flopcast
