#include "realrun/compute/cuda/cuda_device.hpp"

#include <fmt/format.h>

#include <cstring>
#include <mutex>
#include <utility>

#include "base/text/error.hpp"
#include "realrun/compute/cuda/launch.hpp"
#include "realrun/compute/cuda/runtime.hpp"

namespace flopcast::realrun::cuda {

float* floats(const Buffer& buffer) {
  return reinterpret_cast<float*>(buffer.address());
}

/// Events are made once and used again; they and the clock belong together.
class CudaDevice::EventPool {
 public:
  explicit EventPool(DeviceClock& clock) : clock_(clock) {}
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

 private:
  DeviceClock& clock_;
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
  Ticks time() override {
    check(cudaEventSynchronize(event_), "cudaEventSynchronize");
    return pool_->clock().time_of(event_);
  }
  cudaEvent_t event() const { return event_; }

 private:
  std::shared_ptr<EventPool> pool_;
  cudaEvent_t event_ = nullptr;
};

namespace {

std::byte* allocate_on_device(std::size_t bytes) {
  void* address = nullptr;
  const cudaError_t result = cudaMalloc(&address, bytes);
  if (result == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    throw EnvironmentError(
        fmt::format("the GPU has no {} MiB left; fewer layers, smaller microbatches or more ranks "
                    "take less",
                    (bytes >> 20U) + 1));
  }
  check(result, "cudaMalloc");
  return static_cast<std::byte*>(address);
}

std::byte* allocate_pinned(std::size_t bytes) {
  void* address = nullptr;
  check(cudaHostAlloc(&address, bytes, cudaHostAllocDefault), "cudaHostAlloc");
  return static_cast<std::byte*>(address);
}

}  // namespace

CudaDevice::CudaDevice(const Streams& streams, DeviceClock& clock)
    : events_(std::make_shared<EventPool>(clock)),
      streams_(streams.begin(), streams.end()),
      pool_(allocate_on_device, [](std::byte* address) { cudaFree(address); }),
      pinned_(allocate_pinned, [](std::byte* address) { cudaFreeHost(address); }) {}

CudaDevice::~CudaDevice() {
  // A failure has been told where it came up; here the streams only have to be through with the memory.
  for (const cudaStream_t stream : streams_) {
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  }
}

Buffer CudaDevice::reserve(std::size_t bytes) {
  return pool_.take(bytes);
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

void CudaDevice::copy(const Buffer& from, const Buffer& to) {
  copy(Queue::kCompute, from, to);
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
  check(cudaMemcpyAsync(to.address(), from, to.bytes(), cudaMemcpyHostToDevice, stream(Queue::kCompute)),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream(Queue::kCompute)), "cudaStreamSynchronize");
}

void CudaDevice::download(const Buffer& from, std::byte* to) {
  if (from.empty()) return;
  check(cudaMemcpyAsync(to, from.address(), from.bytes(), cudaMemcpyDeviceToHost, stream(Queue::kCompute)),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream(Queue::kCompute)), "cudaStreamSynchronize");
}

void CudaDevice::hold() {
  constexpr std::int64_t kNanoseconds = 300'000;
  check(spin(kNanoseconds, stream(Queue::kCompute)), "spin");
}

Queue CudaDevice::add_queue() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  streams_.push_back(stream);
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
  kept_.keep(record(Queue::kCompute), {staged});
  return target;
}

}  // namespace flopcast::realrun::cuda
