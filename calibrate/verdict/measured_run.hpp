#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/layout/layout.hpp"
#include "sim/program/step_times.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// What messages from a neighbouring stage cost, in ticks.
struct MeasuredMessages {
  int to_stage = 0;
  bool activation = true;      ///< false: a gradient
  std::vector<Ticks> one_way;  ///< to a rank that waits for nothing else
  std::vector<Ticks> receive;  ///< of the receiver's time, once it is there
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
};

/// What flopcast-run wrote: of each finished step the timeline of the first replica. An asynchronous run is one step.
struct MeasuredRun {
  std::vector<Timeline> steps;
  std::vector<double> losses;
  std::vector<std::vector<double>> microbatch_losses;  ///< by step
  std::vector<double> cpu_s;                           ///< by step: of the threads of the first replica's ranks, summed
  int warmup = 1;  ///< first steps that no figure counts; of an asynchronous run the caller's to cut out
  bool has_tensor_ranks = false;
  std::string backend;
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

/// Whether ranks of this backend compute on GPUs, with fused attention.
bool computes_on_gpus(std::string_view backend);

/// Throws ConfigError when the text is no measurement of a run.
MeasuredRun read_measured_run(std::string_view text, const std::string& file);

}  // namespace flopcast
