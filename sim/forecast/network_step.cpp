#include "sim/forecast/network_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>

#include "base/text/by_member.hpp"
#include "base/text/error.hpp"
#include "model/cost/collectives.hpp"
#include "model/hardware/network_fabric.hpp"
#include "model/layout/rank_grid.hpp"
#include "sim/flow/flow_graph.hpp"
#include "sim/forecast/wiring.hpp"
#include "sim/lower/lower.hpp"
#include "sim/program/needs.hpp"

namespace flopcast {

namespace {

using Piece = FlowGraph::Piece;
constexpr std::size_t kMostHotLinks = 10;

Timeline timeline_of_class(const PreparedStep& step, const NetworkGraph& graph, const FlowGraphTimes& times,
                           std::size_t of_class) {
  Timeline timeline;
  timeline.slices_per_microbatch = step.program.slices_per_microbatch;
  timeline.model_copies = std::max(1, static_cast<int>(step.program.chains.size()));
  const std::vector<RankPieces>& ranks = graph.ranks_of(of_class);
  timeline.ranks.resize(ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::vector<Span>& spans = timeline.ranks[rank];
    for (const PassPieces& pass : ranks[rank].passes) {
      const Ticks start = times.start[pass.work];
      const Ticks end = times.end[pass.last];
      spans.push_back({start, end, pass.action, span_kind(pass.action.kind), StreamKind::kCompute});
      if (pass.second) spans.push_back({start, end, *pass.second, span_kind(pass.second->kind), StreamKind::kCompute});
    }
    for (const SentPieces& sent : ranks[rank].sent) {
      Transfer transfer;
      transfer.start = sent.first != kNoPiece ? times.start[sent.first] : times.end[sent.from];
      transfer.end = sent.message != kNoPiece ? times.end[sent.message] : transfer.start + sent.lag;
      transfer.produced_by = sent.produced_by;
      const Needs::Neighbour& to = graph.needs().result_of(sent.produced_by);
      transfer.to_stage = to.stage;
      transfer.from_rank = static_cast<std::uint32_t>(rank);
      transfer.to_rank = to.rank_of(sent.produced_by.microbatch);
      timeline.transfers.push_back(transfer);
      if (sent.first == kNoPiece) continue;
      spans.push_back({transfer.start, transfer.end, sent.produced_by, SpanKind::kSend, StreamKind::kCompute});
    }
    for (const FlushPiece& flush : ranks[rank].flush) {
      const bool update = flush.kind == SpanKind::kOptimizer;
      spans.push_back({times.start[flush.piece], times.end[flush.piece], Action{}, flush.kind,
                       update ? StreamKind::kCompute : StreamKind::kGradient});
    }
    std::stable_sort(spans.begin(), spans.end(),
                     [](const Span& a, const Span& b) { return std::tie(a.start, a.end) < std::tie(b.start, b.end); });
  }
  std::stable_sort(timeline.transfers.begin(), timeline.transfers.end(), by(&Transfer::start));
  return timeline;
}

// Time that a class's passes take longer than without sharing, by the axis of the messages, mean over its ranks.
ByAxis<double> lengthened_passes(const std::vector<RankPieces>& ranks, const FlowGraph& graph,
                                 const FlowGraphTimes& times) {
  ByAxis<double> seconds;
  for (const RankPieces& rank : ranks) {
    for (const PassPieces& pass : rank.passes) {
      Ticks before = times.end[pass.work];
      for (const auto& [piece, axis] : pass.messages) {
        const Ticks more = times.end[piece] - before - graph.alone(piece);
        seconds[axis] += static_cast<double>(more) * kSecondsPerTick / static_cast<double>(ranks.size());
        before = times.end[piece];
      }
    }
  }
  return seconds;
}

struct Stretch {
  Ticks start = 0;
  Ticks end = 0;
};

// The parts of the step in which its last chain waits for messages on shared links: for messages that others slowed or,
// if there are none, for any.
std::vector<Piece> awaited_messages(const std::vector<Piece>& chain, const FlowGraph& graph,
                                    const FlowGraphTimes& times) {
  std::vector<Piece> slowed;
  std::vector<Piece> any;
  for (const Piece piece : chain) {
    const Ticks span = times.end[piece] - times.start[piece];
    if (graph.flow(piece) == FlowGraph::kNoFlow || span == 0) continue;
    any.push_back(piece);
    if (span > graph.alone(piece)) slowed.push_back(piece);
  }
  return slowed.empty() ? any : slowed;
}

// Part of the time [start, end) that lies within the stretches, which follow each other.
class Overlap {
 public:
  explicit Overlap(std::vector<Stretch> stretches) : stretches_(std::move(stretches)), until_(1, 0) {
    for (const Stretch& stretch : stretches_) until_.push_back(until_.back() + stretch.end - stretch.start);
  }
  Ticks total() const { return until_.back(); }
  Ticks of(Ticks start, Ticks end) const { return before(end) - before(start); }

 private:
  Ticks before(Ticks time) const {
    const auto next = std::upper_bound(stretches_.begin(), stretches_.end(), time,
                                       [](Ticks at, const Stretch& stretch) { return at < stretch.start; });
    const auto count = static_cast<std::size_t>(next - stretches_.begin());
    if (count == 0) return 0;
    const Stretch& last = stretches_[count - 1];
    return until_[count - 1] + std::min(time, last.end) - last.start;
  }

  std::vector<Stretch> stretches_;
  std::vector<Ticks> until_;
};

LinkLoad load_of(const ByAxis<double>& measured_correction, Ticks waiting) {
  LinkLoad load;
  double all = 0.0;
  for (const Axis axis : kAxes) all += measured_correction[axis];
  if (all <= 0.0) return load;
  for (const Axis axis : kAxes) load.share[axis] = measured_correction[axis] / all;
  // Messages at their mean rates may seem to overfill a link, because their rates change.
  load.utilisation = std::min(1.0, all / static_cast<double>(waiting));
  return load;
}

// Utilisation of each class of links while the step waits for messages on it. For links that it does not wait for:
// while it waits for any link, or over the whole step if it waits for none.
class LinkLoads {
 public:
  LinkLoads(const Wiring& wiring, const FlowGraph& graph, const FlowGraphTimes& times,
            const std::vector<Piece>& awaited)
      : any_(stretches(awaited, times)), carried_(wiring.link_classes().size()), own_(carried_.size()) {
    const FlowProgram& flows = wiring.flows();
    std::vector<std::vector<Stretch>> by_link(carried_.size());
    for (const Piece piece : awaited) {
      for (const LinkUse& use : flows.uses_of(graph.flow(piece))) {
        by_link[use.link].push_back({times.start[piece], times.end[piece]});
      }
    }
    for (std::size_t link = 0; link < by_link.size(); ++link) {
      if (!by_link[link].empty()) own_[link].emplace(std::move(by_link[link]));
    }
    for (Piece piece = 0; piece < graph.size(); ++piece) {
      const FlowId flow = graph.flow(piece);
      const Ticks span = times.end[piece] - times.start[piece];
      if (flow == FlowGraph::kNoFlow || span == 0) continue;
      const double rate = static_cast<double>(graph.alone(piece)) / static_cast<double>(span);
      for (const LinkUse& use : flows.uses_of(flow)) {
        const Ticks within = waiting(use.link).of(times.start[piece], times.end[piece]);
        carried_[use.link][wiring.axis_of(flow)] +=
            rate * static_cast<double>(within) * use.weight / flows.capacity(use.link);
      }
    }
  }

  bool is_awaited(std::size_t link) const { return own_[link].has_value(); }
  Ticks waits() const { return any_.total(); }
  LinkLoad load(std::size_t link) const { return load_of(carried_[link], waiting(link).total()); }

 private:
  static std::vector<Stretch> stretches(const std::vector<Piece>& awaited, const FlowGraphTimes& times) {
    if (awaited.empty()) return {{0, times.makespan}};
    std::vector<Stretch> list;
    for (const Piece piece : awaited) list.push_back({times.start[piece], times.end[piece]});
    return list;
  }
  const Overlap& waiting(std::size_t link) const { return own_[link] ? *own_[link] : any_; }

  Overlap any_;
  std::vector<ByAxis<double>> carried_;      // ticks at full capacity, indexed by class of links
  std::vector<std::optional<Overlap>> own_;  // indexed by class of links
};

void split_contention(const std::vector<Piece>& chain, const Wiring& wiring, const FlowGraph& graph,
                      const FlowGraphTimes& times, double added_s, NetworkResult& result) {
  ByAxis<double> slower;
  ByAxis<double> on_links;
  double sum = 0.0;
  double sum_under_way = 0.0;
  for (const Piece piece : chain) {
    const FlowId flow = graph.flow(piece);
    if (flow == FlowGraph::kNoFlow) continue;
    const auto span = static_cast<double>(times.end[piece] - times.start[piece]);
    const double more = span - static_cast<double>(graph.alone(piece));
    slower[wiring.axis_of(flow)] += more;
    on_links[wiring.axis_of(flow)] += span;
    sum += more;
    sum_under_way += span;
  }
  // If no message of the chain is slower, they queue behind others of their boundary.
  const ByAxis<double>& parts = sum > 0.0 ? slower : on_links;
  const double all = sum > 0.0 ? sum : sum_under_way;
  if (all <= 0.0) return;
  for (const Axis axis : kAxes) result.contention_s[axis] = added_s * parts[axis] / all;
}

// All groups of the data-parallel axis at once, as in nccl-tests.
void expect_bandwidths(const PreparedStep& step, const Wiring& wiring, NetworkResult& result) {
  const Job& job = step.job;
  const RankGrid grid(job.layout);
  const GroupPlacement group =
      job.layout.cp == 1 ? grid.placement(Axis::kData, job.cluster) : grid.expert_replica_placement(1, job.cluster);
  if (!group.crosses_nodes()) return;
  constexpr double kTestedBytes = 1024.0 * 1024.0 * 1024.0;
  constexpr double kGiga = 1e9;
  const CommunicationModel communication(job.cluster, job.training.gradient_transport, job.training.stack.nccl);
  const double bus = bytes_sent_per_rank(CollectiveKind::kAllReduce, Bytes(kTestedBytes), group.ranks).value();
  const double busbw =
      bus / communication.collective(CollectiveKind::kAllReduce, Bytes(kTestedBytes), group).value() / kGiga;
  FlowGraph graph;
  constexpr Ticks kLong = 1'000'000'000;
  std::vector<char> sent(wiring.flows().flows(), 0);
  for (std::size_t of_class = 0; of_class < wiring.classes(); ++of_class) {
    for (std::size_t rank = 0; rank < step.program.ranks.size(); ++rank) {
      const FlowId flow = wiring.replicas(of_class, rank);
      if (!wiring.has_links(flow) || sent[flow] != 0) continue;
      sent[flow] = 1;
      graph.add_message(flow, kLong);
    }
  }
  const double slowed =
      graph.size() == 0 ? 1.0 : static_cast<double>(play(graph, wiring.flows()).makespan) / static_cast<double>(kLong);
  result.nccl_tests.push_back({Axis::kData, "all_reduce", group.ranks, kTestedBytes, busbw, busbw / slowed});
}

// Rows of a class's flows, including those shared with other classes and excluding those that send nothing.
class MessageRows {
 public:
  MessageRows(const Wiring& wiring, const NetworkFabric& fabric, const std::vector<LinkLoad>& loads)
      : wiring_(wiring), fabric_(fabric), loads_(loads), row_of_(wiring.flows().flows(), kNoRow) {}

  std::vector<SharedMessages> rows(const PreparedStep& step, const NetworkGraph& network, const FlowGraphTimes& times,
                                   std::size_t of_class) {
    const std::size_t stages = network.needs().stage_count();
    for (std::size_t stage = 0; stage + 1 < stages; ++stage) {
      add(wiring_.boundary(of_class, stage, true), fmt::format("activations {} to {}", stage, stage + 1));
      add(wiring_.boundary(of_class, stage, false), fmt::format("gradients {} to {}", stage + 1, stage));
    }
    for (std::size_t stage = 0; stage < stages; ++stage) {
      for (const Axis axis : {Axis::kTensor, Axis::kContext, Axis::kExpert, Axis::kData}) {
        add(wiring_.inside_pass(of_class, stage, axis), fmt::format("{} of stage {}", name_of(axis), stage));
      }
    }
    for (std::size_t rank = 0; rank < step.program.ranks.size(); ++rank) {
      add(wiring_.replicas(of_class, rank), fmt::format("{} of rank {}", name_of(Axis::kData), rank));
    }
    const FlowGraph& graph = network.graph();
    for (Piece piece = 0; piece < graph.size(); ++piece) {
      const FlowId flow = graph.flow(piece);
      if (flow == FlowGraph::kNoFlow || row_of_[flow] == kNoRow || times.end[piece] == times.start[piece]) continue;
      rows_[row_of_[flow]].messages.push_back({times.start[piece], times.end[piece], graph.alone(piece)});
    }
    for (SharedMessages& row : rows_) {
      std::stable_sort(row.messages.begin(), row.messages.end(), by(&SharedMessages::Message::start));
    }
    std::erase_if(rows_, [](const SharedMessages& row) { return row.messages.empty(); });
    return std::move(rows_);
  }

 private:
  static constexpr std::size_t kNoRow = static_cast<std::size_t>(-1);

  void add(FlowId flow, std::string name) {
    if (!wiring_.has_links(flow) || row_of_[flow] != kNoRow) return;
    row_of_[flow] = rows_.size();
    const auto use_of = [this](const LinkUse& use) { return wiring_.link_classes()[use.link].first; };
    const auto uses = wiring_.flows().uses_of(flow);
    const auto fullest = std::max_element(uses.begin(), uses.end(), [&](const LinkUse& a, const LinkUse& b) {
      return loads_[use_of(a)].utilisation < loads_[use_of(b)].utilisation;
    });
    rows_.push_back({std::move(name), wiring_.axis_of(flow), fabric_.links()[use_of(*fullest)].name, {}});
  }

  const Wiring& wiring_;
  const NetworkFabric& fabric_;
  const std::vector<LinkLoad>& loads_;
  std::vector<std::size_t> row_of_;  // indexed by flow
  std::vector<SharedMessages> rows_;
};

// The class of replicas that ends last, and its end.
std::pair<std::size_t, Ticks> slowest_class(const NetworkGraph& network, const FlowGraphTimes& times,
                                            std::size_t classes) {
  std::pair<std::size_t, Ticks> slowest{0, 0};
  for (std::size_t index = 0; index < classes; ++index) {
    Ticks end = 0;
    for (const RankPieces& rank : network.ranks_of(index)) {
      for (const PassPieces& pass : rank.passes) end = std::max(end, times.end[pass.last]);
      for (const FlushPiece& flush : rank.flush) end = std::max(end, times.end[flush.piece]);
    }
    if (end > slowest.second) slowest = {index, end};
  }
  return slowest;
}

}  // namespace

NetworkStep simulate_on_network(const PreparedStep& step) {
  NetworkStep answer;
  const Timeline alone = simulate(step.program, step.times);
  const NetworkFabric fabric(step.job.cluster);
  const Wiring wiring(step, fabric);
  NetworkGraph network(step, wiring);
  network.build();
  const FlowGraph& graph = network.graph();
  const FlowGraphTimes times = play(graph, wiring.flows());
  FLOPCAST_CHECK(times.stuck == 0);

  const auto [slowest, end] = slowest_class(network, times, wiring.classes());
  answer.timeline = timeline_of_class(step, network, times, slowest);
  answer.inside_passes = lengthened_passes(network.ranks_of(slowest), graph, times);

  NetworkResult& result = answer.result;
  result.replica_classes = static_cast<int>(wiring.classes());
  result.replica = wiring.replica_of(slowest);
  result.without_sharing_s = static_cast<double>(alone.makespan()) * kSecondsPerTick;
  const double time_s = static_cast<double>(answer.timeline.makespan()) * kSecondsPerTick;
  Piece last = 0;
  for (Piece piece = 1; piece < graph.size(); ++piece) {
    if (times.end[piece] > times.end[last]) last = piece;
  }
  const std::vector<Piece> chain = longest_chain(graph, times, last);
  split_contention(chain, wiring, graph, times, time_s - result.without_sharing_s, result);
  const std::vector<Piece> awaited = awaited_messages(chain, graph, times);
  const LinkLoads loads(wiring, graph, times, awaited);
  result.waiting_s = awaited.empty() ? 0.0 : static_cast<double>(loads.waits()) * kSecondsPerTick;
  answer.loads.resize(fabric.links().size());
  for (std::size_t link = 0; link < answer.loads.size(); ++link) {
    const std::uint32_t of_class = wiring.class_of_link()[link];
    if (of_class != Wiring::kNone) answer.loads[link] = loads.load(of_class);
  }
  for (std::size_t index = 0; index < wiring.link_classes().size(); ++index) {
    const Wiring::LinkClass& links = wiring.link_classes()[index];
    const LinkLoad& load = answer.loads[links.first];
    if (load.utilisation <= 0.0 || !(loads.is_awaited(index) || awaited.empty())) continue;
    answer.links.push_back({fabric.links()[links.first].name, links.links, load.utilisation, load.share});
  }
  std::stable_sort(answer.links.begin(), answer.links.end(), descending_by(&HotLink::utilisation));
  result.hot_links.assign(answer.links.begin(), answer.links.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                           kMostHotLinks, answer.links.size())));
  answer.messages = MessageRows(wiring, fabric, answer.loads).rows(step, network, times, slowest);
  expect_bandwidths(step, wiring, result);
  return answer;
}

std::vector<double> network_step_seconds(const PreparedStep& step, const std::vector<Allocation>& allocations) {
  NetworkFabric fabric(step.job.cluster);
  std::vector<double> seconds;
  for (std::size_t index = 0; index < std::max<std::size_t>(1, allocations.size()); ++index) {
    if (!allocations.empty()) fabric.take(allocations[index].nodes);
    const Wiring wiring(step, fabric);
    NetworkGraph network(step, wiring);
    network.build();
    const FlowGraphTimes times = play(network.graph(), wiring.flows());
    FLOPCAST_CHECK(times.stuck == 0);
    const Ticks end = slowest_class(network, times, wiring.classes()).second;
    seconds.push_back(static_cast<double>(end) * kSecondsPerTick);
  }
  return seconds;
}

PathSamples sample_paths(PreparedStep step, int samples) {
  std::vector<double> times;
  for (int sample = 0; sample < samples; ++sample) {
    times.push_back(network_step_seconds(step).front());
    ++step.job.cluster.network->seed;
  }
  std::sort(times.begin(), times.end());
  const auto quantile = [&times](double share) {
    const double place = share * static_cast<double>(times.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, times.size() - 1);
    return times[below] + (times[above] - times[below]) * (place - static_cast<double>(below));
  };
  constexpr double kLow = 0.05;
  constexpr double kHigh = 0.95;
  PathSamples paths{samples, 0.0, quantile(kLow), quantile(0.5), quantile(kHigh), times.front(), times.back()};
  for (const double time : times) paths.mean_s += time / static_cast<double>(samples);
  return paths;
}

}  // namespace flopcast
