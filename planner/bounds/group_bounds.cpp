#include "planner/bounds/group_bounds.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "model/cost/data_parallel.hpp"
#include "model/cost/uneven_costs.hpp"
#include "planner/bounds/bounds.hpp"

namespace flopcast {

namespace {

// All that the price of a block depends on beside what all layouts of the search share.
using WorkKey = std::tuple<int, int, int, int, bool, Recompute>;

WorkKey key_of(const LayoutGroup& group) {
  return {group.tp, group.cp, group.ep, group.micro_batch_size, group.sequence_parallel, group.recompute};
}

// Of the whole model, one microbatch.
struct Work {
  double seconds = 0.0;
  double activation = 0.0;
  double parameters = 0.0;
  double expert_parameters = 0.0;
};

Work price_work(Job job, const LayoutGroup& group) {
  Layout& layout = job.layout;
  layout.tp = group.tp;
  layout.cp = group.cp;
  layout.ep = group.ep;
  layout.pp = 1;
  layout.dp = std::max(1, group.ep / group.cp);
  layout.micro_batch_size = group.micro_batch_size;
  layout.global_batch_size = layout.dp * group.micro_batch_size;
  layout.sequence_parallel = group.sequence_parallel;
  layout.recompute = group.recompute;
  layout.zero = 0;
  layout.data_parallel = DataParallel::kDdp;
  layout.stage_layers = {job.model.layers};
  StageMap map;
  map.rank_of_stage = {0};
  const StepCosts costs = price_for_bounds(job, map, layout.stage_layers);
  const StageCosts& stage = costs.stages.front();
  const PassCost& forward = stage.forward;
  const Seconds passes = forward.total() + stage.recompute.total() + stage.input_gradient.total() +
                         stage.weight_gradient.total() - stage.tp_hidden;
  Work work;
  work.seconds = passes.value();
  work.activation = stage.activation.value();
  work.parameters = stage.parameters;
  work.expert_parameters = stage.expert_parameters;
  return work;
}

double least_states(const Job& job, const SearchSpace& space, const LayoutGroup& group, const Work& work) {
  Layout layout = job.layout;
  layout.tp = group.tp;
  layout.cp = group.cp;
  layout.pp = group.pp;
  layout.dp = group.dp;
  layout.ep = group.ep;
  if (layout.data_parallel == DataParallel::kDdp) {
    constexpr int kMostSharded = 3;
    layout.zero = space.zero.empty() ? kMostSharded : *std::max_element(space.zero.begin(), space.zero.end());
  }
  const double parameters = work.parameters / group.pp;
  return model_states(layout, job.training, parameters, work.expert_parameters / group.pp).total().value();
}

double smallest_memory(const Job& job) {
  double smallest = job.cluster.device.memory_capacity.value();
  for (const Device& device : job.cluster.node_devices) smallest = std::min(smallest, device.memory_capacity.value());
  return smallest;
}

// Sums are rounded in another order than the simulator's.
constexpr double kSafe = 1.0 - 1e-9;

}  // namespace

std::vector<GroupBound> bound_groups(const Job& job, const SearchSpace& space, const std::vector<LayoutGroup>& groups,
                                     const ParallelFor& parallel_for) {
  std::vector<GroupBound> bounds(groups.size());
  if (job.cluster.uneven()) return bounds;
  std::map<WorkKey, std::size_t> numbers;
  std::vector<const LayoutGroup*> examples;
  for (const LayoutGroup& group : groups) {
    if (numbers.emplace(key_of(group), examples.size()).second) examples.push_back(&group);
  }
  std::vector<Work> works(examples.size());
  parallel_for(examples.size(), [&](std::size_t index) { works[index] = price_work(job, *examples[index]); });
  const double capacity = smallest_memory(job);
  const double overhead = job.training.stack.memory_overhead_gib * kGibibyte;
  for (std::size_t index = 0; index < groups.size(); ++index) {
    const LayoutGroup& group = groups[index];
    const Work& work = works[numbers.at(key_of(group))];
    const double rounding = 1e-9 * static_cast<double>(group.microbatches);  // passes in whole picoseconds
    bounds[index].time_s = std::max(0.0, kSafe * group.microbatches * work.seconds / group.pp - rounding);
    bounds[index].bytes = kSafe * (least_states(job, space, group, work) + work.activation / group.pp + overhead);
    bounds[index].memory_share = bounds[index].bytes / capacity;
  }
  return bounds;
}

}  // namespace flopcast
