#include "reports/timeline/writers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "reports/svg/canvas.hpp"

namespace flopcast {
namespace {

constexpr double kLegendEntry = 11.0;  // side of a legend square

/// Sizes in pixels; the x of a time is left + ticks * per_tick.
struct RowGeometry {
  double left = 0.0;
  double per_tick = 0.0;
  double height = 22.0;           ///< height of the compute lane
  double lane_height = 5.0;       ///< height of each lane of another stream
  std::vector<StreamKind> lanes;  ///< other streams with spans, top to bottom
  int chunks = 1;                 ///< chunks of the whole figure, on which shades depend

  double x(Ticks time) const { return left + static_cast<double>(time) * per_tick; }
  double total_height() const { return height + static_cast<double>(lanes.size()) * (lane_height + 1.0); }
};

constexpr double kTooltipWidth = 1.2;  // narrower spans have no tooltip: they are too small to point at
constexpr double kSmallest = 0.2;      // narrower spans are merged and drawn as the kind that takes most of this width

struct Box {
  double x = 0.0;
  double y = 0.0;
  double width = 0.0;
  double height = 0.0;
};

using Style = std::pair<SpanKind, ChunkIndex>;  // kind and chunk

/// The labels on a kind's rectangles.
struct LabelStyle {
  double size = 0.0;  ///< text size; 0: no text
  bool letters = false;
};

/// Draws the narrow spans of one lane as one path per style. Spans within kSmallest of each other are merged into the
/// style that takes most of the time.
class NarrowSpans {
 public:
  void add(const Box& box, const Style& style) {
    if (box.width >= kSmallest) {
      flush();
      extend(box, style);
      return;
    }
    const bool fits = !shares_.empty() && box.y == pending_.y && box.x + box.width - pending_.x <= kSmallest;
    if (!fits) {
      flush();
      pending_ = box;
    }
    pending_.width = box.x + box.width - pending_.x;
    shares_[style] += box.width;
  }

  void write(Canvas& canvas) {
    flush();
    for (const auto& [style, path] : paths_) {
      canvas.path(css_class(style.first, style.second), path_text(path));
    }
  }

 private:
  void flush() {
    if (shares_.empty()) return;
    const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
    extend(pending_, std::max_element(shares_.begin(), shares_.end(), less)->first);
    shares_.clear();
  }

  void extend(Box box, const Style& style) {
    if (box.width <= 0.0) return;
    std::vector<Box>& path = paths_[style];
    if (!path.empty() && path.back().y == box.y && box.x - (path.back().x + path.back().width) < 1e-6) {
      path.back().width = box.x + box.width - path.back().x;
    } else {
      path.push_back(box);
    }
  }

  static std::string path_text(const std::vector<Box>& path) {
    std::string text;
    for (const Box& box : path) {
      fmt::format_to(std::back_inserter(text), "M{} {}h{}v{}h-{}z", coordinate(box.x), coordinate(box.y),
                     coordinate(std::max(box.width, 0.01)), coordinate(box.height),
                     coordinate(std::max(box.width, 0.01)));
    }
    return text;
  }

  Box pending_;
  std::map<Style, double> shares_;
  std::map<Style, std::vector<Box>> paths_;
};

/// Letter and number if the widest label of a kind fits into its narrowest rectangle, else numbers, in the largest size
/// that fits; if not even the smallest size fits everywhere, numbers in the rectangles with room for them.
LabelStyle label_style(double narrowest, double lowest, const std::string& widest, char letter, double largest) {
  const double tallest = std::min(largest, lowest * 0.8);
  if (tallest < kSmallestText) return {};
  for (const bool letters : {true, false}) {
    for (double size = tallest; size >= kSmallestText; size -= 0.5) {
      if (label_width(letters ? letter + widest : widest, size) <= narrowest) return {size, letters};
    }
  }
  return {kSmallestText, false};
}

/// Angle in degrees of the hatching over a kind's colour, which separates kinds from forward and backward passes in
/// grey.
std::optional<int> hatch_of(SpanKind kind) {
  switch (kind) {
    case SpanKind::kWeightGradient:
      return 45;
    case SpanKind::kSend:
      return 90;
    case SpanKind::kGradientReduction:
    case SpanKind::kEmbeddingReduction:
      return 135;
    case SpanKind::kParameterGather:
      return 0;
    default:
      return std::nullopt;
  }
}

void draw_label(Canvas& canvas, const std::string& label, const Box& box, bool light, double size, double usual,
                const std::string& halo) {
  if (size <= 0.0 || box.width < label_width(label, size)) return;
  canvas.put("<text class=\"{}\" x=\"{}\" y=\"{}\"{}{}>{}</text>\n", light ? "l" : "d",
             coordinate(box.x + box.width / 2), coordinate(box.y + box.height / 2 + size * 0.36),
             size < usual ? fmt::format(" font-size=\"{}\"", coordinate(size)) : "",
             halo.empty() ? "" : fmt::format(" style=\"paint-order:stroke;stroke:{};stroke-width:2\"", halo), label);
}

void draw_box(Canvas& canvas, const std::string& tooltip, const Box& box, const Style& style) {
  // A hairline of background separates neighbours without moving the start of a span.
  const double gap = std::min(0.7, box.width * 0.12);
  canvas.rectangle(fmt::format(" class=\"{}\"", css_class(style.first, style.second)), box.x, box.y, box.width - gap,
                   box.height, tooltip);
}

/// The vertical position of each span: its stream's lane; the halves of an overlapped pair share the compute lane.
std::vector<Box> place(const std::vector<Span>& spans, const RowGeometry& geometry) {
  std::vector<Box> boxes;
  const std::vector<int> lane_of = assign_lanes(spans);
  std::size_t last_compute = spans.size();
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    Box box{geometry.x(span.start), 0.0, static_cast<double>(span.end - span.start) * geometry.per_tick,
            geometry.height};
    const auto lane = std::find(geometry.lanes.begin(), geometry.lanes.end(), span.stream);
    if (lane != geometry.lanes.end()) {
      const auto index = static_cast<double>(lane - geometry.lanes.begin());
      box.y = geometry.height + 1.0 + index * (geometry.lane_height + 1.0);
      box.height = geometry.lane_height;
    } else {
      if (lane_of[i] > 0 && last_compute < spans.size()) {
        boxes[last_compute].height = geometry.height / 2;
        box.y = box.height = geometry.height / 2;
      }
      last_compute = i;
    }
    boxes.push_back(box);
  }
  return boxes;
}

/// Draws a bar where the weights of a rank change, a little taller than its row.
void draw_updates(Canvas& canvas, const std::vector<Ticks>& updates, const RowGeometry& geometry) {
  std::string path;
  double last = -kTooltipWidth;
  for (const Ticks time : updates) {
    const double x = geometry.x(time);
    if (x - last < kTooltipWidth) continue;
    last = x;
    path += fmt::format("M{} -1v{}h2v-{}z", coordinate(x - 1.0), coordinate(geometry.height + 2.0),
                        coordinate(geometry.height + 2.0));
  }
  canvas.path("update", path);
}

using LabelStyles = std::map<Style, LabelStyle>;

/// One style for each kind and chunk drawn.
LabelStyles label_styles(const std::vector<Timeline>& timelines, const RowGeometry& geometry, double largest) {
  struct Seen {
    double narrowest = 0.0;
    double lowest = 0.0;
    std::string widest;
  };
  std::map<Style, Seen> seen;
  for (const Timeline& timeline : timelines) {
    for (const std::vector<Span>& spans : timeline.ranks) {
      const std::vector<Box> boxes = place(spans, geometry);
      for (std::size_t i = 0; i < spans.size(); ++i) {
        if (boxes[i].width < kTooltipWidth || !is_action(spans[i].kind)) continue;
        const std::string number = number_text(spans[i].action, timeline.slices_per_microbatch);
        const auto [entry, is_new] = seen.try_emplace({spans[i].kind, chunk_of(spans[i], timeline)},
                                                      Seen{boxes[i].width, boxes[i].height, number});
        Seen& one = entry->second;
        one.narrowest = std::min(one.narrowest, boxes[i].width);
        one.lowest = std::min(one.lowest, boxes[i].height);
        if (number.size() > one.widest.size()) one.widest = number;
      }
    }
  }
  LabelStyles styles;
  bool all_letters = true;
  double smallest = largest;
  for (const auto& [style, one] : seen) {
    styles[style] = label_style(one.narrowest, one.lowest, one.widest, letter_of(style.first), largest);
    all_letters = all_letters && styles[style].letters;
    smallest = std::min(smallest, styles[style].size);
  }
  // All labels get the size of the smallest, those on halves of pairs.
  if (all_letters) {
    for (auto& [style, label] : styles) label.size = smallest;
  }
  // Letters on some kinds only would look as if they had a meaning.
  if (!all_letters) {
    for (const auto& [style, one] : seen) {
      LabelStyle& label = styles[style];
      if (!label.letters) continue;
      label.letters = false;
      label.size = std::min(largest, one.lowest * 0.8);
    }
  }
  return styles;
}

/// Draws the rectangles, tooltips and numbers of one rank, with y = 0 at the top of its row.
void draw_rank(Canvas& canvas, const Timeline& timeline, std::size_t rank, const RowGeometry& geometry,
               const DisplayUnit& unit, const LabelStyles& styles, double text) {
  const std::vector<Span>& spans = timeline.ranks[rank];
  const std::vector<Box> boxes = place(spans, geometry);
  const int slices = timeline.slices_per_microbatch;
  NarrowSpans narrow;
  Canvas labels;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Style style{spans[i].kind, chunk_of(spans[i], timeline)};
    if (boxes[i].width < kTooltipWidth) {
      narrow.add(boxes[i], style);
      continue;
    }
    draw_box(canvas, span_tooltip(spans[i], slices, timeline.weights ? &*timeline.weights : nullptr, unit), boxes[i],
             style);
    const auto found = styles.find(style);
    const LabelStyle label = found != styles.end()                   ? found->second
                             : boxes[i].height * 0.8 < kSmallestText ? LabelStyle{}
                                                                     : LabelStyle{kSmallestText, false};
    const Rgb fill = fill_color(style.first, style.second, geometry.chunks);
    // Hatching through a number would make it unreadable.
    const std::string halo = hatch_of(style.first) ? hex_color(fill) : "";
    draw_label(labels, label_of(spans[i], slices, label.letters), boxes[i], needs_light_text(fill), label.size, text,
               halo);
  }
  narrow.write(canvas);
  canvas.append(labels.drawn());
  if (timeline.weights) draw_updates(canvas, timeline.weights->updates[rank], geometry);
}

/// Properties common to all panels of a figure.
struct Figure {
  const std::vector<Timeline>& timelines;
  const SvgOptions& options;
  Ticks makespan = 0;  ///< makespan of the longest timeline
  DisplayUnit unit;
  RowGeometry geometry;
  double row_pitch = 0.0;
  double right = 0.0;
  bool panel_titles = false;
  double text = 11.0;  ///< text size
  LabelStyles labels = {};

  double letter() const { return text * kLetterShare; }
};

std::vector<StreamKind> side_lanes(const std::vector<Timeline>& timelines) {
  std::set<StreamKind> streams;
  for (const Timeline& timeline : timelines) {
    each_span(timeline, [&](const Span& span) { streams.insert(span.stream); });
  }
  streams.erase(StreamKind::kCompute);
  return {streams.begin(), streams.end()};
}

double row_height(int most_ranks) {
  return most_ranks <= 8 ? 22.0 : most_ranks <= 16 ? 18.0 : most_ranks <= 32 ? 14.0 : 10.0;
}

Figure lay_out(const std::vector<Timeline>& timelines, const SvgOptions& options) {
  const double margin = options.in_print ? 1.0 : kImageMargin;
  Figure figure{timelines, options, 0, {}, {}, 0.0, options.width - margin, timelines.size() > 1};
  figure.text = text_size(options);
  // Leaves room for half of the last mark of the axis.
  if (options.in_print) figure.right -= 2.0 * figure.letter();
  int most_ranks = 0;
  for (const Timeline& timeline : timelines) {
    FLOPCAST_CHECK(timeline.time_unit == timelines.front().time_unit);
    FLOPCAST_CHECK(timeline.units_per_tick == timelines.front().units_per_tick);
    figure.makespan = std::max(figure.makespan, timeline.makespan());
    most_ranks = std::max(most_ranks, timeline.rank_count());
    figure.geometry.chunks = std::max(figure.geometry.chunks, chunk_count(timeline));
  }
  if (!timelines.empty()) figure.unit = display_unit(timelines.front(), figure.makespan);
  figure.geometry.height = row_height(most_ranks);
  figure.geometry.lanes = side_lanes(timelines);
  const std::string widest = "rank " + std::to_string(std::max(0, most_ranks - 1));
  figure.geometry.left = margin + text_width(widest, figure.letter()) + (options.in_print ? 4.0 : 8.0);
  const double plot = std::max(50.0, figure.right - figure.geometry.left);
  figure.right = figure.geometry.left + plot;
  figure.geometry.per_tick = figure.makespan > 0 ? plot / static_cast<double>(figure.makespan) : 0.0;
  figure.row_pitch = figure.geometry.total_height() + (most_ranks <= 32 ? 3.0 : 1.5);
  figure.labels = label_styles(timelines, figure.geometry, figure.text);
  return figure;
}

std::string summary(const Timeline& timeline, const DisplayUnit& unit) {
  const int ranks = timeline.rank_count();
  if (timeline.makespan() <= 0) return fmt::format("{} rank{}, nothing ran", ranks, ranks == 1 ? "" : "s");
  return fmt::format("{} rank{}, makespan {}, idle {:.1f} %{}", ranks, ranks == 1 ? "" : "s",
                     time_text(static_cast<double>(timeline.makespan()), unit), 100.0 * idle_share(timeline),
                     timeline.weights ? " including the fill and drain shown" : "");
}

/// The kinds and chunks that occur, in drawing order.
std::set<std::pair<SpanKind, ChunkIndex>> styles_present(const Figure& figure) {
  std::set<std::pair<SpanKind, ChunkIndex>> styles;
  for (const Timeline& timeline : figure.timelines) {
    each_span(timeline, [&](const Span& span) { styles.emplace(span.kind, chunk_of(span, timeline)); });
  }
  return styles;
}

bool any_weights(const Figure& figure) {
  return std::any_of(figure.timelines.begin(), figure.timelines.end(),
                     [](const Timeline& timeline) { return timeline.weights.has_value(); });
}

/// Named by its look, so that images on the same page can share it.
std::string hatch_name(SpanKind kind, const std::string& color) {
  return fmt::format("hatch{}-{}", *hatch_of(kind), color.substr(1));
}
std::string hatches(const Figure& figure) {
  std::set<std::string> patterns;
  for (const auto& [kind, chunk] : styles_present(figure)) {
    if (!hatch_of(kind)) continue;
    const Rgb fill = fill_color(kind, chunk, figure.geometry.chunks);
    patterns.insert(fmt::format(
        "<pattern id=\"{}\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate({})\">"
        "<rect width=\"4\" height=\"4\" fill=\"{}\"/><rect width=\"1\" height=\"4\" fill=\"{}\" "
        "fill-opacity=\".5\"/></pattern>",
        hatch_name(kind, hex_color(fill)), *hatch_of(kind), hex_color(fill), needs_light_text(fill) ? "#fff" : "#000"));
  }
  return fmt::format("{}", fmt::join(patterns, ""));
}

// Style rules of timelines, besides those of all images.
std::string timeline_css(const Figure& figure) {
  std::string css =
      ".flopcast .idle{fill:#ececec}.flopcast .axis{stroke:#555;fill:none}"
      ".flopcast .move{stroke:#333;stroke-opacity:.55;stroke-width:.8;fill:none}\n"
      ".flopcast .l,.flopcast .d{text-anchor:middle;pointer-events:none}.flopcast .l{fill:#fff}.flopcast "
      ".d{fill:#000}\n";
  // In a grey print the lightest passes are as light as the idle colour.
  if (figure.options.in_print) css += ".flopcast .idle{fill:#fff;stroke:#888;stroke-width:.5}";
  if (any_weights(figure)) css += ".flopcast .update{fill:#111}";
  for (const auto& [kind, chunk] : styles_present(figure)) {
    const std::string color = hex_color(fill_color(kind, chunk, figure.geometry.chunks));
    css += fmt::format(".flopcast .{}{{fill:{}}}", css_class(kind, chunk),
                       hatch_of(kind) ? fmt::format("url(#{})", hatch_name(kind, color)) : color);
  }
  return css;
}
constexpr const char* kDarkCss =
    ".flopcast .idle{fill:#2b2f36}.flopcast .axis{stroke:#aaa}.flopcast .move{stroke:#ddd}.flopcast .l{fill:#fff}"
    ".flopcast .d{fill:#000}.flopcast .update{fill:#fff}";

/// The marks of the axis, as text and x.
std::vector<std::pair<std::string, double>> axis_marks(const Figure& figure) {
  std::vector<std::pair<std::string, double>> marks;
  const double range = static_cast<double>(figure.makespan) * figure.unit.per_tick;
  if (range <= 0.0) return marks;
  const double plot = figure.right - figure.geometry.left;
  const double label = text_width(rounded(range, 4), figure.letter()) + 24.0;
  const double step = round_step(range, std::clamp(static_cast<int>(plot / label), 1, 12));
  const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  for (int i = 0; i * step <= range * (1.0 + 1e-9); ++i) {
    marks.emplace_back(fmt::format("{:.{}f}", i * step, decimals), figure.geometry.left + plot * (i * step / range));
  }
  return marks;
}

void draw_axis(Canvas& canvas, const Figure& figure, double y) {
  std::string line =
      fmt::format("M{} {}H{}", coordinate(figure.geometry.left), coordinate(y), coordinate(figure.right));
  const auto marks = axis_marks(figure);
  for (const auto& [label, x] : marks) line += fmt::format("M{} {}v4", coordinate(x), coordinate(y));
  canvas.path("axis", line);
  for (const auto& [label, x] : marks) canvas.text(x, y + 16.0, " text-anchor=\"middle\"", label);
  const std::string name = figure.unit.name.empty() ? "time" : "time (" + figure.unit.name + ")";
  canvas.text((figure.geometry.left + figure.right) / 2, y + 31.0, " text-anchor=\"middle\" class=\"soft\"", name);
}

void draw_grid(Canvas& canvas, const Figure& figure, double top, double bottom) {
  std::string path;
  for (const auto& [label, x] : axis_marks(figure)) {
    path += fmt::format("M{} {}V{}", coordinate(x), coordinate(top), coordinate(bottom));
  }
  canvas.path("grid", path);
}

/// A title, or its part before the colon if the whole is too wide; `letter` is the mean width of a letter.
std::string title_within(const std::string& title, const Figure& figure, double letter) {
  const double room = figure.right - figure.geometry.left;
  return text_width(title, letter) <= room ? title : title.substr(0, title.find(": "));
}

/// As much of a text as fits next to `letters` letters.
std::string short_of(const std::string& text, const Figure& figure, std::size_t letters) {
  const double room = figure.right - figure.geometry.left;
  const auto fits = [&](const std::string& shown) {
    return text_width(shown + std::string(letters, '0'), figure.letter()) <= room;
  };
  if (fits(text)) return text;
  const std::string first = text.substr(0, text.find(','));
  return fits(first) ? first : "";
}

/// Returns the y below the panel.
double draw_panel(Canvas& canvas, const Figure& figure, const Timeline& timeline, double y) {
  if (figure.panel_titles && figure.options.titles) {
    constexpr double kBoldShare = 0.62;  // of its size, the mean letter of a bold text
    const std::string title =
        title_within(timeline.title.empty() ? "timeline" : timeline.title, figure, (figure.text + 1.0) * kBoldShare);
    canvas.put(
        "<text x=\"{}\" y=\"{}\"><tspan font-weight=\"bold\" font-size=\"{}\">{}</tspan>"
        "<tspan class=\"soft\" dx=\"12\">{}</tspan></text>\n",
        coordinate(figure.geometry.left), coordinate(y + 12.0), coordinate(figure.text + 1.0), escape_xml(title),
        escape_xml(short_of(summary(timeline, figure.unit), figure, title.size() + 4)));
    y += 20.0;
  }
  const double bottom = y + figure.row_pitch * timeline.rank_count();
  const double width = static_cast<double>(timeline.makespan()) * figure.geometry.per_tick;
  for (int rank = 0; rank < timeline.rank_count(); ++rank) {
    canvas.rectangle(" class=\"idle\"", figure.geometry.left, y + rank * figure.row_pitch, width,
                     figure.geometry.total_height());
  }
  draw_grid(canvas, figure, y, bottom);
  for (int rank = 0; rank < timeline.rank_count(); ++rank) {
    const double row = y + rank * figure.row_pitch;
    canvas.put("<g transform=\"translate(0 {})\">\n", coordinate(row));
    canvas.text(figure.geometry.left - (figure.options.in_print ? 3.0 : 8.0), figure.geometry.height / 2 + 4.0,
                figure.geometry.height < 12.0 ? " text-anchor=\"end\" font-size=\"9\"" : " text-anchor=\"end\"",
                "rank " + std::to_string(rank));
    draw_rank(canvas, timeline, static_cast<std::size_t>(rank), figure.geometry, figure.unit, figure.labels,
              figure.text);
    canvas.append("</g>\n");
  }
  return bottom;
}

/// The meaning of a shade: a chunk of the model, or one of its copies.
std::string_view chunk_word(const Figure& figure) {
  bool any_chunks = false;
  bool any_copies = false;
  for (const Timeline& timeline : figure.timelines) {
    if (chunk_count(timeline) == 1) continue;
    (timeline.model_copies > 1 ? any_copies : any_chunks) = true;
  }
  if (any_copies) return any_chunks ? "chunk or copy" : "copy";
  return "chunk";
}

std::string legend_words(const Figure& figure, SpanKind kind, ChunkIndex chunk) {
  std::string words(name_of(kind));
  if (!is_action(kind)) return fmt::format("{} {}", letter_of(kind), words);
  if (any_weights(figure)) {
    int newest = 0;
    for (const Timeline& timeline : figure.timelines) newest = std::max(newest, newest_version(timeline));
    return chunk == 0 ? words : fmt::format("{}, weights of {}", words, version_words(int{chunk}, newest));
  }
  if (figure.geometry.chunks > 1) words += fmt::format(", {} {}", chunk_word(figure), int{chunk});
  return words;
}

/// One entry for each colour that occurs, and how slices are numbered; wrapped to the width. Returns the y below it.
double draw_legend(Canvas& canvas, const Figure& figure, double y) {
  const auto of_class = [](const std::string& css) { return fmt::format(" class=\"{}\"", css); };
  std::vector<LegendEntry> entries;
  for (const auto& [kind, chunk] : styles_present(figure)) {
    const std::string words = legend_words(figure, kind, chunk);
    // Sends have one shade per chunk too, but share one entry.
    if (entries.empty() || entries.back().words != words) {
      entries.push_back({of_class(css_class(kind, chunk)), words});
    }
  }
  entries.push_back({of_class("idle"), "idle"});
  if (any_weights(figure)) entries.push_back({of_class("update"), "weights updated", true});
  const auto cut = [](const Timeline& timeline) { return timeline.slices_per_microbatch > 1; };
  if (std::any_of(figure.timelines.begin(), figure.timelines.end(), cut)) {
    entries.push_back({"", "3.1: slice 1 of microbatch 3"});
  }
  const LegendLook look = {.side = kLegendEntry,
                           .words = kLegendEntry + 5.0,
                           .baseline = 9.5,
                           .row = 18.0,
                           .after = 16.0,
                           .letter = figure.letter()};
  const Legend legend(std::move(entries), look, figure.geometry.left, figure.right);
  legend.draw(canvas, y);
  return y + look.row * legend.rows();
}

std::string describe(const Figure& figure) {
  std::string text = "Pipeline timeline: one row per rank, time to the right.";
  for (const Timeline& timeline : figure.timelines) {
    text += " " + (timeline.title.empty() ? "" : timeline.title + ": ") + summary(timeline, figure.unit) + ".";
  }
  return text;
}

std::string headline(const Figure& figure) {
  if (!figure.options.title.empty()) return figure.options.title;
  return figure.timelines.size() == 1 ? figure.timelines.front().title : "";
}

/// Returns the y below title and subtitle.
double draw_heading(Canvas& canvas, const Figure& figure) {
  double y = figure.options.in_print ? 2.0 : kImageMargin;
  if (!figure.options.titles) return y;
  const std::string title = headline(figure);
  if (!title.empty()) {
    canvas.text(figure.geometry.left, y + 12.0,
                fmt::format(" font-size=\"{}\" font-weight=\"bold\"",
                            coordinate(figure.text + (figure.text < 11.0 ? 1.0 : 4.0))),
                title_within(title, figure, 0.62 * (figure.text + (figure.text < 11.0 ? 1.0 : 4.0))));
    y += 20.0;
  }
  std::string subtitle = figure.options.subtitle;
  if (subtitle.empty() && figure.timelines.size() == 1) subtitle = summary(figure.timelines.front(), figure.unit);
  if (!subtitle.empty()) {
    canvas.text(figure.geometry.left, y + 10.0, " class=\"soft\"", short_of(subtitle, figure, 0));
    y += 20.0;
  }
  return y;
}

}  // namespace

std::string write_svg(const Timeline& timeline, const SvgOptions& options) {
  return write_svg(std::vector<Timeline>{timeline}, options);
}

std::string write_svg(const std::vector<Timeline>& timelines, const SvgOptions& options) {
  const Figure figure = lay_out(timelines, options);
  Canvas canvas;
  double y = draw_heading(canvas, figure);
  for (std::size_t i = 0; i < timelines.size(); ++i) {
    y = draw_panel(canvas, figure, timelines[i], i == 0 ? y : y + 10.0);
  }
  draw_axis(canvas, figure, y + 2.0);
  y = draw_legend(canvas, figure, y + 46.0);
  SvgFrame frame{"flopcast", std::max(options.width, figure.right), y + (options.in_print ? 1.0 : kImageMargin / 2)};
  frame.font_size = figure.text;
  frame.in_print = options.in_print;
  frame.definitions = hatches(figure);
  frame.title = headline(figure).empty() ? "Pipeline timeline" : headline(figure);
  frame.description = describe(figure);
  frame.css = timeline_css(figure);
  frame.dark_css = kDarkCss;
  frame.dark_mode = options.dark_mode;
  return canvas.finish(frame);
}

}  // namespace flopcast
