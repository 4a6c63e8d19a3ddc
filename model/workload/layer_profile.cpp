#include "model/workload/layer_profile.hpp"

namespace flopcast {

double LayerProfile::parameters() const {
  double sum = 0.0;
  for (const ProfiledLayer& layer : layers) sum += layer.parameters;
  return sum;
}

double LayerProfile::scale(int layout_micro_batch_size) const {
  return micro_batch_size ? static_cast<double>(layout_micro_batch_size) / *micro_batch_size : 1.0;
}

}  // namespace flopcast
