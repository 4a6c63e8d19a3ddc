#include "tests/support/grid_linear.hpp"

#include <cmath>
#include <memory>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast::realrun {

namespace {

constexpr bool kAccumulate = true;

Shard block_of(std::size_t rows, std::size_t columns, const Shard& by_rows, const Shard& by_columns) {
  Shard shard = whole_matrix(rows, columns);
  shard.first_row = by_rows.first_row;
  shard.rows = by_rows.rows;
  shard.first_column = by_columns.first_column;
  shard.columns = by_columns.columns;
  return shard;
}

// Part `row` of `row_parts` by part `column` of `column_parts`.
Shard block(std::size_t rows, std::size_t columns, int row, int row_parts, int column, int column_parts) {
  return block_of(rows, columns, rows_of(rows, columns, row, row_parts),
                  columns_of(rows, columns, column, column_parts));
}

// Matrix `index` of equal ones that lie one below the other.
template <class T>
MatrixView<T> stacked(Tensor<T>& tensor, int index, std::size_t rows) {
  return {tensor.row(static_cast<std::size_t>(index) * rows), rows, tensor.columns(), tensor.columns()};
}

/// What both algorithms have in common: one parameter, a part of W.
template <class T>
class GridLinear : public Layer<T> {
 public:
  GridLinear(const LinearSpec& spec, std::size_t tokens, const GridPlace& place)
      : name_(spec.name), place_(place), cut_(grid_cut(place, tokens, spec.inputs, spec.outputs)) {}

  void declare(ParameterList& list) override {
    const float deviation = 1.0F / std::sqrt(static_cast<float>(cut_.weight.whole_columns));
    offset_ = list.add({.name = name_ + ".weight", .shard = cut_.weight, .deviation = deviation});
  }

 protected:
  const GridPlace& place() const { return place_; }
  const GridCut& cut() const { return cut_; }
  Tensor<T> own_weight(const Pass<T>& pass) const {
    Tensor<T> weight(cut_.weight.rows, cut_.weight.columns);
    std::copy_n(pass.weights + offset_, weight.size(), weight.data());
    return weight;
  }
  void add_gradient(const Tensor<T>& gradient, const Pass<T>& pass) const {
    FLOPCAST_CHECK(gradient.size() == cut_.weight.count());
    T* target = pass.gradients + offset_;
    for (std::size_t index = 0; index < gradient.size(); ++index) target[index] += gradient.data()[index];
  }

 private:
  std::string name_;
  GridPlace place_;
  GridCut cut_;
  std::size_t offset_ = 0;
};

template <class T>
class SummaLinear : public GridLinear<T> {
 public:
  using GridLinear<T>::GridLinear;

  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.tensors = {input};
    const Tensor<T> own = this->own_weight(pass);
    Tensor<T> output(input.rows(), own.rows());
    for (int step = 0; step < steps(); ++step) {
      const Tensor<T> inputs = this->place().row.broadcast(input, step);
      const Tensor<T> weights = this->place().column.broadcast(own, step);
      multiply(inputs.view(), weights.view(Transposed::kYes), stacked(output, 0, output.rows()), T(1), kAccumulate);
    }
    return output;
  }

  // Part k of the input's features meets row k of W's parts.
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.tensors.push_back(output_gradient);
    const Tensor<T> own = this->own_weight(pass);
    const std::size_t rows = output_gradient.rows();
    Tensor<T> parts(rows * static_cast<std::size_t>(steps()), own.columns());
    for (int step = 0; step < steps(); ++step) {
      const Tensor<T> weights = this->place().column.broadcast(own, step);
      multiply(output_gradient.view(), weights.view(), stacked(parts, step, rows));
    }
    return this->place().row.scatter_rows(parts);
  }

  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    const Tensor<T>& input = saved.tensors[0];
    const Tensor<T>& output_gradient = saved.tensors[1];
    const std::size_t rows = output_gradient.columns();
    Tensor<T> parts(rows * static_cast<std::size_t>(steps()), input.columns());
    for (int step = 0; step < steps(); ++step) {
      const Tensor<T> inputs = this->place().row.broadcast(input, step);
      multiply(output_gradient.view(Transposed::kYes), inputs.view(), stacked(parts, step, rows));
    }
    const Tensor<T> gradient = this->place().column.scatter_rows(parts);
    this->add_gradient(this->place().depth.sum(gradient), pass);
  }

 private:
  int steps() const { return this->place().grid.q; }
};

template <class T>
class CubeLinear : public GridLinear<T> {
 public:
  using GridLinear<T>::GridLinear;

  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    const Tensor<T> inputs = this->place().row.gather_rows(input);
    const Tensor<T> weights = this->place().column.gather_rows(this->own_weight(pass));
    saved.tensors = {inputs, weights};
    Tensor<T> part(inputs.rows(), weights.rows());
    multiply(inputs.view(), weights.view(Transposed::kYes), stacked(part, 0, part.rows()));
    return this->place().depth.scatter_rows(part);
  }

  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/, Saved<T>& saved) const override {
    const Tensor<T> gradients = this->place().depth.gather_rows(output_gradient);
    const Tensor<T>& weights = saved.tensors[1];
    Tensor<T> part(gradients.rows(), weights.columns());
    multiply(gradients.view(), weights.view(), stacked(part, 0, part.rows()));
    saved.tensors[1] = gradients;
    return this->place().row.scatter_rows(part);
  }

  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    const Tensor<T>& inputs = saved.tensors[0];
    const Tensor<T>& gradients = saved.tensors[1];
    Tensor<T> part(gradients.columns(), inputs.columns());
    multiply(gradients.view(Transposed::kYes), inputs.view(), stacked(part, 0, part.rows()));
    this->add_gradient(this->place().column.scatter_rows(part), pass);
  }
};

}  // namespace

GridPlace GridPlace::turned() const {
  GridPlace other = *this;
  if (form == TensorParallel::k3d) std::swap(other.row, other.depth);
  return other;
}

GridPlace form_grid(RankTransport& transport, TensorParallel form, const TensorGrid& grid,
                    const std::vector<int>& ranks) {
  const int q = grid.q;
  const int layers = form == TensorParallel::k3d ? q : grid.depth;
  FLOPCAST_CHECK(form != TensorParallel::k1d && static_cast<int>(ranks.size()) == grid.ranks());
  // All ranks make all lines in the same order and keep their own.
  const auto line_through = [&](int stride, int length) {
    LineGroup own;
    for (int first = 0; first < grid.ranks(); ++first) {
      if (first / stride % length != 0) continue;
      std::vector<int> members;
      for (int step = 0; step < length; ++step)
        members.push_back(ranks[static_cast<std::size_t>(first + step * stride)]);
      const Group group = transport.form_group(Axis::kTensor, members);
      if (group.size() > 0) own = LineGroup(transport, group);
    }
    return own;
  };
  GridPlace place{form, grid, {}, {}, {}};
  place.row = line_through(1, q);
  place.column = line_through(q, q);
  place.depth = line_through(q * q, layers);
  return place;
}

GridCut grid_cut(const GridPlace& place, std::size_t tokens, std::size_t inputs, std::size_t outputs) {
  const int q = place.grid.q;
  const int a = place.row.index();
  const int b = place.column.index();
  const int c = place.depth.index();
  if (place.form == TensorParallel::k3d) {
    return {block(tokens, inputs, b * q + a, q * q, c, q), block(outputs, inputs, a * q + b, q * q, c, q),
            block(tokens, outputs, b * q + c, q * q, a, q)};
  }
  const int token_part = c * q + b;
  return {block(tokens, inputs, token_part, place.grid.token_parts, a, q), block(outputs, inputs, a, q, b, q),
          block(tokens, outputs, token_part, place.grid.token_parts, a, q)};
}

template <class T>
LayerPointer<T> grid_linear(const LinearSpec& spec, std::size_t tokens, const GridPlace& place) {
  if (place.form == TensorParallel::k3d) return std::make_unique<CubeLinear<T>>(spec, tokens, place);
  return std::make_unique<SummaLinear<T>>(spec, tokens, place);
}

template LayerPointer<float> grid_linear(const LinearSpec&, std::size_t, const GridPlace&);
template LayerPointer<double> grid_linear(const LinearSpec&, std::size_t, const GridPlace&);

}  // namespace flopcast::realrun
