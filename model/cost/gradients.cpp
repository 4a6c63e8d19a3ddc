#include "model/cost/data_parallel.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include "model/cost/axis_costs.hpp"

namespace flopcast {

namespace {

constexpr double kIndexBytes = 4.0;
constexpr double kElementsPerScale = 512.0;
constexpr int kCompressionKernels = 4;

Traffic plain(const PricingContext& pricing, Bytes bytes, const GroupPlacement& group) {
  const bool scatter_only =
      pricing.job.layout.optimizer_shards() > 1 && !pricing.job.training.stack.reduces_whole_gradients;
  return pricing.replica_collective(scatter_only ? CollectiveKind::kReduceScatter : CollectiveKind::kAllReduce, bytes,
                                    group, 1);
}

// Gradients are reduced inside the node, exchanged with the servers, then distributed inside the node.
Traffic through_servers(const PricingContext& pricing, Bytes bytes, const GroupPlacement& group) {
  const Cluster& cluster = pricing.job.cluster;
  const Layout& layout = pricing.job.layout;
  GroupPlacement inside = group;
  inside.ranks = group.ranks_per_node;
  inside.nodes = 1;
  Traffic traffic = pricing.replica_collective(CollectiveKind::kReduceScatter, bytes, inside, 1);
  traffic += pricing.replica_collective(CollectiveKind::kAllGather, bytes, inside, 1);
  if (group.nodes <= 1) return traffic;
  // Groups on other nodes use their own share of the spare hosts.
  const double hosts = static_cast<double>(layout.spare_hosts) * group.nodes / cluster.nodes;
  const double nodes = group.nodes;
  const bool shares_load = layout.data_parallel == DataParallel::kByteps;
  const double factor = shares_load ? byteps_shares(nodes, hosts).time : parameter_server_time(nodes, hosts);
  const BytesPerSecond network =
      cluster.node_network_bandwidth() * (cluster.nic_efficiency / group.groups_sharing_nics);
  traffic.time += cluster.inter_latency * 2.0 + bytes / network * factor;
  traffic.on_links += bytes / network * factor;
  // Each node pushes its gradients once, except for the part its own server keeps, and distributes the sums of its
  // server: with BytePS as many bytes as determine the network time.
  const double sent = shares_load ? factor : hosts <= 0.0 ? 2.0 * (nodes - 1) / nodes : 1.0;
  traffic.sent_per_rank += bytes * (sent / group.ranks_per_node);
  traffic.messages += 2.0;
  return traffic;
}

Traffic compressed(const PricingContext& pricing, const GradientAmount& amount, const GroupPlacement& group) {
  const Compression& compression = pricing.job.layout.compression;
  const double gradient = pricing.job.training.stack.reduced_gradient_bytes();
  Traffic traffic;
  double touched = 0.0;
  if (compression.kind == Compression::Kind::kQuantized) {
    constexpr double kBitsPerByte = 8.0;
    const double code = compression.bits / kBitsPerByte + kFp32Bytes / kElementsPerScale;
    traffic = plain(pricing, Bytes(amount.parameters * code), group);
    touched = 2.0 * (gradient + code);
  } else if (compression.kind == Compression::Kind::kTopK) {
    const double kept = std::ceil(amount.parameters * compression.fraction);
    traffic = pricing.replica_collective(CollectiveKind::kAllGather,
                                         Bytes(kept * (gradient + kIndexBytes) * group.ranks), group, 1);
    touched = 4.0 * gradient;
  } else {
    traffic = pricing.replica_collective(CollectiveKind::kAllReduce, Bytes(amount.low_rank_elements * kFp32Bytes / 2.0),
                                         group, 2);
    touched = 6.0 * gradient;
  }
  traffic.time += pricing.compute.memory_bound(Bytes(amount.parameters * touched), kCompressionKernels);
  return traffic;
}

}  // namespace

GradientAmount gradient_amount(const Operator& op, const Layout& layout) {
  const double trained = op.parameters - op.frozen_parameters;
  GradientAmount amount{trained, trained};
  if (trained <= 0.0 || op.kind != OperatorKind::kLinear || layout.compression.kind != Compression::Kind::kPowerSgd)
    return amount;
  const double rows = static_cast<double>(op.shape.k);
  const double columns = static_cast<double>(op.shape.n);
  const double matrices = static_cast<double>(op.shape.batch);
  const double sent = std::min(layout.compression.rank * (rows + columns), rows * columns) * matrices;
  amount.low_rank_elements = std::max(0.0, op.parameters - rows * columns * matrices) + sent;
  return amount;
}

Traffic reduce_gradients(const PricingContext& pricing, const GradientAmount& amount, const GroupPlacement& group) {
  const Layout& layout = pricing.job.layout;
  if (group.ranks <= 1 || amount.parameters <= 0.0) return {};
  if (layout.compression.kind != Compression::Kind::kNone) return compressed(pricing, amount, group);
  const Bytes bytes(amount.parameters * pricing.job.training.stack.reduced_gradient_bytes());
  const bool servers = layout.data_parallel == DataParallel::kPs || layout.data_parallel == DataParallel::kByteps;
  return servers ? through_servers(pricing, bytes, group) : plain(pricing, bytes, group);
}

ServerShares byteps_shares(double gpu_nodes, double spare_hosts) {
  const double n = gpu_nodes;
  if (n <= 1.0) return {0.0, 1.0, 0.0};
  const double k = std::min(spare_hosts, n);
  const double denominator = n * n + k * n - 2.0 * k;
  return {2.0 * n * (n - 1.0) / denominator, (n - k) / denominator, 2.0 * (n - 1.0) / denominator};
}

double parameter_server_time(double gpu_nodes, double spare_hosts) {
  if (gpu_nodes <= 1.0) return 0.0;
  if (spare_hosts <= 0.0) return 2.0 * (gpu_nodes - 1.0) / gpu_nodes;
  return std::max(1.0, gpu_nodes / spare_hosts);
}

namespace {

// Gradient buckets of one group of ranks that sums them.
class Buckets {
 public:
  Buckets(const PricingContext& pricing, const GroupPlacement& group, StageCosts& costs)
      : pricing_(pricing),
        group_(group),
        costs_(costs),
        given_(pricing.job.layout.bucket_mb),
        limit_(parameters_in(given_ ? *given_ : kFirstMebibytes)) {}

  void add(const GradientAmount& amount, double finished) {
    open_ += amount;
    finished_ = finished;
    if (open_.parameters >= limit_) close();
  }

  void close() {
    if (open_.parameters <= 0.0) return;
    const Traffic& traffic = reduced(open_);
    costs_.buckets.push_back({1.0 - finished_, traffic.time});
    costs_.bucket_traffic += traffic;
    open_ = {};
    limit_ = parameters_in(given_ ? *given_ : kMebibytes);
  }

 private:
  static constexpr double kFirstMebibytes = 1.0;
  static constexpr double kMebibytes = 25.0;

  // Buckets hold what the framework passes on: the gradients of the pass if a separate buffer accumulates them.
  double parameters_in(double mebibytes) const {
    constexpr double kMebibyte = 1024.0 * 1024.0;
    const Training& training = pricing_.job.training;
    const double element = element_size(training.precision).value();
    const Stack& stack = training.stack;
    return mebibytes * kMebibyte /
           (stack.keeps_pass_gradients ? std::min(element, stack.gradient_bytes) : stack.gradient_bytes);
  }

  // Cached, because blocks and therefore buckets repeat.
  const Traffic& reduced(const GradientAmount& amount) {
    const auto known = std::find_if(priced_.begin(), priced_.end(), [&amount](const auto& entry) {
      return entry.first.parameters == amount.parameters && entry.first.low_rank_elements == amount.low_rank_elements;
    });
    if (known != priced_.end()) return known->second;
    return priced_.emplace_back(amount, reduce_gradients(pricing_, amount, group_)).second;
  }

  const PricingContext& pricing_;
  GroupPlacement group_;
  StageCosts& costs_;
  std::optional<int> given_;
  double limit_;
  GradientAmount open_;
  double finished_ = 0.0;
  std::vector<std::pair<GradientAmount, Traffic>> priced_;
};

void fill_from(const std::vector<UnitRun>& runs, bool of_experts, Buckets& buckets) {
  Seconds total;
  for (const UnitRun& run : runs) total += run.backward() * static_cast<double>(run.count);
  const bool takes_time = total > Seconds(0);
  Seconds done;
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    const Seconds backward = run->backward();
    for (int unit = 0; unit < run->count; ++unit) {
      for (const GradientPiece& piece : run->section->gradients) {
        if (piece.of_experts != of_experts) continue;
        const double finished = takes_time ? (done + backward * piece.finished) / total : 1.0;
        buckets.add(piece.amount, std::min(1.0, finished));
      }
      done += backward;
    }
  }
  buckets.close();
}

}  // namespace

bool reduces_in_buckets(const Job& job) {
  const Layout& layout = job.layout;
  const Stack& stack = job.training.stack;
  const bool at_once = stack.reduces_whole_gradients && layout.optimizer_shards() > 1;
  return stack.overlap_gradient_reduction && !at_once && layout.replicas() > 1 && layout.gradient_shards() == 1 &&
         layout.data_parallel != DataParallel::kDataParallel && !job.profile;
}

void fill_buckets(const PricingContext& pricing, const std::vector<UnitRun>& runs, StageCosts& costs) {
  if (!reduces_in_buckets(pricing.job)) return;
  bool with_experts = false;
  std::size_t gradients = 0;
  for (const UnitRun& run : runs) {
    with_experts = with_experts || run.section->expert_parameters > 0.0;
    gradients += run.section->gradients.size() * static_cast<std::size_t>(run.count);
  }
  costs.buckets.reserve(gradients);
  Buckets dense(pricing, pricing.replicas, costs);
  fill_from(runs, false, dense);
  if (!with_experts) return;
  Buckets experts(pricing, expert_replicas(pricing), costs);
  fill_from(runs, true, experts);
  std::stable_sort(costs.buckets.begin(), costs.buckets.end(),
                   [](const GradientBucket& a, const GradientBucket& b) { return a.remaining > b.remaining; });
}

}  // namespace flopcast
