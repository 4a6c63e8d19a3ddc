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

/// Measurements of one rank in one step.
struct StepRecord {
  RankRecord record;
  /// Losses of the microbatches (or slices) whose loss this rank computes, each a mean over its tokens: by chain, in
  /// order.
  std::vector<double> losses;
  SentTraffic traffic;           ///< sent in this step
  std::uint64_t host_bytes = 0;  ///< moved to host memory and back, if something is offloaded
  double wall_seconds = 0;
  double cpu_seconds = 0;  ///< of the rank's own thread
};

/// Measurements of a rank before and after the training, on separate weights.
struct RankCalibration {
  /// The rank's actions and updates in order; all ranks run concurrently, and none waits for another's messages.
  std::vector<StepRecord> steps;
  /// The same repeated after the training: reveals if the machine has changed in the meantime.
  std::vector<StepRecord> later_steps;
  std::vector<MessageTimes> messages;  ///< received by this rank
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

  /// A copy that holds only the last of the steps.
  RankResult latest() const;
  /// Appends the step of `latest`, and adopts all its other fields.
  void add(RankResult latest);
};

/// Serialises a rank's result for another process on the same kind of machine. Throws EnvironmentError if the bytes end
/// prematurely.
std::vector<std::byte> to_bytes(const RankResult& result);
RankResult result_from_bytes(const std::vector<std::byte>& bytes);

/// Called on every rank between two steps: all ranks have added the previous step to their results, and none begins the
/// next one until all have returned.
using BetweenSteps = std::function<void(RankTransport&)>;

/// The device that a rank computes on.
struct RankMachine {
  ComputeDevice& device;
  Kernels<float>& kernels;  ///< of that device
};

/// Calibrates and trains as one rank of the plan, on this thread's CPU. Called by all ranks of the transport. Each step
/// is added to `result` once it is done, so that a run that fails later leaves its measurements.
void train_rank(const TrainingPlan& plan, RankTransport& transport, RankResult& result,
                const BetweenSteps& between_steps = {});
/// The same on another device.
void train_rank(const TrainingPlan& plan, const RankMachine& machine, RankTransport& transport, RankResult& result,
                const BetweenSteps& between_steps = {});

/// Runs all ranks of the plan as threads of this process. Returns results by rank.
std::vector<RankResult> train_on_threads(const TrainingPlan& plan, const ThreadOptions& options);
/// The same with output to `results`, which keep the finished steps if this throws.
void train_on_threads(const TrainingPlan& plan, const ThreadOptions& options, std::vector<RankResult>& results,
                      const BetweenSteps& between_steps = {});

class Processes;
struct MpiOptions;
/// Trains as one of the processes, all of which must call this; there are as many as the plan has ranks. Between the
/// steps, rank 0 collects the results of all ranks, with times by its own clock, and at the end their weights:
/// `results` is by rank there, and empty elsewhere. It keeps the finished steps if this throws. `progress` is called on
/// rank 0 when a step has been added and more follow. Part of the MPI library.
void train_on_mpi(Processes& processes, const TrainingPlan& plan, const MpiOptions& options,
                  std::vector<RankResult>& results, const std::function<void()>& progress = {});

/// Steps that every rank has finished.
std::size_t finished_steps(const std::vector<RankResult>& ranks);

/// Mean loss of each step over all microbatches of all replicas.
std::vector<double> mean_losses(const std::vector<RankResult>& ranks);
/// Mean loss of every microbatch (or slice) of one step over replicas and chains.
std::vector<double> microbatch_losses(const std::vector<RankResult>& ranks, std::size_t step);

/// Measured timeline of a step of the pipeline with these coordinates.
Timeline timeline_of(const std::vector<RankResult>& ranks, std::size_t step, int data_index = 0, int tensor_index = 0);
/// The same for a calibration step, which sends no messages; `steps` selects those before or after the run.
Timeline calibration_of(const std::vector<RankResult>& ranks, std::vector<StepRecord> RankCalibration::*steps,
                        std::size_t step);

/// A rank after those of the plan: a parameter server on a spare host (TrainingPlan::servers). It takes part in forming
/// all groups, and in every step sums the buckets of the ranks it serves in the order in which these complete them.
/// `transport` must be one for host memory.
class ServerRank {
 public:
  ServerRank(const TrainingPlan& plan, RankTransport& transport);
  /// Serves all steps of the plan.
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
