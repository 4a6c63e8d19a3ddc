#include "realrun/parallel/compressed_sum.hpp"

#include <algorithm>
#include <utility>

namespace flopcast::realrun {

CompressedSum::CompressedSum(const CompressionContext& context, Buffer gradients, const Buffer& residual)
    : context_(context), gradients_(std::move(gradients)) {
  const auto replicas = static_cast<std::size_t>(context_.group.size());
  const std::size_t count = gradients_.bytes() / sizeof(float);
  part_values_ = by_parts() ? (count + replicas - 1) / replicas : count;
  slot_ = context_.codec.message_bytes(part_values_);
  messages_ = context_.device.allocate(slot_ * replicas);
  Collective exchange{.output = messages_, .element = Element::kByte};
  if (by_parts()) {
    exchange.kind = CollectiveKind::kAllToAll;
    exchange.input = context_.device.allocate(slot_ * replicas);
    for (int index = 0; index < context_.group.size(); ++index) {
      const Buffer values = part(gradients_, index);
      context_.codec.encode(values, residual, message(exchange.input, index, values));
    }
  } else {
    exchange.kind = CollectiveKind::kAllGather;
    exchange.input = context_.device.allocate(slot_);
    context_.codec.encode(gradients_, residual, exchange.input);
  }
  request_ = context_.transport.start(context_.group, exchange);
}

// Those behind the end of the values are empty.
Buffer CompressedSum::part(const Buffer& values, int index) const {
  if (!by_parts()) return values;
  const std::size_t bytes = part_values_ * sizeof(float);
  const std::size_t first = std::min(values.bytes(), static_cast<std::size_t>(index) * bytes);
  return values.slice(first, std::min(bytes, values.bytes() - first));
}

Buffer CompressedSum::message(const Buffer& messages, int index, const Buffer& values) const {
  return messages.slice(static_cast<std::size_t>(index) * slot_,
                        context_.codec.message_bytes(values.bytes() / sizeof(float)));
}

void CompressedSum::proceed() {
  context_.transport.wait(request_);
  exchanges_.push_back(request_->interval());
  const Buffer own = part(gradients_, context_.group.index);
  context_.device.zero(own);
  for (int index = 0; index < context_.group.size(); ++index) {
    context_.codec.add_decoded(message(messages_, index, own), own);
  }
  if (!by_parts()) return;
  const Buffer sum = context_.device.allocate(slot_);
  context_.codec.encode(own, {}, sum.slice(0, context_.codec.message_bytes(own.bytes() / sizeof(float))));
  request_ = context_.transport.start(
      context_.group,
      {.kind = CollectiveKind::kAllGather, .input = sum, .output = messages_, .element = Element::kByte});
}

void CompressedSum::finish() {
  if (!by_parts()) return;
  context_.transport.wait(request_);
  exchanges_.push_back(request_->interval());
  context_.device.zero(gradients_);
  for (int index = 0; index < context_.group.size(); ++index) {
    const Buffer values = part(gradients_, index);
    context_.codec.add_decoded(message(messages_, index, values), values);
  }
}

}  // namespace flopcast::realrun
