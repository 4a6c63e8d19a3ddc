#include "realrun/training/train.hpp"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "base/text/error.hpp"
#include "model/layout/rank_grid.hpp"
#include "realrun/compute/host_device.hpp"
#include "realrun/compute/stage_compute.hpp"
#include "realrun/parallel/rank_state.hpp"
#include "realrun/training/training_plan.hpp"

namespace flopcast::realrun {

namespace {

// Samples of a step are ordered by replica, chain and microbatch: each replica reads its own shard.
std::uint64_t first_sample(const TrainingPlan& plan, int data_index, int step, StageIndex stage,
                           MicrobatchIndex microbatch) {
  std::uint64_t before = static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(plan.dp) +
                         static_cast<std::uint64_t>(data_index / plan.cp);
  before *= static_cast<std::uint64_t>(plan.microbatches());
  for (const Chain& chain : plan.program.chains) {
    if (stage <= chain.last_stage) break;
    before += static_cast<std::uint64_t>(plan.program.microbatches_of(chain) / plan.slices());
  }
  return (before + static_cast<std::uint64_t>(microbatch)) * static_cast<std::uint64_t>(plan.micro_batch_size);
}

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Echo : Pending {
  explicit Echo(Buffer target) : into(std::move(target)) {}
  Buffer into;
};

// Between -1 and 1: with zeros, exponentials would take other branches than with activations.
Buffer make_noise(std::size_t bytes, ComputeDevice& device) {
  std::vector<float> values(bytes / sizeof(float));
  std::minstd_rand random(1);
  for (float& value : values) {
    value = static_cast<float>(random()) / static_cast<float>(std::minstd_rand::max()) * 2.0F - 1.0F;
  }
  Buffer noise = device.allocate(values.size() * sizeof(float));
  device.upload(reinterpret_cast<const std::byte*>(values.data()), noise);
  return noise;
}

/// A rank without pipeline neighbours: messages it sends are dropped, and those it receives hold noise and arrive
/// immediately. Collectives run on the underlying transport. The actions of a program then run in order, on their
/// memory, as fast as the rank can: a step minus its waiting time.
class LoopbackTransport : public RankTransport {
 public:
  LoopbackTransport(RankTransport& behind, ComputeDevice& device) : behind_(behind), device_(device) {}

  int rank() const override { return behind_.rank(); }
  int rank_count() const override { return behind_.rank_count(); }
  Group form_group(Axis axis, const std::vector<int>& members) override { return behind_.form_group(axis, members); }
  void connect(const std::vector<std::pair<int, int>>& pairs) override { behind_.connect(pairs); }
  void send(int /*to*/, const MessageKey& /*key*/, const Buffer& /*buffer*/) override {}
  Request receive(int /*from*/, const MessageKey& /*key*/, const Buffer& into) override {
    if (noise_.bytes() < into.bytes()) noise_ = make_noise(into.bytes(), device_);
    return std::make_shared<Echo>(into);
  }
  void run(const Group& group, const Collective& collective) override { behind_.run(group, collective); }
  Request start(const Group& group, const Collective& collective) override { return behind_.start(group, collective); }
  void wait(const Request& request) override {
    const auto* echo = dynamic_cast<Echo*>(request.get());
    if (echo == nullptr) return behind_.wait(request);
    // Receiving includes a copy, because that time is spent by the receiver.
    device_.copy(noise_.slice(0, echo->into.bytes()), echo->into);
  }
  void poke() override { behind_.poke(); }
  void note(const Activity& activity) override { behind_.note(activity); }
  SentTraffic traffic() const override { return behind_.traffic(); }

 private:
  RankTransport& behind_;
  ComputeDevice& device_;
  Buffer noise_;  // as large as the largest message so far
};

/// One rank with everything it consists of.
class RankTraining {
 public:
  RankTraining(const TrainingPlan& plan, const RankMachine& machine, RankTransport& transport)
      : plan_(plan),
        machine_(machine),
        device_(machine.device),
        transport_(transport),
        grid_(grid_of(plan)),
        pipeline_rank_(grid_.coordinate(transport.rank(), Axis::kPipeline)),
        data_index_(grid_.coordinate(transport.rank(), Axis::kData)),
        recording_(device_),
        tensor_group_(transport, form_groups(transport, grid_, Axis::kTensor), &device_),
        tensor_grid_(form_tensor_grid(transport, plan, grid_)),
        expert_group_(make_group(plan.ep, plan.expert_sharers(), Axis::kExpert)),
        sharer_group_(make_group(shares_experts() ? plan.expert_sharers() : 1, 1, Axis::kTensor)),
        head_group_(make_group(plan.context_inner, plan.tp, Axis::kContext)),
        context_group_(make_group(plan.cp / plan.context_inner, plan.tp * plan.context_inner, Axis::kContext)),
        network_(make_network_stages(stages_spec())),
        sleeping_(make_sleeping()),
        compute_(sleeping_ == nullptr ? *network_ : *sleeping_),
        codec_(make_host_codec(plan.compression)),
        context_{.device = device_,
                 .transport = transport,
                 .recording = recording_,
                 .compute = compute_,
                 .optimizer = plan.optimizer,
                 .rank_share = plan.rank_share,
                 .zero = plan.zero,
                 .reshards = plan.reshard_after_forward,
                 .offloads = counts_host_bytes(plan.offload == Offload::kOptimizer),
                 .codec = codec_.get()} {
    if (plan.compression.kind == Compression::Kind::kPowerSgd) {
      context_.products = &host_low_rank_products();
      context_.low_rank = plan.compression.rank;
    }
    if (plan.shards == 0) {
      context_.data = form_groups(transport, grid_, Axis::kData);
    } else {
      context_.data = form_cut_groups(transport, grid_, plan.shards, Cut::kNeighbours);
      context_.copies = form_cut_groups(transport, grid_, plan.shards, Cut::kSamePlace);
    }
    if (plan.served_ranks_per_node > 0) {
      context_.node = form_cut_groups(transport, grid_, plan.served_ranks_per_node, Cut::kNeighbours);
      context_.peers = form_cut_groups(transport, grid_, plan.served_ranks_per_node, Cut::kSamePlace);
      context_.servers = form_server_groups(transport, plan, grid_).links;
    }
    if (plan.network.experts && plan.expert_replicas() != plan.replicas()) {
      const int apart = plan.expert_sharers() * plan.ep;
      context_.experts = form_strided_groups(transport, grid_, plan.expert_replicas(), apart, Axis::kData);
    }
    context_.tensor = form_groups(transport, grid_, Axis::kTensor);
    std::vector<StageLayout> layouts;
    for (int stage = 0; stage < plan.program.stage_count(); ++stage) layouts.push_back(compute_.layout(stage));
    SharedParameters shared = find_shared_parameters(layouts);
    std::vector<Group> groups = form_shared_groups(transport, grid_, holders_of(shared, plan.program));
    state_ = std::make_unique<RankState>(context_, plan.program, pipeline_rank_, layouts, std::move(shared),
                                         std::move(groups), bucket_rules(plan));
    transport.connect(neighbours_of(plan, grid_));
    everybody_ = transport.form_group(Axis::kPipeline, all_ranks());
    executor_ = std::make_unique<Executor>(plan.program, plan.updates, place(), compute_, *state_, transport, device_,
                                           recording_);
  }

  void run(RankResult& result, const BetweenSteps& between_steps) {
    result.rank = transport_.rank();
    result.pipeline_rank = pipeline_rank_;
    result.data_index = data_index_;
    result.tensor_index = grid_.coordinate(transport_.rank(), Axis::kTensor);
    for (int step = 0; step < plan_.steps; ++step) {
      result.steps.push_back(run_step(step));
      result.peak_activation_bytes = compute_.peak_activation_bytes();
      if (!between_steps || step + 1 == plan_.steps) continue;
      transport_.run(everybody_, {.kind = CollectiveKind::kBarrier});
      between_steps(transport_);  // the next step begins with a barrier
    }
    if (plan_.keeps_weights) result.weights = trained_weights();
  }

  /// Runs the steps of this plan; only their times are used.
  std::vector<StepRecord> calibrate() {
    std::vector<StepRecord> steps;
    for (int step = 0; step < plan_.steps; ++step) steps.push_back(run_step(step));
    transport_.run(everybody_, {.kind = CollectiveKind::kBarrier});
    return steps;
  }

  /// Uses `transport` even if the steps do not.
  std::vector<MessageTimes> time_messages(RankTransport& transport) const {
    return measure_messages(plan_.program, place(), compute_, transport, device_);
  }

 private:
  RankPlace place() const { return {pipeline_rank_, grid_.group_of(transport_.rank(), Axis::kPipeline)}; }

  std::unique_ptr<StageCompute> make_sleeping() {
    if (plan_.sleep.empty()) return nullptr;
    const auto needs = std::make_shared<Needs>(plan_.program);
    return make_sleeping_stages(
        *network_, plan_.sleep, [needs](int stage) { return needs->is_first(stage); },
        [needs](int stage) { return needs->is_last(stage); }, [this] { transport_.poke(); });
  }

  // See form_strided_groups.
  TensorGroup make_group(int ranks, int every, Axis axis) {
    if (ranks == 1) return {};
    return {transport_, form_strided_groups(transport_, grid_, ranks, every, axis), &device_};
  }
  bool shares_experts() const { return plan_.network.experts && plan_.sequence_parallel; }

  std::function<void(std::size_t)> counts_host_bytes(bool alone) {
    if (!alone && plan_.offload != Offload::kAll) return {};
    return [this](std::size_t bytes) { host_bytes_ += bytes; };
  }

  NetworkStagesSpec stages_spec() {
    NetworkStagesSpec spec;
    spec.offloads = counts_host_bytes(plan_.offload == Offload::kActivations);
    spec.network = plan_.network;
    spec.parts = parts_of(plan_);
    spec.form = {.group = &tensor_group_,
                 .grid = plan_.grid().ranks() > 1 ? &tensor_grid_ : nullptr,
                 .experts = plan_.ep > 1 ? &expert_group_ : nullptr,
                 .sharers = shares_experts() ? &sharer_group_ : nullptr,
                 .context = plan_.cp > 1 ? &context_group_ : nullptr,
                 .context_heads = plan_.context_inner > 1 ? &head_group_ : nullptr,
                 .context_form = plan_.context_parallel,
                 .sequence_parallel = plan_.sequence_parallel};
    spec.alignment = alignment_of(plan_, device_);
    const int context = data_index_ % plan_.cp;
    spec.context = {context / plan_.context_inner, plan_.cp / plan_.context_inner, plan_.zigzag,
                    context % plan_.context_inner, plan_.context_inner};
    spec.micro_batch_size = plan_.micro_batch_size;
    spec.slices = plan_.slices();
    spec.loss_weight = 1.0F / static_cast<float>(plan_.microbatches_per_update() * plan_.slices() * plan_.cp *
                                                 plan_.grid().token_parts);
    spec.first_sample = [this](int step, StageIndex stage, MicrobatchIndex microbatch) {
      return first_sample(plan_, data_index_, step, stage, microbatch);
    };
    spec.poke = [this] { transport_.poke(); };
    spec.device = &device_;
    spec.kernels = &machine_.kernels;
    return spec;
  }

  std::vector<int> all_ranks() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < plan_.ranks(); ++rank) ranks.push_back(rank);
    return ranks;
  }

  StepRecord run_step(int step) {
    transport_.run(everybody_, {.kind = CollectiveKind::kBarrier});
    const SentTraffic before = transport_.traffic();
    host_bytes_ = 0;
    const Ticks start = device_.time_of(device_.mark());
    const double cpu = thread_cpu_seconds();
    executor_->run_step(step);
    StepRecord record;
    record.cpu_seconds = thread_cpu_seconds() - cpu;
    record.wall_seconds = static_cast<double>(device_.time_of(device_.mark()) - start) * 1e-12;
    record.record = recording_.take();
    record.traffic = transport_.traffic() - before;
    record.host_bytes = host_bytes_;
    add_losses(record);
    return record;
  }

  void add_losses(StepRecord& record) const {
    for (const Chain& chain : plan_.program.chains) {
      if (plan_.program.rank_of_stage[static_cast<std::size_t>(chain.last_stage)] != pipeline_rank_) continue;
      for (int microbatch = 0; microbatch < plan_.program.microbatches_of(chain); ++microbatch) {
        const std::optional<double> loss = compute_.loss(StageIndex(chain.last_stage), MicrobatchIndex(microbatch));
        FLOPCAST_CHECK(loss.has_value());
        record.losses.push_back(*loss);
      }
    }
  }

  std::vector<TrainedParameter> trained_weights() {
    std::vector<TrainedParameter> trained;
    state_->begin_step();
    for (const auto& [stage, weights] : state_->stages()) {
      UnitStore& store = weights->open({});
      for (std::size_t unit = 0; unit < weights->layout().units.size(); ++unit) {
        const Buffer buffer = store.weights(static_cast<int>(unit));
        std::vector<float> values(buffer.bytes() / sizeof(float));
        device_.download(buffer, reinterpret_cast<std::byte*>(values.data()));
        for (const Parameter& parameter : weights->layout().units[unit].parameters()) {
          const auto first = values.begin() + static_cast<std::ptrdiff_t>(parameter.offset);
          trained.push_back({parameter, {first, first + static_cast<std::ptrdiff_t>(parameter.shard.count())}});
        }
      }
    }
    return trained;
  }

  const TrainingPlan& plan_;
  RankMachine machine_;
  ComputeDevice& device_;
  RankTransport& transport_;
  RankGrid grid_;
  int pipeline_rank_ = 0;
  int data_index_ = 0;
  std::uint64_t host_bytes_ = 0;
  Recording recording_;
  TensorGroup tensor_group_;
  GridPlace tensor_grid_;
  TensorGroup expert_group_;
  TensorGroup sharer_group_;
  TensorGroup head_group_;
  TensorGroup context_group_;
  std::unique_ptr<StageCompute> network_;
  std::unique_ptr<StageCompute> sleeping_;
  StageCompute& compute_;
  std::unique_ptr<GradientCodec> codec_;
  ParallelContext context_;
  std::unique_ptr<RankState> state_;
  Group everybody_;
  std::unique_ptr<Executor> executor_;
};

TrainingPlan calibration_plan(const TrainingPlan& plan) {
  TrainingPlan calibration = plan;
  calibration.program = plan.calibration->program;
  calibration.steps = plan.calibration->steps;
  return calibration;
}

void serve_ranks(const TrainingPlan& plan, RankTransport& transport) {
  if (!plan.calibration) return ServerRank(plan, transport).run();
  const TrainingPlan calibration = calibration_plan(plan);
  ServerRank(calibration, transport).run();
  ServerRank(plan, transport).run();
  ServerRank(calibration, transport).run();
}

}  // namespace

void train_rank(const TrainingPlan& plan, RankTransport& transport, RankResult& result,
                const BetweenSteps& between_steps) {
  HostDevice device;
  train_rank(plan, {device, host_kernels<float>()}, transport, result, between_steps);
}

void train_rank(const TrainingPlan& plan, const RankMachine& machine, RankTransport& transport, RankResult& result,
                const BetweenSteps& between_steps) {
  FLOPCAST_CHECK(transport.rank_count() == plan.ranks() + plan.server_ranks());
  if (!plan.calibration) return RankTraining(plan, machine, transport).run(result, between_steps);
  const TrainingPlan calibration = calibration_plan(plan);
  LoopbackTransport alone(transport, machine.device);
  {
    RankTraining before(calibration, machine, alone);
    result.calibration.steps = before.calibrate();
    result.calibration.messages = before.time_messages(transport);
  }
  // Initialising the weights has no time limit.
  transport.note({});
  RankTraining(plan, machine, transport).run(result, between_steps);
  transport.note({});
  result.calibration.later_steps = RankTraining(calibration, machine, alone).calibrate();
}

std::vector<RankResult> train_on_threads(const TrainingPlan& plan, const ThreadOptions& options) {
  std::vector<RankResult> results;
  train_on_threads(plan, options, results);
  return results;
}

void train_on_threads(const TrainingPlan& plan, const ThreadOptions& options, std::vector<RankResult>& results,
                      const BetweenSteps& between_steps) {
  check_plan(plan);
  results.assign(static_cast<std::size_t>(plan.ranks()), {});
  run_threads(plan.ranks() + plan.server_ranks(), options, [&](RankTransport& transport) {
    if (transport.rank() >= plan.ranks()) return serve_ranks(plan, transport);
    train_rank(plan, transport, results[static_cast<std::size_t>(transport.rank())], between_steps);
  });
}

RankResult RankResult::latest() const {
  return {rank, pipeline_rank, data_index, tensor_index, calibration, {steps.back()}, weights, peak_activation_bytes};
}

void RankResult::add(RankResult latest) {
  latest.steps.insert(latest.steps.begin(), std::make_move_iterator(steps.begin()),
                      std::make_move_iterator(steps.end()));
  *this = std::move(latest);
}

std::size_t finished_steps(const std::vector<RankResult>& ranks) {
  std::size_t steps = ranks.front().steps.size();
  for (const RankResult& rank : ranks) steps = std::min(steps, rank.steps.size());
  return steps;
}

std::vector<double> mean_losses(const std::vector<RankResult>& ranks) {
  std::vector<double> means(finished_steps(ranks));
  for (std::size_t step = 0; step < means.size(); ++step) {
    double sum = 0;
    std::size_t count = 0;
    for (const RankResult& rank : ranks) {
      for (const double loss : rank.steps[step].losses) sum += loss;
      count += rank.steps[step].losses.size();
    }
    means[step] = sum / static_cast<double>(count);
  }
  return means;
}

std::vector<double> microbatch_losses(const std::vector<RankResult>& ranks, std::size_t step) {
  std::vector<double> sums;
  std::vector<int> counts;
  for (const RankResult& rank : ranks) {
    const std::vector<double>& losses = rank.steps[step].losses;
    if (losses.size() > sums.size()) {
      sums.resize(losses.size());
      counts.resize(losses.size());
    }
    for (std::size_t index = 0; index < losses.size(); ++index) {
      sums[index] += losses[index];
      ++counts[index];
    }
  }
  for (std::size_t index = 0; index < sums.size(); ++index) sums[index] /= counts[index];
  return sums;
}

namespace {

template <class StepOf>
Timeline timeline_of_replica(const std::vector<RankResult>& ranks, int data_index, int tensor_index, StepOf step_of) {
  std::vector<RankRecord> records;
  for (const RankResult& rank : ranks) {
    if (rank.data_index != data_index || rank.tensor_index != tensor_index) continue;
    const auto place = static_cast<std::size_t>(rank.pipeline_rank);
    if (records.size() <= place) records.resize(place + 1);
    records[place] = step_of(rank).record;
  }
  return merge_records(records);
}

}  // namespace

Timeline timeline_of(const std::vector<RankResult>& ranks, std::size_t step, int data_index, int tensor_index) {
  return timeline_of_replica(ranks, data_index, tensor_index,
                             [step](const RankResult& rank) -> const StepRecord& { return rank.steps[step]; });
}

Timeline calibration_of(const std::vector<RankResult>& ranks, std::vector<StepRecord> RankCalibration::*steps,
                        std::size_t step) {
  Timeline timeline = timeline_of_replica(
      ranks, 0, 0, [&](const RankResult& rank) -> const StepRecord& { return (rank.calibration.*steps)[step]; });
  timeline.transfers.clear();
  return timeline;
}

ServerRank::ServerRank(const TrainingPlan& plan, RankTransport& transport) : plan_(plan), transport_(transport) {
  const RankGrid grid = grid_of(plan);
  form_groups(transport, grid, Axis::kTensor);
  form_groups(transport, grid, Axis::kData);
  form_cut_groups(transport, grid, plan.served_ranks_per_node, Cut::kNeighbours);
  form_cut_groups(transport, grid, plan.served_ranks_per_node, Cut::kSamePlace);
  place_ = form_server_groups(transport, plan, grid).place;
  form_groups(transport, grid, Axis::kTensor);
  pipeline_rank_ = grid.coordinate(place_.worker, Axis::kPipeline);
  const SharedParameters shared = lay_out(grid);
  form_shared_groups(transport, grid, holders_of(shared, plan.program));
  transport.connect(neighbours_of(plan, grid));
  std::vector<int> workers(static_cast<std::size_t>(plan.ranks()));
  std::iota(workers.begin(), workers.end(), 0);
  transport.form_group(Axis::kPipeline, workers);
}

// Uses the buckets of the served ranks, which all hold equal parts of each layer.
SharedParameters ServerRank::lay_out(const RankGrid& grid) {
  const TensorGroup as_worker(transport_,
                              group_of(0, Axis::kTensor, grid.group_of(place_.worker, Axis::kTensor), place_.worker));
  NetworkStagesSpec spec;
  spec.network = plan_.network;
  spec.parts = parts_of(plan_);
  spec.form = {.group = &as_worker, .sequence_parallel = plan_.sequence_parallel};
  spec.alignment = alignment_of(plan_, device_);
  spec.device = &device_;
  const std::unique_ptr<StageCompute> stages = make_network_stages(spec);
  std::vector<StageLayout> layouts;
  for (int stage = 0; stage < plan_.program.stage_count(); ++stage) layouts.push_back(stages->layout(stage));
  SharedParameters shared = find_shared_parameters(layouts);
  for (const StageLayout& layout : layouts) buckets_.push_back(make_buckets(layout, shared, bucket_rules(plan_)));
  return shared;
}

void ServerRank::serve_step() {
  const bool flushed = plan_.updates.policy == WeightPolicy::kFlushed;
  const std::vector<Action>& actions = plan_.program.ranks[static_cast<std::size_t>(pipeline_rank_)];
  std::map<int, int> left;  // backward passes of a stage until its next update
  std::map<int, int> passes;
  for (const Action& action : actions) passes[action.stage] += ends_a_backward(action.kind) ? 1 : 0;
  for (const auto& [stage, count] : passes) left[stage] = flushed ? count : plan_.updates.accumulation;
  for (const Action& action : actions) {
    if (!ends_a_backward(action.kind) || --left[action.stage] > 0) continue;
    left[action.stage] = flushed ? passes[action.stage] : plan_.updates.accumulation;
    for (const Bucket& bucket : buckets_[action.stage]) serve(bucket);
  }
}

void ServerRank::serve(const Bucket& bucket) {
  const std::size_t elements = bucket.count / static_cast<std::size_t>(plan_.served_ranks_per_node);
  const std::size_t of_ranks = served_by_rank(elements, plan_.rank_share) * place_.pushes.size();
  const Part part = part_of(elements - of_ranks, place_.index, plan_.servers);
  if (part.count == 0) return;
  const Buffer sum = device_.allocate(part.count * sizeof(float));
  const Buffer pushed = device_.allocate(sum.bytes());
  for (const Group& push : place_.pushes) {
    transport_.run(push, {.kind = CollectiveKind::kBroadcast, .output = pushed, .root = 0});
    device_.add(pushed, sum);
  }
  transport_.run(place_.pull, {.kind = CollectiveKind::kBroadcast, .output = sum, .root = place_.pull.size() - 1});
}

}  // namespace flopcast::realrun
