#include "model/cost/sharded_passes.hpp"

#include <algorithm>
#include <cstddef>

#include "model/cost/expert_parallel.hpp"

namespace flopcast {

namespace {

// The ranks a gradient is added up over: those that share its weights, in shards and copies of these.
struct ReplicaGroups {
  GroupPlacement shards;
  GroupPlacement copies;
};

ReplicaGroups sharded_groups(const PricingContext& pricing, bool of_experts) {
  const Layout& layout = pricing.job.layout;
  const Cluster& cluster = pricing.job.cluster;
  if (layout.data_parallel != DataParallel::kHsdp) {
    return {of_experts ? expert_replicas(pricing) : pricing.replicas, {}};
  }
  const int ep = of_experts ? layout.ep : 1;
  return {pricing.grid.expert_shard_placement(ep, layout.shards, cluster),
          pricing.grid.expert_replica_placement(std::max(layout.shards, ep), cluster)};
}

struct UnitTraffic {
  Traffic gather;
  Traffic scatter;
};

UnitTraffic traffic_of(const PricingContext& pricing, const Section& unit, bool gathers) {
  const Training& training = pricing.job.training;
  UnitTraffic traffic;
  for (const bool of_experts : {false, true}) {
    const double parameters = of_experts ? unit.expert_parameters : unit.parameters - unit.expert_parameters;
    if (parameters <= 0.0) continue;
    const ReplicaGroups groups = sharded_groups(pricing, of_experts);
    const Bytes weights = element_size(training.precision) * parameters;
    const Bytes gradients(parameters * training.stack.gradient_bytes);
    if (gathers) traffic.gather += pricing.replica_collective(Collective::kAllGather, weights, groups.shards, 1);
    traffic.scatter += pricing.replica_collective(Collective::kReduceScatter, gradients, groups.shards, 1);
    if (gathers && !of_experts) traffic.gather.time += training.stack.gather_allocation;
    if (groups.copies.ranks > 1) {
      const Bytes shard = gradients / groups.shards.ranks;
      traffic.scatter += pricing.replica_collective(Collective::kAllReduce, shard, groups.copies, 1);
    }
  }
  return traffic;
}

Seconds beyond(Seconds whole, Seconds part) {
  return std::max(Seconds(0), whole - part);
}

// Equal units that follow each other in a pass: the computation of one, and its traffic.
struct RunInPass {
  Seconds gather;
  Seconds scatter;
  Seconds computation;
  double count = 0.0;
};

// What of the units' traffic their computation does not cover in a pass that nothing surrounds. Beside a unit's
// computation the next one is gathered and the one before it scattered.
Seconds exposed_alone(const std::vector<RunInPass>& runs) {
  Seconds exposed = runs.front().gather + runs.back().scatter;
  for (std::size_t index = 0; index < runs.size(); ++index) {
    const RunInPass& run = runs[index];
    const Seconds before = index > 0 ? runs[index - 1].scatter : Seconds(0);
    const Seconds after = index + 1 < runs.size() ? runs[index + 1].gather : Seconds(0);
    if (run.count == 1.0) {
      exposed += beyond(before + after, run.computation);
    } else {
      exposed += beyond(before + run.gather, run.computation) + beyond(run.scatter + after, run.computation);
      exposed += beyond(run.scatter + run.gather, run.computation) * (run.count - 2.0);
    }
  }
  return exposed;
}

Seconds sum_of(const std::vector<RunInPass>& runs, Seconds RunInPass::*time) {
  Seconds sum;
  for (const RunInPass& run : runs) sum += run.*time * run.count;
  return sum;
}

std::vector<RunInPass> without(std::vector<RunInPass> runs, Seconds RunInPass::*time) {
  for (RunInPass& run : runs) run.*time = Seconds(0);
  return runs;
}

// The mean over `rows` of passes of a rank that follow each other, one of which has no neighbours.
Seconds mean_exposed(Seconds alone, Seconds among_others, double rows) {
  return among_others + (alone - among_others) / rows;
}

// Forward passes of a pipeline rank in a step.
double passes_of_rank(const PricingContext& pricing) {
  const Layout& layout = pricing.job.layout;
  return std::max(1.0, static_cast<double>(layout.microbatches()) * pricing.map.model_stages / layout.pp);
}

// The unit at work and the one on its way hold whole weights; the gradient of one unit is whole until it is scattered.
// In a row of passes these are whole stages: the one at work and, if the rank has more than one, a neighbour.
void add_gathered_memory(const PricingContext& pricing, bool in_a_row, bool again, double largest, StageCosts& costs) {
  const Bytes weight = element_size(pricing.job.training.precision);
  const Bytes gradient(pricing.job.training.stack.gradient_bytes);
  const bool gathers = pricing.job.layout.weight_shards() > 1;
  const double neighbours = pricing.map.stages() > pricing.job.layout.pp ? 2.0 : 1.0;
  const double by_units = again ? std::min(2.0 * largest, costs.parameters) : costs.parameters;
  const double whole = in_a_row ? neighbours * costs.parameters : by_units;
  if (gathers) costs.gathered_weights = weight * whole;
  costs.gathered_gradients = gradient * (in_a_row ? neighbours * costs.parameters : largest);
}

}  // namespace

void add_sharded_passes(const PricingContext& pricing, int stage, const std::vector<UnitRun>& runs, StageCosts& costs) {
  const Layout& layout = pricing.job.layout;
  const bool gathers = layout.weight_shards() > 1;
  const bool again = gathers && layout.reshard_after_forward;
  const int row =
      pricing.map.passes_in_a_row.empty() ? 1 : pricing.map.passes_in_a_row[static_cast<std::size_t>(stage)];
  const double share = 1.0 / row;  // of a gather that falls to one pass
  std::vector<RunInPass> forward;
  std::vector<RunInPass> backward;
  double largest = 0.0;
  for (const UnitRun& run : runs) {
    const UnitTraffic traffic = traffic_of(pricing, *run.section, gathers);
    const double count = run.count;
    forward.push_back({traffic.gather.time, Seconds(0), run.forward(), count});
    backward.push_back({again ? traffic.gather.time : Seconds(0), traffic.scatter.time, run.backward(), count});
    costs.dp += scaled(traffic.gather, (again ? 2.0 : 1.0) * share * count);
    costs.dp += scaled(traffic.scatter, share * count);
    largest = std::max(largest, run.section->parameters);
  }
  std::reverse(backward.begin(), backward.end());
  const double rows = std::max(1.0, passes_of_rank(pricing) / row);
  const auto charge = [&](Seconds& pass, Seconds alone, Seconds among_others) {
    pass += mean_exposed(alone, among_others, rows) * share;
  };
  const Seconds gathered = sum_of(forward, &RunInPass::gather);
  const Seconds gathered_again = sum_of(backward, &RunInPass::gather);
  const Seconds scattered = sum_of(backward, &RunInPass::scatter);
  const Seconds computed = sum_of(forward, &RunInPass::computation) * static_cast<double>(row);
  charge(costs.forward.dp_comm, exposed_alone(forward), beyond(gathered, computed));
  if (gathers || pricing.job.training.stack.overlap_gradient_reduction) {
    const Seconds computed_back = sum_of(backward, &RunInPass::computation) * static_cast<double>(row);
    const Seconds idle_network = beyond(computed, gathered) + beyond(computed_back, gathered_again);
    const Seconds among_others = beyond(gathered_again, computed_back) + beyond(scattered, idle_network);
    // The first backward pass of a row gathers, the last one scatters.
    const Seconds alone = row == 1 ? exposed_alone(backward)
                                   : exposed_alone(without(backward, &RunInPass::scatter)) +
                                         exposed_alone(without(backward, &RunInPass::gather));
    charge(costs.input_gradient.dp_comm, alone, among_others);
  } else {
    costs.input_gradient.dp_comm += scattered * share;
  }
  add_gathered_memory(pricing, row > 1, again, largest, costs);
}

}  // namespace flopcast
