#include "realrun/parallel/rank_state.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast::realrun {

namespace {

constexpr std::size_t kReductionsUnderWay = 2;

}  // namespace

std::size_t served_by_rank(std::size_t elements, double rank_share) {
  return static_cast<std::size_t>(static_cast<double>(elements) * rank_share);
}

StageWeights::StageWeights(ParallelContext& context, int stage, StageLayout layout, std::vector<Bucket> buckets)
    : context_(context),
      layout_(std::move(layout)),
      buckets_(std::move(buckets)),
      unit_starts_(unit_offsets(layout_)),
      gradient_starts_(gradient_offsets(layout_)) {
  ComputeDevice& device = context_.device;
  const std::size_t bytes = unit_starts_.back() * sizeof(float);
  share_starts_.resize(buckets_.size());
  std::size_t share = 0;  // offset among trained parameters
  std::size_t all_shares = 0;
  for (const bool frozen : {false, true}) {
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      if (buckets_[bucket].frozen != frozen) continue;
      FLOPCAST_CHECK(buckets_[bucket].count % parts_of(bucket) == 0);
      share_starts_[bucket] = all_shares;
      all_shares += buckets_[bucket].count / parts_of(bucket);
    }
    if (!frozen) share = all_shares;
  }
  Buffer whole = device.allocate(bytes);
  for (std::size_t unit = 0; unit < layout_.units.size(); ++unit) {
    context_.compute.initialise(stage, static_cast<int>(unit),
                                flat(whole, unit_starts_[unit], layout_.units[unit].size()));
  }
  FLOPCAST_CHECK(context_.copies.size() <= 1 || shards(3));
  FLOPCAST_CHECK(!has_servers() || context_.zero == 0);
  if (shards(1)) shares_ = device.allocate(share * sizeof(float));
  if (!shards(2)) gradients_ = device.allocate(gradient_starts_.back() * sizeof(float));
  if (context_.codec != nullptr && replicas() > 1) {
    FLOPCAST_CHECK(context_.zero == 0);
    compressed_.emplace(CompressionContext{device, context_.transport, *context_.codec, context_.data}, layout_,
                        buckets_, gradients_, context_.tensor.size());
  }
  if (context_.products != nullptr && replicas() > 1) {
    FLOPCAST_CHECK(context_.zero == 0 && context_.codec == nullptr);
    low_rank_.emplace(LowRankContext{device, context_.transport, *context_.products, context_.data, context_.low_rank},
                      layout_, buckets_, gradients_);
  }
  for (int state = 0; state < context_.optimizer.states(); ++state) {
    states_.push_back(device.allocate(share * sizeof(float)));
  }
  if (context_.offloads) {
    host_weights_ = device.allocate(share * sizeof(float));
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      if (buckets_[bucket].frozen) continue;
      const Buffer part = flat(whole, buckets_[bucket].offset, buckets_[bucket].count);
      device.copy(shards(1) ? own_part(part, bucket) : part, share_of(host_weights_, bucket));
    }
  }
  if (shards(3)) {
    const Buffer weights = device.allocate(all_shares * sizeof(float));
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      device.copy(own_part(flat(whole, buckets_[bucket].offset, buckets_[bucket].count), bucket),
                  share_of(weights, bucket));
    }
    whole = weights;
  }
  versions_[0] = whole;
  context_.compute.weights_changed();
}

Buffer StageWeights::flat(const Buffer& buffer, std::size_t offset, std::size_t count) const {
  return buffer.slice(offset * sizeof(float), count * sizeof(float));
}

Buffer StageWeights::share_of(const Buffer& shares, std::size_t bucket) const {
  return flat(shares, share_starts_[bucket], buckets_[bucket].count / parts_of(bucket));
}

const Group& StageWeights::replicas_of(std::size_t bucket) const {
  return buckets_[bucket].of_experts && context_.experts.size() > 0 ? context_.experts : context_.data;
}

std::size_t StageWeights::parts_of(std::size_t bucket) const {
  return shards(1) ? static_cast<std::size_t>(replicas_of(bucket).size()) : 1;
}

Buffer StageWeights::gradients_of(std::size_t bucket) const {
  const auto unit = static_cast<std::size_t>(buckets_[bucket].first_unit);
  return flat(gradients_, buckets_[bucket].offset - unit_starts_[unit] + gradient_starts_[unit],
              buckets_[bucket].count);
}

// This replica's part of a buffer that holds the whole bucket.
Buffer StageWeights::own_part(const Buffer& whole, std::size_t bucket) const {
  const std::size_t count = buckets_[bucket].count / static_cast<std::size_t>(replicas_of(bucket).size());
  return flat(whole, static_cast<std::size_t>(replicas_of(bucket).index) * count, count);
}

Buffer StageWeights::owned_weights(const Buffer& weights, std::size_t bucket) const {
  if (shards(3)) return share_of(weights, bucket);
  const Buffer whole = flat(weights, buckets_[bucket].offset, buckets_[bucket].count);
  return shards(1) ? own_part(whole, bucket) : whole;
}

void StageWeights::begin_step() {
  const Buffer newest = versions_.rbegin()->second;
  versions_.clear();
  versions_[0] = newest;
}

UnitStore& StageWeights::open(const PassPlace& place) {
  FLOPCAST_CHECK(versions_.count(place.version) == 1);
  // A row may end with a weight gradient, which does not use weights.
  if (!place_.row_continues) gathered_.clear();
  place_ = place;
  return *this;
}

Buffer StageWeights::weights(int unit) {
  if (shards(3)) return gathered(unit);
  const auto index = static_cast<std::size_t>(unit);
  return flat(versions_.at(place_.version), unit_starts_[index], layout_.units[index].size());
}

Buffer StageWeights::gathered(int unit) {
  if (!context_.reshards && place_.backward) {
    Held& held = held_.at(unit);
    Buffer whole = held.whole;
    if (--held.passes == 0) held_.erase(unit);
    return whole;
  }
  const auto kept = gathered_.find(unit);
  Buffer whole;
  if (kept != gathered_.end()) {
    whole = kept->second;
  } else {
    start_gather(unit);
    const Gather arrived = on_their_way_.at(unit);
    on_their_way_.erase(unit);
    for (const Request& request : arrived.requests) context_.transport.wait(request);
    context_.compute.weights_changed();
    whole = arrived.whole;
  }
  if (place_.row_continues) {
    gathered_[unit] = whole;
  } else {
    gathered_.erase(unit);
  }
  if (!context_.reshards) {
    Held& held = held_[unit];
    held.whole = whole;
    ++held.passes;
  }
  prefetch(place_.backward ? unit - 1 : unit + 1);
  return whole;
}

void StageWeights::prefetch(int unit) {
  if (unit < 0 || unit >= static_cast<int>(layout_.units.size())) return;
  if (gathered_.count(unit) == 0) start_gather(unit);
}

void StageWeights::start_gather(int unit) {
  const auto [entry, is_new] = on_their_way_.try_emplace(unit);
  if (!is_new) return;
  const auto index = static_cast<std::size_t>(unit);
  Gather& gather = entry->second;
  gather.whole = context_.device.allocate(layout_.units[index].size() * sizeof(float));
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (buckets_[bucket].first_unit != unit) continue;
    const Buffer part = flat(gather.whole, buckets_[bucket].offset - unit_starts_[index], buckets_[bucket].count);
    gather.requests.push_back(context_.transport.start(
        replicas_of(bucket),
        {.kind = CollectiveKind::kAllGather, .input = share_of(versions_.at(place_.version), bucket), .output = part}));
  }
}

Buffer StageWeights::gradients(int unit) {
  const auto index = static_cast<std::size_t>(unit);
  const std::size_t count = layout_.units[index].trained_size();
  if (!shards(2)) return flat(gradients_, gradient_starts_[index], count);
  Buffer& gradients = unit_gradients_[unit];
  if (gradients.empty()) gradients = context_.device.allocate(count * sizeof(float));
  return gradients;
}

void StageWeights::gradients_added(int unit) {
  if (shards(2) ? place_.row_continues : !place_.completes) return;
  sum_partial_gradients(unit);
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (buckets_[bucket].first_unit != unit || buckets_[bucket].frozen) continue;
    // Experts may have replicas where other parameters have none: on tensor-parallel ranks that do not share experts.
    if (replicas() > 1 || replicas_of(bucket).size() > 1) reduce(bucket);
  }
  unit_gradients_.erase(unit);
}

void StageWeights::sum_partial_gradients(int unit) {
  if (context_.tensor.size() <= 1) return;
  const auto index = static_cast<std::size_t>(unit);
  const Buffer unit_gradients = shards(2)
                                    ? unit_gradients_.at(unit)
                                    : flat(gradients_, gradient_starts_[index], layout_.units[index].trained_size());
  std::vector<Buffer> parts;
  for (const Parameter& parameter : layout_.units[index].parameters()) {
    if (!parameter.partial || parameter.frozen) continue;
    parts.push_back(flat(unit_gradients, parameter.offset, parameter.shard.count()));
  }
  if (parts.empty()) return;
  const Packed packed(context_.device, parts);
  const Buffer& whole = packed.whole();
  context_.transport.run(context_.tensor, {.kind = CollectiveKind::kAllReduce, .input = whole, .output = whole});
  packed.unpack(context_.device);
}

void StageWeights::reduce(std::size_t bucket) {
  if (compressed_) return compressed_->begin(bucket);
  if (low_rank_) return low_rank_->begin(bucket);
  const Bucket& range = buckets_[bucket];
  Reduction reduction;
  reduction.bucket = bucket;
  if (has_servers()) {
    reduction.request = start_through_servers(gradients_of(bucket));
    pending_.push_back(std::move(reduction));
    return;
  }
  Collective collective;
  if (shards(2)) {
    const Buffer& unit_gradients = unit_gradients_.at(range.first_unit);
    const std::size_t start = unit_starts_[static_cast<std::size_t>(range.first_unit)];
    reduction.received = context_.device.allocate(share_of(shares_, bucket).bytes());
    collective = {.kind = CollectiveKind::kReduceScatter,
                  .input = flat(unit_gradients, range.offset - start, range.count),
                  .output = reduction.received};
  } else if (shards(1)) {
    collective = {
        .kind = CollectiveKind::kReduceScatter, .input = gradients_of(bucket), .output = share_of(shares_, bucket)};
  } else {
    const Buffer whole = gradients_of(bucket);
    collective = {.kind = CollectiveKind::kAllReduce, .input = whole, .output = whole};
  }
  reduction.request = context_.transport.start(replicas_of(bucket), collective);
  if (context_.copies.size() > 1) {
    // Started operations run in order: this one uses the result of the previous one.
    reduction.request = context_.transport.start(
        context_.copies,
        {.kind = CollectiveKind::kAllReduce, .input = reduction.received, .output = reduction.received});
  }
  pending_.push_back(std::move(reduction));
  // Otherwise passes that reduce would accumulate a step's worth of shares.
  while (shards(2) && pending_.size() > kReductionsUnderWay) {
    collect(pending_.front());
    pending_.pop_front();
  }
}

// Started operations run in order: each uses the result of the previous one.
Request StageWeights::start_through_servers(const Buffer& gradients) {
  const Group& node = context_.node;
  if (node.size() == 1) return start_between_nodes(gradients);
  const auto members = static_cast<std::size_t>(node.size());
  FLOPCAST_CHECK(gradients.bytes() % (members * sizeof(float)) == 0);
  const Buffer of_node = context_.device.allocate(gradients.bytes() / members);
  context_.transport.start(node, {.kind = CollectiveKind::kReduceScatter, .input = gradients, .output = of_node});
  if (context_.peers.size() > 1) start_between_nodes(of_node);
  return context_.transport.start(node, {.kind = CollectiveKind::kAllGather, .input = of_node, .output = gradients});
}

Request StageWeights::start_between_nodes(const Buffer& of_node) {
  const Group& peers = context_.peers;
  const auto members = static_cast<std::size_t>(peers.size());
  const std::size_t elements = of_node.bytes() / sizeof(float);
  const std::size_t own = context_.servers.empty() ? elements / members : served_by_rank(elements, context_.rank_share);
  FLOPCAST_CHECK(!context_.servers.empty() || own * members == elements);
  Request last;
  if (own > 0) {
    const Buffer among_peers = flat(of_node, 0, own * members);
    const Buffer served = context_.device.allocate(own * sizeof(float));
    context_.transport.start(peers, {.kind = CollectiveKind::kReduceScatter, .input = among_peers, .output = served});
    last =
        context_.transport.start(peers, {.kind = CollectiveKind::kAllGather, .input = served, .output = among_peers});
  }
  const std::size_t rest = elements - own * members;
  const auto broadcast = [&](const Group& group, int server, int root) {
    const Part part = part_of(rest, server, static_cast<int>(context_.servers.size()));
    if (part.count == 0) return;
    last = context_.transport.start(group, {.kind = CollectiveKind::kBroadcast,
                                            .output = flat(of_node, own * members + part.first, part.count),
                                            .root = root});
  };
  const auto servers = static_cast<int>(context_.servers.size());
  for (int server = 0; server < servers; ++server) {
    broadcast(context_.servers[static_cast<std::size_t>(server)].push, server, 0);
  }
  for (int server = 0; server < servers; ++server) {
    broadcast(context_.servers[static_cast<std::size_t>(server)].pull, server, peers.size());
  }
  FLOPCAST_CHECK(last != nullptr);
  return last;
}

void StageWeights::collect(Reduction& reduction) {
  context_.transport.wait(reduction.request);
  context_.recording.span(SpanKind::kGradientReduction, StreamKind::kGradient, reduction.request->interval());
  if (!reduction.received.empty()) context_.device.add(reduction.received, share_of(shares_, reduction.bucket));
}

void StageWeights::finish_reductions() {
  FLOPCAST_CHECK(unit_gradients_.empty() && on_their_way_.empty() && held_.empty());
  gathered_.clear();
  for (Reduction& reduction : std::exchange(pending_, {})) collect(reduction);
  if (!compressed_ && !low_rank_) return;
  for (const Interval& ran : compressed_ ? compressed_->finish() : low_rank_->finish()) {
    context_.recording.span(SpanKind::kGradientReduction, StreamKind::kGradient, ran);
  }
}

Buffer StageWeights::reduced(std::size_t bucket) const {
  if (shards(1)) return share_of(shares_, bucket);
  return gradients_of(bucket);
}

void StageWeights::update(bool in_place) {
  const auto [newest, weights] = *versions_.rbegin();
  const Buffer updated = in_place ? weights : context_.device.allocate(weights.bytes());
  ++updates_;
  const Mark start = context_.device.mark();
  if (!in_place && gradient_starts_.back() != unit_starts_.back()) context_.device.copy(weights, updated);
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (buckets_[bucket].frozen) continue;
    std::vector<Buffer> states;
    for (const Buffer& state : states_) states.push_back(share_of(state, bucket));
    if (context_.offloads) {
      update_on_host(bucket, states, owned_weights(updated, bucket));
    } else {
      context_.device.optimize(context_.optimizer, updates_, owned_weights(weights, bucket), reduced(bucket), states,
                               owned_weights(updated, bucket));
    }
  }
  context_.device.zero(gradients_);
  context_.device.zero(shares_);
  context_.recording.span(SpanKind::kOptimizer, StreamKind::kCompute, {}, start, context_.device.mark());
  if (shards(1) && !shards(3)) gather_weights(updated);
  versions_[in_place ? newest : newest + 1] = updated;
  context_.compute.weights_changed();
}

void StageWeights::update_on_host(std::size_t bucket, const std::vector<Buffer>& states, const Buffer& updated) {
  const Buffer gradients = context_.device.allocate(updated.bytes());
  context_.device.copy(reduced(bucket), gradients);
  const Buffer weights = share_of(host_weights_, bucket);
  context_.device.optimize(context_.optimizer, updates_, weights, gradients, states, weights);
  context_.device.copy(weights, updated);
  context_.offloads(gradients.bytes() + weights.bytes());
}

void StageWeights::gather_weights(const Buffer& weights) {
  const Mark start = context_.device.mark();
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (buckets_[bucket].frozen) continue;
    const Buffer whole = flat(weights, buckets_[bucket].offset, buckets_[bucket].count);
    context_.transport.run(replicas_of(bucket),
                           {.kind = CollectiveKind::kAllGather, .input = own_part(whole, bucket), .output = whole});
  }
  context_.recording.span(SpanKind::kParameterGather, StreamKind::kGradient, {}, start, context_.device.mark());
}

RankState::RankState(ParallelContext& context, const Program& program, int pipeline_rank,
                     const std::vector<StageLayout>& layouts, SharedParameters shared, std::vector<Group> groups,
                     const BucketRules& rules)
    : context_(context), shared_(std::move(shared)), groups_(std::move(groups)) {
  for (std::size_t stage = 0; stage < layouts.size(); ++stage) {
    if (program.rank_of_stage[stage] != pipeline_rank) continue;
    stages_[static_cast<int>(stage)] = std::make_unique<StageWeights>(context, static_cast<int>(stage), layouts[stage],
                                                                      make_buckets(layouts[stage], shared_, rules));
  }
}

void RankState::begin_step() {
  for (const auto& [stage, weights] : stages_) weights->begin_step();
}

void RankState::update(int stage, int oldest_needed) {
  StageWeights& weights = *stages_.at(stage);
  weights.finish_reductions();
  weights.update(false);
  weights.retire_below(oldest_needed);
}

void RankState::finish_step() {
  for (const auto& [stage, weights] : stages_) weights->finish_reductions();
  for (std::size_t set = 0; set < shared_.sets.size(); ++set) sum_shared(set);
  for (const auto& [stage, weights] : stages_) weights->update(true);
}

void RankState::sum_shared(std::size_t set) {
  // A copy is a list of buckets; all copies of a set have the same bucket boundaries.
  std::vector<std::vector<Buffer>> copies;
  std::vector<int> distinct = shared_.sets[set].stages;
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  for (const int stage : distinct) {
    const auto held = stages_.find(stage);
    if (held == stages_.end()) continue;
    std::vector<Buffer> parts;
    for (std::size_t bucket = 0; bucket < held->second->buckets().size(); ++bucket) {
      const Bucket& range = held->second->buckets()[bucket];
      if (range.shared_set == static_cast<int>(set) && !range.frozen) {
        parts.push_back(held->second->reduced(bucket));
      }
    }
    if (parts.empty()) continue;  // frozen parameters stay equal
    const std::vector<int>& stages = shared_.sets[set].stages;
    const auto times = static_cast<std::size_t>(std::count(stages.begin(), stages.end(), stage));
    FLOPCAST_CHECK(parts.size() % times == 0);
    const auto each = static_cast<std::ptrdiff_t>(parts.size() / times);
    for (auto first = parts.begin(); first != parts.end(); first += each) copies.emplace_back(first, first + each);
  }
  if (copies.empty()) return;
  const Mark start = context_.device.mark();
  for (std::size_t part = 0; part < copies.front().size(); ++part) {
    const Buffer& sum = copies.front()[part];
    for (std::size_t copy = 1; copy < copies.size(); ++copy) context_.device.add(copies[copy][part], sum);
    if (groups_[set].size() > 1) {
      context_.transport.run(groups_[set], {.kind = CollectiveKind::kAllReduce, .input = sum, .output = sum});
    }
    for (std::size_t copy = 1; copy < copies.size(); ++copy) context_.device.copy(sum, copies[copy][part]);
  }
  if (groups_[set].size() > 1) {
    context_.recording.span(SpanKind::kEmbeddingReduction, StreamKind::kGradient, {}, start, context_.device.mark());
  }
}

std::vector<std::vector<int>> holders_of(const SharedParameters& shared, const Program& program) {
  std::vector<std::vector<int>> holders;
  for (const SharedSet& set : shared.sets) {
    std::set<int> ranks;
    for (const int stage : set.stages) ranks.insert(program.rank_of_stage.at(static_cast<std::size_t>(stage)));
    holders.emplace_back(ranks.begin(), ranks.end());
  }
  return holders;
}

}  // namespace flopcast::realrun
