#include "cli/launch.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "model/error/error.hpp"

namespace flopcast {

int launch_beside(const std::string& program, const std::vector<std::string>& arguments) {
  std::error_code code;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", code);
  std::string path = program;
  if (!code && std::filesystem::exists(self.parent_path() / program, code)) path = self.parent_path() / program;

  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_t child = 0;
  const int failure = posix_spawnp(&child, path.c_str(), nullptr, nullptr, pointers.data(), environ);
  if (failure != 0) {
    throw EnvironmentError(fmt::format("{} cannot be started: {}; it is built and installed beside flopcast", program,
                                       std::strerror(failure)));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw EnvironmentError(fmt::format("{}: {}", program, std::strerror(errno)));
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  throw EnvironmentError(fmt::format("{} was ended by signal {}", program, WTERMSIG(status)));
}

}  // namespace flopcast
