#include "sim/files/run_file.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "sim/files/timeline_file.hpp"

namespace flopcast {

namespace {

using OrderedJson = nlohmann::ordered_json;

template <class Items, class ToJson>
OrderedJson list_json(const Items& items, const ToJson& to_json) {
  OrderedJson list = OrderedJson::array();
  for (const auto& item : items) list.push_back(to_json(item));
  return list;
}

// Each part of the file: how it is written, and what is read of it.

OrderedJson seconds_json(const std::vector<Ticks>& times) {
  return list_json(times, [](Ticks time) { return static_cast<double>(time) * kSecondsPerTick; });
}
std::vector<Ticks> ticks_of(const nlohmann::json& seconds) {
  std::vector<Ticks> ticks;
  for (const nlohmann::json& value : seconds) ticks.push_back(std::llround(value.get<double>() * kTicksPerSecond));
  return ticks;
}

OrderedJson messages_json(const MeasuredMessages& messages) {
  return {{"to_stage", messages.to_stage},
          {"carries", messages.activation ? "activation" : "gradient"},
          {"bytes", messages.bytes},
          {"one_way_s", seconds_json(messages.one_way)},
          {"receive_s", seconds_json(messages.receive)}};
}
MeasuredMessages read_messages(const nlohmann::json& json) {
  MeasuredMessages messages;
  messages.to_stage = json.at("to_stage").get<int>();
  messages.activation = json.at("carries") == "activation";
  messages.one_way = ticks_of(json.at("one_way_s"));
  messages.receive = ticks_of(json.at("receive_s"));
  return messages;
}

OrderedJson calibration_json(const RunRecord& run) {
  return {{"timelines", list_json(run.calibration, run_timeline_json)},
          {"later_timelines", list_json(run.later_calibration, run_timeline_json)},
          {"messages", list_json(run.messages, messages_json)}};
}
void read_calibration(const nlohmann::json& json, const std::string& file, MeasuredRun& run) {
  for (const nlohmann::json& timeline : json.at("timelines")) {
    run.calibration.push_back(read_run_timeline(timeline, file, "run.calibration.timelines"));
  }
  for (const nlohmann::json& timeline : json.at("later_timelines")) {
    run.later_calibration.push_back(read_run_timeline(timeline, file, "run.calibration.later_timelines"));
  }
  for (const nlohmann::json& messages : json.at("messages")) run.messages.push_back(read_messages(messages));
}

constexpr std::pair<const char*, Ticks StageTimes::*> kSleepTimes[] = {
    {"forward_ps", &StageTimes::forward},
    {"backward_ps", &StageTimes::backward},
    {"input_gradient_ps", &StageTimes::input_gradient},
    {"weight_gradient_ps", &StageTimes::weight_gradient}};
OrderedJson sleep_json(const StageTimes& stage) {
  OrderedJson json;
  for (const auto& [key, time] : kSleepTimes) json[key] = stage.*time;
  return json;
}
StageTimes read_sleep(const nlohmann::json& json) {
  StageTimes stage;
  for (const auto& [key, time] : kSleepTimes) stage.*time = json.at(key).get<Ticks>();
  return stage;
}

OrderedJson load_json(const MeasuredLoad& load) {
  return {{"wall_s", load.wall_s},
          {"own_cpu_s", load.own_cpu_s},
          {"others_cpu_s", load.others_cpu_s},
          {"cores", load.cores}};
}
MeasuredLoad read_load(const nlohmann::json& json) {
  MeasuredLoad load;
  load.wall_s = json.at("wall_s").get<double>();
  load.others_cpu_s = json.at("others_cpu_s").get<double>();
  load.cores = json.at("cores").get<int>();
  return load;
}

OrderedJson traffic_json(const std::vector<RecordedTraffic>& sent) {
  return list_json(sent, [](const RecordedTraffic& entry) {
    return OrderedJson{
        {"kind", entry.kind}, {"axis", name_of(entry.axis)}, {"messages", entry.messages}, {"bytes_sent", entry.bytes}};
  });
}
[[noreturn]] void refuse_value(const std::string& field, const nlohmann::json& value, const std::string& file,
                               const char* help) {
  throw ConfigError({field, fmt::format("{} is not valid", value.dump()), file, help});
}
// A number of ranks.
std::size_t ranks_of(const nlohmann::json& run, const char* key, const std::string& file) {
  constexpr std::size_t kMost = 1'000'000;
  const nlohmann::json& value = run.at(key);
  const bool valid = value.is_number_unsigned() && value.get<std::size_t>() > 0 && value.get<std::size_t>() <= kMost;
  if (!valid) refuse_value(fmt::format("run.{}", key), value, file, "expected a whole number from 1 to 1000000");
  return value.get<std::size_t>();
}

void add_sent(const nlohmann::json& by_rank, const std::string& file, MeasuredRun& run) {
  const double ranks = static_cast<double>(by_rank.size());
  for (const nlohmann::json& rank : by_rank) {
    for (const nlohmann::json& entry : rank) {
      const std::optional<Axis> named = parse<Axis>(entry.at("axis").get<std::string>());
      if (!named) refuse_value("run.steps.traffic_by_rank.axis", entry.at("axis"), file, "valid: tp, pp, dp, cp, ep");
      MeasuredTraffic& axis = run.traffic[*named];
      axis.bytes += entry.at("bytes_sent").get<double>() / ranks;
      axis.messages += entry.at("messages").get<double>() / ranks;
    }
  }
}

// JSON has no word for what is no number.
double read_loss(const nlohmann::json& json) {
  return json.is_null() ? std::nan("") : json.get<double>();
}

OrderedJson step_json(const RecordedStep& step) {
  return {{"loss", step.loss},
          {"microbatch_losses", step.microbatch_losses},
          {"wall_s", step.wall_s},
          {"cpu_s", step.cpu_s},
          {"traffic_by_rank", list_json(step.traffic, traffic_json)},
          {"timeline", run_timeline_json(step.timeline)}};
}
// Ranks of the first replica are `replica` apart.
void read_step(const nlohmann::json& json, const std::string& file, std::size_t replica, MeasuredRun& run) {
  run.steps.push_back(read_run_timeline(json.at("timeline"), file, "run.steps"));
  run.losses.push_back(read_loss(json.at("loss")));
  run.microbatch_losses.emplace_back();
  for (const nlohmann::json& loss : json.at("microbatch_losses")) {
    run.microbatch_losses.back().push_back(read_loss(loss));
  }
  run.cpu_s.push_back(0.0);
  for (std::size_t rank = 0; rank < run.steps.back().ranks.size(); ++rank) {
    run.cpu_s.back() += json.at("cpu_s").at(rank * replica).get<double>();
  }
  add_sent(json.at("traffic_by_rank"), file, run);
}

OrderedJson record_json(const RunRecord& run) {
  return {{"backend", run.backend},
          {"conditions", run.conditions},
          {"complete", run.failure.empty()},
          {"failure", run.failure},
          {"schedule", run.schedule},
          {"pipeline_ranks", run.pipeline_ranks},
          {"dp", run.dp},
          {"tp", run.tp},
          {"zero", run.zero},
          {"compression", run.compression},
          {"microbatches", run.microbatches},
          {"micro_batch_size", run.micro_batch_size},
          {"learning_rate", run.learning_rate},
          {"seed", run.seed},
          {"peak_activation_bytes_by_rank", run.peak_activation_bytes},
          {"job", run.job.empty() ? OrderedJson() : OrderedJson::parse(run.job)},
          {"warmup", run.warmup},
          {"load", load_json(run.load)},
          {"sleep", list_json(run.sleep, sleep_json)},
          {"calibration", calibration_json(run)},
          {"steps", list_json(run.steps, step_json)}};
}
MeasuredRun read_record(const nlohmann::json& json, const std::string& file) {
  MeasuredRun run;
  run.backend = json.at("backend").get<std::string>();
  run.conditions = json.value("conditions", std::string());
  run.failure = json.at("failure").get<std::string>();
  run.has_tensor_ranks = json.at("tp").get<int>() > 1;
  run.warmup = json.at("warmup").get<int>();
  run.load = read_load(json.at("load"));
  for (const nlohmann::json& stage : json.at("sleep")) run.sleep.push_back(read_sleep(stage));
  read_calibration(json.at("calibration"), file, run);
  const std::size_t pipeline_ranks = ranks_of(json, "pipeline_ranks", file);
  const std::size_t replica = ranks_of(json, "dp", file) * ranks_of(json, "tp", file);
  run.schedule = json.at("schedule").get<std::string>();
  for (const nlohmann::json& step : json.at("steps")) read_step(step, file, replica, run);
  const nlohmann::json& peaks = json.at("peak_activation_bytes_by_rank");
  run.peak_activation_bytes.resize(pipeline_ranks);
  if (peaks.size() > pipeline_ranks * replica) {
    throw ConfigError(
        {"run.peak_activation_bytes_by_rank",
         fmt::format("{} peaks of {} ranks (pipeline_ranks x dp x tp)", peaks.size(), pipeline_ranks * replica), file,
         ""});
  }
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    double& peak = run.peak_activation_bytes.at(rank / replica);
    peak = std::max(peak, peaks[rank].get<double>());
  }
  return run;
}

}  // namespace

std::string write_run_record(const RunRecord& run) {
  OrderedJson samples = OrderedJson::array();
  for (const RecordedSample& sample : run.samples) {
    OrderedJson json = {{"kind", name_of(sample.kind)}};
    if (sample.stage >= 0) json["stage"] = sample.stage;
    json["ranks"] = run.peak_activation_bytes.size();
    json["dtype"] = run.dtype;
    json["seconds"] = sample.seconds;
    samples.push_back(std::move(json));
  }
  const OrderedJson file = {{"schema", "flopcast.measurement/1"},
                            {"device", run.device},
                            {"host", run.host},
                            {"date", run.date},
                            {"libraries", run.libraries},
                            {"samples", std::move(samples)},
                            {"run", record_json(run)}};
  return dumped(file) + "\n";
}

MeasuredRun read_measured_run(std::string_view text, const std::string& file) {
  try {
    return read_record(parse_json(text, file).at("run"), file);
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError({"", "this is no measurement of a run", file, error.what()});
  }
}

bool computes_on_gpus(std::string_view backend) {
  return backend == "nccl" || backend == "virtual-gpus";
}

void say_fp8_on_gpus(const Training& training, nlohmann::json& root) {
  if (training.precision != Precision::kFp8) return;
  nlohmann::json& said = root["training"];
  said.emplace("fp8_recipe", name_of(Fp8Recipe::kCurrent));
  for (const char* key : {"fp8_parameters", "fp8_attention", "fp8_activations"}) said.emplace(key, false);
}

}  // namespace flopcast
