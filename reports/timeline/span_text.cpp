#include "reports/timeline/writers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <string_view>
#include <utility>

#include "base/text/words.hpp"

namespace flopcast {
namespace {

constexpr std::array<Rgb, kSpanKindCount> kHues = {{
    {0x00, 0x72, 0xB2},  // forward: blue
    {0xE6, 0x9F, 0x00},  // backward: orange
    {0xD5, 0x5E, 0x00},  // input gradient: vermilion
    {0x00, 0x9E, 0x73},  // weight gradient: bluish green
    {0x56, 0xB4, 0xE9},  // send: sky blue
    {0xCC, 0x79, 0xA7},  // gradient reduction: reddish purple
    {0xE5, 0xBC, 0xD3},  // embedding reduction: light reddish purple
    {0x8C, 0x8C, 0x8C},  // gradient norm: grey
    {0xF0, 0xE4, 0x42},  // optimizer: yellow
    {0x7F, 0x4B, 0x68},  // parameter gather: dark reddish purple
    {0x6B, 0x6B, 0x1E},  // dispatch: olive
    {0xC8, 0xB4, 0x5A},  // combine: sand
}};

using Parts = std::vector<PassPart>;

// Adds the parts of a pass with non-zero time, each prefixed with the purpose of the pass.
void add_pass(Parts& parts, const std::string& prefix, const PassCost& pass, double slices,
              TermId computes = TermId::kCompute) {
  const auto add = [&](const char* name, TermId id, Seconds time) {
    if (time.value() > 0.0) parts.push_back({prefix + name, id, time.value() / slices});
  };
  add(step_term(TermId::kCompute).name, computes, pass.compute);
  for (const Axis axis : kAxes) {
    const StepTerm& term = communication_term(axis);
    add(term.name, term.id, pass.comm[axis]);
  }
  add(step_term(TermId::kOffload).name, TermId::kOffload, pass.offload);
}

}  // namespace

char letter_of(SpanKind kind) {
  return std::string_view("FBIWSRENOGDC").at(static_cast<std::size_t>(kind));
}

Rgb fill_color(SpanKind kind, ChunkIndex chunk, int chunks) {
  const Rgb hue = kHues.at(static_cast<std::size_t>(kind));
  if (chunk == 0 || chunks < 2) return hue;
  constexpr Rgb kWhite = {255, 255, 255};
  return mixed(hue, kWhite, 0.6 * chunk / (chunks - 1));
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
  each_span(timeline, [&](const Span& span) { count = std::max(count, 1 + chunk_of(span, timeline)); });
  return count;
}

int newest_version(const Timeline& timeline) {
  int newest = 0;
  if (!timeline.weights) return newest;
  each_span(timeline, [&](const Span& span) {
    if (is_action(span.kind)) newest = std::max(newest, timeline.weights->version(span));
  });
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

std::string span_tooltip(const Span& span, int slices, const WeightTrack* weights, const DisplayUnit& unit) {
  std::string text(name_of(span.kind));
  if (names_an_action(span.kind)) {
    text += fmt::format(" of {}, stage {}", unit_words(span.action, slices), span.action.stage);
  }
  if (weights != nullptr && is_action(span.kind))
    text += fmt::format(", weights of version {}", weights->version(span));
  return text + fmt::format("\nstart {}, duration {}", time_text(static_cast<double>(span.start), unit, 6),
                            time_text(static_cast<double>(span.end - span.start), unit, 6));
}

std::string label_of(const Span& span, int slices, bool letters) {
  if (!is_action(span.kind)) return std::string(1, letter_of(span.kind));
  const std::string number = number_text(span.action, slices);
  return letters ? letter_of(span.kind) + number : number;
}

double label_width(std::string_view label, double size) {
  const auto share = [](char letter) {
    switch (letter) {
      case 'W':
        return 0.95;
      case 'I':
      case '.':
        return 0.28;
      case 'F':
        return 0.62;
      case 'B':
        return 0.68;
      default:
        return kLetterShare;
    }
  };
  double width = 0.0;
  for (const char letter : label) width += share(letter);
  return width * size + 1.5;
}

std::vector<SpanKind> kinds_present(const Timeline& timeline) {
  std::set<SpanKind> kinds;
  each_span(timeline, [&](const Span& span) { kinds.insert(span.kind); });
  return {kinds.begin(), kinds.end()};
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
    // The factor absorbs the rounding of units_per_tick: a billion ticks of 1e-12 s are a full millisecond.
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

PassParts pass_parts(const PreparedStep& step) {
  PassParts all;
  const double slices = step.program.slices_per_microbatch;
  for (std::size_t index = 0; index < step.costs.stages.size(); ++index) {
    const StageCosts& stage = step.costs.stages[index];
    Parts forward;
    add_pass(forward, "", stage.forward, slices);
    Parts input;
    add_pass(input, "recomputation: ", stage.recompute, slices, TermId::kRecompute);
    add_pass(input, "input gradient: ", stage.input_gradient, slices);
    Parts weight;
    add_pass(weight, "weight gradient: ", stage.weight_gradient, slices);
    Parts backward = input;
    backward.insert(backward.end(), weight.begin(), weight.end());
    if (stage.tp_hidden.value() > 0.0) {
      const StepTerm& term = step_term(TermId::kTensorParallel);
      backward.push_back(
          {fmt::format("{} hidden behind the weight gradient", term.name), term.id, -stage.tp_hidden.value() / slices});
    }
    if (stage.split_slowdown.value() > 0.0) {
      input.push_back({"slower without its weight gradient", TermId::kCompute, stage.split_slowdown.value() / slices});
    }
    all[fmt::format("F{}", index)] = std::move(forward);
    all[fmt::format("B{}", index)] = std::move(backward);
    all[fmt::format("I{}", index)] = std::move(input);
    all[fmt::format("W{}", index)] = std::move(weight);
  }
  return all;
}

std::string pass_key(const Span& span) {
  return is_action(span.kind) ? fmt::format("{}{}", letter_of(span.kind), span.action.stage) : "";
}

std::vector<PassPart> parts_by_term(const std::vector<PassPart>& parts) {
  Parts merged;
  for (const StepTerm& term : breakdown_terms()) {
    PassPart part{term.name, term.id, 0.0};
    for (const PassPart& one : parts) {
      if (one.id == term.id) part.seconds += one.seconds;
    }
    if (part.seconds > 0.0) merged.push_back(std::move(part));
  }
  return merged;
}

}  // namespace flopcast
