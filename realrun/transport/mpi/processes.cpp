#include "realrun/transport/mpi/processes.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "realrun/transport/mpi/mpi_calls.hpp"

namespace flopcast::realrun {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestMessage = 4000;  // travels at once: below the eager limits of all MPI libraries

std::atomic<bool> told_to_stop = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

void note_termination(int /*signal*/) {
  told_to_stop = true;
}

void catch_termination() {
  struct sigaction action = {};
  action.sa_handler = note_termination;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

Processes::Initialized::Initialized() {
  MPI_Init(nullptr, nullptr);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  // Waits sleep for microseconds; the system's usual slack of 50 would triple them.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

Processes::Processes() : heard_(kLongestMessage) {
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "tell a rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &count_), "count the processes");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &words_), "copy a communicator");
  check_mpi(MPI_Irecv(heard_.data(), static_cast<int>(heard_.size()), MPI_CHAR, MPI_ANY_SOURCE, 0, words_, &hearing_),
            "listen");
  catch_termination();
}

Processes::~Processes() {
  if (!failure_.empty()) return;
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
  if (failure_.empty()) look_for_the_dead();
  if (failure_.empty() && told_to_stop) {
    failure_ = fmt::format("rank {} was told to stop by a signal in {}", rank_, to_string(*board_.activity_of(rank_)));
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

void Processes::look_for_the_dead() {
  const Clock::time_point now = Clock::now();
  if (now - looked_ < std::chrono::milliseconds(50) && !told_to_stop) return;
  looked_ = now;
  std::string text;
  for (const int rank : board_.dead()) {
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
        "tell of a failure");
  }
}

void Processes::end(int exit_code) {
  std::fflush(nullptr);
  // Time for the words to arrive, for those who print to be read, and for rank 0 to write its file.
  const auto patience = rank_ == 0 ? std::chrono::milliseconds(200) : std::chrono::milliseconds(3000);
  const Clock::time_point deadline = Clock::now() + patience;
  while (Clock::now() < deadline && (rank_ == 0 || !told_to_stop)) {
    int sent = 0;
    MPI_Testall(static_cast<int>(telling_.size()), telling_.data(), &sent, MPI_STATUSES_IGNORE);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (told_to_stop) {
    // What a process has said on its end gets lost when it leaves before mpirun has read it.
    if (tells_) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    _exit(exit_code);
  }
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  _exit(exit_code);
}

}  // namespace flopcast::realrun
