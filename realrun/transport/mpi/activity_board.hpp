#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// What each process of this machine is at, in memory that they share: it can be read of a process that hangs or that
/// has died. Nothing is known of processes on other machines.
class ActivityBoard {
 public:
  /// Called by all processes of MPI_COMM_WORLD.
  ActivityBoard();
  ActivityBoard(const ActivityBoard&) = delete;
  ActivityBoard& operator=(const ActivityBoard&) = delete;
  ActivityBoard(ActivityBoard&&) = delete;
  ActivityBoard& operator=(ActivityBoard&&) = delete;
  ~ActivityBoard() = default;

  /// Called by all, before MPI_Finalize.
  void take_down();

  bool is_here(int rank) const { return entry(rank) != nullptr; }
  void note(const Activity& activity);
  /// Of a process on this machine.
  std::optional<Activity> activity_of(int rank) const;
  /// Processes of this machine that have ended in the middle of their work.
  std::vector<int> dead() const;
  /// The lowest rank on this machine that lives.
  int first_alive() const;

 private:
  struct Entry {
    std::atomic<std::uint64_t> activity;
    std::atomic<std::int64_t> process;
  };
  const Entry* entry(int rank) const { return entries_.at(static_cast<std::size_t>(rank)); }
  static bool is_alive(const Entry& entry);

  MPI_Comm machine_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  Entry* own_ = nullptr;
  std::vector<const Entry*> entries_;  // by rank of the world; null on other machines
};

}  // namespace flopcast::realrun
