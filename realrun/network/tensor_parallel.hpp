#pragma once

#include <cstddef>
#include <string>

#include "realrun/network/layer.hpp"
#include "realrun/network/tensor_group.hpp"

namespace flopcast::realrun {

/// y = x·Wᵀ for W of `outputs` rows and `inputs` columns.
struct LinearSpec {
  std::string name;
  std::size_t inputs = 0;
  std::size_t outputs = 0;
};

/// What a linear hands over on the side on which its weights are cut.
enum class CutSide {
  kCut,    ///< each rank's features, as a pair of linears has it in the middle
  kWhole,  ///< all features, of all rows or, with sequence parallelism, of this rank's rows: the linear stands alone
};

/// A linear on a line of tensor-parallel ranks, without bias (Shoeybi et al. 1909.08053 §3; with sequence parallelism
/// Korthikanti et al. 2205.05198 §4.2). What each form sends: tests/support/tensor_line.hpp.
///
///   column   W cut by rows, the outputs. Input: all features, of all rows or this rank's. kWhole gathers the output,
///   or
///            with sequence parallelism exchanges its features for rows
///   row      W cut by columns, the inputs. Output: the sum over the ranks. kWhole cuts the input, or exchanges its
///   rows
///            for features
/// Where a whole tensor comes out, all ranks must hand in the same gradient for it.
template <class T>
LayerPointer<T> column_linear(const LinearSpec& spec, const TensorForm& form, CutSide output);
template <class T>
LayerPointer<T> row_linear(const LinearSpec& spec, const TensorForm& form, CutSide input);
/// A column and a row linear with nothing between them.
template <class T>
LayerPointer<T> linear_pair(const LinearSpec& up, const LinearSpec& down, const TensorForm& form);

// The communication between tensor-parallel parts of a network, as layers of their own (Shoeybi et al. 1909.08053 §3).
// A column linear takes its input through CopyToGroup, a row linear gives its output through SumOverGroup; with
// sequence parallelism (Korthikanti et al. 2205.05198 §4.2) through GatherRows and ScatterRows.

/// Forward: nothing. Backward: all-reduce. ("f")
template <class T>
class CopyToGroup : public Layer<T> {
 public:
  explicit CopyToGroup(const TensorGroup& group) : group_(group) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& /*pass*/, Saved<T>& /*saved*/) const override {
    return input;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/,
                           Saved<T>& /*saved*/) const override {
    return group_.all_reduce(output_gradient);
  }

 private:
  const TensorGroup& group_;
};

/// Forward: all-reduce. Backward: nothing. ("g")
template <class T>
class SumOverGroup : public Layer<T> {
 public:
  explicit SumOverGroup(const TensorGroup& group) : group_(group) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& /*pass*/, Saved<T>& /*saved*/) const override {
    return group_.all_reduce(input);
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/,
                           Saved<T>& /*saved*/) const override {
    return output_gradient;
  }

 private:
  const TensorGroup& group_;
};

/// Forward: all-gather of rows. Backward: reduce-scatter.
template <class T>
class GatherRows : public Layer<T> {
 public:
  explicit GatherRows(const TensorGroup& group) : group_(group) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& /*pass*/, Saved<T>& /*saved*/) const override {
    return group_.gather_rows(input);
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/,
                           Saved<T>& /*saved*/) const override {
    return group_.scatter_rows(output_gradient);
  }

 private:
  const TensorGroup& group_;
};

/// Forward: reduce-scatter of rows. Backward: all-gather.
template <class T>
class ScatterRows : public Layer<T> {
 public:
  explicit ScatterRows(const TensorGroup& group) : group_(group) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& /*pass*/, Saved<T>& /*saved*/) const override {
    return group_.scatter_rows(input);
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/,
                           Saved<T>& /*saved*/) const override {
    return group_.gather_rows(output_gradient);
  }

 private:
  const TensorGroup& group_;
};

/// Forward: all-gather of columns. Backward: this rank's columns.
template <class T>
class GatherColumns : public Layer<T> {
 public:
  explicit GatherColumns(const TensorGroup& group) : group_(group) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& /*pass*/, Saved<T>& /*saved*/) const override {
    return group_.gather_columns(input);
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/,
                           Saved<T>& /*saved*/) const override {
    return group_.own_columns(output_gradient);
  }

 private:
  const TensorGroup& group_;
};

/// Forward: this rank's columns. Backward: all-gather of columns.
template <class T>
class OwnColumns : public Layer<T> {
 public:
  explicit OwnColumns(const TensorGroup& group) : group_(group) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& /*pass*/, Saved<T>& /*saved*/) const override {
    return group_.own_columns(input);
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/,
                           Saved<T>& /*saved*/) const override {
    return group_.gather_columns(output_gradient);
  }

 private:
  const TensorGroup& group_;
};

/// Forward: all columns of this rank's rows for its columns of all rows. Backward: the reverse.
template <class T>
class ColumnsToRows : public Layer<T> {
 public:
  explicit ColumnsToRows(const TensorGroup& group) : group_(group) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& /*pass*/, Saved<T>& /*saved*/) const override {
    return group_.columns_to_rows(input);
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/,
                           Saved<T>& /*saved*/) const override {
    return group_.rows_to_columns(output_gradient);
  }

 private:
  const TensorGroup& group_;
};

/// Forward: all rows of this rank's columns for its rows of all columns. Backward: the reverse.
template <class T>
class RowsToColumns : public Layer<T> {
 public:
  explicit RowsToColumns(const TensorGroup& group) : group_(group) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& /*pass*/, Saved<T>& /*saved*/) const override {
    return group_.rows_to_columns(input);
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/,
                           Saved<T>& /*saved*/) const override {
    return group_.columns_to_rows(output_gradient);
  }

 private:
  const TensorGroup& group_;
};

/// GatherRows and the linear behind it as one: the input is kept as this rank's rows only, and gathered again for the
/// weight gradient.
template <class T>
class GatheredLinear : public Layer<T> {
 public:
  GatheredLinear(const TensorGroup& group, LayerPointer<T> linear) : group_(group), linear_(std::move(linear)) {}
  void declare(ParameterList& list) override { linear_->declare(list); }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.parts.resize(1);
    Tensor<T> output = linear_->forward(group_.gather_rows(input), pass, saved.parts[0]);
    saved.parts[0].tensors[0] = input;
    return output;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    return group_.scatter_rows(linear_->input_gradient(output_gradient, pass, saved.parts[0]));
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    saved.parts[0].tensors[0] = group_.gather_rows(saved.parts[0].tensors[0]);
    linear_->weight_gradient(pass, saved.parts[0]);
  }

 private:
  const TensorGroup& group_;
  LayerPointer<T> linear_;
};

}  // namespace flopcast::realrun
