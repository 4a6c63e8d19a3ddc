#include "calibrate/device/fits.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace flopcast {

namespace {

constexpr std::size_t kFewestPerPiece = 3;
constexpr std::size_t kMostSizes = 64;
constexpr double kLeastLoss = 1e-12;  // per size, for exact data

struct Piece {
  std::size_t first = 0;
  double alpha = 0.0;
  double beta = 0.0;
};

struct Pieces {
  std::vector<Piece> pieces;
  double loss = std::numeric_limits<double>::infinity();
};

// One median time per size, sorted by size.
std::vector<MessagePoint> medians_by_size(const std::string& what, const std::vector<MessagePoint>& points) {
  std::map<double, std::vector<double>> times;
  for (const MessagePoint& point : points) {
    const bool valid =
        std::isfinite(point.bytes) && std::isfinite(point.seconds) && point.bytes > 0 && point.seconds > 0;
    if (!valid) {
      refuse_fit(what, fmt::format("{} bytes in {} s is not a valid measurement", point.bytes, point.seconds),
                 "expected finite numbers above zero");
    }
    times[point.bytes].push_back(point.seconds);
  }
  std::vector<MessagePoint> sorted;
  for (auto& [bytes, seconds] : times) sorted.push_back({bytes, median_of(std::move(seconds))});
  return sorted;
}

// At most kMostSizes points: neighbours are merged into one with their median size and time.
std::vector<MessagePoint> pooled(const std::vector<MessagePoint>& points) {
  const std::size_t together = (points.size() + kMostSizes - 1) / kMostSizes;
  if (together <= 1) return points;
  std::vector<MessagePoint> fewer;
  for (std::size_t first = 0; first < points.size(); first += together) {
    std::vector<double> bytes;
    std::vector<double> seconds;
    for (std::size_t index = first; index < std::min(first + together, points.size()); ++index) {
      bytes.push_back(points[index].bytes);
      seconds.push_back(points[index].seconds);
    }
    fewer.push_back({median_of(std::move(bytes)), median_of(std::move(seconds))});
  }
  return fewer;
}

// The nearest non-decreasing times by least absolute differences: pools adjacent violators with their lower median,
// because interference can only slow a message down. A curve that followed an outlier upwards would have to stay there.
std::vector<MessagePoint> rising(const std::vector<MessagePoint>& points) {
  std::vector<std::vector<double>> blocks;
  for (const MessagePoint& point : points) {
    blocks.push_back({point.seconds});
    while (blocks.size() > 1 && lower_median(blocks[blocks.size() - 2]) > lower_median(blocks.back())) {
      std::vector<double>& before = blocks[blocks.size() - 2];
      before.insert(before.end(), blocks.back().begin(), blocks.back().end());
      blocks.pop_back();
    }
  }
  std::vector<MessagePoint> risen = points;
  std::size_t index = 0;
  for (const std::vector<double>& block : blocks) {
    const double seconds = lower_median(block);
    for (std::size_t member = 0; member < block.size(); ++member) risen[index++].seconds = seconds;
  }
  return risen;
}

void check_growth(const std::string& what, const std::vector<MessagePoint>& points) {
  constexpr double kFarther = 4.0;
  constexpr double kFaster = 0.7;
  // The time of a small message is mostly latency, whose outliers are unrelated to the size.
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

// A curve maps each size to one time. If a few per cent more bytes take half or twice as long again and again, the
// times depend on other traffic on the links.
void check_scatter(const std::string& what, const std::vector<MessagePoint>& points) {
  constexpr double kNeighbour = 1.1;
  constexpr std::size_t kFewestNeighbours = 16;
  constexpr double kMostApart = 1.2;
  std::vector<double> apart;
  for (std::size_t index = 1; index < points.size(); ++index) {
    if (points[index].bytes > kNeighbour * points[index - 1].bytes) continue;
    const double ratio = points[index].seconds / points[index - 1].seconds;
    apart.push_back(std::max(ratio, 1.0 / ratio));
  }
  if (apart.size() < kFewestNeighbours || median_of(apart) <= kMostApart) return;
  refuse_fit(what,
             fmt::format("times do not follow the sizes: neighbouring sizes differ by {:.0f} % in the median",
                         1e2 * (median_of(apart) - 1.0)),
             "measure again without other traffic, or leave these samples out");
}

// Cached line fits through ranges of points: if one size is left out, most ranges stay the same.
class Lines {
 public:
  const RelativeFit& through(const MessagePoint* first, const MessagePoint* last) {
    std::vector<std::pair<double, double>> key;
    for (const MessagePoint* point = first; point != last; ++point) key.emplace_back(point->bytes, point->seconds);
    const auto [known, fresh] = fitted_.try_emplace(std::move(key));
    if (!fresh) return known->second;
    std::vector<FitRow> rows;
    for (const auto& [bytes, seconds] : known->first) rows.push_back({{1.0, bytes}, seconds});
    return known->second = fit_relative(rows);
  }

 private:
  std::map<std::vector<std::pair<double, double>>, RelativeFit> fitted_;
};

class Partition {
 public:
  Partition(const std::vector<MessagePoint>& points, Lines& lines) : points_(points), lines_(lines) {}

  // The best partition into 1, 2, … `most` pieces; fewer if there are too few sizes.
  std::vector<Pieces> best(int most) {
    const std::size_t ends = points_.size() + 1;
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
  void extend(const Pieces& head, std::size_t first, std::size_t last, Pieces& best) {
    if (last - first < std::min(kFewestPerPiece, points_.size())) return;
    if (!(head.loss < best.loss)) return;  // no line can lower the loss
    const RelativeFit& line = lines_.through(points_.data() + first, points_.data() + last);
    if (!(head.loss + line.loss < best.loss)) return;
    best = head;
    best.pieces.push_back({first, line.unknowns[0], line.unknowns[1]});
    best.loss = head.loss + line.loss;
  }

  const std::vector<MessagePoint>& points_;
  Lines& lines_;
};

// Boundary between the last size of one piece and the first of the next: the intersection of the lines if it lies in
// between, otherwise the size at which the curve neither overshoots the next piece nor leaves the previous one.
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

// Loss over the measured times, not over the non-decreasing ones, which look smoother than the data is.
double loss_of(const MessageCurve& curve, const std::vector<MessagePoint>& sizes) {
  double loss = 0.0;
  for (const MessagePoint& size : sizes) loss += huber_loss(curve.time(Bytes(size.bytes)).value() / size.seconds - 1.0);
  return loss;
}

MessageCurve best_curve(const std::vector<MessagePoint>& sizes, SegmentCount count, Lines& lines) {
  // A single line does not follow an outlier.
  const std::vector<MessagePoint> points = count.most > 1 ? rising(sizes) : sizes;
  const std::vector<Pieces> cuts = Partition(points, lines).best(count.most);
  if (count.exactly) return curve_of(points, cuts.back());
  const double all = static_cast<double>(sizes.size());
  MessageCurve best;
  double least = std::numeric_limits<double>::infinity();
  for (const Pieces& cut : cuts) {
    MessageCurve curve = curve_of(points, cut);
    const double score = all * std::log(std::max(loss_of(curve, sizes) / all, kLeastLoss)) +
                         3.0 * static_cast<double>(cut.pieces.size()) * std::log(all);
    if (score >= least) continue;
    least = score;
    best = std::move(curve);
  }
  return best;
}

}  // namespace

MessageFit fit_message_curve(const std::string& what, const std::vector<MessagePoint>& given, SegmentCount count) {
  const std::vector<MessagePoint> points = medians_by_size(what, given);
  if (points.size() < kFewestSizes) {
    refuse_fit(what, fmt::format("only {} sizes were measured", points.size()),
               fmt::format("at least {} are needed for a curve", kFewestSizes));
  }
  const std::vector<MessagePoint> sizes = pooled(points);
  check_growth(what, sizes);
  check_scatter(what, points);
  MessageFit fit;
  Lines lines;
  fit.curve = best_curve(sizes, count, lines);
  for (const MessagePoint& point : points) {
    fit.points.push_back(
        {fmt::format("{} B", point.bytes), point.bytes, point.seconds, fit.curve.time(Bytes(point.bytes)).value()});
  }
  fit.errors = relative_errors(fit.points);
  const auto predict = [&](const std::vector<MessagePoint>& others, const MessagePoint& left) {
    return std::pair(best_curve(others, count, lines).time(Bytes(left.bytes)).value(), left.seconds);
  };
  fit.left_out = errors_left_out(sizes, 1, sizes.size() - 1, 1, predict);
  return fit;
}

}  // namespace flopcast
