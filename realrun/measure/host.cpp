#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/measure/measure_cpu.hpp"
#include "realrun/network/kernels.hpp"

namespace flopcast {

namespace {

double seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

Clock machine_clock() {
  return {[] { return seconds_of(CLOCK_MONOTONIC); }, [] { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }};
}

namespace {

std::string processor_name() {
  std::ifstream information("/proc/cpuinfo");
  for (std::string line; std::getline(information, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

}  // namespace

Measurement describe_host() {
  Measurement about;
  about.device = processor_name();
  about.date = today();
  utsname system{};
  if (uname(&system) == 0) {
    about.host = system.nodename;
    about.libraries[system.sysname] = system.release;
  }
  about.memory_bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  const realrun::ProductLibrary products = realrun::product_library();
  about.libraries[products.name] = products.version;
  return about;
}

namespace {

// Sense-reversing: the last to arrive releases the others, which watch the round in which they arrived.
class YieldingBarrier {
 public:
  explicit YieldingBarrier(int members) : members_(members) {}

  void wait() {
    const int round = round_.load();
    if (arrived_.fetch_add(1) + 1 == members_) {
      arrived_.store(0);
      round_.fetch_add(1);
      return;
    }
    while (round_.load() == round) std::this_thread::yield();
  }

 private:
  int members_;
  std::atomic<int> arrived_{0};
  std::atomic<int> round_{0};
};

struct Shared {
  Shared(int ranks, std::size_t bytes)
      : barrier(ranks), values(static_cast<std::size_t>(ranks)), posted(static_cast<std::size_t>(ranks * ranks)) {
    const std::size_t count = bytes / sizeof(float) + static_cast<std::size_t>(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      inputs.emplace_back(count, 0.5F);
      outputs.emplace_back(count, 0.0F);
    }
  }

  std::atomic<bool>& box(int from, int to, int ranks) { return posted[static_cast<std::size_t>(from * ranks + to)]; }

  YieldingBarrier barrier;
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<float>> outputs;
  std::vector<double> values;
  std::vector<std::atomic<bool>> posted;
};

class ThreadRank : public MeasuredRank {
 public:
  ThreadRank(int rank, int ranks, Shared& shared) : rank_(rank), ranks_(ranks), shared_(shared) {}

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  void send(int to, std::size_t) override {
    std::atomic<bool>& box = shared_.box(rank_, to, ranks_);
    box.store(true, std::memory_order_release);
    // The sender may reuse the buffer once the receiver has copied it.
    while (box.load(std::memory_order_acquire)) std::this_thread::yield();
  }

  void receive(int from, std::size_t bytes) override {
    std::atomic<bool>& box = shared_.box(from, rank_, ranks_);
    while (!box.load(std::memory_order_acquire)) std::this_thread::yield();
    std::memcpy(output(rank_), input(from), bytes);
    box.store(false, std::memory_order_release);
  }

  void collective(SampleKind kind, std::size_t bytes) override {
    const std::size_t count = bytes / sizeof(float);
    shared_.barrier.wait();
    if (kind == sample_of(CollectiveKind::kAllGather)) {
      copy_parts(count, &ThreadRank::input);
    } else {
      reduce_part(count);
    }
    shared_.barrier.wait();
    if (kind != sample_of(CollectiveKind::kAllReduce)) return;
    copy_parts(count, &ThreadRank::output);
    shared_.barrier.wait();
  }

  void barrier() override { shared_.barrier.wait(); }

  double largest(double value) override {
    shared_.values[static_cast<std::size_t>(rank_)] = value;
    shared_.barrier.wait();
    const double most = *std::max_element(shared_.values.begin(), shared_.values.end());
    shared_.barrier.wait();
    return most;
  }

 private:
  float* input(int rank) { return shared_.inputs[static_cast<std::size_t>(rank)].data(); }
  float* output(int rank) { return shared_.outputs[static_cast<std::size_t>(rank)].data(); }
  std::size_t begin_of(std::size_t count, int part) const {
    return count * static_cast<std::size_t>(part) / static_cast<std::size_t>(ranks_);
  }

  void reduce_part(std::size_t count) {
    const std::size_t begin = begin_of(count, rank_);
    const std::size_t end = begin_of(count, rank_ + 1);
    float* sum = output(rank_);
    std::memcpy(sum + begin, input(0) + begin, (end - begin) * sizeof(float));
    for (int other = 1; other < ranks_; ++other) {
      const float* values = input(other);
      for (std::size_t index = begin; index < end; ++index) sum[index] += values[index];
    }
  }

  void copy_parts(std::size_t count, float* (ThreadRank::*from)(int)) {
    for (int other = 0; other < ranks_; ++other) {
      const std::size_t begin = begin_of(count, other);
      const std::size_t size = (begin_of(count, other + 1) - begin) * sizeof(float);
      if (other != rank_ || from == &ThreadRank::input) {
        std::memcpy(output(rank_) + begin, (this->*from)(other) + begin, size);
      }
    }
  }

  int rank_;
  int ranks_;
  Shared& shared_;
};

}  // namespace

void run_thread_ranks(int ranks, std::size_t bytes, const std::function<void(MeasuredRank&)>& body) {
  FLOPCAST_CHECK(ranks >= 2);
  Shared shared(ranks, bytes);
  const auto run = [&](int number) {
    ThreadRank rank(number, ranks, shared);
    body(rank);
  };
  std::vector<std::thread> threads;
  for (int number = 1; number < ranks; ++number) threads.emplace_back(run, number);
  run(0);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace flopcast
