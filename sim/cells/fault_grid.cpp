#include "sim/cells/fault_grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace flopcast {

namespace {

constexpr int kMostShownSteps = 40;
constexpr int kMostShownRanks = 16;
constexpr int kContext = 6;  // steps shown before and after the fault

struct Window {
  int begin = 0;
  int end = 0;
};

// At most `most` of 0 .. count - 1, with `centre` in the middle where possible.
Window window_around(int centre, int most, int count) {
  const int begin = std::max(0, std::min(centre - most / 2, count - most));
  return {begin, std::min(count, begin + most)};
}

std::vector<std::string> texts_of(const std::vector<Cell>& cells, const Window& window) {
  std::vector<std::string> texts;
  const int end = std::min(window.end, static_cast<int>(cells.size()));
  for (int step = window.begin; step < end; ++step) {
    const Cell& cell = cells[static_cast<std::size_t>(step)];
    texts.push_back(cell.kind == CellKind::kPair
                        ? fmt::format("({};{})", to_string(cell.action), to_string(cell.second))
                        : to_string(cell));
  }
  return texts;
}

bool at_fault(const ScheduleFault& fault, int rank, int step) {
  if (fault.rank == rank && fault.step == step) return true;
  return std::any_of(fault.cycle.begin(), fault.cycle.end(),
                     [&](const SchedulePlace& blocked) { return blocked.rank == rank && blocked.step == step; });
}

Window steps_to_show(const CellProgram& program, const ScheduleFault& fault) {
  int steps = 0;
  for (const std::vector<Cell>& cells : program.ranks) steps = std::max(steps, static_cast<int>(cells.size()));
  if (!fault.step) return window_around(0, kMostShownSteps, steps);
  int earliest = *fault.step;
  int latest = *fault.step;
  for (const SchedulePlace& blocked : fault.cycle) {
    earliest = std::min(earliest, blocked.step);
    latest = std::max(latest, blocked.step);
  }
  if (latest - earliest + 1 > kMostShownSteps) return window_around(*fault.step, kMostShownSteps, steps);
  return {std::max(0, earliest - kContext),
          std::min({steps, latest + kContext + 1, earliest - kContext + kMostShownSteps})};
}

std::string outside(const char* words, int count, int shown) {
  return shown == count ? std::string() : fmt::format(" ({} of {} {})", shown, count, words);
}

}  // namespace

std::string render_fault_grid(const CellProgram& program, const ScheduleFault& fault) {
  const Window steps = steps_to_show(program, fault);
  const Window ranks = window_around(fault.rank.value_or(0), kMostShownRanks, program.rank_count());
  std::vector<std::vector<std::string>> columns;
  std::size_t width = fmt::format("rank {}", ranks.end).size();
  for (int rank = ranks.begin; rank < ranks.end; ++rank) {
    columns.push_back(texts_of(program.ranks[rank], steps));
    for (const std::string& cell : columns.back()) width = std::max(width, cell.size() + 2);
  }
  const std::size_t head = fmt::format("step {}", steps.end).size();
  std::string text = fmt::format("{:{}}", "", head);
  for (int rank = ranks.begin; rank < ranks.end; ++rank)
    text += fmt::format(" {:^{}}", fmt::format("rank {}", rank), width);
  text.erase(text.find_last_not_of(' ') + 1);
  text += outside("ranks", program.rank_count(), ranks.end - ranks.begin) + "\n";
  for (int step = steps.begin; step < steps.end; ++step) {
    std::string row = fmt::format("{:{}}", fmt::format("step {}", step), head);
    bool marked = false;
    for (int rank = ranks.begin; rank < ranks.end; ++rank) {
      const std::vector<std::string>& cells = columns[static_cast<std::size_t>(rank - ranks.begin)];
      const auto line = static_cast<std::size_t>(step - steps.begin);
      const bool faulty = at_fault(fault, rank, step);
      marked = marked || faulty;
      const std::string cell = line < cells.size() ? cells[line] : "";
      row += fmt::format(" {:^{}}", faulty ? "[" + cell + "]" : cell, width);
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + (marked ? "  <-- here\n" : "\n");
  }
  return text;
}

std::string render_fault_grid(const Program& program, const ScheduleFault& fault) {
  return render_fault_grid(as_cells(program), fault);
}

}  // namespace flopcast
