#include "calibrate/device/fit/message_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

#include "calibrate/device/fit/relative_fit.hpp"

namespace flopcast {

namespace {

constexpr std::size_t kFewestPerPiece = 3;
constexpr std::size_t kMostStarts = 64;
constexpr double kLeastLoss = 1e-12;  // per size, of exact data

struct Piece {
  std::size_t first = 0;
  double alpha = 0.0;
  double beta = 0.0;
};

struct Pieces {
  std::vector<Piece> pieces;
  double loss = std::numeric_limits<double>::infinity();
};

// One time for each size, sorted.
std::vector<MessagePoint> condensed(const std::string& what, const std::vector<MessagePoint>& points) {
  std::map<double, std::vector<double>> times;
  for (const MessagePoint& point : points) {
    const bool valid =
        std::isfinite(point.bytes) && std::isfinite(point.seconds) && point.bytes > 0 && point.seconds > 0;
    if (!valid) {
      refuse_fit(what, fmt::format("{} bytes in {} s is no measurement", point.bytes, point.seconds),
                 "expected finite numbers above zero");
    }
    times[point.bytes].push_back(point.seconds);
  }
  std::vector<MessagePoint> sorted;
  for (auto& [bytes, seconds] : times) sorted.push_back({bytes, median_of(std::move(seconds))});
  return sorted;
}

void check_growth(const std::string& what, const std::vector<MessagePoint>& points) {
  constexpr double kFarther = 4.0;
  constexpr double kFaster = 0.7;
  // Small messages cost their latency, and its outliers say nothing about the sizes.
  constexpr double kSmall = 65536.0;
  for (std::size_t large = 1; large < points.size(); ++large) {
    for (std::size_t small = 0; small < large; ++small) {
      if (points[small].bytes < kSmall || points[large].bytes < kFarther * points[small].bytes) continue;
      if (points[large].seconds >= kFaster * points[small].seconds) continue;
      refuse_fit(what,
                 fmt::format("times fall as sizes grow: {} bytes took {:.3g} s, {} bytes {:.3g} s", points[small].bytes,
                             points[small].seconds, points[large].bytes, points[large].seconds),
                 "measure again on a quiet machine, or check the columns of the file");
    }
  }
}

class Partition {
 public:
  explicit Partition(const std::vector<MessagePoint>& points) : points_(points) {
    const std::size_t stride = (points.size() + kMostStarts - 1) / kMostStarts;
    for (std::size_t index = 0; index < points.size(); index += stride) starts_.push_back(index);
    starts_.push_back(points.size());
  }

  // The best cut into 1, 2, … `most` pieces; fewer where the sizes do not suffice.
  std::vector<Pieces> best(int most) {
    const std::size_t ends = starts_.size();
    std::vector<Pieces> before(ends);
    before[0].loss = 0.0;
    std::vector<Pieces> answers;
    for (int count = 0; count < most; ++count) {
      std::vector<Pieces> next(ends);
      for (std::size_t end = 1; end < ends; ++end) {
        for (std::size_t start = 0; start < end; ++start) {
          if (!std::isfinite(before[start].loss) || (count == 0) != (start == 0)) continue;
          extend(before[start], start, end, next[end]);
        }
      }
      if (!std::isfinite(next.back().loss)) break;
      answers.push_back(next.back());
      before = std::move(next);
    }
    return answers;
  }

 private:
  void extend(const Pieces& head, std::size_t start, std::size_t end, Pieces& best) {
    const std::size_t first = starts_[start];
    const std::size_t last = starts_[end];
    if (last - first < std::min(kFewestPerPiece, points_.size())) return;
    const auto& [piece, loss] = piece_of(first, last);
    if (!(head.loss + loss < best.loss)) return;
    best = head;
    best.pieces.push_back(piece);
    best.loss = head.loss + loss;
  }

  const std::pair<Piece, double>& piece_of(std::size_t first, std::size_t last) {
    const auto known = fitted_.find({first, last});
    if (known != fitted_.end()) return known->second;
    std::vector<FitRow> rows;
    for (std::size_t index = first; index < last; ++index) {
      rows.push_back({{1.0, points_[index].bytes}, points_[index].seconds});
    }
    const RelativeFit fit = fit_relative(rows);
    const Piece piece{first, fit.unknowns[0], fit.unknowns[1]};
    return fitted_.emplace(std::pair(first, last), std::pair(piece, fit.loss)).first->second;
  }

  const std::vector<MessagePoint>& points_;
  std::vector<std::size_t> starts_;
  std::map<std::pair<std::size_t, std::size_t>, std::pair<Piece, double>> fitted_;
};

// Between the last size of one piece and the first of the next: where the lines cross, else where the curve neither
// overshoots the next piece nor leaves the one before.
double start_of(const Piece& before, double last, const Piece& next, double first) {
  const auto gap = [&](double bytes) { return before.alpha + before.beta * bytes - next.alpha - next.beta * bytes; };
  const double at_last = gap(last);
  const double at_first = gap(first);
  if (at_last >= 0.0 && at_first >= 0.0) return last;
  if (at_last <= 0.0 && at_first <= 0.0) return first;
  return last + (first - last) * at_last / (at_last - at_first);
}

MessageCurve curve_of(const std::vector<MessagePoint>& points, const Pieces& pieces) {
  std::vector<MessageSegment> segments;
  for (std::size_t index = 0; index < pieces.pieces.size(); ++index) {
    const Piece& piece = pieces.pieces[index];
    const double from = index == 0 ? 0.0
                                   : start_of(pieces.pieces[index - 1], points[piece.first - 1].bytes, piece,
                                              points[piece.first].bytes);
    segments.push_back({Bytes(from), Seconds(piece.alpha), piece.beta});
  }
  return MessageCurve(std::move(segments));
}

const Pieces& chosen(const std::vector<Pieces>& cuts, std::size_t sizes) {
  const double count = static_cast<double>(sizes);
  const auto score = [count](const Pieces& cut) {
    return count * std::log(std::max(cut.loss / count, kLeastLoss)) +
           3.0 * static_cast<double>(cut.pieces.size()) * std::log(count);
  };
  return *std::min_element(cuts.begin(), cuts.end(),
                           [&score](const Pieces& a, const Pieces& b) { return score(a) < score(b); });
}

struct Counts {
  int most = kMostSegments;
  bool exactly = false;
};

MessageCurve best_curve(const std::vector<MessagePoint>& points, Counts counts) {
  const std::vector<Pieces> cuts = Partition(points).best(counts.most);
  return curve_of(points, counts.exactly ? cuts.back() : chosen(cuts, points.size()));
}

RelativeErrors leave_one_out(const std::vector<MessagePoint>& points, Counts counts) {
  std::vector<double> fitted;
  std::vector<double> measured;
  // Many sizes lie close together: every one of them left out would only repeat its neighbours' answer.
  const std::size_t stride = (points.size() + kMostStarts - 1) / kMostStarts;
  for (std::size_t left = 1; left + 1 < points.size(); left += stride) {
    std::vector<MessagePoint> others = points;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(left));
    fitted.push_back(best_curve(others, counts).time(Bytes(points[left].bytes)).value());
    measured.push_back(points[left].seconds);
  }
  return relative_errors(fitted, measured);
}

MessageFit fit(const std::string& what, const std::vector<MessagePoint>& given, Counts counts) {
  const std::vector<MessagePoint> points = condensed(what, given);
  if (points.size() < kFewestSizes) {
    refuse_fit(what, fmt::format("only {} sizes were measured", points.size()),
               fmt::format("at least {} are needed for a curve", kFewestSizes));
  }
  check_growth(what, points);
  MessageFit fit;
  fit.curve = best_curve(points, counts);
  for (const MessagePoint& point : points) {
    fit.points.push_back(
        {fmt::format("{} B", point.bytes), point.bytes, point.seconds, fit.curve.time(Bytes(point.bytes)).value()});
  }
  fit.errors = relative_errors(fit.points);
  fit.left_out = leave_one_out(points, counts);
  return fit;
}

}  // namespace

MessageFit fit_message_curve(const std::string& what, const std::vector<MessagePoint>& points, int most_segments) {
  return fit(what, points, {most_segments, false});
}

MessageFit fit_message_curve_of(const std::string& what, const std::vector<MessagePoint>& points, int segments) {
  return fit(what, points, {segments, true});
}

}  // namespace flopcast
