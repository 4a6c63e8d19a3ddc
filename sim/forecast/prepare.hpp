#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/cost/stage_costs.hpp"
#include "model/job.hpp"
#include "sim/forecast/result.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/program/program.hpp"
#include "sim/program/request.hpp"
#include "sim/schedules/catalogue.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// Returns a file's text. The core reads no files; the caller provides this function.
using ReadFile = std::function<std::string(const std::string& path)>;

/// A job with its schedule chosen, checked and priced: everything except the simulation.
struct PreparedStep {
  /// How a step shortened by prepare_periodic continues.
  struct Repetition {
    OrderPeriod order;  ///< of `program`
    int left_out = 0;   ///< microbatches that the job has beyond those of `program`
  };

  Job job;  ///< with schedule, vpp, accumulation and stage_layers filled in, and the CSV of a schedule file
  const ScheduleInfo* schedule = nullptr;  ///< null for a schedule read from a file
  ScheduleRequest request;
  Program program;  ///< of one step; for an asynchronous schedule, a stretch that reaches the steady state
  StageMap stages;
  std::vector<RankActivations> held;  ///< activations of `program`, indexed by rank
  StepCosts costs;
  StepTimes times;  ///< in picoseconds
  std::optional<Repetition> repetition;
};

/// Prepares a step in four stages: the schedule (naive for one microbatch, interleaved with vpp, else 1f1b), generated
/// or read from the file that layout.schedule names as file:PATH; its stages; the layers of each stage; their prices
/// (price.cpp). Throws ConfigError, which for an invalid schedule file includes the step x rank grid.
PreparedStep prepare(Job job, const ReadFile& read_file);

/// Same, for callers that need only time and memory: if the order of a schedule repeats, the program has few
/// microbatches and `repetition` describes how it continues. Prices are those of the whole step.
PreparedStep prepare_periodic(Job job, const ReadFile& read_file);

/// The program of a step of a generated schedule with the given number of microbatches.
Program program_with(const PreparedStep& step, int microbatches);

/// The part of a program that the cost model needs: the model part that each stage holds, the rank that runs it, and
/// the number of microbatches that pass through it in a row.
StageMap stage_map_of(const Program& program);

/// Fills in stage_layers, or checks the job's list, and records the choice in the assumptions. Layer profiles are
/// balanced by their times unless the job specifies uniform. For a transformer, "balanced" prices and simulates the
/// uniform split and balanced ones, and takes the fastest of those that fit into memory, or of all if none fits. Throws
/// ConfigError for more stages than layers and for lists of the wrong length or sum.
void spread_layers(PreparedStep& step);

/// Computes costs and times of a step whose layers are assigned, and the program if the schedule's order depends on the
/// times.
void price(PreparedStep& step);

/// How a step's time is spent, as means over pipeline ranks in seconds; the parts sum to time_s.
struct StepProfile {
  double time_s = 0.0;
  double actions_s = 0.0;  ///< F, B, I and W, including the collectives inside them
  double optimizer_s = 0.0;
  double exposed_pipeline_s = 0.0;
  double exposed_data_parallel_s = 0.0;
  std::array<double, kBubbleCauses> bubble_s{};
  double busiest_rank_s = 0.0;  ///< time_s minus the bubble of the rank that waits least
  double span_s = 0.0;
  std::vector<double> bubble_share;  ///< indexed by pipeline rank, as a fraction of time_s

  double bubble_total_s() const;
};

/// Profile of the one step that the timeline shows.
StepProfile profile_of_flushed_step(const Timeline& timeline);
StepProfile profile_of_flushed_step(const TimelineMetrics& metrics);

/// Profile of global_batch_size samples in the steady state of an asynchronous schedule, computed from the difference
/// between a longer and a shorter run, so that filling and draining cancel out.
struct AsynchronousProfile {
  StepProfile step;
  double period_s = 0.0;  ///< per microbatch, updates included
  double fill_s = 0.0;
};
AsynchronousProfile profile_of_steady_step(const PreparedStep& step);

}  // namespace flopcast
