#include "base/host/guard.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"

namespace flopcast {
namespace {

struct ProcessEntry {
  char state = 'X';
  unsigned long long beginning = 0;
};

// proc(5), stat: the name is in parentheses and may hold any character, so fields are counted after the last
// parenthesis.
ProcessEntry entry_of(pid_t process) {
  std::ifstream stream(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(stream, text);
  const std::size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return {};
  constexpr int kFieldsBetween = 18;  // state is field 3, starttime field 22
  ProcessEntry entry;
  std::istringstream fields(text.substr(end_of_name + 1));
  fields >> entry.state;
  std::string passed;
  for (int field = 0; field < kFieldsBetween; ++field) fields >> passed;
  fields >> entry.beginning;
  return fields ? entry : ProcessEntry{};
}

// Every thread lists the children it started.
std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> children;
  std::error_code code;
  for (std::filesystem::directory_iterator thread(fmt::format("/proc/{}/task", process), code), end;
       !code && thread != end; thread.increment(code)) {
    std::ifstream stream(thread->path() / "children");
    for (pid_t child = 0; stream >> child;) children.push_back(child);
  }
  return children;
}

bool is_there(const ProcessName& name) {
  const ProcessEntry entry = entry_of(name.number);
  return entry.state != 'X' && entry.state != 'Z' && entry.beginning == name.beginning;
}

// Processes that lost their parent are no longer descendants, so the family keeps those found earlier.
void add_family(pid_t child, std::vector<ProcessName>& family) {
  for (const pid_t process : descendants_of(child)) {
    const ProcessName name = name_of_process(process);
    if (name.beginning != 0 && std::find(family.begin(), family.end(), name) == family.end()) family.push_back(name);
  }
}

void end_family(const ProcessName& child) {
  constexpr auto kPatience = std::chrono::seconds(2);
  constexpr auto kPause = std::chrono::milliseconds(20);
  std::vector<ProcessName> family = {child};
  for (const auto deadline = std::chrono::steady_clock::now() + kPatience;
       std::chrono::steady_clock::now() < deadline && std::any_of(family.begin(), family.end(), is_there);) {
    if (is_there(child)) add_family(child.number, family);
    std::this_thread::sleep_for(kPause);
  }
  for (const ProcessName& name : family) {
    if (is_there(name)) kill(name.number, SIGKILL);
  }
}

[[noreturn]] void keep_guard(int pipe, const std::string& folder) {
  setsid();
  prctl(PR_SET_NAME, "flopcast-guard");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_IGN);
  // Closes inherited descriptors: readers of this program's output wait until every writer has closed it.
  std::error_code code;
  std::vector<int> open;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", code), end; !code && entry != end;
       entry.increment(code)) {
    open.push_back(static_cast<int>(std::strtol(entry->path().filename().c_str(), nullptr, 10)));
  }
  for (const int descriptor : open) {
    if (descriptor != pipe) close(descriptor);
  }
  if (chdir("/") != 0) _exit(0);
  ProcessName child;
  for (ProcessName told; read(pipe, &told, sizeof(told)) == static_cast<ssize_t>(sizeof(told));) child = told;
  if (child.number > 0) end_family(child);
  std::filesystem::remove_all(folder, code);
  _exit(0);
}

}  // namespace

ErrorReport error_report(const std::exception& error) {
  constexpr int kBug = 1;
  constexpr int kAnswerIsNo = 3;
  if (dynamic_cast<const ConfigError*>(&error) != nullptr) return {kBadInput, error.what()};
  if (dynamic_cast<const NegativeAnswer*>(&error) != nullptr) return {kAnswerIsNo, error.what()};
  if (dynamic_cast<const EnvironmentError*>(&error) != nullptr) {
    return {kEnvironmentFailed, fmt::format("error: {}", error.what())};
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return {kEnvironmentFailed, "error: out of memory"};
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again)
    return {kEnvironmentFailed,
            fmt::format("error: cannot create another thread or process: {}", system->code().message())};
  return {kBug,
          fmt::format("internal error: {}\nThis is a bug in flopcast; please report it together with the command.",
                      error.what())};
}

void print_error(const std::string& text) {
  std::fputs((printable(text) + "\n").c_str(), stderr);
}

int exit_code_of(const std::function<int()>& command, bool tells, const Streams& streams) {
  try {
    return command();
  } catch (const std::exception& error) {
    const ErrorReport report = error_report(error);
    if (tells || report.exit_code != kBadInput)
      std::fputs((colored_message(streams, printable(report.text)) + "\n").c_str(), streams.err);
    return report.exit_code;
  }
}

char state_of_process(pid_t process) {
  return entry_of(process).state;
}

ProcessName name_of_process(pid_t process) {
  return {process, entry_of(process).beginning};
}

std::vector<pid_t> descendants_of(pid_t process) {
  std::vector<pid_t> all = children_of(process);
  for (std::size_t index = 0; index < all.size(); ++index) {
    for (const pid_t child : children_of(all[index])) all.push_back(child);
  }
  return all;
}

bool are_stopped(const std::vector<pid_t>& processes) {
  const auto is_stopped = [](pid_t process) { return state_of_process(process) == 'T'; };
  return !processes.empty() && std::all_of(processes.begin(), processes.end(), is_stopped);
}

bool lists_descendants() {
  return access(fmt::format("/proc/self/task/{}/children", getpid()).c_str(), R_OK) == 0;
}

std::vector<pid_t> with_program(const std::string& name, const std::vector<pid_t>& processes) {
  std::vector<pid_t> found;
  std::copy_if(processes.begin(), processes.end(), std::back_inserter(found), [&name](pid_t process) {
    std::ifstream stream(fmt::format("/proc/{}/comm", process));
    std::string program;
    return std::getline(stream, program) && program == name;
  });
  return found;
}

Guard::Guard(const std::string& folder) {
  std::error_code code;
  const std::string path = std::filesystem::absolute(folder, code).string();
  std::array<int, 2> ends{-1, -1};
  if (code || pipe2(ends.data(), O_CLOEXEC) != 0) return;
  process_ = fork();
  if (process_ == 0) {
    close(ends[1]);
    keep_guard(ends[0], path);
  }
  close(ends[0]);
  pipe_ = ends[1];
}

Guard::~Guard() {
  take_charge_of(0);
  if (pipe_ >= 0) close(pipe_);
  while (process_ > 0 && waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guard::take_charge_of(pid_t child) const {
  if (pipe_ < 0) return;
  const ProcessName name = child > 0 ? name_of_process(child) : ProcessName{};
  // If the guard itself is gone, the run continues without cleanup.
  [[maybe_unused]] const ssize_t written = write(pipe_, &name, sizeof(name));
}

}  // namespace flopcast
