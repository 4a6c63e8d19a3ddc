#pragma once

#include <vector>

namespace flopcast {

/// min ‖A x - b‖² with x ≥ 0, for at most 6 unknowns: every set of unknowns that may be above zero is solved by QR, the
/// best feasible one is the answer. Exact, 2^unknowns solves; columns are scaled to the same length first, because a
/// latency in seconds and a slope in seconds a byte lie ten decimal orders apart. `rows` must be equally long
/// (InternalError).
std::vector<double> solve_non_negative(const std::vector<std::vector<double>>& rows, const std::vector<double>& right);

}  // namespace flopcast
