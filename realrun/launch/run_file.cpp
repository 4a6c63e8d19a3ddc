#include "realrun/launch/run_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <map>
#include <utility>

#include "base/host/processes.hpp"
#include "base/text/error.hpp"
#include "realrun/network/gemm.hpp"
#include "sim/files/timeline_file.hpp"

namespace flopcast::realrun {

namespace {

using Json = nlohmann::ordered_json;

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

double seconds_of(const Span& span) {
  return static_cast<double>(span.end - span.start) * 1e-12;
}

// The first steps warm caches and branch predictors up: they are left out where there are others.
Json samples_of(const std::vector<RankResult>& ranks, int warmup, const std::string& dtype) {
  std::map<std::pair<SpanKind, int>, std::vector<double>> seconds;  // by kind and stage
  const std::size_t first =
      std::min(static_cast<std::size_t>(warmup), std::max<std::size_t>(1, finished_steps(ranks)) - 1);
  for (const RankResult& rank : ranks) {
    for (std::size_t step = first; step < rank.steps.size(); ++step) {
      for (const Span& span : rank.steps[step].record.spans) {
        seconds[{span.kind, is_action(span.kind) ? span.action.stage : -1}].push_back(seconds_of(span));
      }
    }
  }
  Json samples = Json::array();
  for (const auto& [key, values] : seconds) {
    Json sample = {{"kind", std::string(name_of(key.first))}};
    if (key.second >= 0) sample["stage"] = key.second;
    sample["ranks"] = ranks.size();
    sample["dtype"] = dtype;
    sample["seconds"] = values;
    samples.push_back(sample);
  }
  return samples;
}

Json traffic_json(const SentTraffic& traffic) {
  Json entries = Json::array();
  const auto add = [&](std::string_view kind, Axis axis, const TrafficCount& count) {
    entries.push_back({{"kind", std::string(kind)},
                       {"axis", name_of(axis)},
                       {"messages", count.messages},
                       {"bytes_sent", count.bytes}});
  };
  if (traffic.point_to_point.messages > 0) add("p2p", Axis::kPipeline, traffic.point_to_point);
  for (const auto& [key, count] : traffic.collectives) add(name_of(key.first), key.second, count);
  return entries;
}

Json steps_json(const std::vector<RankResult>& ranks) {
  const std::vector<double> losses = mean_losses(ranks);
  Json steps = Json::array();
  for (std::size_t step = 0; step < losses.size(); ++step) {
    Json wall = Json::array();
    Json cpu = Json::array();
    Json traffic = Json::array();
    for (const RankResult& rank : ranks) {
      wall.push_back(rank.steps[step].wall_seconds);
      cpu.push_back(rank.steps[step].cpu_seconds);
      traffic.push_back(traffic_json(rank.steps[step].traffic));
    }
    steps.push_back({{"loss", losses[step]},
                     {"microbatch_losses", microbatch_losses(ranks, step)},
                     {"wall_s", wall},
                     {"cpu_s", cpu},
                     {"traffic_by_rank", traffic},
                     {"timeline", run_timeline_json(timeline_of(ranks, step))}});
  }
  return steps;
}

Json seconds_json(const std::vector<Ticks>& times) {
  Json seconds = Json::array();
  for (const Ticks time : times) seconds.push_back(static_cast<double>(time) * 1e-12);
  return seconds;
}

Json calibration_steps_json(const std::vector<RankResult>& ranks, std::vector<StepRecord> RankCalibration::*steps) {
  std::size_t count = (ranks.front().calibration.*steps).size();
  for (const RankResult& rank : ranks) count = std::min(count, (rank.calibration.*steps).size());
  Json timelines = Json::array();
  for (std::size_t step = 0; step < count; ++step) {
    timelines.push_back(run_timeline_json(calibration_of(ranks, steps, step)));
  }
  return timelines;
}

Json calibration_json(const std::vector<RankResult>& ranks) {
  Json messages = Json::array();
  for (const RankResult& rank : ranks) {
    for (const MessageTimes& times : rank.calibration.messages) {
      messages.push_back({{"to_stage", times.key.stage},
                          {"carries", times.key.activation ? "activation" : "gradient"},
                          {"bytes", times.bytes},
                          {"one_way_s", seconds_json(times.one_way)},
                          {"receive_s", seconds_json(times.receive)}});
    }
  }
  return {{"timelines", calibration_steps_json(ranks, &RankCalibration::steps)},
          {"later_timelines", calibration_steps_json(ranks, &RankCalibration::later_steps)},
          {"messages", messages}};
}

Json sleep_json(const std::vector<StageTimes>& stages) {
  Json json = Json::array();
  for (const StageTimes& stage : stages) {
    json.push_back({{"forward_ps", stage.forward},
                    {"backward_ps", stage.backward},
                    {"input_gradient_ps", stage.input_gradient},
                    {"weight_gradient_ps", stage.weight_gradient}});
  }
  return json;
}

}  // namespace

Json run_file(const TrainingPlan& plan, const std::vector<RankResult>& ranks, const RunOrigin& origin) {
  Json peaks = Json::array();
  for (const RankResult& rank : ranks) peaks.push_back(rank.peak_activation_bytes);
  Json run = {{"backend", origin.backend},
              {"conditions", origin.conditions},
              {"complete", origin.failure.empty()},
              {"failure", origin.failure},
              {"schedule", plan.program.schedule},
              {"pipeline_ranks", plan.pipeline_ranks()},
              {"dp", plan.dp},
              {"tp", plan.tp},
              {"zero", plan.zero},
              {"compression", plan.compression.text()},
              {"microbatches", plan.microbatches()},
              {"micro_batch_size", plan.micro_batch_size},
              {"peak_activation_bytes_by_rank", peaks},
              {"job", origin.job},
              {"warmup", origin.warmup},
              {"load",
               {{"wall_s", origin.load.wall_s},
                {"own_cpu_s", origin.load.own_cpu_s},
                {"others_cpu_s", origin.load.others_cpu_s},
                {"cores", origin.load.cores}}},
              {"sleep", sleep_json(plan.sleep)},
              {"calibration", calibration_json(ranks)},
              {"steps", steps_json(ranks)}};
  // Where a GPU multiplies, the host's library has no part.
  Json libraries = origin.libraries;
  if (libraries.empty()) libraries = {{"gemm", std::string(gemm_library())}};
  return {{"schema", "flopcast.measurement/1"},
          {"device", origin.device},
          {"host", host_name()},
          {"date", utc_now()},
          {"libraries", libraries},
          {"samples", samples_of(ranks, origin.warmup, origin.dtype)},
          {"run", run}};
}

}  // namespace flopcast::realrun
