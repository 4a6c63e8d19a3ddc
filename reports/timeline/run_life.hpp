#pragma once

#include <string>

#include "reports/timeline/terminal.hpp"
#include "sim/run/run_answer.hpp"

namespace flopcast {

/// The life of a run of months, a row for each week (or hour, quarter of a day, day, four weeks, half a year: the
/// shortest that needs at most 20 rows), and behind it the share of it that trained:
///   week  1 |██▇████▅█…| 94 %
/// A cell is as high as the share of its time that trained, in eighths, or in tenths as a digit where nothing but ASCII
/// may be written (# for all); where one kind of loss takes more than half of a cell, its letter. Times count from the
/// start of the run. What was trained in vain is drawn before the failure that made it so.
std::string draw_life(const RunLife& life, const std::string& title, const TerminalOptions& options);

/// The same as a figure: in each row the time that trained, with what was lost stacked over it by kind.
std::string write_life_svg(const RunLife& life, const std::string& title, bool dark_mode = true);
/// The figure as a page that loads nothing. `answer` is a line above it.
std::string write_life_page(const RunLife& life, const std::string& title, const std::string& answer);

}  // namespace flopcast
