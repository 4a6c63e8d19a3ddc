#include "reports/timeline/writers.hpp"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

namespace {

/// Identifies the input or output of a span: gradients come from full backwards and input gradients alike.
struct Key {
  std::uint32_t microbatch = 0;
  std::uint16_t stage = 0;
  bool gradient = false;

  auto tied() const { return std::tie(microbatch, stage, gradient); }
};

struct Entry {
  Key key;
  Ticks start = 0;
  Ticks end = 0;
  std::size_t span = 0;
};

/// The compute spans of a rank by key, then by time.
std::vector<Entry> index_rank(const std::vector<Span>& spans) {
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    if (!is_action(span.kind) || span.kind == SpanKind::kWeightGradient || span.stream != StreamKind::kCompute)
      continue;
    const Key key{span.action.microbatch, span.action.stage, span.kind != SpanKind::kForward};
    entries.push_back({key, span.start, span.end, i});
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tuple(a.key.tied(), a.start, a.span) < std::tuple(b.key.tied(), b.start, b.span);
  });
  return entries;
}

auto entries_of(const std::vector<Entry>& entries, const Key& key) {
  struct Less {
    bool operator()(const Entry& entry, const Key& value) const { return entry.key.tied() < value.tied(); }
    bool operator()(const Key& value, const Entry& entry) const { return value.tied() < entry.key.tied(); }
  };
  return std::equal_range(entries.begin(), entries.end(), key, Less{});
}

std::optional<std::size_t> producer_of(const std::vector<Entry>& entries, const Key& key, Ticks departure) {
  const auto [first, last] = entries_of(entries, key);
  std::optional<std::size_t> found;
  for (auto entry = first; entry != last && entry->end <= departure; ++entry) {
    if (entry->end > entry->start) found = entry->span;
  }
  return found;
}

std::optional<std::size_t> consumer_of(const std::vector<Entry>& entries, const Key& key, Ticks arrival) {
  const auto [first, last] = entries_of(entries, key);
  const auto entry = std::find_if(first, last, [arrival](const Entry& e) { return e.start >= arrival; });
  if (entry == last || entry->end == entry->start) return std::nullopt;
  return entry->span;
}

using Buffer = fmt::memory_buffer;

std::string_view prefix_of(SpanKind kind) {
  switch (kind) {
    case SpanKind::kSend:
      return "send ";
    case SpanKind::kDispatch:
      return "dispatch ";
    case SpanKind::kCombine:
      return "combine ";
    default:
      return "";
  }
}

using Nanoseconds = std::int64_t;

constexpr int kLanesApart = 10;          // tid of lane n of a stream: the stream's + 10 n
constexpr Nanoseconds kInsideSlice = 2;  // distance between the tail of an arrow and the end of its slice

/// Converts ticks to whole nanoseconds, or to thousandths of a unit for an abstract schedule.
class Clock {
 public:
  explicit Clock(const Timeline& timeline) {
    const double per_tick = timeline.units_per_tick * (timeline.time_unit == "s" ? 1e9 : 1e3);
    FLOPCAST_CHECK(per_tick > 0.0);
    const auto exponent = static_cast<int>(std::lround(std::log10(per_tick)));
    FLOPCAST_CHECK(std::abs(std::pow(10.0, exponent) / per_tick - 1.0) < 1e-9 && exponent >= -18 && exponent <= 18);
    for (int i = 0; i < -exponent; ++i) divisor_ *= 10;
    for (int i = 0; i < exponent; ++i) factor_ *= 10;
  }

  Nanoseconds operator()(Ticks ticks) const {
    if (divisor_ > 1) return ticks / divisor_ - (ticks % divisor_ < 0 ? 1 : 0);
    constexpr Ticks kMost = std::numeric_limits<Ticks>::max();
    FLOPCAST_CHECK(ticks <= kMost / factor_ && ticks >= -kMost / factor_);
    return ticks * factor_;
  }

  static void write(Buffer& out, Nanoseconds time) {
    const auto size = static_cast<std::uint64_t>(std::abs(time));
    const std::uint64_t fraction = size % 1000;
    fmt::format_to(std::back_inserter(out), FMT_COMPILE("{}{}"), time < 0 ? "-" : "", size / 1000);
    if (fraction == 0) return;
    const int places = fraction % 100 == 0 ? 1 : fraction % 10 == 0 ? 2 : 3;
    const std::uint64_t shown = places == 1 ? fraction / 100 : places == 2 ? fraction / 10 : fraction;
    fmt::format_to(std::back_inserter(out), FMT_COMPILE(".{:0{}}"), shown, places);
  }

 private:
  Ticks divisor_ = 1;
  Ticks factor_ = 1;
};

/// Position of a slice. It ends a nanosecond early, since readers that keep microseconds as floating-point numbers, or
/// subtract the first time from all others, would otherwise see it end after the next one starts.
struct Place {
  Nanoseconds start = 0;
  Nanoseconds duration = 0;
};
Place place_between(Nanoseconds start, Nanoseconds end) {
  return {start, std::max<Nanoseconds>(0, end - start - 1)};
}

int tid_of(StreamKind stream, int lane) {
  constexpr std::array<int, kStreamKindCount> kTids = {0, 3, 2, 4};
  return kTids.at(static_cast<std::size_t>(stream)) + kLanesApart * lane;
}

/// An event to be written. The order of kinds is the order at equal times: counters first, slices before the arrows
/// that end or start inside them.
struct Event {
  enum class Kind : std::uint8_t { kCounter, kSlice, kInside, kMessage, kFlowStart, kFlowEnd };
  Nanoseconds time = 0;
  Kind kind = Kind::kSlice;
  std::uint32_t rank = 0;
  std::size_t index = 0;  ///< index of the span, flow or counter point; for a message, its row
  std::size_t part = 0;   ///< index into TraceOptions::counters, into the parts of a slice, or into a row's messages
};

class TraceWriter {
 public:
  TraceWriter(const Timeline& timeline, const TraceOptions& options)
      : timeline_(timeline), options_(options), clock_(timeline) {
    for (const std::vector<Span>& spans : timeline.ranks) lanes_.push_back(assign_lanes(spans));
    if (timeline.transfers.size() <= options.max_flows) flows_ = bind_transfers(timeline);
    std::size_t spans = 0;
    for (const std::vector<Span>& rank : timeline.ranks) spans += rank.size();
    std::size_t messages = 0;
    for (const SharedMessages& row : options.messages) messages += row.messages.size();
    shows_messages_ = messages > 0 && messages <= options.max_inside;
    shows_inside_ = !options.inside.empty() && spans <= options.max_inside;
    for (const auto& [action, parts] : options.inside) inside_[action] = parts_by_term(parts);
    const auto has_length = [this](const Flow& flow) {
      return place_of(producer_of(flow)).duration > 0 && place_of(consumer_of(flow)).duration > 0;
    };
    flows_.erase(std::stable_partition(flows_.begin(), flows_.end(), has_length), flows_.end());
  }

  std::string write() {
    write_header();
    for (std::size_t rank = 0; rank < timeline_.ranks.size(); ++rank) write_names(rank);
    if (shows_messages_) write_row_names();
    for (const Event& event : sorted_events()) write_event(event);
    print("\n]}}\n");
    return fmt::to_string(out_);
  }

 private:
  template <class... Values>
  void print(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Values>(values)...);
  }

  void begin_event() {
    print("{}", first_event_ ? "\n" : ",\n");
    first_event_ = false;
  }

  void write_header() {
    print("{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"title\":{}", json_text(timeline_.title));
    if (timeline_.time_unit != "s") print(",\"time_unit\":{}", json_text("1 us represents 1 unit of time"));
    if (timeline_.transfers.size() > options_.max_flows) {
      print(",\"flows\":{}", json_text(fmt::format("left out: {} transfers exceed the limit of {}",
                                                   timeline_.transfers.size(), options_.max_flows)));
    }
    if (shows_inside_) {
      print(",\"inside passes\":\"the share of a pass that each part takes, in sequence; not when it runs\"");
    } else if (!options_.inside.empty()) {
      print(",\"inside passes\":\"left out: the number of slices exceeds the limit of {}\"", options_.max_inside);
    }
    if (!options_.messages.empty() && !shows_messages_) {
      print(",\"fabric\":\"left out: the number of messages exceeds the limit of {}\"", options_.max_inside);
    }
    for (const auto& [key, value] : options_.other_data) print(",{}:{}", json_text(key), json_text(value));
    print("}},\"traceEvents\":[");
  }

  void write_process(std::size_t process, std::string_view name) {
    begin_event();
    print("{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_name\",\"args\":{{\"name\":{}}}}}", process, json_text(name));
    begin_event();
    print("{{\"ph\":\"M\",\"pid\":{0},\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{0}}}}}", process);
  }
  template <class Number>
  void write_thread(std::size_t process, Number thread, std::string_view name, Number position) {
    begin_event();
    print("{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}}", process, thread,
          json_text(name));
    begin_event();
    print("{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_sort_index\",\"args\":{{\"sort_index\":{}}}}}",
          process, thread, position);
  }

  void write_names(std::size_t rank) {
    const std::string name =
        options_.rank_names.empty() ? "rank " + std::to_string(rank) : options_.rank_names.at(rank);
    write_process(rank, name);
    std::set<std::pair<StreamKind, int>> threads;
    for (std::size_t i = 0; i < lanes_[rank].size(); ++i) {
      threads.emplace(timeline_.ranks[rank][i].stream, lanes_[rank][i]);
    }
    int position = 0;
    for (const auto& [stream, lane] : threads) {
      const std::string suffix = lane == 0 ? "" : fmt::format(", overlapped {}", lane);
      write_thread(rank, tid_of(stream, lane), fmt::format("{}{}", name_of(stream), suffix), position++);
    }
  }

  std::size_t fabric_process() const { return timeline_.ranks.size(); }

  void write_row_names() {
    const std::size_t process = fabric_process();
    write_process(process, "fabric");
    for (std::size_t row = 0; row < options_.messages.size(); ++row) {
      const SharedMessages& messages = options_.messages[row];
      write_thread(process, row, messages.name + ", over " + messages.link, row);
    }
  }

  std::vector<Event> sorted_events() const {
    std::vector<Event> events;
    for (std::size_t row = 0; shows_messages_ && row < options_.messages.size(); ++row) {
      const std::vector<SharedMessages::Message>& messages = options_.messages[row].messages;
      for (std::size_t i = 0; i < messages.size(); ++i) {
        events.push_back({clock_(messages[i].start), Event::Kind::kMessage, 0, row, i});
      }
    }
    for (std::uint32_t rank = 0; rank < timeline_.ranks.size(); ++rank) {
      const std::vector<Span>& spans = timeline_.ranks[rank];
      for (std::size_t i = 0; i < spans.size(); ++i) {
        events.push_back({clock_(spans[i].start), Event::Kind::kSlice, rank, i, 0});
        const auto parts = places_inside(spans[i]);
        for (std::size_t part = 0; part < parts.size(); ++part) {
          if (parts[part].duration > 0) events.push_back({parts[part].start, Event::Kind::kInside, rank, i, part});
        }
      }
    }
    for (std::size_t i = 0; i < flows_.size(); ++i) {
      events.push_back({tail_of(flows_[i]), Event::Kind::kFlowStart, 0, i, 0});
      events.push_back({clock_(consumer_of(flows_[i]).start), Event::Kind::kFlowEnd, 0, i, 0});
    }
    add_counters(events);
    std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      return a.time != b.time ? a.time < b.time : a.kind < b.kind;
    });
    return events;
  }

  /// Keeps the last point of each time, and only points that change the value.
  void add_counters(std::vector<Event>& events) const {
    for (std::size_t c = 0; c < options_.counters.size(); ++c) {
      const auto& ranks = options_.counters[c].ranks;
      FLOPCAST_CHECK(ranks.size() <= timeline_.ranks.size());
      for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
        std::optional<double> shown;
        for (std::size_t i = 0; i < ranks[rank].size(); ++i) {
          const TraceCounter::Point& point = ranks[rank][i];
          const bool replaced = i + 1 < ranks[rank].size() && clock_(ranks[rank][i + 1].time) == clock_(point.time);
          if (replaced || shown == point.value) continue;
          FLOPCAST_CHECK(std::isfinite(point.value));
          events.push_back({clock_(point.time), Event::Kind::kCounter, rank, i, c});
          shown = point.value;
        }
      }
    }
  }

  const Span& producer_of(const Flow& flow) const {
    return timeline_.ranks[timeline_.transfers[flow.transfer].from_rank][flow.producer];
  }
  const Span& consumer_of(const Flow& flow) const {
    return timeline_.ranks[timeline_.transfers[flow.transfer].to_rank][flow.consumer];
  }
  Nanoseconds tail_of(const Flow& flow) const {
    const Place place = place_of(producer_of(flow));
    // Half of one nanosecond rounds up, so that the tail stays before the end.
    return place.start + place.duration - std::min(kInsideSlice, (place.duration + 1) / 2);
  }

  Place place_of(const Span& span) const { return place_between(clock_(span.start), clock_(span.end)); }

  const std::vector<PassPart>* parts_of(const Span& span) const {
    const auto found = shows_inside_ ? inside_.find(pass_key(span)) : inside_.end();
    return found == inside_.end() || found->second.size() < 2 ? nullptr : &found->second;
  }

  /// Positions of the parts of a span within its slice; empty if it has only one part.
  std::vector<Place> places_inside(const Span& span) const {
    const std::vector<PassPart>* const parts = parts_of(span);
    if (parts == nullptr) return {};
    const Place whole = place_of(span);
    double sum = 0.0;
    for (const PassPart& part : *parts) sum += part.seconds;
    std::vector<Nanoseconds> edges = {whole.start};
    double before = 0.0;
    for (const PassPart& part : *parts) {
      before += part.seconds;
      edges.push_back(whole.start + std::llround(static_cast<double>(whole.duration) * before / sum));
    }
    std::vector<Place> places;
    for (std::size_t part = 0; part < parts->size(); ++part) {
      places.push_back(place_between(edges[part], edges[part + 1]));
    }
    return places;
  }

  void write_event(const Event& event) {
    begin_event();
    switch (event.kind) {
      case Event::Kind::kSlice:
        return write_slice(event.rank, event.index);
      case Event::Kind::kInside:
        return write_inside(event);
      case Event::Kind::kMessage:
        return write_message(event);
      case Event::Kind::kCounter:
        return write_counter(event);
      case Event::Kind::kFlowStart:
      case Event::Kind::kFlowEnd:
        return write_flow(event);
    }
  }

  void begin_slice(std::uint32_t rank, std::size_t index, const Place& place) {
    fmt::format_to(std::back_inserter(out_), FMT_COMPILE("{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":"), rank,
                   tid_of(timeline_.ranks[rank][index].stream, lanes_[rank][index]));
    Clock::write(out_, place.start);
    fmt::format_to(std::back_inserter(out_), FMT_COMPILE(",\"dur\":"));
    Clock::write(out_, place.duration);
  }

  void write_inside(const Event& event) {
    const Span& span = timeline_.ranks[event.rank][event.index];
    begin_slice(event.rank, event.index, places_inside(span)[event.part]);
    fmt::format_to(std::back_inserter(out_), FMT_COMPILE(",\"name\":\"{}\",\"cat\":\"inside\"}}"),
                   (*parts_of(span))[event.part].name);
  }

  // Writes a message with its slowdown relative to having its links alone.
  void write_message(const Event& event) {
    const SharedMessages& row = options_.messages[event.index];
    const SharedMessages::Message& message = row.messages[event.part];
    const Place place = place_between(clock_(message.start), clock_(message.end));
    print("{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":", fabric_process(), event.index);
    Clock::write(out_, place.start);
    print(",\"dur\":");
    Clock::write(out_, place.duration);
    print(",\"name\":\"{}\",\"cat\":\"message\",\"args\":{{\"alone_us\":", name_of(row.axis));
    Clock::write(out_, clock_(message.alone));
    if (message.alone > 0) {
      print(",\"times_alone\":{:.3f}",
            static_cast<double>(message.end - message.start) / static_cast<double>(message.alone));
    }
    print("}}}}");
  }

  void write_slice(std::uint32_t rank, std::size_t index) {
    const Span& span = timeline_.ranks[rank][index];
    const auto to = std::back_inserter(out_);
    begin_slice(rank, index, place_of(span));
    const std::string_view kind = name_of(span.kind);
    if (!names_an_action(span.kind)) {
      fmt::format_to(to, FMT_COMPILE(",\"name\":\"{}\",\"cat\":\"{}\"}}"), kind, kind);
      return;
    }
    const Action& action = span.action;
    if (timeline_.slices_per_microbatch > 1) return write_cut(span);
    fmt::format_to(to,
                   FMT_COMPILE(",\"name\":\"{}{} {}\",\"cat\":\"{}\",\"args\":{{\"stage\":{},\"microbatch\":{}}}}}"),
                   prefix_of(span.kind), letter_of(static_cast<SpanKind>(action.kind)), action.microbatch, kind,
                   action.stage, action.microbatch);
  }

  // Writes an action on a slice of a microbatch.
  void write_cut(const Span& span) {
    const auto slices = static_cast<std::uint32_t>(timeline_.slices_per_microbatch);
    const Action& action = span.action;
    print(",\"name\":\"{}{} {}\",\"cat\":\"{}\",\"args\":{{\"stage\":{},\"microbatch\":{},\"slice\":{}}}}}",
          prefix_of(span.kind), letter_of(static_cast<SpanKind>(action.kind)),
          number_text(action, timeline_.slices_per_microbatch), name_of(span.kind), action.stage,
          action.microbatch / slices, action.microbatch % slices);
  }

  void write_flow(const Event& event) {
    const Flow& flow = flows_[event.index];
    const Transfer& transfer = timeline_.transfers[flow.transfer];
    const bool start = event.kind == Event::Kind::kFlowStart;
    const std::uint32_t rank = start ? transfer.from_rank : transfer.to_rank;
    const int lane = lanes_[rank][start ? flow.producer : flow.consumer];
    print("{{{},\"pid\":{},\"tid\":{},\"ts\":", start ? "\"ph\":\"s\"" : "\"ph\":\"f\",\"bp\":\"e\"", rank,
          tid_of(StreamKind::kCompute, lane));
    Clock::write(out_, event.time);
    print(",\"id\":{},\"cat\":\"p2p\",\"name\":\"{}\"}}", flow.transfer,
          transfer.produced_by.kind == ActionKind::kForward ? "activation" : "gradient");
  }

  void write_counter(const Event& event) {
    const TraceCounter& counter = options_.counters[event.part];
    print("{{\"ph\":\"C\",\"pid\":{},\"ts\":", event.rank);
    Clock::write(out_, event.time);
    print(",\"name\":{},\"args\":{{{}:{}}}}}", json_text(counter.name), json_text(counter.key),
          counter.ranks[event.rank][event.index].value);
  }

  const Timeline& timeline_;
  const TraceOptions& options_;
  Clock clock_;
  std::vector<std::vector<int>> lanes_;  ///< by rank and span
  std::vector<Flow> flows_;
  PassParts inside_;  ///< one part per term
  bool shows_inside_ = false;
  bool shows_messages_ = false;
  Buffer out_;
  bool first_event_ = true;
};

}  // namespace

std::vector<Flow> bind_transfers(const Timeline& timeline) {
  std::vector<std::vector<Entry>> index;
  for (const std::vector<Span>& spans : timeline.ranks) index.push_back(index_rank(spans));
  std::vector<Flow> flows;
  for (std::size_t i = 0; i < timeline.transfers.size(); ++i) {
    const Transfer& transfer = timeline.transfers[i];
    if (transfer.from_rank >= index.size() || transfer.to_rank >= index.size()) continue;
    const Action& made = transfer.produced_by;
    const bool gradient = made.kind != ActionKind::kForward;
    const auto producer =
        producer_of(index[transfer.from_rank], {made.microbatch, made.stage, gradient}, transfer.start);
    const auto consumer =
        consumer_of(index[transfer.to_rank], {made.microbatch, transfer.to_stage, gradient}, transfer.end);
    if (producer && consumer) flows.push_back({i, *producer, *consumer});
  }
  return flows;
}

std::string write_chrome_trace(const Timeline& timeline, const TraceOptions& options) {
  FLOPCAST_CHECK(options.rank_names.empty() || options.rank_names.size() == timeline.ranks.size());
  return TraceWriter(timeline, options).write();
}

namespace {

TraceCounter memory_counter(const Forecast& forecast) {
  TraceCounter counter;
  counter.name = "memory GiB";
  counter.key = "memory";
  for (const RankMemory& rank : forecast.memory) {
    counter.ranks.emplace_back();
    for (const MemoryPoint& point : rank.points) {
      counter.ranks.back().push_back({point.time, gibibytes(Bytes(point.bytes))});
    }
  }
  return counter;
}

// A row represents all replicas and shards of its part of the pipeline.
std::vector<std::string> names_of_ranks(const Layout& layout, int ranks) {
  const int each = layout.tp * layout.cp * layout.dp;
  std::vector<std::string> names;
  for (int rank = 0; rank < ranks; ++rank) {
    names.push_back(fmt::format("rank {}{}", rank, each == 1 ? "" : fmt::format(" (represents {} GPUs)", each)));
  }
  return names;
}

}  // namespace

TraceOptions trace_options_of(const Forecast& forecast) {
  TraceOptions options;
  options.counters.push_back(memory_counter(forecast));
  options.inside = pass_parts(forecast.step);
  options.messages = forecast.messages;
  options.rank_names = names_of_ranks(forecast.step.job.layout, forecast.timeline.rank_count());
  return options;
}

}  // namespace flopcast
