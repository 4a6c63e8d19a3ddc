#include "tests/realrun/queued/queued_machine.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

namespace {

// The same bytes without ownership: as on a GPU, queued work keeps nothing alive. The next work reads or writes them.
Buffer used(const Buffer& buffer, bool writes) {
  OrderLog::note_use(buffer.address(), buffer.bytes(), writes);
  return Buffer(std::shared_ptr<std::byte[]>(std::shared_ptr<void>(), buffer.address()), buffer.bytes());
}

Tensor<float> used(const Tensor<float>& tensor, bool writes) {
  return Tensor<float>(used(tensor.buffer(), writes), tensor.rows(), tensor.columns());
}

template <class T>
std::vector<T> used(const std::vector<T>& all, bool writes) {
  std::vector<T> result;
  for (const T& one : all) result.push_back(used(one, writes));
  return result;
}

template <class T>
MatrixView<T> used(const MatrixView<T>& view, bool writes) {
  // Row by row, because the gaps between them may belong to others.
  for (std::size_t row = 0; row < view.rows; ++row) {
    OrderLog::note_use(view.data + row * view.stride, view.columns * sizeof(T), writes);
  }
  return view;
}

template <class T>
T* used(T* values, std::size_t count, bool writes) {
  OrderLog::note_use(values, count * sizeof(float), writes);
  return values;
}

template <class T>
auto reads(const T& what) {
  return used(what, false);
}
template <class T>
auto writes(const T& what) {
  return used(what, true);
}
const float* reads(const float* values, std::size_t count) {
  return used(values, count, false);
}
float* writes(float* values, std::size_t count) {
  return used(values, count, true);
}

// The rows of a table of positions that match the tensor's rows.
template <class T>
T* at_positions(T* table, const RowPositions& positions, const Tensor<float>& rows, bool writes) {
  for (std::size_t row = 0; row < rows.rows(); ++row) {
    OrderLog::note_use(table + positions.of(row) * rows.columns(), rows.columns() * sizeof(float), writes);
  }
  return table;
}

Kernels<float>& host = host_kernels<float>();

}  // namespace

QueuedDevice::QueuedDevice(int rank, int delay, std::shared_ptr<OrderLog> log)
    : seed_(static_cast<unsigned>(rank) * 100U),
      delay_(delay),
      log_(std::move(log)),
      pool_([](std::size_t bytes) { return new std::byte[bytes]; }, [](std::byte* block) { delete[] block; }) {
  for (int queue = 0; queue < kQueues; ++queue) add_queue();
}

Queue QueuedDevice::add_queue() {
  queues_.push_back(std::make_unique<WorkQueue>(++seed_, delay_, log_, static_cast<int>(queues_.size())));
  return static_cast<Queue>(queues_.size() - 1);
}

Buffer QueuedDevice::take(std::size_t bytes) {
  Buffer buffer = pool_.take(bytes);
  if (log_ == nullptr || bytes == 0) return buffer;
  const auto release = [held = buffer, log = log_](std::byte* address) mutable {
    log->released(address, held.bytes());
    held = {};
  };
  return Buffer(std::shared_ptr<std::byte[]>(buffer.address(), release), bytes);
}

Buffer QueuedDevice::allocate(std::size_t bytes) {
  const Buffer buffer = take(bytes);
  zero(buffer);
  return buffer;
}

Buffer QueuedDevice::reserve(std::size_t bytes) {
  const Buffer buffer = take(bytes);
  of(Queue::kCompute).add([target = writes(buffer)] {
    std::fill_n(host_floats(target), target.bytes() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
  });
  return buffer;
}

void QueuedDevice::zero(const Buffer& buffer) {
  of(Queue::kCompute).add([target = writes(buffer)] { HostDevice().zero(target); });
}

void QueuedDevice::draw(const Draw& draw, const Buffer& to) {
  of(Queue::kCompute).add([draw, target = writes(to)] { HostDevice().draw(draw, target); });
}

void QueuedDevice::copy(const Buffer& from, const Buffer& to) {
  copy(Queue::kCompute, from, to);
}

void QueuedDevice::add(const Buffer& from, const Buffer& to) {
  of(Queue::kCompute).add([a = reads(from), b = writes(to)] { HostDevice().add(a, b); });
}

void QueuedDevice::optimize(const UpdateRule& rule, int step, const Buffer& weights, const Buffer& gradients,
                            const std::vector<Buffer>& states, const Buffer& updated) {
  of(Queue::kCompute)
      .add([rule, step, w = reads(weights), g = reads(gradients), s = writes(states), u = writes(updated)] {
        HostDevice().optimize(rule, step, w, g, s, u);
      });
}

void QueuedDevice::upload(const std::byte* from, const Buffer& to) {
  of(Queue::kCompute).add([from, target = writes(to)] { copy_bytes(target.address(), from, target.bytes()); });
  settle();
}

void QueuedDevice::download(const Buffer& from, std::byte* to) {
  of(Queue::kCompute).add([to, source = reads(from)] { copy_bytes(to, source.address(), source.bytes()); });
  settle();
}

void QueuedDevice::copy(Queue queue, const Buffer& from, const Buffer& to) {
  of(queue).add([a = reads(from), b = writes(to)] { HostDevice().copy(a, b); });
}

void QueuedDevice::reduce(Queue queue, const std::vector<Buffer>& inputs, Element element, Reduction reduction,
                          const Buffer& output) {
  of(queue).add([sources = reads(inputs), element, reduction, target = writes(output)] {
    std::vector<const std::byte*> addresses;
    for (const Buffer& source : sources) addresses.push_back(source.address());
    reduce_in_order(addresses, target.bytes() / size_of(element), element, reduction, target.address());
  });
}

// Work that writes to a tensor receives a copy of the handle.
#define FLOPCAST_QUEUE(...) device_.of(Queue::kCompute).add([__VA_ARGS__]() mutable

Tensor<float> QueuedKernels::tensor(std::size_t rows, std::size_t columns) {
  return Tensor<float>(device_.reserve(rows * columns * sizeof(float)), rows, columns);
}

void QueuedKernels::multiply(const MatrixView<const float>& a, const MatrixView<const float>& b,
                             const MatrixView<float>& result, float factor, bool accumulate) {
  FLOPCAST_QUEUE(left = reads(a), right = reads(b), to = writes(result), factor, accumulate) {
    host.multiply(left, right, to, factor, accumulate);
  });
}

void QueuedKernels::add(const Tensor<float>& a, const Tensor<float>& b, Tensor<float>& sum) {
  FLOPCAST_QUEUE(x = reads(a), y = reads(b), z = writes(sum)) {
    host.add(x, y, z);
  });
}

void QueuedKernels::add_bias(const Tensor<float>& x, const float* bias, Tensor<float>& y) {
  FLOPCAST_QUEUE(from = reads(x), added = reads(bias, y.columns()), to = writes(y)) {
    host.add_bias(from, added, to);
  });
}

void QueuedKernels::add_up_rows(const Tensor<float>& x, float* sums) {
  FLOPCAST_QUEUE(from = reads(x), to = writes(sums, x.columns())) {
    host.add_up_rows(from, to);
  });
}

void QueuedKernels::norm(const Tensor<float>& x, const float* gain, const float* bias, Tensor<float>& normalised,
                         Tensor<float>& scale, Tensor<float>& y) {
  FLOPCAST_QUEUE(from = reads(x), g = reads(gain, x.columns()), b = reads(bias, bias == nullptr ? 0 : x.columns()),
                 n = writes(normalised), s = writes(scale), to = writes(y)) {
    host.norm(from, g, b, n, s, to);
  });
}

void QueuedKernels::norm_input_gradient(const Tensor<float>& dy, const Tensor<float>& normalised,
                                        const Tensor<float>& scale, const float* gain, bool centred,
                                        Tensor<float>& dx) {
  FLOPCAST_QUEUE(from = reads(dy), n = reads(normalised), s = reads(scale), g = reads(gain, dy.columns()), centred,
                 to = writes(dx)) {
    host.norm_input_gradient(from, n, s, g, centred, to);
  });
}

void QueuedKernels::norm_weight_gradient(const Tensor<float>& dy, const Tensor<float>& normalised, float* gain,
                                         float* bias) {
  FLOPCAST_QUEUE(from = reads(dy), n = reads(normalised), g = writes(gain, dy.columns()),
                 b = writes(bias, bias == nullptr ? 0 : dy.columns())) {
    host.norm_weight_gradient(from, n, g, b);
  });
}

void QueuedKernels::gelu(const Tensor<float>& x, Tensor<float>& y) {
  FLOPCAST_QUEUE(from = reads(x), to = writes(y)) {
    host.gelu(from, to);
  });
}

void QueuedKernels::gelu_gradient(const Tensor<float>& dy, const Tensor<float>& x, Tensor<float>& dx) {
  FLOPCAST_QUEUE(from = reads(dy), input = reads(x), to = writes(dx)) {
    host.gelu_gradient(from, input, to);
  });
}

void QueuedKernels::gated_silu(const Tensor<float>& x, Tensor<float>& y) {
  FLOPCAST_QUEUE(from = reads(x), to = writes(y)) {
    host.gated_silu(from, to);
  });
}

void QueuedKernels::gated_silu_gradient(const Tensor<float>& dy, const Tensor<float>& x, Tensor<float>& dx) {
  FLOPCAST_QUEUE(from = reads(dy), input = reads(x), to = writes(dx)) {
    host.gated_silu_gradient(from, input, to);
  });
}

void QueuedKernels::copy(const MatrixView<const float>& from, const MatrixView<float>& to) {
  FLOPCAST_QUEUE(source = reads(from), target = writes(to)) {
    host.copy(source, target);
  });
}

void QueuedKernels::rotate_heads(const Tensor<float>& x, const HeadLayout& heads, const RowPositions& positions,
                                 float direction, Tensor<float>& y) {
  FLOPCAST_QUEUE(from = reads(x), heads, positions, direction, to = writes(y)) {
    host.rotate_heads(from, heads, positions, direction, to);
  });
}

std::vector<Tensor<float>> QueuedKernels::attention(const AttentionExtent& shape,
                                                    const std::vector<Tensor<float>>& slices, Tensor<float>& output) {
  Tensor<float> probabilities = tensor(output.rows() * shape.heads.heads, slices.size() * shape.length);
  FLOPCAST_QUEUE(shape, inputs = reads(slices), to = writes(output), kept = writes(probabilities)) {
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
  FLOPCAST_QUEUE(shape, inputs = reads(slices), left = reads(kept), dy = reads(output_gradient),
                 to = writes(gradients)) {
    host.attention_gradient(shape, inputs, left, dy, to);
  });
}

void QueuedKernels::look_up(const std::vector<int>& tokens, const VocabularyShare& share, const float* table,
                            Tensor<float>& rows) {
  FLOPCAST_QUEUE(tokens, share, rows_of = reads(table, share.count * rows.columns()), to = writes(rows)) {
    host.look_up(tokens, share, rows_of, to);
  });
}

void QueuedKernels::add_to_table(const std::vector<int>& tokens, const VocabularyShare& share,
                                 const Tensor<float>& rows, float* table) {
  FLOPCAST_QUEUE(tokens, share, from = reads(rows), to = writes(table, share.count * rows.columns())) {
    host.add_to_table(tokens, share, from, to);
  });
}

void QueuedKernels::add_positions(const Tensor<float>& x, const RowPositions& positions, const float* table,
                                  Tensor<float>& y) {
  FLOPCAST_QUEUE(from = reads(x), positions, rows_of = at_positions(table, positions, x, false), to = writes(y)) {
    host.add_positions(from, positions, rows_of, to);
  });
}

void QueuedKernels::add_to_positions(const Tensor<float>& dy, const RowPositions& positions, float* table) {
  FLOPCAST_QUEUE(from = reads(dy), positions, rows_of = at_positions(table, positions, dy, true)) {
    host.add_to_positions(from, positions, rows_of);
  });
}

void QueuedKernels::row_maxima(const Tensor<float>& logits, Tensor<float>& maxima) {
  FLOPCAST_QUEUE(from = reads(logits), to = writes(maxima)) {
    host.row_maxima(from, to);
  });
}

void QueuedKernels::exponentials(const Tensor<float>& logits, const Tensor<float>& maxima,
                                 const std::vector<int>& targets, const VocabularyShare& share,
                                 Tensor<float>& exponentials, Tensor<float>& sums, Tensor<float>& target_logits) {
  FLOPCAST_QUEUE(from = reads(logits), m = reads(maxima), targets, share, to = writes(exponentials), s = writes(sums),
                 t = writes(target_logits)) {
    host.exponentials(from, m, targets, share, to, s, t);
  });
}

Loss QueuedKernels::normalise(Tensor<float>& exponentials, const Tensor<float>& sums,
                              const Tensor<float>& target_logits) {
  const auto mean = std::make_shared<double>();
  FLOPCAST_QUEUE(to = writes(exponentials), s = reads(sums), t = reads(target_logits), mean) {
    *mean = host.normalise(to, s, t)();
  });
  return [mean, after = device_.mark().moment] {
    after->time();
    return *mean;
  };
}

void QueuedKernels::cross_entropy_gradient(const Tensor<float>& probabilities, const std::vector<int>& targets,
                                           const VocabularyShare& share, float weight, Tensor<float>& gradient) {
  FLOPCAST_QUEUE(from = reads(probabilities), targets, share, weight, to = writes(gradient)) {
    host.cross_entropy_gradient(from, targets, share, weight, to);
  });
}

#undef FLOPCAST_QUEUE

}  // namespace flopcast::realrun
