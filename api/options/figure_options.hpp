#pragma once

#include <optional>
#include <string>

#include "base/text/form.hpp"
#include "reports/svg/canvas.hpp"

namespace flopcast {

/// --svg FILE and how the figure looks: --svg-width, --no-title, --svg-dark. The file's ending says what it is: .png
/// and .pdf are made of the SVG by rsvg-convert (Debian: librsvg2-bin), which this program needs for nothing else.
class FigureOptions {
 public:
  void add_to(Form& form, const std::string& help);
  const std::optional<std::string>& file() const { return file_; }
  /// Throws ConfigError on a width that is none, on an ending that is none of a figure, and on options without a figure
  /// (`drawn`: another flag of the command draws one); EnvironmentError where the file could not be written, or not be
  /// made. For commands that work for long before they write.
  void check(bool drawn = false) const;
  /// Throws ConfigError, with the flag, where a file's ending is none of a figure.
  static void check_file(const char* flag, const std::string& file);
  FigureStyle style() const;
  /// The drawing to --svg's file.
  void write(const std::string& svg) const { write_to(*file_, svg); }
  /// To the file of another flag.
  void write_to(const std::string& file, const std::string& svg) const;

 private:
  std::optional<std::string> file_;
  std::optional<std::string> width_;
  bool no_title_ = false;
  bool dark_ = false;
};

/// "flopcast 0.1.0"
std::string tool_text();

}  // namespace flopcast
