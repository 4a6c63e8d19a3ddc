#include "sim/forecast/wiring.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "model/cost/collectives.hpp"
#include "model/layout/rank_grid.hpp"
#include "sim/flow/flow_program.hpp"

namespace flopcast {

namespace {

constexpr double kTicksInSecond = 1e12;
// Rounding tolerance for links that are just full.
constexpr double kCapacitySlack = 1e-9;

// Parent of a node in NCCL's binary tree over 0..count-1, whose root is 0; -1 for the root.
int binary_parent(int node, int count) {
  if (node == 0) return -1;
  int bit = 1;
  while ((bit & node) == 0) bit <<= 1;
  const int up = (node ^ bit) | (bit << 1);
  return up < count ? up : node ^ bit;
}

}  // namespace

class WiringBuilder {
 public:
  WiringBuilder(const PreparedStep& step, const NetworkFabric& fabric, Wiring& wiring)
      : step_(step),
        job_(step.job),
        layout_(step.job.layout),
        cluster_(step.job.cluster),
        fabric_(fabric),
        grid_(step.job.layout),
        wiring_(wiring),
        weight_(fabric.links().size(), 0.0),
        pairs_(cluster_.network->routing == Routing::kHash ? cluster_.network->queue_pairs : 1) {
    wiring_.boundary_count_ = step.costs.boundaries.size();
    wiring_.stage_count_ = step.costs.stages.size();
    wiring_.rank_count_ = static_cast<std::size_t>(step.program.rank_count());
  }

  void build() {
    count_chunks();
    add_boundaries();
    add_passes();
    add_flushes();
    find_classes();
  }

 private:
  // The ranks of a group on one node, with their cards.
  struct NodeCards {
    int node = 0;
    int ranks = 0;
    std::vector<int> cards;  // in order
  };

  // A kind of message whose flows may all be in progress together: the axis, and the boundary or the position among a
  // rank's stages.
  using KindOfMessage = std::pair<Axis, std::size_t>;

  struct Channel {
    KindOfMessage kind;
    std::size_t at = 0;         // stage, boundary or rank, and direction
    std::vector<int> replicas;  // replicas that take part
    std::vector<LinkUse> uses;
  };

  int rank_of(int tensor, int context, int replica, int pipeline) const {
    return tensor * grid_.stride(Axis::kTensor) + context * grid_.stride(Axis::kContext) +
           replica * grid_.stride(Axis::kData) + pipeline * grid_.stride(Axis::kPipeline);
  }
  int card_of(int rank, int node) const {
    const bool uneven = cluster_.uneven();
    const auto index = static_cast<std::size_t>(node);
    const int first = uneven ? cluster_.uneven_nodes[index].first_rank : node * cluster_.devices_per_node;
    const int devices = uneven ? cluster_.uneven_nodes[index].devices : cluster_.devices_per_node;
    return (rank - first) * fabric_.cards_per_node() / devices;
  }

  // Grouped by node, in order of the ranks.
  const std::vector<NodeCards>& nodes_of(const std::vector<int>& ranks) {
    group_.clear();
    for (const int rank : ranks) {
      const int node = cluster_.node_of(rank);
      if (group_.empty() || group_.back().node != node) {
        const auto known =
            std::find_if(group_.begin(), group_.end(), [node](const NodeCards& n) { return n.node == node; });
        if (known == group_.end()) {
          group_.push_back({node, 0, {}});
        } else {
          std::rotate(known, known + 1, group_.end());
        }
      }
      NodeCards& on_node = group_.back();
      ++on_node.ranks;
      const int card = card_of(rank, node);
      if (std::find(on_node.cards.begin(), on_node.cards.end(), card) == on_node.cards.end()) {
        on_node.cards.push_back(card);
      }
    }
    std::sort(group_.begin(), group_.end(), [](const NodeCards& a, const NodeCards& b) { return a.node < b.node; });
    for (NodeCards& node : group_) std::sort(node.cards.begin(), node.cards.end());
    return group_;
  }

  void add_weight(std::uint32_t link, double weight) {
    if (weight_[link] == 0.0) touched_.push_back(link);
    weight_[link] += weight;
  }
  void add_route(int from, int from_card, int to, int to_card, double rate) {
    for (int pair = 0; pair < pairs_; ++pair) {
      route_.clear();
      fabric_.append_route(from, from_card, to, to_card, salt_ + static_cast<std::uint64_t>(pair), route_);
      for (const std::uint32_t link : route_) add_weight(link, rate / pairs_);
    }
  }
  // From each of a node's cards to its counterpart on another node, in equal parts.
  void add_edge(const NodeCards& from, const NodeCards& to, double rate) {
    const std::size_t lanes = std::max(from.cards.size(), to.cards.size());
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      add_route(from.node, from.cards[lane % from.cards.size()], to.node, to.cards[lane % to.cards.size()],
                rate / static_cast<double>(lanes));
    }
  }

  void add_ring(const std::vector<int>& ranks, double rate) {
    const std::vector<NodeCards>& nodes = nodes_of(ranks);
    if (nodes.size() < 2) return;
    for (std::size_t index = 0; index < nodes.size(); ++index) {
      add_edge(nodes[index], nodes[(index + 1) % nodes.size()], rate);
    }
  }

  // `rate` is that of the whole buffer; each tree carries half of it in each direction.
  void add_trees(const std::vector<int>& ranks, double rate) {
    const std::vector<NodeCards>& nodes = nodes_of(ranks);
    const int count = static_cast<int>(nodes.size());
    if (count < 2) return;
    const auto edge = [&](int child, int parent) {
      const NodeCards& below = nodes[static_cast<std::size_t>(child)];
      const NodeCards& above = nodes[static_cast<std::size_t>(parent)];
      add_edge(below, above, rate / 2.0);
      add_edge(above, below, rate / 2.0);
    };
    for (int node = 0; node < count; ++node) {
      if (const int parent = binary_parent(node, count); parent >= 0) edge(node, parent);
      // The other tree: mirrored if the number of nodes is even, shifted by one if it is odd.
      const bool even = count % 2 == 0;
      const int own = even ? count - 1 - node : (node - 1 + count) % count;
      const int parent = binary_parent(own, count);
      if (parent >= 0) edge(node, even ? count - 1 - parent : (parent + 1) % count);
    }
  }

  // Up to the switches above all nodes and down again, once over each link.
  void add_switches(const std::vector<int>& ranks, double rate) {
    const std::vector<NodeCards>& nodes = nodes_of(ranks);
    if (nodes.size() < 2) return;
    const std::size_t lanes = nodes.front().cards.size();
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      route_.clear();
      const NodeCards& root = nodes.front();
      for (std::size_t index = 1; index < nodes.size(); ++index) {
        const NodeCards& node = nodes[index];
        const int card = node.cards[lane % node.cards.size()];
        fabric_.append_route(node.node, card, root.node, root.cards[lane], salt_, route_);
        fabric_.append_route(root.node, root.cards[lane], node.node, card, salt_, route_);
      }
      std::sort(route_.begin(), route_.end());
      route_.erase(std::unique(route_.begin(), route_.end()), route_.end());
      for (const std::uint32_t link : route_) add_weight(link, rate / static_cast<double>(lanes));
    }
  }

  // Each rank sends rate / (n - 1) to each other rank.
  void add_all_pairs(const std::vector<int>& ranks, double rate) {
    const std::vector<NodeCards>& nodes = nodes_of(ranks);
    if (nodes.size() < 2) return;
    const double pair = rate / static_cast<double>(ranks.size() - 1);
    for (const NodeCards& from : nodes) {
      for (const NodeCards& to : nodes) {
        if (&from == &to) continue;
        const double all = pair * from.ranks * to.ranks;
        if (fabric_.keeps_rails()) {
          add_edge(from, to, all);
          continue;
        }
        const double each = all / static_cast<double>(from.cards.size() * to.cards.size());
        for (const int card : from.cards) {
          for (const int other : to.cards) add_route(from.node, card, to.node, other, each);
        }
      }
    }
  }

  void finish(KindOfMessage kind, std::size_t at, std::vector<int> replicas) {
    Channel channel{kind, at, std::move(replicas), {}};
    std::sort(touched_.begin(), touched_.end());
    for (const std::uint32_t link : touched_) {
      channel.uses.push_back({link, weight_[link]});
      weight_[link] = 0.0;
    }
    touched_.clear();
    channels_.push_back(std::move(channel));
  }

  // Position of each stage among its rank's stages.
  void count_chunks() {
    std::vector<std::size_t> seen(wiring_.rank_count_, 0);
    for (const int rank : step_.stages.rank_of_stage) chunk_.push_back(seen[static_cast<std::size_t>(rank)]++);
  }

  static double per_tick(const Traffic& traffic) {
    return traffic.time > Seconds(0) ? traffic.sent_per_rank.value() / (traffic.time.value() * kTicksInSecond) : 0.0;
  }

  void add_boundaries() {
    const Seconds latency = boundary_latency(step_);
    for (std::size_t boundary = 0; boundary < wiring_.boundary_count_; ++boundary) {
      const BoundaryCosts& costs = step_.costs.boundaries[boundary];
      const int low = step_.stages.rank_of_stage[boundary];
      const int high = step_.stages.rank_of_stage[boundary + 1];
      if (low == high || costs.bytes <= Bytes(0)) continue;
      for (const bool forward : {true, false}) {
        const Seconds whole = forward ? costs.forward : costs.backward;
        const Seconds alone = whole - std::min(whole, latency);
        if (alone <= Seconds(0)) continue;
        const double rate = costs.bytes.value() / (alone.value() * kTicksInSecond);
        salt_ = (2 * boundary + (forward ? 0 : 1)) * kSalt;
        for (int replica = 0; replica < layout_.dp; ++replica) {
          each_member([&](int tensor, int context) {
            const int from = rank_of(tensor, context, replica, forward ? low : high);
            const int to = rank_of(tensor, context, replica, forward ? high : low);
            const int from_node = cluster_.node_of(from);
            const int to_node = cluster_.node_of(to);
            if (from_node == to_node) return;
            add_route(from_node, card_of(from, from_node), to_node, card_of(to, to_node), rate);
          });
          const std::size_t at = 2 * boundary + (forward ? 0 : 1);
          finish({Axis::kPipeline, at}, at, {replica});
        }
      }
    }
  }

  template <class Visit>
  void each_member(Visit visit) const {
    for (int tensor = 0; tensor < layout_.tp; ++tensor) {
      for (int context = 0; context < layout_.cp; ++context) visit(tensor, context);
    }
  }

  void add_passes() {
    salt_ = 2 * wiring_.boundary_count_ * kSalt;
    for (std::size_t stage = 0; stage < wiring_.stage_count_; ++stage) {
      const StageCosts& costs = step_.costs.stages[stage];
      const int rank = step_.stages.rank_of_stage[stage];
      for (int replica = 0; replica < layout_.dp; ++replica) {
        if (const double rate = per_tick(costs.sent.tp); rate > 0.0 && layout_.tp > 1) {
          for (int context = 0; context < layout_.cp; ++context) {
            std::vector<int> ranks;
            for (int tensor = 0; tensor < layout_.tp; ++tensor) {
              ranks.push_back(rank_of(tensor, context, replica, rank));
            }
            add_ring(ranks, rate);
          }
          finish({Axis::kTensor, chunk_[stage]}, stage, {replica});
        }
        if (const double rate = per_tick(costs.sent.cp); rate > 0.0 && layout_.cp > 1) {
          for (int tensor = 0; tensor < layout_.tp; ++tensor) {
            std::vector<int> ranks;
            for (int context = 0; context < layout_.cp; ++context) {
              ranks.push_back(rank_of(tensor, context, replica, rank));
            }
            if (layout_.context_parallel == ContextParallel::kUlysses) {
              add_all_pairs(ranks, rate);
            } else {
              add_ring(ranks, rate);
            }
          }
          finish({Axis::kContext, chunk_[stage]}, stage, {replica});
        }
      }
      if (const double rate = per_tick(costs.sent.ep); rate > 0.0 && layout_.ep > 1) add_experts(stage, rank, rate);
      if (const double rate = per_tick(costs.sent.dp); rate > 0.0 && layout_.replicas() > 1) {
        add_replica_rings(rank, rate);
        finish({Axis::kData, chunk_[stage]}, stage, all_replicas());
      }
    }
  }

  // Groups of ep ranks, every etp-th in the space of tensor, context and data ranks; groups that share replicas form
  // one flow.
  void add_experts(std::size_t stage, int rank, double rate) {
    const int etp = layout_.expert_tensor_ranks();
    const int group = etp * layout_.ep;
    const int of_replica = layout_.tp * layout_.cp;
    const int block = std::max(group, of_replica);
    const int all = of_replica * layout_.dp;
    for (int first = 0; first < all; first += block) {
      for (int start = first; start < std::min(first + block, all); start += group) {
        for (int part = 0; part < etp; ++part) {
          std::vector<int> ranks;
          for (int member = 0; member < layout_.ep; ++member) {
            const int position = start + part + member * etp;
            if (position >= all) continue;
            ranks.push_back(
                rank_of(position % layout_.tp, position / layout_.tp % layout_.cp, position / of_replica, rank));
          }
          if (ranks.size() > 1) add_all_pairs(ranks, rate);
        }
      }
      std::vector<int> replicas;
      for (int replica = first / of_replica; replica * of_replica < std::min(first + block, all); ++replica) {
        replicas.push_back(replica);
      }
      finish({Axis::kExpert, chunk_[stage]}, stage, std::move(replicas));
    }
  }

  std::vector<int> all_replicas() const {
    std::vector<int> replicas;
    for (int replica = 0; replica < layout_.dp; ++replica) replicas.push_back(replica);
    return replicas;
  }
  std::vector<int> ranks_of_replicas(int tensor, int pipeline) const {
    std::vector<int> ranks;
    for (int replica = 0; replica < layout_.dp; ++replica) {
      for (int context = 0; context < layout_.cp; ++context) {
        ranks.push_back(rank_of(tensor, context, replica, pipeline));
      }
    }
    return ranks;
  }
  void add_replica_rings(int pipeline, double rate) {
    for (int tensor = 0; tensor < layout_.tp; ++tensor) add_ring(ranks_of_replicas(tensor, pipeline), rate);
  }

  void add_flushes() {
    const CommunicationModel communication(cluster_, job_.training.gradient_transport, job_.training.stack.nccl);
    const GroupPlacement group =
        layout_.cp == 1 ? grid_.placement(Axis::kData, cluster_) : grid_.expert_replica_placement(1, cluster_);
    for (std::size_t rank = 0; rank < wiring_.rank_count_; ++rank) {
      Traffic sent;
      if (rank < step_.costs.ranks.size()) sent = step_.costs.ranks[rank].replicas;
      const double rate = per_tick(sent);
      if (rate > 0.0 && group.ranks > 1) {
        const double ring = ring_steps(CollectiveKind::kAllReduce, group.ranks) / static_cast<double>(group.ranks);
        const bool whole = layout_.gradient_shards() == 1 && layout_.zero == 0;
        const Bytes buffer = sent.sent_per_rank / (ring * std::max(1.0, sent.messages));
        const CollectivePath way =
            whole ? communication.way(CollectiveKind::kAllReduce, buffer, group) : CollectivePath::kRing;
        for (int tensor = 0; tensor < layout_.tp; ++tensor) {
          const std::vector<int> ranks = ranks_of_replicas(tensor, static_cast<int>(rank));
          if (way == CollectivePath::kRing) add_ring(ranks, rate);
          if (way == CollectivePath::kTree) add_trees(ranks, rate / ring);
          if (way == CollectivePath::kSwitches) add_switches(ranks, rate / ring);
        }
      }
      finish({Axis::kData, kFlush}, rank, all_replicas());
    }
  }

  // Capacity of each link, and in `asked` the total demand of all flows. A card carries at least the demand of one kind
  // of flow at its price.
  std::vector<double> capacities(std::vector<double>& asked) const {
    std::map<KindOfMessage, std::vector<std::size_t>> by_kind;
    for (std::size_t index = 0; index < channels_.size(); ++index) by_kind[channels_[index].kind].push_back(index);
    asked.assign(weight_.size(), 0.0);
    std::vector<double> most(weight_.size(), 0.0);
    std::vector<double> of_kind(weight_.size(), 0.0);
    for (const auto& [kind, members] : by_kind) {
      for (const std::size_t index : members) {
        for (const LinkUse& use : channels_[index].uses) of_kind[use.link] += use.weight;
      }
      for (const std::size_t index : members) {
        for (const LinkUse& use : channels_[index].uses) {
          asked[use.link] += use.weight;
          most[use.link] = std::max(most[use.link], of_kind[use.link]);
        }
      }
      for (const std::size_t index : members) {
        for (const LinkUse& use : channels_[index].uses) of_kind[use.link] = 0.0;
      }
    }
    std::vector<double> capacity(weight_.size());
    for (std::uint32_t link = 0; link < capacity.size(); ++link) {
      const double whole = fabric_.links()[link].bandwidth.value();
      double measured_correction = whole / kTicksInSecond;
      if (fabric_.is_card(link)) measured_correction = std::max(measured_correction, most[link]);
      capacity[link] = measured_correction * (fabric_.capacity(link) / whole) * (1.0 + kCapacitySlack);
    }
    return capacity;
  }

  void find_classes() {
    std::vector<double> asked;
    const std::vector<double> capacity = capacities(asked);
    FlowProgram program;
    std::vector<std::uint32_t> kept(capacity.size(), Wiring::kNone);
    std::vector<std::uint32_t> link_of;
    for (std::uint32_t link = 0; link < capacity.size(); ++link) {
      if (asked[link] <= capacity[link]) continue;
      kept[link] = program.add_link(capacity[link]);
      link_of.push_back(link);
    }
    // Replicas first, each waiting for its messages; then messages, each waiting for its replicas. Their bytes serve
    // only to distinguish them.
    const auto replicas = static_cast<FlowId>(layout_.dp);
    std::vector<std::vector<FlowId>> channels_of(replicas);
    for (std::size_t index = 0; index < channels_.size(); ++index) {
      for (const int replica : channels_[index].replicas) {
        channels_of[static_cast<std::size_t>(replica)].push_back(replicas + static_cast<FlowId>(index));
      }
    }
    for (const std::vector<FlowId>& channels : channels_of) {
      program.add_flow(0.0, 0.0, 1.0);
      for (const FlowId channel : channels) program.add_predecessor(channel);
    }
    constexpr std::size_t kMostPlaces = 1'000'000;
    for (const Channel& channel : channels_) {
      const std::size_t axis =
          static_cast<std::size_t>(channel.kind.first) * 2 + (channel.kind.second == kFlush ? 1 : 0);
      program.add_flow(static_cast<double>(1 + axis * kMostPlaces + channel.at), 0.0, 1.0);
      for (const LinkUse& use : channel.uses) {
        if (kept[use.link] != Wiring::kNone) program.add_use(kept[use.link], use.weight);
      }
      for (const int replica : channel.replicas) program.add_predecessor(static_cast<FlowId>(replica));
    }
    std::optional<FlowClasses> classes = refine(program);
    const auto class_of = [&](FlowId flow) { return classes ? classes->class_of[flow] : flow; };
    take_classes(class_of);
    wiring_.class_of_link_.assign(capacity.size(), Wiring::kNone);
    for (std::uint32_t index = 0; index < link_of.size(); ++index) {
      const std::uint32_t of_class = classes ? classes->link_class_of[index] : index;
      if (of_class >= wiring_.link_classes_.size()) wiring_.link_classes_.resize(of_class + std::size_t{1});
      Wiring::LinkClass& links = wiring_.link_classes_[of_class];
      if (links.links++ == 0) links.first = link_of[index];
      wiring_.class_of_link_[link_of[index]] = of_class;
    }
    wiring_.flows_ = classes ? std::move(classes->program) : std::move(program);
  }

  template <class ClassOf>
  void take_classes(ClassOf class_of) {
    std::map<FlowId, std::size_t> numbers;
    std::vector<std::size_t> of_replica;
    for (int replica = 0; replica < layout_.dp; ++replica) {
      const auto [found, fresh] =
          numbers.emplace(class_of(static_cast<FlowId>(replica)), wiring_.replica_of_class_.size());
      if (fresh) {
        wiring_.replica_of_class_.push_back(replica);
        wiring_.replicas_.push_back(0);
      }
      ++wiring_.replicas_[found->second];
      of_replica.push_back(found->second);
    }
    const std::size_t classes = wiring_.classes();
    wiring_.boundaries_.assign(classes * wiring_.boundary_count_ * 2, Wiring::kNone);
    wiring_.inside_.assign(classes * wiring_.stage_count_ * kAxisCount, Wiring::kNone);
    wiring_.flush_.assign(classes * wiring_.rank_count_, Wiring::kNone);
    for (std::size_t index = 0; index < channels_.size(); ++index) {
      const Channel& channel = channels_[index];
      const FlowId flow = class_of(static_cast<FlowId>(layout_.dp) + static_cast<FlowId>(index));
      if (flow >= wiring_.axis_of_.size()) wiring_.axis_of_.resize(flow + std::size_t{1}, Axis::kPipeline);
      wiring_.axis_of_[flow] = channel.kind.first;
      for (const int replica : channel.replicas) {
        const std::size_t of_class = of_replica[static_cast<std::size_t>(replica)];
        if (wiring_.replica_of_class_[of_class] != replica) continue;
        if (channel.kind.first == Axis::kPipeline) {
          wiring_.boundaries_[of_class * wiring_.boundary_count_ * 2 + channel.at] = flow;
        } else if (channel.kind.second == kFlush) {
          wiring_.flush_[of_class * wiring_.rank_count_ + channel.at] = flow;
        } else {
          wiring_.inside_[(of_class * wiring_.stage_count_ + channel.at) * kAxisCount +
                          static_cast<std::size_t>(channel.kind.first)] = flow;
        }
      }
    }
  }

  static constexpr std::size_t kFlush = 999'999;
  static constexpr std::uint64_t kSalt = 64;  // above the number of queue pairs

  const PreparedStep& step_;
  const Job& job_;
  const Layout& layout_;
  const Cluster& cluster_;
  const NetworkFabric& fabric_;
  RankGrid grid_;
  Wiring& wiring_;
  std::vector<double> weight_;  // indexed by link, for the current channel
  std::vector<std::uint32_t> touched_;
  std::vector<std::uint32_t> route_;
  std::vector<NodeCards> group_;
  int pairs_ = 1;
  std::uint64_t salt_ = 0;
  std::vector<std::size_t> chunk_;
  std::vector<Channel> channels_;
};

Wiring::Wiring(const PreparedStep& step, const NetworkFabric& fabric) {
  WiringBuilder(step, fabric, *this).build();
}

Seconds boundary_latency(const PreparedStep& step) {
  if (step.job.training.transport != Transport::kNccl) return Seconds(0);
  return CommunicationModel(step.job.cluster).message_latency();
}

}  // namespace flopcast
