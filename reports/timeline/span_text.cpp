#include "reports/timeline/span_text.hpp"

#include "base/text/numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

namespace flopcast {

namespace {

constexpr std::array<Rgb, kSpanKindCount> kHues = {{
    {0x00, 0x72, 0xB2},  // forward: blue
    {0xE6, 0x9F, 0x00},  // backward: orange
    {0xD5, 0x5E, 0x00},  // input gradient: vermilion
    {0x00, 0x9E, 0x73},  // weight gradient: bluish green
    {0x56, 0xB4, 0xE9},  // send: sky blue
    {0xCC, 0x79, 0xA7},  // gradient reduction: reddish purple
    {0xE5, 0xBC, 0xD3},  // embedding reduction: the same, lighter
    {0x8C, 0x8C, 0x8C},  // gradient norm: grey
    {0xF0, 0xE4, 0x42},  // optimizer: yellow
    {0x7F, 0x4B, 0x68},  // parameter gather: reddish purple, darker
    {0x6B, 0x6B, 0x1E},  // dispatch: olive
    {0xC8, 0xB4, 0x5A},  // combine: sand
}};

}  // namespace

char letter_of(SpanKind kind) {
  return std::string_view("FBIWSRENOGDC").at(static_cast<std::size_t>(kind));
}

Rgb fill_color(SpanKind kind, ChunkIndex chunk, int chunks) {
  const Rgb hue = kHues.at(static_cast<std::size_t>(kind));
  if (chunk == 0 || chunks < 2) return hue;
  const double white = 0.6 * chunk / (chunks - 1);
  const auto mix = [white](std::uint8_t channel) {
    return static_cast<std::uint8_t>(std::lround(channel + (255 - channel) * white));
  };
  return {mix(hue.red), mix(hue.green), mix(hue.blue)};
}

std::string css_class(SpanKind kind, ChunkIndex chunk) {
  const std::string letter(1, letter_of(kind));
  return chunk == 0 ? letter : letter + std::to_string(chunk);
}

std::string number_text(const Action& action, int slices_per_microbatch) {
  if (slices_per_microbatch == 1) return std::to_string(action.microbatch);
  const auto slices = static_cast<std::uint32_t>(slices_per_microbatch);
  return fmt::format("{}.{}", action.microbatch / slices, action.microbatch % slices);
}

std::string unit_words(const Action& action, int slices_per_microbatch) {
  if (slices_per_microbatch == 1) return fmt::format("microbatch {}", action.microbatch);
  const auto slices = static_cast<std::uint32_t>(slices_per_microbatch);
  return fmt::format("microbatch {}, slice {}", action.microbatch / slices, action.microbatch % slices);
}

ChunkIndex chunk_of(const Span& span, const Timeline& timeline) {
  const int rank_count = timeline.rank_count();
  if (timeline.weights && is_action(span.kind)) return ChunkIndex(timeline.weights->version(span) % kVersionShades);
  return ChunkIndex(names_an_action(span.kind) && rank_count > 0 ? span.action.stage / rank_count : 0);
}

int chunk_count(const Timeline& timeline) {
  int count = 1;
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (const Span& span : spans) count = std::max(count, 1 + chunk_of(span, timeline));
  }
  return count;
}

int newest_version(const Timeline& timeline) {
  int newest = 0;
  if (!timeline.weights) return newest;
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (const Span& span : spans) {
      if (is_action(span.kind)) newest = std::max(newest, timeline.weights->version(span));
    }
  }
  return newest;
}

std::string version_words(int shade, int newest) {
  std::string words = fmt::format("version {}", shade);
  const int last_named = shade + 2 * kVersionShades;
  for (int version = shade + kVersionShades; version <= std::min(newest, last_named); version += kVersionShades) {
    words += fmt::format(", {}", version);
  }
  return newest >= last_named + kVersionShades ? words + " …" : words;
}

std::vector<SpanKind> kinds_present(const Timeline& timeline) {
  std::array<bool, kSpanKindCount> present = {};
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (const Span& span : spans) present.at(static_cast<std::size_t>(span.kind)) = true;
  }
  std::vector<SpanKind> kinds;
  for (std::size_t i = 0; i < kSpanKindCount; ++i) {
    if (present.at(i)) kinds.push_back(static_cast<SpanKind>(i));
  }
  return kinds;
}

std::vector<int> assign_lanes(const std::vector<Span>& spans) {
  std::vector<int> lane_of(spans.size(), 0);
  std::vector<std::vector<Ticks>> free_from;  // by stream, then by lane
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const auto stream = static_cast<std::size_t>(spans[i].stream);
    if (stream >= free_from.size()) free_from.resize(stream + 1);
    std::vector<Ticks>& lanes = free_from[stream];
    std::size_t lane = 0;
    while (lane < lanes.size() && lanes[lane] > spans[i].start) ++lane;
    if (lane == lanes.size()) lanes.push_back(0);
    lanes[lane] = spans[i].end;
    lane_of[i] = static_cast<int>(lane);
  }
  return lane_of;
}

DisplayUnit display_unit(const Timeline& timeline, Ticks largest) {
  if (timeline.time_unit != "s") return {timeline.units_per_tick, timeline.time_unit};
  constexpr std::array<std::pair<double, std::string_view>, 5> kUnits = {
      {{1.0, "s"}, {1e3, "ms"}, {1e6, "us"}, {1e9, "ns"}, {1e12, "ps"}}};
  const double seconds = static_cast<double>(largest) * timeline.units_per_tick;
  for (const auto& [per_second, name] : kUnits) {
    // The factor forgives the rounding of units_per_tick: a billion ticks of 1e-12 s are a full millisecond.
    if (seconds * per_second >= 1.0 - 1e-9) return {timeline.units_per_tick * per_second, std::string(name)};
  }
  return {timeline.units_per_tick, "s"};
}

std::string time_text(double ticks, const DisplayUnit& unit, int digits) {
  const std::string number = rounded(ticks * unit.per_tick, digits);
  return unit.name.empty() ? number : number + " " + unit.name;
}

double idle_share(const Timeline& timeline) {
  const double total = static_cast<double>(timeline.makespan()) * timeline.rank_count();
  if (total <= 0.0) return 0.0;
  double busy = 0.0;
  for (const std::vector<Span>& spans : timeline.ranks) {
    Ticks covered_until = 0;
    for (const Span& span : spans) {
      if (span.stream != StreamKind::kCompute) continue;
      busy += static_cast<double>(std::max<Ticks>(0, span.end - std::max(span.start, covered_until)));
      covered_until = std::max(covered_until, span.end);
    }
  }
  return 1.0 - busy / total;
}

}  // namespace flopcast
