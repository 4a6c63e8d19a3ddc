#include "sim/schedule/interleaving_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace flopcast {

namespace {

bool megatron_accepts(int ranks, int microbatches, int group) {
  const int remainder = microbatches % group;
  return ranks <= group && group <= microbatches && (remainder == 0 || remainder >= ranks);
}

std::optional<int> pytorch_group(int ranks, int microbatches) {
  const int rounds = std::max(1, microbatches / ranks);
  if (microbatches % rounds != 0) return std::nullopt;
  return microbatches / rounds;
}

constexpr int kSuggestions = 4;

// The values closest to `wanted`, in ascending order, among those in 1 .. limit that satisfy `valid`; none farther away
// than `reach`.
template <class Predicate>
std::string nearest_valid(int wanted, int limit, int reach, const Predicate& valid) {
  std::vector<int> found;
  for (int distance = 1; distance <= reach && static_cast<int>(found.size()) < kSuggestions; ++distance) {
    if (wanted - distance >= 1 && wanted - distance <= limit && valid(wanted - distance)) {
      found.push_back(wanted - distance);
    }
    if (distance <= limit - wanted && valid(wanted + distance)) found.push_back(wanted + distance);
  }
  std::sort(found.begin(), found.end());
  return fmt::format("{}", fmt::join(found, ", "));
}

}  // namespace

std::optional<int> interleaving_group(const ScheduleRequest& request) {
  const int ranks = request.pipeline_ranks;
  const int microbatches = request.microbatches;
  const std::optional<int> pytorch = pytorch_group(ranks, microbatches);
  if (!request.group_size) return megatron_accepts(ranks, microbatches, ranks) ? ranks : pytorch;
  const int group = *request.group_size;
  if (group < 1) return std::nullopt;
  return megatron_accepts(ranks, microbatches, group) || pytorch == group ? request.group_size : std::nullopt;
}

std::vector<ChunkTurn> interleaving_table(int microbatches, int chunks, int group_size) {
  std::vector<ChunkTurn> table;
  for (int begin = 0; begin < microbatches; begin += group_size) {
    const int end = begin + std::min(group_size, microbatches - begin);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int microbatch = begin; microbatch < end; ++microbatch) table.push_back({microbatch, chunk});
    }
  }
  return table;
}

std::optional<ScheduleRefusal> refuse_interleaving(std::string_view name, const ScheduleRequest& request) {
  if (request.chunks == 1) {
    if (!request.group_size) return std::nullopt;
    return ScheduleRefusal{
        .problem = fmt::format("{} with one chunk per rank has no use for group size {}", name, *request.group_size),
        .help = "chunks >= 2, or no group size"};
  }
  if (interleaving_group(request)) return std::nullopt;
  const int ranks = request.pipeline_ranks;
  const int microbatches = request.microbatches;
  const int wanted = std::clamp(request.group_size.value_or(ranks), 0, microbatches + 1);
  const std::string groups = nearest_valid(wanted, microbatches, microbatches, [&](int group) {
    return megatron_accepts(ranks, microbatches, group) || pytorch_group(ranks, microbatches) == group;
  });
  if (request.group_size) {
    return ScheduleRefusal{
        .problem = fmt::format("{} cannot use group size {} with {} microbatches and {} pipeline ranks", name,
                               *request.group_size, microbatches, ranks),
        .help = fmt::format("nearest valid group sizes: {}", groups)};
  }
  const std::string counts = nearest_valid(microbatches, static_cast<int>(kMaxMicrobatches), 4 * ranks, [&](int count) {
    return count % ranks == 0 || pytorch_group(ranks, count).has_value();
  });
  return ScheduleRefusal{
      .problem = fmt::format("{} cannot split {} microbatches into equal groups for {} pipeline ranks", name,
                             microbatches, ranks),
      .help = fmt::format("nearest valid microbatch counts: {}; or group size {}", counts, groups)};
}

}  // namespace flopcast
