#include "planner/bounds/bounds.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "sim/forecast/prepare.hpp"

namespace flopcast {

bool ScheduleShapes::Key::operator<(const Key& other) const {
  return std::tie(schedule, pipeline_ranks, chunks, microbatches) <
         std::tie(other.schedule, other.pipeline_ranks, other.chunks, other.microbatches);
}

namespace {

bool is_below(const HeldCounts& a, const HeldCounts& b) {
  for (std::size_t index = 0; index < a.size(); ++index) {
    if (a[index] > b[index]) return false;
  }
  return true;
}

void keep_if_fuller(const HeldCounts& held, std::vector<HeldCounts>& moments) {
  const auto covers = [&held](const HeldCounts& known) { return is_below(held, known); };
  if (std::any_of(moments.begin(), moments.end(), covers)) return;
  moments.erase(std::remove_if(moments.begin(), moments.end(),
                               [&held](const HeldCounts& known) { return is_below(known, held); }),
                moments.end());
  moments.push_back(held);
}

bool frees(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kWeightGradient;
}

}  // namespace

std::vector<HeldCounts> fullest_moments(const std::vector<Action>& actions, const std::vector<int>& stages,
                                        bool frees_in_pairs) {
  std::vector<HeldCounts> moments;
  HeldCounts held(stages.size(), 0);
  const auto count_of = [&](const Action& action) -> int& {
    const auto place = std::find(stages.begin(), stages.end(), static_cast<int>(action.stage));
    return held[static_cast<std::size_t>(place - stages.begin())];
  };
  bool grew = false;
  for (std::size_t index = 0; index < actions.size(); ++index) {
    const bool pair = actions[index].overlaps_next && index + 1 < actions.size();
    const std::size_t last = pair ? index + 1 : index;
    const auto allocate = [&] {
      for (std::size_t part = index; part <= last; ++part) {
        if (actions[part].kind != ActionKind::kForward) continue;
        ++count_of(actions[part]);
        grew = true;
      }
    };
    if (!pair || !frees_in_pairs) allocate();
    for (std::size_t part = index; part <= last; ++part) {
      if (!frees(actions[part].kind)) continue;
      // What is held is most just before something is freed.
      if (grew) keep_if_fuller(held, moments);
      grew = false;
      --count_of(actions[part]);
    }
    if (pair && frees_in_pairs) allocate();
    index = last;
  }
  if (grew) keep_if_fuller(held, moments);
  return moments;
}

ScheduleShapes::Key ScheduleShapes::key_of(std::uint16_t schedule, int pipeline_ranks, int chunks,
                                           int microbatches) const {
  const Key whole{schedule, pipeline_ranks, chunks, microbatches};
  const ScheduleInfo& info = *space_.schedules[schedule].info;
  if (microbatches < 3 * pipeline_ranks || microbatches < 4 || info.asynchronous) return whole;
  Key few = whole;
  few.microbatches = 2 * pipeline_ranks + microbatches % pipeline_ranks;
  few.microbatches = std::max(few.microbatches, 2);
  return refuse_request(info, request_of(few)) ? whole : few;
}

ScheduleRequest ScheduleShapes::request_of(const Key& key) const {
  ScheduleRequest request;
  request.pipeline_ranks = key.pipeline_ranks;
  request.microbatches = key.microbatches;
  request.chunks = key.chunks;
  request.variant = space_.schedules[key.schedule].variant;
  for (const ScheduleNumber& number : schedule_numbers()) request.*number.request = base_.*number.layout;
  const ScheduleInfo& info = *space_.schedules[key.schedule].info;
  if (info.asynchronous) request.accumulation = info.weights.accumulation(request);
  return request;
}

std::size_t ScheduleShapes::map_number(const StageMap& map) {
  for (std::size_t index = 0; index < maps_.size(); ++index) {
    const StageMap& known = maps_[index];
    const bool same = known.rank_of_stage == map.rank_of_stage && known.model_stages == map.model_stages &&
                      known.passes_in_a_row == map.passes_in_a_row;
    if (same) return index;
  }
  maps_.push_back(map);
  return maps_.size() - 1;
}

ScheduleShape ScheduleShapes::make_shape(const Key& key, int microbatches) {
  const ScheduleInfo& info = *space_.schedules[key.schedule].info;
  const Program program = info.generate(request_of(key));
  ScheduleShape shape;
  shape.stages = stage_map_of(program);
  shape.asynchronous = program.asynchronous;
  shape.splits_backward = info.uses_times;
  shape.slices = program.slices_per_microbatch;
  shape.pipeline_ranks = program.rank_count();
  // A row is of all microbatches of a chain, however many the program has.
  const int row = microbatches / static_cast<int>(std::max<std::size_t>(1, program.chains.size()));
  for (int& passes : shape.stages.passes_in_a_row) passes = row;
  // prepare() reads the stages of such a schedule before it knows the order.
  if (info.uses_times) shape.stages = stage_map_of(stages_of_schedule(info, request_of(key)));
  shape.map = map_number(shape.stages);
  for (const std::vector<Action>& actions : program.ranks) {
    std::vector<int> stages;
    for (int stage = 0; stage < program.stage_count(); ++stage) {
      if (program.rank_of_stage[static_cast<std::size_t>(stage)] == static_cast<int>(shape.stages_of_rank.size())) {
        stages.push_back(stage);
      }
    }
    for (const Action& action : actions) {
      shape.splits_backward = shape.splits_backward || action.kind == ActionKind::kInputGradient;
    }
    const bool in_rows = !shape.stages.passes_in_a_row.empty() && shape.stages.copies() == 1;
    if (info.uses_times || program.asynchronous) {
      shape.held.push_back({HeldCounts(stages.size(), 1)});
    } else if (in_rows) {
      shape.held.push_back({HeldCounts(stages.size(), row * shape.slices)});
    } else {
      shape.held.push_back(fullest_moments(actions, stages, program.frees_in_pairs));
    }
    shape.stages_of_rank.push_back(std::move(stages));
  }
  return shape;
}

const ScheduleShape& ScheduleShapes::shape(std::uint16_t schedule, int pipeline_ranks, int chunks, int microbatches) {
  // Rows grow with the microbatches, so a shape with rows is of one number of them.
  const Key whole{schedule, pipeline_ranks, chunks, microbatches};
  const auto exact = shapes_.find(whole);
  if (exact != shapes_.end()) return exact->second;
  const Key few = key_of(schedule, pipeline_ranks, chunks, microbatches);
  const auto similar = shapes_.find(few);
  if (similar != shapes_.end() && similar->second.stages.passes_in_a_row.empty()) return similar->second;
  ScheduleShape made = make_shape(few, microbatches);
  const bool rows = !made.stages.passes_in_a_row.empty();
  return shapes_.emplace(rows ? whole : few, std::move(made)).first->second;
}

const ScheduleShape* ScheduleShapes::known(std::uint16_t schedule, int pipeline_ranks, int chunks,
                                           int microbatches) const {
  const auto exact = shapes_.find(Key{schedule, pipeline_ranks, chunks, microbatches});
  if (exact != shapes_.end()) return &exact->second;
  const auto similar = shapes_.find(key_of(schedule, pipeline_ranks, chunks, microbatches));
  return similar == shapes_.end() ? nullptr : &similar->second;
}

}  // namespace flopcast
