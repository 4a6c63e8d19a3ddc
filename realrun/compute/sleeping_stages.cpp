#include "realrun/compute/stage_compute.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "realrun/device/device.hpp"

namespace flopcast::realrun {

namespace {

constexpr Ticks kPerNanosecond = 1000;
constexpr Ticks kPerMicrosecond = 1'000'000;
constexpr Ticks kPerSecond = 1'000'000 * kPerMicrosecond;
constexpr Ticks kSpun = 40 * kPerMicrosecond;     // longer than most timers are late
constexpr Ticks kAtOnce = 200 * kPerMicrosecond;  // between actions without waiting
// What is later than any timer was starved: that shows, and counts as a disturbance.
constexpr Ticks kMostMadeUp = 1000 * kPerMicrosecond;
constexpr Ticks kPokeEvery = 1000 * kPerMicrosecond;

}  // namespace

Pace::Pace(std::function<void()> poke) : poke_(std::move(poke)) {
  // The kernel may otherwise bundle timers within 50 us. Of this thread only; without it sleeps are less exact.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

void Pace::begin() {
  const Ticks now = host_clock();
  const Ticks late = std::clamp<Ticks>(ended_ - deadline_, 0, kMostMadeUp);
  // Who waited for a message between the two actions has begun when it came.
  deadline_ = now - ended_ < kAtOnce ? now - late : now;
}

void Pace::work(Ticks duration) {
  deadline_ += duration;
  sleep_until(deadline_ - kSpun);
}

void Pace::pause() {
  paused_ = host_clock();
}

void Pace::resume() {
  deadline_ += host_clock() - paused_;
}

void Pace::end() {
  while (host_clock() < deadline_) {
  }
  ended_ = host_clock();
}

void Pace::sleep_until(Ticks deadline) {
  for (Ticks now = host_clock(); now < deadline; now = host_clock()) {
    const Ticks wake = std::min(deadline, now + kPokeEvery);
    timespec time{};
    time.tv_sec = static_cast<std::time_t>(wake / kPerSecond);
    time.tv_nsec = static_cast<long>(wake % kPerSecond / kPerNanosecond);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) == EINTR) {
    }
    poke_();
  }
}

namespace {

class SleepingStages : public StageCompute {
 public:
  SleepingStages(const StageCompute& sizes, std::vector<StageTimes> times, std::function<bool(int)> first,
                 std::function<bool(int)> last, std::function<void()> poke)
      : sizes_(sizes),
        times_(std::move(times)),
        first_(std::move(first)),
        last_(std::move(last)),
        pace_(std::move(poke)),
        unit_counts_(times_.size()) {}

  StageLayout layout(int stage) const override { return sizes_.layout(stage); }
  // Weights are never read: they stay the zeros they are allocated as.
  void initialise(int /*stage*/, int /*unit*/, const Buffer& /*weights*/) override {}
  std::size_t boundary_bytes(int stage) const override { return sizes_.boundary_bytes(stage); }
  void begin_step(int /*step*/) override {}
  Buffer forward(StageIndex stage, MicrobatchIndex /*microbatch*/, const Buffer& /*input*/, UnitStore& store) override {
    Buffer result = last_(stage) ? Buffer() : allocate_host(boundary_bytes(stage));
    pass(stage, {.duration = times_of(stage).forward}, store);
    return result;
  }
  Buffer input_gradient(StageIndex stage, MicrobatchIndex /*microbatch*/, const Buffer& /*output_gradient*/,
                        UnitStore& store) override {
    Buffer result = first_(stage) ? Buffer() : allocate_host(boundary_bytes(stage - 1));
    pass(stage, {.duration = times_of(stage).input_gradient, .order = Order::kBackward}, store);
    return result;
  }
  void weight_gradient(StageIndex stage, MicrobatchIndex /*microbatch*/, UnitStore& store) override {
    pass(stage,
         {.duration = times_of(stage).weight_gradient,
          .order = Order::kBackward,
          .reads_weights = false,
          .adds_gradients = true},
         store);
  }
  Buffer backward(StageIndex stage, MicrobatchIndex /*microbatch*/, const Buffer& /*output_gradient*/,
                  UnitStore& store) override {
    Buffer result = first_(stage) ? Buffer() : allocate_host(boundary_bytes(stage - 1));
    pass(stage, {.duration = times_of(stage).backward, .order = Order::kBackward, .adds_gradients = true}, store);
    return result;
  }
  // What cannot be overlapped here takes, for the neighbours, the time of a machine that does it.
  bool overlaps_pairs() const override { return true; }
  std::optional<double> loss(StageIndex stage, MicrobatchIndex /*microbatch*/) const override {
    if (!last_(stage)) return std::nullopt;
    return 0.0;
  }
  std::size_t peak_activation_bytes() const override { return 0; }

 private:
  enum class Order { kForward, kBackward };
  struct Work {
    Ticks duration = 0;
    Order order = Order::kForward;
    bool reads_weights = true;
    bool adds_gradients = false;
  };
  const StageTimes& times_of(int stage) const { return times_.at(static_cast<std::size_t>(stage)); }
  int unit_count(int stage) {
    int& count = unit_counts_.at(static_cast<std::size_t>(stage));
    if (count == 0) count = static_cast<int>(sizes_.layout(stage).units.size());
    return count;
  }
  // The time is spread evenly over the units, so that reductions start during a backward pass as they would.
  void pass(int stage, const Work& work, UnitStore& store) {
    const int units = unit_count(stage);
    pace_.begin();
    Ticks done = 0;
    for (int index = 0; index < units; ++index) {
      const int unit = work.order == Order::kForward ? index : units - 1 - index;
      pace_.pause();
      if (work.reads_weights) store.weights(unit);
      pace_.resume();
      const Ticks until_here = work.duration / units * (index + 1);
      pace_.work((index + 1 == units ? work.duration : until_here) - done);
      done = until_here;
      if (!work.adds_gradients) continue;
      pace_.pause();
      store.gradients(unit);
      store.gradients_added(unit);
      pace_.resume();
    }
    pace_.end();
  }

  const StageCompute& sizes_;
  std::vector<StageTimes> times_;
  std::function<bool(int)> first_;
  std::function<bool(int)> last_;
  Pace pace_;
  std::vector<int> unit_counts_;  // by stage; 0: not yet known
};

}  // namespace

std::unique_ptr<StageCompute> make_sleeping_stages(const StageCompute& sizes, std::vector<StageTimes> times,
                                                   std::function<bool(int)> first, std::function<bool(int)> last,
                                                   std::function<void()> poke) {
  return std::make_unique<SleepingStages>(sizes, std::move(times), std::move(first), std::move(last), std::move(poke));
}

}  // namespace flopcast::realrun
