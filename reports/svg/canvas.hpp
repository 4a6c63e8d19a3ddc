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
/// True if white text has a higher contrast than black on this background (contrast ratio of WCAG 2.1).
bool needs_light_text(Rgb background);
std::string hex_color(Rgb color);
/// Linear interpolation between two colours; share 0 gives `from`, 1 gives `to`.
Rgb mixed(Rgb from, Rgb to, double share);

/// Okabe & Ito 2008: distinguishable with every kind of colour vision.
inline constexpr std::array<const char*, 7> kPalette = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                        "#e69f00", "#56b4e9", "#000000"};

/// Replaces `&`, `<`, `>` and quotes with entities, and what XML forbids (control characters, broken UTF-8) with
/// U+FFFD.
std::string escape_xml(std::string_view text);
/// Two decimals without trailing zeros: "12.5".
std::string coordinate(double value);
/// Approximate width of a text in pixels, from the mean width of a letter.
double text_width(std::string_view text, double letter);
/// Mean letter width of Helvetica at 11 px, with some margin.
inline constexpr double kLetterOf11 = 6.2;

/// The look of a figure, independent of its contents.
struct FigureStyle {
  double width = 960.0;    ///< pixels, 96 per inch
  bool in_print = false;   ///< size in millimetres; letters and lines are as large as paper needs them
  bool titles = true;      ///< above the drawing and its panels; papers use captions instead
  bool dark_mode = false;  ///< follow the reader's prefers-color-scheme
};
/// 6 pt: smaller text is illegible on paper.
inline constexpr double kSmallestText = 8.0;
/// Text size of a figure in pixels; smaller in a narrow column.
inline double text_size(const FigureStyle& style) {
  constexpr double kNarrow = 480.0;
  constexpr double kInColumn = 9.0;
  constexpr double kUsual = 11.0;
  return style.width < kNarrow ? kInColumn : kUsual;
}

/// Margin around every drawing, in pixels.
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
  /// The range of the values, widened to whole decades on a logarithmic axis and to round steps on a linear one.
  AxisScale(const std::vector<double>& values, bool logarithmic);

  double position(double value) const;
  /// About eight marks at most, at powers of ten or round steps.
  std::vector<AxisMark> marks() const;
  double decades() const { return high_ - low_; }  ///< logarithmic axis only

 private:
  double low_ = 0.0;  // log10 on a logarithmic axis
  double high_ = 1.0;
  double step_ = 1.0;
  bool logarithmic_ = false;
};

/// The frame of an SVG image.
struct SvgFrame {
  const char* name;    ///< class of the image, which prefixes every rule of its style sheet, as images share a page
  double width = 0.0;  ///< pixels
  double height = 0.0;
  double font_size = 11.0;
  std::string title = {};
  std::string description = {};
  std::string css = {};       ///< besides the rules for text, .bg, .soft and .grid
  std::string dark_css = {};  ///< the same for readers who prefer dark pages
  bool dark_mode = false;     ///< follow the reader's prefers-color-scheme
  std::string definitions = {};
  bool in_print = false;  ///< width and height in millimetres
};

/// An image under construction: valid XML, self-contained, without scripts; the same calls give the same bytes.
class Canvas {
 public:
  template <class... Values>
  void put(fmt::format_string<Values...> form, Values&&... values) {
    fmt::format_to(std::back_inserter(svg_), form, std::forward<Values>(values)...);
  }
  void append(std::string_view svg) { svg_ += svg; }
  const std::string& drawn() const { return svg_; }
  /// `attributes` must begin with a blank, or be empty.
  void text(double x, double y, std::string_view attributes, std::string_view words);
  void rectangle(std::string_view attributes, double x, double y, double width, double height);
  /// Adds a tooltip.
  void rectangle(std::string_view attributes, double x, double y, double width, double height, std::string_view title);
  /// Draws nothing if the path is empty.
  void path(std::string_view css, std::string_view path);

  std::string finish(const SvgFrame& frame) const;

 private:
  std::string svg_;
};

/// A square with text next to it.
struct LegendEntry {
  std::string square;  ///< attributes; empty: text only
  std::string words;
  bool narrow = false;  ///< a bar instead of the square
};
/// Sizes in pixels.
struct LegendLook {
  double side = 0.0;      ///< of the squares
  double words = 0.0;     ///< where the text begins
  double baseline = 0.0;  ///< of the text, below the top of the square
  double gap = 0.0;       ///< between entries
  double row = 0.0;
  double after = 0.0;  ///< space after the text, which counts as part of its entry
  double letter = kLetterOf11;
};
/// Lays entries out in rows from `left`; only the first entry of a row may extend beyond `right`.
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
