#include "realrun/transport/mpi/activity_board.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <numeric>

#include "realrun/transport/mpi/mpi_calls.hpp"

namespace flopcast::realrun {

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

// Ranks of the world, by rank on this machine.
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

bool ActivityBoard::is_alive(const Entry& entry) {
  return kill(static_cast<pid_t>(entry.process.load(std::memory_order_relaxed)), 0) == 0 || errno != ESRCH;
}

std::vector<int> ActivityBoard::dead() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(entries_.size()); ++rank) {
    const std::optional<Activity> last = activity_of(rank);
    if (last && last->kind != Activity::Kind::kDone && !is_alive(*entry(rank))) ranks.push_back(rank);
  }
  return ranks;
}

int ActivityBoard::first_alive() const {
  for (std::size_t rank = 0; rank < entries_.size(); ++rank) {
    if (entries_[rank] != nullptr && is_alive(*entries_[rank])) return static_cast<int>(rank);
  }
  return 0;
}

}  // namespace flopcast::realrun
