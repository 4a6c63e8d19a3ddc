#include "model/workload/layer_profile.hpp"

#include "model/partition/balanced_split.hpp"

namespace flopcast {

double LayerProfile::parameters() const {
  double sum = 0.0;
  for (const ProfiledLayer& layer : layers) sum += layer.parameters;
  return sum;
}

double LayerProfile::scale(int layout_micro_batch_size) const {
  return micro_batch_size ? static_cast<double>(layout_micro_batch_size) / *micro_batch_size : 1.0;
}

std::vector<int> balanced_stage_layers(const LayerProfile& profile, int stages) {
  std::vector<double> times;
  for (const ProfiledLayer& layer : profile.layers) {
    times.push_back((layer.forward + layer.input_gradient + layer.weight_gradient).value());
  }
  return min_max_partition(times, stages);
}

}  // namespace flopcast
