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

/// Throws EnvironmentError with MPI's error message if a call failed; `what` completes "MPI failed to …".
void check_mpi(int code, const char* what);

/// MPI_Isend and MPI_Irecv of bytes. Throw EnvironmentError if there are more than MPI can count (2 GiB).
MPI_Request send_bytes(const std::byte* address, std::size_t bytes, int to, int tag, MPI_Comm channel);
MPI_Request receive_bytes(std::byte* address, std::size_t bytes, int from, int tag, MPI_Comm channel);

/// True once the operation has finished. A receive must have brought exactly `bytes`.
bool has_ended(MPI_Request& request);
bool has_received(MPI_Request& request, std::size_t bytes);

/// The largest tag of the MPI library; at least 32767.
int largest_tag();

/// Current activities of this machine's processes, in shared memory: readable even for a process that hangs or has
/// died. Activities of processes on other machines are unknown.
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
  /// Activity of a process on this machine.
  std::optional<Activity> activity_of(int rank) const;
  /// Ranks of this machine's processes that have died during their work. The system still lists a dead process until
  /// its parent has collected its exit status; such a process is found by reading its state. Each call does this for
  /// one rank, selected by the counter `look`.
  std::vector<int> dead(std::size_t look) const;
  /// Lowest rank on this machine whose process is alive.
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

/// "; rank 2 is stopped" for ranks on this machine that the system has stopped (SIGSTOP); empty if there are none.
std::string stopped_ranks();

/// Prints the result of `stuck` and ends the process with exit code 4: for a Watchdog over MPI calls that wait for
/// other processes and cannot be cancelled.
std::function<void()> exit_reporting(std::function<std::string()> stuck);

/// The processes that mpirun or srun started together, and their shutdown when one of them fails. MPI promises nothing
/// after a failure, so the shutdown uses little of it:
///   - a process that fails, or gives up waiting, sends its message to all others and throws;
///   - if a process dies, the first live one on its machine detects it and does the same; mpirun would allow it a
///     second, and then end them all;
///   - all others learn of it in their next watch(); rank 0 writes the measurements, and ends all by MPI_Abort.
/// One object per process, created before any other use of MPI and destroyed last.
class Processes {
 public:
  /// Runs MPI_Init and the setup between the processes; the time limit also applies to both and to MPI_Finalize.
  explicit Processes(std::chrono::milliseconds patience = std::chrono::seconds(60));
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  /// Runs MPI_Finalize, unless the run is lost.
  ~Processes();

  int rank() const { return rank_; }
  int count() const { return count_; }
  ActivityBoard& board() { return board_; }
  /// "rank 3, which is in 1F0"; without the action if that is unknown.
  std::string whereabouts(int rank) const;

  /// Throws Aborted if the run is lost. Cheap: checks for messages once a millisecond, and for dead processes every 50.
  void watch();
  /// Ends the run with this message, unless it is lost already, and notifies the others.
  void report_failure(const std::string& message);
  /// Empty while the run succeeds.
  const std::string& failure() const { return failure_; }
  /// True if this process reports the failure to the user.
  bool tells() const { return tells_; }
  /// Called after a failure; never returns. Rank 0 ends all processes, the others wait until it does.
  [[noreturn]] void end(int exit_code);

 private:
  void listen();
  void check_for_dead_processes();
  void end_when_stopped(int exit_code);

  // MPI_Init must precede the board's calls.
  struct Initialized {
    Initialized();
  };
  std::chrono::milliseconds patience_;
  std::optional<Watchdog> limit_;  // until all have arrived
  Initialized initialized_;
  ActivityBoard board_;
  MPI_Comm words_ = MPI_COMM_NULL;  // failures, from any rank
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
