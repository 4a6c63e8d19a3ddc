#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace flopcast {

/// A key and the values it takes in turn.
struct SweepAxis {
  std::string key;  ///< dotted, "layout.pp"
  std::vector<std::string> values;
};

/// Every combination of the axes' values, the last axis fastest.
class SweepGrid {
 public:
  explicit SweepGrid(std::vector<SweepAxis> axes) : axes_(std::move(axes)) {}
  std::size_t size() const {
    std::size_t size = 1;
    for (const SweepAxis& axis : axes_) size *= axis.values.size();
    return size;
  }
  /// By axis.
  std::vector<std::string> values(std::size_t index) const {
    std::vector<std::string> values(axes_.size());
    for (std::size_t axis = axes_.size(); axis-- > 0;) {
      const std::vector<std::string>& all = axes_[axis].values;
      values[axis] = all[index % all.size()];
      index /= all.size();
    }
    return values;
  }
  const std::vector<SweepAxis>& axes() const { return axes_; }

 private:
  std::vector<SweepAxis> axes_;
};

}  // namespace flopcast
