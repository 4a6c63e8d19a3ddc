#include "base/host/processes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"

namespace flopcast {
namespace {

volatile std::sig_atomic_t signal_of_others = 0;
volatile std::sig_atomic_t signal_of_terminal = 0;

extern "C" void note_signal(int signal, siginfo_t* info, void* /*context*/) {
  (info->si_code == SI_KERNEL ? signal_of_terminal : signal_of_others) = signal;
}

constexpr std::array<int, 3> kHandedOn = {SIGINT, SIGTERM, SIGHUP};

/// Signal handling while a child runs, restored afterwards. Signals stay blocked until the child has started.
class SignalsForChild {
 public:
  SignalsForChild() {
    forget();
    sigset_t waiting;
    sigemptyset(&waiting);
    for (const int signal : kHandedOn) sigaddset(&waiting, signal);
    sigprocmask(SIG_BLOCK, &waiting, &mask_);
    struct sigaction action {};
    action.sa_sigaction = note_signal;
    action.sa_flags = SA_SIGINFO;
    for (std::size_t at = 0; at < kHandedOn.size(); ++at) {
      sigaction(kHandedOn[at], nullptr, &before_[at]);
      if (!is_ignored(at)) sigaction(kHandedOn[at], &action, nullptr);
    }
  }
  SignalsForChild(const SignalsForChild&) = delete;
  SignalsForChild& operator=(const SignalsForChild&) = delete;
  ~SignalsForChild() {
    for (std::size_t at = 0; at < kHandedOn.size(); ++at) sigaction(kHandedOn[at], &before_[at], nullptr);
    release();
  }

  void release() const { sigprocmask(SIG_SETMASK, &mask_, nullptr); }
  /// Called in the child before exec.
  void restore() const {
    for (std::size_t at = 0; at < kHandedOn.size(); ++at) ::signal(kHandedOn[at], is_ignored(at) ? SIG_IGN : SIG_DFL);
    release();
  }
  /// Last signal since the previous call that did not reach the child directly; 0: none.
  static int taken(bool of_terminal_too) {
    const int signal = signal_of_others != 0 ? signal_of_others : of_terminal_too ? signal_of_terminal : 0;
    if (signal != 0) forget();
    return signal;
  }

 private:
  // Signals ignored by the parent of this program, as under nohup, stay ignored.
  bool is_ignored(std::size_t at) const { return before_[at].sa_handler == SIG_IGN; }
  static void forget() {
    signal_of_others = 0;
    signal_of_terminal = 0;
  }

  sigset_t mask_{};
  std::array<struct sigaction, kHandedOn.size()> before_{};
};

constexpr int kCannotStart = 127;

// Uses fork, because a child must itself request to be terminated with its parent.
pid_t start(const std::vector<std::string>& words, const Streams& streams, int err, bool apart,
            const SignalsForChild& signals) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  if (access(arguments.front(), X_OK) != 0) throw EnvironmentError(fmt::format("cannot start {}", words.front()));
  const int out = fileno(streams.out);
  FLOPCAST_CHECK(out >= 0 && err >= 0);
  for (const int stream : {out, err}) {
    if (fcntl(stream, F_GETFD) < 0)
      throw EnvironmentError(
          fmt::format("cannot write to standard {}: {}", stream == out ? "output" : "error", std::strerror(errno)));
  }
  std::fflush(streams.out);
  std::fflush(streams.err);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw EnvironmentError(fmt::format("cannot start {}: {}", words.front(), std::strerror(errno)));
  if (child > 0) return child;
  // The child gets SIGTERM if the parent is killed, so that no process remains; a launcher ends its ranks in turn.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (apart) {
    // A background process group would be stopped for reading from the terminal.
    setpgid(0, 0);
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  }
  signals.restore();
  const bool has_streams = dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0;
  if (has_streams && getppid() == parent) execv(arguments.front(), arguments.data());
  _exit(kCannotStart);
}

/// The error stream of a launcher, forwarded line by line.
class ErrorLines {
 public:
  explicit ErrorLines(std::FILE* shown) : shown_(shown) {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0)
      throw EnvironmentError(fmt::format("cannot create a pipe: {}", std::strerror(errno)));
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  }
  ErrorLines(const ErrorLines&) = delete;
  ErrorLines& operator=(const ErrorLines&) = delete;
  ~ErrorLines() {
    for (const int end : ends_) {
      if (end >= 0) close(end);
    }
  }

  int reading() const { return ends_[0]; }
  int writing() const { return ends_[1]; }
  void close_writing() {
    close(ends_[1]);
    ends_[1] = -1;
  }
  /// Reads what is available.
  void read_on(ChildEnd& end) {
    std::array<char, 4096> piece{};
    ssize_t count = 0;
    while (ends_[0] >= 0 && (count = read(ends_[0], piece.data(), piece.size())) != 0) {
      if (count < 0) return;
      line_.append(piece.data(), static_cast<std::size_t>(count));
      for (std::size_t stop = 0; (stop = line_.find('\n')) != std::string::npos;) {
        show(line_.substr(0, stop + 1), end);
        line_.erase(0, stop + 1);
      }
    }
    // All writers have closed the pipe; poll would return at once from now on.
    if (ends_[0] >= 0) close(std::exchange(ends_[0], -1));
  }
  /// Shows the final line, which may lack a newline.
  void finish(ChildEnd& end) {
    read_on(end);
    if (!line_.empty()) show(line_, end);
    line_.clear();
  }

 private:
  void show(const std::string& line, ChildEnd& end) {
    const bool bug = line.rfind("internal error:", 0) == 0;
    const bool report = bug || line.rfind("error:", 0) == 0;
    end.saw_bug = end.saw_bug || bug;
    end.saw_error = end.saw_error || report;
    if (report && !complaints_.insert(line).second) return;
    std::fputs(line.c_str(), shown_);
    std::fflush(shown_);
  }

  std::FILE* shown_;
  std::array<int, 2> ends_{-1, -1};
  std::string line_;
  std::set<std::string> complaints_;
};

using Steady = std::chrono::steady_clock;

/// Supervises a child until it ends.
class ChildWatch {
 public:
  ChildWatch(pid_t child, const ChildRules& rules, ChildEnd& end) : child_(child), rules_(rules), end_(end) {}

  void look() {
    const Steady::time_point now = Steady::now();
    hand_on(now);
    if (rules_.longest_stop && now - looked_ >= kEvery) look_for_stops(now);
  }

 private:
  static constexpr auto kEvery = std::chrono::milliseconds(100);
  static constexpr auto kUntilHarder = std::chrono::seconds(3);

  bool is_launcher() const { return !rules_.launches.empty(); }
  std::vector<pid_t> workers() const {
    if (!is_launcher()) return {child_};
    const std::vector<pid_t> workers = with_program(rules_.launches, descendants_of(child_));
    return workers.empty() ? std::vector<pid_t>{child_} : workers;
  }
  void hand_on(Steady::time_point now) {
    if (const int signal = SignalsForChild::taken(is_launcher())) {
      end_.handed_on = signal;
      for (const pid_t process : workers()) kill(process, signal);
      harder_ = now + kUntilHarder;
    }
    if (!is_launcher() || !harder_ || now < *harder_) return;
    if (tried_launcher_) return kill_all();
    tried_launcher_ = true;
    kill(child_, SIGTERM);
    harder_ = now + kUntilHarder;
  }
  // Time during which this process itself was stopped does not count against the child.
  void look_for_stops(Steady::time_point now) {
    constexpr auto kUntilEnd = std::chrono::seconds(5);
    const Steady::duration since = std::min<Steady::duration>(now - looked_, 2 * kEvery);
    looked_ = now;
    const auto lasts = [since](bool holds, Steady::duration& so_far) {
      so_far = holds ? so_far + since : Steady::duration{};
      return so_far;
    };
    const bool stopped = state_of_process(child_) == 'T' || are_stopped(workers());
    const bool is_alone = lists_descendants_ && descendants_of(child_).empty();
    const bool should_end = is_launcher() && (end_.saw_error || is_alone);
    if (lasts(stopped, stopped_for_) > *rules_.longest_stop) end_.was_stopped = true;
    if (lasts(should_end, left_for_) > *rules_.longest_stop + kUntilEnd) end_.outlived_workers = true;
    if (end_.was_stopped || end_.outlived_workers) kill_all();
  }
  void kill_all() const {
    for (const pid_t process : descendants_of(child_)) kill(process, SIGKILL);
    kill(child_, SIGKILL);
  }

  pid_t child_;
  bool lists_descendants_ = lists_descendants();
  const ChildRules& rules_;
  ChildEnd& end_;
  std::optional<Steady::time_point> harder_;
  bool tried_launcher_ = false;
  Steady::time_point looked_ = Steady::now();
  Steady::duration stopped_for_{};
  Steady::duration left_for_{};
};

// Returns after a moment, or when either descriptor becomes readable; descriptors of -1 are ignored.
void wait_a_moment(int ended, int lines) {
  constexpr int kMilliseconds = 50;
  constexpr int kWithoutDescriptor = 5;  // poll interval without pidfd support
  std::array<pollfd, 2> watched = {{{ended, POLLIN, 0}, {lines, POLLIN, 0}}};
  poll(watched.data(), watched.size(), ended >= 0 ? kMilliseconds : kWithoutDescriptor);
}

int descriptor_of_process(pid_t process) {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, process, 0));
#else
  return -1;
#endif
}

using Variable = std::function<const char*(const char*)>;

constexpr int kLargestPort = 65535;
constexpr int kMostRanks = 1'000'000;

int whole(const std::string& field, const std::string& text, int smallest, int largest) {
  const std::optional<std::int64_t> value = parse_whole(text);
  if (!value || *value < smallest || *value > largest) {
    throw ConfigError(
        {field, fmt::format("\"{}\" is not a whole number from {} to {}", text, smallest, largest), field, {}});
  }
  return static_cast<int>(*value);
}

struct Names {
  const char* rank;
  const char* ranks;
  const char* local_rank;
  const char* sign = nullptr;  // variable set only by this launcher; others may set its rank variables too
};

// Slurm comes last: processes that mpirun starts within a Slurm job inherit the variables of mpirun's own job step.
constexpr Names kLaunchers[] = {{"RANK", "WORLD_SIZE", "LOCAL_RANK"},
                                {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
                                {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALRANKID"},
                                {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}};

int required(const Variable& variable, const char* name, int smallest, int largest, const char* because) {
  const char* text = variable(name);
  if (text == nullptr) {
    throw ConfigError({name, fmt::format("is not set, although {} is", because), "environment", {}});
  }
  return whole(name, text, smallest, largest);
}

std::optional<StoreAddress> address_by(const Variable& variable) {
  const char* host = variable("MASTER_ADDR");
  const char* port = variable("MASTER_PORT");
  if (host == nullptr && port == nullptr) return std::nullopt;
  if (host == nullptr) throw ConfigError({"MASTER_ADDR", "is not set, although MASTER_PORT is", "environment", {}});
  if (port == nullptr) throw ConfigError({"MASTER_PORT", "is not set, although MASTER_ADDR is", "environment", {}});
  StoreAddress address{
      .folder = {}, .host = host, .port = whole("MASTER_PORT", port, 1, kLargestPort), .token = store_token(variable)};
  const char* agent = variable("TORCHELASTIC_USE_AGENT_STORE");
  if (agent != nullptr && std::string(agent) == "True") ++address.port;
  return address;
}

}  // namespace

std::string sibling_program(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const std::filesystem::path& candidate : {folder / name, folder.parent_path() / "realrun" / name}) {
    if (access(candidate.c_str(), X_OK) == 0) return candidate.string();
  }
  throw EnvironmentError(fmt::format("{} not found: expected next to {} (build the target {})", name,
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

ChildEnd run_child(const std::vector<std::string>& words, const Streams& streams, const ChildRules& rules) {
  ChildEnd end;
  SignalsForChild signals;
  std::optional<ErrorLines> lines;
  if (!rules.launches.empty()) lines.emplace(streams.err);
  const pid_t child =
      start(words, streams, lines ? lines->writing() : fileno(streams.err), !rules.launches.empty(), signals);
  if (lines) lines->close_writing();
  if (rules.guard != nullptr) rules.guard->take_charge_of(child);
  signals.release();
  const int descriptor = descriptor_of_process(child);
  ChildWatch watch(child, rules, end);
  int status = 0;
  while (true) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) break;
    watch.look();
    if (lines) lines->read_on(end);
    wait_a_moment(descriptor, lines ? lines->reading() : -1);
  }
  if (rules.guard != nullptr) rules.guard->take_charge_of(0);
  if (descriptor >= 0) close(descriptor);
  if (lines) lines->finish(end);
  if (WIFSIGNALED(status)) {
    end.signal = WTERMSIG(status);
  } else {
    end.exit_code = WEXITSTATUS(status);
  }
  return end;
}

std::string store_token(const Variable& variable) {
  for (const char* name : {"FLOPCAST_STORE_TOKEN", "TORCHELASTIC_RUN_ID"}) {
    const char* value = variable(name);
    if (value != nullptr && *value != '\0') return value;
  }
  // Processes that mpirun starts on other machines may not have Slurm's job variables.
  const char* job = variable("SLURM_JOB_ID");
  const bool by_slurm = variable("SLURM_PROCID") != nullptr && variable("OMPI_COMM_WORLD_RANK") == nullptr;
  return job != nullptr && by_slurm ? job : "";
}

bool is_on_one_machine(int ranks, const Variable& variable) {
  for (const char* name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
    const char* value = variable(name);
    if (value != nullptr) return parse_whole(value) == ranks;
  }
  const char* nodes = variable("SLURM_STEP_NUM_NODES");
  return ranks == 1 || (nodes != nullptr && parse_whole(nodes) == 1);
}

StoreAddress parse_store_address(const std::string& text) {
  if (text.rfind("file:", 0) == 0 && text.size() > 5)
    return {.folder = text.substr(5), .host = {}, .port = 0, .token = {}};
  const std::size_t colon = text.rfind(':');
  if (text.rfind("tcp:", 0) == 0 && colon > 4) {
    return {.folder = {},
            .host = text.substr(4, colon - 4),
            .port = whole("--store", text.substr(colon + 1), 1, kLargestPort),
            .token = {}};
  }
  throw ConfigError(
      {"--store", fmt::format("\"{}\" is not an address", text), "--store", "valid: file:FOLDER, tcp:HOST:PORT"});
}

std::optional<Launched> launched_by(const Variable& variable) {
  for (const Names& names : kLaunchers) {
    if (names.sign != nullptr && variable(names.sign) == nullptr) continue;
    if (variable(names.rank) == nullptr) {
      if (variable(names.ranks) == nullptr) continue;
      throw ConfigError({names.rank, fmt::format("is not set, although {} is", names.ranks), "environment", {}});
    }
    Launched launched;
    launched.place.ranks = required(variable, names.ranks, 1, kMostRanks, names.rank);
    launched.place.rank = whole(names.rank, variable(names.rank), 0, launched.place.ranks - 1);
    launched.place.local_rank = required(variable, names.local_rank, 0, launched.place.ranks - 1, names.rank);
    launched.store = address_by(variable);
    return launched;
  }
  return std::nullopt;
}

int launched_processes() {
  std::int64_t processes = 1;
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* value = std::getenv(variable);
    if (value != nullptr) processes = std::max(processes, parse_whole(value).value_or(1));
  }
  return static_cast<int>(processes);
}

}  // namespace flopcast
