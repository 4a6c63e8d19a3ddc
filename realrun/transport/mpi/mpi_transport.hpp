#pragma once

#include <mpi.h>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "realrun/transport/mpi/processes.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// This rank's part of one collective in progress.
class GroupOperation;

/// A rank that is a process. MPI libraries make progress only inside their calls, so every wait of this rank, and
/// poke() in between, advances all operations in progress and ends the run (Aborted) if another rank has failed.
///
/// Waits poll, then sleep for some microseconds, so that ranks do not compete for cores if they outnumber them. A group
/// is a tag on a communicator for collectives rather than a communicator, because creating one has no time limit. Tags
/// of messages and of groups wrap around at the library's limit; MPI keeps messages of equal tags in order. Not
/// thread-safe: one thread per process.
class MpiTransport : public RankTransport {
 public:
  /// Called by all processes together; each of them is a rank of the run.
  MpiTransport(Processes& processes, std::chrono::milliseconds patience);
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;
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
  SentTraffic traffic() const override { return traffic_; }
  /// Incremented by every poll of the operations in progress.
  const std::atomic<std::uint64_t>& beats() const { return beats_; }

  /// All ranks' bytes at rank 0, by rank; empty on the others. Called by all ranks; not counted as traffic.
  std::vector<std::vector<std::byte>> gather(const std::vector<std::byte>& own);
  /// At rank 0: the offsets to add to the other ranks' clocks, by rank, to get its own time; see clock_offset(). Clocks
  /// of one machine agree; `measure_all` measures them anyway. Called by all ranks.
  std::vector<Ticks> clock_offsets(Ticks (*clock)(), bool measure_all = false);
  /// Waits until all ranks have arrived and this rank's messages have been received. Called by all ranks at the end of
  /// the run.
  void finish();

 private:
  struct Receive;
  struct Started;
  struct Send {
    MPI_Request request;
    Buffer buffer;
  };
  /// Objects that must stay in place while messages are in progress.
  struct UnderWay {
    std::list<Send> sends;
    std::list<std::shared_ptr<Receive>> receives;
    std::deque<std::shared_ptr<Started>> queue;
    std::shared_ptr<void> kept;  // the operation this rank waits for, if any
  };

  void copy_world(MPI_Comm& channel);
  template <class Ready, class Awaited>
  void wait_until(Ready ready, Awaited awaited);
  void progress();
  void progress_queue();
  void wait_for(const Receive& receive);
  bool has_started(const Group& group) const;
  void execute(const Group& group, const Collective& collective);
  int tag_of(const MessageKey& key) const;
  int tag_of(const Group& group) const { return group.id % largest_tag_; }
  void send_report(int to, std::vector<std::byte> bytes);
  std::vector<std::byte> receive_report(int from, std::size_t size);
  ClockReading ask_for_time(int rank, Ticks (*clock)());
  std::string list_of(const std::vector<int>& ranks) const;

  Processes& processes_;
  std::chrono::milliseconds patience_;
  MPI_Comm messages_ = MPI_COMM_NULL;
  MPI_Comm collectives_ = MPI_COMM_NULL;
  MPI_Comm reports_ = MPI_COMM_NULL;  // results and clocks, not part of the training
  std::atomic<std::uint64_t> beats_ = 0;
  int largest_tag_ = 0;
  int groups_ = 0;
  std::chrono::steady_clock::time_point poked_;
  SentTraffic traffic_;
  std::unique_ptr<UnderWay> under_way_;
};

struct MpiOptions {
  /// How long a rank waits for another before it gives up the run.
  std::chrono::milliseconds patience = std::chrono::seconds(60);
};

/// Runs `body` once in each process, each a rank of the run. Called by all processes. If a rank throws, or waits longer
/// than `patience`, EnvironmentError names it and its action, in every process that learns of it: the run is then over,
/// and so is MPI (Processes::end). A rank that does not return from a computation or from MPI for more than twice the
/// patience, unnoticed by others, reports it and ends the process with exit code 4.
void run_mpi(Processes& processes, const MpiOptions& options, const std::function<void(MpiTransport&)>& body);

}  // namespace flopcast::realrun
