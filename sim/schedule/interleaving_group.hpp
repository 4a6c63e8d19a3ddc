#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "sim/schedule/catalogue.hpp"

namespace flopcast {

/// The interleaving group N: how many microbatches go through a chunk before the next chunk has its turn. Valid is what
/// Megatron-LM accepts, p <= N <= m and (m mod N = 0 or m mod N >= p), and what torch.distributed.pipelining uses,
/// N = m / rounds with rounds = max(1, floor(m / p)) dividing m. The default is p when p divides m, else PyTorch's.
/// Nothing when no group, or not the requested one, is valid.
std::optional<int> interleaving_group(const ScheduleRequest& request);

/// One turn of a chunk: what rank r does with it is a forward of stage chunk * p + r.
struct ChunkTurn {
  int microbatch = 0;
  int chunk = 0;
};
/// Every microbatch and chunk once: group by group, within a group chunk by chunk, within a chunk by microbatch.
std::vector<ChunkTurn> interleaving_table(int microbatches, int chunks, int group_size);

/// For a schedule called `name`. Says which groups or microbatch counts near the requested ones are valid. With one
/// chunk nothing is refused but a group, which would have no meaning.
std::optional<ScheduleRefusal> refuse_interleaving(std::string_view name, const ScheduleRequest& request);

}  // namespace flopcast
