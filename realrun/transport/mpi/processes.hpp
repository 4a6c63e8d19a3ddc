#pragma once

#include <mpi.h>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "realrun/device/device.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// Throws EnvironmentError with MPI's own words when a call did not succeed; `what` completes "MPI failed to …".
void check_mpi(int code, const char* what);

/// MPI_Isend and MPI_Irecv of bytes. Throws EnvironmentError for more than MPI can count (2 GiB).
MPI_Request send_bytes(const std::byte* address, std::size_t bytes, int to, int tag, MPI_Comm channel);
MPI_Request receive_bytes(std::byte* address, std::size_t bytes, int from, int tag, MPI_Comm channel);

/// Whether the operation has ended. A receive must have brought exactly `bytes`.
bool has_ended(MPI_Request& request);
bool has_received(MPI_Request& request, std::size_t bytes);

/// The largest tag of an MPI library; at least 32767.
int largest_tag();

/// What each process of this machine is at, in memory that they share: it can be read of a process that hangs or that
/// has died. Nothing is known of processes on other machines.
class ActivityBoard {
 public:
  /// Called by all processes of MPI_COMM_WORLD.
  ActivityBoard();
  ActivityBoard(const ActivityBoard&) = delete;
  ActivityBoard& operator=(const ActivityBoard&) = delete;
  ~ActivityBoard() = default;

  /// Called by all, before MPI_Finalize.
  void take_down();

  bool is_here(int rank) const { return entry(rank) != nullptr; }
  void note(const Activity& activity);
  /// Of a process on this machine.
  std::optional<Activity> activity_of(int rank) const;
  /// Processes of this machine that have ended in the middle of their work. One that nobody has asked how it ended is
  /// still listed by the system, and found out by reading what that says of it: of one rank a call, which `look`, a
  /// number that grows, chooses.
  std::vector<int> dead(std::size_t look) const;
  /// The lowest rank on this machine that lives.
  int first_alive() const;

 private:
  struct Entry {
    std::atomic<std::uint64_t> activity;
    std::atomic<std::int64_t> process;
  };
  const Entry* entry(int rank) const { return entries_.at(static_cast<std::size_t>(rank)); }
  enum class Look { kQuick, kClose };
  static bool is_alive(const Entry& entry, Look look);

  MPI_Comm machine_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  Entry* own_ = nullptr;
  std::vector<const Entry*> entries_;  // by rank of the world; null on other machines
};

/// "; rank 2 is stopped" of the ranks on this machine that the system has stopped (SIGSTOP); empty where none is.
std::string stopped_ranks();

/// Ends the process with exit code 4 and what `stuck` says: for a Watchdog over calls of MPI that wait for other
/// processes, and that nobody can call back.
std::function<void()> end_saying(std::function<std::string()> stuck);

/// The processes that mpirun or srun started together, and how they end when one of them fails. MPI promises nothing
/// after a failure, so the way out uses little of it:
///   - who fails, or gives up waiting, sends its words to all others and throws;
///   - when a process dies, the first that lives on its machine finds out and does so; mpirun would leave a second, and
///     then end them all;
///   - everybody learns of it in its next watch(); rank 0 writes what was measured, and ends all by MPI_Abort.
/// One object a process, made before anything else of MPI and destroyed last.
class Processes {
 public:
  /// MPI_Init, and what it takes to know each other; that and MPI_Finalize have the limit too.
  explicit Processes(std::chrono::milliseconds patience = std::chrono::seconds(60));
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  /// MPI_Finalize, unless the run is lost.
  ~Processes();

  int rank() const { return rank_; }
  int count() const { return count_; }
  ActivityBoard& board() { return board_; }
  /// "rank 3, which is in 1F0"; without the action where it is not known.
  std::string whereabouts(int rank) const;

  /// Throws Aborted when the run is lost. Cheap: listens once a millisecond, and looks for the dead every 50.
  void watch();
  /// Ends the run with this message, unless it is lost already; the others learn of it.
  void report_failure(const std::string& message);
  /// Empty as long as the run goes well.
  const std::string& failure() const { return failure_; }
  /// Whether it is this process that tells the user about the failure.
  bool tells() const { return tells_; }
  /// After a failure: returns never. Rank 0 ends all processes, the others wait until it does.
  [[noreturn]] void end(int exit_code);

 private:
  void listen();
  void look_for_the_dead();
  void end_when_stopped(int exit_code);

  // MPI_Init comes before the board's own calls.
  struct Initialized {
    Initialized();
  };
  std::chrono::milliseconds patience_;
  std::optional<Watchdog> limit_;  // until all are there
  Initialized initialized_;
  ActivityBoard board_;
  MPI_Comm words_ = MPI_COMM_NULL;  // failures, from whoever has one
  MPI_Request hearing_ = MPI_REQUEST_NULL;
  std::vector<char> heard_;
  std::vector<MPI_Request> telling_;
  int rank_ = 0;
  int count_ = 1;
  std::string failure_;
  bool tells_ = false;
  std::chrono::steady_clock::time_point listened_;
  std::chrono::steady_clock::time_point looked_;
  std::size_t looks_ = 0;
};

}  // namespace flopcast::realrun
