#include "sim/lower/spread_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/text/error.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

namespace {

// To the nearest tick; `parts` of `whole` are at most all of it, so nothing overflows.
Ticks share_of(Ticks time, Ticks parts, Ticks whole) {
  return time / whole * parts + (time % whole * parts + whole / 2) / whole;
}

// Gives the numbers of a list to the stages of a program.
class Spreader {
 public:
  Spreader(const Program& program, bool in_comparison) : program_(program), in_comparison_(in_comparison) {}

  std::vector<Ticks> spread(const char* name, const std::vector<Ticks>& list) const {
    std::vector<Ticks> times;
    for (const Chain& chain : program_.chains) {
      const std::vector<int> ranks = ranks_of_chain(program_, chain);
      for (int stage = chain.first_stage; stage <= chain.last_stage; ++stage) {
        times.push_back(time_of(name, list, chain, ranks, stage));
      }
    }
    return times;
  }

 private:
  Ticks time_of(const char* name, const std::vector<Ticks>& list, const Chain& chain, const std::vector<int>& ranks,
                int stage) const {
    const Ticks slices = program_.slices_per_microbatch;
    const auto stages = static_cast<std::size_t>(program_.stage_count());
    if (list.size() == 1) {
      if (!in_comparison_) return share_of(list.front(), 1, slices);
      const Ticks length = chain.last_stage - chain.first_stage + 1;
      return share_of(list.front(), static_cast<Ticks>(ranks.size()), length * slices);
    }
    if (list.size() == stages) return share_of(list[static_cast<std::size_t>(stage)], 1, slices);
    if (!in_comparison_ || list.size() != ranks.size()) refuse_list(name, list.size(), ranks.size());
    const int rank = program_.rank_of_stage[stage];
    const auto chunks = std::count(program_.rank_of_stage.begin() + chain.first_stage,
                                   program_.rank_of_stage.begin() + chain.last_stage + 1, rank);
    const auto index = std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin();
    return share_of(list[static_cast<std::size_t>(index)], 1, chunks * slices);
  }

  [[noreturn]] void refuse_list(const char* name, std::size_t numbers, std::size_t ranks) const {
    const bool by_rank = in_comparison_ && ranks > 1 && ranks != static_cast<std::size_t>(program_.stage_count());
    throw ConfigError({name,
                       fmt::format("{} numbers for {} stage{} of {}", numbers, program_.stage_count(),
                                   program_.stage_count() == 1 ? "" : "s", program_.schedule),
                       "",
                       by_rank ? fmt::format("give one number, one a stage, or one for each of the {} ranks", ranks)
                               : "give one number, or one a stage"});
  }

  const Program& program_;
  bool in_comparison_;
};

}  // namespace

std::vector<Ticks> spread_times(const char* name, const std::vector<Ticks>& list, const Program& program,
                                bool in_comparison) {
  return Spreader(program, in_comparison).spread(name, list);
}

}  // namespace flopcast
