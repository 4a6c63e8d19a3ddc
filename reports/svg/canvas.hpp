#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace flopcast {

struct Rgb {
  std::uint8_t red = 0;
  std::uint8_t green = 0;
  std::uint8_t blue = 0;
};
/// Whether white text stands out more than black on it: contrast ratio of WCAG 2.1.
bool needs_light_text(Rgb background);
std::string hex_color(Rgb color);
/// The colour at a share of the way from one to the other.
Rgb mixed(Rgb from, Rgb to, double share);

/// Okabe & Ito 2008: told apart with every kind of colour vision.
inline constexpr std::array<const char*, 7> kPalette = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                        "#e69f00", "#56b4e9", "#000000"};

/// `&`, `<`, `>`, quotes as entities; what XML forbids (control characters, broken UTF-8) as U+FFFD.
std::string escape_xml(std::string_view text);
/// Two decimals without trailing zeros: "12.5".
std::string coordinate(double value);
/// About what a text takes, in pixels, where a mean letter takes so many.
double text_width(std::string_view text, double letter);
/// The mean letter of Helvetica at 11 px, with some room.
inline constexpr double kLetterOf11 = 6.2;

/// How a figure looks, whatever it shows.
struct FigureStyle {
  double width = 960.0;  ///< pixels, 96 to an inch
  bool in_print =
      false;           ///< the file tells its size in millimetres; letters and lines are as large as paper needs them
  bool titles = true;  ///< above the drawing and its panels; a paper has its own
  bool dark_mode = false;  ///< follow the reader's prefers-color-scheme
};
/// 6 pt: nothing smaller can be read on paper.
inline constexpr double kSmallestText = 8.0;
/// Of the words of a figure, in pixels: smaller ones in a narrow column.
inline double text_size(const FigureStyle& style) {
  constexpr double kNarrow = 480.0;
  constexpr double kInColumn = 9.0;
  constexpr double kUsual = 11.0;
  return style.width < kNarrow ? kInColumn : kUsual;
}

/// Around every drawing, in pixels.
inline constexpr double kImageMargin = 16.0;

/// 1, 2 or 5 times a power of ten: the smallest step with at most `most` steps in the range.
double round_step(double range, int most);

struct AxisMark {
  double position = 0.0;  ///< between 0 and 1 along the axis
  double value = 0.0;
  std::string label;
};

/// Maps values to positions along an axis of length one.
class AxisScale {
 public:
  /// The range of the values, widened to whole decades of a logarithmic axis and to round steps of a linear one.
  AxisScale(const std::vector<double>& values, bool logarithmic);

  double position(double value) const;
  /// At most about eight, powers of ten or round steps.
  std::vector<AxisMark> marks() const;
  double decades() const { return high_ - low_; }  ///< of a logarithmic axis

 private:
  double low_ = 0.0;  // log10 on a logarithmic axis
  double high_ = 1.0;
  double step_ = 1.0;
  bool logarithmic_ = false;
};

/// What surrounds a drawing.
struct SvgFrame {
  const char* name;    ///< class of the image, ahead of every rule of its style sheet, as images share a page
  double width = 0.0;  ///< pixels
  double height = 0.0;
  double font_size = 11.0;
  std::string title = {};
  std::string description = {};
  std::string css = {};       ///< beside that of text, .bg, .soft and .grid
  std::string dark_css = {};  ///< the same for readers who prefer dark pages
  bool dark_mode = false;     ///< follow the reader's prefers-color-scheme
  std::string definitions = {};
  bool in_print = false;  ///< width and height in millimetres
};

/// An image in the making: valid XML, self-contained, without scripts; the same calls give the same bytes.
class Canvas {
 public:
  template <class... Values>
  void put(fmt::format_string<Values...> form, Values&&... values) {
    fmt::format_to(std::back_inserter(svg_), form, std::forward<Values>(values)...);
  }
  void append(std::string_view svg) { svg_ += svg; }
  const std::string& drawn() const { return svg_; }
  /// `attributes` begin with a blank, or are empty.
  void text(double x, double y, std::string_view attributes, std::string_view words);
  void rectangle(std::string_view attributes, double x, double y, double width, double height);
  /// With a tooltip.
  void rectangle(std::string_view attributes, double x, double y, double width, double height, std::string_view title);
  /// Nothing where the path is empty.
  void path(std::string_view css, std::string_view path);

  std::string finish(const SvgFrame& frame) const;

 private:
  std::string svg_;
};

/// A square and words beside it.
struct LegendEntry {
  std::string square;  ///< its attributes; empty: words alone
  std::string words;
  bool narrow = false;  ///< a bar instead of the square
};
/// Sizes in pixels.
struct LegendLook {
  double side = 0.0;      ///< of the squares
  double words = 0.0;     ///< where they begin
  double baseline = 0.0;  ///< of the words, below the top of the square
  double gap = 0.0;       ///< between entries
  double row = 0.0;
  double after = 0.0;  ///< room behind the words, which counts for their entry
  double letter = kLetterOf11;
};
/// Entries in rows from `left`, none beyond `right` that is not the first of its row.
class Legend {
 public:
  Legend(std::vector<LegendEntry> entries, const LegendLook& look, double left, double right);
  int rows() const { return places_.empty() ? 0 : places_.back().row + 1; }
  void draw(Canvas& canvas, double top) const;

 private:
  struct Place {
    double x = 0.0;
    int row = 0;
  };
  double words_at(const LegendEntry& entry) const { return entry.square.empty() ? 0.0 : look_.words; }

  std::vector<LegendEntry> entries_;
  LegendLook look_;
  std::vector<Place> places_;
};

}  // namespace flopcast
