#include "realrun/compute/stage_compute.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <map>
#include <utility>

#include "base/text/error.hpp"
#include "realrun/device/device.hpp"
#include "realrun/network/tensor_grid.hpp"

namespace flopcast::realrun {

namespace {

// An address on the device: only its kernels dereference it.
float* floats_of(const Buffer& buffer) {
  return reinterpret_cast<float*>(buffer.address());
}

class NetworkStages : public StageCompute {
 public:
  explicit NetworkStages(NetworkStagesSpec spec) : spec_(std::move(spec)) {}

  StageLayout layout(int stage) const override {
    StageLayout layout;
    for (LayerPointer<float>& unit :
         build_stage<float>(spec_.network, spec_.parts.at(static_cast<std::size_t>(stage)), spec_.form)) {
      layout.units.push_back(declared(*unit, spec_.alignment));
    }
    return layout;
  }
  void initialise(int stage, int unit, const Buffer& weights) override {
    const StageLayout whole = layout(stage);
    const ParameterList& list = whole.units.at(static_cast<std::size_t>(unit));
    FLOPCAST_CHECK(weights.bytes() == list.size() * sizeof(float));
    for (const Parameter& parameter : list.parameters()) {
      spec_.device->draw(draw_of(parameter, spec_.network.seed),
                         weights.slice(parameter.offset * sizeof(float), parameter.shard.count() * sizeof(float)));
    }
  }
  void weights_changed() override { spec_.kernels->weights_changed(); }
  std::size_t boundary_bytes(int /*stage*/) const override {
    return boundary_rows() * boundary_columns() * sizeof(float);
  }
  void begin_step(int step) override {
    step_ = step;
    losses_.clear();
    exchanges_.clear();
  }
  Buffer forward(StageIndex stage, MicrobatchIndex microbatch, const Buffer& input, UnitStore& store) override {
    const std::vector<LayerPointer<float>>& units = units_of(stage);
    InFlight& state = begin(stage, microbatch);
    Loss loss;
    Tensor<float> flow = boundary_tensor(input);
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
      const Buffer weights = store.weights(static_cast<int>(unit));
      Pass<float> work = pass(state);
      work.weights = floats_of(weights);
      work.loss = &loss;
      flow = units[unit]->forward(flow, work, state.units[unit]);
      if (spec_.offloads) move_unit(state, unit, true);
    }
    if (loss) losses_[{stage, microbatch}] = loss;
    account(state);
    return flow.buffer();
  }
  Buffer input_gradient(StageIndex stage, MicrobatchIndex microbatch, const Buffer& output_gradient,
                        UnitStore& store) override {
    return pass_back({stage, microbatch}, output_gradient, store, true, false);
  }
  void weight_gradient(StageIndex stage, MicrobatchIndex microbatch, UnitStore& store) override {
    pass_back({stage, microbatch}, {}, store, false, true);
  }
  Buffer backward(StageIndex stage, MicrobatchIndex microbatch, const Buffer& output_gradient,
                  UnitStore& store) override {
    return pass_back({stage, microbatch}, output_gradient, store, true, true);
  }
  std::optional<double> loss(StageIndex stage, MicrobatchIndex microbatch) const override {
    const auto found = losses_.find({stage, microbatch});
    if (found == losses_.end()) return std::nullopt;
    return found->second();
  }
  std::size_t peak_activation_bytes() const override { return peak_bytes_; }

 private:
  using Key = std::pair<StageIndex, MicrobatchIndex>;
  struct InFlight {
    Microbatch data;
    TokenSlice slice;
    SliceExchange<float>* slices = nullptr;
    std::vector<Saved<float>> units;
    std::vector<bool> on_host;  // by unit, if activations are offloaded
    std::size_t bytes = 0;
  };

  const std::vector<LayerPointer<float>>& units_of(int stage) {
    std::vector<LayerPointer<float>>& units = units_[stage];
    if (units.empty()) {
      units = build_stage<float>(spec_.network, spec_.parts.at(static_cast<std::size_t>(stage)), spec_.form);
      for (const LayerPointer<float>& unit : units) declared(*unit, spec_.alignment);
    }
    return units;
  }
  NetworkStages::InFlight& begin(StageIndex stage, MicrobatchIndex microbatch) {
    const auto [entry, is_new] = in_flight_.emplace(Key{stage, microbatch}, InFlight{});
    FLOPCAST_CHECK(is_new);
    InFlight& state = entry->second;
    const MicrobatchIndex whole(microbatch / spec_.slices);
    state.slice = {microbatch % spec_.slices, spec_.slices};
    if (spec_.slices > 1) state.slices = &exchanges_[{stage, whole}];
    const Corpus corpus{spec_.network.vocab, spec_.network.sequence, spec_.network.seed};
    const auto sequence = static_cast<std::size_t>(spec_.network.sequence);
    const Microbatch samples = corpus.microbatch(spec_.first_sample(step_, stage, whole), spec_.micro_batch_size);
    state.data = cut_for_context(cut(samples, sequence, state.slice), sequence, spec_.context);
    if (spec_.form.grid != nullptr) state.data = cut_for_grid(state.data, *spec_.form.grid);
    state.units.resize(units_of(stage).size());
    return state;
  }
  std::size_t boundary_rows() const {
    const int rows = spec_.micro_batch_size * spec_.network.sequence / spec_.slices / spec_.context.ranks();
    if (spec_.form.grid != nullptr) return static_cast<std::size_t>(rows / spec_.form.grid->grid.token_parts);
    return static_cast<std::size_t>(spec_.form.sequence_parallel ? rows / spec_.form.group->size() : rows);
  }
  std::size_t boundary_columns() const {
    return static_cast<std::size_t>(spec_.network.hidden / (spec_.form.grid == nullptr ? 1 : spec_.form.grid->grid.q));
  }
  Tensor<float> boundary_tensor(const Buffer& buffer) const {
    if (buffer.empty()) return {};
    return {buffer, boundary_rows(), boundary_columns()};
  }
  Pass<float> pass(const InFlight& microbatch) const {
    Pass<float> pass;
    pass.data = &microbatch.data;
    pass.loss_weight = spec_.loss_weight;
    pass.slice = microbatch.slice;
    pass.context = spec_.context;
    pass.slices = microbatch.slices;
    pass.poke = spec_.poke;
    pass.kernels = spec_.kernels;
    return pass;
  }
  // Runs the input gradients, the weight gradients, or both unit by unit.
  Buffer pass_back(const Key& key, const Buffer& output_gradient, UnitStore& store, bool of_inputs, bool of_weights) {
    InFlight& state = in_flight_.at(key);
    Tensor<float> flow = boundary_tensor(output_gradient);
    for (int unit = static_cast<int>(state.units.size()) - 1; unit >= 0; --unit) {
      if (of_inputs) flow = input_gradient_of_unit(key.first, unit, state, flow, store);
      if (of_weights) weight_gradient_of_unit(key.first, unit, state, store);
    }
    of_weights ? forget(key) : account(state);
    return flow.buffer();
  }
  Tensor<float> input_gradient_of_unit(int stage, int unit, InFlight& microbatch, const Tensor<float>& flow,
                                       UnitStore& store) {
    const auto index = static_cast<std::size_t>(unit);
    if (spec_.offloads) move_unit(microbatch, index, false);
    const Buffer weights = store.weights(unit);
    Pass<float> work = pass(microbatch);
    work.weights = floats_of(weights);
    return units_of(stage)[index]->input_gradient(flow, work, microbatch.units[index]);
  }
  void weight_gradient_of_unit(int stage, int unit, InFlight& microbatch, UnitStore& store) {
    const auto index = static_cast<std::size_t>(unit);
    const Buffer gradients = store.gradients(unit);
    Pass<float> work = pass(microbatch);
    work.gradients = floats_of(gradients);
    units_of(stage)[index]->weight_gradient(work, microbatch.units[index]);
    microbatch.units[index] = {};
    store.gradients_added(unit);
  }
  using Moved = std::map<const std::byte*, Buffer>;

  // Moves each tensor once, even if several layers keep it.
  void move(Saved<float>& saved, Moved& moved) {
    for (Tensor<float>& tensor : saved.tensors) {
      if (tensor.empty()) continue;
      const auto [entry, is_new] = moved.try_emplace(tensor.buffer().address());
      if (is_new) {
        entry->second = spec_.device->allocate(tensor.buffer().bytes());
        spec_.device->copy(tensor.buffer(), entry->second);
        spec_.offloads(entry->second.bytes());
      }
      tensor = Tensor<float>(entry->second, tensor.rows(), tensor.columns());
    }
    for (Saved<float>& part : saved.parts) move(part, moved);
  }
  void move_unit(InFlight& microbatch, std::size_t unit, bool to_host) {
    microbatch.on_host.resize(microbatch.units.size());
    Moved moved;
    move(microbatch.units[unit], moved);
    microbatch.on_host[unit] = to_host;
  }
  void account(InFlight& microbatch) {
    std::map<const std::byte*, std::size_t> by_address;
    for (std::size_t unit = 0; unit < microbatch.units.size(); ++unit) {
      if (microbatch.on_host.empty() || !microbatch.on_host[unit]) microbatch.units[unit].add_bytes(by_address);
    }
    if (microbatch.slices != nullptr) {
      for (const auto& [layer, inputs] : microbatch.slices->inputs) {
        const auto own = inputs.find(microbatch.slice.index);
        if (own != inputs.end()) by_address[own->second.buffer().address()] = own->second.buffer().bytes();
      }
    }
    std::size_t bytes = 0;
    for (const auto& [address, size] : by_address) bytes += size;
    bytes_ = bytes_ - microbatch.bytes + bytes;
    microbatch.bytes = bytes;
    peak_bytes_ = std::max(peak_bytes_, bytes_);
  }
  void forget(const Key& key) {
    bytes_ -= in_flight_.at(key).bytes;
    in_flight_.erase(key);
  }

  NetworkStagesSpec spec_;
  int step_ = 0;
  std::map<int, std::vector<LayerPointer<float>>> units_;  // by stage, built on first use
  std::map<Key, InFlight> in_flight_;
  std::map<Key, SliceExchange<float>> exchanges_;  // by whole microbatch, if there are slices
  std::map<Key, Loss> losses_;
  std::size_t bytes_ = 0;
  std::size_t peak_bytes_ = 0;
};

}  // namespace

std::unique_ptr<StageCompute> make_network_stages(NetworkStagesSpec spec) {
  return std::make_unique<NetworkStages>(std::move(spec));
}

namespace {

constexpr Ticks kPerNanosecond = 1000;
constexpr Ticks kPerMicrosecond = 1'000'000;
constexpr Ticks kPerSecond = 1'000'000 * kPerMicrosecond;
constexpr Ticks kSpun = 40 * kPerMicrosecond;     // longer than the delay of most timers
constexpr Ticks kAtOnce = 200 * kPerMicrosecond;  // between actions without a wait
// A longer delay than any timer's means that the thread was starved: it shows, and counts as a disturbance.
constexpr Ticks kMostMadeUp = 1000 * kPerMicrosecond;
constexpr Ticks kPokeEvery = 1000 * kPerMicrosecond;

}  // namespace

Pace::Pace(std::function<void()> poke) : poke_(std::move(poke)) {
  // The kernel may otherwise delay timers by up to 50 us. Applies to this thread only; without it sleeps are less
  // accurate.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

void Pace::begin() {
  const Ticks now = host_clock();
  const Ticks late = std::clamp<Ticks>(ended_ - deadline_, 0, kMostMadeUp);
  // If the rank waited for a message between two actions, the next one begins when it arrives.
  deadline_ = now - ended_ < kAtOnce ? now - late : now;
}

void Pace::work(Ticks duration) {
  deadline_ += duration;
  sleep_until(deadline_ - kSpun);
}

void Pace::pause() {
  paused_ = host_clock();
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
  // Weights are never read: they remain zero as allocated.
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
  // Pairs that cannot be overlapped here appear to the neighbours to take the time of a machine that overlaps them.
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
  // Spreads the time evenly over the units, so that reductions start during the backward pass as in a real one.
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
  std::vector<int> unit_counts_;  // by stage; 0: not yet computed
};

}  // namespace

std::unique_ptr<StageCompute> make_sleeping_stages(const StageCompute& sizes, std::vector<StageTimes> times,
                                                   std::function<bool(int)> first, std::function<bool(int)> last,
                                                   std::function<void()> poke) {
  return std::make_unique<SleepingStages>(sizes, std::move(times), std::move(first), std::move(last), std::move(poke));
}

}  // namespace flopcast::realrun
