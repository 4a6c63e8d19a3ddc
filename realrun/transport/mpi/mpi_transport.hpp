#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "realrun/transport/clock_offset.hpp"
#include "realrun/transport/mpi/group_operation.hpp"
#include "realrun/transport/mpi/processes.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// A rank that is a process. MPI libraries progress only inside their calls, so everything under way is looked after
/// whenever this rank waits, and by poke() in between, which ends the run (Aborted) when another rank has failed.
///
/// Waits look, then sleep for some microseconds: ranks that outnumber the cores do not take them from each other.
/// A group is a tag of its own on a communicator for collectives, not a communicator: making one has no time limit.
/// Of the tags that a library offers, those of messages and of groups wrap around; MPI keeps messages of equal tags in
/// order. Thread-safe in nothing: one thread a process.
class MpiTransport : public Transport {
 public:
  /// Made by all processes together, each of which is a rank of the run.
  MpiTransport(Processes& processes, std::chrono::milliseconds patience);
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;
  MpiTransport(MpiTransport&&) = delete;
  MpiTransport& operator=(MpiTransport&&) = delete;
  ~MpiTransport() override;

  int rank() const override { return processes_.rank(); }
  int rank_count() const override { return processes_.count(); }
  Group form_group(Axis axis, const std::vector<int>& members) override;
  void send(int to, const MessageKey& key, const Buffer& buffer) override;
  Request receive(int from, const MessageKey& key, const Buffer& into) override;
  void run(const Group& group, const Collective& collective) override;
  Request start(const Group& group, const Collective& collective) override;
  void wait(const Request& request) override;
  void poke() override;
  void note(const Activity& activity) override { processes_.board().note(activity); }
  Traffic traffic() const override { return traffic_; }
  /// Grows with every look at what is under way.
  const std::atomic<std::uint64_t>& beats() const { return beats_; }

  /// Everybody's bytes at rank 0, by rank; the others get nothing. Called by all ranks; not counted as traffic.
  std::vector<std::vector<std::byte>> gather(const std::vector<std::byte>& own);
  /// At rank 0 what to add to the clocks of the other ranks, by rank, to have them read as its own; see
  /// clock_offset.hpp. Clocks of one machine agree; `measure_all` measures them nevertheless. Called by all ranks.
  std::vector<Ticks> clock_offsets(Ticks (*clock)(), bool measure_all = false);
  /// Waits until all ranks are here and what this one sent has arrived. Called by all ranks at the end of the run.
  void finish();

 private:
  struct Receive;
  struct Started;
  struct Send {
    MPI_Request request;
    Buffer buffer;
  };
  /// What has to stay in place while messages are under way.
  struct UnderWay {
    std::list<Send> sends;
    std::list<std::shared_ptr<Receive>> receives;
    std::deque<std::shared_ptr<Started>> queue;
    std::shared_ptr<void> kept;  // whatever this rank waits for right now
  };

  void copy_world(MPI_Comm& channel);
  template <class Ready, class Awaited>
  void wait_until(Ready ready, Awaited awaited);
  void progress();
  void progress_queue();
  void wait_for(const Receive& receive);
  bool has_started(const Group& group) const;
  void execute(const Group& group, const Collective& collective);
  void count(const Group& group, const Collective& collective, const GroupOperation& operation);
  int tag_of(const MessageKey& key) const;
  int tag_of(const Group& group) const;
  void send_report(int to, std::vector<std::byte> bytes);
  std::vector<std::byte> receive_report(int from, std::size_t size);
  ClockReading ask_for_time(int rank, Ticks (*clock)());
  std::string list_of(const std::vector<int>& ranks) const;

  Processes& processes_;
  std::chrono::milliseconds patience_;
  MPI_Comm messages_ = MPI_COMM_NULL;
  MPI_Comm collectives_ = MPI_COMM_NULL;
  MPI_Comm reports_ = MPI_COMM_NULL;  // results and clocks, beside the run
  std::atomic<std::uint64_t> beats_ = 0;
  int largest_tag_ = 0;
  int groups_ = 0;
  std::chrono::steady_clock::time_point poked_;
  Traffic traffic_;
  std::unique_ptr<UnderWay> under_way_;
};

}  // namespace flopcast::realrun
