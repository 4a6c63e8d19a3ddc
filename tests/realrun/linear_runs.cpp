#include "tests/realrun/linear_runs.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "model/cost/axis_costs.hpp"
#include "realrun/transport/threads/thread_transport.hpp"
#include "tests/support/grid_volume.hpp"
#include "tests/support/line_linear.hpp"

namespace flopcast::realrun {

namespace {

constexpr std::uint64_t kSeed = 11;
constexpr int kRunsOfEach = 2;

struct Matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<double> values;

  double& at(std::size_t row, std::size_t column) { return values[row * columns + column]; }
  double at(std::size_t row, std::size_t column) const { return values[row * columns + column]; }
};

Matrix zeros(std::size_t rows, std::size_t columns) {
  return {rows, columns, std::vector<double>(rows * columns)};
}

Matrix drawn(std::size_t rows, std::size_t columns, std::uint64_t seed) {
  Matrix matrix = zeros(rows, columns);
  for (std::size_t index = 0; index < matrix.values.size(); ++index) {
    matrix.values[index] = static_cast<double>(mix(seed * 1'000'003 + index) >> 11U) * 0x1p-52 - 1.0;
  }
  return matrix;
}

Matrix transposed(const Matrix& matrix) {
  Matrix result = zeros(matrix.columns, matrix.rows);
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    for (std::size_t column = 0; column < matrix.columns; ++column) result.at(column, row) = matrix.at(row, column);
  }
  return result;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix result = zeros(a.rows, b.columns);
  for (std::size_t row = 0; row < a.rows; ++row) {
    for (std::size_t inner = 0; inner < a.columns; ++inner) {
      for (std::size_t column = 0; column < b.columns; ++column) {
        result.at(row, column) += a.at(row, inner) * b.at(inner, column);
      }
    }
  }
  return result;
}

/// The chain on one rank: y = x·Wᵀ, dx = dy·W, dW = dyᵀ·x, for every linear and round.
struct Serial {
  std::vector<Matrix> inputs;  // by round
  std::vector<Matrix> output_gradients;
  std::vector<Matrix> outputs;
  std::vector<Matrix> input_gradients;
  std::vector<Matrix> weight_gradients;  // by linear, summed over the rounds
};

Serial solve(const LinearChain& chain) {
  Serial serial;
  std::vector<Matrix> weights;
  for (const LinearSpec& linear : chain.linears) {
    ParameterList list;
    const float deviation = 1.0F / std::sqrt(static_cast<float>(linear.inputs));
    list.add({.name = linear.name + ".weight",
              .shard = whole_matrix(linear.outputs, linear.inputs),
              .deviation = deviation});
    Matrix weight = zeros(linear.outputs, linear.inputs);
    initialise(list, kSeed, weight.values.data());
    weights.push_back(std::move(weight));
    serial.weight_gradients.push_back(zeros(linear.outputs, linear.inputs));
  }
  for (std::size_t round = 0; round < kRunsOfEach; ++round) {
    std::vector<Matrix> flow = {drawn(chain.tokens, chain.linears.front().inputs, 2 * round + 1)};
    for (const Matrix& weight : weights) flow.push_back(product(flow.back(), transposed(weight)));
    Matrix gradient = drawn(chain.tokens, chain.linears.back().outputs, 2 * round + 2);
    serial.inputs.push_back(flow.front());
    serial.outputs.push_back(flow.back());
    serial.output_gradients.push_back(gradient);
    for (std::size_t index = weights.size(); index-- > 0;) {
      const Matrix added = product(transposed(gradient), flow[index]);
      std::vector<double>& sum = serial.weight_gradients[index].values;
      for (std::size_t element = 0; element < sum.size(); ++element) sum[element] += added.values[element];
      gradient = product(gradient, weights[index]);
    }
    serial.input_gradients.push_back(gradient);
  }
  return serial;
}

Tensor<double> cut(const Matrix& matrix, const Shard& shard) {
  EXPECT_EQ(shard.whole_rows, matrix.rows);
  EXPECT_EQ(shard.whole_columns, matrix.columns);
  Tensor<double> part(shard.rows, shard.columns);
  for (std::size_t row = 0; row < shard.rows; ++row) {
    const double* first = &matrix.values[(shard.first_row + row) * matrix.columns + shard.first_column];
    std::copy_n(first, shard.columns, part.row(row));
  }
  return part;
}

void expect_part(const Matrix& whole, const Shard& shard, const double* actual, const std::string& what) {
  const Tensor<double> expected = cut(whole, shard);
  double largest = 1.0;
  double error = 0.0;
  for (std::size_t index = 0; index < expected.size(); ++index) {
    largest = std::max(largest, std::abs(expected.data()[index]));
    error = std::max(error, std::abs(expected.data()[index] - actual[index]));
  }
  EXPECT_LE(error, 1e-12 * largest) << what;
}

/// A chain of linears as one rank holds it, with the rank's parts of input and output.
struct RankLinears {
  LayerPointer<double> layer;
  Shard input;
  Shard output;
};

LineVolume run_rank(RankTransport& transport, const RankLinears& linears, const LinearChain& chain,
                    const std::string& form) {
  const std::string what = fmt::format("{}, rank {}", form, transport.rank());
  const Serial serial = solve(chain);
  ParameterList list;
  linears.layer->declare(list);
  EXPECT_EQ(list.parameters().size(), serial.weight_gradients.size()) << what;
  std::vector<double> weights(list.size());
  std::vector<double> gradients(list.size());
  initialise(list, kSeed, weights.data());
  LineVolume first;
  double before = static_cast<double>(transport.traffic().bytes_of(Axis::kTensor));
  const auto sent = [&] {
    const auto now = static_cast<double>(transport.traffic().bytes_of(Axis::kTensor));
    return (now - std::exchange(before, now)) / sizeof(double);
  };
  for (std::size_t round = 0; round < kRunsOfEach; ++round) {
    Saved<double> saved;
    LineVolume volume;
    Pass<double> pass{.weights = weights.data()};
    const Tensor<double> output = linears.layer->forward(cut(serial.inputs[round], linears.input), pass, saved);
    volume.forward = sent();
    expect_part(serial.outputs[round], linears.output, output.data(), what + ": output");
    const Tensor<double> input_gradient =
        linears.layer->input_gradient(cut(serial.output_gradients[round], linears.output), pass, saved);
    volume.input_gradient = sent();
    expect_part(serial.input_gradients[round], linears.input, input_gradient.data(), what + ": input gradient");
    pass.weights = nullptr;
    pass.gradients = gradients.data();
    linears.layer->weight_gradient(pass, saved);
    volume.weight_gradient = sent();
    if (round == 0) first = volume;
  }
  for (std::size_t index = 0; index < list.parameters().size(); ++index) {
    const Parameter& parameter = list.parameters()[index];
    expect_part(serial.weight_gradients[index], parameter.shard, gradients.data() + parameter.offset,
                what + ": gradient of " + parameter.name);
  }
  return first;
}

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<LineVolume> volumes_on_threads(int ranks, const std::function<LineVolume(RankTransport&)>& run) {
  std::vector<LineVolume> volumes(static_cast<std::size_t>(ranks));
  run_threads(ranks, {},
              [&](RankTransport& transport) { volumes[static_cast<std::size_t>(transport.rank())] = run(transport); });
  return volumes;
}

}  // namespace

LineVolume run_line_on(RankTransport& transport, LineForm form, bool sequence_parallel, const LinearChain& chain) {
  const int ranks = transport.rank_count();
  const LineGroup group(transport, transport.form_group(Axis::kTensor, first_ranks(ranks)));
  const TensorForm shared{.group = &group, .sequence_parallel = sequence_parallel};
  const int parts = sequence_parallel ? ranks : 1;
  const int part = sequence_parallel ? transport.rank() : 0;
  const LinearSpec& first = chain.linears.front();
  RankLinears linears;
  linears.input = rows_of(chain.tokens, first.inputs, part, parts);
  linears.output = rows_of(chain.tokens, chain.linears.back().outputs, part, parts);
  if (form == LineForm::kColumn) {
    linears.layer = lone_column_linear<double>(first, group, sequence_parallel);
  } else if (form == LineForm::kRow) {
    linears.layer = lone_row_linear<double>(first, group, sequence_parallel);
  } else {
    linears.layer =
        sequence<double>(column_linear<double>(first, shared), row_linear<double>(chain.linears.back(), shared));
  }
  const char* name = form == LineForm::kColumn ? "column" : form == LineForm::kRow ? "row" : "pair";
  return run_rank(transport, linears, chain,
                  fmt::format("{}{} on {}", name, sequence_parallel ? " by tokens" : "", ranks));
}

namespace {

// Part `row` of `row_parts` by part `column` of q.
Shard grid_part(std::size_t rows, std::size_t columns, int row, int row_parts, int column, int q) {
  Shard part = rows_of(rows, columns, row, row_parts);
  const Shard by_columns = columns_of(rows, columns, column, q);
  part.first_column = by_columns.first_column;
  part.columns = by_columns.columns;
  return part;
}

}  // namespace

GridCut grid_cut(const GridPlace& place, std::size_t tokens, std::size_t inputs, std::size_t outputs) {
  const int q = place.grid.q;
  const int a = place.row.index();
  const int b = place.column.index();
  const int c = place.depth.index();
  const int parts = place.grid.token_parts;
  if (place.form == TensorParallel::k3d) {
    return {grid_part(tokens, inputs, b * q + a, q * q, c, q), grid_part(tokens, outputs, b * q + c, q * q, a, q)};
  }
  return {grid_part(tokens, inputs, c * q + b, parts, a, q), grid_part(tokens, outputs, c * q + b, parts, a, q)};
}

LineVolume run_grid_on(RankTransport& transport, TensorParallel form, const TensorGrid& grid,
                       const LinearChain& chain) {
  GridPlace place = form_grid(transport, form, grid, first_ranks(grid.ranks()));
  const LinearSpec& first = chain.linears.front();
  RankLinears linears;
  linears.input = grid_cut(place, chain.tokens, first.inputs, first.outputs).input;
  std::vector<LayerPointer<double>> layers;
  for (const LinearSpec& linear : chain.linears) {
    layers.push_back(grid_linear<double>(linear, place));
    linears.output = grid_cut(place, chain.tokens, linear.inputs, linear.outputs).output;
    place = place.turned();
  }
  linears.layer = std::make_unique<Sequence<double>>(std::move(layers));
  return run_rank(transport, linears, chain, fmt::format("{} q={} d={}", name_of(form), grid.q, grid.depth));
}

std::vector<LineVolume> run_line(LineForm form, bool sequence_parallel, int ranks, const LinearChain& chain) {
  return volumes_on_threads(
      ranks, [&](RankTransport& transport) { return run_line_on(transport, form, sequence_parallel, chain); });
}

std::vector<LineVolume> run_grid(TensorParallel form, const TensorGrid& grid, const LinearChain& chain) {
  return volumes_on_threads(grid.ranks(),
                            [&](RankTransport& transport) { return run_grid_on(transport, form, grid, chain); });
}

LineVolume predicted_on(TensorParallel form, const TensorGrid& grid, const LinearChain& chain) {
  LineVolume sum;
  for (const LinearSpec& linear : chain.linears) {
    const GridVolume volume = grid_volume(form, grid, static_cast<double>(chain.tokens),
                                          static_cast<double>(linear.inputs), static_cast<double>(linear.outputs));
    sum.forward += volume.forward;
    sum.input_gradient += volume.input_gradient;
    sum.weight_gradient += volume.weight_gradient + volume.depth_reduction;
  }
  return sum;
}

}  // namespace flopcast::realrun
