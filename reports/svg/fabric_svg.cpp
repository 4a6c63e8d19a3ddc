#include "reports/svg/charts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/text/words.hpp"
#include "reports/svg/canvas.hpp"

namespace flopcast {

namespace {

constexpr double kFabricWidth = 960.0;
constexpr double kFabricNames = 96.0;  // at the left
constexpr double kRowDistance = 92.0;
constexpr double kBoxHeight = 20.0;
constexpr double kRowsTop = 64.0;
constexpr double kLegendHeight = 48.0;
constexpr double kLeastBox = 3.0;  // pixels

Rgb load_color(double load) {
  constexpr Rgb kEmpty = {190, 196, 204};
  constexpr Rgb kFull = {213, 40, 0};
  const auto between = [load](std::uint8_t from, std::uint8_t to) {
    return static_cast<std::uint8_t>(std::lround(from + (to - from) * std::clamp(load, 0.0, 1.0)));
  };
  return {between(kEmpty.red, kFull.red), between(kEmpty.green, kFull.green), between(kEmpty.blue, kFull.blue)};
}

// Neighbours as one, where they are too many to be seen.
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
    for (int step = 0; step < kSteps; ++step) {
      canvas_.put("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"8\" fill=\"{}\"/>\n",
                  coordinate(left + kScale * step / kSteps), coordinate(y), coordinate(kScale / kSteps + 0.3),
                  hex_color(load_color(step / (kSteps - 1.0))));
    }
    canvas_.text(left + kScale + 8.0, y + 8.0, " class=\"soft\"", "0 to 100 % of a link, while the step waits");
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
