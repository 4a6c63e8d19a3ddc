#pragma once

#include <cstddef>
#include <string>
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
  explicit SweepGrid(std::vector<SweepAxis> axes);
  std::size_t size() const;
  /// By axis.
  std::vector<std::string> values(std::size_t index) const;
  const std::vector<SweepAxis>& axes() const { return axes_; }

 private:
  std::vector<SweepAxis> axes_;
};

}  // namespace flopcast
