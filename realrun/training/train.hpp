#pragma once

#include <functional>
#include <vector>

#include "realrun/compute/host_device.hpp"
#include "realrun/executor/executor.hpp"
#include "realrun/network/kernels.hpp"
#include "realrun/parallel/buckets.hpp"
#include "realrun/training/training_plan.hpp"
#include "realrun/transport/threads/thread_transport.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// A parameter at the end of a run, or this rank's part of it.
struct TrainedParameter {
  Parameter parameter;
  std::vector<float> values;
};

/// What one rank found out in one step.
struct StepRecord {
  RankRecord record;
  /// Of the microbatches (or slices) whose loss this rank computes, each a mean over its tokens: by chain, in order.
  std::vector<double> losses;
  SentTraffic traffic;           ///< sent in this step
  std::uint64_t host_bytes = 0;  ///< that went to the host's memory and back, where something is offloaded
  double wall_seconds = 0;
  double cpu_seconds = 0;  ///< of the rank's own thread
};

/// What a rank found out before and after the training, with weights of its own.
struct RankCalibration {
  /// The rank's actions and updates in their order, all ranks at the same time, none waiting for another's messages.
  std::vector<StepRecord> steps;
  /// The same once more after the training: a machine that has changed meanwhile gives itself away.
  std::vector<StepRecord> later_steps;
  std::vector<MessageTimes> messages;  ///< that it received
};

struct RankResult {
  int rank = 0;
  int pipeline_rank = 0;
  int data_index = 0;
  int tensor_index = 0;
  RankCalibration calibration;
  std::vector<StepRecord> steps;
  std::vector<TrainedParameter> weights;  ///< empty unless TrainingPlan::keeps_weights
  std::size_t peak_activation_bytes = 0;

  /// All of it, but of the steps only the last.
  RankResult latest() const;
  /// Appends that step, and takes over whatever else is known.
  void add(RankResult latest);
};

/// A rank's result as bytes, to be sent to another process of the same kind of machine. Throws EnvironmentError when
/// the bytes end too early.
std::vector<std::byte> to_bytes(const RankResult& result);
RankResult result_from_bytes(const std::vector<std::byte>& bytes);

/// Called on every rank between two steps: all ranks have added the step before to their results, and none begins the
/// next one until all have returned.
using BetweenSteps = std::function<void(RankTransport&)>;

/// What a rank computes on.
struct RankMachine {
  ComputeDevice& device;
  Kernels<float>& kernels;  ///< of that device
};

/// Calibrates and trains as one rank of the plan, on this thread's CPU. Called by all ranks of the transport. Each step
/// is added to `result` when it is done, so that a run that fails later leaves what it measured.
void train_rank(const TrainingPlan& plan, RankTransport& transport, RankResult& result,
                const BetweenSteps& between_steps = {});
/// The same on another device.
void train_rank(const TrainingPlan& plan, const RankMachine& machine, RankTransport& transport, RankResult& result,
                const BetweenSteps& between_steps = {});

/// All ranks of the plan as threads of this process. By rank.
std::vector<RankResult> train_on_threads(const TrainingPlan& plan, const ThreadOptions& options);
/// The same into `results`, which keep the finished steps when this throws.
void train_on_threads(const TrainingPlan& plan, const ThreadOptions& options, std::vector<RankResult>& results,
                      const BetweenSteps& between_steps = {});

class Processes;
struct MpiOptions;
/// Trains as one of the processes, all of which call this; there are as many as the plan has ranks. Rank 0 collects
/// the results of all ranks between the steps, with times by its own clock, and at the end their weights: `results` by
/// rank there, and empty elsewhere. They keep the finished steps when this throws. `progress` is called at rank 0 when
/// another step has been added, and others follow. In the library for MPI.
void train_on_mpi(Processes& processes, const TrainingPlan& plan, const MpiOptions& options,
                  std::vector<RankResult>& results, const std::function<void()>& progress = {});

/// Steps that every rank finished.
std::size_t finished_steps(const std::vector<RankResult>& ranks);

/// Mean loss of each step over all microbatches of all replicas.
std::vector<double> mean_losses(const std::vector<RankResult>& ranks);
/// Of one step, mean over replicas and chains of every microbatch (or slice).
std::vector<double> microbatch_losses(const std::vector<RankResult>& ranks, std::size_t step);

/// What the pipeline with these coordinates measured in a step.
Timeline timeline_of(const std::vector<RankResult>& ranks, std::size_t step, int data_index = 0, int tensor_index = 0);
/// The same of a step of the calibration, where nothing travels; `steps` are those of all ranks before or after the
/// run.
Timeline calibration_of(const std::vector<RankResult>& ranks, std::vector<StepRecord> RankCalibration::*steps,
                        std::size_t step);

/// A rank behind those of the plan: a parameter server on a spare host (TrainingPlan::servers). It takes part in the
/// making of all groups, and in every step adds up the buckets of the ranks it serves in the order in which these
/// complete them. `transport` is of the host's memory.
class ServerRank {
 public:
  ServerRank(const TrainingPlan& plan, RankTransport& transport);
  /// All steps of the plan.
  void run() {
    for (int step = 0; step < plan_.steps; ++step) serve_step();
  }

 private:
  SharedParameters lay_out(const RankGrid& grid);
  void serve_step();
  void serve(const Bucket& bucket);

  const TrainingPlan& plan_;
  RankTransport& transport_;
  HostDevice device_;
  ServerPlace place_;
  int pipeline_rank_ = 0;
  std::vector<std::vector<Bucket>> buckets_;  // by stage
};

}  // namespace flopcast::realrun
