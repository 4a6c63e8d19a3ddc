#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "realrun/transport/nccl/nccl_api.hpp"
#include "tests/realrun/queued/work_queue.hpp"

namespace flopcast::realrun {

/// A communicator of the fake: its members' operations, one after another.
struct FakeCommunicator;
struct FakeMember;

/// NCCL without GPUs, for ranks that are threads of a process: streams are WorkQueues, which wait for the other members
/// like NCCL's kernels, until all have reached the operation or the communicator is aborted.
class FakeNccl : public NcclApi {
 public:
  std::string version() const override { return "2.0.0"; }
  NcclId new_id() override;
  Communicator join(const NcclId& id, int members, int index, int blocks) override;
  void begin_join(const NcclId& id, int members, int index, int blocks, Communicator& into) override;
  void begin_group() override;
  void end_group() override;
  void send(const Buffer& buffer, int to, Communicator communicator, void* stream) override;
  void receive(const Buffer& into, int from, Communicator communicator, void* stream) override;
  void collect(const Collective& collective, Communicator communicator, void* stream) override;
  std::string error_of(Communicator communicator) override;
  void abort(Communicator communicator) override;
  void leave(Communicator communicator) override;

  /// Gives every communicator this error from here on.
  void break_with(const std::string& error);
  /// An abort returns only once `count` aborts have begun: work that the GPU still runs blocks the first one.
  void hold_aborts_until(int count);
  /// Makes every thread that waits for others to join throw.
  void give_up();
  /// Called first in every send, and in every leave.
  void on_send(std::function<void()> action) { on_send_ = std::move(action); }
  void on_leave(std::function<void()> action) { on_leave_ = std::move(action); }
  /// Communicators created so far.
  int made();
  /// Members of a communicator, and the GPU blocks that one of them gave to it.
  struct Joined {
    int members = 0;
    int blocks = 0;
  };
  std::vector<Joined> joined();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int aborts_needed_ = 0;
  int aborts_ = 0;
  int ids_ = 0;
  std::string error_;
  std::vector<Joined> joined_;
  std::function<void()> on_send_;
  std::function<void()> on_leave_;
  std::map<std::string, std::shared_ptr<FakeCommunicator>> communicators_;  // by id
  std::vector<std::shared_ptr<FakeMember>> members_;
};

}  // namespace flopcast::realrun
