#include "reports/timeline/svg_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "reports/timeline/span_text.hpp"
#include "reports/timeline/svg_style.hpp"

namespace flopcast {
namespace {

constexpr double kOwnRectangle = 1.2;  // narrower spans have no tooltip: nobody can point at them
constexpr double kSmallest = 0.2;      // narrower spans are drawn as what takes most of this width

struct Box {
  double x = 0.0;
  double y = 0.0;
  double width = 0.0;
  double height = 0.0;
};

using Style = std::pair<SpanKind, int>;  // kind and chunk

/// Draws narrow spans of one lane as one path a style. Times that lie within kSmallest of each other are decided by
/// majority.
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

  void write(std::string& svg) {
    flush();
    for (const auto& [style, path] : paths_) {
      fmt::format_to(std::back_inserter(svg), "<path class=\"{}\" d=\"{}\"/>\n", css_class(style.first, style.second),
                     path_text(path));
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

std::string tooltip(const Span& span, int slices, const DisplayUnit& unit) {
  std::string text(name_of(span.kind));
  if (is_action(span.kind) || span.kind == SpanKind::kSend) {
    text += fmt::format(" of {}, stage {}", unit_words(span.action, slices), span.action.stage);
  }
  return text + fmt::format("\nstart {}, duration {}", time_text(static_cast<double>(span.start), unit, 6),
                            time_text(static_cast<double>(span.end - span.start), unit, 6));
}

std::string label_of(const Span& span, int slices) {
  return is_action(span.kind) ? number_text(span.action, slices) : std::string(1, letter_of(span.kind));
}

void draw_label(std::string& svg, const std::string& label, const Box& box, bool light) {
  const double size = std::min(11.0, box.height * 0.7);
  if (size < 5.0 || box.width < static_cast<double>(label.size()) * size * 0.6 + 1.0) return;
  fmt::format_to(std::back_inserter(svg), "<text class=\"{}\" x=\"{}\" y=\"{}\"{}>{}</text>\n", light ? "l" : "d",
                 coordinate(box.x + box.width / 2), coordinate(box.y + box.height / 2 + size * 0.36),
                 size < 11.0 ? fmt::format(" font-size=\"{}\"", coordinate(size)) : "", label);
}

void draw_box(std::string& svg, const std::string& tooltip, const Box& box, const Style& style) {
  // A hairline of background keeps neighbours apart without touching where a span starts.
  const double gap = std::min(0.7, box.width * 0.12);
  fmt::format_to(std::back_inserter(svg),
                 "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}</title></rect>\n",
                 css_class(style.first, style.second), coordinate(box.x), coordinate(box.y),
                 coordinate(box.width - gap), coordinate(box.height), tooltip);
}

/// The vertical place of each span: its stream's lane; the halves of an overlapped pair share the compute lane.
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

}  // namespace

void draw_row(std::string& svg, const Timeline& timeline, std::size_t rank, const RowGeometry& geometry,
              const DisplayUnit& unit) {
  const std::vector<Span>& spans = timeline.ranks[rank];
  const std::vector<Box> boxes = place(spans, geometry);
  const int slices = timeline.slices_per_microbatch;
  NarrowSpans narrow;
  std::string labels;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Style style{spans[i].kind, chunk_of(spans[i], timeline.rank_count())};
    if (boxes[i].width < kOwnRectangle) {
      narrow.add(boxes[i], style);
      continue;
    }
    draw_box(svg, tooltip(spans[i], slices, unit), boxes[i], style);
    draw_label(labels, label_of(spans[i], slices), boxes[i],
               needs_light_text(fill_color(style.first, style.second, geometry.chunks)));
  }
  narrow.write(svg);
  svg += labels;
}

}  // namespace flopcast
