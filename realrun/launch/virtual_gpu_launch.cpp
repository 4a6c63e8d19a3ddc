#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "model/error/error.hpp"
#include "realrun/compute/cuda/gpu.hpp"
#include "realrun/compute/cuda/limits.hpp"
#include "realrun/launch/gpu_launch.hpp"
#include "realrun/launch/gpu_plan.hpp"
#include "realrun/launch/kept_run.hpp"
#include "realrun/launch/traced.hpp"
#include "realrun/transport/virtual/virtual_transport.hpp"

namespace flopcast::realrun {

namespace {

std::string conditions_of(const cuda::Gpu& gpu, int ranks) {
  if (gpu.partition() == cuda::Partition::kWhole) return {};
  const std::string shares = gpu.partition() == cuda::Partition::kGreen
                                 ? fmt::format("{} multiprocessors each", gpu.multiprocessors_per_rank())
                                 : std::string("competing for all of its multiprocessors");
  std::string text = fmt::format(
      "{} virtual devices on one GPU, {}; messages are copies in its memory, whose bandwidth, caches and power all "
      "share",
      ranks, shares);
  if (!gpu.has_one_clock()) text += "; each timed by a clock of its own, some microseconds apart";
  if (!gpu.refusal().empty()) text += fmt::format("; no parts of their own: {}", gpu.refusal());
  return text;
}

void check_ranks(const TrainingPlan& plan) {
  const int largest = std::max({plan.dp, plan.tp, plan.pipeline_ranks()});
  if (largest <= cuda::kMostInputs) return;
  throw ConfigError({"--backend",
                     fmt::format("virtual-gpus: {} ranks along one axis are more than the {} that share a "
                                 "GPU",
                                 largest, cuda::kMostInputs),
                     "--backend",
                     {}});
}

}  // namespace

int launch_on_virtual_gpus(const LaunchOptions& options, const ThreadOptions& threads) {
  const PreparedRun run = prepare_run(options);
  const TrainingPlan& plan = run.plan;
  const GemmPrecision precision = check_for_gpus(options, run);
  check_ranks(plan);
  const cuda::Partition wanted =
      options.gpu.partition == "streams" ? cuda::Partition::kStreams : cuda::Partition::kGreen;
  const std::unique_ptr<cuda::Gpu> gpu = cuda::share_gpu(0, plan.ranks(), wanted, precision);
  const cuda::GpuInfo& info = gpu->info();
  RunOrigin origin{.backend = "virtual-gpus"};
  origin.device = info.name;
  origin.dtype = name_of(precision);
  origin.libraries = {{"cuda_driver", info.driver_version},
                      {"cuda_runtime", info.runtime_version},
                      {"cublaslt", info.cublaslt_version}};
  origin.conditions = conditions_of(*gpu, plan.ranks());
  keep_run(options, run, origin, [&](std::vector<RankResult>& results, const BetweenSteps& between) {
    check_plan(plan);
    std::vector<std::unique_ptr<cuda::GpuRank>> ranks(static_cast<std::size_t>(plan.ranks()));
    const auto make = [&](ThreadHub& hub, int rank) {
      std::unique_ptr<cuda::GpuRank>& machine = ranks[static_cast<std::size_t>(rank)];
      machine = gpu->make_rank(rank);
      return std::make_unique<Traced<VirtualTransport>>(hub, rank, machine->queues());
    };
    run_threads(plan.ranks(), threads, make, [&](Transport& transport) {
      const auto rank = static_cast<std::size_t>(transport.rank());
      train_rank(plan, {ranks[rank]->device(), ranks[rank]->kernels()}, transport, results[rank], between);
    });
  });
  return 0;
}

}  // namespace flopcast::realrun
