#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/host/guard.hpp"
#include "base/host/terminal.hpp"

namespace flopcast {

/// How another program ended.
struct ChildEnd {
  int exit_code = 0;
  int signal = 0;     ///< signal that killed it; 0: it exited normally
  int handed_on = 0;  ///< last signal this process forwarded; 0: none
  /// It was stopped for longer than allowed and was therefore killed.
  bool was_stopped = false;
  /// A launcher kept running for too long after all its processes had ended or had reported errors, and was killed.
  bool outlived_workers = false;
  /// A line on its error stream began with "error:" or "internal error:"; recorded for launchers only.
  bool saw_error = false;
  bool saw_bug = false;
};

/// How to supervise a program while it runs.
struct ChildRules {
  /// The worker program that it launches, as mpirun does; empty: it does the work itself. Signals go to the worker
  /// processes on this machine, whose messages are more specific, and three seconds later to the launcher. The launcher
  /// gets no signals or input from the terminal. Repeated identical errors on its error stream are shown once.
  std::string launches = {};
  /// How long the program or all its workers may be stopped (SIGSTOP) before all are killed; a launcher without workers
  /// may run five seconds longer.
  std::optional<std::chrono::milliseconds> longest_stop = std::nullopt;
  const Guard* guard = nullptr;  ///< ends it if this process is killed; null: SIGTERM only
};

/// Path of one of our programs, next to this one or in its build folder. Throws EnvironmentError if it is in neither.
std::string sibling_program(const std::string& name);

/// Path of a program by name, found in PATH as the shell does.
std::optional<std::string> program_on_path(const std::string& name);

/// "unknown" if the system call fails.
std::string host_name();

/// Runs a program that prints to the streams (which must be real files) and waits for it. Interrupts from the terminal
/// reach the program directly; SIGINT, SIGTERM and SIGHUP from other processes are forwarded to it, and it gets a
/// SIGTERM if this process is killed. Throws EnvironmentError if it cannot be started.
ChildEnd run_child(const std::vector<std::string>& words, const Streams& streams, const ChildRules& rules = {});

/// A process's place among those that a launcher started together.
struct ProcessPlace {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;  ///< on its machine; the index of its GPU
};

/// Rendezvous address of such processes, as given by --store.
struct StoreAddress {
  std::string folder;  ///< folder of files visible to all; empty: TCP
  std::string host;
  int port = 0;
  std::string token;  ///< store_token()
};
/// Throws ConfigError.
StoreAddress parse_store_address(const std::string& text);

/// Token shared by the processes of a run: FLOPCAST_STORE_TOKEN, else torchrun's run name (TORCHELASTIC_RUN_ID) or
/// Slurm's job (SLURM_JOB_ID). The latter two keep runs apart but are not secret; empty if there is none.
std::string store_token(const std::function<const char*(const char*)>& variable);

/// How a launcher has started this process.
struct Launched {
  ProcessPlace place;
  std::optional<StoreAddress> store;  ///< rendezvous address set by the launcher, if any
};

/// Reads the variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), Open MPI
/// (OMPI_COMM_WORLD_RANK, …_SIZE, …_LOCAL_RANK), MPICH (PMI_RANK, PMI_SIZE, MPI_LOCALRANKID) and Slurm (SLURM_PROCID,
/// SLURM_STEP_NUM_TASKS, SLURM_LOCALID); returns nothing if no launcher set them. When torchrun's agent listens on
/// MASTER_PORT itself (TORCHELASTIC_USE_AGENT_STORE), the store uses the next port. Throws ConfigError that names a
/// missing or invalid variable.
std::optional<Launched> launched_by(const std::function<const char*(const char*)>& variable);

/// True if all processes of the launcher run on this machine, according to Open MPI, MPICH, Slurm or torchrun.
bool is_on_one_machine(int ranks, const std::function<const char*(const char*)>& variable);

/// Number of processes that mpirun or srun started together with this one, from the variables of Open MPI, MPICH and
/// Slurm; 1 if neither started it.
int launched_processes();

}  // namespace flopcast
