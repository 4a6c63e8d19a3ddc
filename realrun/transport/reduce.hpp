#pragma once

#include <cstddef>
#include <vector>

#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// Part of the elements of a buffer.
struct Part {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Part `index` of `parts` nearly equal ones of `count` elements.
Part part_of(std::size_t count, int index, int parts);

/// Element by element inputs[0] + inputs[1] + …, or their maximum, in that order whatever arrived first: every
/// transport of the host gives the same bits. The output may be one of the inputs.
void reduce_in_order(const std::vector<const std::byte*>& inputs, std::size_t count, Element element,
                     Reduction reduction, std::byte* output);

}  // namespace flopcast::realrun
