#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "realrun/compute/cuda/matrix_products.hpp"
#include "realrun/compute/cuda/runtime.hpp"
#include "realrun/device/arithmetic.hpp"
#include "realrun/device/buffer.hpp"
#include "realrun/device/device.hpp"
#include "realrun/network/kernels.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun::cuda {

/// Streams that a rank's queues are, made by whoever decides which part of the GPU they run on.
using Streams = std::array<cudaStream_t, kQueues>;

/// Messages and collectives go before computation: their few blocks take the place of those of a product that end first
/// rather than of its last wave (CUDA programming guide, Stream Priorities).
int priority_of(Queue queue);
/// On the current GPU, with that priority.
cudaStream_t make_stream(Queue queue);

/// One rank's share of a GPU: a stream for each queue, memory of its own, events for moments. Calls queue work and
/// return; errors of the work come out of a later call.
class CudaDevice : public ComputeDevice, public Queues {
 public:
  /// Destroys the streams in the end. Memory comes from the current GPU. Whoever waits for the GPU longer than
  /// `patience` gets an EnvironmentError; zero: has no limit.
  CudaDevice(const Streams& streams, DeviceClock& clock,
             std::chrono::milliseconds patience = std::chrono::milliseconds(0));
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override;

  Buffer allocate(std::size_t bytes) override;
  Buffer reserve(std::size_t bytes) override { return pool_.take(bytes); }
  std::size_t alignment() const override { return kAlignedFloats; }
  void zero(const Buffer& buffer) override;
  void draw(const Draw& draw, const Buffer& to) override;
  void copy(const Buffer& from, const Buffer& to) override { copy(Queue::kCompute, from, to); }
  void add(const Buffer& from, const Buffer& to) override;
  void optimize(const UpdateRule& rule, int step, const Buffer& weights, const Buffer& gradients,
                const std::vector<Buffer>& states, const Buffer& updated) override;
  void upload(const std::byte* from, const Buffer& to) override;
  void download(const Buffer& from, std::byte* to) override;
  Mark mark() override { return {0, record(Queue::kCompute)}; }
  Ticks time_of(const Mark& mark) override;
  void hold() override;

  /// On the whole GPU, whatever part the others have.
  Queue add_queue() override;
  Buffer reserve_word() override { return allocate(sizeof(float)); }
  std::shared_ptr<Moment> record(Queue queue) override;
  void wait(Queue queue, const std::shared_ptr<Moment>& moment) override;
  void copy(Queue queue, const Buffer& from, const Buffer& to) override;
  void reduce(Queue queue, const std::vector<Buffer>& inputs, Element element, Reduction reduction,
              const Buffer& output) override;

  cudaStream_t stream(Queue queue) const { return streams_.at(static_cast<std::size_t>(queue)); }
  /// Whether the GPU was waited for in vain.
  bool stuck() const { return stuck_; }
  /// The same numbers in the device's memory, without waiting for what was queued before.
  Buffer constants(const std::vector<int>& values);

 private:
  class EventPool;
  class EventMoment;

  /// 16 bytes: what products in tf32 and bf16 want to run on tensor cores (cuBLAS, Tensor Core Usage).
  static constexpr std::size_t kAlignedFloats = 4;

  void finish_computation() { time_of(mark()); }

  std::shared_ptr<EventPool> events_;
  std::vector<cudaStream_t> streams_;
  MemoryPool pool_;
  MemoryPool pinned_;
  KeptBuffers kept_;
  std::atomic<bool> stuck_{false};
};

float* floats(const Buffer& buffer);

/// The layers' arithmetic in a device's compute queue. Products by `products`, attention fused, everything else by
/// kernels of its own in 32 bits. With kBf16 the factors of each product are rounded first, attention's on tensor cores
/// too; weights once until they change, which takes half of their memory again. With kFp8 linears of blocks multiply in
/// 8 bits where all sizes are multiples of 16, each factor scaled by its own largest magnitude; all else is as with
/// kBf16. Sums of weight gradients have 32 bits and are added to in place. Left out: token slices, heads wider than
/// kLargestHead.
std::unique_ptr<Kernels<float>> make_cuda_kernels(CudaDevice& device, MatrixProducts& products,
                                                  GemmPrecision precision);

}  // namespace flopcast::realrun::cuda
