#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>

#include "realrun/compute/cuda/gpu.hpp"
#include "realrun/launch/plan_from_job.hpp"
#include "realrun/rendezvous/meeting.hpp"

namespace flopcast::realrun {

/// A condition of the run for `ranks` ranks on one GPU whose streams must share its connections, where a rank may wait
/// for an unrelated one. Empty if every stream has a connection of its own.
std::string shared_connections(int ranks);

/// How an fp8 job runs on that GPU, for the conditions of its run: which linears are 8-bit, and how they are scaled.
/// Empty for other precisions.
std::string float8_conditions(const TrainingPlan& plan, const cuda::GpuInfo& gpu, GemmPrecision wanted);

/// Settings that all processes of a run with NCCL share.
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

/// Trains as one of the processes, which meet at the store; rank 0 writes the file. Throws ConfigError if the number of
/// processes differs from the job's ranks, and EnvironmentError with the same failure on every process.
void train_nccl_rank(const NcclRun& run, const ProcessPlace& place, Store& store);

}  // namespace flopcast::realrun
