#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "realrun/measure/cuda/timed_work.hpp"
#include "realrun/transport/nccl/nccl_api.hpp"

namespace flopcast::realrun::cuda {

/// Messages between the GPUs of this node over NCCL, all of them driven by one thread.
class NcclMessages {
 public:
  explicit NcclMessages(std::unique_ptr<NcclApi> nccl) : nccl_(std::move(nccl)) {}
  NcclMessages(const NcclMessages&) = delete;
  NcclMessages& operator=(const NcclMessages&) = delete;
  NcclMessages(NcclMessages&&) = delete;
  NcclMessages& operator=(NcclMessages&&) = delete;
  ~NcclMessages();

  std::string version() const { return nccl_->version(); }
  /// Of the first `key.ranks` GPUs. Bytes as SampleKind counts them, down to whole elements. Makes the group when it is
  /// first asked for; leaves GPU 0 current.
  std::unique_ptr<QueuedWork> make(const SampleKey& key);

 private:
  class Work;
  struct Member {
    int gpu = 0;
    cudaStream_t stream = nullptr;
    NcclApi::Communicator communicator = nullptr;
  };

  const std::vector<Member>& group_of(int ranks);

  std::unique_ptr<NcclApi> nccl_;
  std::map<int, std::vector<Member>> groups_;  // by ranks
};

}  // namespace flopcast::realrun::cuda
