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
};
/// Throws ConfigError.
StoreAddress parse_store_address(const std::string& text);

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

/// How many processes mpirun or srun started together with this one, by the variables that Open MPI, MPICH and Slurm
/// set; 1 when none did.
int launched_processes();

}  // namespace flopcast
