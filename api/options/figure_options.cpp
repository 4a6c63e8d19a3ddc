#include "api/options/figure_options.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "base/host/files.hpp"
#include "base/host/processes.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"

namespace flopcast {

namespace {

constexpr double kPixelsPerInch = 96.0;  // CSS pixels
constexpr const char* kConverter = "rsvg-convert";

// Pixels of a length with a unit; nullopt if it is not one.
std::optional<double> pixels_of(const std::string& text) {
  constexpr double kMillimetresPerInch = 25.4;
  constexpr double kPointsPerInch = 72.0;
  const std::vector<std::pair<std::string, double>> units = {{"mm", kPixelsPerInch / kMillimetresPerInch},
                                                             {"cm", 10.0 * kPixelsPerInch / kMillimetresPerInch},
                                                             {"in", kPixelsPerInch},
                                                             {"pt", kPixelsPerInch / kPointsPerInch},
                                                             {"px", 1.0}};
  for (const auto& [unit, pixels] : units) {
    if (!text.ends_with(unit)) continue;
    const std::optional<double> number = parse_number(text.substr(0, text.size() - unit.size()));
    return number ? std::optional(*number * pixels) : std::nullopt;
  }
  return std::nullopt;
}

std::string ending_of(const std::string& file) {
  return lower_case(std::filesystem::path(file).extension().string());
}
bool is_converted(const std::string& file) {
  return ending_of(file) == ".png" || ending_of(file) == ".pdf";
}

std::string converter() {
  const std::optional<std::string> program = program_on_path(kConverter);
  if (program) return *program;
  throw EnvironmentError(
      fmt::format("{} is needed for .png and .pdf files, but not installed\n  help: apt-get install "
                  "librsvg2-bin, or give a file that ends in .svg",
                  kConverter));
}

// The figure as PNG or PDF. A PNG has 300 dots per inch for a figure with a print size, otherwise two pixels per CSS
// pixel.
std::string converted(const std::string& svg, const std::string& ending, bool in_print) {
  const PrivateFolder folder;
  const std::string source = folder.path() + "/figure.svg";
  const std::string target = folder.path() + "/figure" + ending;
  write_file(source, svg);
  std::vector<std::string> words = {converter(), "--format", ending.substr(1), "--output", target};
  if (ending == ".png" && in_print) {
    words.insert(words.end(), {"--dpi-x", "300", "--dpi-y", "300"});
  } else if (ending == ".png") {
    words.insert(words.end(), {"--zoom", "2"});
  }
  words.push_back(source);
  const ChildEnd end = run_child(words, standard_streams());
  if (end.signal != 0 || end.exit_code != 0) throw EnvironmentError(fmt::format("{} failed", kConverter));
  return read_file(target);
}

}  // namespace

void FigureOptions::add_to(Form& form, const std::string& help) {
  form.add_output("--svg", file_, help + "; also .png or .pdf");
  form.add_option("--svg-width", width_, "LENGTH", "print width: 84mm, 3.3in, 240pt; text is at least 6 pt");
  form.add_flag("--no-title", no_title_, "omit titles above figures, for papers with captions");
  form.add_flag("--svg-dark", dark_, "follow the reader's dark mode, for web pages");
}

void FigureOptions::check_file(const char* flag, const std::string& file) {
  if (file == kStandardInput) {
    throw ConfigError({flag, "cannot print a figure", "", "give a file, such as figure.svg or /dev/stdout"});
  }
  const std::string ending = ending_of(file);
  if (ending.empty() || ending == ".svg" || is_converted(file) || is_pipe_or_device(file)) return;
  throw ConfigError({flag, fmt::format("cannot write a figure as {}", ending), "", "valid endings: .svg, .png, .pdf"});
}

void FigureOptions::check(bool drawn) const {
  if (!file_ && !drawn) {
    const char* const idle = width_ ? "--svg-width" : no_title_ ? "--no-title" : dark_ ? "--svg-dark" : nullptr;
    if (idle != nullptr) throw ConfigError({idle, "applies to figures only", "", "add --svg FILE"});
  }
  (void)style();
  if (!file_) return;
  check_file("--svg", *file_);
  if (is_converted(*file_)) (void)converter();
}

FigureStyle FigureOptions::style() const {
  FigureStyle style;
  style.titles = !no_title_;
  style.dark_mode = dark_;
  if (!width_) return style;
  constexpr double kNarrowest = 150.0;  // 40 mm
  constexpr double kWidest = 20'000.0;  // 5 m: posters
  const std::optional<double> pixels = pixels_of(*width_);
  if (!pixels || !(*pixels >= kNarrowest && *pixels <= kWidest)) {
    throw ConfigError({"--svg-width", fmt::format("\"{}\" is not a valid width of a figure", *width_), "",
                       "give 40mm to 500cm, in mm, cm, in, pt or px, such as 84mm"});
  }
  style.width = *pixels;
  style.in_print = true;
  return style;
}

void FigureOptions::write_to(const std::string& file, const std::string& svg) const {
  write_file(file, is_converted(file) ? converted(svg, ending_of(file), width_.has_value()) : svg);
}

std::string tool_text() {
  return "flopcast " FLOPCAST_VERSION;
}

}  // namespace flopcast
