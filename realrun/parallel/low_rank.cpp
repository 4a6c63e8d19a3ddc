#include "realrun/parallel/buckets.hpp"

#include <utility>

namespace flopcast::realrun {

LowRankBuckets::LowRankBuckets(const LowRankContext& context, const StageLayout& layout,
                               const std::vector<Bucket>& buckets, const Buffer& gradients)
    : context_(context) {
  for (const Bucket& bucket : buckets) sums_.push_back(sum_of(bucket, layout, gradients));
}

LowRankBuckets::Sum LowRankBuckets::sum_of(const Bucket& bucket, const StageLayout& layout,
                                           const Buffer& gradients) const {
  Sum sum;
  const std::vector<std::size_t> starts = unit_offsets(layout);
  std::size_t first = 0;
  std::size_t second = 0;
  for (std::size_t unit = 0; unit < layout.units.size(); ++unit) {
    for (const Parameter& parameter : layout.units[unit].parameters()) {
      const std::size_t start = starts[unit] + parameter.offset;
      if (start < bucket.offset || start >= bucket.offset + bucket.count) continue;
      const Buffer gradient = gradients.slice(start * sizeof(float), parameter.shard.count() * sizeof(float));
      const LowRankProducts::Shape shape{parameter.shard.rows, parameter.shard.columns,
                                         static_cast<std::size_t>(context_.rank)};
      if (parameter.multiplies && shape.left_bytes() + shape.right_bytes() < gradient.bytes()) {
        sum.matrices.push_back({.shape = shape, .gradient = gradient, .residual = {}, .left = {}, .right = {}});
        first += shape.left_bytes();
        second += shape.right_bytes();
      } else {
        sum.plain.push_back({gradient, {}});
        first += gradient.bytes();
      }
    }
  }
  sum.first = context_.device.allocate(first);
  sum.second = context_.device.allocate(second);
  std::size_t left = 0;
  std::size_t right = 0;
  for (Matrix& matrix : sum.matrices) {
    matrix.residual = context_.device.allocate(matrix.gradient.bytes());
    matrix.left = sum.first.slice(left, matrix.shape.left_bytes());
    matrix.right = sum.second.slice(right, matrix.shape.right_bytes());
    left += matrix.left.bytes();
    right += matrix.right.bytes();
    context_.products.start(matrix.shape, matrix.right);
  }
  for (Plain& plain : sum.plain) {
    plain.sent = sum.first.slice(left, plain.gradient.bytes());
    left += plain.sent.bytes();
  }
  return sum;
}

Request LowRankBuckets::start(const Buffer& values) {
  return context_.transport.start(context_.group,
                                  {.kind = CollectiveKind::kAllReduce, .input = values, .output = values});
}

void LowRankBuckets::begin(std::size_t bucket) {
  Sum& sum = sums_[bucket];
  for (const Matrix& matrix : sum.matrices) {
    context_.products.project(matrix.shape, matrix.gradient, matrix.residual, matrix.right, matrix.left);
  }
  for (const Plain& plain : sum.plain) context_.device.copy(plain.gradient, plain.sent);
  sum.request = start(sum.first);
  running_.push_back(bucket);
}

std::vector<Interval> LowRankBuckets::finish() {
  std::vector<Interval> ran;
  const std::vector<std::size_t> begun = std::exchange(running_, {});
  const auto await = [&](Sum& sum) {
    context_.transport.wait(sum.request);
    ran.push_back(sum.request->interval());
    sum.request = nullptr;
  };
  for (const std::size_t bucket : begun) {
    Sum& sum = sums_[bucket];
    await(sum);
    for (const Matrix& matrix : sum.matrices) {
      context_.products.fit(matrix.shape, matrix.left, matrix.residual, matrix.right);
    }
    for (const Plain& plain : sum.plain) context_.device.copy(plain.sent, plain.gradient);
    if (!sum.matrices.empty()) sum.request = start(sum.second);
  }
  for (const std::size_t bucket : begun) {
    Sum& sum = sums_[bucket];
    if (sum.request == nullptr) continue;
    await(sum);
    for (const Matrix& matrix : sum.matrices) {
      context_.products.rebuild(matrix.shape, matrix.left, matrix.right, matrix.gradient);
    }
  }
  return ran;
}

}  // namespace flopcast::realrun
