#include "reports/svg/charts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "reports/svg/canvas.hpp"

namespace flopcast {

namespace {

constexpr double kCellHeight = 30.0;
constexpr double kCellsTop = 72.0;
constexpr double kTitleHeight = 30.0;
constexpr double kKeyLine = 18.0;  // line height of the legend
constexpr double kMapLetter = 6.2;
constexpr double kScaleWidth = 200.0;
constexpr double kScaleHeight = 58.0;

constexpr std::array<Rgb, 10> kCividis = {{{0, 34, 78},
                                           {18, 53, 112},
                                           {59, 73, 108},
                                           {87, 93, 109},
                                           {112, 113, 115},
                                           {138, 134, 120},
                                           {165, 156, 116},
                                           {195, 179, 105},
                                           {225, 204, 85},
                                           {254, 232, 56}}};

Rgb color_at(double share) {
  const double place = std::clamp(share, 0.0, 1.0) * static_cast<double>(kCividis.size() - 1);
  const auto low = std::min(static_cast<std::size_t>(place), kCividis.size() - 2);
  return mixed(kCividis.at(low), kCividis.at(low + 1), place - static_cast<double>(low));
}

void draw_color_scale(Canvas& canvas, double left, double top, double length, int steps, Rgb (*color)(double share)) {
  for (int step = 0; step < steps; ++step) {
    canvas.put("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"8\" fill=\"{}\"/>\n",
               coordinate(left + length * step / steps), coordinate(top), coordinate(length / steps + 0.3),
               hex_color(color(step / (steps - 1.0))));
  }
}

class HeatMapDrawing {
 public:
  HeatMapDrawing(Canvas& canvas, const HeatMap& map, const FigureStyle& style)
      : canvas_(canvas), map_(map), style_(style) {
    FLOPCAST_CHECK(map.cells.size() == map.rows.size());
    std::size_t longest = map.row_title.size();
    for (const std::string& row : map.rows) longest = std::max(longest, row.size());
    left_ = kImageMargin + 8.0 + 7.0 * static_cast<double>(longest);
    for (const auto& row : map.cells) {
      FLOPCAST_CHECK(row.size() == map.columns.size());
      for (const HeatMap::Cell& cell : row) note_value(cell);
    }
    std::size_t widest = 7;
    for (const std::string& column : map.columns) widest = std::max(widest, column.size() + 2);
    cell_width_ = 7.5 * static_cast<double>(widest);
    if (style.in_print) {
      left_ = 8.0 + kMapLetter * static_cast<double>(longest);
      cell_width_ = (style.width - left_ - 1.0) / static_cast<double>(std::max<std::size_t>(1, map.columns.size()));
    }
    cells_top_ = kCellsTop - (style.titles ? 0.0 : kTitleHeight);
    list_keys();
  }

  double width() const {
    if (style_.in_print) return style_.width;
    constexpr double kLetter = 7.0;
    const double cells = cell_width_ * static_cast<double>(map_.columns.size());
    const double scale = kScaleWidth + 10.0 + kLetter * static_cast<double>(map_.value_name.size());
    return left_ + std::max(cells, scale) + kImageMargin;
  }
  double height() const { return cells_bottom() + kScaleHeight + kKeyLine * static_cast<double>(keys_.size()); }

  void draw() {
    if (style_.titles) canvas_.text(kImageMargin, 26.0, " font-weight=\"bold\" font-size=\"13\"", map_.title);
    canvas_.text(left_, cells_top_ - 26.0, " class=\"soft\"", map_.column_title);
    canvas_.text(left_ - 8.0, cells_top_ - 8.0, " class=\"soft\" text-anchor=\"end\"", map_.row_title);
    for (std::size_t column = 0; column < map_.columns.size(); ++column) {
      canvas_.text(left_ + cell_width_ * (static_cast<double>(column) + 0.5), cells_top_ - 8.0,
                   " text-anchor=\"middle\"", map_.columns[column]);
    }
    for (std::size_t row = 0; row < map_.rows.size(); ++row) draw_row(row);
    draw_keys();
    draw_scale();
  }

 private:
  enum class Key { kBest, kMisfit, kNone };

  double cells_bottom() const { return cells_top_ + kCellHeight * static_cast<double>(map_.rows.size()); }

  // Legend entries for the marks that occur.
  void list_keys() {
    bool any_best = false;
    bool any_misfit = false;
    bool any_empty = false;
    for (const auto& row : map_.cells) {
      for (const HeatMap::Cell& cell : row) {
        any_best = any_best || (cell.value && cell.fits);
        any_misfit = any_misfit || (cell.value && !cell.fits);
        any_empty = any_empty || !cell.value;
      }
    }
    if (any_best) keys_.push_back(Key::kBest);
    if (any_misfit) keys_.push_back(Key::kMisfit);
    if (any_empty) keys_.push_back(Key::kNone);
  }

  void draw_keys() {
    constexpr double kBox = 22.0;
    double y = cells_bottom() + kScaleHeight - 4.0;
    for (const Key key : keys_) {
      const char* const words = key == Key::kBest     ? "best that fits"
                                : key == Key::kMisfit ? "does not fit in memory"
                                                      : "no such layout";
      if (key == Key::kMisfit) {
        canvas_.text(left_ + kBox / 2, y + 10.0, " class=\"struck\" text-anchor=\"middle\"", "12");
      } else {
        canvas_.rectangle(key == Key::kBest ? " class=\"kept\"" : " class=\"missing\"", left_ + 1.0, y + 1.0,
                          kBox - 2.0, 11.0);
      }
      canvas_.text(left_ + kBox + 6.0, y + 10.0, " class=\"soft\"", words);
      y += kKeyLine;
    }
  }

  void note_value(const HeatMap::Cell& cell) {
    if (!cell.value) return;
    least_ = any_ ? std::min(least_, *cell.value) : *cell.value;
    most_ = any_ ? std::max(most_, *cell.value) : *cell.value;
    any_ = true;
    if (!cell.fits) return;
    const bool better = std::isnan(best_) || (map_.low_is_good ? *cell.value < best_ : *cell.value > best_);
    if (better) best_ = *cell.value;
  }
  double share(double value) const { return most_ > least_ ? (value - least_) / (most_ - least_) : 0.5; }

  void draw_row(std::size_t row) {
    const double y = cells_top_ + kCellHeight * static_cast<double>(row);
    canvas_.text(left_ - 8.0, y + kCellHeight / 2 + 4.0, " text-anchor=\"end\"", map_.rows[row]);
    for (std::size_t column = 0; column < map_.columns.size(); ++column) {
      draw_cell(map_.cells[row][column], map_.rows[row], map_.columns[column],
                left_ + cell_width_ * static_cast<double>(column), y);
    }
  }

  void draw_cell(const HeatMap::Cell& cell, const std::string& row, const std::string& column, double x, double y) {
    const std::string place = fmt::format("{} {}, {} {}", map_.row_title, row, map_.column_title, column);
    const std::string said = cell.value ? fmt::format("{:.4g} {}", *cell.value, map_.value_name) : "none";
    const std::string title = fmt::format("{}: {}{}{}", place, said, cell.note.empty() ? "" : ", ", cell.note);
    const double width = cell_width_ - 2.0;
    const double height = kCellHeight - 2.0;
    if (!cell.value) {
      canvas_.rectangle(" class=\"none\"", x, y, width, height, title);
      return;
    }
    const Rgb fill = color_at(share(*cell.value));
    const bool best = cell.fits && *cell.value == best_;
    canvas_.put("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"{}><title>{}</title></rect>\n",
                coordinate(x), coordinate(y), coordinate(width), coordinate(height), hex_color(fill),
                best ? " class=\"best\"" : "", escape_xml(title));
    canvas_.text(x + width / 2, y + kCellHeight / 2 + 3.0,
                 fmt::format(" text-anchor=\"middle\" style=\"fill:{}{}\"", needs_light_text(fill) ? "#fff" : "#111",
                             cell.fits ? "" : ";text-decoration:line-through"),
                 fmt::format("{:.4g}", *cell.value));
  }

  void draw_scale() {
    if (!any_) return;
    const double y = cells_bottom() + 24.0;
    constexpr int kSteps = 40;
    const double length =
        std::min(kScaleWidth, width() - left_ - kMapLetter * static_cast<double>(map_.value_name.size()) - 12.0);
    draw_color_scale(canvas_, left_, y, length, kSteps, &color_at);
    canvas_.text(left_, y + 20.0, " class=\"soft\"", fmt::format("{:.4g}", least_));
    canvas_.text(left_ + length, y + 20.0, " class=\"soft\" text-anchor=\"end\"", fmt::format("{:.4g}", most_));
    canvas_.text(left_ + length + 10.0, y + 8.0, " class=\"soft\"", map_.value_name);
  }

  Canvas& canvas_;
  const HeatMap& map_;
  FigureStyle style_;
  std::vector<Key> keys_;
  double cells_top_ = kCellsTop;
  double left_ = 0.0;
  double cell_width_ = 0.0;
  bool any_ = false;
  double best_ = std::numeric_limits<double>::quiet_NaN();  // NaN until a cell fits
  double least_ = 0.0;
  double most_ = 0.0;
};

}  // namespace

std::string write_heat_map_svg(const HeatMap& map, const FigureStyle& style) {
  Canvas canvas;
  HeatMapDrawing drawing(canvas, map, style);
  drawing.draw();
  SvgFrame frame{"heat", drawing.width(), drawing.height(), style.in_print ? text_size(style) : 12.0, map.title};
  frame.css =
      ".heat .none,.heat .missing{fill:url(#hatch)}.heat .hatch{stroke:#bbb}.heat .best,.heat .kept{stroke:#d55e00;"
      "stroke-width:3}.heat .kept{fill:none}.heat .struck{text-decoration:line-through}";
  frame.dark_css = ".heat .hatch{stroke:#444}";
  frame.dark_mode = style.dark_mode;
  frame.in_print = style.in_print;
  frame.definitions =
      "<pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
      "patternTransform=\"rotate(45)\"><path class=\"hatch\" d=\"M0 0V6\"/></pattern>";
  return canvas.finish(frame);
}

namespace {

constexpr double kFabricWidth = 960.0;
constexpr double kFabricNames = 96.0;  // margin at the left for names
constexpr double kRowDistance = 92.0;
constexpr double kBoxHeight = 20.0;
constexpr double kRowsTop = 64.0;
constexpr double kLegendHeight = 48.0;
constexpr double kLeastBox = 3.0;  // pixels

Rgb load_color(double load) {
  constexpr Rgb kEmpty = {190, 196, 204};
  constexpr Rgb kFull = {213, 40, 0};
  return mixed(kEmpty, kFull, std::clamp(load, 0.0, 1.0));
}

// Merges neighbouring boxes if there are too many to be seen.
FabricPicture::Row merged_row(const FabricPicture::Row& row, std::size_t most) {
  if (row.boxes.size() <= most) return row;
  FabricPicture::Row merged{row.name, {}};
  for (std::size_t index = 0; index < most; ++index) {
    const std::size_t first = index * row.boxes.size() / most;
    const std::size_t past = (index + 1) * row.boxes.size() / most;
    FabricPicture::Box box = row.boxes[first];
    for (std::size_t other = first; other < past; ++other) {
      box.up = std::max(box.up, row.boxes[other].up);
      box.down = std::max(box.down, row.boxes[other].down);
    }
    if (past - first > 1) box.name = fmt::format("{} to {}", row.boxes[first].name, row.boxes[past - 1].name);
    merged.boxes.push_back(std::move(box));
  }
  return merged;
}

class FabricDrawing {
 public:
  FabricDrawing(Canvas& canvas, const FabricPicture& picture) : canvas_(canvas), picture_(picture) {
    const auto most = static_cast<std::size_t>(inner() / kLeastBox);
    for (const FabricPicture::Row& row : picture.rows) rows_.push_back(merged_row(row, most));
  }

  double height() const {
    return kRowsTop + kRowDistance * static_cast<double>(std::max<std::size_t>(1, rows_.size()) - 1) + kBoxHeight +
           kLegendHeight;
  }

  void draw() {
    canvas_.text(kImageMargin, 26.0, " font-weight=\"bold\" font-size=\"13\"", picture_.title);
    canvas_.text(kImageMargin, 44.0, " class=\"soft\"", picture_.note);
    for (std::size_t row = 0; row + 1 < rows_.size(); ++row) draw_links(row);
    for (std::size_t row = 0; row < rows_.size(); ++row) draw_boxes(row);
    if (picture_.has_loads) draw_legend();
  }

 private:
  static double inner() { return kFabricWidth - kFabricNames - 2.0 * kImageMargin; }
  double top(std::size_t row) const { return kRowsTop + kRowDistance * static_cast<double>(rows_.size() - 1 - row); }
  double middle(std::size_t row, std::size_t box) const {
    return kImageMargin + kFabricNames +
           inner() * (static_cast<double>(box) + 0.5) / static_cast<double>(rows_[row].boxes.size());
  }
  double box_width(std::size_t row) const {
    constexpr double kWidest = 84.0;
    const double room = inner() / static_cast<double>(rows_[row].boxes.size());
    return std::min(kWidest, std::max(kLeastBox - 1.0, room * 0.8));
  }

  void draw_links(std::size_t row) {
    const std::size_t count = rows_[row].boxes.size();
    const std::size_t parents = rows_[row + 1].boxes.size();
    for (std::size_t index = 0; index < count; ++index) {
      const FabricPicture::Box& box = rows_[row].boxes[index];
      const std::size_t parent = index * parents / count;
      const double apart = std::min(3.0, box_width(row) / 4.0);
      draw_link(middle(row, index) - apart, top(row), middle(row + 1, parent) - apart, box.up,
                fmt::format("{} up", box.name));
      draw_link(middle(row, index) + apart, top(row), middle(row + 1, parent) + apart, box.down,
                fmt::format("{} down", box.name));
    }
  }
  void draw_link(double x, double y, double to_x, double load, const std::string& name) {
    const double above = y - kRowDistance + kBoxHeight;
    const std::string said = picture_.has_loads ? fmt::format("{}: {} % used", name, percent(load)) : name;
    canvas_.put("<path d=\"M{} {}L{} {}\" stroke=\"{}\" stroke-width=\"{}\" fill=\"none\"><title>{}</title></path>\n",
                coordinate(x), coordinate(y), coordinate(to_x), coordinate(above), hex_color(load_color(load)),
                coordinate(0.8 + 2.4 * std::clamp(load, 0.0, 1.0)), escape_xml(said));
  }

  void draw_boxes(std::size_t row) {
    canvas_.text(kImageMargin, top(row) + kBoxHeight / 2 + 4.0, "", rows_[row].name);
    const double width = box_width(row);
    for (std::size_t index = 0; index < rows_[row].boxes.size(); ++index) {
      const FabricPicture::Box& box = rows_[row].boxes[index];
      const double x = middle(row, index) - width / 2;
      std::string title = box.name;
      if (!box.note.empty()) title += ": " + box.note;
      canvas_.rectangle(" class=\"box\" rx=\"2\"", x, top(row), width, kBoxHeight, title);
      if (text_width(box.name, kLetterOf11) <= width) {
        canvas_.text(middle(row, index), top(row) + kBoxHeight / 2 + 4.0, " text-anchor=\"middle\"", box.name);
      }
    }
  }

  void draw_legend() {
    const double y = height() - 24.0;
    const double left = kImageMargin + kFabricNames;
    constexpr int kSteps = 24;
    constexpr double kScale = 192.0;
    draw_color_scale(canvas_, left, y, kScale, kSteps, &load_color);
    canvas_.text(left + kScale + 8.0, y + 8.0, " class=\"soft\"",
                 "utilisation of a link, 0 to 100 %, while the step waits");
  }

  Canvas& canvas_;
  const FabricPicture& picture_;
  std::vector<FabricPicture::Row> rows_;
};

}  // namespace

std::string write_fabric_svg(const FabricPicture& picture, bool dark_mode) {
  Canvas canvas;
  FabricDrawing drawing(canvas, picture);
  drawing.draw();
  SvgFrame frame{"fabric", kFabricWidth, drawing.height(), 11, picture.title};
  frame.css = ".fabric .box{fill:#e8eef6;stroke:#5b6b80;stroke-width:.8}";
  frame.dark_css = ".fabric .box{fill:#26303c;stroke:#8a9ab0}";
  frame.dark_mode = dark_mode;
  return canvas.finish(frame);
}

}  // namespace flopcast
