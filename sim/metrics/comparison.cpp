#include "sim/metrics/metrics.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/error.hpp"
#include "sim/lower/lower.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

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

int forwards_of(const std::vector<Action>& actions) {
  return static_cast<int>(std::count_if(actions.begin(), actions.end(),
                                        [](const Action& action) { return action.kind == ActionKind::kForward; }));
}

// A rank runs a forward for each chunk or slice of a microbatch, so the count tells how many make one up.
std::vector<double> peaks_of(const Program& program, int microbatches) {
  std::vector<double> peaks;
  const std::vector<int> in_flight = peak_in_flight(program);
  for (std::size_t rank = 0; rank < in_flight.size(); ++rank) {
    const double per_microbatch = static_cast<double>(forwards_of(program.ranks[rank])) / microbatches;
    peaks.push_back(in_flight[rank] / std::max(per_microbatch, 1.0));
  }
  return peaks;
}

double largest(const std::vector<double>& values) {
  return values.empty() ? 0.0 : *std::max_element(values.begin(), values.end());
}

ScheduleFigures measure_program(const Program& program, const StepTimes& times, int microbatches) {
  const Timeline timeline = simulate(program, times);
  const TimelineMetrics metrics = measure(timeline);
  ScheduleFigures figures;
  figures.makespan = metrics.makespan;
  figures.span = metrics.longest_span();
  figures.bubble_fraction = metrics.idle_fraction();
  figures.bubble_ratio = metrics.bubble_ratio();
  figures.peak_activations = peaks_of(program, microbatches);
  figures.weight_copies.assign(program.ranks.size(), static_cast<int>(program.chains.size()));
  figures.staleness.assign(program.ranks.size(), 0);
  figures.messages = timeline.transfers.size();
  return figures;
}

void add_updates(const ScheduleInfo& info, const ScheduleRequest& request, ScheduleFigures& figures) {
  for (std::size_t rank = 0; rank < figures.weight_copies.size(); ++rank) {
    figures.weight_copies[rank] *= info.weights.versions(request, static_cast<int>(rank));
    figures.staleness[rank] = info.weights.staleness(request, static_cast<int>(rank));
  }
}

void add_steady_state(const ScheduleInfo& info, const ScheduleRequest& request, const StepTimes& times,
                      ScheduleFigures& figures) {
  const auto generate = [&](int microbatches) {
    ScheduleRequest longer = request;
    longer.microbatches = microbatches;
    return info.generate(longer);
  };
  const std::optional<CriticalCycle> cycle = critical_cycle(generate, times);
  if (!cycle) return;
  figures.steady_period = cycle->period_ticks();
  figures.steady_idle = steady_state(generate, times).idle_fraction;
}

}  // namespace

std::optional<UniformTimes> uniform_times(const StepTimes& times) {
  if (times.stages.empty() || times.blocking_sends || !times.flush.empty()) return std::nullopt;
  const StageTimes& first = times.stages.front();
  const bool same_stages = std::all_of(times.stages.begin(), times.stages.end(), [&](const StageTimes& stage) {
    return stage.forward == first.forward && stage.backward == first.backward &&
           stage.input_gradient == first.input_gradient && stage.weight_gradient == first.weight_gradient &&
           stage.fused == first.fused && stage.pair_saved == 0;
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

double ScheduleFigures::largest_peak() const {
  return largest(peak_activations);
}

ScheduleFigures figures_of(const ScheduleInfo& info, const ScheduleRequest& request, const TimesOfProgram& times) {
  const Program program = generate_schedule(info, request, times);
  const StepTimes step_times = times(program);
  ScheduleFigures figures = measure_program(program, step_times, request.microbatches);
  if (info.asynchronous) {
    add_updates(info, request, figures);
    add_steady_state(info, request, step_times, figures);
  }
  const ClosedFormAnswer answer = closed_form_of(info, request, step_times, figures.makespan);
  figures.closed_form = answer.makespan;
  figures.closed_form_note = answer.note;
  return figures;
}

ScheduleFigures figures_of(const Program& program, const TimesOfProgram& times) {
  ScheduleFigures figures = measure_program(program, times(program), program.microbatch_count());
  figures.closed_form_note = "from a file";
  return figures;
}

MemoryFit fit_into_memory(const ScheduleInfo& info, const ScheduleRequest& request, int activations,
                          const TimesOfProgram& times) {
  ScheduleRequest limited = request;
  const bool reads_limit =
      std::find(info.reads.begin(), info.reads.end(), &ScheduleRequest::memory_limit) != info.reads.end();
  if (reads_limit && !limited.memory_limit) limited.memory_limit = activations;
  const auto with = [&limited](int microbatches) {
    ScheduleRequest asked = limited;
    asked.microbatches = microbatches;
    return asked;
  };
  const auto fits = [&](int microbatches) {
    const Program program = generate_schedule(info, with(microbatches), times);
    return largest(peaks_of(program, microbatches)) <= activations;
  };
  std::vector<int> accepted;
  for (int microbatches = 1; microbatches <= request.microbatches; ++microbatches) {
    const bool is_asked = microbatches == request.microbatches;
    if (info.asynchronous && !is_asked) continue;
    if (!refuse_request(info, with(microbatches))) accepted.push_back(microbatches);
  }
  // More microbatches never need less memory.
  const auto past = std::partition_point(accepted.begin(), accepted.end(), fits);
  MemoryFit fit;
  if (past == accepted.begin()) return fit;
  fit.microbatches = *(past - 1);
  const Program program = generate_schedule(info, with(fit.microbatches), times);
  fit.bubble_fraction = measure(simulate(program, times(program))).idle_fraction();
  if (past != accepted.end() || fit.microbatches != request.microbatches) return fit;
  // No schedule holds more microbatches than a few a rank unless it holds all of them.
  constexpr int kManyPerRank = 8;
  const int many = std::max(2 * request.microbatches, kManyPerRank * request.pipeline_ranks * activations);
  for (int microbatches = many; microbatches < many + request.pipeline_ranks; ++microbatches) {
    if (refuse_request(info, with(microbatches))) continue;
    fit.unlimited = fits(microbatches);
    break;
  }
  return fit;
}

}  // namespace flopcast
