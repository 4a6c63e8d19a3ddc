#include "planner/bounds/bounds.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <tuple>

#include "model/cost/data_parallel.hpp"
#include "model/cost/stage_costs.hpp"
#include "model/layout/layout.hpp"
#include "model/partition/partition.hpp"
#include "sim/forecast/memory.hpp"

namespace flopcast {

namespace {

double seconds_of(const StageCosts& costs) {
  return (costs.forward.total() + costs.recompute.total() + costs.input_gradient.total() +
          costs.weight_gradient.total() - costs.tp_hidden)
      .value();
}

// Where stages sit between the embedding and the head: their cost is so many layers.
struct Ends {
  double layer = 0.0;
  double first = 0.0;
  double last = 0.0;
};

bool layers_are_alike(const Job& job) {
  const int with_experts = job.model.expert_layers(0, job.model.layers);
  return with_experts == 0 || with_experts == job.model.layers;
}

// From three stages of the even split, of which an inner one has layers alone.
Ends ends_of(const StepCosts& uniform) {
  const std::size_t last = uniform.stages.size() - 1;
  const StageCosts& inner = uniform.stages[1];
  Ends ends;
  ends.layer = seconds_of(inner) / inner.layers;
  ends.first = seconds_of(uniform.stages[0]) - ends.layer * uniform.stages[0].layers;
  ends.last = seconds_of(uniform.stages[last]) - ends.layer * uniform.stages[last].layers;
  return ends;
}

}  // namespace

std::vector<int> balanced_layers(const Job& job, const StageMap& stages, const StepCosts& uniform) {
  const int count = stages.model_stages;
  const int layers = job.model.layers;
  if (job.training.stack.balances_by_parameters) return split_by_parameters(job.model, count);
  const std::vector<int> even = even_stage_layers(layers, count);
  const bool simple = count > 2 && stages.copies() == 1 && layers_are_alike(job) && !job.cluster.uneven();
  if (!simple) return balanced_split(split_costs(job, stages), even);
  const Ends ends = ends_of(uniform);
  using Quality = std::tuple<double, double, int>;  // dearest stage, squares, layers of the first
  std::vector<int> best;
  Quality best_quality;
  const int most = layers / count + 1;
  for (int first = std::max(0, most - 1 - static_cast<int>(ends.first / ends.layer) - 1); first <= most; ++first) {
    for (int last = std::max(0, most - 1 - static_cast<int>(ends.last / ends.layer) - 1); last <= most; ++last) {
      const int inner = layers - first - last;
      if (inner < 0) continue;
      const int low = inner / (count - 2);
      const int higher = inner % (count - 2);
      const double first_s = ends.first + first * ends.layer;
      const double last_s = ends.last + last * ends.layer;
      const double high_s = ends.layer * (low + (higher > 0 ? 1 : 0));
      const double low_s = ends.layer * low;
      const double squares =
          first_s * first_s + last_s * last_s + higher * high_s * high_s + (count - 2 - higher) * low_s * low_s;
      const Quality quality{std::max({first_s, last_s, high_s}), squares, first};
      if (!best.empty() && quality >= best_quality) continue;
      best_quality = quality;
      best = even_stage_layers(inner, count - 2);
      best.insert(best.begin(), first);
      best.push_back(last);
    }
  }
  return best;
}

namespace {

// The simulator rounds every pass to whole picoseconds.
constexpr double kRounding = 1e-12;

struct PassTimes {
  double forward = 0.0;
  double backward = 0.0;               // what the stage before waits for
  double whole = 0.0;                  // all that the stage does for a microbatch, at least
  double first_input_gradients = 0.0;  // forward and I: what precedes the last I
};

PassTimes times_of(const StageCosts& costs, bool splits) {
  const double input = costs.recompute.total().value() + costs.input_gradient.total().value();
  const double full = input + costs.weight_gradient.total().value() - costs.tp_hidden.value();
  PassTimes times;
  times.forward = costs.forward.total().value();
  // A schedule that splits some passes may run others whole.
  times.backward = splits ? std::min(input, full) : full;
  // As if every forward pass ran beside a backward pass.
  times.whole = times.forward + full - costs.pair_saved.value();
  times.first_input_gradients = times.forward + times.backward - costs.pair_saved.value();
  return times;
}

struct RankBounds {
  double end = 0.0;    // of its last action
  double final = 0.0;  // of the first stage's last backward pass, as this rank bounds it
};

class TimeBound {
 public:
  TimeBound(const Job& job, const ScheduleShape& shape, const StepCosts& costs)
      : shape_(shape), costs_(costs), microbatches_(job.layout.microbatches()) {
    times_.reserve(costs.stages.size());
    for (const StageCosts& stage : costs.stages) times_.push_back(times_of(stage, shape.splits_backward));
    sum_before();
  }

  double seconds() const { return (shape_.asynchronous ? latest(ends()) : flushed(ends())) - rounding(); }
  double passes() const { return latest(ends()) - rounding(); }

 private:
  static double latest(const std::vector<double>& times) { return *std::max_element(times.begin(), times.end()); }

  // Of each rank's last action.
  std::vector<double> ends() const {
    double final = 0.0;
    std::vector<double> ends;
    for (int rank = 0; rank < shape_.pipeline_ranks; ++rank) {
      const RankBounds bounds = of_rank(rank);
      ends.push_back(bounds.end);
      final = std::max(final, bounds.final);
    }
    double& first = ends[static_cast<std::size_t>(shape_.stages.rank_of_stage.front())];
    first = std::max(first, final);
    return ends;
  }

  RankBounds of_rank(int rank) const {
    const std::vector<int>& stages = shape_.held[static_cast<std::size_t>(rank)].stages;
    const double copies = shape_.stages.copies();
    const double passes = microbatches_ / copies;
    double load = 0.0;
    double before_last = 0.0;
    for (const int stage : stages) {
      load += times_[static_cast<std::size_t>(stage)].whole * passes;
      before_last += times_[static_cast<std::size_t>(stage)].first_input_gradients * passes;
    }
    RankBounds bounds;
    if (shape_.asynchronous || copies > 1 || stages.empty()) {
      bounds.end = bounds.final = load;
      return bounds;
    }
    const auto lowest = static_cast<std::size_t>(*std::min_element(stages.begin(), stages.end()));
    bounds.end = start_[lowest] + load;
    bounds.final = start_[lowest] + before_last + cool_[lowest];
    return bounds;
  }

  // Of the stages before each, in that order.
  void sum_before() {
    double start = 0.0;
    double cool = 0.0;
    start_.reserve(times_.size());
    cool_.reserve(times_.size());
    for (std::size_t stage = 0; stage < times_.size(); ++stage) {
      start_.push_back(start);
      cool_.push_back(cool);
      if (stage == costs_.boundaries.size()) break;
      start += times_[stage].forward / shape_.slices + costs_.boundaries[stage].forward.value();
      cool += times_[stage].backward / shape_.slices + costs_.boundaries[stage].backward.value();
    }
  }

  // What follows the last action, as `lower` chains it: collectives wait for all their ranks.
  double flushed(std::vector<double> ready) const {
    double norm = 0.0;
    double embedding = 0.0;
    for (std::size_t rank = 0; rank < ready.size(); ++rank) {
      const FlushCosts& flush = costs_.ranks[rank];
      ready[rank] += flush.gradient_reduction.value();
      norm = std::max(norm, flush.gradient_norm.value());
      embedding = std::max(embedding, flush.embedding_reduction.value());
    }
    if (embedding > 0.0) ready.front() = ready.back() = std::max(ready.front(), ready.back()) + embedding;
    const double latest = *std::max_element(ready.begin(), ready.end());
    double end = 0.0;
    for (std::size_t rank = 0; rank < ready.size(); ++rank) {
      const FlushCosts& flush = costs_.ranks[rank];
      const double start = norm > 0.0 ? latest + norm : ready[rank];
      end = std::max(end, start + flush.optimizer.value() + flush.parameter_gather.value());
    }
    return end;
  }

  double rounding() const {
    const double passes = 3.0 * microbatches_ * static_cast<double>(times_.size()) * shape_.slices;
    return kRounding * (passes + 16.0) + 1e-12 * microbatches_;
  }

  const ScheduleShape& shape_;
  const StepCosts& costs_;
  double microbatches_;
  std::vector<PassTimes> times_;
  std::vector<double> start_;  // by stage: forward passes and transfers before it
  std::vector<double> cool_;   // backward ones
};

}  // namespace

double time_bound(const Job& job, const ScheduleShape& shape, const StepCosts& costs) {
  return TimeBound(job, shape, costs).seconds();
}

double pass_bound(const Job& job, const ScheduleShape& shape, const StepCosts& costs) {
  return TimeBound(job, shape, costs).passes();
}

FullestRank memory_bound(const Job& job, const ScheduleShape& shape, const StepCosts& costs) {
  FullestRank bound;
  for (int rank = 0; rank < shape.pipeline_ranks; ++rank) {
    const RankActivations& held = shape.held[static_cast<std::size_t>(rank)];
    const double bytes = least_rank_bytes(job, shape.stages, costs, held, shape.slices, rank);
    bound.bytes = std::max(bound.bytes, bytes);
    bound.share = std::max(bound.share, bytes / memory_capacity(job, rank).value());
  }
  return bound;
}

StepCosts price_for_bounds(Job& job, const StageMap& stages, const std::vector<int>& stage_layers,
                           SharedPrices* shared) {
  if (!reduces_in_buckets(job)) return price_step(job, stages, stage_layers, shared);
  job.training.stack.overlap_gradient_reduction = false;
  StepCosts costs = price_step(job, stages, stage_layers, shared);
  job.training.stack.overlap_gradient_reduction = true;
  for (FlushCosts& rank : costs.ranks) rank.gradient_reduction = Seconds(0);
  return costs;
}

namespace {

// All that the price of a block depends on beside what all layouts of the search share.
using WorkKey = std::tuple<int, int, int, int, int, bool, Recompute>;

WorkKey key_of(const LayoutGroup& group) {
  return {group.tp, group.cp, group.ep, group.etp, group.micro_batch_size, group.sequence_parallel, group.recompute};
}

// Of the whole model, one microbatch.
struct Work {
  double seconds = 0.0;
  double activation = 0.0;
  double parameters = 0.0;
  double expert_parameters = 0.0;
  FrozenWeights frozen;
};

Work price_work(Job job, const LayoutGroup& group) {
  Layout& layout = job.layout;
  layout.sizes() = group.sizes();
  layout.pp = 1;
  if (group.etp > 0) layout.etp = group.etp;
  const int beside = group.cp * group.tp / layout.expert_tensor_ranks();
  layout.dp = std::max(1, group.ep / std::gcd(group.ep, beside));
  layout.micro_batch_size = group.micro_batch_size;
  layout.global_batch_size = layout.dp * group.micro_batch_size;
  // Of exchanges as much is hidden as of any schedule's.
  if (!job.training.stack.overlap_experts) job.training.stack.overlap_experts = ExpertOverlap::kDualpipe;
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
                         stage.weight_gradient.total() - stage.tp_hidden - stage.pair_saved;
  Work work;
  work.seconds = passes.value();
  work.activation = stage.activation.value();
  work.parameters = stage.parameters;
  work.expert_parameters = stage.expert_parameters;
  work.frozen = stage.frozen;
  return work;
}

double least_states(const Job& job, const SearchSpace& space, const LayoutGroup& group, const Work& work) {
  Layout layout = job.layout;
  layout.sizes() = group.sizes();
  if (group.etp > 0) layout.etp = group.etp;
  if (layout.data_parallel == DataParallel::kDdp) {
    constexpr int kMostSharded = 3;
    layout.zero = space.zero.empty() ? kMostSharded : *std::max_element(space.zero.begin(), space.zero.end());
  }
  const double parameters = work.parameters / group.pp;
  FrozenWeights frozen;
  frozen.add(work.frozen, 1.0 / group.pp);
  const ModelStates states = model_states(layout, job.training, parameters, work.expert_parameters / group.pp, frozen);
  return (job.training.paged_optimizer ? states.weights + states.gradients : states.total()).value();
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
