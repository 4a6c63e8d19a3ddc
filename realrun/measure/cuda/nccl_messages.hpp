#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "realrun/measure/cuda/works.hpp"
#include "realrun/transport/nccl/nccl_api.hpp"

namespace flopcast::realrun::cuda {

/// What is queued on a stream; messages are timed on GPU 0's.
struct QueuedMessage {
  cudaStream_t stream = nullptr;
  QueueOnce queue;
};

/// Messages between the GPUs of this node over NCCL, all of them driven by one thread. The others' ends wait on their
/// GPUs until GPU 0 comes to its own: a message begins when GPU 0 is ready for it.
class NcclMessages {
 public:
  explicit NcclMessages(std::unique_ptr<NcclApi> nccl) : nccl_(std::move(nccl)) {}
  NcclMessages(const NcclMessages&) = delete;
  NcclMessages& operator=(const NcclMessages&) = delete;
  NcclMessages(NcclMessages&&) = delete;
  NcclMessages& operator=(NcclMessages&&) = delete;
  ~NcclMessages();

  std::string version() const { return nccl_->version(); }
  /// Of the first `key.ranks` GPUs, on `key.channels` channels at most where it tells them. Bytes as SampleKind counts
  /// them, down to whole elements. Makes the group when it is first asked for; leaves GPU 0 current, as queueing does.
  QueuedMessage make(const SampleKey& key);

 private:
  class Ends;
  struct Member {
    int gpu = 0;
    cudaStream_t stream = nullptr;
    NcclApi::Communicator communicator = nullptr;
  };

  const std::vector<Member>& group_of(int ranks, int channels);
  void join(std::vector<Member>& members, int channels);

  std::unique_ptr<NcclApi> nccl_;
  std::map<std::pair<int, int>, std::vector<Member>> groups_;  // by ranks and channels
};

}  // namespace flopcast::realrun::cuda
