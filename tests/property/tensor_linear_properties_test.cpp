// Any shape that a line or a grid of ranks divides: the results equal serial GEMMs, and the elements sent add up to the
// model's volume.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "tests/realrun/linear_runs.hpp"

namespace flopcast::realrun {
namespace {

// Parts of an all-reduce may differ by one element, and with them the volumes of single ranks; the sum over the ranks
// does not.
void assert_sum(const std::vector<LineVolume>& sent, const LineVolume& predicted) {
  LineVolume sum;
  for (const LineVolume& rank : sent) {
    sum.forward += rank.forward;
    sum.input_gradient += rank.input_gradient;
    sum.weight_gradient += rank.weight_gradient;
  }
  const auto ranks = static_cast<double>(sent.size());
  const auto equal = [](double a, double b) { return std::abs(a - b) < 1e-9 * (1.0 + b); };
  RC_ASSERT(equal(sum.forward, ranks * predicted.forward));
  RC_ASSERT(equal(sum.input_gradient, ranks * predicted.input_gradient));
  RC_ASSERT(equal(sum.weight_gradient, ranks * predicted.weight_gradient));
  RC_ASSERT(!testing::Test::HasFailure());
}

std::size_t multiple_of(int factor) {
  return static_cast<std::size_t>(factor * *rc::gen::inRange(1, 5));
}

RC_GTEST_PROP(TensorLinear, OnALine, ()) {
  const int ranks = *rc::gen::inRange(1, 6);
  const bool sequence_parallel = *rc::gen::arbitrary<bool>();
  const auto form = *rc::gen::element(LineForm::kColumn, LineForm::kRow, LineForm::kPair);
  const auto free = static_cast<std::size_t>(*rc::gen::inRange(1, 20));
  const bool row = form == LineForm::kRow;
  const bool column = form == LineForm::kColumn;
  const std::size_t tokens = sequence_parallel ? multiple_of(ranks) : free;
  LinearChain chain{tokens, {{"up", row ? multiple_of(ranks) : free, row ? free : multiple_of(ranks)}}};
  if (!row && !column) chain.linears.push_back({"down", chain.linears.front().outputs, free + 1});
  assert_sum(run_line(form, sequence_parallel, ranks, chain),
             line_volume(form, sequence_parallel, ranks, static_cast<double>(tokens),
                         static_cast<double>(chain.linears.front().inputs),
                         static_cast<double>(chain.linears.back().outputs)));
}

RC_GTEST_PROP(TensorLinear, OnAGrid, ()) {
  const auto form = *rc::gen::element(TensorParallel::k2d, TensorParallel::k25d, TensorParallel::k3d);
  const int q = *rc::gen::inRange(1, 4);
  const int depth = form == TensorParallel::k25d ? *rc::gen::inRange(1, 4) : 1;
  const TensorGrid grid = tensor_grid(form, form == TensorParallel::k3d ? q * q * q : q * q * depth, depth);
  // 3d splits the outputs into q² parts for the weights, 2d and 2.5d into q.
  const int features = form == TensorParallel::k3d ? q * q : q;
  const std::size_t tokens = multiple_of(grid.token_parts);
  LinearChain chain{tokens, {{"first", multiple_of(features), multiple_of(features)}}};
  chain.linears.push_back({"second", chain.linears.front().outputs, multiple_of(features)});
  assert_sum(run_grid(form, grid, chain), predicted_on(form, grid, chain));
}

}  // namespace
}  // namespace flopcast::realrun
