#include "planner/sweep/grid.hpp"

#include <utility>

namespace flopcast {

SweepGrid::SweepGrid(std::vector<SweepAxis> axes) : axes_(std::move(axes)) {}

std::size_t SweepGrid::size() const {
  std::size_t size = 1;
  for (const SweepAxis& axis : axes_) size *= axis.values.size();
  return size;
}

std::vector<std::string> SweepGrid::values(std::size_t index) const {
  std::vector<std::string> values(axes_.size());
  for (std::size_t axis = axes_.size(); axis-- > 0;) {
    const std::vector<std::string>& all = axes_[axis].values;
    values[axis] = all[index % all.size()];
    index /= all.size();
  }
  return values;
}

}  // namespace flopcast
