#include "realrun/launch/run_file.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <map>
#include <utility>

#include "base/host/processes.hpp"
#include "realrun/network/kernels.hpp"
#include "sim/files/run_file.hpp"

namespace flopcast::realrun {

namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

// The first steps warm caches and branch predictors up: they are left out where there are others.
std::vector<RecordedSample> samples_of(const std::vector<RankResult>& ranks, int warmup) {
  std::map<std::pair<SpanKind, int>, std::vector<double>> seconds;  // by kind and stage
  const std::size_t first =
      std::min(static_cast<std::size_t>(warmup), std::max<std::size_t>(1, finished_steps(ranks)) - 1);
  for (const RankResult& rank : ranks) {
    for (std::size_t step = first; step < rank.steps.size(); ++step) {
      for (const Span& span : rank.steps[step].record.spans) {
        seconds[{span.kind, is_action(span.kind) ? span.action.stage : -1}].push_back(
            static_cast<double>(span.end - span.start) * kSecondsPerTick);
      }
    }
  }
  std::vector<RecordedSample> samples;
  for (auto& [key, values] : seconds) samples.push_back({key.first, key.second, std::move(values)});
  return samples;
}

std::vector<RecordedTraffic> traffic_of(const SentTraffic& sent) {
  std::vector<RecordedTraffic> traffic;
  const TrafficCount& p2p = sent.point_to_point;
  if (p2p.messages > 0) traffic.push_back({"p2p", Axis::kPipeline, p2p.messages, p2p.bytes});
  for (const auto& [key, count] : sent.collectives) {
    traffic.push_back({name_of(key.first), key.second, count.messages, count.bytes});
  }
  return traffic;
}

std::vector<RecordedStep> steps_of(const std::vector<RankResult>& ranks) {
  std::vector<RecordedStep> steps;
  for (const double loss : mean_losses(ranks)) {
    const std::size_t index = steps.size();
    RecordedStep& step = steps.emplace_back();
    step.loss = loss;
    step.microbatch_losses = microbatch_losses(ranks, index);
    for (const RankResult& rank : ranks) {
      step.wall_s.push_back(rank.steps[index].wall_seconds);
      step.cpu_s.push_back(rank.steps[index].cpu_seconds);
      step.traffic.push_back(traffic_of(rank.steps[index].traffic));
    }
    step.timeline = timeline_of(ranks, index);
  }
  return steps;
}

std::vector<Timeline> calibration_steps(const std::vector<RankResult>& ranks,
                                        std::vector<StepRecord> RankCalibration::*steps) {
  std::size_t count = (ranks.front().calibration.*steps).size();
  for (const RankResult& rank : ranks) count = std::min(count, (rank.calibration.*steps).size());
  std::vector<Timeline> timelines;
  for (std::size_t step = 0; step < count; ++step) timelines.push_back(calibration_of(ranks, steps, step));
  return timelines;
}

}  // namespace

nlohmann::ordered_json run_file(const TrainingPlan& plan, const std::vector<RankResult>& ranks,
                                const RunOrigin& origin) {
  RunRecord run;
  run.device = origin.device;
  run.host = host_name();
  run.date = utc_now();
  run.libraries = origin.libraries;
  // Where a GPU multiplies, the host's library has no part.
  if (run.libraries.empty()) run.libraries = {{"gemm", std::string(gemm_library())}};
  run.dtype = origin.dtype;
  run.samples = samples_of(ranks, origin.warmup);
  run.backend = origin.backend;
  run.conditions = origin.conditions;
  run.failure = origin.failure;
  run.schedule = plan.program.schedule;
  run.pipeline_ranks = plan.pipeline_ranks();
  run.dp = plan.dp;
  run.tp = plan.tp;
  run.zero = plan.zero;
  run.compression = plan.compression.text();
  run.microbatches = plan.microbatches();
  run.micro_batch_size = plan.micro_batch_size;
  run.warmup = origin.warmup;
  run.load = {origin.load.wall_s, origin.load.others_cpu_s, origin.load.cores, origin.load.own_cpu_s};
  run.sleep = plan.sleep;
  run.calibration = calibration_steps(ranks, &RankCalibration::steps);
  run.later_calibration = calibration_steps(ranks, &RankCalibration::later_steps);
  for (const RankResult& rank : ranks) {
    run.peak_activation_bytes.push_back(rank.peak_activation_bytes);
    for (const MessageTimes& times : rank.calibration.messages) {
      run.messages.push_back({times.key.stage, times.key.activation, times.one_way, times.receive, times.bytes});
    }
  }
  run.steps = steps_of(ranks);
  return run_file_json(run, origin.job);
}

}  // namespace flopcast::realrun
