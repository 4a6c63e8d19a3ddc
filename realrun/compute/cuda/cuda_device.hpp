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

/// One stream per queue of a rank. The caller makes them, and thereby decides which part of the GPU they run on.
using Streams = std::array<cudaStream_t, kQueues>;

/// Messages and collectives take precedence over computation: their few blocks replace the first blocks of a product
/// that end, instead of waiting for its last wave (CUDA programming guide, Stream Priorities).
int priority_of(Queue queue);
/// Makes a stream with that priority on the current GPU.
cudaStream_t make_stream(Queue queue);

/// One rank's share of a GPU: a stream per queue, its own memory pool, and events as moments. Calls queue work and
/// return; errors in that work surface in a later call.
class CudaDevice : public ComputeDevice, public Queues {
 public:
  /// Takes ownership of the streams. Allocates memory on the current GPU. A wait for the GPU that exceeds `patience`
  /// throws EnvironmentError; zero means no limit.
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

  /// The new queue runs on the whole GPU, whatever part the others use.
  Queue add_queue() override;
  Buffer reserve_word() override { return allocate(sizeof(float)); }
  std::shared_ptr<Moment> record(Queue queue) override;
  void wait(Queue queue, const std::shared_ptr<Moment>& moment) override;
  void copy(Queue queue, const Buffer& from, const Buffer& to) override;
  void reduce(Queue queue, const std::vector<Buffer>& inputs, Element element, Reduction reduction,
              const Buffer& output) override;

  cudaStream_t stream(Queue queue) const { return streams_.at(static_cast<std::size_t>(queue)); }
  /// True once a wait for the GPU has timed out.
  bool stuck() const { return stuck_; }
  /// Copies the values to device memory without waiting for work queued earlier.
  Buffer constants(const std::vector<int>& values);

 private:
  class EventPool;
  class EventMoment;

  /// 16 bytes: the alignment that tf32 and bf16 products need to run on tensor cores (cuBLAS, Tensor Core Usage).
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

/// The layers' arithmetic in a device's compute queue. `products` multiplies matrices, attention is fused, and
/// everything else runs in separate 32-bit kernels. With kBf16 the factors of each product are rounded first, including
/// those of attention, which then runs on tensor cores. Weights are rounded once per change, which takes half of their
/// memory again. With kFp8 the linears of blocks multiply in 8 bits where all sizes are multiples of 16, each factor
/// scaled by its largest magnitude; everything else is as with kBf16. Weight gradients are 32-bit and accumulate in
/// place. Left out: token slices, heads wider than kLargestHead.
std::unique_ptr<Kernels<float>> make_cuda_kernels(CudaDevice& device, MatrixProducts& products,
                                                  GemmPrecision precision);

}  // namespace flopcast::realrun::cuda
