#include "realrun/network/layer.hpp"

#include <algorithm>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast::realrun {

Shard whole_matrix(std::size_t rows, std::size_t columns) {
  return {.whole_rows = rows, .whole_columns = columns, .rows = rows, .columns = columns};
}

Shard rows_of(std::size_t rows, std::size_t columns, int index, int parts) {
  const auto count = static_cast<std::size_t>(parts);
  FLOPCAST_CHECK(rows % count == 0);
  Shard shard = whole_matrix(rows, columns);
  shard.rows = rows / count;
  shard.first_row = static_cast<std::size_t>(index) * shard.rows;
  return shard;
}

Shard columns_of(std::size_t rows, std::size_t columns, int index, int parts) {
  const auto count = static_cast<std::size_t>(parts);
  FLOPCAST_CHECK(columns % count == 0);
  Shard shard = whole_matrix(rows, columns);
  shard.columns = columns / count;
  shard.first_column = static_cast<std::size_t>(index) * shard.columns;
  return shard;
}

std::size_t ParameterList::add(Parameter parameter) {
  parameter.frozen = freezes_;
  std::size_t& size = freezes_ ? frozen_ : trained_;
  const std::size_t offset = split_ ? size + (freezes_ ? *split_ : 0) : this->size();
  size += (parameter.shard.count() + alignment_ - 1) / alignment_ * alignment_;
  parameter.offset = offset;
  const auto behind = std::find_if(parameters_.begin(), parameters_.end(),
                                   [offset](const Parameter& other) { return other.offset > offset; });
  parameters_.insert(behind, std::move(parameter));
  return offset;
}

RowPositions positions_of(std::size_t sequence, std::size_t shift, const TokenSlice& slice, const ContextPart& part) {
  if (part.ranks() == 1) return {shift, slice.length(sequence), slice.first(sequence)};
  const std::size_t length = part.length(sequence);
  const std::size_t of_group = length * static_cast<std::size_t>(part.inner_count);
  const std::size_t before = length * static_cast<std::size_t>(part.inner_index);
  const auto index = static_cast<std::size_t>(part.index);
  if (!part.zigzag) return {shift, length, index * of_group + before};
  const std::size_t half = of_group / 2;
  const std::size_t late = (2 * static_cast<std::size_t>(part.count) - 1 - index) * half;
  if (before >= half) return {shift, length, late + before - half};
  return {shift, length, index * half + before, half - before, late};
}

namespace {

std::uint64_t hash_of(const std::string& name) {
  std::uint64_t hash = name.size();
  for (const char letter : name) hash = mix(hash ^ static_cast<unsigned char>(letter));
  return hash;
}

}  // namespace

Draw draw_of(const Parameter& parameter, std::uint64_t seed) {
  const Shard& shard = parameter.shard;
  return {.start = mix(seed) ^ hash_of(parameter.name),
          .first = shard.first_row * shard.whole_columns + shard.first_column,
          .columns = shard.columns,
          .whole_columns = shard.whole_columns,
          .value = parameter.value,
          .deviation = parameter.deviation};
}

template <class T>
void initialise(const ParameterList& list, std::uint64_t seed, T* weights) {
  for (const Parameter& parameter : list.parameters()) {
    const Draw draw = draw_of(parameter, seed);
    T* const elements = weights + parameter.offset;
    for (std::size_t index = 0; index < parameter.shard.count(); ++index) elements[index] = draw.at(index);
  }
}

template void initialise(const ParameterList&, std::uint64_t, float*);
template void initialise(const ParameterList&, std::uint64_t, double*);

}  // namespace flopcast::realrun
