#include "realrun/transport/loopback.hpp"

#include <random>
#include <vector>

namespace flopcast::realrun {

namespace {

struct Echo : Pending {
  explicit Echo(Buffer target) : into(std::move(target)) {}
  Buffer into;
};

// Between -1 and 1: zeros would take other branches in exponentials than activations do.
Buffer make_noise(std::size_t bytes, ComputeDevice& device) {
  std::vector<float> values(bytes / sizeof(float));
  std::minstd_rand random(1);
  for (float& value : values) {
    value = static_cast<float>(random()) / static_cast<float>(std::minstd_rand::max()) * 2.0F - 1.0F;
  }
  Buffer noise = device.allocate(values.size() * sizeof(float));
  device.upload(reinterpret_cast<const std::byte*>(values.data()), noise);
  return noise;
}

}  // namespace

void LoopbackTransport::send(int /*to*/, const MessageKey& /*key*/, const Buffer& /*buffer*/) {}

Request LoopbackTransport::receive(int /*from*/, const MessageKey& /*key*/, const Buffer& into) {
  if (noise_.bytes() < into.bytes()) noise_ = make_noise(into.bytes(), device_);
  return std::make_shared<Echo>(into);
}

void LoopbackTransport::wait(const Request& request) {
  const auto* echo = dynamic_cast<Echo*>(request.get());
  if (echo == nullptr) return behind_.wait(request);
  // Receiving copies: that time is the receiver's own.
  device_.copy(noise_.slice(0, echo->into.bytes()), echo->into);
}

}  // namespace flopcast::realrun
