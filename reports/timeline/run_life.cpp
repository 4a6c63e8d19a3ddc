#include "reports/timeline/writers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/words.hpp"
#include "reports/svg/canvas.hpp"

namespace flopcast {

namespace {

constexpr double kHourSeconds = 3'600.0;
constexpr int kMostRows = 20;

struct RowLength {
  std::string_view name;
  double seconds;
};
constexpr RowLength kRowLengths[] = {{"hour", kHourSeconds},         {"6 h", 6.0 * kHourSeconds},
                                     {"day", 24.0 * kHourSeconds},   {"week", 168.0 * kHourSeconds},
                                     {"4 wk", 672.0 * kHourSeconds}, {"26 wk", 4'368.0 * kHourSeconds}};

struct PhaseLook {
  char letter;
  const char* color;
  std::string_view words;
};
// Indexed by RunPhase; Okabe and Ito's colours.
constexpr std::array<PhaseLook, kRunPhases> kLooks = {{{'d', "#e69f00", "undetected failure"},
                                                       {'w', "#882255", "waiting for replacement"},
                                                       {'r', "#0072b2", "restart"},
                                                       {'x', "#d55e00", "lost work"},
                                                       {'c', "#56b4e9", "checkpoint"},
                                                       {'f', "#cc79a7", "fewer replicas"},
                                                       {'s', "#009e73", "slow"},
                                                       {'m', "#999999", "maintenance"}}};

using LostShares = std::array<double, kRunPhases>;

struct LifeGrid {
  RowLength row = kRowLengths[0];
  int rows = 0;
  int columns = 0;  // per row
  double seconds = 0.0;
  std::vector<LostShares> lost;  // by cell, as fractions of its length
  double cell_seconds() const { return row.seconds / columns; }
  // Fraction of a cell that the run covers.
  double filled(int cell) const { return std::clamp((seconds - cell * cell_seconds()) / cell_seconds(), 0.0, 1.0); }
  double trained(int cell) const {
    double share = filled(cell);
    for (const double lost_share : lost[static_cast<std::size_t>(cell)]) share -= lost_share;
    return std::max(share, 0.0);
  }
  double trained_in_row(int number) const {
    double all = 0.0;
    double run = 0.0;
    for (int column = 0; column < columns; ++column) {
      all += trained(number * columns + column);
      run += filled(number * columns + column);
    }
    return run > 0.0 ? all / run : 0.0;
  }
};

LifeGrid grid_of(const RunLife& life, int columns) {
  LifeGrid grid;
  grid.seconds = static_cast<double>(life.outcome.clock) * kNanosecond;
  grid.columns = columns;
  for (const RowLength& length : kRowLengths) {
    grid.row = length;
    grid.rows = std::max(1, static_cast<int>(std::ceil(grid.seconds / length.seconds)));
    if (grid.rows <= kMostRows) break;
  }
  grid.lost.assign(static_cast<std::size_t>(grid.rows) * static_cast<std::size_t>(columns), {});
  const double cell = grid.cell_seconds();
  for (const RunSpan& span : life.spans) {
    const double from = static_cast<double>(span.from) * kNanosecond / cell;
    const double to = static_cast<double>(span.to) * kNanosecond / cell;
    const auto last = std::min(static_cast<std::size_t>(to), grid.lost.size() - 1);
    for (auto at = static_cast<std::size_t>(from); at <= last; ++at) {
      const double begin = std::max(from, static_cast<double>(at));
      const double end = std::min(to, static_cast<double>(at) + 1.0);
      if (end > begin) grid.lost[at][static_cast<std::size_t>(span.phase)] += (end - begin) * span.lost;
    }
  }
  return grid;
}

std::string life_cell(const LifeGrid& grid, int cell, bool ascii) {
  const double filled = grid.filled(cell);
  if (filled <= 0.0) return " ";
  const LostShares& lost = grid.lost[static_cast<std::size_t>(cell)];
  const auto worst = std::max_element(lost.begin(), lost.end());
  constexpr double kHalf = 0.5;
  if (*worst > kHalf * filled) {
    return std::string(1, kLooks.at(static_cast<std::size_t>(worst - lost.begin())).letter);
  }
  const double trained = grid.trained(cell) / filled;
  if (ascii) {
    const int tenths = static_cast<int>(std::lround(10.0 * trained));
    return tenths >= 10 ? "#" : std::to_string(tenths);
  }
  static constexpr std::string_view kEighths[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const int eighths = std::clamp(static_cast<int>(std::lround(8.0 * trained)), 1, 8);
  return std::string(kEighths[eighths - 1]);
}

std::array<double, kRunPhases> life_losses(const RunLife& life) {
  std::array<double, kRunPhases> lost{};
  for (std::size_t phase = 0; phase < kRunPhases; ++phase) {
    lost.at(phase) = static_cast<double>(life.outcome.lost_in(static_cast<RunPhase>(phase))) * kNanosecond;
  }
  return lost;
}

}  // namespace

std::string draw_life(const RunLife& life, const std::string& title, const TerminalOptions& options) {
  constexpr int kMargin = 18;  // columns for the label and the share
  constexpr int kFewest = 14;
  constexpr int kDays = 7;
  const int room = std::max(kFewest, options.width - kMargin);
  const LifeGrid grid = grid_of(life, room / kDays * kDays);
  std::string text =
      fmt::format("{}: {}, {} interruptions\n", title, time_in_days(grid.seconds), life.outcome.interruptions);
  for (int row = 0; row < grid.rows; ++row) {
    std::string cells;
    for (int column = 0; column < grid.columns; ++column)
      cells += life_cell(grid, row * grid.columns + column, options.ascii);
    text +=
        fmt::format("{:>5} {:>3} |{}| {:>3.0f} %\n", grid.row.name, row + 1, cells, 100.0 * grid.trained_in_row(row));
  }
  text += fmt::format("a column is {}; its {} shows the share spent training", time_in_days(grid.cell_seconds()),
                      options.ascii ? "digit, in tenths (# for all)," : "height");
  const std::array<double, kRunPhases> lost = life_losses(life);
  for (std::size_t phase = 0; phase < kRunPhases; ++phase) {
    if (lost.at(phase) <= 0.0) continue;
    text +=
        fmt::format("\n  {} {:<24} {}", kLooks.at(phase).letter, kLooks.at(phase).words, time_in_days(lost.at(phase)));
  }
  return text + "\n";
}

std::string write_life_svg(const RunLife& life, const std::string& title, bool dark_mode) {
  constexpr int kCellsOfRow = 336;
  constexpr double kCellWidth = 2.25;
  constexpr double kRowHeight = 34.0;
  constexpr double kGap = 8.0;
  constexpr double kLeft = 78.0;
  constexpr double kRight = 52.0;
  constexpr double kTop = 40.0;
  constexpr double kLegendRow = 18.0;
  const LifeGrid grid = grid_of(life, kCellsOfRow);
  const double width = kLeft + kCellsOfRow * kCellWidth + kRight;
  Canvas canvas;
  for (int row = 0; row < grid.rows; ++row) {
    const double top = kTop + row * (kRowHeight + kGap);
    canvas.text(kLeft - kGap, top + kRowHeight * 0.65, " text-anchor=\"end\"",
                fmt::format("{} {}", grid.row.name, row + 1));
    double cells = 0.0;
    for (int column = 0; column < grid.columns; ++column) cells += grid.filled(row * grid.columns + column);
    canvas.rectangle(" class=\"trains\"", kLeft, top, cells * kCellWidth, kRowHeight);
    for (int column = 0; column < grid.columns; ++column) {
      const LostShares& lost = grid.lost[static_cast<std::size_t>(row * grid.columns + column)];
      double above = top;
      for (std::size_t phase = 0; phase < kRunPhases; ++phase) {
        const double height = std::min(lost.at(phase) * kRowHeight, top + kRowHeight - above);
        constexpr double kVisible = 0.05;
        if (height < kVisible) continue;
        canvas.rectangle(fmt::format(" fill=\"{}\"", kLooks.at(phase).color), kLeft + column * kCellWidth, above,
                         kCellWidth, height);
        above += height;
      }
    }
    canvas.text(kLeft + kCellsOfRow * kCellWidth + kGap, top + kRowHeight * 0.65, "",
                fmt::format("{:.0f} %", 100.0 * grid.trained_in_row(row)));
  }
  const std::array<double, kRunPhases> lost = life_losses(life);
  std::vector<LegendEntry> entries;
  for (std::size_t phase = 0; phase < kRunPhases; ++phase) {
    if (lost.at(phase) <= 0.0) continue;
    entries.push_back({fmt::format(" fill=\"{}\"", kLooks.at(phase).color),
                       fmt::format("{} {}", kLooks.at(phase).words, time_in_days(lost.at(phase)))});
  }
  const double legend_top = kTop + grid.rows * (kRowHeight + kGap) + kGap;
  constexpr LegendLook kLook = {.side = 10.0, .words = 16.0, .baseline = 9.0, .gap = 16.0, .row = kLegendRow};
  const Legend legend(std::move(entries), kLook, kLeft, width - kRight);
  legend.draw(canvas, legend_top);
  const int legend_rows = std::max(1, legend.rows());
  SvgFrame frame{"life", width, legend_top + legend_rows * kLegendRow + kGap};
  frame.title = fmt::format("{}: {}, {} interruptions", title, time_in_days(grid.seconds), life.outcome.interruptions);
  frame.description =
      "Rows of consecutive time; the height at each moment is the share spent training, and colours show the causes of "
      "lost time.";
  frame.css = ".life .trains{fill:#dbe7ee}";
  frame.dark_css = ".life .trains{fill:#33424c}";
  frame.dark_mode = dark_mode;
  canvas.text(kLeft, kTop - 16.0, " font-weight=\"bold\"", frame.title);
  return canvas.finish(frame);
}

std::string write_life_page(const RunLife& life, const std::string& title, const std::string& answer) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n"
      "<style>body{{font-family:Helvetica,Arial,sans-serif;margin:2em auto;max-width:900px;padding:0 1em}}"
      "svg{{max-width:100%;height:auto}}@media (prefers-color-scheme:dark){{body{{background:#16181c;color:#ddd}}}}"
      "</style></head>\n<body><h1>{0}</h1>\n<p>{1}</p>\n{2}</body></html>\n",
      escape_xml(title), escape_xml(answer), write_life_svg(life, title));
}

}  // namespace flopcast
