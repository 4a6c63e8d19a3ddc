#include "realrun/compute/cuda/cuda_device.hpp"

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "base/text/error.hpp"
#include "realrun/compute/cuda/launch.hpp"
#include "realrun/compute/cuda/runtime.hpp"

namespace flopcast::realrun::cuda {

int priority_of(Queue queue) {
  int lowest = 0;
  int highest = 0;
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  return queue == Queue::kCompute ? lowest : highest;
}

cudaStream_t make_stream(Queue queue) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority_of(queue)),
        "cudaStreamCreateWithPriority");
  return stream;
}

float* floats(const Buffer& buffer) {
  return reinterpret_cast<float*>(buffer.address());
}

/// Events are reused; they must not outlive the clock.
class CudaDevice::EventPool {
 public:
  EventPool(DeviceClock& clock, std::chrono::milliseconds patience) : clock_(clock), patience_(patience) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool() {
    for (const cudaEvent_t event : idle_) cudaEventDestroy(event);
  }

  cudaEvent_t take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        const cudaEvent_t event = idle_.back();
        idle_.pop_back();
        return event;
      }
    }
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "cudaEventCreate");
    return event;
  }
  void give_back(cudaEvent_t event) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(event);
  }
  DeviceClock& clock() { return clock_; }
  std::chrono::milliseconds patience() const { return patience_; }

 private:
  DeviceClock& clock_;
  std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> idle_;
};

class CudaDevice::EventMoment : public Moment {
 public:
  explicit EventMoment(std::shared_ptr<EventPool> pool) : pool_(std::move(pool)), event_(pool_->take()) {}
  EventMoment(const EventMoment&) = delete;
  EventMoment& operator=(const EventMoment&) = delete;
  ~EventMoment() override { pool_->give_back(event_); }

  bool reached() override { return has_reached(event_); }
  // Polls, because cudaEventSynchronize has no time limit.
  Ticks time() override {
    constexpr auto kPause = std::chrono::microseconds(20);
    const std::chrono::milliseconds patience = pool_->patience();
    const auto began = std::chrono::steady_clock::now();
    while (!reached()) {
      if (patience.count() > 0 && std::chrono::steady_clock::now() - began > patience) {
        throw EnvironmentError(fmt::format("the GPU has not finished its queued work within {} s",
                                           static_cast<double>(patience.count()) / 1000.0));
      }
      std::this_thread::sleep_for(kPause);
    }
    return pool_->clock().time_of(event_);
  }
  cudaEvent_t event() const { return event_; }

 private:
  std::shared_ptr<EventPool> pool_;
  cudaEvent_t event_ = nullptr;
};

namespace {

/// GPU memory allocated in the order of a separate stream. cudaMalloc and cudaFree wait for all running work (CUDA
/// programming guide, Implicit Synchronization), which may itself wait for ranks that this rank is blocking. They are
/// used only on GPUs without memory pools (some virtual ones).
class OrderedMemory {
 public:
  OrderedMemory() : stream_(new_stream()) {
    int device = 0;
    int supported = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device), "cudaDeviceGetAttribute");
    has_pools_ = supported != 0;
  }
  OrderedMemory(const OrderedMemory&) = delete;
  OrderedMemory& operator=(const OrderedMemory&) = delete;
  ~OrderedMemory() { cudaStreamDestroy(stream_); }

  std::byte* allocate(std::size_t bytes) {
    void* address = nullptr;
    const cudaError_t result = has_pools_ ? cudaMallocAsync(&address, bytes, stream_) : cudaMalloc(&address, bytes);
    if (result == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw EnvironmentError(
          fmt::format("the GPU has less than {} MiB free; use fewer layers, smaller microbatches or more ranks",
                      (bytes >> 20U) + 1));
    }
    check(result, has_pools_ ? "cudaMallocAsync" : "cudaMalloc");
    // This stream holds nothing else.
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return static_cast<std::byte*>(address);
  }
  // An error here has surfaced before.
  void free(std::byte* address) {
    if (has_pools_) {
      cudaFreeAsync(address, stream_);
    } else {
      cudaFree(address);
    }
  }

 private:
  cudaStream_t stream_ = nullptr;
  bool has_pools_ = false;
};

/// Page-locked memory, allocated before anything runs, because allocating it also waits for the whole GPU. Steps upload
/// only token numbers; uploads beyond the arena allocate page-locked memory on demand.
class PinnedArena {
 public:
  PinnedArena() { check(cudaHostAlloc(&memory_, kBytes, cudaHostAllocDefault), "cudaHostAlloc"); }
  PinnedArena(const PinnedArena&) = delete;
  PinnedArena& operator=(const PinnedArena&) = delete;
  ~PinnedArena() { cudaFreeHost(memory_); }

  std::byte* allocate(std::size_t bytes) {
    if (bytes <= kBytes - used_) {
      std::byte* const address = static_cast<std::byte*>(memory_) + used_;
      used_ += bytes;
      return address;
    }
    void* address = nullptr;
    check(cudaHostAlloc(&address, bytes, cudaHostAllocDefault), "cudaHostAlloc");
    return static_cast<std::byte*>(address);
  }
  void free(std::byte* address) {
    const auto* const begin = static_cast<std::byte*>(memory_);
    if (std::less<>()(address, begin) || !std::less<>()(address, begin + kBytes)) cudaFreeHost(address);
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{32} << 20U;
  void* memory_ = nullptr;
  std::size_t used_ = 0;
};

/// A pool with memory from `Source`, one per thread that makes a device.
template <class Source>
MemoryPool pool_from() {
  const auto source = std::make_shared<Source>();
  return {[source](std::size_t bytes) { return source->allocate(bytes); },
          [source](std::byte* address) { source->free(address); }};
}

}  // namespace

CudaDevice::CudaDevice(const Streams& streams, DeviceClock& clock, std::chrono::milliseconds patience)
    : events_(std::make_shared<EventPool>(clock, patience)),
      streams_(streams.begin(), streams.end()),
      pool_(pool_from<OrderedMemory>()),
      pinned_(pool_from<PinnedArena>()) {}

CudaDevice::~CudaDevice() {
  // Failures have been reported where they occurred; here the streams only have to finish using the memory. A stuck
  // stream is left until the process ends.
  if (stuck_) return;
  for (const cudaStream_t stream : streams_) {
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  }
}

Ticks CudaDevice::time_of(const Mark& mark) {
  try {
    return mark.moment->time();
  } catch (const EnvironmentError&) {
    stuck_ = true;
    throw;
  }
}

Buffer CudaDevice::allocate(std::size_t bytes) {
  Buffer buffer = reserve(bytes);
  zero(buffer);
  return buffer;
}

void CudaDevice::zero(const Buffer& buffer) {
  if (buffer.empty()) return;
  check(cudaMemsetAsync(buffer.address(), 0, buffer.bytes(), stream(Queue::kCompute)), "cudaMemsetAsync");
}

void CudaDevice::draw(const Draw& draw, const Buffer& to) {
  cuda::draw(draw, floats(to), to.bytes() / sizeof(float), stream(Queue::kCompute));
}

void CudaDevice::add(const Buffer& from, const Buffer& to) {
  FLOPCAST_CHECK(from.bytes() == to.bytes());
  cuda::add(floats(to), floats(from), floats(to), to.bytes() / sizeof(float), stream(Queue::kCompute));
}

void CudaDevice::optimize(const UpdateRule& rule, int step, const Buffer& weights, const Buffer& gradients,
                          const std::vector<Buffer>& states, const Buffer& updated) {
  FLOPCAST_CHECK(static_cast<int>(states.size()) == rule.states() && weights.bytes() == gradients.bytes());
  const Update update{floats(weights), floats(gradients), floats(updated), weights.bytes() / sizeof(float)};
  if (rule.kind == Optimizer::kSgd) {
    sgd(rule, update, floats(states[0]), stream(Queue::kCompute));
  } else {
    adam(rule, step, update, floats(states[0]), floats(states[1]), stream(Queue::kCompute));
  }
}

void CudaDevice::upload(const std::byte* from, const Buffer& to) {
  if (to.empty()) return;
  // Also before the copy: copying memory that is not page-locked waits inside the call, without a time limit.
  finish_computation();
  check(cudaMemcpyAsync(to.address(), from, to.bytes(), cudaMemcpyHostToDevice, stream(Queue::kCompute)),
        "cudaMemcpyAsync");
  finish_computation();
}

void CudaDevice::download(const Buffer& from, std::byte* to) {
  if (from.empty()) return;
  finish_computation();
  check(cudaMemcpyAsync(to, from.address(), from.bytes(), cudaMemcpyDeviceToHost, stream(Queue::kCompute)),
        "cudaMemcpyAsync");
  finish_computation();
}

void CudaDevice::hold() {
  constexpr std::int64_t kNanoseconds = 300'000;
  check(spin(kNanoseconds, stream(Queue::kCompute)), "spin");
}

Queue CudaDevice::add_queue() {
  streams_.push_back(make_stream(Queue::kSend));
  return static_cast<Queue>(streams_.size() - 1);
}

std::shared_ptr<Moment> CudaDevice::record(Queue queue) {
  auto moment = std::make_shared<EventMoment>(events_);
  check(cudaEventRecord(moment->event(), stream(queue)), "cudaEventRecord");
  return moment;
}

void CudaDevice::wait(Queue queue, const std::shared_ptr<Moment>& moment) {
  const auto* event = dynamic_cast<EventMoment*>(moment.get());
  FLOPCAST_CHECK(event != nullptr);
  check(cudaStreamWaitEvent(stream(queue), event->event(), 0), "cudaStreamWaitEvent");
}

void CudaDevice::copy(Queue queue, const Buffer& from, const Buffer& to) {
  FLOPCAST_CHECK(from.bytes() == to.bytes());
  if (from.empty()) return;
  check(cudaMemcpyAsync(to.address(), from.address(), from.bytes(), cudaMemcpyDeviceToDevice, stream(queue)),
        "cudaMemcpyAsync");
}

void CudaDevice::reduce(Queue queue, const std::vector<Buffer>& inputs, Element element, Reduction reduction,
                        const Buffer& output) {
  FLOPCAST_CHECK(element == Element::kFloat32);
  std::vector<const float*> addresses;
  for (const Buffer& input : inputs) addresses.push_back(floats(input));
  cuda::reduce(addresses, reduction == Reduction::kMax, floats(output), output.bytes() / sizeof(float), stream(queue));
}

Buffer CudaDevice::constants(const std::vector<int>& values) {
  const std::size_t bytes = values.size() * sizeof(int);
  Buffer target = reserve(bytes);
  const Buffer staged = pinned_.take(bytes);
  copy_bytes(staged.address(), reinterpret_cast<const std::byte*>(values.data()), bytes);
  if (bytes > 0) {
    check(cudaMemcpyAsync(target.address(), staged.address(), bytes, cudaMemcpyHostToDevice, stream(Queue::kCompute)),
          "cudaMemcpyAsync");
  }
  kept_.keep(Queue::kCompute, record(Queue::kCompute), {staged});
  return target;
}

}  // namespace flopcast::realrun::cuda
