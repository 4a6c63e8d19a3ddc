#pragma once

#include <string>
#include <vector>

#include "calibrate/device/least_squares.hpp"
#include "model/hardware/message_curve.hpp"

namespace flopcast {

struct MessagePoint {
  double bytes = 0.0;
  double seconds = 0.0;
};

/// Its points are by ascending size, each left out but the ends, predicted by a curve through the others.
struct MessageFit : FitQuality {
  MessageCurve curve;
};

inline constexpr int kMostSegments = 4;
inline constexpr int kFewestSizes = 4;

/// The piecewise-affine curve through measured messages. Sizes given several times count by their median; more than 64
/// sizes are pooled into 64, neighbours by their medians. Several pieces go through the nearest times that never fall
/// (isotonic regression of least absolute differences), because an outlier that a piece follows upwards would stay in
/// the curve. Where pieces begin is found by dynamic programming over the sorted sizes: the least sum of Huber's losses
/// of the relative residuals (least_squares.hpp) for each number of pieces, each of at least three sizes. Of those
/// numbers the one with the least n·ln(loss/n) + 3·pieces·ln n over the measured times is taken (Schwarz 1978: a piece
/// has an alpha, a beta and a start). `most_segments` 1 gives the plain alpha-beta model.
///
/// Throws ConfigError, with the reason, when a size or time is not finite and above zero, when there are fewer than
/// four sizes, when times fall as sizes grow (a size at least four times as large that takes less than 70 % of the time
/// belongs to a disturbed or mislabelled run), or when sixteen or more pairs of neighbours, at most a tenth apart in
/// size, differ by more than 20 % in the median. `what` names the data in the complaint.
MessageFit fit_message_curve(const std::string& what, const std::vector<MessagePoint>& points,
                             int most_segments = kMostSegments);
/// With exactly that many pieces, unless the sizes are too few.
MessageFit fit_message_curve_of(const std::string& what, const std::vector<MessagePoint>& points, int segments);

}  // namespace flopcast
