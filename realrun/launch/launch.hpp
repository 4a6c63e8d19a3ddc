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

/// CPU use of the machine since construction, from /proc/stat and getrusage(), in hundredths of a second. Time taken by
/// a hypervisor counts as use by other programs; if it is unknown, none is counted.
class HostLoadMeter {
 public:
  HostLoadMeter();
  MeasuredLoad load() const;

 private:
  double wall_ = 0;
  double own_ = 0;
  double busy_ = 0;
};

/// The ranks' results so far in the format of sim/files/run_file.hpp, with the timelines of the first replica. `about`
/// describes the run: backend, job, failure, warm-up and load, and on GPUs the device, the precision of products,
/// libraries and conditions.
std::string run_file(const TrainingPlan& plan, const std::vector<RankResult>& ranks, RunRecord about);

/// The file of a run in progress. It is kept up to date, so that a run that is killed leaves its measurements; a file
/// from an earlier run is replaced at the start.
class ResultFile {
 public:
  /// The current text of the file; `failure` is empty if the run has ended well.
  using Contents = std::function<std::string(const std::string& failure)>;

  /// An empty path means standard output.
  ResultFile(std::string path, Contents contents);
  /// Writes the current results, if the file can be replaced. From the second step on, at most once a second and for at
  /// most a twentieth of the time.
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

/// Trains with `train` on ranks of this process and keeps the file of the run up to date. `about` holds what is known
/// beforehand; job, failure, warm-up and load are filled in. Rethrows the exception that ends the run once the file is
/// written.
void run_with_result_file(const LaunchOptions& options, const PreparedRun& run, RunRecord about,
                          const std::function<void(std::vector<RankResult>&, const BetweenSteps&)>& train);

/// Makes the process keep freed memory for reuse, as the caching allocators of GPUs do; pieces larger than 32 MiB still
/// come from the system. Returned memory would be mapped again page by page in the middle of later passes, which then
/// take up to a quarter longer, depending on the order of allocations: the same passes would take different times in a
/// calibration and in the run. Called once, before other threads run. Has an effect with the GNU C library only.
void keep_freed_memory();

/// Throws ConfigError for invalid arguments.
LaunchOptions parse_launch_options(const std::vector<std::string>& arguments);
/// Prints the help text if there is one; returns false otherwise.
bool show_help(const LaunchOptions& options);

/// Runs all ranks of the job on the first GPU, as threads of this process. Returns the exit code. Throws ConfigError
/// and EnvironmentError, the latter also if flopcast-run was built without CUDA.
int launch_on_virtual_gpus(const LaunchOptions& options, const ThreadOptions& threads);

/// Runs one rank of the job on a GPU with NCCL, as one of the processes that a launcher started or after forking them.
/// Only the interruption of `threads` is used.
int launch_on_nccl(const LaunchOptions& options, const ThreadOptions& threads);

/// Runs flopcast-run as one of the processes that mpirun or srun started together. Returns the exit code, which is the
/// same in all of them; one has printed the reason if it is not 0. After a failure of the run it ends the processes
/// itself. Throws EnvironmentError if built without MPI.
int launch_on_mpi(const std::vector<std::string>& arguments);

}  // namespace flopcast::realrun
