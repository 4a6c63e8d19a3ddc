#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>

#include "realrun/compute/cuda/gpu.hpp"
#include "realrun/launch/plan_from_job.hpp"
#include "realrun/rendezvous/meeting.hpp"

namespace flopcast::realrun {

/// What is to be said of so many ranks on one GPU: that their streams share its connections, where one rank may wait
/// for another that it has nothing to do with. Empty as long as each stream has one of its own.
std::string shared_connections(int ranks);

/// What a job in fp8 is on that GPU, for the conditions of its run: which linears have 8 bits, and how they are scaled.
/// Empty in another precision.
std::string float8_conditions(const TrainingPlan& plan, const cuda::GpuInfo& gpu, GemmPrecision wanted);

/// What all processes of a run with NCCL know alike.
struct NcclRun {
  const LaunchOptions& options;
  PreparedRun prepared;
  GemmPrecision precision = GemmPrecision::kFp32;
  const std::atomic<int>* interruption = nullptr;
  /// See NcclOptions::abandon.
  std::function<void(const std::string& failure)> abandon = {};

  std::chrono::milliseconds patience() const { return std::chrono::seconds(options.patience_s); }
};

/// Throws ConfigError.
NcclRun prepare_nccl_run(const LaunchOptions& options, const std::atomic<int>* interruption);

/// Trains as one of the processes, which meet at the store; rank 0 writes the file. Throws ConfigError when other than
/// the job's ranks were started, and EnvironmentError with the one failure that all processes tell.
void train_nccl_rank(const NcclRun& run, const ProcessPlace& place, Store& store);

}  // namespace flopcast::realrun
