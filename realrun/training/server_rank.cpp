#include "realrun/training/train.hpp"

#include <map>
#include <memory>
#include <numeric>

#include "realrun/compute/stage_compute.hpp"

namespace flopcast::realrun {

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

// The buckets are those of the ranks, whose parts of each layer are as large as each other.
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
  std::map<int, int> left;  // backward passes of a stage before its next update
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
