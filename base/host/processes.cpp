#include "base/host/processes.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/text/error.hpp"
#include "base/text/words.hpp"

namespace flopcast {

namespace {

volatile std::sig_atomic_t child_of_handler = 0;

// What the terminal sends, it sends to the child as well; what another process sends is for this one alone.
extern "C" void hand_on(int signal, siginfo_t* info, void* /*context*/) {
  const int error = errno;
  const bool from_terminal = info->si_code == SI_KERNEL;
  if (child_of_handler > 0 && !from_terminal) kill(static_cast<pid_t>(child_of_handler), signal);
  errno = error;
}

constexpr std::array<int, 3> kHandedOn = {SIGINT, SIGTERM, SIGHUP};

/// Signals as they are to be while a child runs, and afterwards as they were. They wait until the child is there.
class SignalsForChild {
 public:
  SignalsForChild() {
    sigset_t waiting;
    sigemptyset(&waiting);
    for (const int signal : kHandedOn) sigaddset(&waiting, signal);
    sigprocmask(SIG_BLOCK, &waiting, &mask_);
    struct sigaction action {};
    action.sa_sigaction = hand_on;
    action.sa_flags = SA_SIGINFO;
    for (std::size_t at = 0; at < kHandedOn.size(); ++at) sigaction(kHandedOn[at], &action, &before_[at]);
  }
  SignalsForChild(const SignalsForChild&) = delete;
  SignalsForChild& operator=(const SignalsForChild&) = delete;
  ~SignalsForChild() {
    child_of_handler = 0;
    for (std::size_t at = 0; at < kHandedOn.size(); ++at) sigaction(kHandedOn[at], &before_[at], nullptr);
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
  }

  void hand_to(pid_t child) {
    child_of_handler = child;
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
  }
  /// In the child, before it becomes the program.
  void restore() const {
    for (const int signal : kHandedOn) ::signal(signal, SIG_DFL);
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
  }

 private:
  sigset_t mask_{};
  std::array<struct sigaction, kHandedOn.size()> before_{};
};

constexpr int kCannotStart = 127;

// By fork: a child that is to end with its parent has to ask for it itself.
pid_t start(const std::vector<std::string>& words, const Streams& streams, const SignalsForChild& signals) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  if (access(arguments.front(), X_OK) != 0) throw EnvironmentError(fmt::format("{} cannot be started", words.front()));
  const int out = fileno(streams.out);
  const int err = fileno(streams.err);
  FLOPCAST_CHECK(out >= 0 && err >= 0);
  std::fflush(streams.out);
  std::fflush(streams.err);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw EnvironmentError(fmt::format("{} cannot be started: {}", words.front(), std::strerror(errno)));
  if (child > 0) return child;
  // Nobody is left behind when the parent is killed. A launcher that is told to end tells its ranks.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  signals.restore();
  const bool has_streams = dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0;
  if (has_streams && getppid() == parent) execv(arguments.front(), arguments.data());
  _exit(kCannotStart);
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
  SignalsForChild signals;
  const pid_t child = start(words, streams, signals);
  signals.hand_to(child);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return {.exit_code = 0, .signal = WTERMSIG(status)};
  return {.exit_code = WEXITSTATUS(status), .signal = 0};
}

}  // namespace flopcast
