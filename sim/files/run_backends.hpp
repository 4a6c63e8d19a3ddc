#pragma once

#include <array>
#include <string_view>

// The flags and backends shared by flopcast-run and `flopcast run`, which starts it; declarations only.

namespace flopcast::realrun {

/// An implementation of ranks.
struct Backend {
  std::string_view name;
  bool on_gpus = false;       ///< weights are in the memory of GPUs instead of the host's
  bool needs_mpirun = false;  ///< a single process is not enough to start
  bool meets = false;         ///< its processes find each other, however they were started; otherwise they do so by MPI
  /// Flags that apply only to this backend.
  std::array<std::string_view, 2> flags = {};
};
inline constexpr std::array<Backend, 4> kBackends = {
    {{.name = "threads"},
     {.name = "mpi", .needs_mpirun = true},
     {.name = "virtual-gpus", .on_gpus = true, .flags = {"--partition", "--step-timeout"}},
     {.name = "nccl", .on_gpus = true, .meets = true, .flags = {"--one-gpu", "--store"}}}};

/// Null if there is no backend of that name.
constexpr const Backend* find_backend(std::string_view name) {
  for (const Backend& backend : kBackends) {
    if (backend.name == name) return &backend;
  }
  return nullptr;
}

/// A flag of `flopcast run` that belongs to flopcast-run and is passed on unchanged.
struct RunFlag {
  std::string_view name;
  std::string_view value_name;
  std::string_view help;
};
inline constexpr std::array<RunFlag, 7> kRunFlags = {
    {{"--backend", "NAME",
      "threads (default): ranks are threads of one process; mpi: processes, by mpirun; nccl: processes with "
      "a GPU each; virtual-gpus: all on one GPU"},
     {"--partition", "NAME", "of virtual GPUs: green (default), with separate multiprocessors; streams, which compete"},
     {"--one-gpu", "N", "nccl with all N ranks on the first GPU, over loopback sockets"},
     {"--timeout", "SECONDS", "maximum wait of a rank for another (60)"},
     {"--step-timeout", "SECONDS", "maximum step time of virtual GPUs (ten times --timeout)"},
     {"--learning-rate", "R", "of the optimizer (0.001)"},
     {"--seed", "N", "of weights and data (1)"}}};
inline constexpr std::array<RunFlag, 6> kEmulationFlags = {
    {{"--compute", "NAME", "network (default): train; sleep: only take the time of the passes, communicate for real"},
     {"--forward", "T[,T…]", "sleep time of a forward pass, one time or one per stage: 5ms"},
     {"--backward", "T[,T…]", "sleep time of a backward pass, or of both of its halves"},
     {"--backward-input", "T[,T…]", "sleep time of an input gradient"},
     {"--backward-weight", "T[,T…]", "sleep time of a weight gradient"},
     {"--slow-down", "F", "sleep F times as long as the job's cluster would take, if no time is given (1)"}}};

}  // namespace flopcast::realrun
