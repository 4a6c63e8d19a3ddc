#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "realrun/measure/cuda/works.hpp"
#include "realrun/transport/nccl/nccl_api.hpp"

namespace flopcast::realrun::cuda {

/// Messages between the GPUs of this node over NCCL, all of them driven by one thread. The others' ends wait on their
/// GPUs until GPU 0 comes to its own: a message begins when GPU 0 is ready for it. Messages are timed on GPU 0's
/// stream. The first failure ends all of them: every communicator is aborted, and what is asked for then is refused
/// with the reason. GPU 0 is current after every call, whether it throws or not.
class NcclMessages {
 public:
  explicit NcclMessages(std::unique_ptr<NcclApi> nccl) : nccl_(std::move(nccl)) {}
  NcclMessages(const NcclMessages&) = delete;
  NcclMessages& operator=(const NcclMessages&) = delete;
  ~NcclMessages();

  std::string version() const { return nccl_->version(); }
  /// Of the first `key.ranks` GPUs, on `key.channels` channels at most where it tells them. Bytes as SampleKind counts
  /// them, down to whole elements. Makes the group when it is first asked for; one that could not be made is not tried
  /// again.
  QueuedWorkload make(const SampleKey& key);

 private:
  class Ends;
  struct Member {
    int gpu = 0;
    cudaStream_t stream = nullptr;
    NcclApi::Communicator communicator = nullptr;
  };

  using GroupName = std::pair<int, int>;  // ranks and channels

  const std::vector<Member>& group_of(int ranks, int channels);
  void join(std::vector<Member>& members, int channels);
  void watch(const std::vector<Member>& members, bool late);
  void throw_if_failed() const;
  void give_up(const std::string& reason);
  void abort(const std::vector<Member*>& members);

  std::unique_ptr<NcclApi> nccl_;
  std::map<GroupName, std::vector<Member>> groups_;
  std::map<GroupName, std::string> not_made_;  // and why
  std::string failure_;
};

}  // namespace flopcast::realrun::cuda
