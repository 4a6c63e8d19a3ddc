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

constexpr std::size_t kAlignment = 256;  // cuBLASLt's fastest kernels ask for it

}  // namespace

std::size_t Rotation::part(std::size_t bytes) {
  FLOPCAST_CHECK(slots_ == 0);
  const std::size_t begin = stride_;
  stride_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return begin;
}

void Rotation::fill(Factors factors, bool positive) {
  FLOPCAST_CHECK(stride_ > 0);
  if (stride_ > lane_.bytes) {
    throw EnvironmentError(
        fmt::format("needs {} MiB of the GPU's memory, of which {} are free", stride_ >> 20U, lane_.bytes >> 20U));
  }
  const std::size_t wanted = 2 * cache_bytes_ / stride_ + 2;
  slots_ = std::min(wanted, lane_.bytes / stride_);
  constexpr std::uint64_t kSeed = 20260101;
  fill_random(lane_.memory, slots_ * stride_, factors, positive, kSeed, lane_.stream);
}

std::byte* Rotation::address(std::size_t part, int round) const {
  return lane_.memory + static_cast<std::size_t>(round) % slots_ * stride_ + part;
}

namespace {

constexpr std::size_t kHidden = 4096;      // columns of norms
constexpr std::size_t kVocabulary = 8192;  // columns of the loss
constexpr std::size_t kWidth = 1024;       // of the embedding

/// Rows that a kernel with `tensors` elements of 32 bits to read or write for each column has, to move `bytes`.
Extent extent_for(double bytes, std::size_t tensors, std::size_t columns) {
  const std::size_t row = tensors * sizeof(float) * columns;
  return {std::max<std::size_t>(1, static_cast<std::size_t>(bytes) / row), columns};
}

std::size_t floats(const Extent& extent) {
  return extent.size() * sizeof(float);
}

/// Numbers in the GPU's memory that all repetitions read.
std::shared_ptr<const int> on_device(const std::vector<int>& values, cudaStream_t stream) {
  const std::size_t bytes = values.size() * sizeof(int);
  void* address = nullptr;
  check(cudaMalloc(&address, bytes), "cudaMalloc");
  std::shared_ptr<const int> numbers(static_cast<const int*>(address), [address](const int*) { cudaFree(address); });
  check(cudaMemcpyAsync(address, values.data(), bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return numbers;
}

/// Every number below `count` once, in no order.
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

// y = x Wᵀ with W as frameworks store it; dx = dy W; dW += dyᵀ x in 32 bits. Factors of 8 bits multiply in one layout.
QueueOnce product_work(const SampleKey& key, const Lane& lane, std::size_t cache_bytes) {
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
  Rotation rotation(lane, cache_bytes);
  const std::size_t a = rotation.part(product.m * product.k * size_of(product.factors));
  const std::size_t b = rotation.part(product.k * product.n * size_of(product.factors));
  const std::size_t result = rotation.part(product.m * product.n * (wide ? sizeof(float) : sizeof(std::uint16_t)));
  rotation.fill(product.factors, false);
  return [=, products = lane.products](int round) {
    products->multiply(product, rotation.at<const void>(a, round), rotation.at<const void>(b, round),
                       rotation.at<void>(result, round), 1.0F);
  };
}

QueueOnce norm_work(const SampleKey& key, const Lane& lane, std::size_t cache_bytes) {
  constexpr std::size_t kTensors = 3;
  const Extent extent = extent_for(*key.bytes, kTensors, kHidden);
  Rotation rotation(lane, cache_bytes);
  const std::size_t first = rotation.part(floats(extent));
  const std::size_t normalised = rotation.part(floats(extent));
  const std::size_t last = rotation.part(floats(extent));
  const std::size_t scale = rotation.part(extent.rows * sizeof(float));
  const std::size_t gain = rotation.part(extent.columns * sizeof(float));
  const std::size_t bias = rotation.part(extent.columns * sizeof(float));
  rotation.fill(Factors::kFloat32, false);
  if (key.op == "layernorm forward") {
    return [=, stream = lane.stream](int round) {
      layer_norm(rotation.at<float>(first, round), rotation.at<float>(gain, round), rotation.at<float>(bias, round),
                 rotation.at<float>(normalised, round), rotation.at<float>(scale, round),
                 rotation.at<float>(last, round), extent, stream);
    };
  }
  FLOPCAST_CHECK(key.op == "layernorm backward");
  return [=, stream = lane.stream](int round) {
    layer_norm_input_gradient(rotation.at<float>(first, round), rotation.at<float>(normalised, round),
                              rotation.at<float>(scale, round), rotation.at<float>(gain, round),
                              rotation.at<float>(last, round), extent, stream);
  };
}

QueueOnce elementwise_work(const SampleKey& key, const Lane& lane, std::size_t cache_bytes) {
  const auto bytes = static_cast<std::size_t>(*key.bytes);
  const bool rounds = key.op == "to bf16";
  const bool two = key.op == "gelu";
  const std::size_t moved = rounds ? sizeof(float) + sizeof(std::uint16_t) : (two ? 2 : 3) * sizeof(float);
  const std::size_t count = std::max<std::size_t>(1, bytes / moved);
  Rotation rotation(lane, cache_bytes);
  const std::size_t x = rotation.part(count * sizeof(float));
  const std::size_t y = rotation.part(count * (rounds ? sizeof(std::uint16_t) : sizeof(float)));
  const std::size_t z = rounds || two ? y : rotation.part(count * sizeof(float));
  rotation.fill(Factors::kFloat32, false);
  const cudaStream_t stream = lane.stream;
  if (rounds) {
    return [=](int round) { to_bfloat16(rotation.at<float>(x, round), rotation.at<void>(y, round), count, stream); };
  }
  if (two) {
    return [=](int round) { gelu(rotation.at<float>(x, round), rotation.at<float>(y, round), count, stream); };
  }
  const bool sum = key.op == "add";
  FLOPCAST_CHECK(sum || key.op == "gelu backward");
  return [=](int round) {
    (sum ? add : gelu_gradient)(rotation.at<float>(x, round), rotation.at<float>(y, round),
                                rotation.at<float>(z, round), count, stream);
  };
}

QueueOnce optimizer_work(const SampleKey& key, const Lane& lane, std::size_t cache_bytes) {
  const bool is_adam = key.op == "adam";
  FLOPCAST_CHECK(is_adam || key.op == "sgd");
  UpdateRule rule;
  rule.kind = is_adam ? Optimizer::kAdam : Optimizer::kSgd;
  // Weights, gradient and states are read, weights and states written.
  const auto moved = static_cast<std::size_t>(3 + 2 * rule.states()) * sizeof(float);
  const std::size_t count = std::max<std::size_t>(1, static_cast<std::size_t>(*key.bytes) / moved);
  Rotation rotation(lane, cache_bytes);
  const std::size_t weights = rotation.part(count * sizeof(float));
  const std::size_t gradients = rotation.part(count * sizeof(float));
  const std::size_t updated = rotation.part(count * sizeof(float));
  const std::size_t mean = rotation.part(count * sizeof(float));
  const std::size_t square = is_adam ? rotation.part(count * sizeof(float)) : mean;
  rotation.fill(Factors::kFloat32, true);  // Adam takes roots
  return [=, stream = lane.stream](int round) {
    const Update update{rotation.at<float>(weights, round), rotation.at<float>(gradients, round),
                        rotation.at<float>(updated, round), count};
    constexpr int kStep = 100;
    if (!is_adam) return sgd(rule, update, rotation.at<float>(mean, round), stream);
    adam(rule, kStep, update, rotation.at<float>(mean, round), rotation.at<float>(square, round), stream);
  };
}

// Every row of the table once, in no order.
QueueOnce embedding_work(const SampleKey& key, const Lane& lane, std::size_t cache_bytes) {
  const bool forward = key.op == "forward";
  FLOPCAST_CHECK(forward || key.op == "backward");
  const Extent extent = extent_for(*key.bytes, forward ? 2 : 3, kWidth);
  Rotation rotation(lane, cache_bytes);
  const std::size_t table = rotation.part(floats(extent));
  const std::size_t rows = rotation.part(floats(extent));
  rotation.fill(Factors::kFloat32, false);
  const auto count = static_cast<int>(extent.rows);
  const auto order = on_device(shuffled(extent.rows), lane.stream);
  const cudaStream_t stream = lane.stream;
  if (forward) {
    return [=](int round) {
      look_up(order.get(), 0, count, rotation.at<float>(table, round), rotation.at<float>(rows, round), extent, stream);
    };
  }
  std::vector<int> ascending(extent.rows + 1);
  std::iota(ascending.begin(), ascending.end(), 0);
  const auto starts = on_device(ascending, lane.stream);
  return [=](int round) {
    add_to_table(order.get(), starts.get(), starts.get(), count, rotation.at<float>(rows, round),
                 rotation.at<float>(table, round), extent.columns, stream);
  };
}

// Forward: maxima (one read), exponentials (one read, one write), division (one read, one write).
QueueOnce loss_work(const SampleKey& key, const Lane& lane, std::size_t cache_bytes) {
  const bool forward = key.op == "forward";
  FLOPCAST_CHECK(forward || key.op == "backward");
  const Extent extent = extent_for(*key.bytes, forward ? 5 : 2, kVocabulary);
  const std::size_t column = extent.rows * sizeof(float);
  Rotation rotation(lane, cache_bytes);
  const std::size_t mean = rotation.part(sizeof(double));
  const std::size_t logits = rotation.part(floats(extent));
  const std::size_t values = rotation.part(floats(extent));
  const std::size_t maxima = rotation.part(column);
  const std::size_t sums = rotation.part(column);
  const std::size_t of_targets = rotation.part(column);
  rotation.fill(Factors::kFloat32, false);
  std::vector<int> words = shuffled(std::max(kVocabulary, extent.rows));
  words.resize(extent.rows);
  for (int& word : words) word %= static_cast<int>(kVocabulary);
  const auto targets = on_device(words, lane.stream);
  const cudaStream_t stream = lane.stream;
  if (!forward) {
    return [=](int round) {
      cross_entropy_gradient(rotation.at<float>(logits, round), targets.get(), 0, 1.0F,
                             rotation.at<float>(values, round), extent, stream);
    };
  }
  return [=](int round) {
    float* const of_values = rotation.at<float>(values, round);
    float* const of_sums = rotation.at<float>(sums, round);
    row_maxima(rotation.at<float>(logits, round), rotation.at<float>(maxima, round), extent, stream);
    exponentials(rotation.at<float>(logits, round), rotation.at<float>(maxima, round), targets.get(), 0, of_values,
                 of_sums, rotation.at<float>(of_targets, round), extent, stream);
    normalise(of_values, of_sums, rotation.at<float>(of_targets, round), rotation.at<double>(mean, round), extent,
              stream);
  };
}

QueueOnce attention_work(const SampleKey& key, const Lane& lane, std::size_t cache_bytes) {
  const AttentionShape& shape = *key.attention;
  if (!shape.causal || shape.head_dim > kLargestHead) throw EnvironmentError("flopcast's attention is causal only");
  const AttentionSize size{shape.batch, shape.heads, shape.head_dim, shape.sequence, shape.heads};
  const std::size_t rows = static_cast<std::size_t>(shape.batch) * static_cast<std::size_t>(shape.sequence);
  const std::size_t heads = rows * static_cast<std::size_t>(shape.heads) * sizeof(float);
  const std::size_t tensor = heads * static_cast<std::size_t>(shape.head_dim);
  const bool forward = key.kind == SampleKind::kAttentionForward;
  Rotation rotation(lane, cache_bytes);
  const std::size_t qkv = rotation.part(3 * tensor);
  const std::size_t output = rotation.part(tensor);
  const std::size_t logsumexp = rotation.part(heads);
  const std::size_t dy = forward ? output : rotation.part(tensor);
  const std::size_t projection = forward ? logsumexp : rotation.part(heads);
  const std::size_t dqkv = forward ? qkv : rotation.part(3 * tensor);
  rotation.fill(Factors::kFloat32, false);
  const cudaStream_t stream = lane.stream;
  const auto run_forward = [=](int round) {
    attention(rotation.at<float>(qkv, round), rotation.at<float>(output, round), rotation.at<float>(logsumexp, round),
              size, stream);
  };
  if (forward) return run_forward;
  // The backward pass takes what the forward pass has left.
  for (std::size_t slot = 0; slot < rotation.slots(); ++slot) run_forward(static_cast<int>(slot));
  return [=](int round) {
    attention_gradient(rotation.at<float>(qkv, round), rotation.at<float>(output, round),
                       rotation.at<float>(logsumexp, round), rotation.at<float>(dy, round),
                       rotation.at<float>(projection, round), rotation.at<float>(dqkv, round), size, stream);
  };
}

QueueOnce copy_work(const SampleKey& key, const Lane& lane, std::size_t cache_bytes) {
  constexpr std::size_t kVector = 16;
  const std::size_t half = static_cast<std::size_t>(*key.bytes) / 2 / kVector * kVector;
  Rotation rotation(lane, cache_bytes);
  const std::size_t from = rotation.part(half);
  const std::size_t to = rotation.part(half);
  rotation.fill(Factors::kFloat32, false);
  const cudaStream_t stream = lane.stream;
  if (key.kind == SampleKind::kChannelCopy) {
    return [=, channels = key.channels](int round) {
      copy_on_channels(rotation.at<void>(from, round), rotation.at<void>(to, round), half, channels, stream);
    };
  }
  return [=](int round) {
    check(cudaMemcpyAsync(rotation.at<void>(to, round), rotation.at<void>(from, round), half, cudaMemcpyDeviceToDevice,
                          stream),
          "cudaMemcpyAsync");
  };
}

QueueOnce host_copy_work(const SampleKey& key, const Lane& lane, std::size_t cache_bytes) {
  const auto bytes = static_cast<std::size_t>(*key.bytes);
  const bool to_host = key.op == "to host";
  FLOPCAST_CHECK(to_host || key.op == "to device");
  Rotation rotation(lane, cache_bytes);
  const std::size_t part = rotation.part(bytes);
  rotation.fill(Factors::kFloat32, false);
  void* pinned = nullptr;
  check(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault), "cudaHostAlloc");
  const std::shared_ptr<void> host(pinned, [](void* address) { cudaFreeHost(address); });
  check(cudaMemcpyAsync(pinned, rotation.at<void>(part, 0), bytes, cudaMemcpyDeviceToHost, lane.stream),
        "cudaMemcpyAsync");
  return [=, stream = lane.stream](int round) {
    void* const device = rotation.at<void>(part, round);
    check(to_host ? cudaMemcpyAsync(host.get(), device, bytes, cudaMemcpyDeviceToHost, stream)
                  : cudaMemcpyAsync(device, host.get(), bytes, cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync");
  };
}

}  // namespace

QueueOnce make_work(const SampleKey& key, const Lane& lane, std::size_t cache_bytes) {
  switch (key.kind) {
    case SampleKind::kGemm:
      return product_work(key, lane, cache_bytes);
    case SampleKind::kMemoryCopy:
    case SampleKind::kChannelCopy:
      return copy_work(key, lane, cache_bytes);
    case SampleKind::kHostCopy:
      return host_copy_work(key, lane, cache_bytes);
    case SampleKind::kNorm:
      return norm_work(key, lane, cache_bytes);
    case SampleKind::kElementwise:
      return elementwise_work(key, lane, cache_bytes);
    case SampleKind::kEmbedding:
      return embedding_work(key, lane, cache_bytes);
    case SampleKind::kLoss:
      return loss_work(key, lane, cache_bytes);
    case SampleKind::kOptimizerStep:
      return optimizer_work(key, lane, cache_bytes);
    case SampleKind::kAttentionForward:
    case SampleKind::kAttentionBackward:
      return attention_work(key, lane, cache_bytes);
    case SampleKind::kLaunch:
    case SampleKind::kHostDispatch:
      return [stream = lane.stream](int /*round*/) { nothing(stream); };
    default:
      break;
  }
  throw EnvironmentError("is no kernel of one GPU");
}

TimedEvent::TimedEvent() {
  check(cudaEventCreate(&event_), "cudaEventCreate");
}

TimedEvent::~TimedEvent() {
  cudaEventDestroy(event_);
}

void TimedEvent::record(cudaStream_t stream) {
  check(cudaEventRecord(event_, stream), "cudaEventRecord");
}

bool TimedEvent::reached() const {
  return has_reached(event_);
}

void TimedEvent::hold_up(cudaStream_t stream) const {
  check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
}

double TimedEvent::seconds_until(const TimedEvent& later) const {
  float milliseconds = 0.0F;
  check(cudaEventElapsedTime(&milliseconds, event_, later.event_), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e-3;
}

void Hold::begin(cudaStream_t stream) const {
  check(spin(nanoseconds_, stream), "spin");
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

// The other stream is held, and this one until that hold ends; then the neighbour has a moment to take its place.
void TimedWork::begin_neighbours(int neighbours) {
  constexpr std::int64_t kHeadStart = 30'000;
  hold_.begin(neighbour_.stream);
  released_.record(neighbour_.stream);
  for (int count = 0; count < neighbours; ++count) neighbour_.queue(round_ + count);
  neighbour_end_.record(neighbour_.stream);
  released_.hold_up(work_.stream);
  check(spin(kHeadStart, work_.stream), "spin");
}

// Not by cudaEventSynchronize, which has no limit: a message whose other end never comes would never end.
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
    if (late) throw EnvironmentError(fmt::format("the GPU is not through with it after {:.3g} s", patience_s_));
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
  // The first time libraries load and choose kernels, which says nothing about the next.
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
