#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/layout/layout.hpp"
#include "model/workload/training.hpp"
#include "sim/program/request.hpp"
#include "sim/timeline.hpp"

// Timelines, schema flopcast.timeline/1, and the file of a run, schema flopcast.measurement/1: `samples` with the
// seconds of every forward, backward, … of every stage, and under `run` what happened. Unknown keys are left alone:
// later versions only add keys.

namespace flopcast {

inline constexpr const char* kTimelinesName = "flopcast.timeline/1";

/// One of the timelines of flopcast.timeline/1 (docs/schema): spans and the transfers between ranks, times in the
/// timeline's unit. How many copies of the model it holds is left out.
nlohmann::ordered_json timeline_json(const Timeline& timeline);

/// The same in a flopcast.measurement/1 of a run, times in picoseconds; its title and unit go without saying.
nlohmann::ordered_json run_timeline_json(const Timeline& timeline);

/// Schema flopcast.timeline/1: what `flopcast timeline` prints.
std::string write_timelines(const std::vector<Timeline>& timelines);

/// The inverse of timeline_json, rounded to ticks: picoseconds, or millionths of an abstract unit. A file that tells no
/// transfers (early versions wrote none) is read without. Throws ConfigError whose place is `field` of `file`.
Timeline read_timeline(const nlohmann::ordered_json& json, const std::string& file, const std::string& field);
/// The inverse of run_timeline_json.
Timeline read_run_timeline(const nlohmann::json& json, const std::string& file, const std::string& field);

/// A timeline of a file. Where it tells no transfers, what a rank waited for is unknown: neither waiting nor the
/// critical path can be told.
struct SavedTimeline {
  Timeline timeline;
  bool tells_transfers = true;
  std::string field = {};  ///< its place in the file
};
SavedTimeline read_saved_timeline(const nlohmann::ordered_json& json, const std::string& file,
                                  const std::string& field);
/// All of a flopcast.timeline/1, at least one. Throws ConfigError.
std::vector<SavedTimeline> read_timelines(const nlohmann::ordered_json& json, const std::string& file);

/// Divided, because a decimal share of a unit is no binary number: 1333333 millionths are 1.333333.
double units_of(const Timeline& timeline, Ticks ticks);

/// What messages from a neighbouring stage cost, in ticks.
struct MeasuredMessages {
  int to_stage = 0;
  bool activation = true;      ///< false: a gradient
  std::vector<Ticks> one_way;  ///< to a rank that waits for nothing else
  std::vector<Ticks> receive;  ///< of the receiver's time, once it is there
  std::size_t bytes = 0;       ///< not read back
};

/// What was sent in all steps together, mean over ranks.
struct MeasuredTraffic {
  double bytes = 0.0;
  double messages = 0.0;
};

/// What the machine's processors did during a run.
struct MeasuredLoad {
  double wall_s = 0.0;
  double others_cpu_s = 0.0;  ///< of other programs
  int cores = 1;
  double own_cpu_s = 0.0;  ///< not read back
};

/// What is read of a run: of each finished step the timeline of the first replica. An asynchronous run is one step.
struct MeasuredRun {
  std::vector<Timeline> steps;
  std::vector<double> losses;
  std::vector<std::vector<double>> microbatch_losses;  ///< by step
  std::vector<double> cpu_s;                           ///< by step: of the threads of the first replica's ranks, summed
  int warmup = 1;  ///< first steps that no figure counts; of an asynchronous run the caller's to cut out
  bool has_tensor_ranks = false;
  std::string backend;
  std::string schedule;
  std::string conditions;  ///< under which figures mean something else than they seem to; empty: none
  std::string failure;
  std::vector<double> peak_activation_bytes;  ///< by pipeline rank
  std::map<Axis, MeasuredTraffic> traffic;
  MeasuredLoad load;
  std::vector<StageTimes> sleep;            ///< by stage of a run that slept; empty when it computed
  std::vector<Timeline> calibration;        ///< of each rank on its own, before the run; empty without one
  std::vector<Timeline> later_calibration;  ///< the same after the run
  std::vector<MeasuredMessages> messages;
};

/// What a rank sent in a step, of one kind along one axis.
struct RecordedTraffic {
  std::string kind;  ///< "all-reduce"
  Axis axis = Axis::kData;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};
struct RecordedStep {
  double loss = 0.0;
  std::vector<double> microbatch_losses;
  std::vector<double> wall_s;  ///< by rank
  std::vector<double> cpu_s;
  std::vector<std::vector<RecordedTraffic>> traffic;
  Timeline timeline;
};
/// All spans of a kind and stage, in seconds.
struct RecordedSample {
  SpanKind kind = SpanKind::kForward;
  int stage = -1;  ///< below 0: of no stage
  std::vector<double> seconds;
};
/// What is written of a run, by rank: those of a replica's tensor ranks are neighbours, then replicas, then stages.
struct RunRecord {
  std::string device;
  std::string host;
  std::string date;
  std::map<std::string, std::string> libraries;
  std::string dtype;  ///< of the samples
  std::vector<RecordedSample> samples;
  std::string backend;
  std::string conditions;
  std::string failure;
  std::string schedule;
  int pipeline_ranks = 1;
  int dp = 1;
  int tp = 1;
  int zero = 0;
  std::string compression;
  int microbatches = 1;
  int micro_batch_size = 1;
  double learning_rate = 0.0;
  std::uint64_t seed = 0;  ///< of weights and data
  std::vector<std::size_t> peak_activation_bytes;
  int warmup = 1;
  MeasuredLoad load;
  std::vector<StageTimes> sleep;
  std::vector<Timeline> calibration;
  std::vector<Timeline> later_calibration;
  std::vector<MeasuredMessages> messages;
  std::vector<RecordedStep> steps;
  std::string job;  ///< that was run, as it was given, JSON; empty: not told
};

std::string write_run_record(const RunRecord& run);
/// Throws ConfigError when the text is no measurement of a run.
MeasuredRun read_measured_run(std::string_view text, const std::string& file);

/// Whether ranks of this backend compute on GPUs, with fused attention.
bool computes_on_gpus(std::string_view backend);

/// Writes into a job in fp8 what such ranks do where it does not say: scales of the tensor at hand (recipe current), 8
/// bits in the products of linears alone. `training` is what was read of it.
void say_fp8_on_gpus(const Training& training, nlohmann::json& root);

}  // namespace flopcast
