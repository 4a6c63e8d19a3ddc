#include "tests/support/run_command.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace flopcast {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCannotStart = 127;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

/// A pipe that closes its ends and is not inherited by other children.
class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0) fail("pipe");
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  int reading() const { return ends_[0]; }
  int writing() const { return ends_[1]; }
  void close_reading() { close_end(0); }
  void close_writing() { close_end(1); }

 private:
  void close_end(std::size_t end) {
    if (ends_[end] >= 0) close(ends_[end]);
    ends_[end] = -1;
  }
  std::array<int, 2> ends_{-1, -1};
};

struct Pipes {
  Pipe input, output, error;
  Pipe start_failure;  ///< carries errno if the program cannot be started; is closed if it can
};

[[noreturn]] void become_program(const std::vector<std::string>& arguments, const CommandOptions& options,
                                 const Pipes& pipes) {
  setpgid(0, 0);
  dup2(pipes.input.reading(), STDIN_FILENO);
  dup2(pipes.output.writing(), STDOUT_FILENO);
  dup2(pipes.error.writing(), STDERR_FILENO);
  for (const std::string& name : options.unset) unsetenv(name.c_str());
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);

  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  if (!options.working_directory || chdir(options.working_directory->c_str()) == 0) execvp(argv[0], argv.data());

  const int reason = errno;
  [[maybe_unused]] const ssize_t written = write(pipes.start_failure.writing(), &reason, sizeof reason);
  _exit(kCannotStart);
}

int remaining_ms(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left > 0 ? static_cast<int>(left) : 0;
}

/// Appends the available input; false at the end of the stream.
bool read_some(int descriptor, std::string& text) {
  std::array<char, 65536> buffer;
  const ssize_t count = read(descriptor, buffer.data(), buffer.size());
  if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

/// Writes as much as the pipe accepts; false if nothing is left to write or nobody reads.
bool write_some(int descriptor, std::string_view& text) {
  const ssize_t count = write(descriptor, text.data(), text.size());
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  text.remove_prefix(static_cast<std::size_t>(count));
  return !text.empty();
}

/// Serves the program's streams until it has closed both outputs; false if the deadline passed first.
bool exchange(Pipes& pipes, std::string_view input, Clock::time_point deadline, CommandResult& result) {
  fcntl(pipes.input.writing(), F_SETFL, O_NONBLOCK);
  if (input.empty()) pipes.input.close_writing();
  while (pipes.output.reading() >= 0 || pipes.error.reading() >= 0) {
    // poll ignores negative descriptors.
    std::array<pollfd, 3> waits{
        {{pipes.output.reading(), POLLIN, 0}, {pipes.error.reading(), POLLIN, 0}, {pipes.input.writing(), POLLOUT, 0}}};
    const int ready = poll(waits.data(), waits.size(), remaining_ms(deadline));
    if (ready == 0) return false;
    if (ready < 0) {
      if (errno != EINTR) fail("poll");
      continue;
    }
    if (waits[0].revents != 0 && !read_some(pipes.output.reading(), result.standard_output)) {
      pipes.output.close_reading();
    }
    if (waits[1].revents != 0 && !read_some(pipes.error.reading(), result.standard_error)) pipes.error.close_reading();
    if (waits[2].revents != 0 && !write_some(pipes.input.writing(), input)) pipes.input.close_writing();
  }
  return true;
}

/// Waits for the program itself to exit; false if the deadline passed first. Closed streams do not imply that it has
/// ended.
bool wait_until(pid_t child, Clock::time_point deadline, int& status) {
  for (;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return true;
    if (ended < 0 && errno != EINTR) fail("waitpid");
    if (Clock::now() >= deadline) return false;
    usleep(500);
  }
}

int exit_code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void throw_if_not_started(Pipes& pipes, pid_t child, const std::string& program) {
  int reason = 0;
  if (read(pipes.start_failure.reading(), &reason, sizeof reason) != sizeof reason) return;
  waitpid(child, nullptr, 0);
  errno = reason;
  fail("cannot start " + program);
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& arguments, const CommandOptions& options) {
  if (arguments.empty()) throw std::runtime_error("run_command: no program named");
  // A program that does not read all of its input must not kill the test.
  signal(SIGPIPE, SIG_IGN);
  Pipes pipes;
  const auto deadline = Clock::now() + options.timeout;
  const pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    signal(SIGPIPE, SIG_DFL);
    become_program(arguments, options, pipes);
  }
  setpgid(child, child);
  pipes.input.close_reading();
  pipes.output.close_writing();
  pipes.error.close_writing();
  pipes.start_failure.close_writing();
  throw_if_not_started(pipes, child, arguments.front());

  CommandResult result;
  int status = 0;
  if (!exchange(pipes, options.standard_input, deadline, result) || !wait_until(child, deadline, status)) {
    result.timed_out = true;
    kill(-child, SIGKILL);
    waitpid(child, &status, 0);
  }
  result.exit_code = exit_code_of(status);
  return result;
}

CommandResult start_flopcast(std::vector<std::string> arguments, const CommandOptions& options) {
  arguments.insert(arguments.begin(), FLOPCAST_PROGRAM);
  return run_command(arguments, options);
}

}  // namespace flopcast
