#include "realrun/compute/stage_compute.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text/error.hpp"
#include "realrun/network/tensor_grid.hpp"

namespace flopcast::realrun {

namespace {

// An address of the device: only its kernels look there.
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
    InFlight& state = in_flight_.at({stage, microbatch});
    Tensor<float> flow = boundary_tensor(output_gradient);
    for (int unit = static_cast<int>(state.units.size()) - 1; unit >= 0; --unit) {
      flow = input_gradient_of_unit(stage, unit, state, flow, store);
    }
    account(state);
    return flow.buffer();
  }
  void weight_gradient(StageIndex stage, MicrobatchIndex microbatch, UnitStore& store) override {
    InFlight& state = in_flight_.at({stage, microbatch});
    for (int unit = static_cast<int>(state.units.size()) - 1; unit >= 0; --unit) {
      weight_gradient_of_unit(stage, unit, state, store);
    }
    forget({stage, microbatch});
  }
  Buffer backward(StageIndex stage, MicrobatchIndex microbatch, const Buffer& output_gradient,
                  UnitStore& store) override {
    InFlight& state = in_flight_.at({stage, microbatch});
    Tensor<float> flow = boundary_tensor(output_gradient);
    for (int unit = static_cast<int>(state.units.size()) - 1; unit >= 0; --unit) {
      flow = input_gradient_of_unit(stage, unit, state, flow, store);
      weight_gradient_of_unit(stage, unit, state, store);
    }
    forget({stage, microbatch});
    return flow.buffer();
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
    std::vector<bool> on_host;  // by unit, where activations are offloaded
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

  // Every tensor once, however many layers keep it.
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
  std::map<int, std::vector<LayerPointer<float>>> units_;  // by stage, made when first needed
  std::map<Key, InFlight> in_flight_;
  std::map<Key, SliceExchange<float>> exchanges_;  // by whole microbatch, where there are slices
  std::map<Key, Loss> losses_;
  std::size_t bytes_ = 0;
  std::size_t peak_bytes_ = 0;
};

}  // namespace

std::unique_ptr<StageCompute> make_network_stages(NetworkStagesSpec spec) {
  return std::make_unique<NetworkStages>(std::move(spec));
}

}  // namespace flopcast::realrun
