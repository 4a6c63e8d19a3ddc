#include "tests/realrun/queued/queued_machine.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

namespace {

// The same bytes, held by nobody: as a GPU, queued work keeps nothing alive.
Buffer unheld(const Buffer& buffer) {
  return Buffer(std::shared_ptr<std::byte[]>(std::shared_ptr<void>(), buffer.address()), buffer.bytes());
}

Tensor<float> unheld(const Tensor<float>& tensor) {
  return Tensor<float>(unheld(tensor.buffer()), tensor.rows(), tensor.columns());
}

std::vector<Tensor<float>> unheld(const std::vector<Tensor<float>>& tensors) {
  std::vector<Tensor<float>> result;
  for (const Tensor<float>& tensor : tensors) result.push_back(unheld(tensor));
  return result;
}

std::vector<Buffer> unheld(const std::vector<Buffer>& buffers) {
  std::vector<Buffer> result;
  for (const Buffer& buffer : buffers) result.push_back(unheld(buffer));
  return result;
}

Kernels<float>& host = host_kernels<float>();

}  // namespace

QueuedDevice::QueuedDevice(int rank, int delay)
    : seed_(static_cast<unsigned>(rank) * 100U),
      delay_(delay),
      pool_([](std::size_t bytes) { return new std::byte[bytes]; }, [](std::byte* block) { delete[] block; }) {
  for (int queue = 0; queue < kQueues; ++queue) add_queue();
}

Queue QueuedDevice::add_queue() {
  queues_.push_back(std::make_unique<WorkQueue>(++seed_, delay_));
  return static_cast<Queue>(queues_.size() - 1);
}

Buffer QueuedDevice::allocate(std::size_t bytes) {
  const Buffer buffer = pool_.take(bytes);
  zero(buffer);
  return buffer;
}

Buffer QueuedDevice::reserve(std::size_t bytes) {
  const Buffer buffer = pool_.take(bytes);
  of(Queue::kCompute).add([target = unheld(buffer)] {
    std::fill_n(host_floats(target), target.bytes() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
  });
  return buffer;
}

void QueuedDevice::zero(const Buffer& buffer) {
  of(Queue::kCompute).add([target = unheld(buffer)] { HostDevice().zero(target); });
}

void QueuedDevice::copy(const Buffer& from, const Buffer& to) {
  copy(Queue::kCompute, from, to);
}

void QueuedDevice::add(const Buffer& from, const Buffer& to) {
  of(Queue::kCompute).add([a = unheld(from), b = unheld(to)] { HostDevice().add(a, b); });
}

void QueuedDevice::optimize(const UpdateRule& rule, int step, const Buffer& weights, const Buffer& gradients,
                            const std::vector<Buffer>& states, const Buffer& updated) {
  of(Queue::kCompute)
      .add([rule, step, w = unheld(weights), g = unheld(gradients), s = unheld(states), u = unheld(updated)] {
        HostDevice().optimize(rule, step, w, g, s, u);
      });
}

void QueuedDevice::upload(const std::byte* from, const Buffer& to) {
  of(Queue::kCompute).add([from, target = unheld(to)] { copy_bytes(target.address(), from, target.bytes()); });
  settle();
}

void QueuedDevice::download(const Buffer& from, std::byte* to) {
  of(Queue::kCompute).add([to, source = unheld(from)] { copy_bytes(to, source.address(), source.bytes()); });
  settle();
}

void QueuedDevice::copy(Queue queue, const Buffer& from, const Buffer& to) {
  of(queue).add([a = unheld(from), b = unheld(to)] { HostDevice().copy(a, b); });
}

void QueuedDevice::reduce(Queue queue, const std::vector<Buffer>& inputs, Element element, Reduction reduction,
                          const Buffer& output) {
  of(queue).add([sources = unheld(inputs), element, reduction, target = unheld(output)] {
    std::vector<const std::byte*> addresses;
    for (const Buffer& source : sources) addresses.push_back(source.address());
    reduce_in_order(addresses, target.bytes() / size_of(element), element, reduction, target.address());
  });
}

// Work that takes a tensor to write to is handed a copy of the handle.
#define FLOPCAST_QUEUE(...) device_.of(Queue::kCompute).add([__VA_ARGS__]() mutable

Tensor<float> QueuedKernels::tensor(std::size_t rows, std::size_t columns) {
  return Tensor<float>(device_.reserve(rows * columns * sizeof(float)), rows, columns);
}

void QueuedKernels::multiply(const MatrixView<const float>& a, const MatrixView<const float>& b,
                             const MatrixView<float>& result, float factor, bool accumulate) {
  FLOPCAST_QUEUE(a, b, result, factor, accumulate) {
    host.multiply(a, b, result, factor, accumulate);
  });
}

void QueuedKernels::add(const Tensor<float>& a, const Tensor<float>& b, Tensor<float>& sum) {
  FLOPCAST_QUEUE(x = unheld(a), y = unheld(b), z = unheld(sum)) {
    host.add(x, y, z);
  });
}

void QueuedKernels::add_bias(const Tensor<float>& x, const float* bias, Tensor<float>& y) {
  FLOPCAST_QUEUE(from = unheld(x), bias, to = unheld(y)) {
    host.add_bias(from, bias, to);
  });
}

void QueuedKernels::add_up_rows(const Tensor<float>& x, float* sums) {
  FLOPCAST_QUEUE(from = unheld(x), sums) {
    host.add_up_rows(from, sums);
  });
}

void QueuedKernels::layer_norm(const Tensor<float>& x, const float* gain, const float* bias, Tensor<float>& normalised,
                               Tensor<float>& scale, Tensor<float>& y) {
  FLOPCAST_QUEUE(from = unheld(x), gain, bias, n = unheld(normalised), s = unheld(scale), to = unheld(y)) {
    host.layer_norm(from, gain, bias, n, s, to);
  });
}

void QueuedKernels::layer_norm_input_gradient(const Tensor<float>& dy, const Tensor<float>& normalised,
                                              const Tensor<float>& scale, const float* gain, Tensor<float>& dx) {
  FLOPCAST_QUEUE(from = unheld(dy), n = unheld(normalised), s = unheld(scale), gain, to = unheld(dx)) {
    host.layer_norm_input_gradient(from, n, s, gain, to);
  });
}

void QueuedKernels::layer_norm_weight_gradient(const Tensor<float>& dy, const Tensor<float>& normalised, float* gain,
                                               float* bias) {
  FLOPCAST_QUEUE(from = unheld(dy), n = unheld(normalised), gain, bias) {
    host.layer_norm_weight_gradient(from, n, gain, bias);
  });
}

void QueuedKernels::rms_norm(const Tensor<float>& x, const float* gain, Tensor<float>& normalised, Tensor<float>& scale,
                             Tensor<float>& y) {
  FLOPCAST_QUEUE(from = unheld(x), gain, n = unheld(normalised), s = unheld(scale), to = unheld(y)) {
    host.rms_norm(from, gain, n, s, to);
  });
}

void QueuedKernels::rms_norm_input_gradient(const Tensor<float>& dy, const Tensor<float>& normalised,
                                            const Tensor<float>& scale, const float* gain, Tensor<float>& dx) {
  FLOPCAST_QUEUE(from = unheld(dy), n = unheld(normalised), s = unheld(scale), gain, to = unheld(dx)) {
    host.rms_norm_input_gradient(from, n, s, gain, to);
  });
}

void QueuedKernels::rms_norm_weight_gradient(const Tensor<float>& dy, const Tensor<float>& normalised, float* gain) {
  FLOPCAST_QUEUE(from = unheld(dy), n = unheld(normalised), gain) {
    host.rms_norm_weight_gradient(from, n, gain);
  });
}

void QueuedKernels::gelu(const Tensor<float>& x, Tensor<float>& y) {
  FLOPCAST_QUEUE(from = unheld(x), to = unheld(y)) {
    host.gelu(from, to);
  });
}

void QueuedKernels::gelu_gradient(const Tensor<float>& dy, const Tensor<float>& x, Tensor<float>& dx) {
  FLOPCAST_QUEUE(from = unheld(dy), input = unheld(x), to = unheld(dx)) {
    host.gelu_gradient(from, input, to);
  });
}

void QueuedKernels::gated_silu(const Tensor<float>& x, Tensor<float>& y) {
  FLOPCAST_QUEUE(from = unheld(x), to = unheld(y)) {
    host.gated_silu(from, to);
  });
}

void QueuedKernels::gated_silu_gradient(const Tensor<float>& dy, const Tensor<float>& x, Tensor<float>& dx) {
  FLOPCAST_QUEUE(from = unheld(dy), input = unheld(x), to = unheld(dx)) {
    host.gated_silu_gradient(from, input, to);
  });
}

void QueuedKernels::copy(const MatrixView<const float>& from, const MatrixView<float>& to) {
  FLOPCAST_QUEUE(from, to) {
    host.copy(from, to);
  });
}

void QueuedKernels::rotate_heads(const Tensor<float>& x, const HeadLayout& heads, const RowPositions& positions,
                                 float direction, Tensor<float>& y) {
  FLOPCAST_QUEUE(from = unheld(x), heads, positions, direction, to = unheld(y)) {
    host.rotate_heads(from, heads, positions, direction, to);
  });
}

std::vector<Tensor<float>> QueuedKernels::attention(const AttentionExtent& shape,
                                                    const std::vector<Tensor<float>>& slices, Tensor<float>& output) {
  Tensor<float> probabilities = tensor(output.rows() * shape.heads.heads, slices.size() * shape.length);
  FLOPCAST_QUEUE(shape, inputs = unheld(slices), to = unheld(output), kept = unheld(probabilities)) {
    const std::vector<Tensor<float>> result = host.attention(shape, inputs, to);
    HostDevice().copy(result.front().buffer(), kept.buffer());
  });
  return {probabilities};
}

void QueuedKernels::attention_gradient(const AttentionExtent& shape, const std::vector<Tensor<float>>& slices,
                                       const std::vector<Tensor<float>>& kept, const Tensor<float>& output_gradient,
                                       std::vector<Tensor<float>>& gradients) {
  for (std::size_t slice = 0; slice < slices.size(); ++slice) {
    if (!gradients[slice].empty()) continue;
    const Tensor<float>& like = slices[slice];
    gradients[slice] = Tensor<float>(device_.allocate(like.buffer().bytes()), like.rows(), like.columns());
  }
  FLOPCAST_QUEUE(shape, inputs = unheld(slices), left = unheld(kept), dy = unheld(output_gradient),
                 to = unheld(gradients)) {
    host.attention_gradient(shape, inputs, left, dy, to);
  });
}

void QueuedKernels::look_up(const std::vector<int>& tokens, const VocabularyShare& share, const float* table,
                            Tensor<float>& rows) {
  FLOPCAST_QUEUE(tokens, share, table, to = unheld(rows)) {
    host.look_up(tokens, share, table, to);
  });
}

void QueuedKernels::add_to_table(const std::vector<int>& tokens, const VocabularyShare& share,
                                 const Tensor<float>& rows, float* table) {
  FLOPCAST_QUEUE(tokens, share, from = unheld(rows), table) {
    host.add_to_table(tokens, share, from, table);
  });
}

void QueuedKernels::add_positions(const Tensor<float>& x, const RowPositions& positions, const float* table,
                                  Tensor<float>& y) {
  FLOPCAST_QUEUE(from = unheld(x), positions, table, to = unheld(y)) {
    host.add_positions(from, positions, table, to);
  });
}

void QueuedKernels::add_to_positions(const Tensor<float>& dy, const RowPositions& positions, float* table) {
  FLOPCAST_QUEUE(from = unheld(dy), positions, table) {
    host.add_to_positions(from, positions, table);
  });
}

void QueuedKernels::row_maxima(const Tensor<float>& logits, Tensor<float>& maxima) {
  FLOPCAST_QUEUE(from = unheld(logits), to = unheld(maxima)) {
    host.row_maxima(from, to);
  });
}

void QueuedKernels::exponentials(const Tensor<float>& logits, const Tensor<float>& maxima,
                                 const std::vector<int>& targets, const VocabularyShare& share,
                                 Tensor<float>& exponentials, Tensor<float>& sums, Tensor<float>& target_logits) {
  FLOPCAST_QUEUE(from = unheld(logits), m = unheld(maxima), targets, share, to = unheld(exponentials), s = unheld(sums),
                 t = unheld(target_logits)) {
    host.exponentials(from, m, targets, share, to, s, t);
  });
}

Loss QueuedKernels::normalise(Tensor<float>& exponentials, const Tensor<float>& sums,
                              const Tensor<float>& target_logits) {
  const auto mean = std::make_shared<double>();
  FLOPCAST_QUEUE(to = unheld(exponentials), s = unheld(sums), t = unheld(target_logits), mean) {
    *mean = host.normalise(to, s, t)();
  });
  return [mean, after = device_.mark().moment] {
    after->time();
    return *mean;
  };
}

void QueuedKernels::cross_entropy_gradient(const Tensor<float>& probabilities, const std::vector<int>& targets,
                                           const VocabularyShare& share, float weight, Tensor<float>& gradient) {
  FLOPCAST_QUEUE(from = unheld(probabilities), targets, share, weight, to = unheld(gradient)) {
    host.cross_entropy_gradient(from, targets, share, weight, to);
  });
}

#undef FLOPCAST_QUEUE

}  // namespace flopcast::realrun
