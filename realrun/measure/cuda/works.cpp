#include "realrun/measure/cuda/works.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "model/workload/training.hpp"
#include "realrun/compute/cuda/launch.hpp"
#include "realrun/compute/cuda/runtime.hpp"
#include "realrun/measure/cuda/bench_kernels.hpp"
#include "realrun/measure/measure_cpu.hpp"

namespace flopcast::realrun::cuda {

namespace {

constexpr std::size_t kAlignment = 256;  // cuBLASLt's fastest kernels require it

}  // namespace

Rotation::Rotation(const Lane& lane, std::size_t cache_bytes, const std::vector<std::size_t>& parts, Factors factors,
                   bool positive)
    : memory_(lane.memory) {
  for (const std::size_t bytes : parts) {
    starts_.push_back(stride_);
    stride_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  FLOPCAST_CHECK(stride_ > 0);
  if (stride_ > lane.bytes) {
    throw EnvironmentError(
        fmt::format("needs {} MiB of GPU memory, but only {} are free", stride_ >> 20U, lane.bytes >> 20U));
  }
  const std::size_t wanted = 2 * cache_bytes / stride_ + 2;
  slots_ = std::min(wanted, lane.bytes / stride_);
  constexpr std::uint64_t kSeed = 20260101;
  fill_random(lane.memory, slots_ * stride_, factors, positive, kSeed, lane.stream);
}

namespace {

struct Workplace {
  const Lane& lane;
  std::size_t cache_bytes;
};

constexpr std::size_t kHidden = 4096;      // columns of norms
constexpr std::size_t kVocabulary = 8192;  // columns of the loss
constexpr std::size_t kWidth = 1024;       // columns of the embedding

/// Size of a kernel that reads or writes `tensors` 32-bit elements per column and moves `bytes` in total.
Extent extent_for(double bytes, std::size_t tensors, std::size_t columns) {
  const std::size_t row = tensors * sizeof(float) * columns;
  return {std::max<std::size_t>(1, static_cast<std::size_t>(bytes) / row), columns};
}

std::size_t bytes_of(const Extent& extent) {
  return extent.size() * sizeof(float);
}

/// Numbers in GPU memory that all repetitions read.
std::shared_ptr<const int> on_device(const std::vector<int>& values, cudaStream_t stream) {
  const std::size_t bytes = values.size() * sizeof(int);
  void* address = nullptr;
  check(cudaMalloc(&address, bytes), "cudaMalloc");
  std::shared_ptr<const int> numbers(static_cast<const int*>(address), [address](const int*) { cudaFree(address); });
  check(cudaMemcpyAsync(address, values.data(), bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return numbers;
}

/// All numbers below `count` in random order.
std::vector<int> shuffled(std::size_t count) {
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  std::shuffle(numbers.begin(), numbers.end(), std::mt19937(1));
  return numbers;
}

Factors factors_of(const std::string& dtype) {
  if (dtype == "bf16") return Factors::kBfloat16;
  if (dtype == "fp16") return Factors::kFloat16;
  if (dtype == "fp8") return Factors::kFloat8;
  return Factors::kFloat32;
}

// y = x Wᵀ with W as frameworks store it; dx = dy W; dW += dyᵀ x in 32 bits. 8-bit products support one layout only.
QueueOnce product_work(const SampleKey& key, const Workplace& place) {
  const bool of_weights = key.op == "wgrad";
  Product product;
  product.m = static_cast<std::size_t>(key.shape->m);
  product.n = static_cast<std::size_t>(key.shape->n);
  product.k = static_cast<std::size_t>(key.shape->k);
  product.a_transposed = of_weights;
  product.b_transposed = key.op.empty();
  product.accumulate = of_weights;
  product.factors = factors_of(key.dtype);
  product.narrow = !of_weights;
  const bool wide = of_weights || product.factors == Factors::kFloat32;
  const std::size_t factor = size_of(product.factors);
  const Rotation buffers(place.lane, place.cache_bytes,
                         {product.m * product.k * factor, product.k * product.n * factor,
                          product.m * product.n * (wide ? sizeof(float) : sizeof(std::uint16_t))},
                         product.factors);
  return [=, products = place.lane.products](int round) {
    const auto [a, b, result] = buffers.of<3>(round);
    products->multiply(product, a, b, result, 1.0F);
  };
}

QueueOnce norm_work(const SampleKey& key, const Workplace& place) {
  constexpr std::size_t kTensors = 3;
  const Extent extent = extent_for(*key.bytes, kTensors, kHidden);
  const std::size_t all = bytes_of(extent);
  const std::size_t row = extent.columns * sizeof(float);
  const Rotation buffers(place.lane, place.cache_bytes, {all, all, all, extent.rows * sizeof(float), row, row});
  const bool forward = key.op == "layernorm forward";
  FLOPCAST_CHECK(forward || key.op == "layernorm backward");
  return [=, stream = place.lane.stream](int round) {
    const auto [first, normalised, last, scale, gain, bias] = buffers.of<6>(round);
    if (forward) return norm(first, gain, bias, normalised, scale, last, extent, stream);
    norm_input_gradient(first, normalised, scale, gain, true, last, extent, stream);
  };
}

QueueOnce elementwise_work(const SampleKey& key, const Workplace& place) {
  const bool rounds = key.op == "to bf16";
  const bool two = key.op == "gelu";
  const bool sum = key.op == "add";
  FLOPCAST_CHECK(rounds || two || sum || key.op == "gelu backward");
  const std::size_t moved = rounds ? sizeof(float) + sizeof(std::uint16_t) : (two ? 2 : 3) * sizeof(float);
  const std::size_t count = std::max<std::size_t>(1, static_cast<std::size_t>(*key.bytes) / moved);
  const std::size_t all = count * sizeof(float);
  const Rotation buffers(place.lane, place.cache_bytes,
                         {all, rounds ? count * sizeof(std::uint16_t) : all, rounds || two ? 0 : all});
  return [=, stream = place.lane.stream](int round) {
    const auto [x, y, z] = buffers.of<3>(round);
    if (rounds) return to_bfloat16(x, y, count, stream);
    if (two) return gelu(x, y, count, stream);
    (sum ? add : gelu_gradient)(x, y, z, count, stream);
  };
}

QueueOnce optimizer_work(const SampleKey& key, const Workplace& place) {
  const bool is_adam = key.op == "adam";
  FLOPCAST_CHECK(is_adam || key.op == "sgd");
  UpdateRule rule;
  rule.kind = is_adam ? Optimizer::kAdam : Optimizer::kSgd;
  // Weights, gradient and states are read, weights and states written.
  const auto moved = static_cast<std::size_t>(3 + 2 * rule.states()) * sizeof(float);
  const std::size_t count = std::max<std::size_t>(1, static_cast<std::size_t>(*key.bytes) / moved);
  const std::size_t all = count * sizeof(float);
  // Adam takes square roots.
  const Rotation buffers(place.lane, place.cache_bytes, {all, all, all, all, is_adam ? all : 0}, Factors::kFloat32,
                         true);
  return [=, stream = place.lane.stream](int round) {
    constexpr int kStep = 100;
    const auto [weights, gradients, updated, mean, square] = buffers.of<5>(round);
    const Update update{weights, gradients, updated, count};
    if (!is_adam) return sgd(rule, update, mean, stream);
    adam(rule, kStep, update, mean, square, stream);
  };
}

// All rows of the table once, in random order.
QueueOnce embedding_work(const SampleKey& key, const Workplace& place) {
  const bool forward = key.op == "forward";
  FLOPCAST_CHECK(forward || key.op == "backward");
  const Extent extent = extent_for(*key.bytes, forward ? 2 : 3, kWidth);
  const Rotation buffers(place.lane, place.cache_bytes, {bytes_of(extent), bytes_of(extent)});
  const auto count = static_cast<int>(extent.rows);
  const auto order = on_device(shuffled(extent.rows), place.lane.stream);
  std::vector<int> ascending(extent.rows + 1);
  std::iota(ascending.begin(), ascending.end(), 0);
  const auto starts = on_device(ascending, place.lane.stream);
  return [=, stream = place.lane.stream](int round) {
    const auto [table, rows] = buffers.of<2>(round);
    if (forward) return look_up(order.get(), 0, count, table, rows, extent, stream);
    add_to_table(order.get(), starts.get(), starts.get(), count, rows, table, extent.columns, stream);
  };
}

// Forward: maxima (one read), exponentials (one read, one write), division (one read, one write).
QueueOnce loss_work(const SampleKey& key, const Workplace& place) {
  const bool forward = key.op == "forward";
  FLOPCAST_CHECK(forward || key.op == "backward");
  const Extent extent = extent_for(*key.bytes, forward ? 5 : 2, kVocabulary);
  const std::size_t column = extent.rows * sizeof(float);
  const Rotation buffers(place.lane, place.cache_bytes,
                         {sizeof(double), bytes_of(extent), bytes_of(extent), column, column, column});
  std::vector<int> words = shuffled(std::max(kVocabulary, extent.rows));
  words.resize(extent.rows);
  for (int& word : words) word %= static_cast<int>(kVocabulary);
  const auto targets = on_device(words, place.lane.stream);
  return [=, stream = place.lane.stream](int round) {
    const auto [mean, logits, values, maxima, sums, of_targets] = buffers.of<6>(round);
    if (!forward) return cross_entropy_gradient(logits, targets.get(), 0, 1.0F, values, extent, stream);
    row_maxima(logits, maxima, extent, stream);
    exponentials(logits, maxima, targets.get(), 0, values, sums, of_targets, extent, stream);
    normalise(values, sums, of_targets, reinterpret_cast<double*>(mean), extent, stream);
  };
}

QueueOnce attention_work(const SampleKey& key, const Workplace& place) {
  const AttentionShape& shape = *key.attention;
  if (!shape.causal || shape.head_dim > kLargestHead) throw EnvironmentError("flopcast's attention is causal only");
  const AttentionSize size{shape.batch, shape.heads, shape.head_dim, shape.sequence, shape.heads};
  const std::size_t rows = static_cast<std::size_t>(shape.batch) * static_cast<std::size_t>(shape.sequence);
  const std::size_t heads = rows * static_cast<std::size_t>(shape.heads) * sizeof(float);
  const std::size_t tensor = heads * static_cast<std::size_t>(shape.head_dim);
  const bool forward = key.kind == SampleKind::kAttentionForward;
  const std::size_t back = forward ? 0 : 1;  // buffers of the backward pass only
  const Rotation buffers(place.lane, place.cache_bytes,
                         {3 * tensor, tensor, heads, back * tensor, back * heads, back * 3 * tensor});
  auto run_forward = [=, stream = place.lane.stream](int round) {
    const auto [qkv, output, logsumexp, dy, projection, dqkv] = buffers.of<6>(round);
    attention(qkv, output, logsumexp, size, stream);
  };
  if (forward) return run_forward;
  // The backward pass needs the results of a forward pass.
  for (std::size_t slot = 0; slot < buffers.slots(); ++slot) run_forward(static_cast<int>(slot));
  return [=, stream = place.lane.stream](int round) {
    const auto [qkv, output, logsumexp, dy, projection, dqkv] = buffers.of<6>(round);
    attention_gradient(qkv, output, logsumexp, dy, projection, dqkv, size, stream);
  };
}

QueueOnce copy_work(const SampleKey& key, const Workplace& place) {
  constexpr std::size_t kVector = 16;
  const std::size_t half = static_cast<std::size_t>(*key.bytes) / 2 / kVector * kVector;
  const Rotation buffers(place.lane, place.cache_bytes, {half, half});
  const bool on_channels = key.kind == SampleKind::kChannelCopy;
  return [=, stream = place.lane.stream, channels = key.channels](int round) {
    const auto [from, to] = buffers.of<2>(round);
    if (on_channels) return copy_on_channels(from, to, half, channels, stream);
    check(cudaMemcpyAsync(to, from, half, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
  };
}

QueueOnce host_copy_work(const SampleKey& key, const Workplace& place) {
  const auto bytes = static_cast<std::size_t>(*key.bytes);
  const bool to_host = key.op == "to host";
  FLOPCAST_CHECK(to_host || key.op == "to device");
  const Rotation buffers(place.lane, place.cache_bytes, {bytes});
  void* pinned = nullptr;
  check(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault), "cudaHostAlloc");
  const std::shared_ptr<void> host(pinned, [](void* address) { cudaFreeHost(address); });
  const auto copy = [=, stream = place.lane.stream](int round, bool leaves) {
    void* const device = buffers.of<1>(round).front();
    check(leaves ? cudaMemcpyAsync(host.get(), device, bytes, cudaMemcpyDeviceToHost, stream)
                 : cudaMemcpyAsync(device, host.get(), bytes, cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync");
  };
  copy(0, true);
  return [=](int round) { copy(round, to_host); };
}

}  // namespace

QueueOnce make_work(const SampleKey& key, const Lane& lane, std::size_t cache_bytes) {
  const Workplace place{lane, cache_bytes};
  switch (key.kind) {
    case SampleKind::kGemm:
      return product_work(key, place);
    case SampleKind::kMemoryCopy:
    case SampleKind::kChannelCopy:
      return copy_work(key, place);
    case SampleKind::kHostCopy:
      return host_copy_work(key, place);
    case SampleKind::kNorm:
      return norm_work(key, place);
    case SampleKind::kElementwise:
      return elementwise_work(key, place);
    case SampleKind::kEmbedding:
      return embedding_work(key, place);
    case SampleKind::kLoss:
      return loss_work(key, place);
    case SampleKind::kOptimizerStep:
      return optimizer_work(key, place);
    case SampleKind::kAttentionForward:
    case SampleKind::kAttentionBackward:
      return attention_work(key, place);
    case SampleKind::kLaunch:
    case SampleKind::kHostDispatch:
      return [stream = lane.stream](int /*round*/) { nothing(stream); };
    default:
      break;
  }
  throw EnvironmentError("cannot be measured on one GPU");
}

TimedEvent::TimedEvent() {
  check(cudaEventCreate(&event_), "cudaEventCreate");
}

TimedEvent::~TimedEvent() {
  cudaEventDestroy(event_);
}

double TimedEvent::seconds_until(const TimedEvent& later) const {
  float milliseconds = 0.0F;
  check(cudaEventElapsedTime(&milliseconds, event_, later.event_), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e-3;
}

bool Hold::lengthen() {
  constexpr std::int64_t kLongest = 10'000'000;
  if (nanoseconds_ >= kLongest) return false;
  nanoseconds_ *= 2;
  return true;
}

QueuedTime TimedWork::run(int times, int neighbours) {
  while (true) {
    const QueuedTime time = attempt(times, neighbours);
    if (time.host_ahead || !hold_.lengthen()) return time;
  }
}

// Holds the neighbour's stream, and this one until that hold ends; the neighbour then gets a head start to occupy the
// GPU.
void TimedWork::begin_neighbours(int neighbours) {
  constexpr std::int64_t kHeadStart = 30'000;
  hold_.begin(neighbour_.stream);
  released_.record(neighbour_.stream);
  for (int count = 0; count < neighbours; ++count) neighbour_.queue(round_ + count);
  neighbour_end_.record(neighbour_.stream);
  released_.hold_up(work_.stream);
  check(spin(kHeadStart, work_.stream), "spin");
}

// Does not use cudaEventSynchronize, which has no time limit: a message whose other end never arrives would never end.
void TimedWork::await(const TimedEvent& event) const {
  static const Clock clock = machine_clock();
  constexpr double kBetweenLooks = 1e-2;
  const double begin = clock.wall();
  double next = kBetweenLooks;
  while (!event.reached()) {
    const double waited = clock.wall() - begin;
    const bool late = waited >= patience_s_;
    if (waited < next && !late) continue;
    next = waited + kBetweenLooks;
    for (const QueuedWorkload* watched : {&work_, &neighbour_}) {
      if (watched->watch) watched->watch(late);
    }
    if (late) throw EnvironmentError(fmt::format("not finished on the GPU after {:.3g} s", patience_s_));
  }
}

QueuedTime TimedWork::attempt(int times, int neighbours) {
  static const Clock clock = machine_clock();
  if (neighbour_.queue) {
    begin_neighbours(neighbours);
  } else {
    hold_.begin(work_.stream);
  }
  start_.record(work_.stream);
  QueuedTime result;
  const bool first = round_ == 0;
  const double begin = clock.wall();
  for (int count = 0; count < times; ++count) work_.queue(round_++);
  result.host_s = clock.wall() - begin;
  end_.record(work_.stream);
  // In the first run libraries load and select kernels, so the host's lead is not representative.
  result.host_ahead = first || !start_.reached();
  await(end_);
  result.device_s = work_.share * start_.seconds_until(end_);
  if (neighbour_.queue) {
    await(neighbour_end_);
    result.covered = end_.seconds_until(neighbour_end_) > 0.0;
  }
  return result;
}

}  // namespace flopcast::realrun::cuda
