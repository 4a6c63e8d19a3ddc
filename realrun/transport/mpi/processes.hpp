#pragma once

#include <mpi.h>

#include <chrono>
#include <string>
#include <vector>

#include "realrun/transport/mpi/activity_board.hpp"

namespace flopcast::realrun {

/// The processes that mpirun or srun started together, and how they end when one of them fails. MPI promises nothing
/// after a failure, so the way out uses little of it:
///   - who fails, or gives up waiting, sends its words to all others and throws;
///   - when a process dies, the first that lives on its machine finds out and does so; mpirun would leave a second, and
///     then end them all;
///   - everybody learns of it in its next watch(); rank 0 writes what was measured, and ends all by MPI_Abort.
/// One object a process, made before anything else of MPI and destroyed last.
class Processes {
 public:
  Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  Processes(Processes&&) = delete;
  Processes& operator=(Processes&&) = delete;
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

  // MPI_Init comes before the board's own calls.
  struct Initialized {
    Initialized();
  };
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
};

}  // namespace flopcast::realrun
