#include "cli/measured/mpirun.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "model/error/error.hpp"

namespace flopcast {

namespace {

std::string find_in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = fmt::format("{}/{}", folder.empty() ? "." : folder, program);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  throw EnvironmentError(
      fmt::format("{} is not on the path, and --backend mpi needs it (Debian: openmpi-bin)", program));
}

}  // namespace

std::vector<std::string> mpirun_words(int ranks) {
  // Quiet: flopcast-run itself tells what went wrong.
  std::vector<std::string> words = {find_in_path("mpirun"), "--quiet", "--oversubscribe"};
  if (geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), {"-n", fmt::format("{}", ranks)});
  return words;
}

}  // namespace flopcast
