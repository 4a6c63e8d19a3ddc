#include "calibrate/verdict/measured_run.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "sim/files/timeline_file.hpp"

namespace flopcast {

namespace {

// JSON has no word for what is no number.
double loss_of(const nlohmann::json& json) {
  return json.is_null() ? std::nan("") : json.get<double>();
}

std::vector<Ticks> ticks_of(const nlohmann::json& seconds) {
  std::vector<Ticks> ticks;
  for (const nlohmann::json& value : seconds) ticks.push_back(std::llround(value.get<double>() * kTicksPerSecond));
  return ticks;
}

void read_calibration(const nlohmann::json& json, const std::string& file, MeasuredRun& run) {
  for (const nlohmann::json& timeline : json.at("timelines")) {
    run.calibration.push_back(read_run_timeline(timeline, file, "run.calibration.timelines"));
  }
  for (const nlohmann::json& timeline : json.at("later_timelines")) {
    run.later_calibration.push_back(read_run_timeline(timeline, file, "run.calibration.later_timelines"));
  }
  for (const nlohmann::json& messages : json.at("messages")) {
    run.messages.push_back({messages.at("to_stage").get<int>(), messages.at("carries") == "activation",
                            ticks_of(messages.at("one_way_s")), ticks_of(messages.at("receive_s"))});
  }
}

void read_sleep(const nlohmann::json& json, MeasuredRun& run) {
  for (const nlohmann::json& stage : json) {
    StageTimes times;
    times.forward = stage.at("forward_ps").get<Ticks>();
    times.backward = stage.at("backward_ps").get<Ticks>();
    times.input_gradient = stage.at("input_gradient_ps").get<Ticks>();
    times.weight_gradient = stage.at("weight_gradient_ps").get<Ticks>();
    run.sleep.push_back(times);
  }
}

void add_traffic(const nlohmann::json& by_rank, MeasuredRun& run) {
  const double ranks = static_cast<double>(by_rank.size());
  for (const nlohmann::json& rank : by_rank) {
    for (const nlohmann::json& entry : rank) {
      MeasuredTraffic& axis = run.traffic[parse<Axis>(entry.at("axis").get<std::string>()).value()];
      axis.bytes += entry.at("bytes_sent").get<double>() / ranks;
      axis.messages += entry.at("messages").get<double>() / ranks;
    }
  }
}

void read_steps(const nlohmann::json& json, const std::string& file, MeasuredRun& run) {
  const std::size_t replica = json.at("dp").get<std::size_t>() * json.at("tp").get<std::size_t>();
  for (const nlohmann::json& step : json.at("steps")) {
    run.steps.push_back(read_run_timeline(step.at("timeline"), file, "run.steps"));
    run.losses.push_back(loss_of(step.at("loss")));
    run.microbatch_losses.emplace_back();
    for (const nlohmann::json& loss : step.at("microbatch_losses")) {
      run.microbatch_losses.back().push_back(loss_of(loss));
    }
    double cpu = 0;
    for (std::size_t rank = 0; rank < run.steps.back().ranks.size(); ++rank) {
      cpu += step.at("cpu_s").at(rank * replica).get<double>();
    }
    run.cpu_s.push_back(cpu);
    add_traffic(step.at("traffic_by_rank"), run);
  }
  const nlohmann::json& peaks = json.at("peak_activation_bytes_by_rank");
  run.peak_activation_bytes.resize(json.at("pipeline_ranks").get<std::size_t>());
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    double& peak = run.peak_activation_bytes.at(rank / replica);
    peak = std::max(peak, peaks[rank].get<double>());
  }
}

}  // namespace

bool computes_on_gpus(std::string_view backend) {
  return backend == "nccl" || backend == "virtual-gpus";
}

MeasuredRun read_measured_run(std::string_view text, const std::string& file) {
  MeasuredRun run;
  try {
    const nlohmann::json root = parse_json(text, file);
    const nlohmann::json& json = root.at("run");
    run.backend = json.at("backend").get<std::string>();
    run.conditions = json.value("conditions", std::string());
    run.failure = json.at("failure").get<std::string>();
    run.has_tensor_ranks = json.at("tp").get<int>() > 1;
    run.warmup = json.at("warmup").get<int>();
    const nlohmann::json& load = json.at("load");
    run.load = {load.at("wall_s").get<double>(), load.at("others_cpu_s").get<double>(), load.at("cores").get<int>()};
    read_sleep(json.at("sleep"), run);
    read_calibration(json.at("calibration"), file, run);
    read_steps(json, file, run);
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError({"", "this is no measurement of a run", file, error.what()});
  }
  return run;
}

}  // namespace flopcast
