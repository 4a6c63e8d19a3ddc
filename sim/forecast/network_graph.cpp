#include "sim/forecast/network_step.hpp"

#include <algorithm>
#include <cmath>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

Ticks nonnegative_ticks(Seconds time) {
  return static_cast<Ticks>(std::llround(std::max(0.0, time.value()) * kTicksPerSecond));
}

}  // namespace

NetworkGraph::NetworkGraph(const PreparedStep& step, const Wiring& wiring)
    : step_(step),
      times_(step.times),
      wiring_(wiring),
      needs_(needs_of(step.program, step.times)),
      slices_(step.program.slices_per_microbatch),
      latency_(nonnegative_ticks(boundary_latency(step))),
      messages_(wiring.flows().flows()) {}

void NetworkGraph::build() {
  ranks_.resize(wiring_.classes());
  for (std::size_t index = 0; index < ranks_.size(); ++index) add_class(index);
  for (std::size_t index = 0; index < ranks_.size(); ++index) add_inputs(index);
  if (!times_.flush.empty()) add_flushes();
}

// The next message of a class along a flow. Classes that share the flow send it together; messages follow each other.
FlowGraph::Piece NetworkGraph::message(FlowId flow, Ticks alone, std::vector<std::uint32_t>& sent) {
  std::vector<Piece>& all = messages_[flow];
  const std::uint32_t number = sent[flow]++;
  if (number < all.size()) return all[number];
  const Piece piece = wiring_.has_links(flow) ? graph_.add_message(flow, alone) : graph_.add_work(alone);
  if (!all.empty()) graph_.wait(piece, all.back());
  all.push_back(piece);
  return piece;
}

void NetworkGraph::add_class(std::size_t of_class) {
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

void NetworkGraph::add_pass(std::size_t of_class, Piece before, PassPieces& pass) {
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

// Messages of one action that may share links with others.
std::vector<NetworkGraph::PassMessages> NetworkGraph::messages_of(std::size_t of_class, const Action& action) const {
  const StageCosts& costs = step_.costs.stages[action.stage];
  std::vector<PassMessages> messages;
  for (const Axis axis : {Axis::kTensor, Axis::kContext, Axis::kExpert, Axis::kData}) {
    const FlowId flow = wiring_.inside_pass(of_class, action.stage, axis);
    if (!wiring_.has_links(flow)) continue;
    const Seconds forward = costs.forward.comm[axis];
    const Seconds input = costs.recompute.comm[axis] + costs.input_gradient.comm[axis];
    const Seconds weight = costs.weight_gradient.comm[axis];
    const Seconds in_backward = axis == Axis::kTensor ? costs.tp_hidden : Seconds(0);
    // K and V and sharded weights travel once forward, and twice backward together with gradients.
    const double share = axis == Axis::kContext || axis == Axis::kData ? 1.0 / 3.0 : 0.5;
    const Seconds all = costs.sent[axis].time;
    const Seconds hidden_forward = std::max(Seconds(0), all * share - forward);
    const Seconds hidden_backward = std::max(Seconds(0), all * (1.0 - share) - (input + weight - in_backward));
    PassMessages message{axis, flow, 0, 0};
    switch (action.kind) {
      case ActionKind::kForward:
        message.exposed = nonnegative_ticks(forward / slices_);
        message.hidden = nonnegative_ticks(hidden_forward / slices_);
        break;
      case ActionKind::kBackward:
        message.exposed = nonnegative_ticks((input + weight - in_backward) / slices_);
        message.hidden = nonnegative_ticks(hidden_backward / slices_);
        break;
      case ActionKind::kInputGradient:
        message.exposed = nonnegative_ticks(input / slices_);
        message.hidden = nonnegative_ticks(std::max(Seconds(0), hidden_backward - in_backward) / slices_);
        break;
      case ActionKind::kWeightGradient:
        message.exposed = nonnegative_ticks(weight / slices_);
        break;
    }
    messages.push_back(message);
  }
  return messages;
}

void NetworkGraph::add_sends(std::size_t of_class, const Action& action, Piece done, Piece& before, RankPieces& rank) {
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

std::size_t NetworkGraph::result_index(std::size_t stage, bool forward, std::uint32_t microbatch) const {
  return (static_cast<std::size_t>(microbatch) * needs_.stage_count() + stage) * 2 + (forward ? 0 : 1);
}

void NetworkGraph::enter(const Action& action, const SentPieces& sent) {
  std::vector<SentPieces>& results = results_.back();
  const std::size_t index = result_index(action.stage, action.kind == ActionKind::kForward, action.microbatch);
  if (index >= results.size()) results.resize(index + 1, SentPieces{{}, kNoPiece});
  results[index] = sent;
}

// Inputs from other ranks; the order of a rank implies the rest, or the program would have deadlocked.
void NetworkGraph::add_inputs(std::size_t of_class) {
  for (const RankPieces& rank : ranks_[of_class]) {
    for (const PassPieces& pass : rank.passes) {
      add_input(of_class, pass.action, pass.work);
      if (pass.second) add_input(of_class, *pass.second, pass.work);
    }
  }
}

void NetworkGraph::add_input(std::size_t of_class, const Action& action, Piece piece) {
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

void NetworkGraph::wait_if(Piece piece, Piece before) {
  if (before != kNoPiece) graph_.wait(piece, before);
}

void NetworkGraph::add_flushes() {
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

FlowGraph::Piece NetworkGraph::replicas_message(std::size_t of_class, std::size_t rank, Ticks alone) {
  return message(wiring_.replicas(of_class, rank), alone, sent_of_class_[of_class]);
}

void NetworkGraph::add_to_gradients(std::size_t of_class, std::size_t rank, Piece piece, SpanKind kind,
                                    OpenFlush& flush) {
  wait_if(piece, flush.gradient);
  wait_if(piece, flush.after);
  flush.gradient = piece;
  flush.after = kNoPiece;
  ranks_[of_class][rank].flush.push_back({kind, piece});
}

// One operation of the given ranks in all classes.
void NetworkGraph::add_collective(SpanKind kind, Ticks alone, const std::vector<std::size_t>& ranks,
                                  std::vector<OpenFlush>& open) {
  const Piece piece = graph_.add_work(alone);
  for (std::size_t of_class = 0; of_class < wiring_.classes(); ++of_class) {
    for (const std::size_t rank : ranks) {
      add_to_gradients(of_class, rank, piece, kind, open[of_class * step_.program.ranks.size() + rank]);
    }
  }
}

void NetworkGraph::add_update(std::size_t of_class, std::size_t rank, OpenFlush& flush) {
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
  add_to_gradients(of_class, rank, replicas_message(of_class, rank, times.parameter_gather), SpanKind::kParameterGather,
                   flush);
}

// Buckets that are reduced before the last pass of their stage ends, in the order of these passes.
void NetworkGraph::add_reductions(std::size_t of_class, std::size_t rank, OpenFlush& flush) {
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

}  // namespace flopcast
