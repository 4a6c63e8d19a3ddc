#include "sim/compare/closed_form.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace flopcast {

std::optional<UniformTimes> uniform_times(const StepTimes& times) {
  if (times.stages.empty() || times.blocking_sends || !times.flush.empty()) return std::nullopt;
  const StageTimes& first = times.stages.front();
  const bool same_stages = std::all_of(times.stages.begin(), times.stages.end(), [&](const StageTimes& stage) {
    return stage.forward == first.forward && stage.backward == first.backward &&
           stage.input_gradient == first.input_gradient && stage.weight_gradient == first.weight_gradient &&
           stage.fused == first.fused;
  });
  UniformTimes uniform;
  uniform.forward = first.forward;
  uniform.backward = first.backward;
  uniform.weight_gradient = first.weight_gradient;
  uniform.latency = times.boundaries.empty() ? 0 : times.boundaries.front().forward;
  const bool same_links =
      std::all_of(times.boundaries.begin(), times.boundaries.end(), [&](const BoundaryTimes& boundary) {
        return boundary.forward == uniform.latency && boundary.backward == uniform.latency;
      });
  return same_stages && same_links ? std::optional(uniform) : std::nullopt;
}

namespace {

std::string why_none(const ScheduleInfo& info, const ScheduleRequest& request, const UniformTimes& uniform) {
  if (uniform.latency > 0) {
    UniformTimes without = uniform;
    without.latency = 0;
    if (info.closed_form_makespan(request, without)) return "latency exposed: holds without it, or for less of it";
  }
  ScheduleRequest whole = request;
  whole.microbatches += request.pipeline_ranks - request.microbatches % request.pipeline_ranks;
  if (request.microbatches % request.pipeline_ranks != 0 && !refuse_request(info, whole) &&
      info.closed_form_makespan(whole, uniform)) {
    return "holds for m a multiple of p";
  }
  ScheduleRequest more = request;
  more.microbatches *= 2 * request.pipeline_ranks;
  if (!refuse_request(info, more) && info.closed_form_makespan(more, uniform)) return "holds for more microbatches";
  return fmt::format("does not hold here: {}", info.makespan);
}

bool depends_on_the_split(const ScheduleInfo& info, const ScheduleRequest& request, const UniformTimes& uniform) {
  UniformTimes whole = uniform;
  whole.weight_gradient = 0;
  return info.closed_form_makespan(request, whole) != info.closed_form_makespan(request, uniform);
}

}  // namespace

ClosedFormAnswer closed_form_of(const ScheduleInfo& info, const ScheduleRequest& request, const StepTimes& times,
                                Ticks simulated) {
  if (info.closed_form_makespan == nullptr) return {std::nullopt, "none is known"};
  const std::optional<UniformTimes> uniform = uniform_times(times);
  if (!uniform) return {std::nullopt, "times not uniform"};
  if (times.stages.front().input_gradient != uniform->input_gradient() &&
      depends_on_the_split(info, request, *uniform)) {
    return {std::nullopt, "the parts of the backward pass do not add up to it"};
  }
  const std::optional<Ticks> makespan = info.closed_form_makespan(request, *uniform);
  if (!makespan) return {std::nullopt, why_none(info, request, *uniform)};
  if (*makespan == simulated) return {makespan, ""};
  const double share = static_cast<double>(simulated - *makespan) / static_cast<double>(*makespan);
  return {makespan, fmt::format("the simulated value differs by {:+.2g} %", 100.0 * share)};
}

}  // namespace flopcast
