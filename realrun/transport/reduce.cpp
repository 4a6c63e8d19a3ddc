#include "realrun/transport/reduce.hpp"

#include <algorithm>

#include "model/error/error.hpp"

namespace flopcast::realrun {

Part part_of(std::size_t count, int index, int parts) {
  const auto place = static_cast<std::size_t>(index);
  const auto total = static_cast<std::size_t>(parts);
  const std::size_t first = count * place / total;
  return {first, count * (place + 1) / total - first};
}

namespace {

template <class T>
void reduce_as(const std::vector<const std::byte*>& inputs, std::size_t count, Reduction reduction, std::byte* output) {
  T* result = reinterpret_cast<T*>(output);
  const bool sums = reduction == Reduction::kSum;
  // Element by element, so that the result may overwrite an input.
  for (std::size_t index = 0; index < count; ++index) {
    T value = reinterpret_cast<const T*>(inputs.front())[index];
    for (std::size_t input = 1; input < inputs.size(); ++input) {
      const T next = reinterpret_cast<const T*>(inputs[input])[index];
      value = sums ? value + next : std::max(value, next);
    }
    result[index] = value;
  }
}

}  // namespace

void reduce_in_order(const std::vector<const std::byte*>& inputs, std::size_t count, Element element,
                     Reduction reduction, std::byte* output) {
  switch (element) {
    case Element::kFloat32:
      return reduce_as<float>(inputs, count, reduction, output);
    case Element::kFloat64:
      return reduce_as<double>(inputs, count, reduction, output);
    case Element::kByte:
      break;
  }
  FLOPCAST_CHECK(false && "bytes cannot be added up");
}

}  // namespace flopcast::realrun
