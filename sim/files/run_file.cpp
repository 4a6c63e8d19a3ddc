#include "sim/files/run_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/text/by_member.hpp"
#include "base/text/error.hpp"
#include "model/config/document.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

// Keys under which a file stores times and ends, in the timeline's unit or in whole ticks.
struct TimelineKeys {
  const char* start;
  const char* end;
  const char* produced_by;
  const char* from_rank;
  const char* to_rank;
  bool in_ticks;
  const char* written_by;
};
constexpr TimelineKeys kOfReports = {"start", "end", "action", "from", "to", false, "flopcast timeline --format json"};
constexpr TimelineKeys kOfRuns = {"start_ps", "end_ps", "produced_by", "from_rank", "to_rank", true, "flopcast run -o"};

// Reads one timeline; errors point at its place.
template <class AnyJson>
class TimelineReader {
 public:
  TimelineReader(const TimelineKeys& keys, const std::string& file, std::string field)
      : keys_(keys), file_(file), field_(std::move(field)) {}

  Timeline read(const AnyJson& json) {
    const std::string field = field_;
    Timeline timeline = without_spans(json);
    units_per_tick_ = timeline.units_per_tick;
    const AnyJson& ranks = member(json, "ranks");
    if (!ranks.is_array() || ranks.empty()) fail("\"ranks\" is empty or not a list");
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      field_ = fmt::format("{}.ranks[{}]", field, rank);
      std::vector<Span> spans;
      if (!ranks[rank].is_array()) fail("is not a list of spans");
      for (const AnyJson& span : ranks[rank]) spans.push_back(read_span(span));
      std::stable_sort(spans.begin(), spans.end(), by(&Span::start));
      timeline.ranks.push_back(std::move(spans));
    }
    if (!json.contains("transfers")) return timeline;
    const AnyJson& transfers = json.at("transfers");
    field_ = fmt::format("{}.transfers", field);
    if (!transfers.is_array()) fail("is not a list of transfers");
    for (std::size_t index = 0; index < transfers.size(); ++index) {
      field_ = fmt::format("{}.transfers[{}]", field, index);
      timeline.transfers.push_back(read_transfer(transfers[index], timeline.ranks.size()));
    }
    std::stable_sort(timeline.transfers.begin(), timeline.transfers.end(), by(&Transfer::start));
    return timeline;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw ConfigError({field_, problem, file_, fmt::format("expected the output of `{}`", keys_.written_by)});
  }
  const AnyJson& member(const AnyJson& json, const char* key) const {
    if (!json.is_object() || !json.contains(key)) fail(fmt::format("\"{}\" is missing", key));
    return json.at(key);
  }
  std::string text(const AnyJson& json, const char* key) const {
    const AnyJson& value = member(json, key);
    if (!value.is_string()) fail(fmt::format("\"{}\" is not a string", key));
    return value.template get<std::string>();
  }
  std::size_t index(const AnyJson& json, const char* key, std::size_t count) const {
    const AnyJson& value = member(json, key);
    if (!value.is_number_unsigned() || value.template get<std::size_t>() >= count) {
      fail(fmt::format("\"{}\" is not a whole number below {}", key, count));
    }
    return value.template get<std::size_t>();
  }
  Ticks ticks(const AnyJson& json, const char* key) const {
    const AnyJson& value = member(json, key);
    if (!value.is_number()) fail(fmt::format("\"{}\" is not a number", key));
    if (keys_.in_ticks) return value.template get<Ticks>();
    const double ticks = std::round(value.template get<double>() / units_per_tick_);
    if (!(ticks >= 0.0 && ticks < 9e18)) fail(fmt::format("\"{}\" is out of range", key));
    return static_cast<Ticks>(ticks);
  }
  // Clocks of different machines may run backwards by their offset.
  void refuse_backwards(Ticks start, Ticks end, const char* problem) const {
    if (!keys_.in_ticks && end < start) fail(problem);
  }
  // Values of an enumeration by their names.
  template <class Enumeration>
  Enumeration named(const AnyJson& json, const char* key) const {
    const std::string name = text(json, key);
    const std::optional<Enumeration> value = parse<Enumeration>(name);
    if (!value) fail(fmt::format("unknown name \"{}\"", name));
    return *value;
  }
  Action action(const AnyJson& json, const char* key) const {
    const std::string words = text(json, key);
    const std::optional<Action> action = parse_action(words);
    if (!action) fail(fmt::format("\"{}\" is not an action such as 2F0", words));
    return *action;
  }

  // The timelines of a run have one unit and no name.
  Timeline without_spans(const AnyJson& json) const {
    Timeline timeline;
    timeline.title = keys_.in_ticks ? "measured" : text(json, "title");
    timeline.time_unit = keys_.in_ticks ? "s" : text(json, "time_unit");
    timeline.units_per_tick = timeline.time_unit == "s" ? 1e-12 : 1e-6;
    if (json.contains("slices_per_microbatch")) {
      constexpr std::size_t kSlices = std::numeric_limits<std::uint16_t>::max();
      timeline.slices_per_microbatch = static_cast<int>(index(json, "slices_per_microbatch", kSlices));
      if (timeline.slices_per_microbatch == 0) fail("\"slices_per_microbatch\" is 0");
    }
    return timeline;
  }

  Span read_span(const AnyJson& json) const {
    Span span;
    span.kind = named<SpanKind>(json, "kind");
    span.stream = named<StreamKind>(json, "stream");
    span.start = ticks(json, keys_.start);
    span.end = ticks(json, keys_.end);
    refuse_backwards(span.start, span.end, "a span ends before it starts");
    if (!names_an_action(span.kind)) return span;
    span.action = action(json, "action");
    if (!json.contains("overlaps_next")) return span;
    if (!json.at("overlaps_next").is_boolean()) fail("\"overlaps_next\" is neither true nor false");
    span.action.overlaps_next = json.at("overlaps_next").template get<bool>();
    return span;
  }

  Transfer read_transfer(const AnyJson& json, std::size_t ranks) const {
    constexpr std::size_t kStages = std::numeric_limits<std::uint16_t>::max();
    Transfer transfer;
    transfer.start = ticks(json, keys_.start);
    transfer.end = ticks(json, keys_.end);
    refuse_backwards(transfer.start, transfer.end, "ends before it starts");
    transfer.produced_by = action(json, keys_.produced_by);
    transfer.from_rank = static_cast<std::uint32_t>(index(json, keys_.from_rank, ranks));
    transfer.to_rank = static_cast<std::uint32_t>(index(json, keys_.to_rank, ranks));
    transfer.to_stage = static_cast<std::uint16_t>(index(json, "to_stage", kStages));
    return transfer;
  }

  const TimelineKeys& keys_;
  const std::string& file_;
  std::string field_;
  double units_per_tick_ = 0.0;
};

Json time_json(const Timeline& timeline, const TimelineKeys& keys, Ticks ticks) {
  return keys.in_ticks ? Json(ticks) : Json(units_of(timeline, ticks));
}

Json ranks_json(const Timeline& timeline, const TimelineKeys& keys) {
  Json ranks = Json::array();
  for (const std::vector<Span>& spans : timeline.ranks) {
    Json row = Json::array();
    for (const Span& span : spans) {
      Json entry = {{"kind", name_of(span.kind)},
                    {"stream", name_of(span.stream)},
                    {keys.start, time_json(timeline, keys, span.start)},
                    {keys.end, time_json(timeline, keys, span.end)}};
      if (names_an_action(span.kind)) {
        entry["action"] = to_string(span.action);
        if (span.action.overlaps_next) entry["overlaps_next"] = true;
      }
      row.push_back(std::move(entry));
    }
    ranks.push_back(std::move(row));
  }
  return ranks;
}

Json transfers_json(const Timeline& timeline, const TimelineKeys& keys) {
  Json transfers = Json::array();
  for (const Transfer& transfer : timeline.transfers) {
    transfers.push_back({{keys.from_rank, transfer.from_rank},
                         {keys.to_rank, transfer.to_rank},
                         {keys.produced_by, to_string(transfer.produced_by)},
                         {"to_stage", transfer.to_stage},
                         {keys.start, time_json(timeline, keys, transfer.start)},
                         {keys.end, time_json(timeline, keys, transfer.end)}});
  }
  return transfers;
}

}  // namespace

double units_of(const Timeline& timeline, Ticks ticks) {
  return static_cast<double>(ticks) / std::round(1.0 / timeline.units_per_tick);
}

Json timeline_json(const Timeline& timeline) {
  Json json = {{"title", timeline.title},
               {"time_unit", timeline.time_unit},
               {"makespan", units_of(timeline, timeline.makespan())},
               {"ranks", ranks_json(timeline, kOfReports)},
               {"transfers", transfers_json(timeline, kOfReports)}};
  if (timeline.slices_per_microbatch > 1) json["slices_per_microbatch"] = timeline.slices_per_microbatch;
  return json;
}

Json run_timeline_json(const Timeline& timeline) {
  return {{"ranks", ranks_json(timeline, kOfRuns)}, {"transfers", transfers_json(timeline, kOfRuns)}};
}

Timeline read_timeline(const Json& json, const std::string& file, const std::string& field) {
  return TimelineReader<Json>(kOfReports, file, field).read(json);
}

Timeline read_run_timeline(const nlohmann::json& json, const std::string& file, const std::string& field) {
  return TimelineReader<nlohmann::json>(kOfRuns, file, field).read(json);
}

std::string write_timelines(const std::vector<Timeline>& timelines) {
  Json json = {{"schema", kTimelinesName}, {"timelines", Json::array()}};
  for (const Timeline& timeline : timelines) json["timelines"].push_back(timeline_json(timeline));
  return dumped(json, 2);
}

SavedTimeline read_saved_timeline(const Json& json, const std::string& file, const std::string& field) {
  return {read_timeline(json, file, field), json.contains("transfers"), field};
}

std::vector<SavedTimeline> read_timelines(const Json& json, const std::string& file) {
  const Json timelines = json.value("timelines", Json::array());
  if (!timelines.is_array()) throw ConfigError({"timelines", "is not a list", file, "give at least one timeline"});
  if (timelines.empty()) throw ConfigError({"timelines", "is empty", file, "give at least one timeline"});
  std::vector<SavedTimeline> read;
  for (std::size_t index = 0; index < timelines.size(); ++index) {
    read.push_back(read_saved_timeline(timelines[index], file, fmt::format("timelines[{}]", index)));
  }
  return read;
}

namespace {

using OrderedJson = nlohmann::ordered_json;

template <class Items, class ToJson>
OrderedJson list_json(const Items& items, const ToJson& to_json) {
  OrderedJson list = OrderedJson::array();
  for (const auto& item : items) list.push_back(to_json(item));
  return list;
}

// Each part of the file: first its writer, then its reader.

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

// JSON cannot represent NaN and writes null instead.
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
         fmt::format("{} peaks for {} ranks (pipeline_ranks x dp x tp)", peaks.size(), pipeline_ranks * replica), file,
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
    throw ConfigError({"", "this is not a measurement of a run", file, error.what()});
  }
}

bool computes_on_gpus(std::string_view backend) {
  return backend == "nccl" || backend == "virtual-gpus";
}

void set_fp8_defaults_on_gpus(const Training& training, nlohmann::json& root) {
  if (training.precision != Precision::kFp8) return;
  nlohmann::json& said = root["training"];
  said.emplace("fp8_recipe", name_of(Fp8Recipe::kCurrent));
  for (const char* key : {"fp8_parameters", "fp8_attention", "fp8_activations"}) said.emplace(key, false);
}

}  // namespace flopcast
