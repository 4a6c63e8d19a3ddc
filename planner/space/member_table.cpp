#include "planner/space/member_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/space/rules.hpp"

namespace flopcast {

bool MemberTable::Key::operator<(const Key& other) const {
  return std::tie(pipeline_ranks, microbatches, replicas, cp, ep) <
         std::tie(other.pipeline_ranks, other.microbatches, other.replicas, other.cp, other.ep);
}

const MemberTable::Row& MemberTable::row(const LayoutGroup& group) {
  // hsdp's shards must fit beside cp and ep; all else needs no more than the number of replicas.
  const bool hybrid = job_.layout.data_parallel == DataParallel::kHsdp;
  const Key key{group.pp, group.microbatches, hybrid ? group.dp * group.cp : std::min(2, group.dp * group.cp),
                hybrid ? group.cp : 1, hybrid ? group.ep : 1};
  const auto known = rows_.find(key);
  return known == rows_.end() ? rows_.emplace(key, make_row(group)).first->second : known->second;
}

MemberTable::Row MemberTable::make_row(const LayoutGroup& group) {
  Row row;
  row.members = members_.size();
  members_.emplace_back();
  const bool has_naive = std::any_of(space_.schedules.begin(), space_.schedules.end(),
                                     [](const ScheduleChoice& choice) { return choice.text == "naive"; });
  for (std::size_t index = 0; index < space_.schedules.size(); ++index) {
    const bool is_naive = space_.schedules[index].text == "naive";
    const bool listed_elsewhere = has_naive && space_.schedules.size() > 1 && is_naive != (group.microbatches == 1);
    if (!listed_elsewhere) add_schedule(static_cast<std::uint16_t>(index), group, row);
  }
  row.count = members_.back().size();
  return row;
}

namespace {

// Whether the schedule is made for more than one number of chunks.
bool takes_other_chunks(const ScheduleInfo& info, int pipeline_ranks) {
  constexpr int kPlenty = 4;
  ScheduleRequest request;
  request.pipeline_ranks = pipeline_ranks;
  request.microbatches = kPlenty * pipeline_ranks;
  request.chunks = 2 * info.default_chunks;
  return !refuse_request(info, request);
}

}  // namespace

std::vector<int> MemberTable::chunk_counts(const ScheduleInfo& info, int pipeline_ranks) const {
  if (!space_.vpp.empty()) return space_.vpp;
  if (!info.uses_chunks) return {1};
  const int listed = static_cast<int>(job_.layout.stage_layers.size());
  if (listed > 0) return {std::max(1, listed / pipeline_ranks)};
  if (pipeline_ranks == 1) return {1};
  if (!takes_other_chunks(info, pipeline_ranks)) return {info.default_chunks};
  std::vector<int> counts;
  for (int chunks = 2; chunks * pipeline_ranks <= job_.model.layers; ++chunks) {
    if (space_.uneven_chunks || job_.model.layers % (chunks * pipeline_ranks) == 0) counts.push_back(chunks);
  }
  // A schedule made for its own number of chunks is asked about it however the layers divide.
  const bool has_default = std::find(counts.begin(), counts.end(), info.default_chunks) != counts.end();
  if (!has_default && info.default_chunks > 1) counts.insert(counts.begin(), info.default_chunks);
  return counts;
}

// One rank that needs no chunks: no order of its passes is faster than 1f1b's or holds less.
bool MemberTable::is_as_1f1b(const ScheduleInfo& info, int pipeline_ranks) const {
  if (pipeline_ranks > 1 || !info.uses_chunks || job_.layout.stage_layers.size() > 1) return false;
  if (!space_.vpp.empty() && std::find(space_.vpp.begin(), space_.vpp.end(), 1) == space_.vpp.end()) return false;
  return std::any_of(space_.schedules.begin(), space_.schedules.end(),
                     [](const ScheduleChoice& choice) { return choice.text == "1f1b"; });
}

void MemberTable::add_schedule(std::uint16_t schedule, const LayoutGroup& group, Row& row) {
  const ScheduleChoice& choice = space_.schedules[schedule];
  if (is_as_1f1b(*choice.info, group.pp)) return;
  const auto listed = static_cast<int>(job_.layout.stage_layers.size());
  for (const int chunks : chunk_counts(*choice.info, group.pp)) {
    if (listed > 0 && group.pp * chunks != listed) {
      ++row.rejected["stage_layers has another number of stages"];
      continue;
    }
    if (group.pp * chunks > job_.model.layers) {
      ++row.rejected["more stages than layers"];
      continue;
    }
    ScheduleRequest request;
    request.pipeline_ranks = group.pp;
    request.microbatches = group.microbatches;
    request.chunks = chunks;
    request.variant = choice.variant;
    for (const ScheduleNumber& number : schedule_numbers()) request.*number.request = job_.layout.*number.layout;
    if (choice.info->asynchronous) request.accumulation = choice.info->weights.accumulation(request);
    if (refuse_request(*choice.info, request)) {
      ++row.rejected[fmt::format("{} does not take these ranks, microbatches and chunks", choice.text)];
      continue;
    }
    add_chunks(schedule, chunks, group, row);
  }
}

std::vector<int> MemberTable::shardings(const LayoutGroup& group, Row& row) const {
  if (job_.layout.data_parallel != DataParallel::kDdp) {
    if (const char* reason = broken_sharding_rule(job_, group, 0)) {
      ++row.rejected[reason];
      return {};
    }
    return {job_.layout.zero};
  }
  const std::vector<int> all = {0, 1, 2, 3};
  std::vector<int> valid;
  for (const int zero : space_.zero.empty() ? all : space_.zero) {
    const bool same_as_none = space_.zero.empty() && zero > 0 && group.dp * group.cp == 1;
    if (same_as_none) continue;
    if (const char* reason = broken_sharding_rule(job_, group, zero)) {
      ++row.rejected[reason];
    } else {
      valid.push_back(zero);
    }
  }
  return valid;
}

bool MemberTable::has_split(const SplitRule& split, int pipeline_ranks, int chunks) const {
  const int stages = pipeline_ranks * chunks;
  switch (split.kind) {
    case SplitRule::Kind::kUniform:
      return true;
    case SplitRule::Kind::kBalanced:
      return pipeline_ranks > 1 && chunks == 1 && !job_.profile;
    case SplitRule::Kind::kLighterEnds:
      return stages > 2 && !job_.profile && job_.model.layers / stages > std::max(split.fewer_first, split.fewer_last);
  }
  return false;
}

void MemberTable::add_chunks(std::uint16_t schedule, int chunks, const LayoutGroup& group, Row& row) {
  for (const int zero : shardings(group, row)) {
    for (std::size_t split = 0; split < space_.splits.size(); ++split) {
      if (!has_split(space_.splits[split], group.pp, chunks)) continue;
      members_.back().push_back({schedule, static_cast<std::uint16_t>(chunks), static_cast<std::uint8_t>(zero),
                                 static_cast<std::uint8_t>(split)});
    }
  }
}

}  // namespace flopcast
