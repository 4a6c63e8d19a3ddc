#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace flopcast {

/// Which parts of some work a process does. Missing parts are dealt out like cards; a process whose own are done takes
/// those of the others from their ends, until nothing is missing. So nobody waits for a slow process, nor for one that
/// is lost; a part may be done twice, which changes nothing.
class Division {
 public:
  Division(const std::vector<std::size_t>& missing, int rank, int size);

  /// The next parts of this process that are still open, at most `most`, all of one process's; may be empty while some
  /// are left().
  std::vector<std::size_t> next(std::size_t most, const std::function<bool(std::size_t)>& is_open);
  bool left() const;
  /// Whether parts that were dealt to this process are left.
  bool own_left() const { return !hands_.front().empty(); }

 private:
  std::vector<std::vector<std::size_t>> hands_;  ///< its own first, then those of the following processes
};

}  // namespace flopcast
