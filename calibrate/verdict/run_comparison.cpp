#include "calibrate/verdict/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/text/error.hpp"
#include "model/units/quantity.hpp"
#include "sim/lower/lower.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

namespace {

constexpr std::size_t kStepsDrawn = 3;  // of an asynchronous run

// The part of a timeline between two moments, moved to the origin.
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

// When the last microbatch of each step of an asynchronous run has left the pipeline.
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

// The steps that count, and what is drawn.
struct Steps {
  std::vector<Timeline> counted;
  Timeline drawn;  // of an asynchronous run only
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

// Causes of waiting are told apart by where a pipeline fills and drains, which a steady step does not.
void forget_causes(BubbleResult& bubble) {
  bubble.dependency_s += bubble.warmup_s + bubble.cooldown_s;
  bubble.warmup_s = 0.0;
  bubble.cooldown_s = 0.0;
}

// Computing ranks run the halves of an overlapped pair one after the other (realrun/executor); sleeping ones take the
// time that the forecast gives the pair.
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

  // The run's own steps, disturbed ones too.
  std::vector<Timeline> counted() const {
    if (asynchronous_) return steps_of(run_.steps.front(), program_, microbatches(), run_.warmup).counted;
    return {run_.steps.begin() + run_.warmup, run_.steps.end()};
  }

  // Of both calibrations together.
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
    // The figure may travel without the notes of the table.
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
    if (asynchronous_) forget_causes(view.result.bubble);
    const double shown = view.result.iteration.time_s * 1e3;
    view.drawn.title = fmt::format("{}: {} {:.3f} ms, bubble {:.1f} %", title, asynchronous_ ? "steady step" : "step",
                                   shown, 100.0 * view.result.bubble.fraction);
    view.step.title = view.drawn.title;
    view.drawn.slices_per_microbatch = view.step.slices_per_microbatch = program_.slices_per_microbatch;
    view.result.warnings = job_.result.warnings;
    view.result.assumptions.push_back("mfu and hfu are of the peak of the job's cluster, not of this machine");
    view.result.assumptions.push_back("communication inside actions counts as compute");
  }

  // Mean over ranks of the time messages were under way, at both ends.
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
    result.assumptions.push_back("of memory only activations are measured");
  }

  const Forecast& job_;
  const MeasuredRun& run_;
  bool asynchronous_ = false;
  Program program_;
};

double action_seconds(const Timeline& timeline) {
  double sum = 0.0;
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (const Span& span : spans) {
      if (is_action(span.kind)) sum += static_cast<double>(span.end - span.start) * kSecondsPerTick;
    }
  }
  return sum;
}

double slept_seconds(const Timeline& timeline, const std::vector<StageTimes>& told) {
  double sum = 0.0;
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (const Span& span : spans) {
      if (!is_action(span.kind)) continue;
      const StageTimes& stage = told.at(span.action.stage);
      const Ticks time = span.kind == SpanKind::kForward          ? stage.forward
                         : span.kind == SpanKind::kInputGradient  ? stage.input_gradient
                         : span.kind == SpanKind::kWeightGradient ? stage.weight_gradient
                                                                  : stage.backward;
      sum += static_cast<double>(time) * kSecondsPerTick;
    }
  }
  return sum;
}

// A rank that computes all the time it says it does uses as much CPU time; less means that others took the core.
double stretch_of(const MeasuredRun& run, std::size_t step) {
  const double busy = action_seconds(run.steps[step]);
  if (!run.sleep.empty()) return busy / std::max(1e-12, slept_seconds(run.steps[step], run.sleep));
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
    forecast.assumptions.push_back("bytes sent are of what runs: fp32, vocabulary not padded");
    if (!comparison.slept && has_pairs(job.step.program))
      forecast.assumptions.push_back("the halves of a pair overlap on the job's cluster; here they ran one by one");
  }
  for (const Axis axis : kResultAxes) {
    forecast.communication[axis].bytes_sent_per_rank = as_run.communication[axis].bytes_sent_per_rank;
    forecast.communication[axis].messages = as_run.communication[axis].messages;
  }
  const std::optional<Finetune>& finetune = job.step.job.training.finetune;
  if (finetune && finetune->base != BaseFormat::kBf16) {
    forecast.assumptions.push_back(
        fmt::format("the run keeps frozen weights in 32 bits: {} is not executed", name_of(finetune->base)));
  }
  const std::optional<Experts>& experts = job.step.job.model.experts;
  if (experts && job.step.job.layout.ep > 1 && !experts->capacity_factor) {
    forecast.assumptions.push_back("bytes of axis ep are those of even routing; the run's router is real, and uneven");
  }
  if (calibrated) {
    forecast.memory = as_run.memory;
    forecast.assumptions.push_back("times are calibrated on this machine");
    forecast.assumptions.push_back(
        fmt::format("bytes and memory are of what runs: fp32, no dropout, {}, vocabulary not padded",
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

}  // namespace flopcast
