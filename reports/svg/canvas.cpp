#include "reports/svg/canvas.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

constexpr int kMostMarks = 8;

double linear_light(std::uint8_t channel) {
  const double value = channel / 255.0;
  return value <= 0.03928 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
}

/// Length of the well-formed UTF-8 sequence at the start of the text, if XML allows the character; 0 otherwise.
std::size_t xml_character(std::string_view text) {
  const auto byte = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 || first == '\t' || first == '\n' || first == '\r' ? 1 : 0;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool surrogate = first == 0xED && byte(1) >= 0xA0;
  const bool too_large = first == 0xF4 && byte(1) >= 0x90;
  const bool not_a_character = first == 0xEF && byte(1) == 0xBF && byte(2) >= 0xBE;
  return overlong || surrogate || too_large || not_a_character ? 0 : length;
}

std::string style_sheet(const SvgFrame& frame) {
  std::string css = fmt::format(
      ".{0}{{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:{1}px}}\n"
      ".{0} text{{fill:#222}}.{0} .bg{{fill:#fff}}.{0} .soft{{fill:#666}}"
      ".{0} .grid{{stroke:#000;stroke-opacity:.13;fill:none}}\n{2}",
      frame.name, coordinate(frame.font_size), frame.css);
  if (frame.dark_mode) {
    css += fmt::format(
        "\n@media (prefers-color-scheme:dark){{.{0} text{{fill:#ddd}}.{0} .bg{{fill:#16181c}}.{0} .soft{{fill:#aaa}}"
        ".{0} .grid{{stroke:#fff}}{1}}}",
        frame.name, frame.dark_css);
  }
  return css;
}

}  // namespace

bool needs_light_text(Rgb background) {
  const double luminance = 0.2126 * linear_light(background.red) + 0.7152 * linear_light(background.green) +
                           0.0722 * linear_light(background.blue);
  return 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05;
}

std::string hex_color(Rgb color) {
  return fmt::format("#{:02x}{:02x}{:02x}", color.red, color.green, color.blue);
}

Rgb mixed(Rgb from, Rgb to, double share) {
  const auto mix = [share](std::uint8_t a, std::uint8_t b) {
    return static_cast<std::uint8_t>(std::lround(a + (b - a) * share));
  };
  return {mix(from.red, to.red), mix(from.green, to.green), mix(from.blue, to.blue)};
}

std::string escape_xml(std::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const std::size_t length = xml_character(text);
    if (length == 0) {
      escaped += "\xEF\xBF\xBD";
    } else if (text[0] == '&') {
      escaped += "&amp;";
    } else if (text[0] == '<') {
      escaped += "&lt;";
    } else if (text[0] == '>') {
      escaped += "&gt;";
    } else if (text[0] == '"') {
      escaped += "&quot;";
    } else {
      escaped += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return escaped;
}

std::string coordinate(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

double text_width(std::string_view text, double letter) {
  return letter * static_cast<double>(text.size());
}

double round_step(double range, int most) {
  const double least = range / most;
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1.0 - 1e-9)) return factor * power;
  }
  return 10.0 * power;
}

AxisScale::AxisScale(const std::vector<double>& values, bool logarithmic) : logarithmic_(logarithmic) {
  if (values.empty()) return;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (logarithmic) {
    FLOPCAST_CHECK(*least > 0.0);
    low_ = std::floor(std::log10(*least));
    high_ = std::max(low_ + 1.0, std::ceil(std::log10(*most)));
    step_ = std::max(1.0, std::ceil((high_ - low_) / kMostMarks));
    return;
  }
  const double range = *most > *least ? *most - *least : std::max(1.0, std::abs(*most));
  step_ = round_step(range, kMostMarks);
  low_ = std::floor(*least / step_) * step_;
  high_ = std::max(low_ + step_, std::ceil(*most / step_) * step_);
}

double AxisScale::position(double value) const {
  return ((logarithmic_ ? std::log10(value) : value) - low_) / (high_ - low_);
}

std::vector<AxisMark> AxisScale::marks() const {
  std::vector<AxisMark> marks;
  const int count = static_cast<int>(std::floor((high_ - low_) / step_ + 1e-9));
  for (int index = 0; index <= count; ++index) {
    const double value = low_ + index * step_;
    marks.push_back({(value - low_) / (high_ - low_), value,
                     logarithmic_ ? fmt::format("1e{}", static_cast<int>(value)) : fmt::format("{:.6g}", value)});
  }
  return marks;
}

Legend::Legend(std::vector<LegendEntry> entries, const LegendLook& look, double left, double right)
    : entries_(std::move(entries)), look_(look) {
  Place next{left, 0};
  for (const LegendEntry& entry : entries_) {
    const double width = words_at(entry) + text_width(entry.words, look.letter) + look.after;
    if (next.x > left && next.x + width > right) next = {left, next.row + 1};
    places_.push_back(next);
    next.x += width + look.gap;
  }
}

void Legend::draw(Canvas& canvas, double top) const {
  constexpr double kBar = 2.0;
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    const LegendEntry& entry = entries_[index];
    const double x = places_[index].x;
    const double y = top + look_.row * places_[index].row;
    if (!entry.square.empty()) {
      canvas.rectangle(entry.square, entry.narrow ? x + look_.side / 2 - kBar / 2 : x, y,
                       entry.narrow ? kBar : look_.side, look_.side);
    }
    canvas.text(x + words_at(entry), y + look_.baseline, "", entry.words);
  }
}

void Canvas::text(double x, double y, std::string_view attributes, std::string_view words) {
  put("<text x=\"{}\" y=\"{}\"{}>{}</text>\n", coordinate(x), coordinate(y), attributes, escape_xml(words));
}

void Canvas::rectangle(std::string_view attributes, double x, double y, double width, double height) {
  put("<rect{} x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", attributes, coordinate(x), coordinate(y),
      coordinate(width), coordinate(height));
}

void Canvas::rectangle(std::string_view attributes, double x, double y, double width, double height,
                       std::string_view title) {
  put("<rect{} x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}</title></rect>\n", attributes, coordinate(x),
      coordinate(y), coordinate(width), coordinate(height), escape_xml(title));
}

void Canvas::path(std::string_view css, std::string_view path) {
  if (!path.empty()) put("<path class=\"{}\" d=\"{}\"/>\n", css, path);
}

std::string Canvas::finish(const SvgFrame& frame) const {
  constexpr double kMillimetres = 25.4 / 96.0;  // a pixel of CSS
  const auto length = [&frame](double pixels) {
    return frame.in_print ? fmt::format("{:.2f}mm", pixels * kMillimetres) : coordinate(pixels);
  };
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"{0}\" role=\"img\" width=\"{1}\" height=\"{2}\" "
      "viewBox=\"0 0 {3} {4}\">\n",
      frame.name, length(frame.width), length(frame.height), coordinate(frame.width), coordinate(frame.height));
  if (!frame.title.empty()) svg += fmt::format("<title>{}</title>\n", escape_xml(frame.title));
  if (!frame.description.empty()) svg += fmt::format("<desc>{}</desc>\n", escape_xml(frame.description));
  svg += fmt::format("<style>\n{}\n</style>\n", style_sheet(frame));
  if (!frame.definitions.empty()) svg += fmt::format("<defs>{}</defs>\n", frame.definitions);
  svg += fmt::format("<rect class=\"bg\" width=\"{}\" height=\"{}\"/>\n", coordinate(frame.width),
                     coordinate(frame.height));
  return svg + svg_ + "</svg>\n";
}

}  // namespace flopcast
