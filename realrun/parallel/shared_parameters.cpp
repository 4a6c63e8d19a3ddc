#include "realrun/parallel/shared_parameters.hpp"

namespace flopcast::realrun {

int SharedParameters::set_index(const std::string& name) const {
  const auto found = set_of.find(name);
  return found == set_of.end() ? -1 : found->second;
}

SharedParameters find_shared_parameters(const std::vector<StageLayout>& layouts) {
  std::map<std::string, std::vector<int>> holders;
  for (std::size_t stage = 0; stage < layouts.size(); ++stage) {
    for (const ParameterList& unit : layouts[stage].units) {
      for (const Parameter& parameter : unit.parameters()) holders[parameter.name].push_back(static_cast<int>(stage));
    }
  }
  SharedParameters shared;
  std::map<std::vector<int>, int> index_of;
  for (const auto& [name, stages] : holders) {
    if (stages.size() < 2) continue;
    const auto [entry, is_new] = index_of.emplace(stages, static_cast<int>(shared.sets.size()));
    if (is_new) shared.sets.push_back({stages});
    shared.set_of[name] = entry->second;
  }
  return shared;
}

}  // namespace flopcast::realrun
