#include "reports/html/page.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "base/text/error.hpp"
#include "reports/svg/canvas.hpp"
#include "reports/timeline/writers.hpp"
#include "sim/metrics/metrics.hpp"

namespace flopcast {

void ColumnWriter::put(std::uint64_t bits) {
  while (bits >= 0x80U) {
    bytes_ += static_cast<char>((bits & 0x7FU) | 0x80U);
    bits >>= 7U;
  }
  bytes_ += static_cast<char>(bits);
}

void ColumnWriter::end_run() {
  if (in_run_) put(repeats_);
  in_run_ = false;
  repeats_ = 0;
}

void ColumnWriter::add(std::int64_t number) {
  if (last_ == number) {
    if (in_run_) {
      ++repeats_;
      return;
    }
    in_run_ = true;
  } else {
    end_run();
    last_ = number;
  }
  const auto bits = static_cast<std::uint64_t>(number);
  put(number < 0 ? ~(bits << 1U) : bits << 1U);
}

std::string ColumnWriter::finish() {
  end_run();
  last_.reset();
  std::string text = base64(bytes_);
  bytes_.clear();
  return text;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t bits = 0;
    for (std::size_t offset = 0; offset < 3; ++offset) {
      bits = bits << 8U | (at + offset < bytes.size() ? static_cast<unsigned char>(bytes[at + offset]) : 0U);
    }
    for (std::size_t digit = 0; digit < 4; ++digit) {
      const bool padding = at + digit > bytes.size();
      text += padding ? '=' : kDigits[bits >> (18U - 6U * digit) & 63U];
    }
  }
  return text;
}

namespace {

using Json = nlohmann::ordered_json;

// Doubles hold whole numbers up to 2^53; differences need a sign bit and a carry bit.
constexpr Ticks kLargest = Ticks{1} << 50;

Ticks divisor_of(const Timeline& timeline) {
  Ticks divisor = 1;
  while (timeline.makespan() / divisor > kLargest) divisor *= 10;
  return divisor;
}

// Assigns codes to spans; spans that differ only in time and microbatch share a code.
class Codes {
 public:
  explicit Codes(const Timeline& timeline) : timeline_(timeline), chunks_(chunk_count(timeline)) {}

  std::size_t code_of(const Span& span) {
    const bool action = names_an_action(span.kind);
    const ChunkIndex chunk = chunk_of(span, timeline_);
    const Key key = {span.kind,
                     span.stream,
                     chunk,
                     action ? span.action.stage : std::uint16_t{0},
                     action ? span.action.kind : ActionKind::kForward,
                     action && span.action.overlaps_next};
    const auto [found, added] = codes_.emplace(key, codes_.size());
    if (added) list_.push_back(entry_of(span, chunk, action));
    return found->second;
  }
  Json list() const { return list_; }

 private:
  using Key = std::tuple<SpanKind, StreamKind, int, std::uint16_t, ActionKind, bool>;

  Json entry_of(const Span& span, ChunkIndex chunk, bool action) const {
    const Rgb fill = fill_color(span.kind, chunk, chunks_);
    Json entry = {{"kind", name_of(span.kind)},     {"letter", std::string(1, letter_of(span.kind))},
                  {"stream", name_of(span.stream)}, {"chunk", int{chunk}},
                  {"fill", hex_color(fill)},        {"light_text", needs_light_text(fill)}};
    if (action) {
      entry["stage"] = span.action.stage;
      entry["action"] = std::string(1, letter_of(span.action.kind));
      if (span.action.overlaps_next) entry["overlaps_next"] = true;
    }
    return entry;
  }

  const Timeline& timeline_;
  int chunks_;
  std::map<Key, std::size_t> codes_;
  Json list_ = Json::array();
};

// Values seen for spans of a code on this rank, and the values predicted for the next one.
struct Expectation {
  std::size_t next_code = 0;
  std::int64_t microbatch = 0;
  std::int64_t microbatch_step = 0;
  Ticks gap = 0;
  Ticks duration = 0;
  std::int64_t rank = 0;  // rank that it waits for, relative to its own rank; 0: it waits for nothing
  std::int64_t index = 0;
  std::int64_t index_step = 0;
  Ticks lag = 0;
};

struct Wait {
  std::int64_t rank = -1;
  std::int64_t index = 0;
  Ticks lag = 0;
};

// For every node, the link whose input arrived last, ignoring the order on its own stream.
class Waits {
 public:
  explicit Waits(const Timeline& timeline) : timeline_(timeline), graph_(build_span_graph(timeline)) {
    place_.resize(graph_.nodes.size());
    for (std::size_t rank = 0; rank < graph_.node_of.size(); ++rank) {
      for (std::size_t index = graph_.node_of[rank].size(); index-- > 0;) {
        place_[graph_.node_of[rank][index]] = {rank, index};
      }
    }
    link_of_.assign(graph_.nodes.size(), nullptr);
    for (const SpanLink& link : graph_.links) {
      if (link.from == SpanGraph::kSource || is_order(link)) continue;
      const SpanLink*& best = link_of_[link.to];
      if (best == nullptr || link.wait < best->wait) best = &link;
    }
  }

  Wait of(std::size_t rank, std::size_t index) const {
    const SpanLink* link = link_of_[graph_.node_of[rank][index]];
    if (link == nullptr) return {};
    const auto [from_rank, from_index] = place_[link->from];
    return {static_cast<std::int64_t>(from_rank), static_cast<std::int64_t>(from_index), link->lag};
  }

 private:
  bool is_order(const SpanLink& link) const {
    const auto [from_rank, from_index] = place_[link.from];
    const auto [to_rank, to_index] = place_[link.to];
    return from_rank == to_rank &&
           timeline_.ranks[from_rank][from_index].stream == timeline_.ranks[to_rank][to_index].stream;
  }

  const Timeline& timeline_;
  SpanGraph graph_;
  std::vector<std::pair<std::size_t, std::size_t>> place_;  // by node: rank and position
  std::vector<const SpanLink*> link_of_;
};

std::size_t position_of(const std::vector<Span>& spans, const Span& span) {
  const auto first = std::lower_bound(spans.begin(), spans.end(), span.start,
                                      [](const Span& candidate, Ticks start) { return candidate.start < start; });
  const auto same = std::find_if(first, spans.end(), [&](const Span& candidate) {
    return candidate.kind == span.kind && candidate.end == span.end && candidate.action == span.action;
  });
  FLOPCAST_CHECK(same != spans.end());
  return static_cast<std::size_t>(same - spans.begin());
}

Json pack_path(const Timeline& timeline, const CriticalPath& path) {
  ColumnWriter ranks;
  ColumnWriter indices;
  std::vector<std::int64_t> last(timeline.ranks.size(), -1);
  std::int64_t last_rank = 0;
  for (const CriticalStep& step : path.steps) {
    const auto rank = static_cast<std::size_t>(step.rank);
    const auto index = static_cast<std::int64_t>(position_of(timeline.ranks[rank], step.span));
    ranks.add(static_cast<std::int64_t>(step.rank) - last_rank);
    indices.add(index - last[rank] - 1);
    last_rank = step.rank;
    last[rank] = index;
  }
  const double units = timeline.units_per_tick;
  return {{"steps", path.steps.size()},
          {"wait", static_cast<double>(path.wait) * units},
          {"lag", static_cast<double>(path.lag) * units},
          {"rank", ranks.finish()},
          {"index", indices.finish()}};
}

// One column per property of the spans; each number is the difference from the prediction.
class Columns {
 public:
  Columns(const Timeline& timeline, Ticks divisor)
      : timeline_(timeline), divisor_(divisor), waits_(timeline), codes_(timeline) {}

  Json pack() {
    Json counts = Json::array();
    for (std::size_t rank = 0; rank < timeline_.ranks.size(); ++rank) {
      counts.push_back(timeline_.ranks[rank].size());
      pack_rank(rank);
    }
    return {{"codes", codes_.list()},
            {"counts", std::move(counts)},
            {"columns",
             {{"code", code_.finish()},
              {"microbatch", microbatch_.finish()},
              {"gap", gap_.finish()},
              {"duration", duration_.finish()},
              {"wait_rank", wait_rank_.finish()},
              {"wait_index", wait_index_.finish()},
              {"wait_lag", wait_lag_.finish()}}}};
  }

 private:
  void pack_rank(std::size_t rank) {
    const std::vector<Span>& spans = timeline_.ranks[rank];
    std::vector<Expectation> expectations;
    std::array<Ticks, kStreamKindCount> stream_end{};
    std::size_t last_code = 0;
    expectations.resize(1);
    for (std::size_t index = 0; index < spans.size(); ++index) {
      const Span& span = spans[index];
      const std::size_t code = codes_.code_of(span);
      if (expectations.size() <= code) expectations.resize(code + 1);
      code_.add(static_cast<std::int64_t>(code) - static_cast<std::int64_t>(expectations[last_code].next_code));
      expectations[last_code].next_code = code;
      last_code = code;

      Expectation& expected = expectations[code];
      const std::int64_t microbatch = names_an_action(span.kind) ? span.action.microbatch : 0;
      microbatch_.add(microbatch - expected.microbatch - expected.microbatch_step);
      expected.microbatch_step = microbatch - expected.microbatch;
      expected.microbatch = microbatch;

      Ticks& end = stream_end.at(static_cast<std::size_t>(span.stream));
      const Ticks start = span.start / divisor_;
      gap_.add(start - end - expected.gap);
      expected.gap = start - end;
      end = span.end / divisor_;
      duration_.add(end - start - expected.duration);
      expected.duration = end - start;
      pack_wait(rank, index, expected);
    }
  }

  void pack_wait(std::size_t rank, std::size_t index, Expectation& expected) {
    const Wait wait = waits_.of(rank, index);
    // Relative to its own rank, shifted by one so that 0 means that it waits for nothing.
    const std::int64_t from = wait.rank + 1;
    wait_rank_.add(from - expected.rank);
    expected.rank = from;
    if (from == 0) return;
    wait_index_.add(wait.index - expected.index - expected.index_step);
    expected.index_step = wait.index - expected.index;
    expected.index = wait.index;
    const Ticks lag = wait.lag / divisor_;
    wait_lag_.add(lag - expected.lag);
    expected.lag = lag;
  }

  const Timeline& timeline_;
  Ticks divisor_;
  Waits waits_;
  Codes codes_;
  ColumnWriter code_, microbatch_, gap_, duration_, wait_rank_, wait_index_, wait_lag_;
};

}  // namespace

namespace {

Json pack_weights(const WeightTrack& weights, Ticks divisor) {
  Json updates = Json::array();
  for (const std::vector<Ticks>& rank : weights.updates) {
    Json times = Json::array();
    for (const Ticks time : rank) times.push_back(time / divisor);
    updates.push_back(std::move(times));
  }
  return {{"forward", weights.forward}, {"backward", weights.backward}, {"updates", std::move(updates)}};
}

}  // namespace

Json pack_timeline(const Timeline& timeline, const CriticalPath& path) {
  const Ticks divisor = divisor_of(timeline);
  Json packed = {{"title", timeline.title},
                 {"time_unit", timeline.time_unit},
                 {"units_per_tick", timeline.units_per_tick * static_cast<double>(divisor)},
                 {"makespan", timeline.makespan() / divisor},
                 {"chunks", chunk_count(timeline)}};
  packed.update(Columns(timeline, divisor).pack());
  packed["critical"] = pack_path(timeline, path);
  if (timeline.weights) packed["weights"] = pack_weights(*timeline.weights, divisor);
  return packed;
}

Json pack_memory(const Timeline& timeline, const std::vector<RankMemory>& memory,
                 const std::vector<double>& capacity_gib) {
  const Ticks divisor = divisor_of(timeline);
  ColumnWriter times;
  ColumnWriter changes;
  std::map<std::int64_t, std::size_t> code_of_change;
  Json list = Json::array();
  Json counts = Json::array();
  for (const RankMemory& rank : memory) {
    counts.push_back(rank.points.size());
    std::int64_t bytes = 0;
    Ticks time = 0;
    std::size_t last_code = 0;
    std::vector<std::pair<std::size_t, Ticks>> expected(1);  // by change: the next change, and the time until it
    for (const MemoryPoint& point : rank.points) {
      const auto now = static_cast<std::int64_t>(std::llround(point.bytes));
      const auto [found, added] = code_of_change.emplace(now - bytes, code_of_change.size());
      if (added) list.push_back(now - bytes);
      const std::size_t code = found->second;
      if (expected.size() <= code) expected.resize(code + 1);
      auto& [next, step] = expected[last_code];
      const Ticks at = point.time / divisor;
      changes.add(static_cast<std::int64_t>(code) - static_cast<std::int64_t>(next));
      times.add(at - time - step);
      next = code;
      step = at - time;
      last_code = code;
      bytes = now;
      time = at;
    }
  }
  return {{"capacity_gib", capacity_gib},
          {"counts", std::move(counts)},
          {"changes", std::move(list)},
          {"change", changes.finish()},
          {"time", times.finish()}};
}

}  // namespace flopcast
