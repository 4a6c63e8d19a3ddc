#include "reports/timeline/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "model/error/error.hpp"
#include "reports/timeline/span_text.hpp"
#include "reports/timeline/svg_rows.hpp"
#include "reports/timeline/svg_style.hpp"

namespace flopcast {
namespace {

constexpr double kMargin = 16.0;
constexpr double kLegendEntry = 11.0;  // side of a legend square

/// What is common to all panels of a figure.
struct Figure {
  const std::vector<Timeline>& timelines;
  const SvgOptions& options;
  Ticks makespan = 0;  ///< of the longest timeline
  DisplayUnit unit;
  RowGeometry geometry;
  double row_pitch = 0.0;
  double right = 0.0;
  bool panel_titles = false;
};

void append(std::string& svg, double x, double y, std::string_view attributes, std::string_view text) {
  fmt::format_to(std::back_inserter(svg), "<text x=\"{}\" y=\"{}\"{}>{}</text>\n", coordinate(x), coordinate(y),
                 attributes, escape_xml(text));
}

double text_width(std::string_view text, double size) {
  return static_cast<double>(text.size()) * size * 0.56;
}

std::vector<StreamKind> side_lanes(const std::vector<Timeline>& timelines) {
  std::set<StreamKind> streams;
  for (const Timeline& timeline : timelines) {
    for (const auto& spans : timeline.ranks) {
      for (const Span& span : spans) streams.insert(span.stream);
    }
  }
  streams.erase(StreamKind::kCompute);
  return {streams.begin(), streams.end()};
}

double row_height(int most_ranks) {
  return most_ranks <= 8 ? 22.0 : most_ranks <= 16 ? 18.0 : most_ranks <= 32 ? 14.0 : 10.0;
}

Figure lay_out(const std::vector<Timeline>& timelines, const SvgOptions& options) {
  Figure figure{timelines, options, 0, {}, {}, 0.0, options.width - kMargin, timelines.size() > 1};
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
  figure.geometry.left = kMargin + text_width(widest, 11.0) + 8.0;
  const double plot = std::max(50.0, figure.right - figure.geometry.left);
  figure.right = figure.geometry.left + plot;
  figure.geometry.per_tick = figure.makespan > 0 ? plot / static_cast<double>(figure.makespan) : 0.0;
  figure.row_pitch = figure.geometry.total_height() + (most_ranks <= 32 ? 3.0 : 1.5);
  return figure;
}

std::string summary(const Timeline& timeline, const DisplayUnit& unit) {
  const int ranks = timeline.rank_count();
  if (timeline.makespan() <= 0) return fmt::format("{} rank{}, nothing ran", ranks, ranks == 1 ? "" : "s");
  return fmt::format("{} rank{}, makespan {}, idle {:.1f} %", ranks, ranks == 1 ? "" : "s",
                     time_text(static_cast<double>(timeline.makespan()), unit), 100.0 * idle_share(timeline));
}

/// Kinds and chunks that occur, in drawing order.
std::set<std::pair<SpanKind, int>> styles_present(const Figure& figure) {
  std::set<std::pair<SpanKind, int>> styles;
  for (const Timeline& timeline : figure.timelines) {
    for (const auto& spans : timeline.ranks) {
      for (const Span& span : spans) styles.emplace(span.kind, chunk_of(span, timeline.rank_count()));
    }
  }
  return styles;
}

std::string style_sheet(const Figure& figure) {
  std::string css =
      ".flopcast{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:11px}\n"
      ".flopcast text{fill:#222}.flopcast .bg{fill:#fff}.flopcast .idle{fill:#ececec}\n"
      ".flopcast .grid{stroke:#000;stroke-opacity:.13;fill:none}.flopcast .axis{stroke:#555;fill:none}\n"
      ".flopcast .move{stroke:#333;stroke-opacity:.55;stroke-width:.8;fill:none}.flopcast .soft{fill:#666}\n"
      ".flopcast .l,.flopcast .d{text-anchor:middle;pointer-events:none}\n"
      ".flopcast .l{fill:#fff}.flopcast .d{fill:#000}\n";
  for (const auto& [kind, chunk] : styles_present(figure)) {
    css += fmt::format(".flopcast .{}{{fill:{}}}", css_class(kind, chunk),
                       hex_color(fill_color(kind, chunk, figure.geometry.chunks)));
  }
  if (figure.options.dark_mode) {
    css +=
        "\n@media (prefers-color-scheme:dark){.flopcast text{fill:#ddd}.flopcast .bg{fill:#16181c}"
        ".flopcast .idle{fill:#2b2f36}.flopcast .grid{stroke:#fff}.flopcast .axis{stroke:#aaa}"
        ".flopcast .move{stroke:#ddd}.flopcast .soft{fill:#aaa}.flopcast .l{fill:#fff}.flopcast .d{fill:#000}}";
  }
  return css;
}

/// 1, 2 or 5 times a power of ten: the smallest step with at most `most` steps in the range.
double nice_step(double range, int most) {
  const double least = range / most;
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1.0 - 1e-9)) return factor * power;
  }
  return 10.0 * power;
}

/// The positions of the axis, as text and x.
std::vector<std::pair<std::string, double>> axis_marks(const Figure& figure) {
  std::vector<std::pair<std::string, double>> marks;
  const double range = static_cast<double>(figure.makespan) * figure.unit.per_tick;
  if (range <= 0.0) return marks;
  const double plot = figure.right - figure.geometry.left;
  const double label = text_width(rounded(range, 4), 11.0) + 24.0;
  const double step = nice_step(range, std::clamp(static_cast<int>(plot / label), 1, 12));
  const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  for (int i = 0; i * step <= range * (1.0 + 1e-9); ++i) {
    marks.emplace_back(fmt::format("{:.{}f}", i * step, decimals), figure.geometry.left + plot * (i * step / range));
  }
  return marks;
}

void draw_axis(std::string& svg, const Figure& figure, double y) {
  fmt::format_to(std::back_inserter(svg), "<path class=\"axis\" d=\"M{} {}H{}", coordinate(figure.geometry.left),
                 coordinate(y), coordinate(figure.right));
  const auto marks = axis_marks(figure);
  for (const auto& [label, x] : marks) svg += fmt::format("M{} {}v4", coordinate(x), coordinate(y));
  svg += "\"/>\n";
  for (const auto& [label, x] : marks) append(svg, x, y + 16.0, " text-anchor=\"middle\"", label);
  const std::string name = figure.unit.name.empty() ? "time" : "time (" + figure.unit.name + ")";
  append(svg, (figure.geometry.left + figure.right) / 2, y + 31.0, " text-anchor=\"middle\" class=\"soft\"", name);
}

void draw_grid(std::string& svg, const Figure& figure, double top, double bottom) {
  std::string path;
  for (const auto& [label, x] : axis_marks(figure)) {
    path += fmt::format("M{} {}V{}", coordinate(x), coordinate(top), coordinate(bottom));
  }
  if (!path.empty()) svg += "<path class=\"grid\" d=\"" + path + "\"/>\n";
}

void draw_transfers(std::string& svg, const Figure& figure, const Timeline& timeline, double top) {
  std::string path;
  const auto middle = [&](std::uint32_t rank) {
    return top + static_cast<double>(rank) * figure.row_pitch + figure.geometry.height / 2;
  };
  for (const Transfer& transfer : timeline.transfers) {
    const double toward = transfer.to_rank > transfer.from_rank ? 1.0 : -1.0;
    const double offset = toward * figure.geometry.height / 2;
    path += fmt::format("M{} {}L{} {}", coordinate(figure.geometry.x(transfer.start)),
                        coordinate(middle(transfer.from_rank) + offset), coordinate(figure.geometry.x(transfer.end)),
                        coordinate(middle(transfer.to_rank) - offset));
  }
  if (!path.empty()) svg += "<path class=\"move\" d=\"" + path + "\"/>\n";
}

/// Returns the y below the panel.
double draw_panel(std::string& svg, const Figure& figure, const Timeline& timeline, double y) {
  if (figure.panel_titles) {
    const std::string title = timeline.title.empty() ? "timeline" : timeline.title;
    fmt::format_to(std::back_inserter(svg),
                   "<text x=\"{}\" y=\"{}\"><tspan font-weight=\"bold\" font-size=\"12\">{}</tspan>"
                   "<tspan class=\"soft\" dx=\"12\">{}</tspan></text>\n",
                   coordinate(figure.geometry.left), coordinate(y + 12.0), escape_xml(title),
                   escape_xml(summary(timeline, figure.unit)));
    y += 20.0;
  }
  const double bottom = y + figure.row_pitch * timeline.rank_count();
  const double width = static_cast<double>(timeline.makespan()) * figure.geometry.per_tick;
  for (int rank = 0; rank < timeline.rank_count(); ++rank) {
    fmt::format_to(std::back_inserter(svg), "<rect class=\"idle\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n",
                   coordinate(figure.geometry.left), coordinate(y + rank * figure.row_pitch), coordinate(width),
                   coordinate(figure.geometry.total_height()));
  }
  draw_grid(svg, figure, y, bottom);
  for (int rank = 0; rank < timeline.rank_count(); ++rank) {
    const double row = y + rank * figure.row_pitch;
    fmt::format_to(std::back_inserter(svg), "<g transform=\"translate(0 {})\">\n", coordinate(row));
    append(svg, figure.geometry.left - 8.0, figure.geometry.height / 2 + 4.0,
           figure.geometry.height < 12.0 ? " text-anchor=\"end\" font-size=\"9\"" : " text-anchor=\"end\"",
           "rank " + std::to_string(rank));
    draw_row(svg, timeline, static_cast<std::size_t>(rank), figure.geometry, figure.unit);
    svg += "</g>\n";
  }
  if (figure.options.show_transfers) draw_transfers(svg, figure, timeline, y);
  return bottom;
}

/// What a shade stands for: a chunk of the model, or one of its copies.
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

std::string legend_words(const Figure& figure, SpanKind kind, int chunk) {
  std::string words(name_of(kind));
  if (!is_action(kind)) return fmt::format("{} {}", letter_of(kind), words);
  if (figure.geometry.chunks > 1) words += fmt::format(", {} {}", chunk_word(figure), chunk);
  return words;
}

/// One entry for each colour that occurs, and how slices are numbered; wrapped to the width. Returns the y below it.
double draw_legend(std::string& svg, const Figure& figure, double y) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (const auto& [kind, chunk] : styles_present(figure)) {
    const std::string words = legend_words(figure, kind, chunk);
    // Sends come in a shade a chunk too, but one entry says what they are.
    if (entries.empty() || entries.back().second != words) entries.emplace_back(css_class(kind, chunk), words);
  }
  entries.emplace_back("idle", "idle");
  const auto cut = [](const Timeline& timeline) { return timeline.slices_per_microbatch > 1; };
  if (std::any_of(figure.timelines.begin(), figure.timelines.end(), cut)) {
    entries.emplace_back("", "3.1: slice 1 of microbatch 3");
  }
  double x = figure.geometry.left;
  for (const auto& [css, words] : entries) {
    const double square = css.empty() ? 0.0 : kLegendEntry + 5.0;
    const double width = square + text_width(words, 11.0) + 16.0;
    if (x + width > figure.right && x > figure.geometry.left) {
      x = figure.geometry.left;
      y += 18.0;
    }
    if (!css.empty()) {
      fmt::format_to(std::back_inserter(svg), "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n",
                     css, coordinate(x), coordinate(y), kLegendEntry, kLegendEntry);
    }
    append(svg, x + square, y + 9.5, "", words);
    x += width;
  }
  return y + 18.0;
}

std::string describe(const Figure& figure) {
  std::string text = "Pipeline timeline: one row a rank, time to the right.";
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
double draw_heading(std::string& svg, const Figure& figure) {
  double y = kMargin;
  const std::string title = headline(figure);
  if (!title.empty()) {
    append(svg, figure.geometry.left, y + 12.0, " font-size=\"15\" font-weight=\"bold\"", title);
    y += 20.0;
  }
  std::string subtitle = figure.options.subtitle;
  if (subtitle.empty() && figure.timelines.size() == 1) subtitle = summary(figure.timelines.front(), figure.unit);
  if (!subtitle.empty()) {
    append(svg, figure.geometry.left, y + 10.0, " class=\"soft\"", subtitle);
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
  std::string body;
  double y = draw_heading(body, figure);
  for (std::size_t i = 0; i < timelines.size(); ++i) {
    y = draw_panel(body, figure, timelines[i], i == 0 ? y : y + 10.0);
  }
  draw_axis(body, figure, y + 2.0);
  y = draw_legend(body, figure, y + 46.0);
  const std::string width = coordinate(figure.right + kMargin);
  const std::string height = coordinate(y + kMargin / 2);
  const std::string title = headline(figure).empty() ? "Pipeline timeline" : headline(figure);
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"flopcast\" role=\"img\" width=\"{0}\" height=\"{1}\" "
             "viewBox=\"0 0 {0} {1}\">\n<title>{2}</title>\n<desc>{3}</desc>\n<style>\n{4}\n</style>\n"
             "<rect class=\"bg\" width=\"{0}\" height=\"{1}\"/>\n",
             width, height, escape_xml(title), escape_xml(describe(figure)), style_sheet(figure)) +
         body + "</svg>\n";
}

}  // namespace flopcast
