#include "sim/schedule/chain_hint.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/schedule/validate.hpp"

namespace flopcast {

std::optional<std::string> hint_two_chains(const Program& program) {
  const int stages = program.stage_count();
  const std::vector<int>& ranks = program.rank_of_stage;
  const bool mirrored = stages % 2 == 0 && std::equal(ranks.begin(), ranks.end(), ranks.rbegin());
  if (program.chains.size() != 1 || !mirrored) return std::nullopt;
  Program twice = program;
  const int half = stages / 2;
  twice.chains = {{.first_stage = 0, .last_stage = half - 1}, {.first_stage = half, .last_stage = stages - 1}};
  if (find_fault(twice)) return std::nullopt;
  return fmt::format("0-{},{}-{}", half - 1, half, stages - 1);
}

}  // namespace flopcast
