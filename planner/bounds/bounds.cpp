#include "planner/bounds/bounds.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "model/cost/data_parallel.hpp"
#include "model/cost/stage_costs.hpp"
#include "model/layout/layout.hpp"
#include "model/partition/balanced_split.hpp"
#include "sim/forecast/memory.hpp"
#include "sim/forecast/prepare.hpp"

namespace flopcast {

namespace {

// Cost of a stage as a linear function of its layers: `layer` for each, plus what the embedding (`first`) or the head
// (`last`) adds.
struct Ends {
  double layer = 0.0;
  double first = 0.0;
  double last = 0.0;
};

bool layers_are_alike(const Job& job) {
  const int with_experts = job.model.expert_layers(0, job.model.layers);
  return with_experts == 0 || with_experts == job.model.layers;
}

// Needs an even split with at least three stages, one of which holds nothing but layers.
Ends ends_of(const StepCosts& uniform) {
  const std::size_t last = uniform.stages.size() - 1;
  const StageCosts& inner = uniform.stages[1];
  Ends ends;
  ends.layer = inner.passes().value() / inner.layers;
  ends.first = uniform.stages[0].passes().value() - ends.layer * uniform.stages[0].layers;
  ends.last = uniform.stages[last].passes().value() - ends.layer * uniform.stages[last].layers;
  return ends;
}

}  // namespace

std::vector<int> balanced_layers(const Job& job, const StageMap& stages, const StepCosts& uniform,
                                 SharedPrices* shared) {
  const int count = stages.model_stages;
  const int layers = job.model.layers;
  if (job.training.stack.balances_by_parameters) return split_by_parameters(job.model, count);
  const std::vector<int> even = even_stage_layers(layers, count);
  const bool simple = count > 2 && stages.copies() == 1 && layers_are_alike(job) && !job.cluster.uneven();
  if (!simple) return balanced_split(split_costs(job, stages, shared), even);
  const Ends ends = ends_of(uniform);
  using Quality = std::tuple<double, double, int>;  // slowest stage, sum of squares, layers of the first stage
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
  double backward = 0.0;               // the previous stage waits for it
  double whole = 0.0;                  // lower bound of the time that the stage needs for one microbatch
  double first_input_gradients = 0.0;  // forward and I, up to the end of the last I
};

PassTimes times_of(const StageCosts& costs, bool splits) {
  const double input = costs.recompute.total().value() + costs.input_gradient.total().value();
  const double full = input + costs.weight_gradient.total().value() - costs.tp_hidden.value();
  PassTimes times;
  times.forward = costs.forward.total().value();
  // A schedule that splits some backward passes may run others whole.
  times.backward = splits ? std::min(input, full) : full;
  // Assumes that every forward pass overlaps with a backward pass.
  times.whole = times.forward + full - costs.pair_saved.value();
  times.first_input_gradients = times.forward + times.backward - costs.pair_saved.value();
  return times;
}

struct RankBounds {
  double end = 0.0;    // end of the rank's last action
  double final = 0.0;  // lower bound that this rank sets on the end of the first stage's last backward pass
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

  // Lower bounds of the end of each rank's last action.
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

  // Prefix sums of passes and transfers: entry i covers the stages before stage i.
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

  // End of the step after the collectives that follow the passes, chained as in `lower`: each waits for all its ranks.
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
  std::vector<double> start_;  // by stage: forward passes and transfers that precede it
  std::vector<double> cool_;   // by stage: backward passes and transfers that follow its own
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
    const double bytes = least_rank_bytes(job, costs, held, shape.slices, rank);
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

// Puts the whole model on one stage of the group's ranks. `etp` applies where the group sets none.
void put_on_one_stage(Job& job, std::optional<int> etp, const LayoutGroup& group) {
  Layout& layout = job.layout;
  layout.etp = etp;
  layout.sizes() = group.sizes();
  layout.pp = 1;
  if (group.etp > 0) layout.etp = group.etp;
  const int beside = group.cp * group.tp / layout.expert_tensor_ranks();
  layout.dp = std::max(1, group.ep / std::gcd(group.ep, beside));
  layout.micro_batch_size = group.micro_batch_size;
  layout.global_batch_size = layout.dp * group.micro_batch_size;
  // Assume as much overlap of expert exchanges as the best schedule achieves.
  if (!job.training.stack.overlap_experts) job.training.stack.overlap_experts = ExpertOverlap::kDualpipe;
  layout.sequence_parallel = group.sequence_parallel;
  layout.recompute = group.recompute;
  layout.zero = 0;
  layout.data_parallel = DataParallel::kDdp;
  layout.stage_layers.assign(1, job.model.layers);
}

// Prices one microbatch through the whole model.
StageCosts price_work(Job priced, const LayoutGroup& group, SharedPrices& shared) {
  put_on_one_stage(priced, priced.layout.etp, group);
  StageMap map;
  map.rank_of_stage = {0};
  return price_for_bounds(priced, map, priced.layout.stage_layers, &shared).stages.front();
}

// Inputs of a group's memory bound.
struct WorkMemory {
  double activation = 0.0;
  double parameters = 0.0;
  double expert_parameters = 0.0;
  FrozenWeights frozen;
};

// Expects `layout` with the group's sizes and the most sharding of the space.
double least_states(const Layout& layout, const Training& training, const WorkMemory& work) {
  const double parameters = work.parameters / layout.pp;
  FrozenWeights frozen;
  frozen.add(work.frozen, 1.0 / layout.pp);
  const ModelStates states = model_states(layout, training, parameters, work.expert_parameters / layout.pp, frozen);
  return (training.paged_optimizer ? states.weights + states.gradients : states.total()).value();
}

Layout most_sharded(Layout layout, const SearchSpace& space) {
  if (layout.data_parallel != DataParallel::kDdp) return layout;
  constexpr int kMostSharded = 3;
  layout.zero = space.zero.empty() ? kMostSharded : *std::max_element(space.zero.begin(), space.zero.end());
  return layout;
}

double smallest_memory(const Job& job) {
  double smallest = job.cluster.device.memory_capacity.value();
  for (const Device& device : job.cluster.node_devices) smallest = std::min(smallest, device.memory_capacity.value());
  return smallest;
}

// Runs body(begin, end) over `count` items in chunks of `size`.
template <class Body>
void for_parts(const ParallelFor& parallel_for, std::size_t count, std::size_t size, const Body& body) {
  parallel_for((count + size - 1) / size,
               [&](std::size_t part) { body(part * size, std::min(count, (part + 1) * size)); });
}

// Margin for rounding: sums are taken in a different order than in the simulator.
constexpr double kSafe = 1.0 - 1e-9;

}  // namespace

double filled_bound(const GroupBound& bound, const ScheduleShape& shape, int microbatches) {
  const int ranks = shape.pipeline_ranks;
  const bool one_stage_a_rank = shape.stages.stages() == ranks && shape.stages.copies() == 1;
  if (!one_stage_a_rank || shape.asynchronous || shape.splits_backward || shape.slices > 1) return bound.time_s;
  const double m = microbatches;
  const double work = bound.time_s * ranks / m;
  return std::max(bound.time_s, kSafe * work / (1.0 - std::pow(1.0 - 1.0 / m, ranks)));
}

GroupBounds::GroupBounds(const Job& job, const SearchSpace& space, const std::vector<LayoutGroup>& groups,
                         ParallelFor parallel_for)
    : job_(job), space_(space), groups_(groups), parallel_for_(std::move(parallel_for)), bounds_(groups.size()) {
  if (job.cluster.uneven()) {
    for (GroupBound& bound : bounds_) bound.tight = true;
    return;
  }
  bound_memory();
  bound_time_loosely();
}

GroupBounds::WorkKey GroupBounds::key_of(const LayoutGroup& group) {
  return {group.tp, group.cp, group.ep, group.etp, group.micro_batch_size, group.sequence_parallel, group.recompute};
}

double GroupBounds::time_of(const LayoutGroup& group, Seconds work) const {
  const double rounding = 1e-9 * static_cast<double>(group.microbatches);  // passes are rounded to whole picoseconds
  return std::max(0.0, kSafe * group.microbatches * work.value() / group.pp - rounding);
}

void GroupBounds::bound_memory() {
  // Offloaded activations depend on the passes' times.
  const bool whole = job_.profile || job_.layout.offloads_activations();
  const double capacity = smallest_memory(job_);
  const double overhead = job_.training.stack.memory_overhead_gib * kGibibyte;
  std::map<WorkKey, std::size_t> numbers;
  std::vector<const LayoutGroup*> examples;
  std::vector<std::size_t> work_of_group;
  work_of_group.reserve(groups_.size());
  for (const LayoutGroup& group : groups_) {
    const auto [number, fresh] = numbers.emplace(key_of(group), examples.size());
    if (fresh) examples.push_back(&group);
    work_of_group.push_back(number->second);
  }
  std::vector<WorkMemory> works(examples.size());
  for_parts(parallel_for_, examples.size(), 512, [&](std::size_t begin, std::size_t end) {
    Job job = job_;
    SharedPrices shared;
    for (std::size_t index = begin; index < end; ++index) {
      put_on_one_stage(job, job_.layout.etp, *examples[index]);
      const StageCosts costs = whole ? price_work(job_, *examples[index], shared) : price_memory(job, shared);
      works[index] = {costs.activation.value(), costs.parameters, costs.expert_parameters, costs.frozen};
    }
  });
  Layout layout = most_sharded(job_.layout, space_);
  for (std::size_t index = 0; index < groups_.size(); ++index) {
    const LayoutGroup& group = groups_[index];
    layout.sizes() = group.sizes();
    layout.etp = group.etp > 0 ? group.etp : job_.layout.etp;
    const WorkMemory& work = works[work_of_group[index]];
    GroupBound& bound = bounds_[index];
    bound.bytes = kSafe * (least_states(layout, job_.training, work) + work.activation / group.pp + overhead);
    bound.memory_share = bound.bytes / capacity;
  }
}

void GroupBounds::bound_time_loosely() {
  // least_pass_time covers neither adapters nor tensor grids nor user-defined laws, whose bounds stay 0 until
  // tightened.
  if (job_.profile || job_.training.finetune || job_.training.preference || job_.laws != nullptr ||
      job_.layout.tensor_parallel != TensorParallel::k1d) {
    return;
  }
  using Key = std::tuple<int, int, int, bool>;
  const auto key = [](const LayoutGroup& group) {
    return Key{group.tp, group.cp, group.micro_batch_size, group.sequence_parallel};
  };
  std::map<Key, Seconds> works;
  Job job = job_;
  SharedPrices shared;
  for (std::size_t index = 0; index < groups_.size(); ++index) {
    LayoutGroup group = groups_[index];
    const auto [work, fresh] = works.emplace(key(group), Seconds(0));
    if (fresh) {
      group.ep = 1;
      group.recompute = Recompute::kNone;
      put_on_one_stage(job, job_.layout.etp, group);
      work->second = least_pass_time(job, shared);
    }
    bounds_[index].time_s = time_of(group, work->second);
  }
}

void GroupBounds::tighten(const std::vector<std::size_t>& groups) {
  std::vector<std::size_t> unknown;
  for (const std::size_t index : groups) {
    if (!bounds_[index].tight && works_.emplace(key_of(groups_[index]), Seconds(0)).second) unknown.push_back(index);
  }
  // Sort so that neighbours share prices.
  std::sort(unknown.begin(), unknown.end());
  for_parts(parallel_for_, unknown.size(), 32, [&](std::size_t begin, std::size_t end) {
    SharedPrices shared;
    for (std::size_t place = begin; place < end; ++place) {
      const LayoutGroup& group = groups_[unknown[place]];
      const StageCosts work = price_work(job_, group, shared);
      works_.at(key_of(group)) = work.passes() - work.pair_saved;
    }
  });
  for (const std::size_t index : groups) {
    if (bounds_[index].tight) continue;
    const LayoutGroup& group = groups_[index];
    bounds_[index].time_s = time_of(group, works_.at(key_of(group)));
    bounds_[index].tight = true;
  }
}

bool ScheduleShapes::Key::operator<(const Key& other) const {
  return std::tie(schedule, pipeline_ranks, chunks, microbatches) <
         std::tie(other.schedule, other.pipeline_ranks, other.chunks, other.microbatches);
}

ScheduleShapes::Key ScheduleShapes::key_of(std::uint16_t schedule, int pipeline_ranks, int chunks,
                                           int microbatches) const {
  const Key whole{schedule, pipeline_ranks, chunks, microbatches};
  const ScheduleInfo& info = *space_.schedules[schedule].info;
  if (microbatches < 3 * pipeline_ranks || microbatches < 4 || info.asynchronous) return whole;
  Key few = whole;
  few.microbatches = 2 * pipeline_ranks + microbatches % pipeline_ranks;
  few.microbatches = std::max(few.microbatches, 2);
  return refuse_request(info, request_of(few)) ? whole : few;
}

ScheduleRequest ScheduleShapes::request_of(const Key& key) const {
  ScheduleRequest request;
  request.pipeline_ranks = key.pipeline_ranks;
  request.microbatches = key.microbatches;
  request.chunks = key.chunks;
  request.variant = space_.schedules[key.schedule].variant;
  for (const ScheduleNumber& number : schedule_numbers()) request.*number.request = base_.*number.layout;
  const ScheduleInfo& info = *space_.schedules[key.schedule].info;
  if (info.asynchronous) request.accumulation = info.weights.accumulation(request);
  return request;
}

std::size_t ScheduleShapes::map_number(const StageMap& map) {
  for (std::size_t index = 0; index < maps_.size(); ++index) {
    const StageMap& known = maps_[index];
    const bool same = known.rank_of_stage == map.rank_of_stage && known.model_stages == map.model_stages &&
                      known.passes_in_a_row == map.passes_in_a_row;
    if (same) return index;
  }
  maps_.push_back(map);
  return maps_.size() - 1;
}

ScheduleShape ScheduleShapes::make_shape(const Key& key, int microbatches) {
  const ScheduleInfo& info = *space_.schedules[key.schedule].info;
  const Program program = info.generate(request_of(key));
  ScheduleShape shape;
  const StageMap of_program = stage_map_of(program);
  shape.stages = of_program;
  shape.asynchronous = program.asynchronous;
  shape.splits_backward = info.uses_times;
  shape.slices = program.slices_per_microbatch;
  shape.pipeline_ranks = program.rank_count();
  // A row spans all microbatches of a chain, however many the program has.
  const int row = microbatches / static_cast<int>(std::max<std::size_t>(1, program.chains.size()));
  for (int& passes : shape.stages.passes_in_a_row) passes = row;
  // prepare() reads the stages of schedules that depend on times before their order is known.
  if (info.uses_times) shape.stages = stage_map_of(stages_of_schedule(info, request_of(key)));
  shape.map = map_number(shape.stages);
  for (const std::vector<Action>& actions : program.ranks) {
    std::vector<int> stages = of_program.stages_of(static_cast<int>(shape.held.size()));
    for (const Action& action : actions) {
      shape.splits_backward = shape.splits_backward || action.kind == ActionKind::kInputGradient;
    }
    const bool in_rows = !shape.stages.passes_in_a_row.empty() && shape.stages.copies() == 1;
    std::vector<HeldCounts> moments;
    if (info.uses_times || program.asynchronous) {
      moments = {HeldCounts(stages.size(), 1)};
    } else if (in_rows) {
      moments = {HeldCounts(stages.size(), row * shape.slices)};
    } else {
      moments = peak_states(actions, stages, program.backward_frees_first);
    }
    shape.held.push_back({std::move(stages), std::move(moments)});
  }
  return shape;
}

const ScheduleShape& ScheduleShapes::shape(std::uint16_t schedule, int pipeline_ranks, int chunks, int microbatches) {
  // Row lengths depend on the microbatches, so a shape with rows holds for one number of microbatches only.
  const Key whole{schedule, pipeline_ranks, chunks, microbatches};
  const auto exact = shapes_.find(whole);
  if (exact != shapes_.end()) return exact->second;
  const Key few = key_of(schedule, pipeline_ranks, chunks, microbatches);
  const auto similar = shapes_.find(few);
  if (similar != shapes_.end() && similar->second.stages.passes_in_a_row.empty()) return similar->second;
  ScheduleShape made = make_shape(few, microbatches);
  const bool rows = !made.stages.passes_in_a_row.empty();
  return shapes_.emplace(rows ? whole : few, std::move(made)).first->second;
}

const ScheduleShape* ScheduleShapes::known(std::uint16_t schedule, int pipeline_ranks, int chunks,
                                           int microbatches) const {
  const auto exact = shapes_.find(Key{schedule, pipeline_ranks, chunks, microbatches});
  if (exact != shapes_.end()) return &exact->second;
  const auto similar = shapes_.find(key_of(schedule, pipeline_ranks, chunks, microbatches));
  return similar == shapes_.end() ? nullptr : &similar->second;
}

}  // namespace flopcast
