#include "realrun/transport/mpi/processes.hpp"

#include <fmt/format.h>
#include <mpi.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "base/host/guard.hpp"
#include "base/host/processes.hpp"
#include "base/text/error.hpp"
#include "realrun/rendezvous/meeting.hpp"

namespace flopcast::realrun {

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw EnvironmentError(
      fmt::format("MPI failed to {}: {}", what, std::string(text.data(), static_cast<std::size_t>(length))));
}

namespace {

int count_of(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw EnvironmentError(fmt::format("a message of {} bytes exceeds MPI's limit (2 GiB)", bytes));
  }
  return static_cast<int>(bytes);
}

}  // namespace

MPI_Request send_bytes(const std::byte* address, std::size_t bytes, int to, int tag, MPI_Comm channel) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(address, count_of(bytes), MPI_BYTE, to, tag, channel, &request), "send");
  return request;
}

MPI_Request receive_bytes(std::byte* address, std::size_t bytes, int from, int tag, MPI_Comm channel) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(address, count_of(bytes), MPI_BYTE, from, tag, channel, &request), "receive");
  return request;
}

bool has_ended(MPI_Request& request) {
  int done = 0;
  check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "progress");
  return done != 0;
}

bool has_received(MPI_Request& request, std::size_t bytes) {
  int done = 0;
  MPI_Status status;
  check_mpi(MPI_Test(&request, &done, &status), "receive");
  if (done == 0) return false;
  int count = 0;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "receive");
  FLOPCAST_CHECK(static_cast<std::size_t>(count) == bytes);
  return true;
}

int largest_tag() {
  void* value = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&value), &found),
            "report its largest tag");
  constexpr int kPromised = 32767;
  return found != 0 ? *static_cast<const int*>(value) : kPromised;
}

namespace {

std::uint64_t pack(const Activity& activity) {
  return static_cast<std::uint64_t>(activity.kind) << 56U | static_cast<std::uint64_t>(activity.action.kind) << 48U |
         static_cast<std::uint64_t>(activity.action.stage) << 32U | activity.action.microbatch;
}

Activity unpack(std::uint64_t word) {
  Activity activity;
  activity.kind = static_cast<Activity::Kind>(word >> 56U);
  activity.action.kind = static_cast<ActionKind>(word >> 48U & 0xFFU);
  activity.action.stage = static_cast<std::uint16_t>(word >> 32U);
  activity.action.microbatch = static_cast<std::uint32_t>(word);
  return activity;
}

// Ranks in the world, by rank on this machine.
std::vector<int> world_ranks(MPI_Comm machine) {
  MPI_Group here = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  int count = 0;
  check_mpi(MPI_Comm_size(machine, &count), "count the processes of this machine");
  check_mpi(MPI_Comm_group(machine, &here), "name the processes of this machine");
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "name the processes");
  std::vector<int> local(static_cast<std::size_t>(count));
  std::iota(local.begin(), local.end(), 0);
  std::vector<int> ranks(local.size());
  check_mpi(MPI_Group_translate_ranks(here, count, local.data(), world, ranks.data()), "name the processes");
  MPI_Group_free(&here);
  MPI_Group_free(&world);
  return ranks;
}

}  // namespace

ActivityBoard::ActivityBoard() {
  int ranks = 0;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "count the processes");
  entries_.resize(static_cast<std::size_t>(ranks));
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine_),
            "find the processes of this machine");
  check_mpi(MPI_Win_allocate_shared(sizeof(Entry), 1, MPI_INFO_NULL, machine_, static_cast<void*>(&own_), &window_),
            "share memory");
  own_ = new (own_) Entry{0, getpid()};
  check_mpi(MPI_Barrier(machine_), "meet");
  const std::vector<int> here = world_ranks(machine_);
  for (std::size_t place = 0; place < here.size(); ++place) {
    MPI_Aint bytes = 0;
    int unit = 0;
    Entry* address = nullptr;
    check_mpi(MPI_Win_shared_query(window_, static_cast<int>(place), &bytes, &unit, static_cast<void*>(&address)),
              "share memory");
    entries_[static_cast<std::size_t>(here[place])] = address;
  }
}

void ActivityBoard::take_down() {
  MPI_Win_free(&window_);
  MPI_Comm_free(&machine_);
}

void ActivityBoard::note(const Activity& activity) {
  own_->activity.store(pack(activity), std::memory_order_relaxed);
}

std::optional<Activity> ActivityBoard::activity_of(int rank) const {
  if (!is_here(rank)) return std::nullopt;
  return unpack(entry(rank)->activity.load(std::memory_order_relaxed));
}

bool ActivityBoard::is_alive(const Entry& entry, Look look) {
  const auto process = static_cast<pid_t>(entry.process.load(std::memory_order_relaxed));
  if (kill(process, 0) != 0) return errno != ESRCH;
  if (look == Look::kQuick) return true;
  const char state = state_of_process(process);
  return state != 'Z' && state != 'X';
}

std::vector<int> ActivityBoard::dead(std::size_t look) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(entries_.size()); ++rank) {
    const std::optional<Activity> last = activity_of(rank);
    if (!last || last->kind == Activity::Kind::kDone) continue;
    const bool is_next = look % entries_.size() == static_cast<std::size_t>(rank);
    if (!is_alive(*entry(rank), is_next ? Look::kClose : Look::kQuick)) ranks.push_back(rank);
  }
  return ranks;
}

int ActivityBoard::first_alive() const {
  for (std::size_t rank = 0; rank < entries_.size(); ++rank) {
    if (entries_[rank] != nullptr && is_alive(*entries_[rank], Look::kClose)) return static_cast<int>(rank);
  }
  return 0;
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestMessage = 4000;  // sent immediately: below the eager limits of all MPI libraries

std::atomic<bool> told_to_stop = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

void note_termination(int /*signal*/) {
  told_to_stop = true;
}

void catch_termination() {
  struct sigaction action = {};
  action.sa_handler = note_termination;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaction(signal, &action, nullptr);
}

}  // namespace

std::function<void()> exit_reporting(std::function<std::string()> stuck) {
  return [stuck = std::move(stuck)] {
    print_error("error: " + stuck());
    std::fflush(nullptr);
    std::_Exit(kEnvironmentFailed);
  };
}

namespace {

// Rank according to the launcher's environment, which is known before MPI is initialised.
std::optional<int> launched_rank(const std::function<const char*(const char*)>& variable) {
  try {
    const std::optional<Launched> launched = launched_by(variable);
    return launched ? std::optional(launched->place.rank) : std::nullopt;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

int own_launched_rank() {
  return launched_rank([](const char* name) -> const char* { return std::getenv(name); }).value_or(0);
}

std::optional<int> rank_of_process(pid_t process) {
  std::ifstream stream(fmt::format("/proc/{}/environ", process), std::ios::binary);
  std::map<std::string, std::string> environment;
  for (std::string word; std::getline(stream, word, '\0');) {
    const std::size_t sign = word.find('=');
    if (sign != std::string::npos) environment[word.substr(0, sign)] = word.substr(sign + 1);
  }
  return launched_rank([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

}  // namespace

std::string stopped_ranks() {
  std::string text;
  for (const pid_t process : descendants_of(getppid())) {
    if (state_of_process(process) != 'T') continue;
    if (const std::optional<int> rank = rank_of_process(process)) text += fmt::format("; rank {} is stopped", *rank);
  }
  return text;
}

namespace {

// Time limit for calls that start and end processes, which takes time on few cores.
std::chrono::milliseconds patience_with_starts(std::chrono::milliseconds patience) {
  constexpr auto kFirst = std::chrono::seconds(5);
  constexpr auto kEach = std::chrono::milliseconds(500);
  return patience + kFirst + kEach * launched_processes();
}

// Staggers the ranks' time limits: ranks that give up at the same time would all report.
std::chrono::milliseconds in_turn(std::chrono::milliseconds patience, int rank) {
  constexpr int kTurns = 20;
  return patience + std::chrono::milliseconds(50 * (rank % kTurns));
}

std::function<void()> stuck_in(const char* call, std::chrono::milliseconds patience) {
  return exit_reporting([call, patience] {
    return fmt::format("rank {} is stuck in {}: it has waited {} ms for the other processes{}", own_launched_rank(),
                       call, patience.count(), stopped_ranks());
  });
}

}  // namespace

Processes::Initialized::Initialized() {
  // Until MPI runs, a signal simply ends the process; later the process first reports its activity.
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) std::signal(signal, SIG_DFL);
  MPI_Init(nullptr, nullptr);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  // Waits sleep for microseconds; the system's default slack of 50 would triple them.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

Processes::Processes(std::chrono::milliseconds patience)
    : patience_(patience_with_starts(patience)),
      limit_(std::in_place, in_turn(patience_, own_launched_rank()), stuck_in("its set-up, MPI_Init", patience_)),
      heard_(kLongestMessage) {
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "report a rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &count_), "count the processes");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &words_), "copy a communicator");
  check_mpi(MPI_Irecv(heard_.data(), static_cast<int>(heard_.size()), MPI_CHAR, MPI_ANY_SOURCE, 0, words_, &hearing_),
            "listen");
  catch_termination();
  limit_.reset();
}

Processes::~Processes() {
  if (!failure_.empty()) return;
  const Watchdog limit(in_turn(patience_, rank_), stuck_in("MPI_Finalize", patience_));
  MPI_Cancel(&hearing_);
  MPI_Wait(&hearing_, MPI_STATUS_IGNORE);
  MPI_Comm_free(&words_);
  board_.take_down();
  MPI_Finalize();
}

std::string Processes::whereabouts(int rank) const {
  const std::optional<Activity> activity = board_.activity_of(rank);
  return activity ? fmt::format("rank {}, which is in {}", rank, to_string(*activity))
                  : fmt::format("rank {}, which is on another machine", rank);
}

void Processes::watch() {
  if (failure_.empty()) listen();
  if (failure_.empty()) check_for_dead_processes();
  if (failure_.empty() && told_to_stop) {
    failure_ = fmt::format("rank {} was stopped by a signal in {}", rank_, to_string(*board_.activity_of(rank_)));
    tells_ = rank_ == board_.first_alive();
  }
  if (!failure_.empty()) throw Aborted(failure_);
}

void Processes::listen() {
  const Clock::time_point now = Clock::now();
  if (now - listened_ < std::chrono::milliseconds(1)) return;
  listened_ = now;
  int heard = 0;
  MPI_Status status;
  check_mpi(MPI_Test(&hearing_, &heard, &status), "listen");
  if (heard == 0) return;
  int length = 0;
  check_mpi(MPI_Get_count(&status, MPI_CHAR, &length), "listen");
  failure_.assign(heard_.data(), static_cast<std::size_t>(length));
}

void Processes::check_for_dead_processes() {
  const Clock::time_point now = Clock::now();
  if (now - looked_ < std::chrono::milliseconds(50) && !told_to_stop) return;
  looked_ = now;
  std::string text;
  for (const int rank : board_.dead(looks_++)) {
    text +=
        fmt::format("{}rank {} has died in {}", text.empty() ? "" : ", ", rank, to_string(*board_.activity_of(rank)));
  }
  if (text.empty()) return;
  if (rank_ == board_.first_alive()) {
    report_failure(text);
  } else {
    failure_ = text;
  }
}

void Processes::report_failure(const std::string& message) {
  if (!failure_.empty()) return;
  failure_ = message.substr(0, kLongestMessage);
  tells_ = true;
  for (int other = 0; other < count_; ++other) {
    if (other == rank_) continue;
    telling_.emplace_back();
    check_mpi(
        MPI_Isend(failure_.data(), static_cast<int>(failure_.size()), MPI_CHAR, other, 0, words_, &telling_.back()),
        "send a failure");
  }
}

// If mpirun receives a stop signal, it gives its ranks a second; otherwise it ends all as soon as one exits. So the
// rank that has reported and keeps the file exits first.
void Processes::end_when_stopped(int exit_code) {
  constexpr auto kUntilRead = std::chrono::milliseconds(100);
  constexpr auto kPatience = std::chrono::milliseconds(700);
  std::this_thread::sleep_for(tells_ || rank_ == 0 ? kUntilRead : kPatience);
  _exit(exit_code);
}

void Processes::end(int exit_code) {
  std::fflush(nullptr);
  // Allows time for the messages to arrive, for printed output to be read, and for rank 0 to write its file.
  const auto patience = rank_ == 0 ? std::chrono::milliseconds(200) : std::chrono::milliseconds(3000);
  const Clock::time_point deadline = Clock::now() + patience;
  while (Clock::now() < deadline && (rank_ == 0 || !told_to_stop)) {
    int sent = 0;
    MPI_Testall(static_cast<int>(telling_.size()), telling_.data(), &sent, MPI_STATUSES_IGNORE);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (told_to_stop) end_when_stopped(exit_code);
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  _exit(exit_code);
}

std::optional<std::string> broadcast_by_mpi(int rank, int ranks, const std::string& given) {
  constexpr std::size_t kLongest = 512;
  FLOPCAST_CHECK(given.size() < kLongest);
  if (MPI_Init(nullptr, nullptr) != MPI_SUCCESS) return std::nullopt;
  int own = 0;
  int count = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &own);
  MPI_Comm_size(MPI_COMM_WORLD, &count);
  std::array<char, kLongest> text{};
  const bool together = own == rank && count == ranks;
  // MPI itself ends the processes if one of them does not take part.
  if (together) {
    std::copy(given.begin(), given.end(), text.begin());
    MPI_Bcast(text.data(), static_cast<int>(text.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  }
  MPI_Finalize();
  if (!together) return std::nullopt;
  return std::string(text.data());
}

}  // namespace flopcast::realrun
