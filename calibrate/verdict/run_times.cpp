#include "calibrate/verdict/verdict.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

using ActionKey = std::pair<int, SpanKind>;  // by stage

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

bool ends_a_backward(SpanKind kind) {
  return kind == SpanKind::kBackward || kind == SpanKind::kWeightGradient;
}

// What a rank did after its last action, by kind; of the reductions only what was left of them.
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
  std::optional<Ticks> embedding;  // whoever comes first waits for the last one
  for (const auto& [key, times] : samples) {
    if (key.second != SpanKind::kEmbeddingReduction) continue;
    embedding = std::min(embedding.value_or(median(times)), median(times));
  }
  std::vector<FlushTimes> flushes;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    FlushTimes flush;
    flush.gradient_reduction = median(samples[{rank, SpanKind::kGradientReduction}]);
    flush.embedding_reduction = embedding.value_or(0);
    flush.optimizer = median(samples[{rank, SpanKind::kOptimizer}]);
    flush.parameter_gather = median(samples[{rank, SpanKind::kParameterGather}]);
    flushes.push_back(flush);
  }
  return flushes;
}

// What lies between an action and the one before it on its rank.
struct Gap {
  ActionKey next;
  Ticks time = 0;
  Ticks updating = 0;  // of it, in the optimizer
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
    time_of(times.stages.at(static_cast<std::size_t>(key.first)), key.second) += median(values);
  }
}

// Updates of a rank for each of its backward passes.
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
    const Ticks each = median(updates) * static_cast<Ticks>(updates.size()) / static_cast<Ticks>(backwards);
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
    const Ticks delay = std::max<Ticks>(0, median(values.first) - median(values.second));
    BoundaryTimes& boundary = times.boundaries.at(static_cast<std::size_t>(activation ? to_stage - 1 : to_stage));
    (activation ? boundary.forward : boundary.backward) = delay;
  }
}

}  // namespace

Ticks median(std::vector<Ticks> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

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
    time_of(times.stages.at(static_cast<std::size_t>(key.first)), key.second) = median(values);
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
  constexpr std::size_t kWarmup = 2;
  if (calibration.empty()) return {};
  const auto skipped = static_cast<std::ptrdiff_t>(std::min(kWarmup, calibration.size() - 1));
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
