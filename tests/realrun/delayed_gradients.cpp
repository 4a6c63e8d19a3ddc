#include "tests/realrun/delayed_gradients.hpp"

#include <algorithm>
#include <functional>

#include "base/text/error.hpp"
#include "realrun/network/network.hpp"

namespace flopcast::realrun {

namespace {

struct ReferenceStage {
  std::vector<LayerPointer<float>> units;
  std::vector<ParameterList> lists;
  std::vector<std::vector<float>> versions;  // of all units, concatenated
  std::vector<float> gradients;
  std::vector<float> velocity;
};

class DelayedGradients {
 public:
  DelayedGradients(const NetworkSpec& network, const std::vector<int>& stage_blocks) : network_(network) {
    for (const StagePart& part : split_network(stage_blocks)) {
      ReferenceStage stage;
      stage.units = build_stage<float>(network, part, {.group = &alone_});
      std::vector<float> weights;
      for (const LayerPointer<float>& unit : stage.units) {
        ParameterList list;
        unit->declare(list);
        std::vector<float> values(list.size());
        initialise(list, network.seed, values.data());
        weights.insert(weights.end(), values.begin(), values.end());
        stage.lists.push_back(list);
      }
      stage.gradients.resize(weights.size());
      stage.velocity.resize(weights.size());
      stage.versions = {weights};
      stages_.push_back(std::move(stage));
    }
  }

  int stage_count() const { return static_cast<int>(stages_.size()); }

  // Adds the gradients of one microbatch with the given versions of each stage; returns its loss.
  double accumulate(const Microbatch& data, const std::vector<int>& forward, const std::vector<int>& backward,
                    float weight) {
    Loss loss;
    Tensor<float> flow;
    std::vector<std::vector<Saved<float>>> saved(stages_.size());
    for (std::size_t index = 0; index < stages_.size(); ++index) {
      ReferenceStage& stage = stages_[index];
      saved[index].resize(stage.units.size());
      std::size_t offset = 0;
      for (std::size_t unit = 0; unit < stage.units.size(); ++unit) {
        flow = stage.units[unit]->forward(flow, pass(index, forward, offset, data, weight, loss), saved[index][unit]);
        offset += stage.lists[unit].size();
      }
    }
    for (std::size_t index = stages_.size(); index-- > 0;) {
      ReferenceStage& stage = stages_[index];
      std::size_t offset = stage.gradients.size();
      for (std::size_t unit = stage.units.size(); unit-- > 0;) {
        offset -= stage.lists[unit].size();
        const Pass<float> work = pass(index, backward, offset, data, weight, loss);
        flow = stage.units[unit]->input_gradient(flow, work, saved[index][unit]);
        stage.units[unit]->weight_gradient(work, saved[index][unit]);
      }
    }
    return loss();
  }

  void update(float rate, float momentum) {
    for (ReferenceStage& stage : stages_) {
      std::vector<float> next = stage.versions.back();
      for (std::size_t index = 0; index < next.size(); ++index) {
        stage.velocity[index] = momentum * stage.velocity[index] + stage.gradients[index];
        next[index] -= rate * stage.velocity[index];
      }
      stage.versions.push_back(next);
      std::fill(stage.gradients.begin(), stage.gradients.end(), 0.0F);
    }
  }

  std::map<std::string, std::vector<float>> weights() const {
    std::map<std::string, std::vector<float>> named;
    for (const ReferenceStage& stage : stages_) {
      std::size_t start = 0;
      for (const ParameterList& list : stage.lists) {
        for (const Parameter& parameter : list.parameters()) {
          const float* first = stage.versions.back().data() + start + parameter.offset;
          named[parameter.name] = {first, first + parameter.shard.count()};
        }
        start += list.size();
      }
    }
    return named;
  }

 private:
  Pass<float> pass(std::size_t stage, const std::vector<int>& version, std::size_t offset, const Microbatch& data,
                   float weight, Loss& loss) {
    ReferenceStage& held = stages_[stage];
    return {.weights = held.versions.at(static_cast<std::size_t>(version[stage])).data() + offset,
            .gradients = held.gradients.data() + offset,
            .data = &data,
            .loss_weight = weight,
            .loss = &loss};
  }

  NetworkSpec network_;
  TensorGroup alone_;
  std::vector<ReferenceStage> stages_;
};

using VersionOf = std::function<int(int stage, int microbatch)>;

// Makes one update per `accumulation` microbatches of each replica.
DelayedReference train_serially(const TrainingPlan& plan, const VersionOf& version_of) {
  DelayedGradients model(plan.network, plan.stage_blocks);
  const Corpus corpus{plan.network.vocab, plan.network.sequence, plan.network.seed};
  const int microbatches = plan.microbatches();
  const int accumulation = plan.updates.accumulation;
  DelayedReference result;
  for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
    std::vector<int> versions;
    for (int stage = 0; stage < model.stage_count(); ++stage) versions.push_back(version_of(stage, microbatch));
    std::vector<int> backward = versions;
    if (plan.updates.policy == WeightPolicy::kNewest) {
      std::fill(backward.begin(), backward.end(), microbatch / accumulation);
    }
    for (int replica = 0; replica < plan.dp; ++replica) {
      const int sample = (replica * microbatches + microbatch) * plan.micro_batch_size;
      result.mean_loss += model.accumulate(corpus.microbatch(static_cast<std::uint64_t>(sample), plan.micro_batch_size),
                                           versions, backward, 1.0F / static_cast<float>(accumulation * plan.dp));
    }
    if ((microbatch + 1) % accumulation == 0) model.update(plan.optimizer.rate, plan.optimizer.momentum);
  }
  result.mean_loss /= microbatches * plan.dp;
  result.weights = model.weights();
  return result;
}

}  // namespace

DelayedReference train_with_delays(const TrainingPlan& plan) {
  const int last = static_cast<int>(plan.stage_blocks.size()) - 1;
  const int accumulation = plan.updates.accumulation;
  return train_serially(plan, [&](int stage, int microbatch) {
    switch (plan.updates.policy) {
      case WeightPolicy::kStashed:
        return std::max(0, microbatch - (last - stage));
      case WeightPolicy::kVerticalSync:
        return std::max(0, microbatch - last);
      case WeightPolicy::kDoubleBuffered:
        return std::max(0, microbatch / accumulation - 1);
      case WeightPolicy::kNewest:
        return std::max(0, microbatch - 2 * (last - stage)) / accumulation;
      case WeightPolicy::kFlushed:
        break;
    }
    throw EnvironmentError("a run with a flush has no delays");
  });
}

DelayedReference train_without_delays(const TrainingPlan& plan) {
  return train_serially(plan, [&](int /*stage*/, int microbatch) { return microbatch / plan.updates.accumulation; });
}

}  // namespace flopcast::realrun
