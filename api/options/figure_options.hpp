#pragma once

#include <optional>
#include <string>

#include "base/text/form.hpp"
#include "reports/svg/canvas.hpp"

namespace flopcast {

/// --svg FILE and the look of the figure: --svg-width, --no-title, --svg-dark. The file's ending selects the format:
/// .png and .pdf are converted from SVG by rsvg-convert (Debian: librsvg2-bin), which the program needs for nothing
/// else.
class FigureOptions {
 public:
  void add_to(Form& form, const std::string& help);
  const std::optional<std::string>& file() const { return file_; }
  /// Throws ConfigError on an invalid width, on an ending that is not a figure's, and on options without a figure
  /// (`drawn`: another flag of the command draws one); EnvironmentError if the file could not be written or converted.
  /// Commands that run for a long time call it before they start.
  void check(bool drawn = false) const;
  /// Throws ConfigError, with the flag, if the file's ending is not a figure's.
  static void check_file(const char* flag, const std::string& file);
  FigureStyle style() const;
  /// Writes the drawing to --svg's file.
  void write(const std::string& svg) const { write_to(*file_, svg); }
  /// Writes the drawing to the file of another flag.
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
