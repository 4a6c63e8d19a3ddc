#include "realrun/network/tensor_grid.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast::realrun {

namespace {

constexpr bool kAccumulate = true;

// Part `row` of `row_parts` by part `column` of `column_parts`.
Shard block(std::size_t rows, std::size_t columns, int row, int row_parts, int column, int column_parts) {
  Shard shard = rows_of(rows, columns, row, row_parts);
  const Shard by_columns = columns_of(rows, columns, column, column_parts);
  shard.first_column = by_columns.first_column;
  shard.columns = by_columns.columns;
  return shard;
}

Shard grid_weight(const GridPlace& place, std::size_t inputs, std::size_t outputs) {
  const int q = place.grid.q;
  const int a = place.row.index();
  const int b = place.column.index();
  if (place.form != TensorParallel::k3d) return block(outputs, inputs, a, q, b, q);
  return block(outputs, inputs, a * q + b, q * q, place.depth.index(), q);
}

// Matrix `index` of equal matrices stacked vertically.
template <class T>
MatrixView<T> stacked(Tensor<T>& tensor, int index, std::size_t rows) {
  return {tensor.row(static_cast<std::size_t>(index) * rows), rows, tensor.columns(), tensor.columns()};
}

/// Shared by both algorithms: one parameter, a part of W.
template <class T>
class GridLinear : public Layer<T> {
 public:
  GridLinear(const LinearSpec& spec, const GridPlace& place)
      : name_(spec.name), place_(place), weight_(grid_weight(place, spec.inputs, spec.outputs)) {}

  void declare(ParameterList& list) override {
    const float deviation = 1.0F / std::sqrt(static_cast<float>(weight_.whole_columns));
    offset_ = list.add({.name = name_ + ".weight", .shard = weight_, .deviation = deviation, .multiplies = true});
  }

 protected:
  const GridPlace& place() const { return place_; }
  Tensor<T> own_weight(const Pass<T>& pass) const {
    Tensor<T> weight(weight_.rows, weight_.columns);
    std::copy_n(pass.weights + offset_, weight.size(), weight.data());
    return weight;
  }
  void add_gradient(const Tensor<T>& gradient, const Pass<T>& pass) const {
    FLOPCAST_CHECK(gradient.size() == weight_.count());
    T* target = pass.gradients + offset_;
    for (std::size_t index = 0; index < gradient.size(); ++index) target[index] += gradient.data()[index];
  }

 private:
  std::string name_;
  GridPlace place_;
  Shard weight_;
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

  // Part k of the input's features multiplies row k of W's parts.
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

template <class T>
class GridEmbedding : public Layer<T> {
 public:
  GridEmbedding(std::string parameter, std::size_t vocab, std::size_t hidden, float deviation, const GridPlace& place)
      : parameter_(std::move(parameter)), deviation_(deviation), place_(place) {
    const int q = place.grid.q;
    const int a = place.row.index();
    const int b = place.column.index();
    looked_up_ = block(vocab, hidden, b, q, is_cubic() ? place.depth.index() : a, q);
    own_ = is_cubic() ? block(vocab, hidden, b * q + a, q * q, place.depth.index(), q) : looked_up_;
  }
  void declare(ParameterList& list) override {
    offset_ = list.add({.name = parameter_, .shard = own_, .deviation = deviation_});
  }
  Tensor<T> forward(const Tensor<T>& /*input*/, const Pass<T>& pass, Saved<T>& /*saved*/) const override {
    Tensor<T> table(own_.rows, own_.columns);
    std::copy_n(pass.weights + offset_, table.size(), table.data());
    if (is_cubic()) table = place_.row.gather_rows(table);
    Tensor<T> found = pass.kernels->tensor(pass.data->tokens.size(), own_.columns);
    pass.kernels->look_up(pass.data->tokens, {looked_up_.first_row, looked_up_.rows}, table.data(), found);
    return place_.column.scatter_rows(found);
  }
  /// Returns an empty tensor: tokens have no gradient.
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/, Saved<T>& saved) const override {
    saved.tensors = {output_gradient};
    return {};
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    const Tensor<T> gradients = place_.column.gather_rows(saved.tensors[0]);
    Tensor<T> table(looked_up_.rows, looked_up_.columns);
    pass.kernels->add_to_table(pass.data->tokens, {looked_up_.first_row, looked_up_.rows}, gradients, table.data());
    table = is_cubic() ? place_.row.scatter_rows(table) : place_.depth.sum(table);
    for (std::size_t index = 0; index < table.size(); ++index) {
      pass.gradients[offset_ + index] += table.data()[index];
    }
  }

 private:
  bool is_cubic() const { return place_.form == TensorParallel::k3d; }

  std::string parameter_;
  float deviation_ = 0;
  const GridPlace& place_;
  Shard looked_up_;
  Shard own_;
  std::size_t offset_ = 0;
};

template <class T>
class LineNorm : public Layer<T> {
 public:
  LineNorm(std::string name, std::size_t width, Norm kind, const TensorGroup& line)
      : name_(std::move(name)), width_(width), centred_(kind == Norm::kLayerNorm), line_(line) {}
  void declare(ParameterList& list) override {
    const Shard shard = columns_of(1, width_, line_.index(), line_.size());
    gain_ = list.add({.name = name_ + ".gain", .shard = shard, .value = 1});
    if (centred_) bias_ = list.add({.name = name_ + ".bias", .shard = shard});
  }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    const Tensor<T> sums = summed_up(input, input);
    Tensor<T> normalised(input.rows(), input.columns());
    Tensor<T> scale(input.rows(), 1);
    Tensor<T> output(input.rows(), input.columns());
    const T* gain = pass.weights + gain_;
    const T* bias = pass.weights + bias_;
    constexpr double kSmallest = 1e-5;
    for (std::size_t row = 0; row < input.rows(); ++row) {
      const double mean = mean_of(sums, row);
      // Rounding may make the variance negative.
      const double variance = std::max(0.0, static_cast<double>(sums.row(row)[0]) / width() - mean * mean);
      scale.row(row)[0] = static_cast<T>(1.0 / std::sqrt(variance + kSmallest));
      for (std::size_t column = 0; column < input.columns(); ++column) {
        const T x = (input.row(row)[column] - static_cast<T>(mean)) * scale.row(row)[0];
        normalised.row(row)[column] = x;
        output.row(row)[column] = x * gain[column] + (centred_ ? bias[column] : T(0));
      }
    }
    saved.tensors = {normalised, scale};
    return output;
  }
  // dx = (g - mean of g - x̂ · mean of g·x̂) · scale for g = gain · dy; without the first mean if the norm is not
  // centred.
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.tensors.push_back(output_gradient);
    const Tensor<T>& normalised = saved.tensors[0];
    Tensor<T> gradient(output_gradient.rows(), output_gradient.columns());
    const T* gain = pass.weights + gain_;
    for (std::size_t row = 0; row < gradient.rows(); ++row) {
      for (std::size_t column = 0; column < gradient.columns(); ++column) {
        gradient.row(row)[column] = gain[column] * output_gradient.row(row)[column];
      }
    }
    const Tensor<T> sums = summed_up(gradient, normalised);
    for (std::size_t row = 0; row < gradient.rows(); ++row) {
      const auto mean = static_cast<T>(mean_of(sums, row));
      const T along = sums.row(row)[0] / static_cast<T>(width());
      for (std::size_t column = 0; column < gradient.columns(); ++column) {
        T& value = gradient.row(row)[column];
        value = (value - mean - along * normalised.row(row)[column]) * saved.tensors[1].row(row)[0];
      }
    }
    return gradient;
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    pass.kernels->norm_weight_gradient(saved.tensors[2], saved.tensors[0], pass.gradients + gain_,
                                       centred_ ? pass.gradients + bias_ : nullptr);
  }

 private:
  double width() const { return static_cast<double>(width_); }
  double mean_of(const Tensor<T>& sums, std::size_t row) const {
    return centred_ ? static_cast<double>(sums.row(row)[1]) / width() : 0.0;
  }
  // Sums over all features of each row: Σ a·b, and Σ a if the norm is centred.
  Tensor<T> summed_up(const Tensor<T>& a, const Tensor<T>& b) const {
    Tensor<T> sums(a.rows(), centred_ ? 2 : 1);
    for (std::size_t row = 0; row < a.rows(); ++row) {
      double products = 0;
      double sum = 0;
      for (std::size_t column = 0; column < a.columns(); ++column) {
        products += static_cast<double>(a.row(row)[column]) * static_cast<double>(b.row(row)[column]);
        sum += static_cast<double>(a.row(row)[column]);
      }
      sums.row(row)[0] = static_cast<T>(products);
      if (centred_) sums.row(row)[1] = static_cast<T>(sum);
    }
    return line_.sum(sums);
  }

  std::string name_;
  std::size_t width_ = 0;
  bool centred_ = true;
  const TensorGroup& line_;
  std::size_t gain_ = 0;
  std::size_t bias_ = 0;
};

template <class T>
class HeldAlike : public Layer<T> {
 public:
  HeldAlike(LayerPointer<T> layer, std::vector<const TensorGroup*> holders)
      : layer_(std::move(layer)), holders_(std::move(holders)) {}
  void declare(ParameterList& list) override {
    const std::size_t before = list.parameters().size();
    layer_->declare(list);
    for (std::size_t index = before; index < list.parameters().size(); ++index) {
      const Parameter& parameter = list.parameters()[index];
      ranges_.emplace_back(parameter.offset, parameter.shard.count());
    }
  }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    return layer_->forward(input, pass, saved);
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    return layer_->input_gradient(output_gradient, pass, saved);
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    if (ranges_.empty()) return layer_->weight_gradient(pass, saved);
    std::vector<T> unit(ranges_.back().first + ranges_.back().second);
    Pass<T> own = pass;
    own.gradients = unit.data();
    layer_->weight_gradient(own, saved);
    std::size_t count = 0;
    for (const auto& [first, length] : ranges_) count += length;
    Tensor<T> packed(1, count);
    T* next = packed.data();
    for (const auto& [first, length] : ranges_) next = std::copy_n(unit.data() + first, length, next);
    for (const TensorGroup* line : holders_) packed = line->sum(packed);
    const T* sums = packed.data();
    for (const auto& [first, length] : ranges_) {
      for (std::size_t index = 0; index < length; ++index) pass.gradients[first + index] += *sums++;
    }
  }

 private:
  LayerPointer<T> layer_;
  std::vector<const TensorGroup*> holders_;
  std::vector<std::pair<std::size_t, std::size_t>> ranges_;  // offset and length in the unit's weights
};

}  // namespace

std::vector<const TensorGroup*> GridPlace::holders() const {
  return form == TensorParallel::k3d ? std::vector{&row, &column} : std::vector{&column, &depth};
}

int GridPlace::token_part() const {
  if (form == TensorParallel::k3d) return column.index() * grid.q + row.index();
  return depth.index() * grid.q + column.index();
}

std::vector<int> GridPlace::looked_up_parts() const {
  std::vector<int> parts;
  for (int other = 0; other < grid.q; ++other) {
    parts.push_back(form == TensorParallel::k3d ? other * grid.q + row.index() : depth.index() * grid.q + other);
  }
  return parts;
}

Microbatch cut_for_grid(const Microbatch& whole, const GridPlace& place) {
  const std::size_t parts = static_cast<std::size_t>(place.grid.token_parts);
  FLOPCAST_CHECK(whole.tokens.size() % parts == 0);
  const auto rows = static_cast<std::ptrdiff_t>(whole.tokens.size() / parts);
  Microbatch cut;
  for (const int part : place.looked_up_parts()) {
    const auto first = whole.tokens.begin() + part * rows;
    cut.tokens.insert(cut.tokens.end(), first, first + rows);
  }
  const auto first = whole.targets.begin() + place.turned().token_part() * rows;
  cut.targets.assign(first, first + rows);
  return cut;
}

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
  // All ranks form all lines in the same order and keep their own.
  const auto line_through = [&](int stride, int length) {
    TensorGroup own;
    for (const std::vector<int>& members : strided_parts(ranks, length, stride)) {
      const Group group = transport.form_group(Axis::kTensor, members);
      if (group.size() > 0) own = TensorGroup(transport, group);
    }
    return own;
  };
  GridPlace place{form, grid, {}, {}, {}, {}};
  place.row = line_through(1, q);
  place.column = line_through(q, q);
  place.depth = line_through(q * q, layers);
  place.all = line_through(1, grid.ranks());
  return place;
}

template <class T>
LayerPointer<T> grid_linear(const LinearSpec& spec, const GridPlace& place) {
  if (place.form == TensorParallel::k3d) return std::make_unique<CubeLinear<T>>(spec, place);
  return std::make_unique<SummaLinear<T>>(spec, place);
}

template <class T>
LayerPointer<T> grid_embedding(const std::string& parameter, std::size_t vocab, std::size_t hidden, float deviation,
                               const GridPlace& place) {
  return std::make_unique<GridEmbedding<T>>(parameter, vocab, hidden, deviation, place);
}

template <class T>
LayerPointer<T> line_norm(const std::string& name, std::size_t width, Norm kind, const TensorGroup& line) {
  return std::make_unique<LineNorm<T>>(name, width, kind, line);
}

template <class T>
LayerPointer<T> replicated(LayerPointer<T> layer, std::vector<const TensorGroup*> holders) {
  return std::make_unique<HeldAlike<T>>(std::move(layer), std::move(holders));
}

template LayerPointer<float> grid_linear(const LinearSpec&, const GridPlace&);
template LayerPointer<float> grid_embedding(const std::string&, std::size_t, std::size_t, float, const GridPlace&);
template LayerPointer<float> line_norm(const std::string&, std::size_t, Norm, const TensorGroup&);
template LayerPointer<float> replicated(LayerPointer<float>, std::vector<const TensorGroup*>);
template LayerPointer<double> grid_linear(const LinearSpec&, const GridPlace&);
template LayerPointer<double> grid_embedding(const std::string&, std::size_t, std::size_t, float, const GridPlace&);
template LayerPointer<double> line_norm(const std::string&, std::size_t, Norm, const TensorGroup&);
template LayerPointer<double> replicated(LayerPointer<double>, std::vector<const TensorGroup*>);

}  // namespace flopcast::realrun
