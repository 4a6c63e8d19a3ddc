#include "sim/forecast/network_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <tuple>
#include <utility>

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
constexpr Piece kNoPiece = FlowGraph::kNoFlow;
constexpr std::size_t kMostHotLinks = 10;

Ticks ticks_of(Seconds time) {
  return static_cast<Ticks>(std::llround(std::max(0.0, time.value()) * kTicksPerSecond));
}

// What a pass sends along one axis: how much of it waits, and how much travels beside the computation.
struct PassMessages {
  Axis axis = Axis::kTensor;
  FlowId flow = Wiring::kNone;
  Ticks exposed = 0;
  Ticks hidden = 0;
};

// A pass, or an overlapped pair, on the compute stream.
struct PassPieces {
  Action action;
  std::optional<Action> second;
  Ticks alone = 0;                               // whole, where nothing is shared
  Piece work = 0;                                // computation, and what of communication meets nobody
  Piece last = 0;                                // the end of its messages
  std::vector<std::pair<Piece, Axis>> messages;  // that nothing hides, in their order
};

// What carries a result to another rank.
struct SentPieces {
  Action produced_by;
  Piece from = 0;            // after whose end it is on its way
  Piece first = kNoPiece;    // of a send that blocks its rank, where it begins
  Piece message = kNoPiece;  // none: a lag
  Ticks lag = 0;             // after `from`, ahead of the message or in place of it
};

struct FlushPiece {
  SpanKind kind = SpanKind::kOptimizer;
  Piece piece = 0;
};

struct RankPieces {
  std::vector<PassPieces> passes;
  std::vector<SentPieces> sent;
  std::vector<FlushPiece> flush;
};

// The graph of all classes of replicas.
class NetworkGraph {
 public:
  NetworkGraph(const PreparedStep& step, const Wiring& wiring)
      : step_(step),
        times_(step.times),
        wiring_(wiring),
        needs_(needs_of(step.program, step.times)),
        slices_(step.program.slices_per_microbatch),
        latency_(ticks_of(boundary_latency(step))),
        messages_(wiring.flows().flows()) {}

  void build() {
    ranks_.resize(wiring_.classes());
    for (std::size_t index = 0; index < ranks_.size(); ++index) add_class(index);
    for (std::size_t index = 0; index < ranks_.size(); ++index) add_inputs(index);
    if (!times_.flush.empty()) add_flushes();
  }

  const FlowGraph& graph() const { return graph_; }
  const std::vector<RankPieces>& ranks_of(std::size_t of_class) const { return ranks_[of_class]; }
  const Needs& needs() const { return needs_; }

 private:
  // The next message of a class along a flow, which classes that share it send together; one after the other.
  Piece message(FlowId flow, Ticks alone, std::vector<std::uint32_t>& sent) {
    std::vector<Piece>& all = messages_[flow];
    const std::uint32_t number = sent[flow]++;
    if (number < all.size()) return all[number];
    const Piece piece = wiring_.has_links(flow) ? graph_.add_message(flow, alone) : graph_.add_work(alone);
    if (!all.empty()) graph_.wait(piece, all.back());
    all.push_back(piece);
    return piece;
  }

  void add_class(std::size_t of_class) {
    sent_.assign(messages_.size(), 0);
    results_.emplace_back();
    std::vector<RankPieces>& ranks = ranks_[of_class];
    ranks.resize(step_.program.ranks.size());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const std::vector<Action>& actions = step_.program.ranks[rank];
      Piece before = kNoPiece;
      for (std::size_t index = 0; index < actions.size(); ++index) {
        const bool pair = actions[index].overlaps_next && index + 1 < actions.size();
        PassPieces pass;
        pass.action = actions[index];
        if (pair) pass.second = actions[++index];
        add_pass(of_class, before, pass);
        before = pass.last;
        add_sends(of_class, pass.action, pass.last, before, ranks[rank]);
        if (pass.second) add_sends(of_class, *pass.second, pass.last, before, ranks[rank]);
        ranks[rank].passes.push_back(std::move(pass));
      }
      last_of_actions_.push_back(before);
    }
    sent_of_class_.push_back(sent_);
  }

  void add_pass(std::size_t of_class, Piece before, PassPieces& pass) {
    std::vector<PassMessages> messages = messages_of(of_class, pass.action);
    pass.alone = times_.stages[pass.action.stage].of(pass.action.kind);
    if (pass.second) {
      const Action& forward = pass.action.kind == ActionKind::kForward ? pass.action : *pass.second;
      const Ticks both = pass.alone + times_.stages[pass.second->stage].of(pass.second->kind);
      pass.alone = times_.stages[forward.stage].fused.value_or(both);
      const std::vector<PassMessages> more = messages_of(of_class, *pass.second);
      messages.insert(messages.end(), more.begin(), more.end());
    }
    Ticks left = pass.alone;
    for (PassMessages& message : messages) {
      message.exposed = std::min(message.exposed, left);
      left -= message.exposed;
    }
    pass.work = graph_.add_work(left);
    if (before != kNoPiece) graph_.wait(pass.work, before);
    std::vector<std::pair<Piece, Axis>> hidden;
    for (const PassMessages& each : messages) {
      const Ticks beside = std::min(each.hidden, left);
      if (beside == 0) continue;
      const Piece piece = message(each.flow, beside, sent_);
      graph_.wait(piece, pass.work, -left);
      hidden.emplace_back(piece, each.axis);
    }
    pass.last = pass.work;
    for (const PassMessages& each : messages) {
      if (each.exposed == 0) continue;
      const Piece piece = message(each.flow, each.exposed, sent_);
      graph_.wait(piece, pass.last);
      for (const auto& [beside, axis] : hidden) graph_.wait(piece, beside);
      hidden.clear();
      pass.messages.emplace_back(piece, each.axis);
      pass.last = piece;
    }
    if (hidden.empty()) return;
    const Piece joined = graph_.add_work(0);
    graph_.wait(joined, pass.last);
    for (const auto& [beside, axis] : hidden) graph_.wait(joined, beside);
    pass.messages.emplace_back(joined, hidden.front().second);
    pass.last = joined;
  }

  // Of one action, those that may meet others.
  std::vector<PassMessages> messages_of(std::size_t of_class, const Action& action) const {
    const StageCosts& costs = step_.costs.stages[action.stage];
    std::vector<PassMessages> messages;
    for (const Axis axis : {Axis::kTensor, Axis::kContext, Axis::kExpert, Axis::kData}) {
      const FlowId flow = wiring_.inside_pass(of_class, action.stage, axis);
      if (!wiring_.has_links(flow)) continue;
      const Seconds forward = costs.forward.comm[axis];
      const Seconds input = costs.recompute.comm[axis] + costs.input_gradient.comm[axis];
      const Seconds weight = costs.weight_gradient.comm[axis];
      const Seconds in_backward = axis == Axis::kTensor ? costs.tp_hidden : Seconds(0);
      // K and V and sharded weights travel once forward, and back with gradients twice.
      const double share = axis == Axis::kContext || axis == Axis::kData ? 1.0 / 3.0 : 0.5;
      const Seconds all = costs.sent[axis].time;
      const Seconds hidden_forward = std::max(Seconds(0), all * share - forward);
      const Seconds hidden_backward = std::max(Seconds(0), all * (1.0 - share) - (input + weight - in_backward));
      PassMessages message{axis, flow, 0, 0};
      switch (action.kind) {
        case ActionKind::kForward:
          message.exposed = ticks_of(forward / slices_);
          message.hidden = ticks_of(hidden_forward / slices_);
          break;
        case ActionKind::kBackward:
          message.exposed = ticks_of((input + weight - in_backward) / slices_);
          message.hidden = ticks_of(hidden_backward / slices_);
          break;
        case ActionKind::kInputGradient:
          message.exposed = ticks_of(input / slices_);
          message.hidden = ticks_of(std::max(Seconds(0), hidden_backward - in_backward) / slices_);
          break;
        case ActionKind::kWeightGradient:
          message.exposed = ticks_of(weight / slices_);
          break;
      }
      messages.push_back(message);
    }
    return messages;
  }

  void add_sends(std::size_t of_class, const Action& action, Piece done, Piece& before, RankPieces& rank) {
    const Needs::Neighbour& to = needs_.result_of(action);
    SentPieces sent{action, done};
    if (action.kind != ActionKind::kWeightGradient && to && to.crosses) {
      const bool forward = action.kind == ActionKind::kForward;
      const std::size_t boundary = std::min<std::size_t>(action.stage, to.stage);
      const FlowId flow = wiring_.boundary(of_class, boundary, forward);
      const Ticks whole = needs_.result_latency(times_, action.kind, action.stage);
      const bool shared = wiring_.has_links(flow);
      const Ticks latency = shared ? std::min(whole, latency_) : 0;
      if (times_.blocking_sends) {
        sent.first = graph_.add_work(shared ? latency : whole);
        graph_.wait(sent.first, before);
        sent.message = sent.first;
        if (shared) {
          sent.message = message(flow, whole - latency, sent_);
          graph_.wait(sent.message, sent.first);
        }
        before = sent.message;
      } else if (shared) {
        sent.message = message(flow, whole - latency, sent_);
        sent.lag = latency;
        graph_.wait(sent.message, done, latency);
      } else {
        sent.lag = whole;
      }
      rank.sent.push_back(sent);
    }
    if (action.kind != ActionKind::kWeightGradient) enter(action, sent);
  }

  std::size_t result_index(std::size_t stage, bool forward, std::uint32_t microbatch) const {
    return (static_cast<std::size_t>(microbatch) * needs_.stage_count() + stage) * 2 + (forward ? 0 : 1);
  }
  void enter(const Action& action, const SentPieces& sent) {
    std::vector<SentPieces>& results = results_.back();
    const std::size_t index = result_index(action.stage, action.kind == ActionKind::kForward, action.microbatch);
    if (index >= results.size()) results.resize(index + 1, SentPieces{{}, kNoPiece});
    results[index] = sent;
  }

  // What comes from another rank; the order of a rank implies the rest, or the program would not have ended.
  void add_inputs(std::size_t of_class) {
    for (const RankPieces& rank : ranks_[of_class]) {
      for (const PassPieces& pass : rank.passes) {
        add_input(of_class, pass.action, pass.work);
        if (pass.second) add_input(of_class, *pass.second, pass.work);
      }
    }
  }
  void add_input(std::size_t of_class, const Action& action, Piece piece) {
    const Needs::Neighbour& from = needs_.input_of(action);
    if (!from || !from.crosses) return;
    const SentPieces& sent =
        results_[of_class][result_index(from.stage, action.kind == ActionKind::kForward, action.microbatch)];
    if (sent.message != kNoPiece) {
      graph_.wait(piece, sent.message);
    } else {
      graph_.wait(piece, sent.from, sent.lag);
    }
  }

  struct OpenFlush {
    Piece gradient = kNoPiece;  // the last of the gradient stream
    Piece after = kNoPiece;     // what the next of it waits for beside that
  };

  void wait_if(Piece piece, Piece before) {
    if (before != kNoPiece) graph_.wait(piece, before);
  }

  void add_flushes() {
    const std::size_t ranks = step_.program.ranks.size();
    std::vector<OpenFlush> open(wiring_.classes() * ranks);
    for (std::size_t of_class = 0; of_class < wiring_.classes(); ++of_class) {
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        OpenFlush& flush = open[of_class * ranks + rank];
        add_reductions(of_class, rank, flush);
        flush.after = last_of_actions_[of_class * ranks + rank];
        if (const Ticks reduction = times_.flush[rank].gradient_reduction; reduction > 0) {
          add_to_gradients(of_class, rank, replicas_message(of_class, rank, reduction), SpanKind::kGradientReduction,
                           flush);
        }
      }
    }
    Ticks norm = 0;
    for (const FlushTimes& times : times_.flush) norm = std::max(norm, times.gradient_norm);
    const auto first = static_cast<std::size_t>(needs_.rank_of(std::size_t{0}, 0));
    const auto last = static_cast<std::size_t>(needs_.rank_of(needs_.stage_count() - 1, 0));
    const Ticks embedding = std::max(times_.flush[first].embedding_reduction, times_.flush[last].embedding_reduction);
    if (embedding > 0 && first != last) add_collective(SpanKind::kEmbeddingReduction, embedding, {first, last}, open);
    if (norm > 0) {
      std::vector<std::size_t> all;
      for (std::size_t rank = 0; rank < ranks; ++rank) all.push_back(rank);
      add_collective(SpanKind::kGradientNorm, norm, all, open);
    }
    for (std::size_t of_class = 0; of_class < wiring_.classes(); ++of_class) {
      for (std::size_t rank = 0; rank < ranks; ++rank) add_update(of_class, rank, open[of_class * ranks + rank]);
    }
  }

  Piece replicas_message(std::size_t of_class, std::size_t rank, Ticks alone) {
    return message(wiring_.replicas(of_class, rank), alone, sent_of_class_[of_class]);
  }
  void add_to_gradients(std::size_t of_class, std::size_t rank, Piece piece, SpanKind kind, OpenFlush& flush) {
    wait_if(piece, flush.gradient);
    wait_if(piece, flush.after);
    flush.gradient = piece;
    flush.after = kNoPiece;
    ranks_[of_class][rank].flush.push_back({kind, piece});
  }

  // One operation of such ranks of all classes.
  void add_collective(SpanKind kind, Ticks alone, const std::vector<std::size_t>& ranks, std::vector<OpenFlush>& open) {
    const Piece piece = graph_.add_work(alone);
    for (std::size_t of_class = 0; of_class < wiring_.classes(); ++of_class) {
      for (const std::size_t rank : ranks) {
        add_to_gradients(of_class, rank, piece, kind, open[of_class * step_.program.ranks.size() + rank]);
      }
    }
  }

  void add_update(std::size_t of_class, std::size_t rank, OpenFlush& flush) {
    const FlushTimes& times = times_.flush[rank];
    Piece updated = kNoPiece;
    if (times.optimizer > 0) {
      updated = graph_.add_work(times.optimizer);
      wait_if(updated, last_of_actions_[of_class * step_.program.ranks.size() + rank]);
      wait_if(updated, flush.gradient);
      ranks_[of_class][rank].flush.push_back({SpanKind::kOptimizer, updated});
    }
    if (times.parameter_gather == 0) return;
    if (updated != kNoPiece) flush.after = updated;
    add_to_gradients(of_class, rank, replicas_message(of_class, rank, times.parameter_gather),
                     SpanKind::kParameterGather, flush);
  }

  // Buckets that are reduced before the last pass of their stage has ended, in the order of these passes.
  void add_reductions(std::size_t of_class, std::size_t rank, OpenFlush& flush) {
    if (times_.overlapped_reductions.empty()) return;
    struct Bound {
      std::size_t pass;
      const OverlappedReduction* reduction;
    };
    std::vector<Bound> bounds;
    const std::vector<PassPieces>& passes = ranks_[of_class][rank].passes;
    for (const OverlappedReduction& reduction : times_.overlapped_reductions[rank]) {
      const auto ends_gradients = [&](const Action& action) {
        return action.stage == reduction.stage && action.kind != ActionKind::kForward &&
               action.kind != ActionKind::kInputGradient;
      };
      std::size_t last = passes.size();
      for (std::size_t index = passes.size(); last == passes.size() && index-- > 0;) {
        const bool ends =
            ends_gradients(passes[index].action) || (passes[index].second && ends_gradients(*passes[index].second));
        if (ends) last = index;
      }
      FLOPCAST_CHECK(last < passes.size());
      bounds.push_back({last, &reduction});
    }
    std::stable_sort(bounds.begin(), bounds.end(), [](const Bound& a, const Bound& b) { return a.pass < b.pass; });
    for (const Bound& bound : bounds) {
      const PassPieces& pass = passes[bound.pass];
      const Piece piece = replicas_message(of_class, rank, bound.reduction->duration);
      const Ticks ready = pass.alone - std::min(bound.reduction->ready_before_end, pass.alone);
      const Ticks work = graph_.alone(pass.work);
      if (ready <= work) {
        graph_.wait(piece, pass.work, ready - work);
      } else {
        graph_.wait(piece, pass.last);
      }
      add_to_gradients(of_class, rank, piece, SpanKind::kGradientReduction, flush);
    }
  }

  const PreparedStep& step_;
  const StepTimes& times_;
  const Wiring& wiring_;
  Needs needs_;
  double slices_;
  Ticks latency_;
  FlowGraph graph_;
  std::vector<std::vector<RankPieces>> ranks_;    // by class
  std::vector<std::vector<SentPieces>> results_;  // by class, by result_index
  std::vector<Piece> last_of_actions_;            // by class and rank; none: a rank without
  std::vector<std::vector<Piece>> messages_;      // by flow
  std::vector<std::uint32_t> sent_;               // by flow, of the class at hand
  std::vector<std::vector<std::uint32_t>> sent_of_class_;
};

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
  std::stable_sort(timeline.transfers.begin(), timeline.transfers.end(),
                   [](const Transfer& a, const Transfer& b) { return a.start < b.start; });
  return timeline;
}

// What a class's passes take longer than alone, by whose messages, mean over its ranks.
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

// The parts of the step in which its last chain waits for messages on shared links: for those that others made slower,
// for any where none is.
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

// Of the time of [start, end), what lies in the stretches, which follow each other.
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
                                       [](Ticks value, const Stretch& stretch) { return value < stretch.start; });
    const auto count = static_cast<std::size_t>(next - stretches_.begin());
    if (count == 0) return 0;
    const Stretch& last = stretches_[count - 1];
    return until_[count - 1] + std::min(time, last.end) - last.start;
  }

  std::vector<Stretch> stretches_;
  std::vector<Ticks> until_;
};

LinkLoad load_of(const ByAxis<double>& carried, Ticks waiting) {
  LinkLoad load;
  double all = 0.0;
  for (const Axis axis : kAxes) all += carried[axis];
  if (all <= 0.0) return load;
  for (const Axis axis : kAxes) load.share[axis] = carried[axis] / all;
  // Messages at their mean rates may seem to overfill a link by what their rates change.
  load.utilisation = std::min(1.0, all / static_cast<double>(waiting));
  return load;
}

// Of each class of links how full it is while the step waits for messages on it; of those that it does not wait for,
// while it waits for any, or over all of it where it waits for none.
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
  std::vector<ByAxis<double>> carried_;      // ticks at full capacity, by class of links
  std::vector<std::optional<Overlap>> own_;  // by class of links
};

void split_contention(const std::vector<Piece>& chain, const Wiring& wiring, const FlowGraph& graph,
                      const FlowGraphTimes& times, double added_s, NetworkResult& result) {
  ByAxis<double> slower;
  ByAxis<double> under_way;
  double sum = 0.0;
  double sum_under_way = 0.0;
  for (const Piece piece : chain) {
    const FlowId flow = graph.flow(piece);
    if (flow == FlowGraph::kNoFlow) continue;
    const auto span = static_cast<double>(times.end[piece] - times.start[piece]);
    const double more = span - static_cast<double>(graph.alone(piece));
    slower[wiring.axis_of(flow)] += more;
    under_way[wiring.axis_of(flow)] += span;
    sum += more;
    sum_under_way += span;
  }
  // Where no message of the chain is slower, they queue behind others of their boundary.
  const ByAxis<double>& parts = sum > 0.0 ? slower : under_way;
  const double all = sum > 0.0 ? sum : sum_under_way;
  if (all <= 0.0) return;
  for (const Axis axis : kAxes) result.contention_s[axis] = added_s * parts[axis] / all;
}

// All groups of the data-parallel axis at once, as nccl-tests runs them.
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

// Rows of a class's flows, and of those that it shares with others; without those that send nothing.
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
      std::stable_sort(row.messages.begin(), row.messages.end(),
                       [](const auto& a, const auto& b) { return a.start < b.start; });
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
  std::vector<std::size_t> row_of_;  // by flow
  std::vector<SharedMessages> rows_;
};

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

  const auto end_of = [&](std::size_t of_class) {
    Ticks end = 0;
    for (const RankPieces& rank : network.ranks_of(of_class)) {
      for (const PassPieces& pass : rank.passes) end = std::max(end, times.end[pass.last]);
      for (const FlushPiece& flush : rank.flush) end = std::max(end, times.end[flush.piece]);
    }
    return end;
  };
  std::size_t slowest = 0;
  for (std::size_t index = 1; index < wiring.classes(); ++index) {
    if (end_of(index) > end_of(slowest)) slowest = index;
  }
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
  std::stable_sort(answer.links.begin(), answer.links.end(),
                   [](const HotLink& a, const HotLink& b) { return a.utilisation > b.utilisation; });
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
    seconds.push_back(static_cast<double>(times.makespan) * kSecondsPerTick);
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
