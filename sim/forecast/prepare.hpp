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

/// Returns a file's text. The core reads no files itself; the caller hands in how.
using ReadFile = std::function<std::string(const std::string& path)>;

/// A job with its schedule chosen, checked and priced: everything but the run.
struct PreparedStep {
  /// How a step that prepare_as_it_repeats shortened continues.
  struct Repetition {
    OrderPeriod order;  ///< of `program`
    int left_out = 0;   ///< microbatches that the job has and `program` has not
  };

  Job job;  ///< with schedule, vpp, accumulation and stage_layers filled in, and the rows of a file
  const ScheduleInfo* schedule = nullptr;  ///< null for a schedule read from a file
  ScheduleRequest request;
  Program program;  ///< of one step; of an asynchronous schedule, a stretch that reaches the steady state
  StageMap stages;
  std::vector<RankActivations> held;  ///< by rank, of `program`
  StepCosts costs;
  StepTimes times;  ///< in picoseconds
  std::optional<Repetition> repetition;
};

/// Four steps: the schedule (naive for one microbatch, interleaved with vpp, else 1f1b), generated or read from the
/// file that layout.schedule names as file:PATH; its stages; the layers of each; their prices (price.cpp). Throws
/// ConfigError, for an invalid schedule file with the step x rank grid.
PreparedStep prepare(Job job, const ReadFile& read_file);

/// The same for those who ask for time and memory alone: where the order of a schedule repeats, the program is one of
/// few microbatches, and `repetition` says how it goes on. Prices are those of the whole step.
PreparedStep prepare_as_it_repeats(Job job, const ReadFile& read_file);

/// The program that a step of a generated schedule has with that many microbatches.
Program program_with(const PreparedStep& step, int microbatches);

/// What the cost model needs to know of a program: which part of the model each stage holds, which rank runs it, and
/// how many microbatches pass through it in a row.
StageMap stage_map_of(const Program& program);

/// Fills in stage_layers, or checks what the job lists, and says in the assumptions what was chosen. Layer profiles are
/// balanced by their times unless the job says uniform. For a transformer "balanced" prices and simulates the uniform
/// split beside balanced ones and takes the fastest of those that fit the memory, or of all where none fits.
/// Throws ConfigError for more stages than layers and for lists of another length or sum.
void spread_layers(PreparedStep& step);

/// Costs and times of a step whose layers are spread; where the schedule's order depends on the times, the program too.
void price(PreparedStep& step);

/// How a step's time is spent, means over pipeline ranks in seconds; the pieces sum to time_s.
struct StepProfile {
  double time_s = 0.0;
  double actions_s = 0.0;  ///< F, B, I and W, with the collectives inside them
  double optimizer_s = 0.0;
  double exposed_pipeline_s = 0.0;
  double exposed_data_parallel_s = 0.0;
  std::array<double, kBubbleCauses> bubble_s{};
  double busiest_rank_s = 0.0;  ///< time_s less the bubble of the rank that waits least
  double span_s = 0.0;
  std::vector<double> bubble_share;  ///< by pipeline rank, of time_s

  double bubble_total_s() const;
};

/// Of the one step that the timeline shows.
StepProfile profile_of_flushed_step(const Timeline& timeline);
StepProfile profile_of_flushed_step(const TimelineMetrics& metrics);

/// Of global_batch_size samples in the steady state of an asynchronous schedule, from the growth of two runs; what a
/// shorter and a longer run have in common, filling and draining, cancels out.
struct AsynchronousProfile {
  StepProfile step;
  double period_s = 0.0;  ///< per microbatch, updates included
  double fill_s = 0.0;
};
AsynchronousProfile profile_of_steady_step(const PreparedStep& step);

}  // namespace flopcast
