// A two-layer perceptron trained on every line and grid of tensor-parallel ranks has the losses and weights of one
// rank.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "realrun/network/layers.hpp"
#include "realrun/network/tensor_grid.hpp"
#include "realrun/network/tensor_parallel.hpp"
#include "realrun/transport/threads/thread_transport.hpp"
#include "tests/realrun/linear_runs.hpp"

namespace flopcast::realrun {
namespace {

constexpr std::size_t kTokens = 36;
constexpr std::size_t kWidth = 36;
constexpr std::size_t kMiddle = 72;
constexpr int kSteps = 6;
constexpr double kRate = 0.2;
const LinearSpec kFirstLinear{"up", kWidth, kMiddle};
const LinearSpec kSecondLinear{"down", kMiddle, kWidth};

/// The perceptron as a rank holds it, with the rank's parts of input and output.
struct Perceptron {
  std::shared_ptr<TensorGroup> group;  // used by the layers, if any
  std::vector<LayerPointer<double>> layers;
  Shard input;
  Shard output;
};
using Build = std::function<Perceptron(RankTransport&)>;

struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> weights;
};

// Element of a matrix of the training data in [-1, 1).
Tensor<double> data_part(const Shard& shard, std::uint64_t seed) {
  Tensor<double> part(shard.rows, shard.columns);
  for (std::size_t row = 0; row < shard.rows; ++row) {
    for (std::size_t column = 0; column < shard.columns; ++column) {
      const std::size_t place = (shard.first_row + row) * shard.whole_columns + shard.first_column + column;
      part.row(row)[column] = static_cast<double>(mix(seed + place) >> 11U) * 0x1p-52 - 1.0;
    }
  }
  return part;
}

struct RankTraining {
  ParameterList list;
  std::vector<double> weights;
  std::vector<double> losses;  // of this rank's part of the output
  double copies = 1;           // ranks that hold each element of the output
};

// Gradient descent on the mean over the tokens of half the squared error.
RankTraining train_rank(RankTransport& transport, const Build& build) {
  Perceptron perceptron = build(transport);
  Sequence<double> layers(std::move(perceptron.layers));
  RankTraining rank;
  layers.declare(rank.list);
  rank.weights.resize(rank.list.size());
  initialise(rank.list, 5, rank.weights.data());
  const Shard& output = perceptron.output;
  rank.copies = static_cast<double>(output.count()) * transport.rank_count() / (kTokens * kWidth);
  const Tensor<double> target = data_part(output, 1'000'000);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> gradients(rank.weights.size());
    const Pass<double> pass{.weights = rank.weights.data(), .gradients = gradients.data()};
    Saved<double> saved;
    Tensor<double> error = layers.forward(data_part(perceptron.input, 1), pass, saved);
    double loss = 0;
    for (std::size_t index = 0; index < error.size(); ++index) {
      const double difference = error.data()[index] - target.data()[index];
      loss += 0.5 * difference * difference / kTokens;
      error.data()[index] = difference / kTokens;
    }
    rank.losses.push_back(loss);
    layers.input_gradient(error, pass, saved);
    layers.weight_gradient(pass, saved);
    for (std::size_t index = 0; index < gradients.size(); ++index) rank.weights[index] -= kRate * gradients[index];
  }
  return rank;
}

void place(const Parameter& parameter, const double* values, std::vector<double>& whole) {
  const Shard& shard = parameter.shard;
  whole.resize(shard.whole_rows * shard.whole_columns, std::nan(""));
  for (std::size_t row = 0; row < shard.rows; ++row) {
    for (std::size_t column = 0; column < shard.columns; ++column) {
      double& element = whole[(shard.first_row + row) * shard.whole_columns + shard.first_column + column];
      const double value = values[row * shard.columns + column];
      EXPECT_TRUE(std::isnan(element) || element == value) << parameter.name << ": copies differ";
      element = value;
    }
  }
}

Trained train(int ranks, const Build& build) {
  std::vector<RankTraining> results(static_cast<std::size_t>(ranks));
  run_threads(ranks, {}, [&](RankTransport& transport) {
    results[static_cast<std::size_t>(transport.rank())] = train_rank(transport, build);
  });
  Trained trained;
  trained.losses.resize(kSteps);
  for (const RankTraining& rank : results) {
    for (std::size_t step = 0; step < rank.losses.size(); ++step) {
      trained.losses[step] += rank.losses[step] / rank.copies;
    }
    for (const Parameter& parameter : rank.list.parameters()) {
      place(parameter, rank.weights.data() + parameter.offset, trained.weights[parameter.name]);
    }
  }
  return trained;
}

std::vector<int> all_ranks(const RankTransport& transport) {
  std::vector<int> ranks(static_cast<std::size_t>(transport.rank_count()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Build on_line(bool sequence_parallel) {
  return [=](RankTransport& transport) {
    Perceptron perceptron;
    perceptron.group =
        std::make_shared<TensorGroup>(transport, transport.form_group(Axis::kTensor, all_ranks(transport)));
    const TensorForm form{.group = perceptron.group.get(), .sequence_parallel = sequence_parallel};
    const int parts = sequence_parallel ? transport.rank_count() : 1;
    perceptron.input = perceptron.output = rows_of(kTokens, kWidth, sequence_parallel ? transport.rank() : 0, parts);
    perceptron.layers.push_back(column_linear<double>(kFirstLinear, form));
    perceptron.layers.push_back(std::make_unique<Activation<double>>(false));
    perceptron.layers.push_back(row_linear<double>(kSecondLinear, form));
    return perceptron;
  };
}

Build on_grid(TensorParallel form, const TensorGrid& grid) {
  return [=](RankTransport& transport) {
    const GridPlace first = form_grid(transport, form, grid, all_ranks(transport));
    const GridPlace second = first.turned();
    Perceptron perceptron;
    perceptron.input = grid_cut(first, kTokens, kWidth, kMiddle).input;
    perceptron.output = grid_cut(second, kTokens, kMiddle, kWidth).output;
    perceptron.layers.push_back(grid_linear<double>(kFirstLinear, first));
    perceptron.layers.push_back(std::make_unique<Activation<double>>(false));
    perceptron.layers.push_back(grid_linear<double>(kSecondLinear, second));
    return perceptron;
  };
}

void expect_same(const Trained& expected, const Trained& actual, const std::string& what) {
  for (std::size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], 1e-11 * expected.losses[step]) << what;
  }
  ASSERT_EQ(actual.weights.size(), expected.weights.size()) << what;
  for (const auto& [name, values] : expected.weights) {
    const std::vector<double>& others = actual.weights.at(name);
    ASSERT_EQ(others.size(), values.size());
    for (std::size_t index = 0; index < values.size(); ++index) {
      ASSERT_NEAR(others[index], values[index], 1e-11) << what << ", " << name;
    }
  }
}

TEST(TensorTraining, LossesAndWeightsAreThoseOfOneRank) {
  const Trained serial = train(1, on_line(false));
  EXPECT_LT(serial.losses.back(), 0.6 * serial.losses.front()) << "the loss should fall";
  int runs = 0;
  const auto compare = [&](int ranks, const Build& build, const std::string& what) {
    expect_same(serial, train(ranks, build), what);
    ++runs;
  };
  for (const int ranks : {2, 3, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      compare(ranks, on_line(sequence_parallel), fmt::format("1d on {}, split {}", ranks, sequence_parallel));
    }
  }
  for (const TensorParallel form : {TensorParallel::k2d, TensorParallel::k25d, TensorParallel::k3d}) {
    for (const int depth : {1, 2, 3}) {
      if (depth > 1 && form != TensorParallel::k25d) continue;
      for (const int ranks : tensor_grid_sizes(form, depth, 27)) {
        const TensorGrid grid = tensor_grid(form, ranks, depth);
        if (grid.q > 3) continue;
        compare(ranks, on_grid(form, grid), fmt::format("form {} on {}", static_cast<int>(form), ranks));
      }
    }
  }
  std::cout << runs << " trainings equal to one rank's\n";
}

}  // namespace
}  // namespace flopcast::realrun
