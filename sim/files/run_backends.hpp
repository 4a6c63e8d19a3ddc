#pragma once

#include <array>
#include <string_view>

// The flags and backends that flopcast-run and `flopcast run`, which starts it, both know: declarations alone.

namespace flopcast::realrun {

/// A way to have ranks.
struct Backend {
  std::string_view name;
  bool on_gpus = false;       ///< weights lie in the memory of GPUs, and not in the machine's
  bool needs_mpirun = false;  ///< a single process is not enough to begin with
  bool meets = false;         ///< its processes find each other, whoever started them; else they do by MPI
  /// Flags that are for it alone.
  std::array<std::string_view, 2> flags = {};
};
inline constexpr std::array<Backend, 4> kBackends = {
    {{.name = "threads"},
     {.name = "mpi", .needs_mpirun = true},
     {.name = "virtual-gpus", .on_gpus = true, .flags = {"--partition", "--step-timeout"}},
     {.name = "nccl", .on_gpus = true, .meets = true, .flags = {"--one-gpu", "--store"}}}};

/// Null where there is none of that name.
constexpr const Backend* find_backend(std::string_view name) {
  for (const Backend& backend : kBackends) {
    if (backend.name == name) return &backend;
  }
  return nullptr;
}

/// A flag of `flopcast run` that is one of flopcast-run, and handed on to it as given.
struct RunFlag {
  std::string_view name;
  std::string_view value_name;
  std::string_view help;
};
inline constexpr std::array<RunFlag, 7> kRunFlags = {
    {{"--backend", "NAME",
      "threads (default): each rank a thread of one process; mpi: each a process, by mpirun; nccl: each a process with "
      "a GPU; virtual-gpus: all on one GPU"},
     {"--partition", "NAME", "of a virtual GPU: green (default), multiprocessors of its own; streams, which compete"},
     {"--one-gpu", "N", "nccl with all N ranks on the first GPU, over loopback sockets"},
     {"--timeout", "SECONDS", "how long a rank waits for another (60)"},
     {"--step-timeout", "SECONDS", "how long virtual GPUs may take for a step (ten times --timeout)"},
     {"--learning-rate", "R", "of the optimizer (0.001)"},
     {"--seed", "N", "of weights and data (1)"}}};
inline constexpr std::array<RunFlag, 6> kEmulationFlags = {
    {{"--compute", "NAME", "network (default): train; sleep: take the time of the passes only, communicate for real"},
     {"--forward", "T[,T…]", "slept for a forward pass, one time or one a stage: 5ms"},
     {"--backward", "T[,T…]", "for a backward pass, or for both of its halves"},
     {"--backward-input", "T[,T…]", "for an input gradient"},
     {"--backward-weight", "T[,T…]", "for a weight gradient"},
     {"--slow-down", "F", "sleep F times what the job's cluster would take, where no time is given (1)"}}};

}  // namespace flopcast::realrun
