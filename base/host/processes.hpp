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
  int signal = 0;     ///< that killed it; 0: it ended by itself
  int handed_on = 0;  ///< a signal that this process got and handed on; 0: none
  /// It was stopped for longer than allowed, and has been killed for that.
  bool was_stopped = false;
  /// A launcher went on for too long when all that it had started was gone, or had complained; it has been killed.
  bool was_left = false;
  /// A line on its error stream began with "error:" or "internal error:"; known of a launcher only.
  bool told_error = false;
  bool told_bug = false;
};

/// What is to happen to a program while it runs.
struct ChildRules {
  /// The program that it starts to do the work, as mpirun does; empty: it works itself. Signals go to the processes of
  /// that program on this machine, which have more to say about it, and three seconds later to the launcher; from the
  /// terminal it gets none, nor input. Of equal complaints on its error stream the first is shown.
  std::string launches = {};
  /// How long it, or everybody that it has started, may be stopped (SIGSTOP) before all are killed; a launcher that
  /// has nobody left may go on for five seconds more.
  std::optional<std::chrono::milliseconds> longest_stop = std::nullopt;
  const Guard* guard = nullptr;  ///< who ends it when this process is killed; null: a SIGTERM has to do
};

/// The path of a program of ours, which lies beside this one or in the folder that it is built in. Throws
/// EnvironmentError when it is in neither.
std::string program_beside(const std::string& name);

/// The path of a program by its name, as the shell finds it.
std::optional<std::string> program_on_path(const std::string& name);

/// "unknown" where the system does not tell.
std::string host_name();

/// Runs a program, which prints to the streams, and waits for it; they have to be files of the system. An interrupt
/// from the terminal reaches the program by itself; SIGINT, SIGTERM and SIGHUP of another process are handed on to it,
/// and it gets a SIGTERM when this process is killed. Throws EnvironmentError when it cannot be started.
ChildEnd run_child(const std::vector<std::string>& words, const Streams& streams, const ChildRules& rules = {});

/// A process's place among those that a launcher started together.
struct ProcessPlace {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;  ///< on its machine: the GPU it takes
};

/// Where such processes meet, as --store has it.
struct StoreAddress {
  std::string folder;  ///< of files that all see; empty: TCP
  std::string host;
  int port = 0;
  std::string token;  ///< store_token()
};
/// Throws ConfigError.
StoreAddress parse_store_address(const std::string& text);

/// What the processes of a run know and nobody else should: FLOPCAST_STORE_TOKEN, else torchrun's name of the run
/// (TORCHELASTIC_RUN_ID) or srun's job (SLURM_JOB_ID), which keep runs apart and are no secrets; empty where there is
/// none.
std::string store_token(const std::function<const char*(const char*)>& variable);

/// How a launcher has started this process.
struct Launched {
  ProcessPlace place;
  std::optional<StoreAddress> store;  ///< where it says the processes are to meet
};

/// By the variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), Slurm (SLURM_PROCID,
/// SLURM_STEP_NUM_TASKS, SLURM_LOCALID), Open MPI (OMPI_COMM_WORLD_RANK, …_SIZE, …_LOCAL_RANK) and MPICH (PMI_RANK,
/// PMI_SIZE, MPI_LOCALRANKID); nothing when no launcher has. torchrun's agent listens on MASTER_PORT itself
/// (TORCHELASTIC_USE_AGENT_STORE), and then the store is one port above. Throws ConfigError that names a variable with
/// a wrong value or one that is missing.
std::optional<Launched> launched_by(const std::function<const char*(const char*)>& variable);

/// Whether all processes of the launcher are on this machine, by what Open MPI, MPICH, Slurm and torchrun say of it.
bool is_on_one_machine(int ranks, const std::function<const char*(const char*)>& variable);

/// How many processes mpirun or srun started together with this one, by the variables that Open MPI, MPICH and Slurm
/// set; 1 when none did.
int launched_processes();

}  // namespace flopcast
