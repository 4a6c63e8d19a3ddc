#include "base/host/processes.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/text/error.hpp"
#include "base/text/words.hpp"

extern char** environ;

namespace flopcast {

namespace {

volatile std::sig_atomic_t child_of_handler = 0;

extern "C" void hand_on(int signal) {
  const int error = errno;
  if (child_of_handler > 0) kill(static_cast<pid_t>(child_of_handler), signal);
  errno = error;
}

/// Signals as they are to be while a child runs, and afterwards as they were.
class SignalsForChild {
 public:
  SignalsForChild() {
    struct sigaction action {};
    action.sa_handler = SIG_IGN;
    sigaction(SIGINT, &action, &interrupt_);
    action.sa_handler = hand_on;
    sigaction(SIGTERM, &action, &terminate_);
  }
  SignalsForChild(const SignalsForChild&) = delete;
  SignalsForChild& operator=(const SignalsForChild&) = delete;
  ~SignalsForChild() {
    child_of_handler = 0;
    sigaction(SIGINT, &interrupt_, nullptr);
    sigaction(SIGTERM, &terminate_, nullptr);
  }

 private:
  struct sigaction interrupt_ {};
  struct sigaction terminate_ {};
};

pid_t start(const std::vector<std::string>& words, const Streams& streams) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGINT);  // an ignored signal would stay ignored
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const int out = fileno(streams.out);
  const int err = fileno(streams.err);
  FLOPCAST_CHECK(out >= 0 && err >= 0);
  std::fflush(streams.out);
  std::fflush(streams.err);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err, STDERR_FILENO);
  pid_t child = 0;
  const int error = posix_spawn(&child, arguments.front(), &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) throw EnvironmentError(fmt::format("{} cannot be started", words.front()));
  return child;
}

}  // namespace

std::string program_beside(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const std::filesystem::path& candidate : {folder / name, folder.parent_path() / "realrun" / name}) {
    if (access(candidate.c_str(), X_OK) == 0) return candidate.string();
  }
  throw EnvironmentError(fmt::format("{} is not there: it belongs beside {} (build the target {})", name,
                                     (folder / "flopcast").string(), name));
}

std::optional<std::string> program_on_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  if (path == nullptr || *path == '\0') return std::nullopt;
  for (const std::string& folder : split(path, ':')) {
    std::string candidate = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return std::nullopt;
}

std::string host_name() {
  constexpr std::size_t kLongest = 256;
  std::array<char, kLongest> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

ChildEnd run_child(const std::vector<std::string>& words, const Streams& streams) {
  const SignalsForChild signals;
  const pid_t child = start(words, streams);
  child_of_handler = child;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return {.exit_code = 0, .signal = WTERMSIG(status)};
  return {.exit_code = WEXITSTATUS(status), .signal = 0};
}

}  // namespace flopcast
