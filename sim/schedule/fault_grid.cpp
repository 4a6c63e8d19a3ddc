#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>

#include "sim/schedule/communication/check.hpp"
#include "sim/schedule/validate.hpp"

namespace flopcast {

namespace {

constexpr int kMostSteps = 40;
constexpr int kMostRanks = 16;
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

// What the grid shows: ranks of cells, as text.
struct GridSource {
  int ranks = 0;
  std::function<int(int)> steps;                                      // of a rank
  std::function<std::vector<std::string>(int, const Window&)> cells;  // of a rank's steps in the window it has
};

std::string pair_text(const Action& first, const Action& second) {
  return fmt::format("({};{})", to_string(first), to_string(second));
}

std::vector<std::string> texts_of(const std::vector<Action>& actions, const Window& window) {
  std::vector<std::string> cells;
  int step = 0;
  for (std::size_t index = 0; index < actions.size() && step < window.end; ++index, ++step) {
    const bool pair = actions[index].overlaps_next && index + 1 < actions.size();
    if (step >= window.begin) {
      cells.push_back(pair ? pair_text(actions[index], actions[index + 1]) : to_string(actions[index]));
    }
    if (pair) ++index;
  }
  return cells;
}

std::vector<std::string> texts_of(const std::vector<Cell>& cells, const Window& window) {
  std::vector<std::string> texts;
  const int end = std::min(window.end, static_cast<int>(cells.size()));
  for (int step = window.begin; step < end; ++step) {
    const Cell& cell = cells[static_cast<std::size_t>(step)];
    texts.push_back(cell.kind == CellKind::kPair ? pair_text(cell.action, cell.second) : to_string(cell));
  }
  return texts;
}

int steps_of(const std::vector<Action>& actions) {
  return static_cast<int>(
      std::count_if(actions.begin(), actions.end(), [](const Action& action) { return !action.overlaps_next; }));
}

int steps_of(const std::vector<Cell>& cells) {
  return static_cast<int>(cells.size());
}

template <typename AnyProgram>
GridSource source_of(const AnyProgram& program) {
  const auto of_rank = [&program](int rank) -> decltype(auto) { return program.ranks[static_cast<std::size_t>(rank)]; };
  return {.ranks = program.rank_count(),
          .steps = [of_rank](int rank) { return steps_of(of_rank(rank)); },
          .cells = [of_rank](int rank, const Window& window) { return texts_of(of_rank(rank), window); }};
}

bool at_fault(const ScheduleFault& fault, int rank, int step) {
  if (fault.rank == rank && fault.step == step) return true;
  return std::any_of(fault.cycle.begin(), fault.cycle.end(),
                     [&](const SchedulePlace& blocked) { return blocked.rank == rank && blocked.step == step; });
}

Window steps_to_show(const GridSource& source, const ScheduleFault& fault) {
  int steps = 0;
  for (int rank = 0; rank < source.ranks; ++rank) steps = std::max(steps, source.steps(rank));
  if (!fault.step) return window_around(0, kMostSteps, steps);
  int earliest = *fault.step;
  int latest = *fault.step;
  for (const SchedulePlace& blocked : fault.cycle) {
    earliest = std::min(earliest, blocked.step);
    latest = std::max(latest, blocked.step);
  }
  if (latest - earliest + 1 > kMostSteps) return window_around(*fault.step, kMostSteps, steps);
  return {std::max(0, earliest - kContext), std::min({steps, latest + kContext + 1, earliest - kContext + kMostSteps})};
}

std::string outside(const char* words, int count, int shown) {
  return shown == count ? std::string() : fmt::format(" ({} of {} {})", shown, count, words);
}

std::string render_grid(const GridSource& source, const ScheduleFault& fault) {
  const Window steps = steps_to_show(source, fault);
  const Window ranks = window_around(fault.rank.value_or(0), kMostRanks, source.ranks);
  std::vector<std::vector<std::string>> columns;
  std::size_t width = fmt::format("rank {}", ranks.end).size();
  for (int rank = ranks.begin; rank < ranks.end; ++rank) {
    columns.push_back(source.cells(rank, steps));
    for (const std::string& cell : columns.back()) width = std::max(width, cell.size() + 2);
  }
  const std::size_t head = fmt::format("step {}", steps.end).size();
  std::string text = fmt::format("{:{}}", "", head);
  for (int rank = ranks.begin; rank < ranks.end; ++rank)
    text += fmt::format(" {:^{}}", fmt::format("rank {}", rank), width);
  text.erase(text.find_last_not_of(' ') + 1);
  text += outside("ranks", source.ranks, ranks.end - ranks.begin) + "\n";
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

}  // namespace

std::string render_fault(const ScheduleFault& fault) {
  std::string text;
  if (fault.rank) text += fmt::format("rank {}", *fault.rank);
  if (fault.step) text += fmt::format(", step {}", *fault.step);
  if (!fault.cell.empty()) text += fmt::format(" ({})", fault.cell);
  return text.empty() ? fault.reason : text + ": " + fault.reason;
}

std::string render_fault_grid(const Program& program, const ScheduleFault& fault) {
  return render_grid(source_of(program), fault);
}

std::string render_fault_grid(const LoweredProgram& program, const ScheduleFault& fault) {
  return render_grid(source_of(program), fault);
}

}  // namespace flopcast
