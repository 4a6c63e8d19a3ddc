#include "realrun/parallel/buckets.hpp"

namespace flopcast::realrun {

std::vector<std::size_t> unit_offsets(const StageLayout& layout) {
  std::vector<std::size_t> offsets = {0};
  for (const ParameterList& unit : layout.units) offsets.push_back(offsets.back() + unit.size());
  return offsets;
}

std::vector<Bucket> make_buckets(const StageLayout& layout, const SharedParameters& shared, const BucketRules& rules) {
  const std::vector<std::size_t> starts = unit_offsets(layout);
  std::vector<Bucket> buckets;
  Bucket open;
  std::size_t end = starts.back();  // of the open bucket
  const auto close = [&] {
    if (open.count > 0) buckets.push_back(open);
    open = {};
  };
  const auto limit_of = [&] { return buckets.empty() && open.shared_set < 0 ? rules.first_bytes : rules.bytes; };
  for (std::size_t unit = layout.units.size(); unit-- > 0;) {
    const std::vector<Parameter>& parameters = layout.units[unit].parameters();
    for (std::size_t index = parameters.size(); index-- > 0;) {
      const int set = shared.set_index(parameters[index].name);
      const bool other_unit = rules.within_units && open.first_unit != static_cast<int>(unit);
      if (open.count > 0 && (open.shared_set != set || other_unit)) close();
      if (open.count == 0)
        end = index + 1 < parameters.size() ? starts[unit] + parameters[index + 1].offset : starts[unit + 1];
      open.first_unit = static_cast<int>(unit);
      open.shared_set = set;
      open.offset = starts[unit] + parameters[index].offset;
      open.count = end - open.offset;
      const std::size_t limit = limit_of();
      if (limit > 0 && open.count * sizeof(float) >= limit) close();
    }
  }
  close();
  return buckets;
}

}  // namespace flopcast::realrun
