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
  const StageMap of_program = stage_map_of(program);
  shape.stages = of_program;
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
    std::vector<int> stages = of_program.stages_of(static_cast<int>(shape.held.size()));
    for (const Action& action : actions) {
      shape.splits_backward = shape.splits_backward || action.kind == ActionKind::kInputGradient;
    }
    const bool in_rows = !shape.stages.passes_in_a_row.empty() && shape.stages.copies() == 1;
    std::vector<HeldCounts> moments;
    if (info.uses_times || program.asynchronous) {
      moments = {HeldCounts(stages.size(), 1)};
    } else if (in_rows) {
      moments = {HeldCounts(stages.size(), row * shape.slices)};
    } else {
      moments = fullest_moments(actions, stages, program.frees_in_pairs);
    }
    shape.held.push_back({std::move(stages), std::move(moments)});
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
