#pragma once

#include <functional>
#include <optional>
#include <string>

namespace flopcast {

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
