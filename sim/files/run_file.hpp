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
// seconds of every forward, backward, … of every stage, and the events under `run`. Later versions only add keys, so
// unknown keys are ignored.

namespace flopcast {

inline constexpr const char* kTimelinesName = "flopcast.timeline/1";

/// One timeline of a flopcast.timeline/1 (docs/schema): spans and transfers between ranks, times in the timeline's
/// unit. The number of model copies is omitted.
nlohmann::ordered_json timeline_json(const Timeline& timeline);

/// The timeline in a flopcast.measurement/1 of a run, times in picoseconds; title and unit are implied.
nlohmann::ordered_json run_timeline_json(const Timeline& timeline);

/// Schema flopcast.timeline/1: the output of `flopcast timeline`.
std::string write_timelines(const std::vector<Timeline>& timelines);

/// Inverse of timeline_json, rounded to ticks: picoseconds, or millionths of an abstract unit. Accepts a file without
/// transfers (early versions wrote none). Throws ConfigError whose place is `field` of `file`.
Timeline read_timeline(const nlohmann::ordered_json& json, const std::string& file, const std::string& field);
/// Inverse of run_timeline_json.
Timeline read_run_timeline(const nlohmann::json& json, const std::string& file, const std::string& field);

/// A timeline from a file. If it has no transfers, the causes of waiting are unknown, so neither waiting nor the
/// critical path can be determined.
struct SavedTimeline {
  Timeline timeline;
  bool has_transfers = true;
  std::string field = {};  ///< its position in the file
};
SavedTimeline read_saved_timeline(const nlohmann::ordered_json& json, const std::string& file,
                                  const std::string& field);
/// All timelines of a flopcast.timeline/1, at least one. Throws ConfigError.
std::vector<SavedTimeline> read_timelines(const nlohmann::ordered_json& json, const std::string& file);

/// Uses a division, because a decimal fraction of a unit is not a binary number: 1333333 millionths are 1.333333.
double units_of(const Timeline& timeline, Ticks ticks);

/// Costs of messages from an adjacent stage, in ticks.
struct MeasuredMessages {
  int to_stage = 0;
  bool activation = true;      ///< false: a gradient
  std::vector<Ticks> one_way;  ///< to a rank that waits for nothing else
  std::vector<Ticks> receive;  ///< time of the receiver after arrival
  std::size_t bytes = 0;       ///< not read back
};

/// Traffic of all steps together, mean over ranks.
struct MeasuredTraffic {
  double bytes = 0.0;
  double messages = 0.0;
};

/// Load of the machine's processors during a run.
struct MeasuredLoad {
  double wall_s = 0.0;
  double others_cpu_s = 0.0;  ///< of other programs
  int cores = 1;
  double own_cpu_s = 0.0;  ///< not read back
};

/// Contents of a run that are read: for each finished step the timeline of the first replica. An asynchronous run is
/// one step.
struct MeasuredRun {
  std::vector<Timeline> steps;
  std::vector<double> losses;
  std::vector<std::vector<double>> microbatch_losses;  ///< indexed by step
  std::vector<double> cpu_s;                           ///< indexed by step: summed over the threads of the first
                                                       ///< replica's ranks
  int warmup = 1;  ///< first steps that no figure counts; the caller must cut them out of an asynchronous run
  bool has_tensor_ranks = false;
  std::string backend;
  std::string schedule;
  std::string conditions;  ///< under which figures have a different meaning; empty: none
  std::string failure;
  std::vector<double> peak_activation_bytes;  ///< indexed by pipeline rank
  std::map<Axis, MeasuredTraffic> traffic;
  MeasuredLoad load;
  std::vector<StageTimes> sleep;            ///< indexed by stage, for a run that slept; empty if it computed
  std::vector<Timeline> calibration;        ///< of each rank alone, before the run; empty without one
  std::vector<Timeline> later_calibration;  ///< the same after the run
  std::vector<MeasuredMessages> messages;
};

/// Messages that a rank sent in a step, of one kind along one axis.
struct RecordedTraffic {
  std::string kind;  ///< "all-reduce"
  Axis axis = Axis::kData;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};
struct RecordedStep {
  double loss = 0.0;
  std::vector<double> microbatch_losses;
  std::vector<double> wall_s;  ///< indexed by rank
  std::vector<double> cpu_s;
  std::vector<std::vector<RecordedTraffic>> traffic;
  Timeline timeline;
};
/// All spans of a kind and stage, in seconds.
struct RecordedSample {
  SpanKind kind = SpanKind::kForward;
  int stage = -1;  ///< below 0: not of a stage
  std::vector<double> seconds;
};
/// Contents of a run that are written, indexed by rank: tensor ranks of a replica are adjacent, then replicas, then
/// stages.
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
  std::uint64_t seed = 0;  ///< for weights and data
  std::vector<std::size_t> peak_activation_bytes;
  int warmup = 1;
  MeasuredLoad load;
  std::vector<StageTimes> sleep;
  std::vector<Timeline> calibration;
  std::vector<Timeline> later_calibration;
  std::vector<MeasuredMessages> messages;
  std::vector<RecordedStep> steps;
  std::string job;  ///< the job of the run as given, in JSON; empty: not recorded
};

std::string write_run_record(const RunRecord& run);
/// Throws ConfigError if the text is not a measurement of a run.
MeasuredRun read_measured_run(std::string_view text, const std::string& file);

/// True if ranks of this backend compute on GPUs, with fused attention.
bool computes_on_gpus(std::string_view backend);

/// Writes the fp8 behaviour of such ranks into a job in fp8 that does not specify it: scales of the current tensor
/// (recipe current), 8 bits only in the products of linears. `training` is the parsed section.
void set_fp8_defaults_on_gpus(const Training& training, nlohmann::json& root);

}  // namespace flopcast
