// The layer between measuring and CUDA, run on the CPU: which buffers each kernel gets, that it stays within them, and
// the values of the random numbers. Times are not tested here.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/compute/cuda/runtime.hpp"
#include "realrun/measure/cuda/bench_kernels.hpp"
#include "realrun/measure/cuda/works.hpp"
#include "realrun/measure/measure_gpu.hpp"
#include "tests/realrun/emulated_cuda/emulation.hpp"

namespace flopcast::realrun {
namespace {

using cuda::Factors;
using cuda::Lane;

constexpr std::size_t kLaneBytes = std::size_t{1} << 22U;
constexpr std::byte kGuard{0x5a};

/// Reads every factor and writes every element of the result.
class TouchingProducts : public cuda::MatrixProducts {
 public:
  void multiply(const cuda::Product& product, const void* a, const void* b, void* result, float /*factor*/) override {
    products.push_back(product);
    const auto sum = [](const void* from, std::size_t bytes) {
      const auto* values = static_cast<const unsigned char*>(from);
      std::uint64_t total = 0;
      for (std::size_t index = 0; index < bytes; ++index) total += values[index];
      return total;
    };
    const std::size_t element = size_of(product.factors);
    touched += sum(a, product.m * product.k * element) + sum(b, product.k * product.n * element);
    const bool wide = !product.narrow || product.factors == Factors::kFloat32;
    std::memset(result, 0, product.m * product.n * (wide ? 4 : 2));
  }
  std::vector<cuda::Product> products;
  std::uint64_t touched = 0;
};

class EmulatedBench : public testing::Test {
 protected:
  EmulatedBench() : memory_(kLaneBytes + 512, kGuard) {
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~EmulatedBench() override {
    cudaStreamDestroy(stream_);
    for (std::size_t index = kLaneBytes; index < memory_.size(); ++index) EXPECT_EQ(memory_[index], kGuard);
  }
  Lane lane(std::size_t bytes = kLaneBytes) { return {stream_, memory_.data(), bytes, &products_}; }

  std::vector<std::byte> memory_;
  cudaStream_t stream_ = nullptr;
  TouchingProducts products_;
};

SampleKey moved(SampleKind kind, const char* op, double bytes) {
  SampleKey key;
  key.kind = kind;
  key.op = op;
  key.bytes = bytes;
  return key;
}

// All kinds of the standard set, in small sizes.
std::vector<SampleKey> small_keys() {
  std::vector<SampleKey> keys;
  constexpr double kSome = 200'000;
  for (const char* op : {"layernorm forward", "layernorm backward"}) {
    keys.push_back(moved(SampleKind::kNorm, op, kSome));
  }
  for (const char* op : {"gelu", "gelu backward", "add", "to bf16"}) {
    keys.push_back(moved(SampleKind::kElementwise, op, kSome));
  }
  for (const char* op : {"adam", "sgd"}) keys.push_back(moved(SampleKind::kOptimizerStep, op, kSome));
  for (const char* op : {"forward", "backward"}) {
    keys.push_back(moved(SampleKind::kEmbedding, op, kSome));
    keys.push_back(moved(SampleKind::kLoss, op, kSome));
  }
  for (const char* op : {"to host", "to device"}) keys.push_back(moved(SampleKind::kHostCopy, op, kSome));
  keys.push_back(moved(SampleKind::kMemoryCopy, "", kSome));
  SampleKey copy = moved(SampleKind::kChannelCopy, "", kSome);
  copy.channels = 3;
  keys.push_back(copy);
  for (const SampleKind kind : {SampleKind::kAttentionForward, SampleKind::kAttentionBackward}) {
    SampleKey key;
    key.kind = kind;
    key.attention = flopcast::AttentionShape{1, 2, 48, 64, true};
    keys.push_back(key);
  }
  for (const SampleKind kind : {SampleKind::kLaunch, SampleKind::kHostDispatch}) {
    SampleKey key;
    key.kind = kind;
    keys.push_back(key);
  }
  for (const char* dtype : {"bf16", "fp16", "tf32", "fp8"}) {
    for (const char* op : {"", "dgrad", "wgrad"}) {
      if (std::string(dtype) == "fp8" && *op != '\0') continue;
      SampleKey key;
      key.shape = SampleShape{48, 32, 64};
      key.dtype = dtype;
      key.op = op;
      keys.push_back(key);
    }
  }
  return keys;
}

TEST_F(EmulatedBench, EveryWorkStaysInsideItsBuffers) {
  for (const SampleKey& key : small_keys()) {
    for (const std::size_t cache : {std::size_t{0}, std::size_t{500'000}, kLaneBytes}) {
      cuda::TimedWork work({stream_, cuda::make_work(key, lane(), cache), {}});
      constexpr int kTimes = 3;
      const QueuedTime time = work.run(kTimes, 1);
      EXPECT_GE(time.device_s, 0.0) << key.text();
      EXPECT_GT(time.host_s, 0.0) << key.text();
      EXPECT_TRUE(time.covered);
    }
  }
}

TEST_F(EmulatedBench, TheWholeStandardSetHasKernels) {
  GpuFacts facts;
  facts.compute_capability = 90;
  facts.workspace_bytes = 1e12;
  GpuSet set;
  std::set<std::string> known;
  for (const SampleKey& key : small_keys()) known.insert(std::string(name_of(key.kind)) + key.op + key.dtype);
  for (const SampleKey& key : gpu_samples(set, facts)) {
    const bool attention = is_attention(key.kind);
    EXPECT_TRUE(known.count(std::string(name_of(key.kind)) + (attention ? "" : key.op + key.dtype)) > 0) << key.text();
  }
}

TEST_F(EmulatedBench, ProductsHaveTheLayoutsOfALinear) {
  SampleKey key;
  key.shape = SampleShape{48, 32, 64};
  key.dtype = "bf16";
  const auto product_of = [&](const char* op) {
    key.op = op;
    products_.products.clear();
    cuda::make_work(key, lane(), 0)(0);
    return products_.products.at(0);
  };
  const cuda::Product forward = product_of("");
  EXPECT_TRUE(forward.b_transposed && !forward.a_transposed && forward.narrow && !forward.accumulate);
  const cuda::Product input = product_of("dgrad");
  EXPECT_TRUE(!input.b_transposed && !input.a_transposed && input.narrow && !input.accumulate);
  const cuda::Product weight = product_of("wgrad");
  EXPECT_TRUE(!weight.b_transposed && weight.a_transposed && !weight.narrow && weight.accumulate);
}

TEST_F(EmulatedBench, BuffersRotateThroughMoreThanTheCache) {
  constexpr std::size_t kCache = 300'000;
  constexpr std::size_t kBytes = 40'000;
  const cuda::Rotation rotation(lane(), kCache, {kBytes});
  EXPECT_GT(rotation.slots() * kBytes, 2 * kCache);
  std::set<const float*> places;
  for (std::size_t round = 0; round < 2 * rotation.slots(); ++round) {
    places.insert(rotation.of<1>(static_cast<int>(round)).front());
  }
  EXPECT_EQ(places.size(), rotation.slots());
  EXPECT_THROW(cuda::Rotation(lane(1000), kCache, {kBytes}), EnvironmentError);
}

TEST_F(EmulatedBench, CopiesCopy) {
  for (const int channels : {1, 3, 7}) {
    constexpr std::size_t kBytes = 100'016;
    std::vector<std::byte> to(kBytes + 16, kGuard);
    cuda::fill_random(memory_.data(), kBytes, Factors::kFloat32, false, 1, stream_);
    // Vectors of 16 bytes must be aligned to 16 bytes.
    auto* const aligned = to.data() + (16 - reinterpret_cast<std::uintptr_t>(to.data()) % 16) % 16;
    cuda::copy_on_channels(memory_.data(), aligned, kBytes, channels, stream_);
    EXPECT_TRUE(std::equal(aligned, aligned + kBytes, memory_.data()));
  }
  EXPECT_THROW(cuda::copy_on_channels(memory_.data(), memory_.data() + 64, 64, 0, stream_), EnvironmentError);
}

// Values of bit patterns according to IEEE 754 and, for e4m3, OCP's specification of 8-bit floats.
double value_of(Factors factors, std::uint32_t bits) {
  if (factors == Factors::kFloat32) return std::bit_cast<float>(bits);
  const int width = factors == Factors::kFloat8 ? 8 : 16;
  const int mantissa_bits = factors == Factors::kFloat8 ? 3 : factors == Factors::kFloat16 ? 10 : 7;
  const int exponent_bits = width - 1 - mantissa_bits;
  const double mantissa = (bits & ((1U << mantissa_bits) - 1U)) / std::exp2(mantissa_bits);
  const int exponent = static_cast<int>((bits >> mantissa_bits) & ((1U << exponent_bits) - 1U));
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double value = (1.0 + mantissa) * std::exp2(exponent - bias);
  return (bits >> (width - 1)) != 0 ? -value : value;
}

TEST_F(EmulatedBench, RandomNumbersAreFiniteAndOfBothSigns) {
  for (const Factors factors : {Factors::kFloat32, Factors::kBfloat16, Factors::kFloat16, Factors::kFloat8}) {
    for (const bool positive : {false, true}) {
      constexpr std::size_t kBytes = 40'000;
      cuda::fill_random(memory_.data(), kBytes, factors, positive, 7, stream_);
      const std::size_t element = size_of(factors);
      std::size_t negative = 0;
      std::set<double> different;
      for (std::size_t place = 0; place < kBytes; place += element) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, memory_.data() + place, element);
        const double value = value_of(factors, bits);
        ASSERT_GE(std::abs(value), 1.0 / 16);
        ASSERT_LT(std::abs(value), 1.0);
        negative += value < 0 ? 1 : 0;
        different.insert(value);
      }
      const double share = static_cast<double>(negative) / (static_cast<double>(kBytes) / static_cast<double>(element));
      EXPECT_NEAR(share, positive ? 0.0 : 0.5, 0.03);
      EXPECT_GE(different.size(), factors == Factors::kFloat8 ? 32u : 500u);
    }
  }
}

struct Operation {
  std::string name;
  int gpu = 0;
  std::size_t input = 0;
  std::size_t output = 0;
};

/// An NCCL that records its calls.
class RecordingNccl : public NcclApi {
 public:
  struct Log {
    std::mutex mutex;
    std::vector<Operation> operations;
    std::vector<int> joined_with;  ///< channels
    int joined = 0;
    int left = 0;
    int groups = 0;
    int closed = 0;  ///< groups, including those that failed
    int aborted = 0;
    bool open = false;
    std::string error;    ///< of a communicator
    std::string refuses;  ///< which call throws: "join", "end", or an operation
  };
  explicit RecordingNccl(Log& log) : log_(log) {}

  std::string version() const override { return "2.0.0"; }
  NcclId new_id() override { return {}; }
  Communicator join(const NcclId&, int, int, int) override {
    throw std::logic_error("a single thread would wait forever");
  }
  void begin_join(const NcclId&, int members, int index, int blocks, Communicator& into) override {
    EXPECT_TRUE(log_.open);
    if (log_.refuses == "join" && index + 1 == members) throw EnvironmentError("NCCL: no memory");
    ++log_.joined;
    log_.joined_with.push_back(blocks);
    into = &log_;
  }
  void begin_group() override {
    EXPECT_FALSE(log_.open);
    log_.open = true;
  }
  void end_group() override {
    EXPECT_TRUE(log_.open);
    log_.open = false;
    ++log_.closed;
    if (log_.refuses == "end") throw EnvironmentError("NCCL: a link is down");
    ++log_.groups;
  }
  void send(const Buffer& buffer, int to, Communicator, void*) override {
    add("send " + std::to_string(to), buffer.bytes(), 0);
  }
  void receive(const Buffer& into, int from, Communicator, void*) override {
    add("receive " + std::to_string(from), 0, into.bytes());
  }
  void collect(const Collective& collective, Communicator, void*) override {
    add(std::to_string(static_cast<int>(collective.kind)), collective.input.bytes(), collective.output.bytes());
  }
  std::string error_of(Communicator) override { return log_.error; }
  void abort(Communicator) override {
    const std::lock_guard lock(log_.mutex);
    ++log_.aborted;
  }
  void leave(Communicator) override { ++log_.left; }

 private:
  void add(const std::string& name, std::size_t input, std::size_t output) {
    EXPECT_TRUE(log_.open);
    int gpu = -1;
    cuda::check(cudaGetDevice(&gpu), "cudaGetDevice");
    if (log_.refuses == "operation" && gpu == 1) throw EnvironmentError("NCCL: a link is down");
    log_.operations.push_back({name, gpu, input, output});
  }
  Log& log_;
};

TEST_F(EmulatedBench, MessagesHaveTheBytesThatNcclTestsCounts) {
  RecordingNccl::Log log;
  constexpr std::size_t kBytes = 4096;
  constexpr int kRanks = 4;
  {
    cuda::NcclMessages messages(std::make_unique<RecordingNccl>(log));
    const auto queued = [&](SampleKind kind, int ranks, int channels = 0) {
      SampleKey key = moved(kind, "", kBytes);
      key.ranks = ranks;
      key.channels = channels;
      log.operations.clear();
      const cuda::QueuedWorkload message = messages.make(key);
      message.queue(0);
      int gpu = -1;
      cuda::check(cudaGetDevice(&gpu), "cudaGetDevice");
      EXPECT_EQ(gpu, 0);
      return log.operations;
    };
    const auto expect_collective = [&](SampleKind kind, std::size_t input, std::size_t output) {
      const std::vector<Operation> operations = queued(kind, kRanks);
      ASSERT_EQ(operations.size(), 4u);
      for (int index = 0; index < kRanks; ++index) {
        const Operation& operation = operations[static_cast<std::size_t>(index)];
        EXPECT_EQ(operation.gpu, index);
        EXPECT_EQ(operation.input, input);
        EXPECT_EQ(operation.output, output);
      }
    };
    expect_collective(sample_of(CollectiveKind::kAllReduce), kBytes, kBytes);
    expect_collective(sample_of(CollectiveKind::kAllGather), kBytes / 4, kBytes);
    expect_collective(sample_of(CollectiveKind::kReduceScatter), kBytes, kBytes / 4);
    EXPECT_EQ(log.joined, kRanks) << "one group for all members";
    const std::vector<Operation> exchange = queued(sample_of(CollectiveKind::kAllToAll), kRanks);
    ASSERT_EQ(exchange.size(), 2u * kRanks * kRanks);
    for (const Operation& operation : exchange) EXPECT_EQ(operation.input + operation.output, kBytes / 4);
    const std::vector<Operation> pair = queued(SampleKind::kPointToPoint, 2);
    ASSERT_EQ(pair.size(), 4u) << "both directions";
    EXPECT_EQ(pair[0].name, "send 1");
    EXPECT_EQ(pair[0].input, kBytes);
    EXPECT_EQ(pair[1].name, "receive 0");
    EXPECT_EQ(pair[1].gpu, 1);
    EXPECT_EQ(pair[2].name, "send 0");
    EXPECT_EQ(pair[2].gpu, 1);
    EXPECT_EQ(pair[3].name, "receive 1");
    EXPECT_EQ(pair[3].output, kBytes);
    queued(sample_of(CollectiveKind::kAllReduce), 2, 8);
    EXPECT_EQ(log.joined, kRanks + 2 + 2);
    EXPECT_EQ(log.joined_with.back(), 8);
    EXPECT_THROW(queued(sample_of(CollectiveKind::kBroadcast), 2), EnvironmentError);
  }
  EXPECT_EQ(log.left, log.joined);
  EXPECT_EQ(log.aborted, 0);
}

int current_gpu() {
  int gpu = -1;
  cuda::check(cudaGetDevice(&gpu), "cudaGetDevice");
  return gpu;
}

SampleKey message_key(SampleKind kind, int ranks) {
  SampleKey key = moved(kind, "", 4096);
  key.ranks = ranks;
  return key;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const EnvironmentError& error) {
    return error.what();
  }
  return "";
}

TEST_F(EmulatedBench, AFailedMessageEndsAllOfThem) {
  for (const char* refused : {"operation", "end", "communicator"}) {
    for (const SampleKind kind :
         {SampleKind::kPointToPoint, sample_of(CollectiveKind::kAllReduce), sample_of(CollectiveKind::kAllToAll)}) {
      RecordingNccl::Log log;
      {
        cuda::NcclMessages messages(std::make_unique<RecordingNccl>(log));
        messages.make(message_key(sample_of(CollectiveKind::kAllReduce), 4)).queue(0);
        const cuda::QueuedWorkload message = messages.make(message_key(kind, 2));
        log.refuses = refused;
        if (log.refuses == "communicator") log.error = "a link is down";
        EXPECT_EQ(error_of([&] { message.queue(0); }), "NCCL: a link is down");
        EXPECT_EQ(current_gpu(), 0);
        EXPECT_FALSE(log.open) << "the group is closed";
        EXPECT_EQ(log.aborted, 6) << "including those of the other group";
        log.refuses.clear();
        log.error.clear();
        const int closed = log.closed;
        const std::string after = "no further messages after one failed: NCCL: a link is down";
        EXPECT_EQ(error_of([&] { message.queue(0); }), after);
        EXPECT_EQ(error_of([&] { messages.make(message_key(kind, 2)); }), after);
        EXPECT_EQ(error_of([&] { messages.make(message_key(kind, 3)); }), after);
        EXPECT_EQ(log.closed, closed) << "nothing was queued";
      }
      EXPECT_EQ(log.left, 0) << "aborted communicators no longer exist";
      EXPECT_EQ(log.aborted, 6);
    }
  }
}

TEST_F(EmulatedBench, AGroupThatCannotBeMadeIsNotTriedAgain) {
  for (const char* refused : {"join", "end"}) {
    RecordingNccl::Log log;
    {
      cuda::NcclMessages messages(std::make_unique<RecordingNccl>(log));
      messages.make(message_key(sample_of(CollectiveKind::kAllReduce), 2)).queue(0);
      log.refuses = refused;
      const int joined = log.joined;
      const std::string reason =
          error_of([&] { messages.make(message_key(sample_of(CollectiveKind::kAllReduce), 4)); });
      EXPECT_EQ(reason.rfind("NCCL: ", 0), 0u) << reason;
      EXPECT_EQ(current_gpu(), 0);
      EXPECT_FALSE(log.open);
      EXPECT_EQ(log.aborted, log.joined - joined) << "all that had joined";
      log.refuses.clear();
      const int closed = log.closed;
      EXPECT_EQ(error_of([&] { messages.make(message_key(sample_of(CollectiveKind::kAllGather), 4)); }), reason);
      EXPECT_EQ(log.closed, closed);
      messages.make(message_key(sample_of(CollectiveKind::kAllGather), 2)).queue(0);  // the other group still works
    }
    EXPECT_EQ(log.left, 2);
  }
}

class HeldEvents {
 public:
  HeldEvents() { emulated::hold_events(true); }
  HeldEvents(const HeldEvents&) = delete;
  HeldEvents& operator=(const HeldEvents&) = delete;
  HeldEvents(HeldEvents&&) = delete;
  HeldEvents& operator=(HeldEvents&&) = delete;
  ~HeldEvents() { emulated::hold_events(false); }
};

TEST_F(EmulatedBench, AMessageThatDoesNotEndIsAborted) {
  constexpr double kSoon = 0.05;
  for (const bool beside : {false, true}) {
    RecordingNccl::Log log;
    cuda::NcclMessages messages(std::make_unique<RecordingNccl>(log));
    const HeldEvents held;
    const cuda::QueuedWorkload message = messages.make(message_key(sample_of(CollectiveKind::kAllReduce), 3));
    const cuda::QueuedWorkload kernel{stream_, [](int) {}, {}};
    cuda::TimedWork work(beside ? kernel : message, beside ? message : cuda::QueuedWorkload{}, kSoon);
    EXPECT_EQ(error_of([&] { work.run(1, 1); }), "a message between the GPUs has not completed");
    EXPECT_EQ(log.aborted, 3);
    EXPECT_EQ(current_gpu(), 0);
  }
}

TEST_F(EmulatedBench, AnErrorIsSeenWhileAMessageIsWaitedFor) {
  RecordingNccl::Log log;
  cuda::NcclMessages messages(std::make_unique<RecordingNccl>(log));
  const HeldEvents held;
  cuda::QueuedWorkload message = messages.make(message_key(sample_of(CollectiveKind::kAllReduce), 2));
  message.queue = [&log, queue = message.queue](int round) {
    queue(round);
    log.error = "a peer is gone";
  };
  constexpr double kNever = 1e9;
  cuda::TimedWork work(message, {}, kNever);
  EXPECT_EQ(error_of([&] { work.run(1, 1); }), "NCCL: a peer is gone");
  EXPECT_EQ(log.aborted, 2);
}

TEST_F(EmulatedBench, AKernelThatDoesNotEndIsToldOf) {
  const HeldEvents held;
  constexpr double kSoon = 0.05;
  cuda::TimedWork work({stream_, [](int) {}, {}}, {}, kSoon);
  EXPECT_EQ(error_of([&] { work.run(1, 1); }), "not finished on the GPU after 0.05 s");
}

TEST_F(EmulatedBench, OfARoundTripHalfCounts) {
  RecordingNccl::Log log;
  cuda::NcclMessages messages(std::make_unique<RecordingNccl>(log));
  EXPECT_EQ(messages.make(message_key(SampleKind::kPointToPoint, 2)).share, 0.5);
  EXPECT_EQ(messages.make(message_key(sample_of(CollectiveKind::kAllReduce), 2)).share, 1.0);
  constexpr double kShare = 0.001;
  const auto slow = [](int) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  cuda::TimedWork whole({stream_, slow, {}});
  cuda::TimedWork part({stream_, slow, {}, kShare});
  EXPECT_GE(whole.run(1, 1).device_s, 0.02);
  EXPECT_LT(part.run(1, 1).device_s, 0.02);
}

TEST_F(EmulatedBench, ANeighbourRunsFirst) {
  std::vector<char> order;
  cuda::TimedWork work({stream_, [&order](int) { order.push_back('w'); }, {}},
                       {stream_, [&order](int) { order.push_back('n'); }, {}});
  work.run(2, 3);
  EXPECT_EQ(std::string(order.begin(), order.end()), "nnnww");
}

}  // namespace
}  // namespace flopcast::realrun
