#include "realrun/parallel/rank_state.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "model/error/error.hpp"

namespace flopcast::realrun {

RankState::RankState(ParallelContext& context, const Program& program, int pipeline_rank,
                     const std::vector<StageLayout>& layouts, SharedParameters shared, std::vector<Group> groups,
                     const BucketRules& rules)
    : context_(context), shared_(std::move(shared)), groups_(std::move(groups)) {
  for (std::size_t stage = 0; stage < layouts.size(); ++stage) {
    if (program.rank_of_stage[stage] != pipeline_rank) continue;
    stages_[static_cast<int>(stage)] = std::make_unique<StageWeights>(context, static_cast<int>(stage), layouts[stage],
                                                                      make_buckets(layouts[stage], shared_, rules));
  }
}

void RankState::begin_step() {
  for (const auto& [stage, weights] : stages_) weights->begin_step();
}

UnitStore& RankState::open(int stage, const PassPlace& place) {
  return stages_.at(stage)->open(place);
}

void RankState::update(int stage, int oldest_needed) {
  StageWeights& weights = *stages_.at(stage);
  weights.finish_reductions();
  weights.update(false);
  weights.retire_below(oldest_needed);
}

void RankState::finish_step() {
  for (const auto& [stage, weights] : stages_) weights->finish_reductions();
  for (std::size_t set = 0; set < shared_.sets.size(); ++set) sum_shared(set);
  for (const auto& [stage, weights] : stages_) weights->update(true);
}

void RankState::sum_shared(std::size_t set) {
  // A copy is a list of buckets; the copies of a set are cut alike.
  std::vector<std::vector<Buffer>> copies;
  std::vector<int> distinct = shared_.sets[set].stages;
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  for (const int stage : distinct) {
    const auto held = stages_.find(stage);
    if (held == stages_.end()) continue;
    std::vector<Buffer> parts;
    for (std::size_t bucket = 0; bucket < held->second->buckets().size(); ++bucket) {
      if (held->second->buckets()[bucket].shared_set == static_cast<int>(set)) {
        parts.push_back(held->second->reduced(bucket));
      }
    }
    const std::vector<int>& stages = shared_.sets[set].stages;
    const auto times = static_cast<std::size_t>(std::count(stages.begin(), stages.end(), stage));
    FLOPCAST_CHECK(parts.size() % times == 0);
    const auto each = static_cast<std::ptrdiff_t>(parts.size() / times);
    for (auto first = parts.begin(); first != parts.end(); first += each) copies.emplace_back(first, first + each);
  }
  if (copies.empty()) return;
  const Mark start = context_.device.mark();
  for (std::size_t part = 0; part < copies.front().size(); ++part) {
    const Buffer& sum = copies.front()[part];
    for (std::size_t copy = 1; copy < copies.size(); ++copy) context_.device.add(copies[copy][part], sum);
    if (groups_[set].size() > 1) {
      context_.transport.run(groups_[set], {.kind = CollectiveKind::kAllReduce, .input = sum, .output = sum});
    }
    for (std::size_t copy = 1; copy < copies.size(); ++copy) context_.device.copy(sum, copies[copy][part]);
  }
  if (groups_[set].size() > 1) {
    context_.recording.span(SpanKind::kEmbeddingReduction, StreamKind::kGradient, {}, start, context_.device.mark());
  }
}

std::vector<std::vector<int>> holders_of(const SharedParameters& shared, const Program& program) {
  std::vector<std::vector<int>> holders;
  for (const SharedSet& set : shared.sets) {
    std::set<int> ranks;
    for (const int stage : set.stages) ranks.insert(program.rank_of_stage.at(static_cast<std::size_t>(stage)));
    holders.emplace_back(ranks.begin(), ranks.end());
  }
  return holders;
}

}  // namespace flopcast::realrun
