#include "realrun/executor/executor.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "base/text/error.hpp"
#include "sim/forecast/prepare.hpp"

namespace flopcast::realrun {

namespace {

std::optional<MessageKey> message_of(const std::optional<StageTransfer>& transfer) {
  if (!transfer) return std::nullopt;
  return MessageKey{static_cast<std::uint16_t>(transfer->to_stage), transfer->microbatch, transfer->is_forward()};
}

}  // namespace

std::optional<MessageKey> input_of(const Needs& needs, const Action& action) {
  return message_of(needs.needed_by(action));
}

std::optional<MessageKey> result_of(const Needs& needs, const Action& action) {
  return message_of(needs.produced_by(action));
}

std::map<int, std::vector<Incoming>> incoming_messages(const Program& program, int rank) {
  const Needs needs(program);
  std::map<int, std::vector<Incoming>> incoming;
  for (int sender = 0; sender < program.rank_count(); ++sender) {
    if (sender == rank) continue;
    for (const Action& action : program.ranks[static_cast<std::size_t>(sender)]) {
      const std::optional<MessageKey> key = result_of(needs, action);
      if (key && program.rank_of_stage[key->stage] == rank) incoming[sender].push_back({*key, action});
    }
  }
  return incoming;
}

void Recording::span(SpanKind kind, StreamKind stream, const Action& action, const Mark& start, const Mark& end) {
  marked_.push_back({{.action = action, .kind = kind, .stream = stream}, start, end});
}

void Recording::span(SpanKind kind, StreamKind stream, const Interval& interval) {
  span(kind, stream, {}, interval.start, interval.end);
}

void Recording::sent(const MessageKey& key, const Action& produced_by, int peer, const Mark& at) {
  sent_.push_back({{key, produced_by, peer}, at});
}

void Recording::received(const MessageKey& key, const Action& produced_by, int peer, const Mark& at) {
  received_.push_back({{key, produced_by, peer}, at});
}

std::vector<TransferEnd> Recording::resolve(const std::vector<MarkedEnd>& ends) {
  std::vector<TransferEnd> resolved;
  for (const MarkedEnd& marked : ends) {
    resolved.push_back(marked.end);
    resolved.back().at = device_.time_of(marked.at);
  }
  return resolved;
}

RankRecord Recording::take() {
  RankRecord record;
  for (const MarkedSpan& marked : std::exchange(marked_, {})) {
    record.spans.push_back(marked.span);
    record.spans.back().start = device_.time_of(marked.start);
    record.spans.back().end = device_.time_of(marked.end);
  }
  std::stable_sort(record.spans.begin(), record.spans.end(),
                   [](const Span& a, const Span& b) { return a.start < b.start; });
  record.sent = resolve(std::exchange(sent_, {}));
  record.received = resolve(std::exchange(received_, {}));
  return record;
}

namespace {

void add_transfers(const std::vector<RankRecord>& ranks, Ticks origin, Timeline& timeline) {
  std::map<std::pair<int, MessageKey>, Ticks> arrivals;  // by receiving rank
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const TransferEnd& end : ranks[rank].received) arrivals[{static_cast<int>(rank), end.key}] = end.at;
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const TransferEnd& end : ranks[rank].sent) {
      const auto arrival = arrivals.find({end.peer, end.key});
      if (arrival == arrivals.end()) continue;  // the run ended earlier
      timeline.transfers.push_back({.start = end.at - origin,
                                    .end = arrival->second - origin,
                                    .produced_by = end.produced_by,
                                    .to_stage = end.key.stage,
                                    .from_rank = static_cast<std::uint32_t>(rank),
                                    .to_rank = static_cast<std::uint32_t>(end.peer)});
    }
  }
  std::stable_sort(timeline.transfers.begin(), timeline.transfers.end(),
                   [](const Transfer& a, const Transfer& b) { return a.start < b.start; });
}

// A collective between pipeline ranks begins when its last member arrives; until then the others wait.
void begin_with_the_last(Timeline& timeline) {
  std::vector<Span> reductions;
  for (const std::vector<Span>& spans : timeline.ranks) {
    std::copy_if(spans.begin(), spans.end(), std::back_inserter(reductions),
                 [](const Span& span) { return span.kind == SpanKind::kEmbeddingReduction; });
  }
  for (std::vector<Span>& spans : timeline.ranks) {
    for (Span& span : spans) {
      if (span.kind != SpanKind::kEmbeddingReduction) continue;
      for (const Span& other : reductions) {
        if (other.start < span.end && other.end > span.start) span.start = std::max(span.start, other.start);
      }
    }
    std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start < b.start; });
  }
}

}  // namespace

Timeline merge_records(const std::vector<RankRecord>& by_pipeline_rank) {
  Ticks origin = std::numeric_limits<Ticks>::max();
  for (const RankRecord& record : by_pipeline_rank) {
    for (const Span& span : record.spans) origin = std::min(origin, span.start);
  }
  Timeline timeline;
  timeline.time_unit = "s";
  timeline.units_per_tick = 1e-12;
  for (const RankRecord& record : by_pipeline_rank) {
    timeline.ranks.push_back(record.spans);
    for (Span& span : timeline.ranks.back()) {
      span.start -= origin;
      span.end -= origin;
    }
  }
  begin_with_the_last(timeline);
  add_transfers(by_pipeline_rank, origin, timeline);
  return timeline;
}

namespace {

// Enough to overlap a message with computation; each takes a buffer.
constexpr std::size_t kReceivesAhead = 2;

// The action without its pairing: halves of a pair have separate times.
Action by_itself(Action action) {
  action.overlaps_next = false;
  return action;
}

}  // namespace

Executor::Executor(const Program& program, const UpdateRules& rules, RankPlace place, StageCompute& compute,
                   TrainingState& state, RankTransport& transport, ComputeDevice& device, Recording& recording)
    : program_(program),
      rules_(rules),
      place_(std::move(place)),
      compute_(compute),
      state_(state),
      transport_(transport),
      device_(device),
      recording_(recording),
      needs_(program) {
  FLOPCAST_CHECK(place_.transport_ranks.size() == program.ranks.size());
  const bool in_a_row = !stage_map_of(program).passes_in_a_row.empty();
  const std::vector<StageVersions> versions = weight_versions(program, rules.policy, rules.accumulation);
  for (int stage = 0; stage < program.stage_count(); ++stage) {
    const auto index = static_cast<std::size_t>(stage);
    if (program.rank_of_stage[index] != place_.pipeline_rank) continue;
    StageProgress& progress = progress_[stage];
    progress.versions = versions[index];
    progress.in_a_row = in_a_row;
    const int microbatches = static_cast<int>(progress.versions.version.size());
    progress.per_update = rules.policy == WeightPolicy::kFlushed ? microbatches : rules.accumulation;
  }
}

void Executor::begin_step(int step) {
  for (auto& [stage, progress] : progress_) {
    progress.backwards = 0;
    progress.forwards_left = 0;
    progress.others_left = 0;
    progress.pending.assign(progress.versions.version.size() + 1, 0);
    for (const int version : progress.versions.backward_version)
      ++progress.pending.at(static_cast<std::size_t>(version));
  }
  for (const Action& action : program_.ranks[static_cast<std::size_t>(place_.pipeline_rank)]) {
    StageProgress& progress = progress_.at(action.stage);
    ++(action.kind == ActionKind::kForward ? progress.forwards_left : progress.others_left);
  }
  channels_.clear();
  for (auto& [sender, messages] : incoming_messages(program_, place_.pipeline_rank)) {
    Channel& channel = channels_[sender];
    channel.messages = std::move(messages);
    while (channel.posted < std::min(kReceivesAhead, channel.messages.size())) post(sender, channel);
  }
  compute_.begin_step(step);
  state_.begin_step();
}

void Executor::run_step(int step) {
  begin_step(step);
  const std::vector<Action>& actions = program_.ranks[static_cast<std::size_t>(place_.pipeline_rank)];
  for (std::size_t index = 0; index < actions.size(); ++index) {
    transport_.note({.kind = Activity::Kind::kAction, .action = actions[index]});
    if (actions[index].overlaps_next && compute_.overlaps_pairs()) {
      execute_pair(actions[index], actions[index + 1]);
      ++index;
    } else {
      execute(actions[index]);
    }
  }
  FLOPCAST_CHECK(posted_.empty() && local_.empty());
  transport_.note({.kind = Activity::Kind::kFlush, .action = {}});
  if (rules_.policy == WeightPolicy::kFlushed) state_.finish_step();
}

void Executor::execute(const Action& action) {
  hand_on(action, measured(action, input_for(action)));
  if (ends_a_backward(action.kind)) finish_backward(action);
}

void Executor::execute_pair(const Action& first, const Action& second) {
  const Buffer first_input = input_for(first);
  const Buffer second_input = input_for(second);
  const Buffer first_result = measured(first, first_input);
  const Buffer second_result = measured(second, second_input);
  for (const auto& [action, result] : {std::pair(&first, &first_result), std::pair(&second, &second_result)}) {
    hand_on(*action, *result);
    if (ends_a_backward(action->kind)) finish_backward(*action);
  }
}

Buffer Executor::measured(const Action& action, const Buffer& input) {
  const Mark start = device_.mark();
  Buffer result = compute(action, input);
  recording_.span(span_kind(action.kind), StreamKind::kCompute, by_itself(action), start, device_.mark());
  return result;
}

int Executor::version_of(const StageProgress& progress, const Action& action) {
  const bool forward = action.kind == ActionKind::kForward;
  return (forward ? progress.versions.version : progress.versions.backward_version).at(action.microbatch);
}

PassPlace Executor::place_of(const Action& action) {
  StageProgress& progress = progress_.at(action.stage);
  PassPlace place;
  place.version = version_of(progress, action);
  place.backward = action.kind != ActionKind::kForward;
  place.completes = ends_a_backward(action.kind) && (progress.backwards + 1) % progress.per_update == 0;
  int& left = action.kind == ActionKind::kForward ? progress.forwards_left : progress.others_left;
  --left;
  place.row_continues = progress.in_a_row && left > 0;
  return place;
}

Buffer Executor::compute(const Action& action, const Buffer& input) {
  const StageIndex stage(action.stage);
  const MicrobatchIndex microbatch(action.microbatch);
  UnitStore& store = state_.open(stage, place_of(action));
  switch (action.kind) {
    case ActionKind::kForward:
      return compute_.forward(stage, microbatch, input, store);
    case ActionKind::kBackward:
      return compute_.backward(stage, microbatch, input, store);
    case ActionKind::kInputGradient:
      return compute_.input_gradient(stage, microbatch, input, store);
    case ActionKind::kWeightGradient:
      break;
  }
  compute_.weight_gradient(stage, microbatch, store);
  return {};
}

void Executor::hand_on(const Action& action, const Buffer& result) {
  const std::optional<MessageKey> key = result_of(needs_, action);
  if (!key) return;
  const int peer = static_cast<int>(needs_.result_of(action).rank);
  if (peer == place_.pipeline_rank) {
    local_[*key] = result;
    return;
  }
  recording_.sent(*key, by_itself(action), peer, device_.mark());
  transport_.send(place_.transport_ranks[static_cast<std::size_t>(peer)], *key, result);
}

Buffer Executor::input_for(const Action& action) {
  const std::optional<MessageKey> key = input_of(needs_, action);
  if (!key) return {};
  const int peer = static_cast<int>(needs_.input_of(action).rank);
  if (peer == place_.pipeline_rank) {
    const auto found = local_.find(*key);
    FLOPCAST_CHECK(found != local_.end());
    Buffer input = found->second;
    local_.erase(found);
    return input;
  }
  Channel& channel = channels_.at(peer);
  while (posted_.find(*key) == posted_.end()) post(peer, channel);
  const Posted arrived = posted_.at(*key);
  transport_.wait(arrived.request);
  recording_.received(*key, arrived.produced_by, peer, arrived.request->arrival().value_or(device_.mark()));
  posted_.erase(*key);
  if (channel.posted < channel.messages.size()) post(peer, channel);
  return arrived.buffer;
}

void Executor::post(int peer, Channel& channel) {
  FLOPCAST_CHECK(channel.posted < channel.messages.size());
  const auto& [key, produced_by] = channel.messages[channel.posted++];
  const Buffer buffer = device_.reserve(compute_.boundary_bytes(key.activation ? key.stage - 1 : key.stage));
  const int from = place_.transport_ranks[static_cast<std::size_t>(peer)];
  posted_[key] = {transport_.receive(from, key, buffer), buffer, produced_by};
}

void Executor::finish_backward(const Action& action) {
  StageProgress& progress = progress_.at(action.stage);
  --progress.pending.at(static_cast<std::size_t>(version_of(progress, action)));
  ++progress.backwards;
  if (rules_.policy == WeightPolicy::kFlushed || progress.backwards % progress.per_update != 0) return;
  const int newest = progress.backwards / progress.per_update;
  int oldest = 0;
  while (oldest < newest && progress.pending[static_cast<std::size_t>(oldest)] == 0) ++oldest;
  state_.update(action.stage, oldest);
}

}  // namespace flopcast::realrun
