#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "realrun/launch/plan_from_job.hpp"
#include "realrun/training/train.hpp"
#include "realrun/transport/threads/thread_transport.hpp"
#include "sim/files/run_file.hpp"

namespace flopcast::realrun {

/// What the machine's processors do from its construction on, by /proc/stat and getrusage(): in hundredths of a second.
/// The time that a hypervisor takes counts as that of others; where it is not known, nothing does.
class HostLoadMeter {
 public:
  HostLoadMeter();
  MeasuredLoad load() const;

 private:
  double wall_ = 0;
  double own_ = 0;
  double busy_ = 0;
};

/// What the ranks have done so far, as sim/files/run_file.hpp writes it, with the timelines of the first replica.
/// `about` says how the run came about: backend, job, failure, warm-up and load, and on GPUs device, precision of the
/// products, libraries and conditions.
std::string run_file(const TrainingPlan& plan, const std::vector<RankResult>& ranks, RunRecord about);

/// The file of a run that goes on. It is kept up to date, so that a run that is killed leaves what it has measured; a
/// file from an earlier run is replaced when the run begins.
class ResultFile {
 public:
  /// The whole text as of now; `failure` is empty when the run has ended well.
  using Contents = std::function<std::string(const std::string& failure)>;

  /// An empty path is standard output.
  ResultFile(std::string path, Contents contents);
  /// Writes what there is so far, in a file that can be replaced. From the second step on at most once a second and for
  /// at most a twentieth of the time.
  void keep();
  void finish(const std::string& failure);

 private:
  using Clock = std::chrono::steady_clock;

  bool replaceable() const;

  std::string path_;
  Contents contents_;
  int kept_ = 0;
  Clock::time_point next_{};
};

/// Trains with `train` on ranks of this process while the file of the run is kept up to date. `about` says what is
/// known before; job, failure, warm-up and load are filled in. Throws what ends the run, once the file is written.
void keep_run(const LaunchOptions& options, const PreparedRun& run, RunRecord about,
              const std::function<void(std::vector<RankResult>&, const BetweenSteps&)>& train);

/// From now on memory that is freed stays with the process and is given out again, as the caching allocators of GPUs
/// do; larger pieces than 32 MiB still come from the system. Given back, it would be mapped again page by page in the
/// middle of later passes, which then take up to a quarter longer, or not, as the order of their allocations has it:
/// the same passes would not take the same time in a calibration and in the run. Called once, before other threads run.
/// Does something with the GNU C library only.
void keep_freed_memory();

/// Throws ConfigError on bad usage.
LaunchOptions parse_launch_options(const std::vector<std::string>& arguments);
/// False when there is none to show.
bool show_help(const LaunchOptions& options);

/// All ranks of the job on the first GPU, as threads of this process. Returns the exit code. Throws ConfigError and
/// EnvironmentError, which says so when flopcast-run was built without CUDA.
int launch_on_virtual_gpus(const LaunchOptions& options, const ThreadOptions& threads);

/// A rank of the job on a GPU with NCCL: as one of the processes that a launcher started, or after forking them. Of
/// `threads` only the interruption counts.
int launch_on_nccl(const LaunchOptions& options, const ThreadOptions& threads);

/// flopcast-run as one of the processes that mpirun or srun started together. Returns the exit code, the same in all of
/// them, of which one has told why it is not 0; after a failure of the run it ends the processes itself. Throws
/// EnvironmentError when built without MPI.
int launch_on_mpi(const std::vector<std::string>& arguments);

}  // namespace flopcast::realrun
