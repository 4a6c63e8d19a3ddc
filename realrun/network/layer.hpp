#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "realrun/device/arithmetic.hpp"
#include "realrun/device/buffer.hpp"
#include "realrun/network/kernels.hpp"

namespace flopcast::realrun {

/// The rectangle of a whole matrix that is held here. A vector is a matrix of one row.
struct Shard {
  std::size_t whole_rows = 1;
  std::size_t whole_columns = 0;
  std::size_t first_row = 0;
  std::size_t rows = 1;
  std::size_t first_column = 0;
  std::size_t columns = 0;

  std::size_t count() const { return rows * columns; }
};
Shard whole_matrix(std::size_t rows, std::size_t columns);
/// Part `index` of `parts` equal parts.
Shard rows_of(std::size_t rows, std::size_t columns, int index, int parts);
Shard columns_of(std::size_t rows, std::size_t columns, int index, int parts);

/// One tensor among the weights of a stage.
struct Parameter {
  std::string name;         ///< "block.3.mlp.up.weight": independent of the stage
  Shard shard;              ///< part of the whole parameter, if tensor-parallel ranks split it
  float value = 0;          ///< initial value where `deviation` is 0
  float deviation = 0;      ///< standard deviation of the initial values (uniform)
  bool partial = false;     ///< every tensor-parallel rank holds all of it, but computes only a part of its gradient
  bool multiplies = false;  ///< a matrix that activations are multiplied with
  bool of_experts = false;  ///< expert-parallel ranks hold different experts' parameters
  bool frozen = false;      ///< never updated: has no gradient and no optimizer state
  std::size_t offset = 0;   ///< of its first element in the unit's flat buffers
};

/// The weights of a unit are adjacent in one flat buffer, and so are gradients and optimizer states: strategies that
/// split or merge them work on ranges of elements.
class ParameterList {
 public:
  /// Every parameter starts at a multiple of `alignment` elements, and the end is padded likewise, so that any run of
  /// parameters splits into `alignment` equal parts. Padding stays zero. Frozen parameters follow `trained` elements of
  /// other parameters, so that gradients need a buffer for those only; absent: in the order of add().
  explicit ParameterList(std::size_t alignment = 1, std::optional<std::size_t> trained = {})
      : alignment_(alignment), split_(trained) {}
  /// Sets and returns the offset.
  std::size_t add(Parameter parameter);
  std::size_t size() const { return trained_ + frozen_; }                   ///< elements, gaps included
  std::size_t trained_size() const { return trained_; }                     ///< without frozen parameters
  const std::vector<Parameter>& parameters() const { return parameters_; }  ///< ordered by offset

  /// Sets whether parameters added from now on are frozen.
  void freeze(bool frozen) { freezes_ = frozen; }
  bool freezes() const { return freezes_; }

 private:
  std::vector<Parameter> parameters_;
  std::size_t trained_ = 0;
  std::size_t frozen_ = 0;
  std::size_t alignment_ = 1;
  std::optional<std::size_t> split_;
  bool freezes_ = false;
};

/// Initial values depend only on the seed, the parameter's name and the element's position in the whole parameter, so
/// every partition starts from the same weights.
Draw draw_of(const Parameter& parameter, std::uint64_t seed);
/// Initialises all parameters of a list in host memory.
template <class T>
void initialise(const ParameterList& list, std::uint64_t seed, T* weights);

/// Data of a microbatch. Both vectors have one entry per row of the first layer's output. On a grid of tensor-parallel
/// ranks, tokens are those of all parts in the rank's column, and targets those of the last layer's rows.
struct Microbatch {
  std::vector<int> tokens;
  std::vector<int> targets;
};

/// The slice of a microbatch's tokens in a pass, if sequences are split into equal slices that follow each other
/// through the layers: forward in order, backward in reverse order.
struct TokenSlice {
  int index = 0;
  int count = 1;

  std::size_t length(std::size_t sequence) const { return sequence / static_cast<std::size_t>(count); }
  /// Position in the sequence of the slice's first token.
  std::size_t first(std::size_t sequence) const { return static_cast<std::size_t>(index) * length(sequence); }
};

/// Part of every sequence held by context-parallel rank `index` of `count`: equal parts in order, or with zigzag two of
/// twice as many parts, the one with its index from the start and the one from the end (Layout::zigzag). In a hierarchy
/// the ranks of a group hold equal parts of that, in order.
struct ContextPart {
  int index = 0;
  int count = 1;
  bool zigzag = false;
  int inner_index = 0;
  int inner_count = 1;

  int ranks() const { return count * inner_count; }
  std::size_t length(std::size_t sequence) const { return sequence / static_cast<std::size_t>(ranks()); }
};

/// Positions of the rows that follow the first `shift` rows of a pass.
RowPositions positions_of(std::size_t sequence, std::size_t shift, const TokenSlice& slice, const ContextPart& part);

template <class T>
class Layer;

/// Data that the slices of a microbatch leave for each other on a stage: in the forward pass, inputs that later slices
/// attend to; in the backward pass, the gradients of these inputs from later slices. By layer and slice.
template <class T>
struct SliceExchange {
  std::map<const Layer<T>*, std::map<int, Tensor<T>>> inputs;
  std::map<const Layer<T>*, std::map<int, Tensor<T>>> gradients;
};

/// Context of a pass over a unit, besides the tensor that flows through it.
template <class T>
struct Pass {
  const T* weights = nullptr;  ///< of the unit, in the version of this microbatch; null for weight_gradient()
  T* gradients = nullptr;      ///< of the unit; weight_gradient() adds to them
  const Microbatch* data = nullptr;
  T loss_weight = T(1);  ///< gradients are those of loss_weight · (mean loss over the microbatch's rows)
  Loss* loss = nullptr;  ///< receives the mean loss, on the stage that computes it
  TokenSlice slice = {};
  ContextPart context = {};
  SliceExchange<T>* slices = nullptr;  ///< of the microbatch; null for whole sequences
  std::function<void()> poke =
      {};  ///< called between layers: lets transports without a thread of their own make progress
  Kernels<T>* kernels = &host_kernels<T>();  ///< for the device that holds everything above
};

/// A weight as a factor of a product, and the view of its gradient, by its offset in the unit.
template <class T>
MatrixView<const T> weight_view(const Pass<T>& pass, const Shard& shard, std::size_t offset,
                                Transposed transposed = Transposed::kNo, Float8 float8 = Float8::kNo) {
  return {pass.weights + offset, shard.rows, shard.columns, shard.columns, transposed, true, float8};
}
template <class T>
MatrixView<T> gradient_view(const Pass<T>& pass, const Shard& shard, std::size_t offset) {
  return {pass.gradients + offset, shard.rows, shard.columns, shard.columns};
}

/// Tensors that a layer keeps of a microbatch from its forward to its weight gradient pass.
template <class T>
struct Saved {
  std::vector<Tensor<T>> tensors;
  std::vector<Saved> parts;  ///< of the layers inside

  /// Collects the sizes of all tensors by address: consecutive layers may keep the same tensor.
  void add_bytes(std::map<const std::byte*, std::size_t>& by_address) const {
    for (const Tensor<T>& tensor : tensors) by_address[tensor.buffer().address()] = tensor.buffer().bytes();
    for (const Saved& part : parts) part.add_bytes(by_address);
  }
};

/// A layer has no state of its own: weights, and tensors kept of a microbatch, are passed in. The backward pass has two
/// separate halves, so that zero-bubble schedules can split it: the previous layer waits only for input_gradient();
/// weight_gradient() may run at any later time.
template <class T>
class Layer : public Interface {
 public:
  /// Adds its parameters to those of the unit; called once, before anything else.
  virtual void declare(ParameterList& /*list*/) {}
  virtual Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const = 0;
  /// Returns the gradient of the input, given that of the output; keeps what weight_gradient() needs.
  virtual Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const = 0;
  virtual void weight_gradient(const Pass<T>& /*pass*/, Saved<T>& /*saved*/) const {}
};

template <class T>
using LayerPointer = std::unique_ptr<Layer<T>>;

/// The parameters of a unit, frozen ones last.
template <class T>
ParameterList declared(Layer<T>& unit, std::size_t alignment) {
  ParameterList list(alignment);
  unit.declare(list);
  if (list.trained_size() == list.size()) return list;
  ParameterList split(alignment, list.trained_size());
  unit.declare(split);
  return split;
}

/// Layers applied in sequence.
template <class T>
class Sequence : public Layer<T> {
 public:
  explicit Sequence(std::vector<LayerPointer<T>> layers) : layers_(std::move(layers)) {}
  void declare(ParameterList& list) override {
    for (const LayerPointer<T>& layer : layers_) layer->declare(list);
  }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.parts.assign(layers_.size(), {});
    Tensor<T> flow = input;
    for (std::size_t index = 0; index < layers_.size(); ++index) {
      flow = layers_[index]->forward(flow, pass, saved.parts[index]);
      if (pass.poke) pass.poke();
    }
    return flow;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    Tensor<T> flow = output_gradient;
    for (std::size_t index = layers_.size(); index-- > 0;) {
      flow = layers_[index]->input_gradient(flow, pass, saved.parts[index]);
      if (pass.poke) pass.poke();
    }
    return flow;
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    for (std::size_t index = layers_.size(); index-- > 0;) {
      layers_[index]->weight_gradient(pass, saved.parts[index]);
      saved.parts[index] = {};
      if (pass.poke) pass.poke();
    }
  }

 private:
  std::vector<LayerPointer<T>> layers_;
};
template <class T>
LayerPointer<T> sequence(std::convertible_to<LayerPointer<T>> auto... layers) {
  std::vector<LayerPointer<T>> all;
  (all.push_back(std::move(layers)), ...);
  return std::make_unique<Sequence<T>>(std::move(all));
}

/// a + b, in newly allocated memory.
template <class T>
Tensor<T> sum_of(const Tensor<T>& a, const Tensor<T>& b, Kernels<T>& kernels) {
  Tensor<T> sum = kernels.tensor(a.rows(), a.columns());
  kernels.add(a, b, sum);
  return sum;
}

/// a(x) + b(x).
template <class T>
class Branches : public Layer<T> {
 public:
  Branches(LayerPointer<T> a, LayerPointer<T> b) : a_(std::move(a)), b_(std::move(b)) {}
  void declare(ParameterList& list) override {
    a_->declare(list);
    b_->declare(list);
  }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.parts.assign(2, {});
    const Tensor<T> of_a = a_->forward(input, pass, saved.parts[0]);
    return sum_of(of_a, b_->forward(input, pass, saved.parts[1]), *pass.kernels);
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    const Tensor<T> of_b = b_->input_gradient(output_gradient, pass, saved.parts[1]);
    return sum_of(a_->input_gradient(output_gradient, pass, saved.parts[0]), of_b, *pass.kernels);
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    b_->weight_gradient(pass, saved.parts[1]);
    a_->weight_gradient(pass, saved.parts[0]);
  }

 private:
  LayerPointer<T> a_;
  LayerPointer<T> b_;
};

/// x + inner(x).
template <class T>
class Residual : public Layer<T> {
 public:
  explicit Residual(LayerPointer<T> inner) : inner_(std::move(inner)) {}
  void declare(ParameterList& list) override { inner_->declare(list); }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.parts.resize(1);
    return sum_of(input, inner_->forward(input, pass, saved.parts[0]), *pass.kernels);
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    return sum_of(output_gradient, inner_->input_gradient(output_gradient, pass, saved.parts[0]), *pass.kernels);
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    inner_->weight_gradient(pass, saved.parts[0]);
  }

 private:
  LayerPointer<T> inner_;
};

}  // namespace flopcast::realrun
