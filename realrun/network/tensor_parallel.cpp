#include "realrun/network/tensor_parallel.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/network/layers.hpp"

namespace flopcast::realrun {

namespace {

template <class T>
LayerPointer<T> sequence(std::vector<LayerPointer<T>> layers) {
  return std::make_unique<Sequence<T>>(std::move(layers));
}

}  // namespace

template <class T>
LayerPointer<T> column_linear(const LinearSpec& spec, const TensorForm& form, CutSide output) {
  const TensorGroup& group = *form.group;
  std::vector<LayerPointer<T>> layers;
  LayerPointer<T> linear =
      std::make_unique<Linear<T>>(spec.name, rows_of(spec.outputs, spec.inputs, group.index(), group.size()));
  if (form.shares_rows()) {
    layers.push_back(std::make_unique<GatheredLinear<T>>(group, std::move(linear)));
    if (output == CutSide::kWhole) layers.push_back(std::make_unique<ColumnsToRows<T>>(group));
  } else {
    layers.push_back(std::make_unique<CopyToGroup<T>>(group));
    layers.push_back(std::move(linear));
    if (output == CutSide::kWhole) layers.push_back(std::make_unique<GatherColumns<T>>(group));
  }
  return sequence(std::move(layers));
}

template <class T>
LayerPointer<T> row_linear(const LinearSpec& spec, const TensorForm& form, CutSide input) {
  const TensorGroup& group = *form.group;
  std::vector<LayerPointer<T>> layers;
  if (input == CutSide::kWhole && form.shares_rows()) {
    layers.push_back(std::make_unique<RowsToColumns<T>>(group));
  } else if (input == CutSide::kWhole) {
    layers.push_back(std::make_unique<OwnColumns<T>>(group));
  }
  layers.push_back(
      std::make_unique<Linear<T>>(spec.name, columns_of(spec.outputs, spec.inputs, group.index(), group.size())));
  if (form.shares_rows()) {
    layers.push_back(std::make_unique<ScatterRows<T>>(group));
  } else {
    layers.push_back(std::make_unique<SumOverGroup<T>>(group));
  }
  return sequence(std::move(layers));
}

template <class T>
LayerPointer<T> linear_pair(const LinearSpec& up, const LinearSpec& down, const TensorForm& form) {
  FLOPCAST_CHECK(up.outputs == down.inputs);
  std::vector<LayerPointer<T>> layers;
  layers.push_back(column_linear<T>(up, form, CutSide::kCut));
  layers.push_back(row_linear<T>(down, form, CutSide::kCut));
  return sequence(std::move(layers));
}

template LayerPointer<float> column_linear(const LinearSpec&, const TensorForm&, CutSide);
template LayerPointer<double> column_linear(const LinearSpec&, const TensorForm&, CutSide);
template LayerPointer<float> row_linear(const LinearSpec&, const TensorForm&, CutSide);
template LayerPointer<double> row_linear(const LinearSpec&, const TensorForm&, CutSide);
template LayerPointer<float> linear_pair(const LinearSpec&, const LinearSpec&, const TensorForm&);
template LayerPointer<double> linear_pair(const LinearSpec&, const LinearSpec&, const TensorForm&);

}  // namespace flopcast::realrun
