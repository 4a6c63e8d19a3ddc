#include "calibrate/verdict/verdict.hpp"

#include <fmt/format.h>

#include "base/text/error.hpp"
#include "calibrate/device/fits.hpp"
#include "model/units/quantity.hpp"
#include "sim/lower/lower.hpp"

namespace flopcast {

namespace {

Ticks& time_of(StageTimes& times, SpanKind kind) {
  switch (kind) {
    case SpanKind::kForward:
      return times.forward;
    case SpanKind::kInputGradient:
      return times.input_gradient;
    case SpanKind::kWeightGradient:
      return times.weight_gradient;
    default:
      return times.backward;
  }
}

constexpr std::size_t kStepsDrawn = 3;  // for an asynchronous run

// The part of a timeline between two times, shifted to the origin.
Timeline window(const Timeline& timeline, Ticks from, Ticks to) {
  Timeline part;
  part.title = timeline.title;
  part.time_unit = timeline.time_unit;
  part.units_per_tick = timeline.units_per_tick;
  for (const std::vector<Span>& spans : timeline.ranks) {
    part.ranks.emplace_back();
    for (Span span : spans) {
      if (span.end <= from || span.start >= to) continue;
      span.start = std::max(span.start, from) - from;
      span.end = std::min(span.end, to) - from;
      part.ranks.back().push_back(span);
    }
  }
  for (Transfer transfer : timeline.transfers) {
    if (transfer.end <= from || transfer.start >= to) continue;
    transfer.start = std::max(transfer.start, from) - from;
    transfer.end = std::min(transfer.end, to) - from;
    part.transfers.push_back(transfer);
  }
  return part;
}

// Times at which the last microbatch of each step of an asynchronous run leaves the pipeline.
std::vector<Ticks> ends_of_steps(const Timeline& timeline, const Program& program, int microbatches) {
  const int first_stage = program.chains.front().first_stage;
  const auto rank = static_cast<std::size_t>(program.rank_of_stage[static_cast<std::size_t>(first_stage)]);
  std::vector<Ticks> ends;
  for (const Span& span : timeline.ranks[rank]) {
    const bool backward = span.kind == SpanKind::kBackward || span.kind == SpanKind::kWeightGradient;
    if (!backward || span.action.stage != first_stage) continue;
    const std::size_t step = span.action.microbatch / static_cast<std::size_t>(microbatches);
    if (ends.size() <= step) ends.resize(step + 1, 0);
    ends[step] = std::max(ends[step], span.end);
  }
  return ends;
}

// The steps that count, and the part to draw.
struct Steps {
  std::vector<Timeline> counted;
  Timeline drawn;  // only for an asynchronous run
};

Steps steps_of(const Timeline& run, const Program& program, int microbatches, int warmup) {
  const std::vector<Ticks> ends = ends_of_steps(run, program, microbatches);
  Steps steps;
  const int counted = counted_steps(static_cast<int>(ends.size()), warmup, true);
  FLOPCAST_CHECK(counted > 0);
  const auto last = ends.size() - 1;
  for (std::size_t step = last - static_cast<std::size_t>(counted); step < last; ++step) {
    steps.counted.push_back(window(run, ends[step - 1], ends[step]));
  }
  steps.drawn = window(run, 0, ends[std::min(ends.size(), kStepsDrawn) - 1]);
  return steps;
}

std::size_t typical(const std::vector<Timeline>& steps) {
  std::vector<std::size_t> order(steps.size());
  for (std::size_t index = 0; index < order.size(); ++index) order[index] = index;
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(order.size() / 2);
  std::nth_element(order.begin(), middle, order.end(),
                   [&](std::size_t a, std::size_t b) { return steps[a].makespan() < steps[b].makespan(); });
  return *middle;
}

// Warm-up and cool-down waiting are distinguished by where a pipeline fills and drains, which does not apply to a
// steady step.
void merge_bubble_causes(BubbleResult& bubble) {
  bubble.dependency_s += bubble.warmup_s + bubble.cooldown_s;
  bubble.warmup_s = 0.0;
  bubble.cooldown_s = 0.0;
}

// Ranks that compute run the halves of an overlapped pair one after the other (realrun/executor); ranks that sleep take
// the time that the forecast gives the pair.
Program one_by_one(Program program) {
  for (std::vector<Action>& actions : program.ranks) {
    for (Action& action : actions) action.overlaps_next = false;
  }
  return program;
}

bool has_pairs(const Program& program) {
  return std::any_of(program.ranks.begin(), program.ranks.end(), [](const std::vector<Action>& actions) {
    return std::any_of(actions.begin(), actions.end(), [](const Action& action) { return action.overlaps_next; });
  });
}

class Comparer {
 public:
  Comparer(const Forecast& job, const MeasuredRun& run)
      : job_(job),
        run_(run),
        asynchronous_(job.step.program.asynchronous),
        program_(asynchronous_       ? executed_program(run.steps.front(), job.step.program)
                 : run.sleep.empty() ? one_by_one(job.step.program)
                                     : job.step.program) {}

  // The steps of the run itself, including disturbed ones.
  std::vector<Timeline> counted() const {
    if (asynchronous_) return steps_of(run_.steps.front(), program_, microbatches(), run_.warmup).counted;
    return {run_.steps.begin() + run_.warmup, run_.steps.end()};
  }

  // Times from both calibrations together.
  StepTimes calibrated() const {
    std::vector<Timeline> steps = warmed_up(run_.calibration);
    const std::vector<Timeline> later = warmed_up(run_.later_calibration);
    steps.insert(steps.end(), later.begin(), later.end());
    return calibrated_times(run_, steps, job_.step.program);
  }

  CalibrationPair calibrations() const {
    const auto forecast_of = [&](const std::vector<Timeline>& calibration) {
      const StepTimes times = calibrated_times(run_, warmed_up(calibration), job_.step.program);
      return simulated(times, "forecast").result.iteration.time_s;
    };
    return {forecast_of(run_.calibration), forecast_of(run_.later_calibration)};
  }

  RunView simulated(const StepTimes& times, const std::string& title) const {
    Timeline timeline = simulate(program_, times);
    timeline.time_unit = "s";
    timeline.units_per_tick = kSecondsPerTick;
    RunView view;
    view.times = times;
    if (asynchronous_) {
      Steps steps = steps_of(timeline, program_, microbatches(), run_.warmup);
      view.step = steps.counted[typical(steps.counted)];
      view.drawn = std::move(steps.drawn);
    } else {
      view.step = timeline;
      view.drawn = std::move(timeline);
    }
    finish(view, title);
    view.result.communication.pp.total_s = transfers_of(view.step);
    return view;
  }

  RunView measured(const std::vector<Timeline>& steps) const {
    RunView view;
    view.times = median_times(asynchronous_ ? run_.steps : steps, program_, false);
    view.step = steps[typical(steps)];
    view.drawn = asynchronous_ ? steps_of(run_.steps.front(), program_, microbatches(), run_.warmup).drawn : view.step;
    finish(view, "measured");
    // The figure may be shown without the notes of the table.
    if (run_.conditions.find("on one GPU") != std::string::npos) view.drawn.title += ", ranks share one GPU";
    view.step.title = view.drawn.title;
    fill_measured(view.result);
    view.result.communication.pp.total_s = transfers_of(view.step);
    return view;
  }

 private:
  int microbatches() const { return job_.step.job.layout.microbatches(); }

  void finish(RunView& view, const std::string& title) const {
    view.result = result_of_timeline(job_.step.job, view.step);
    if (asynchronous_) merge_bubble_causes(view.result.bubble);
    const double shown = view.result.iteration.time_s * 1e3;
    view.drawn.title = fmt::format("{}: {} {:.3f} ms, bubble {:.1f} %", title, asynchronous_ ? "steady step" : "step",
                                   shown, 100.0 * view.result.bubble.fraction);
    view.step.title = view.drawn.title;
    view.drawn.slices_per_microbatch = view.step.slices_per_microbatch = program_.slices_per_microbatch;
    view.result.warnings = job_.result.warnings;
    view.result.assumptions.push_back("mfu and hfu are relative to the peak of the job's cluster, not of this machine");
    view.result.assumptions.push_back("communication inside actions counts as compute");
  }

  // Mean over ranks of the time messages are in flight, counted at both ends.
  static double transfers_of(const Timeline& timeline) {
    double sum = 0.0;
    for (const Transfer& transfer : timeline.transfers) {
      sum += 2.0 * static_cast<double>(transfer.end - transfer.start) * kSecondsPerTick;
    }
    return sum / timeline.rank_count();
  }

  void fill_measured(Result& result) const {
    const double steps = asynchronous_ ? program_.microbatch_count() / static_cast<double>(microbatches())
                                       : static_cast<double>(run_.steps.size());
    for (const auto& [axis, traffic] : run_.traffic) {
      AxisCommunication& sent = result.communication[axis];
      sent.bytes_sent_per_rank = traffic.bytes / steps;
      sent.messages = traffic.messages / steps;
    }
    const std::vector<int> in_flight = peak_in_flight(program_);
    for (std::size_t rank = 0; rank < run_.peak_activation_bytes.size(); ++rank) {
      RankMemoryResult memory;
      memory.activations_gib = gibibytes(Bytes(run_.peak_activation_bytes[rank]));
      memory.total_gib = memory.activations_gib;
      memory.peak_in_flight = in_flight[rank];
      result.memory.peak_gib = std::max(result.memory.peak_gib, memory.total_gib);
      result.memory.per_pipeline_rank.push_back(memory);
    }
    result.assumptions.push_back("activations are the only part of memory that is measured");
  }

  const Forecast& job_;
  const MeasuredRun& run_;
  bool asynchronous_ = false;
  Program program_;
};

// Sums over all actions; `time_of` returns the ticks of each that count.
template <class TimeOf>
double action_seconds(const Timeline& timeline, const TimeOf& time_of) {
  double sum = 0.0;
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (const Span& span : spans) {
      if (is_action(span.kind)) sum += static_cast<double>(time_of(span)) * kSecondsPerTick;
    }
  }
  return sum;
}

// A rank that computes during its whole action uses as much CPU time; less CPU time means that other processes took the
// core.
double stretch_of(const MeasuredRun& run, std::size_t step) {
  const double busy = action_seconds(run.steps[step], [](const Span& span) { return span.end - span.start; });
  if (!run.sleep.empty()) {
    const auto slept = [&run](const Span& span) {
      StageTimes stage = run.sleep.at(span.action.stage);
      return time_of(stage, span.kind);
    };
    return busy / std::max(1e-12, action_seconds(run.steps[step], slept));
  }
  if (computes_on_gpus(run.backend) || run.has_tensor_ranks || run.cpu_s[step] <= 0) return 0.0;
  return busy / run.cpu_s[step];
}

Disturbance disturbance_of(const MeasuredRun& run, std::size_t counted, bool asynchronous) {
  Disturbance found;
  const std::size_t first = asynchronous ? 0 : run.steps.size() - counted;
  for (std::size_t step = 0; step < counted; ++step) {
    found.stretch.push_back(stretch_of(run, asynchronous ? 0 : first + step));
    if (found.stretch.back() > kDisturbed) ++found.steps;
  }
  const double machine_s = run.load.wall_s * run.load.cores;
  if (machine_s > 0) found.others_share = run.load.others_cpu_s / machine_s;
  found.any = found.steps > 0 || found.others_share > kBusyMachine;
  return found;
}

}  // namespace

std::vector<double> step_losses(const MeasuredRun& run, int microbatches) {
  if (run.steps.size() > 1) return run.losses;
  const std::vector<double>& losses = run.microbatch_losses.front();
  const auto each = static_cast<std::size_t>(microbatches);
  std::vector<double> steps;
  for (std::size_t first = 0; first + each <= losses.size(); first += each) {
    double sum = 0.0;
    for (std::size_t index = first; index < first + each; ++index) sum += losses[index];
    steps.push_back(sum / microbatches);
  }
  return steps;
}

int counted_steps(int steps, int warmup, bool asynchronous) {
  return asynchronous ? steps - 1 - std::max(1, warmup) : steps - warmup;
}

RunComparison compare_run(Forecast job, const Result& as_run, const MeasuredRun& run, TimesFrom times_from) {
  RunComparison comparison;
  const Comparer comparer(job, run);
  const std::vector<Timeline> counted = comparer.counted();
  const bool asynchronous = job.step.program.asynchronous;
  const bool calibrated = times_from == TimesFrom::kCalibration;
  comparison.times_from = times_from;
  comparison.slept = !run.sleep.empty();
  comparison.backend = run.backend;
  comparison.conditions = run.conditions;
  comparison.schedule = job.step.job.layout.schedule;
  comparison.measured = comparer.measured(counted);
  comparison.forecast = comparer.simulated(calibrated ? comparer.calibrated() : job.step.times, "forecast");
  if (calibrated) comparison.calibrations = comparer.calibrations();
  comparison.replay = comparer.simulated(comparison.measured.times, "replay");
  Result& forecast = comparison.forecast.result;
  if (!calibrated) {
    forecast = job.result;
    forecast.assumptions.push_back("bytes sent are those of the executed model: fp32, vocabulary not padded");
    if (!comparison.slept && has_pairs(job.step.program))
      forecast.assumptions.push_back(
          "the halves of a pair overlap on the job's cluster; here they ran one after the other");
  }
  for (const Axis axis : kResultAxes) {
    forecast.communication[axis].bytes_sent_per_rank = as_run.communication[axis].bytes_sent_per_rank;
    forecast.communication[axis].messages = as_run.communication[axis].messages;
  }
  const std::optional<Finetune>& finetune = job.step.job.training.finetune;
  if (finetune && finetune->base != BaseFormat::kBf16) {
    forecast.assumptions.push_back(
        fmt::format("the run keeps frozen weights in 32 bits; {} is not executed", name_of(finetune->base)));
  }
  const std::optional<Experts>& experts = job.step.job.model.experts;
  if (experts && job.step.job.layout.ep > 1 && !experts->capacity_factor) {
    forecast.assumptions.push_back("bytes of axis ep assume even routing; the run's router is real, and uneven");
  }
  if (calibrated) {
    forecast.memory = as_run.memory;
    forecast.assumptions.push_back("times are calibrated on this machine");
    forecast.assumptions.push_back(
        fmt::format("bytes and memory are those of the executed model: fp32, no dropout, {}, vocabulary not padded",
                    computes_on_gpus(run.backend) ? "attention fused" : "attention probabilities kept"));
  }
  for (const Timeline& step : counted) {
    comparison.step_seconds.push_back(static_cast<double>(step.makespan()) * kSecondsPerTick);
  }
  comparison.warmup = asynchronous ? std::max(1, run.warmup) : run.warmup;
  comparison.disturbance = disturbance_of(run, counted.size(), asynchronous);
  if (comparison.calibrations && !comparison.calibrations->agrees()) comparison.disturbance.any = true;
  comparison.losses = step_losses(run, job.step.job.layout.microbatches() * job.step.program.slices_per_microbatch);
  comparison.job = std::move(job);
  return comparison;
}

RunComparison judge_run(const Job& asked, Forecast answer, const MeasuredRun& run, TimesFrom times_from,
                        const ReadFile& read_file) {
  const Forecast trained = forecast(job_as_run(asked, computes_on_gpus(run.backend)), read_file);
  Result as_run = trained.result;
  as_run.memory = memory_as_run(trained);
  RunComparison comparison = compare_run(std::move(answer), as_run, run, times_from);
  if (comparison.slept) return comparison;
  comparison.measured.held = held_in_run(trained.step);
  comparison.forecast.held =
      times_from == TimesFrom::kJob ? held_as_priced(comparison.job.step) : comparison.measured.held;
  return comparison;
}

namespace {

using ActionKey = std::pair<int, SpanKind>;  // by stage

bool ends_a_backward(SpanKind kind) {
  return kind == SpanKind::kBackward || kind == SpanKind::kWeightGradient;
}

// Time of a rank after its last action, by kind; only the remainder of the gradient reductions counts.
std::map<SpanKind, Ticks> flush_of(const std::vector<Span>& spans) {
  Ticks last_action = 0;
  for (const Span& span : spans) last_action = std::max(last_action, is_action(span.kind) ? span.end : 0);
  std::map<SpanKind, Ticks> flush;
  Ticks reduced = last_action;
  for (const Span& span : spans) {
    if (is_action(span.kind)) continue;
    if (span.kind == SpanKind::kGradientReduction) {
      reduced = std::max(reduced, span.end);
    } else {
      flush[span.kind] += span.end - span.start;
    }
  }
  flush[SpanKind::kGradientReduction] = reduced - last_action;
  return flush;
}

std::vector<FlushTimes> flush_times(const std::vector<Timeline>& steps, std::size_t ranks) {
  std::map<std::pair<std::size_t, SpanKind>, std::vector<Ticks>> samples;
  for (const Timeline& step : steps) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (const auto& [kind, time] : flush_of(step.ranks[rank])) samples[{rank, kind}].push_back(time);
    }
  }
  std::optional<Ticks> embedding;  // whoever arrives first waits for the last one
  for (const auto& [key, times] : samples) {
    if (key.second != SpanKind::kEmbeddingReduction) continue;
    embedding = std::min(embedding.value_or(upper_median(times)), upper_median(times));
  }
  std::vector<FlushTimes> flushes;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    FlushTimes flush;
    flush.gradient_reduction = upper_median(samples[{rank, SpanKind::kGradientReduction}]);
    flush.embedding_reduction = embedding.value_or(0);
    flush.optimizer = upper_median(samples[{rank, SpanKind::kOptimizer}]);
    flush.parameter_gather = upper_median(samples[{rank, SpanKind::kParameterGather}]);
    flushes.push_back(flush);
  }
  return flushes;
}

// Time between an action and the previous one on its rank.
struct Gap {
  ActionKey next;
  Ticks time = 0;
  Ticks updating = 0;  // part of it spent in the optimizer
};

std::vector<Gap> gaps_of(const std::vector<Span>& spans) {
  std::vector<Gap> gaps;
  const Span* last = nullptr;
  Ticks updating = 0;
  for (const Span& span : spans) {
    if (span.kind == SpanKind::kOptimizer) updating += span.end - span.start;
    if (!is_action(span.kind)) continue;
    if (last != nullptr) gaps.push_back({{span.action.stage, span.kind}, span.start - last->end, updating});
    last = &span;
    updating = 0;
  }
  return gaps;
}

void add_gaps(const std::vector<Timeline>& steps, StepTimes& times) {
  std::map<ActionKey, std::vector<Ticks>> samples;
  for (const Timeline& step : steps) {
    for (const std::vector<Span>& spans : step.ranks) {
      for (const Gap& gap : gaps_of(spans)) samples[gap.next].push_back(gap.time - gap.updating);
    }
  }
  for (const auto& [key, values] : samples) {
    time_of(times.stages.at(static_cast<std::size_t>(key.first)), key.second) += upper_median(values);
  }
}

// Spreads the updates of a rank over its backward passes.
void spread_updates(const std::vector<Timeline>& steps, const Program& program, StepTimes& times) {
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    std::vector<Ticks> updates;
    std::size_t backwards = 0;
    for (const Timeline& step : steps) {
      for (const Span& span : step.ranks[rank]) {
        if (span.kind == SpanKind::kOptimizer) updates.push_back(span.end - span.start);
        backwards += ends_a_backward(span.kind) ? 1 : 0;
      }
    }
    if (backwards == 0) continue;
    const Ticks each = upper_median(updates) * static_cast<Ticks>(updates.size()) / static_cast<Ticks>(backwards);
    for (std::size_t stage = 0; stage < times.stages.size(); ++stage) {
      if (program.rank_of_stage[stage] != static_cast<int>(rank)) continue;
      times.stages[stage].backward += each;
      times.stages[stage].weight_gradient += each;
    }
  }
}

void add_messages(const std::vector<MeasuredMessages>& messages, StepTimes& times) {
  std::map<std::pair<int, bool>, std::pair<std::vector<Ticks>, std::vector<Ticks>>> samples;
  for (const MeasuredMessages& measured : messages) {
    auto& [one_way, receive] = samples[{measured.to_stage, measured.activation}];
    one_way.insert(one_way.end(), measured.one_way.begin(), measured.one_way.end());
    receive.insert(receive.end(), measured.receive.begin(), measured.receive.end());
  }
  for (const auto& [key, values] : samples) {
    const auto& [to_stage, activation] = key;
    const Ticks delay = std::max<Ticks>(0, upper_median(values.first) - upper_median(values.second));
    BoundaryTimes& boundary = times.boundaries.at(static_cast<std::size_t>(activation ? to_stage - 1 : to_stage));
    (activation ? boundary.forward : boundary.backward) = delay;
  }
}

}  // namespace

Program executed_program(const Timeline& timeline, const Program& planned) {
  Program program;
  program.schedule = planned.schedule;
  program.chains = planned.chains;
  program.rank_of_stage = planned.rank_of_stage;
  program.asynchronous = planned.asynchronous;
  program.slices_per_microbatch = planned.slices_per_microbatch;
  for (const std::vector<Span>& spans : timeline.ranks) {
    program.ranks.emplace_back();
    for (const Span& span : spans) {
      if (is_action(span.kind)) program.ranks.back().push_back(span.action);
    }
  }
  return program;
}

StepTimes median_times(const std::vector<Timeline>& steps, const Program& program, bool with_gaps) {
  FLOPCAST_CHECK(!steps.empty());
  std::map<ActionKey, std::vector<Ticks>> samples;
  for (const Timeline& step : steps) {
    for (const std::vector<Span>& spans : step.ranks) {
      for (const Span& span : spans) {
        if (is_action(span.kind)) samples[{span.action.stage, span.kind}].push_back(span.end - span.start);
      }
    }
  }
  StepTimes times;
  times.stages.resize(program.rank_of_stage.size());
  times.boundaries.resize(times.stages.size() - 1);
  for (const auto& [key, values] : samples) {
    time_of(times.stages.at(static_cast<std::size_t>(key.first)), key.second) = upper_median(values);
  }
  if (with_gaps) add_gaps(steps, times);
  if (program.asynchronous) {
    spread_updates(steps, program, times);
  } else {
    times.flush = flush_times(steps, program.ranks.size());
  }
  return times;
}

std::vector<Timeline> warmed_up(const std::vector<Timeline>& calibration) {
  if (calibration.empty()) return {};
  const auto skipped = static_cast<std::ptrdiff_t>(std::min(kCalibrationWarmup, calibration.size() - 1));
  return {calibration.begin() + skipped, calibration.end()};
}

StepTimes calibrated_times(const MeasuredRun& run, const std::vector<Timeline>& steps, const Program& program) {
  StepTimes times = median_times(steps, program, true);
  if (!run.sleep.empty()) {
    const StepTimes slept = median_times(steps, program, false);
    for (std::size_t stage = 0; stage < times.stages.size(); ++stage) {
      for (const SpanKind kind :
           {SpanKind::kForward, SpanKind::kBackward, SpanKind::kInputGradient, SpanKind::kWeightGradient}) {
        StageTimes told = run.sleep.at(stage);
        StageTimes measured = slept.stages[stage];
        if (time_of(measured, kind) > 0)
          time_of(times.stages[stage], kind) += time_of(told, kind) - time_of(measured, kind);
      }
    }
  }
  add_messages(run.messages, times);
  return times;
}

}  // namespace flopcast
