// Column and row parallelism as drawn in textbooks: X of 4 x 4, two linears 4 -> 8 -> 4 on two ranks, Y = (X·A)·B with
// A split by columns and B by rows. All numbers below are small enough to check by hand.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "realrun/network/layers.hpp"
#include "realrun/transport/threads/thread_transport.hpp"
#include "tests/support/line_linear.hpp"

namespace flopcast::realrun {
namespace {

using Matrix = std::vector<std::vector<float>>;

const Matrix kX = {{1, 0, 2, 1}, {0, 1, 1, 0}, {2, 1, 0, 1}, {1, 1, 1, 1}};
const Matrix kA = {
    {1, 2, 0, 1, 1, 0, 2, 1}, {0, 1, 1, 2, 0, 1, 1, 0}, {2, 0, 1, 0, 1, 1, 0, 1}, {1, 1, 0, 1, 2, 0, 1, 0}};
const Matrix kB = {{1, 0, 1, 2}, {0, 1, 1, 0}, {2, 1, 0, 1}, {1, 0, 0, 1},
                   {0, 2, 1, 0}, {1, 1, 0, 0}, {0, 1, 2, 1}, {1, 0, 1, 1}};
const Matrix kOutputGradient = {{1, 0, -1, 2}, {0, 1, 1, 0}, {2, -1, 0, 1}, {1, 1, 0, -1}};

// Rank 0 computes X·A1 from A's columns 0 to 3, rank 1 X·A2 from columns 4 to 7.
const std::vector<Matrix> kHidden = {{{6, 3, 2, 2}, {2, 1, 2, 2}, {3, 6, 1, 5}, {4, 4, 2, 4}},
                                     {{5, 2, 3, 3}, {1, 2, 1, 1}, {4, 1, 6, 2}, {4, 2, 4, 2}}};
// Rank 0 multiplies by B's rows 0 to 3, rank 1 by rows 4 to 7; the sum is Y.
const std::vector<Matrix> kPartialOutput = {{{12, 5, 9, 16}, {8, 3, 3, 8}, {10, 7, 9, 12}, {12, 6, 8, 14}},
                                            {{5, 15, 14, 6}, {3, 5, 4, 2}, {3, 15, 18, 8}, {4, 14, 14, 6}}};
const Matrix kOutput = {{17, 20, 23, 22}, {11, 8, 7, 10}, {13, 22, 27, 20}, {16, 20, 22, 20}};

// Backward: dY·B1ᵀ and dY·B2ᵀ, then each rank's part of dX; the sum is dX.
const std::vector<Matrix> kHiddenGradient = {{{4, -1, 4, 3}, {1, 2, 1, 0}, {4, -1, 4, 3}, {-1, 1, 2, 0}},
                                             {{-1, 1, 0, 2}, {3, 1, 3, 1}, {-2, 1, 0, 3}, {2, 2, 0, 0}}};
const std::vector<Matrix> kPartialInputGradient = {{{5, 9, 12, 6}, {5, 3, 3, 3}, {5, 9, 12, 6}, {1, 3, 0, 0}},
                                                   {{1, 1, 2, -2}, {10, 4, 5, 9}, {1, 1, 2, -4}, {2, 2, 4, 4}}};
const Matrix kInputGradient = {{6, 10, 14, 4}, {15, 7, 8, 12}, {6, 10, 14, 2}, {3, 5, 4, 4}};
const Matrix kGradientOfA = {
    {11, -2, 14, 9, -3, 5, 0, 8}, {4, 2, 7, 3, 3, 4, 3, 4}, {8, 1, 11, 6, 3, 5, 3, 5}, {7, -1, 10, 6, -1, 4, 0, 5}};
const Matrix kGradientOfB = {{16, 3, -4, 11}, {19, -1, -2, 8}, {6, 3, 0, 3},    {16, 1, 0, 5},
                             {17, 1, -4, 10}, {6, 3, 0, 3},    {19, -1, -2, 8}, {9, 1, -2, 6}};

Matrix columns(const Matrix& matrix, std::size_t first, std::size_t count) {
  Matrix part;
  for (const std::vector<float>& row : matrix) {
    const auto start = row.begin() + static_cast<std::ptrdiff_t>(first);
    part.emplace_back(start, start + static_cast<std::ptrdiff_t>(count));
  }
  return part;
}

Matrix rows(const Matrix& matrix, std::size_t first, std::size_t count) {
  const auto start = matrix.begin() + static_cast<std::ptrdiff_t>(first);
  return {start, start + static_cast<std::ptrdiff_t>(count)};
}

Tensor<float> tensor(const Matrix& matrix) {
  Tensor<float> result(matrix.size(), matrix.front().size());
  for (std::size_t row = 0; row < result.rows(); ++row) {
    for (std::size_t column = 0; column < result.columns(); ++column) result.row(row)[column] = matrix[row][column];
  }
  return result;
}

Matrix matrix(const Tensor<float>& tensor) {
  Matrix result;
  for (std::size_t row = 0; row < tensor.rows(); ++row) {
    result.emplace_back(tensor.row(row), tensor.row(row) + tensor.columns());
  }
  return result;
}

// A layer stores its matrix as outputs x inputs: the transpose of A and B as drawn.
std::vector<float> as_stored(const Matrix& drawn) {
  std::vector<float> stored;
  for (std::size_t column = 0; column < drawn.front().size(); ++column) {
    for (const std::vector<float>& row : drawn) stored.push_back(row[column]);
  }
  return stored;
}

struct DrawnLinear {
  explicit DrawnLinear(LayerPointer<float> pointer, const Matrix& drawn)
      : layer(std::move(pointer)), weights(as_stored(drawn)), gradients(weights.size()) {
    ParameterList list;
    layer->declare(list);
    EXPECT_EQ(list.size(), weights.size());
    pass.weights = weights.data();
    pass.gradients = gradients.data();
  }
  Matrix forward(const Matrix& input) { return matrix(layer->forward(tensor(input), pass, saved)); }
  Matrix input_gradient(const Matrix& gradient) { return matrix(layer->input_gradient(tensor(gradient), pass, saved)); }
  std::vector<float> weight_gradient() {
    layer->weight_gradient(pass, saved);
    return gradients;
  }

  LayerPointer<float> layer;
  std::vector<float> weights;
  std::vector<float> gradients;
  Pass<float> pass;
  Saved<float> saved;
};

class OnTwoRanks : public testing::Test {
 protected:
  static void run(const std::function<void(const TensorForm&, std::size_t rank)>& body,
                  bool sequence_parallel = false) {
    run_threads(2, {}, [&](RankTransport& transport) {
      const TensorGroup group(transport, transport.form_group(Axis::kTensor, {0, 1}));
      body({.group = &group, .sequence_parallel = sequence_parallel}, static_cast<std::size_t>(transport.rank()));
    });
  }
};

const LinearSpec kUp{"a", 4, 8};
const LinearSpec kDown{"b", 8, 4};

TEST_F(OnTwoRanks, EachHalfComputesItsPart) {
  run([](const TensorForm& /*form*/, std::size_t rank) {
    const int index = static_cast<int>(rank);
    DrawnLinear up(std::make_unique<Linear<float>>("a", rows_of(8, 4, index, 2)), columns(kA, 4 * rank, 4));
    DrawnLinear down(std::make_unique<Linear<float>>("b", columns_of(4, 8, index, 2)), rows(kB, 4 * rank, 4));
    EXPECT_EQ(up.forward(kX), kHidden[rank]);
    EXPECT_EQ(down.forward(kHidden[rank]), kPartialOutput[rank]);
    EXPECT_EQ(down.input_gradient(kOutputGradient), kHiddenGradient[rank]);
    EXPECT_EQ(up.input_gradient(kHiddenGradient[rank]), kPartialInputGradient[rank]);
  });
}

TEST_F(OnTwoRanks, ThePairSumsWhatTheHalvesComputed) {
  run([](const TensorForm& form, std::size_t rank) {
    DrawnLinear up(column_linear<float>(kUp, form), columns(kA, 4 * rank, 4));
    DrawnLinear down(row_linear<float>(kDown, form), rows(kB, 4 * rank, 4));
    EXPECT_EQ(up.forward(kX), kHidden[rank]);
    EXPECT_EQ(down.forward(kHidden[rank]), kOutput);
    EXPECT_EQ(down.input_gradient(kOutputGradient), kHiddenGradient[rank]);
    EXPECT_EQ(up.input_gradient(kHiddenGradient[rank]), kInputGradient);
    EXPECT_EQ(up.weight_gradient(), as_stored(columns(kGradientOfA, 4 * rank, 4)));
    EXPECT_EQ(down.weight_gradient(), as_stored(rows(kGradientOfB, 4 * rank, 4)));
  });
}

TEST_F(OnTwoRanks, AloneTheColumnLinearGathersAndTheRowLinearCuts) {
  run_threads(2, {}, [](RankTransport& transport) {
    const LineGroup group(transport, transport.form_group(Axis::kTensor, {0, 1}));
    const auto rank = static_cast<std::size_t>(transport.rank());
    Matrix hidden = kHidden[0];
    Matrix hidden_gradient = kHiddenGradient[0];
    for (std::size_t row = 0; row < 4; ++row) {
      hidden[row].insert(hidden[row].end(), kHidden[1][row].begin(), kHidden[1][row].end());
      hidden_gradient[row].insert(hidden_gradient[row].end(), kHiddenGradient[1][row].begin(),
                                  kHiddenGradient[1][row].end());
    }
    DrawnLinear up(lone_column_linear<float>(kUp, group, false), columns(kA, 4 * rank, 4));
    DrawnLinear down(lone_row_linear<float>(kDown, group, false), rows(kB, 4 * rank, 4));
    EXPECT_EQ(up.forward(kX), hidden);
    EXPECT_EQ(down.forward(hidden), kOutput);
    EXPECT_EQ(down.input_gradient(kOutputGradient), hidden_gradient);
    EXPECT_EQ(up.input_gradient(hidden_gradient), kInputGradient);
    EXPECT_EQ(up.weight_gradient(), as_stored(columns(kGradientOfA, 4 * rank, 4)));
    EXPECT_EQ(down.weight_gradient(), as_stored(rows(kGradientOfB, 4 * rank, 4)));
  });
}

TEST_F(OnTwoRanks, WithSequenceParallelismEachRankHasHalfOfTheTokens) {
  run(
      [](const TensorForm& form, std::size_t rank) {
        DrawnLinear up(column_linear<float>(kUp, form), columns(kA, 4 * rank, 4));
        DrawnLinear down(row_linear<float>(kDown, form), rows(kB, 4 * rank, 4));
        EXPECT_EQ(up.forward(rows(kX, 2 * rank, 2)), kHidden[rank]);
        EXPECT_EQ(down.forward(kHidden[rank]), rows(kOutput, 2 * rank, 2));
        EXPECT_EQ(down.input_gradient(rows(kOutputGradient, 2 * rank, 2)), kHiddenGradient[rank]);
        EXPECT_EQ(up.input_gradient(kHiddenGradient[rank]), rows(kInputGradient, 2 * rank, 2));
        EXPECT_EQ(up.weight_gradient(), as_stored(columns(kGradientOfA, 4 * rank, 4)));
        EXPECT_EQ(down.weight_gradient(), as_stored(rows(kGradientOfB, 4 * rank, 4)));
      },
      true);
}

}  // namespace
}  // namespace flopcast::realrun
