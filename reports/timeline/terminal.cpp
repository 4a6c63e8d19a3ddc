#include "reports/timeline/writers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text/words.hpp"

namespace flopcast {
namespace {

constexpr int kLeastColumns = 10;
constexpr std::array<std::string_view, 10> kSubscripts = {"₀", "₁", "₂", "₃", "₄", "₅", "₆", "₇", "₈", "₉"};

struct Cell {
  std::string text;
  std::optional<SpanKind> kind;  ///< empty: idle
  bool odd_chunk = false;
};

/// The mapping from ticks to columns, and the text written into them.
struct Grid {
  double ticks_per_column = 1.0;
  std::int64_t columns = 0;
  int digits = 0;  ///< digits of the microbatch numbers; 0: letters only
  bool rounded = false;

  std::int64_t column_of(Ticks time) const { return std::llround(static_cast<double>(time) / ticks_per_column); }
};

struct Drawing {
  const Timeline& timeline;
  const TerminalOptions& options;
  std::vector<std::vector<Span>> rows;  ///< rows to draw: pairs one after the other, other streams first
  Grid grid;
};

/// Halves of a pair one after the other; the compute stream last, so that it covers what overlaps with it.
std::vector<Span> in_drawing_order(const std::vector<Span>& spans) {
  std::vector<Span> drawn;
  for (const Span& span : spans) {
    // Exchanges happen inside passes, which cover them.
    if (span.stream != StreamKind::kCompute && !is_exchange(span.kind)) drawn.push_back(span);
  }
  const std::size_t first_compute = drawn.size();
  for (const Span& span : spans) {
    if (span.stream != StreamKind::kCompute) continue;
    Span next = span;
    if (drawn.size() > first_compute && drawn.back().end > next.start) {
      Span& before = drawn.back();
      before.end = next.start = std::min(before.start + (next.end - before.start) / 2, next.end);
    }
    drawn.push_back(next);
  }
  return drawn;
}

int digits_of(std::uint32_t number) {
  return static_cast<int>(std::to_string(number).size());
}

int columns_needed(const Span& span, int digits) {
  return span.kind == SpanKind::kForward ? digits : digits + 1;
}

/// Greatest common divisor of all times; 0 if everything happens at 0.
Ticks common_unit(const Drawing& drawing) {
  Ticks unit = 0;
  for (const std::vector<Span>& row : drawing.rows) {
    for (const Span& span : row) unit = std::gcd(unit, std::gcd(span.start, span.end));
  }
  return unit;
}

int longest_label(const Drawing& drawing) {
  int digits = 1;
  for (const std::vector<Span>& row : drawing.rows) {
    for (const Span& span : row) {
      if (is_action(span.kind)) digits = std::max(digits, digits_of(span.action.microbatch));
    }
  }
  return digits;
}

/// The fewest columns per common unit of time with which every action can show its number.
std::int64_t columns_per_unit(const Drawing& drawing, Ticks unit, int digits) {
  std::int64_t columns = 1;
  for (const std::vector<Span>& row : drawing.rows) {
    for (const Span& span : row) {
      const Ticks units = (span.end - span.start) / unit;
      if (!is_action(span.kind) || units == 0) continue;
      columns = std::max(columns, (columns_needed(span, digits) + units - 1) / units);
    }
  }
  return columns;
}

bool labels_fit(const Drawing& drawing, const Grid& grid) {
  for (const std::vector<Span>& row : drawing.rows) {
    for (const Span& span : row) {
      const std::int64_t columns = grid.column_of(span.end) - grid.column_of(span.start);
      if (is_action(span.kind) && span.end > span.start && columns < columns_needed(span, grid.digits)) return false;
    }
  }
  return true;
}

Grid choose_grid(const Drawing& drawing, std::int64_t available) {
  const Ticks makespan = drawing.timeline.makespan();
  const Ticks unit = common_unit(drawing);
  const Ticks units = makespan / unit;
  const int longest = longest_label(drawing);
  for (const int digits : {longest, 1}) {
    const std::int64_t per_unit = columns_per_unit(drawing, unit, digits);
    if (units <= available / per_unit) {
      return {static_cast<double>(unit) / static_cast<double>(per_unit), units * per_unit, digits, false};
    }
  }
  Grid grid{static_cast<double>(makespan) / static_cast<double>(available), available, longest, true};
  for (const int digits : {longest, 1}) {
    grid.digits = digits;
    if (labels_fit(drawing, grid)) return grid;
  }
  if (units <= available) return {static_cast<double>(unit), units, 0, false};
  grid.digits = 0;
  return grid;
}

std::string_view fill_of(SpanKind kind, bool ascii) {
  switch (kind) {
    case SpanKind::kForward:
      return " ";
    case SpanKind::kBackward:
      return ascii ? "-" : "─";
    case SpanKind::kInputGradient:
      return "I";
    case SpanKind::kWeightGradient:
      return "W";
    default:
      return {};
  }
}

std::string cell_text(const Drawing& drawing, const Span& span, bool odd_chunk, std::int64_t at) {
  if (!is_action(span.kind)) return {letter_of(span.kind)};
  std::string label = std::to_string(span.action.microbatch);
  const auto digits = static_cast<std::size_t>(drawing.grid.digits);
  if (label.size() > digits) label.erase(0, label.size() - digits);
  const auto index = static_cast<std::size_t>(at);
  if (index >= label.size()) return std::string(fill_of(span.kind, drawing.options.ascii));
  if (odd_chunk && !drawing.options.ascii) {
    return std::string(kSubscripts.at(static_cast<std::size_t>(label[index] - '0')));
  }
  return {label[index]};
}

std::vector<Cell> idle_row(const Drawing& drawing) {
  const Cell idle{drawing.options.ascii ? "." : "·", std::nullopt, false};
  return std::vector<Cell>(static_cast<std::size_t>(drawing.grid.columns), idle);
}

std::vector<Cell> numbered_row(const Drawing& drawing, const std::vector<Span>& spans) {
  std::vector<Cell> cells = idle_row(drawing);
  for (const Span& span : spans) {
    const bool odd = chunk_of(span, drawing.timeline) % 2 == 1;
    const std::int64_t first = drawing.grid.column_of(span.start);
    for (std::int64_t c = first; c < std::min(drawing.grid.column_of(span.end), drawing.grid.columns); ++c) {
      cells[static_cast<std::size_t>(c)] = {cell_text(drawing, span, odd, c - first), span.kind, odd};
    }
  }
  return cells;
}

/// Time that each kind, in even and odd chunks, takes of one column of a row.
using Shares = std::array<std::array<double, 2>, kSpanKindCount>;

void add_shares(const Drawing& drawing, const Span& span, std::vector<Shares>& columns) {
  const double width = drawing.grid.ticks_per_column;
  const auto start = static_cast<double>(span.start);
  const auto end = static_cast<double>(span.end);
  const auto odd = static_cast<std::size_t>(chunk_of(span, drawing.timeline) % 2);
  for (auto c = static_cast<std::size_t>(start / width); c < columns.size(); ++c) {
    const double left = static_cast<double>(c) * width;
    if (left >= end) break;
    columns[c].at(static_cast<std::size_t>(span.kind)).at(odd) += std::min(end, left + width) - std::max(start, left);
  }
}

std::optional<Cell> busiest(const Shares& shares, double column) {
  double busy = 0.0;
  double most = 0.0;
  Cell cell;
  for (std::size_t k = 0; k < kSpanKindCount; ++k) {
    const double of_kind = shares.at(k)[0] + shares.at(k)[1];
    busy += of_kind;
    if (of_kind <= most) continue;
    most = of_kind;
    const auto kind = static_cast<SpanKind>(k);
    cell = {std::string(1, letter_of(kind)), kind, shares.at(k)[1] > shares.at(k)[0]};
  }
  // On a tie between idle and busy time the column is busy; the tolerance covers rounding.
  if (most <= 0.0 || most < (column - busy) * (1.0 - 1e-9)) return std::nullopt;
  return cell;
}

std::vector<Cell> letter_row(const Drawing& drawing, const std::vector<Span>& spans) {
  std::vector<Cell> cells = idle_row(drawing);
  std::vector<Shares> compute(cells.size(), Shares{});
  std::vector<Shares> beside(cells.size(), Shares{});
  for (const Span& span : spans) add_shares(drawing, span, span.stream == StreamKind::kCompute ? compute : beside);
  for (std::size_t c = 0; c < cells.size(); ++c) {
    if (const auto cell = busiest(compute[c], drawing.grid.ticks_per_column)) {
      cells[c] = *cell;
    } else if (const auto other = busiest(beside[c], drawing.grid.ticks_per_column)) {
      cells[c] = *other;
    }
  }
  return cells;
}

/// Text and background of the 256-colour palette nearest to the Okabe-Ito colours of the figures; odd chunks are
/// lighter.
std::string_view escape_of(SpanKind kind, bool odd_chunk) {
  constexpr std::array<std::array<std::string_view, 2>, kSpanKindCount> kEscapes = {{
      {"\x1b[38;5;231;48;5;25m", "\x1b[38;5;16;48;5;110m"},  // forward: blue
      {"\x1b[38;5;16;48;5;214m", "\x1b[38;5;16;48;5;223m"},  // backward: orange
      {"\x1b[38;5;16;48;5;166m", "\x1b[38;5;16;48;5;216m"},  // input gradient: vermilion
      {"\x1b[38;5;16;48;5;36m", "\x1b[38;5;16;48;5;115m"},   // weight gradient: green
      {"\x1b[38;5;16;48;5;117m", "\x1b[38;5;16;48;5;117m"},  // send: sky blue
      {"\x1b[38;5;16;48;5;175m", "\x1b[38;5;16;48;5;175m"},  // gradient reduction: purple
      {"\x1b[38;5;16;48;5;182m", "\x1b[38;5;16;48;5;182m"},  // embedding reduction: light purple
      {"\x1b[38;5;16;48;5;247m", "\x1b[38;5;16;48;5;247m"},  // gradient norm: grey
      {"\x1b[38;5;16;48;5;227m", "\x1b[38;5;16;48;5;227m"},  // optimizer: yellow
      {"\x1b[38;5;231;48;5;96m", "\x1b[38;5;231;48;5;96m"},  // parameter gather: dark purple
      {"\x1b[38;5;231;48;5;58m", "\x1b[38;5;231;48;5;58m"},  // dispatch: olive
      {"\x1b[38;5;16;48;5;179m", "\x1b[38;5;16;48;5;179m"},  // combine: sand
  }};
  return kEscapes.at(static_cast<std::size_t>(kind)).at(odd_chunk ? 1 : 0);
}

std::string painted(const std::vector<Cell>& cells, bool color) {
  std::string line;
  std::string_view current;
  for (const Cell& cell : cells) {
    const std::string_view wanted = color && cell.kind ? escape_of(*cell.kind, cell.odd_chunk) : std::string_view{};
    if (wanted != current) {
      if (!current.empty()) line += "\x1b[0m";
      line += wanted;
      current = wanted;
    }
    line += cell.text;
  }
  if (!current.empty()) line += "\x1b[0m";
  return line;
}

std::string legend_sample(const Drawing& drawing, SpanKind kind) {
  const bool numbered = drawing.grid.digits > 0 && is_action(kind);
  std::vector<Cell> cells;
  const std::string number = numbered ? std::string(1, '0') : std::string(1, letter_of(kind));
  cells.push_back({number, kind, false});
  if (numbered && kind != SpanKind::kForward) {
    cells.push_back({std::string(fill_of(kind, drawing.options.ascii)), kind, false});
  }
  return painted(cells, drawing.options.color);
}

std::string legend(const Drawing& drawing) {
  std::string line;
  std::size_t taken = 0;
  // A legend entry is never broken: colours take no columns, a sample at most two. Below 80 columns the legend is not
  // wrapped.
  constexpr int kNarrowestBroken = 80;
  const auto most = static_cast<std::size_t>(std::max(drawing.options.width, kNarrowestBroken));
  const auto make_room = [&](std::string_view name) {
    const std::size_t columns = text_columns(name) + 3;
    if (taken > 0 && taken + columns > most) {
      line.erase(line.find_last_not_of(' ') + 1);
      line += "\n";
      taken = 0;
    }
    taken += columns + 3;
  };
  for (const SpanKind kind : kinds_present(drawing.timeline)) {
    if (is_exchange(kind)) continue;
    make_room(name_of(kind));
    line += legend_sample(drawing, kind) + " " + std::string(name_of(kind)) + "   ";
  }
  make_room("idle");
  line += drawing.options.ascii ? ". idle\n" : "· idle\n";
  const bool cut = drawing.timeline.slices_per_microbatch > 1;
  if (drawing.grid.digits == 0) {
    if (drawing.grid.rounded) line += "each column shows the kind that takes most of it\n";
  } else if (drawing.grid.digits < longest_label(drawing)) {
    line += cut ? "numbers: last digit of the slice" : "numbers: last digit of the microbatch\n";
  } else if (cut) {
    line += "numbers: slices";
  }
  if (cut && drawing.grid.digits > 0) {
    line += fmt::format(", {} per microbatch, numbered consecutively\n", drawing.timeline.slices_per_microbatch);
  }
  const int chunks = chunk_count(drawing.timeline);
  if (chunks == 1) return line;
  if (drawing.timeline.weights) {
    const auto& updates = drawing.timeline.weights->updates;
    const std::size_t changes = std::max_element(updates.begin(), updates.end(), [](const auto& a, const auto& b) {
                                  return a.size() < b.size();
                                })->size();
    line += fmt::format("{} update{} of the weights", changes, changes == 1 ? "" : "s");
    const std::string odd_versions = version_words(1, newest_version(drawing.timeline)) + " of the weights";
    if (drawing.options.color) line += fmt::format("; {} lighter", odd_versions);
    if (!drawing.options.color && drawing.grid.digits > 0 && !drawing.options.ascii) {
      line += fmt::format("; {} in small digits", odd_versions);
    }
    return line + "\n";
  }
  const bool copies = drawing.timeline.model_copies > 1;
  line += copies ? fmt::format("{} copies of the model", drawing.timeline.model_copies)
                 : fmt::format("{} chunks per rank", chunks);
  const std::string_view odd = copies ? "copy 1" : chunks == 2 ? "chunk 1" : "odd chunks";
  if (drawing.options.color) {
    line += fmt::format("; {} lighter", odd);
  } else if (drawing.grid.digits > 0 && !drawing.options.ascii) {
    line += fmt::format("; {} in small digits", odd);
  } else if (drawing.grid.digits > 0) {
    line += ": each number appears once per chunk";
  }
  return line + "\n";
}

std::string scale_line(const Drawing& drawing) {
  const Timeline& timeline = drawing.timeline;
  const Ticks makespan = timeline.makespan();
  const DisplayUnit column_unit = display_unit(timeline, std::llround(drawing.grid.ticks_per_column));
  std::string column = time_text(drawing.grid.ticks_per_column, column_unit);
  if (timeline.time_unit.empty()) column += column == "1" ? " time unit" : " time units";
  const DisplayUnit unit = display_unit(timeline, makespan);
  return fmt::format("1 column = {}, makespan {}\n", column, time_text(static_cast<double>(makespan), unit));
}

}  // namespace

std::string draw_timeline(const Timeline& timeline, const TerminalOptions& options) {
  std::string text = timeline.title.empty() ? "" : timeline.title + "\n";
  const Ticks makespan = timeline.makespan();
  if (makespan <= 0) return text + "nothing ran\n";
  Drawing drawing{timeline, options, {}, {}};
  for (const std::vector<Span>& spans : timeline.ranks) drawing.rows.push_back(in_drawing_order(spans));
  const auto number_width = std::to_string(timeline.rank_count() - 1).size();
  const int around = static_cast<int>(number_width) + 8;  // "rank " and " |" before, "|" after
  drawing.grid = choose_grid(drawing, std::max(kLeastColumns, options.width - around));
  for (std::size_t r = 0; r < drawing.rows.size(); ++r) {
    const std::vector<Span>& spans = drawing.rows[r];
    const auto cells = drawing.grid.digits > 0 ? numbered_row(drawing, spans) : letter_row(drawing, spans);
    text += fmt::format("rank {:>{}} |{}|\n", r, number_width, painted(cells, options.color));
  }
  text += scale_line(drawing);
  return options.legend ? text + legend(drawing) : text;
}

}  // namespace flopcast
