#pragma once

#include <string>
#include <vector>

namespace flopcast {

/// A file and the flag that names it.
struct NamedFile {
  std::string flag;
  std::string path;
};

/// Before anything is measured or read. Throws ConfigError where a file that is written is another one that is written
/// or read, and EnvironmentError where one cannot be written. Terminals, pipes and /dev/null take several texts.
void check_files(const std::vector<NamedFile>& written, const std::vector<NamedFile>& read);

}  // namespace flopcast
