#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/text/error.hpp"
#include "calibrate/verdict/trace_steps.hpp"
#include "sim/files/run_file.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {

namespace {

bool computes(SpanKind kind) {
  return is_action(kind) || kind == SpanKind::kOptimizer;
}

// What an action takes from another rank: where, which microbatch, and whether it is an activation.
using Delivery = std::tuple<std::uint32_t, std::uint16_t, std::uint32_t, bool>;

std::map<Delivery, const Transfer*> deliveries_of(const Timeline& timeline) {
  std::map<Delivery, const Transfer*> deliveries;
  for (const Transfer& transfer : timeline.transfers) {
    deliveries[{transfer.to_rank, transfer.to_stage, transfer.produced_by.microbatch,
                transfer.produced_by.kind == ActionKind::kForward}] = &transfer;
  }
  return deliveries;
}

// One rank's spans of a step that begins at `origin_s`.
void add_spans(const Timeline& timeline, std::uint32_t rank, const std::map<Delivery, const Transfer*>& deliveries,
               double origin_s, TracedEvents& events) {
  const auto seconds = [&](Ticks time) { return origin_s + static_cast<double>(time) * timeline.units_per_tick; };
  Ticks busy_until = 0;
  for (const Span& span : timeline.ranks[rank]) {
    // A span that waits for other ranks is not one that the host is late for.
    Ticks host_comes = 0;
    if (is_action(span.kind) && span.start > busy_until) {
      host_comes = busy_until;
      const bool forward = span.kind == SpanKind::kForward;
      const auto found = span.kind == SpanKind::kWeightGradient
                             ? deliveries.end()
                             : deliveries.find({rank, span.action.stage, span.action.microbatch, forward});
      if (found != deliveries.end()) {
        const Ticks sent = std::max(busy_until, found->second->start);
        const Ticks came = std::min(span.start, found->second->end);
        if (came > sent) {
          TracedKernel message{.span = {seconds(sent), seconds(came)}, .work = TraceWork::kCommunication};
          message.collective = forward ? "activation" : "gradient";
          message.launch = -1;  // nobody is late for it
          events.kernels.push_back(std::move(message));
        }
        host_comes = std::max(host_comes, came);
      }
    }
    TracedKernel kernel{.span = {seconds(span.start), seconds(span.end)}, .work = TraceWork::kOther};
    kernel.passes_forward = span.kind == SpanKind::kForward;
    if (!computes(span.kind)) {
      kernel.work = TraceWork::kCommunication;
      kernel.collective = name_of(span.kind);
    }
    kernel.launch = static_cast<std::int64_t>(events.launches.size());
    // Launched when the gap began, or after it: the gap is the host's.
    const bool late = is_action(span.kind) && host_comes > 0 && host_comes < span.start;
    events.launches.emplace(*kernel.launch, late ? seconds(span.start) : -1.0);
    events.kernels.push_back(std::move(kernel));
    busy_until = std::max(busy_until, span.end);
  }
}

}  // namespace

std::vector<TracedRank> traced_run(const std::vector<Timeline>& steps, const std::string& file, double step_s) {
  std::vector<TracedRank> ranks;
  if (steps.empty()) refuse_at(file, "holds no step of a run", "");
  std::vector<std::map<Delivery, const Transfer*>> deliveries;
  deliveries.reserve(steps.size());
  for (const Timeline& step : steps) deliveries.push_back(deliveries_of(step));
  for (std::uint32_t rank = 0; rank < steps.front().ranks.size(); ++rank) {
    TracedEvents events;
    events.rank.file = file;
    events.rank.rank = static_cast<int>(rank);
    events.rank.waits_apart = true;
    events.launches.emplace(-1, -1.0);
    double origin_s = 0.0;
    for (std::size_t step = 0; step < steps.size(); ++step) {
      const Timeline& timeline = steps[step];
      if (timeline.ranks.size() != steps.front().ranks.size()) refuse_at(file, "has steps of different ranks", "");
      add_spans(timeline, rank, deliveries[step], origin_s, events);
      const double end_s = origin_s + static_cast<double>(timeline.makespan()) * timeline.units_per_tick;
      // One alone may be many: an asynchronous run has no ends of steps.
      constexpr double kMany = 1.5;
      if (steps.size() > 1 || step_s <= 0.0 || end_s < kMany * step_s)
        events.marks.emplace_back(fmt::format("step {}", step), TracedSpan{origin_s, end_s});
      origin_s = end_s;
    }
    if (events.kernels.empty()) refuse_at(file, fmt::format("has no span of rank {}", rank), "");
    ranks.push_back(cut_into_steps(std::move(events), step_s));
  }
  return ranks;
}

std::vector<TracedRank> read_own_run(const std::string& text, const std::string& file, double step_s) {
  MeasuredRun run = read_measured_run(text, file);
  const ScheduleInfo* schedule = find_schedule(run.schedule);
  if (step_s <= 0.0 && schedule != nullptr && schedule->asynchronous) {
    refuse_at(file, fmt::format("{} never flushes: its steps have no ends", run.schedule),
              "give --measured TIME, the step time that flopcast run printed");
  }
  const auto warm_ups = std::min<std::size_t>(static_cast<std::size_t>(std::max(run.warmup, 0)),
                                              run.steps.empty() ? 0 : run.steps.size() - 1);
  run.steps.erase(run.steps.begin(), run.steps.begin() + static_cast<std::ptrdiff_t>(warm_ups));
  return traced_run(run.steps, file, step_s);
}

namespace {

std::optional<SpanKind> span_kind_named(const std::string& name) {
  for (std::size_t index = 0; index < kSpanKindCount; ++index) {
    if (name == name_of(static_cast<SpanKind>(index))) return static_cast<SpanKind>(index);
  }
  return std::nullopt;
}

// A number of an event that the writer always gives.
double required(const nlohmann::json& event, const char* key, double most, const std::string& place) {
  const auto number = trace_number(event, key);
  if (!number || *number < 0.0 || *number > most) {
    refuse_at(place, fmt::format("\"{}\" is no number from 0 to {:g}", key, most), "expected a trace by flopcast");
  }
  return *number;
}

class OwnTraceReader {
 public:
  OwnTraceReader() {
    timeline_.time_unit = "s";
    timeline_.units_per_tick = kSecondsPerTick;
  }

  void take(const nlohmann::json& event, const std::string& place) {
    const std::string phase = trace_text(event, "ph");
    if (phase == "X") {
      if (const auto kind = span_kind_named(trace_text(event, "cat"))) take_span(event, *kind, place);
    } else if ((phase == "s" || phase == "f") && trace_text(event, "cat") == "p2p") {
      const double id = required(event, "id", kMostRanks * kMostRanks, place);
      (phase == "s" ? departures_ : arrivals_)[id] = {rank_of(event, place), ticks_of(event, "ts", place)};
    }
  }

  Timeline finished(const std::string& file) {
    if (timeline_.ranks.empty()) refuse_at(file, "holds no span of a rank", "");
    for (std::vector<Span>& spans : timeline_.ranks) {
      std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start < b.start; });
    }
    for (const auto& [id, arrival] : arrivals_) {
      const auto departure = departures_.find(id);
      if (departure != departures_.end()) bind(departure->second, arrival);
    }
    return std::move(timeline_);
  }

 private:
  static constexpr double kMostRanks = 1e6;
  struct End {
    std::uint32_t rank = 0;
    Ticks at = 0;
  };

  static std::uint32_t rank_of(const nlohmann::json& event, const std::string& place) {
    return static_cast<std::uint32_t>(required(event, "pid", kMostRanks, place));
  }
  static Ticks ticks_of(const nlohmann::json& event, const char* key, const std::string& place) {
    constexpr double kMostMicroseconds = 4e12;  // an end is the sum of two
    constexpr double kTicks = 1e6;
    return std::llround(required(event, key, kMostMicroseconds, place) * kTicks);
  }

  void take_span(const nlohmann::json& event, SpanKind kind, const std::string& place) {
    Span span;
    span.kind = kind;
    span.start = ticks_of(event, "ts", place);
    span.end = span.start + ticks_of(event, "dur", place);
    if (const nlohmann::json* about = trace_member(event, "args"); about != nullptr && is_action(kind)) {
      constexpr double kMostStages = 65'535;
      constexpr double kMostMicrobatches = 1e6;
      constexpr std::uint32_t kMostSlices = 4096;
      span.action.stage = static_cast<std::uint16_t>(required(*about, "stage", kMostStages, place));
      span.action.microbatch =
          static_cast<std::uint32_t>(required(*about, "microbatch", kMostMicrobatches, place)) * kMostSlices;
      if (trace_member(*about, "slice") != nullptr) {
        span.action.microbatch += static_cast<std::uint32_t>(required(*about, "slice", kMostSlices - 1, place));
      }
    }
    const std::uint32_t rank = rank_of(event, place);
    if (timeline_.ranks.size() <= rank) timeline_.ranks.resize(rank + 1);
    timeline_.ranks[rank].push_back(span);
  }

  // An arrow ends where the action begins that waits for what it brings.
  void bind(const End& departure, const End& arrival) {
    if (arrival.rank >= timeline_.ranks.size()) return;
    const std::vector<Span>& spans = timeline_.ranks[arrival.rank];
    auto span = std::lower_bound(spans.begin(), spans.end(), arrival.at,
                                 [](const Span& one, Ticks time) { return one.start < time; });
    while (span != spans.end() && span->start == arrival.at && !is_action(span->kind)) ++span;
    if (span == spans.end() || span->start != arrival.at) return;
    Transfer transfer{.start = departure.at, .end = arrival.at, .produced_by = span->action};
    transfer.produced_by.kind = span->kind == SpanKind::kForward ? ActionKind::kForward : ActionKind::kBackward;
    transfer.to_stage = span->action.stage;
    transfer.from_rank = departure.rank;
    transfer.to_rank = arrival.rank;
    timeline_.transfers.push_back(transfer);
  }

  Timeline timeline_;
  std::map<double, End> departures_;
  std::map<double, End> arrivals_;
};

}  // namespace

std::vector<TracedRank> read_own_trace(std::istream& stream, const std::string& file, double step_s) {
  OwnTraceReader reader;
  read_trace_events(
      stream, file,
      {[&reader](const nlohmann::json& event, const std::string& place) { reader.take(event, place); }, {}});
  return traced_run({reader.finished(file)}, file, step_s);
}

}  // namespace flopcast
