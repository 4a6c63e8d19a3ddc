#include "realrun/launch/gpu_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "base/host/guard.hpp"
#include "base/text/error.hpp"
#include "realrun/compute/cuda/gpu.hpp"
#include "realrun/launch/launch.hpp"
#include "realrun/rendezvous/meeting.hpp"
#include "realrun/training/train.hpp"
#include "realrun/transport/nccl/nccl_transport.hpp"
#include "realrun/transport/threads/thread_transport.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// A transport that shows its rank's activity to NVIDIA's profilers.
template <class Base>
class Traced : public Base {
 public:
  using Base::Base;
  void note(const Activity& activity) override {
    range_.begin(to_string(activity));
    Base::note(activity);
  }

 private:
  cuda::ToolRange range_;
};

std::string shared_connections(int ranks) {
  const int streams = ranks * (kQueues + 1) + 1;  // including those of a rank's memory pool and of the clock
  if (streams <= cuda::kMostConnections) return {};
  return fmt::format(
      "their {} streams share the {} connections between CUDA and the GPU, so that one rank may wait for another "
      "without depending on it",
      streams, cuda::kMostConnections);
}

std::string float8_conditions(const TrainingPlan& plan, const cuda::GpuInfo& gpu, GemmPrecision wanted) {
  if (wanted != GemmPrecision::kFp8) return {};
  if (cuda::precision_on(gpu, wanted) != wanted) return "all products in bf16: this GPU does not support fp8";
  const Float8Linears linears = float8_linears(plan);
  return fmt::format(
      "in fp8: {} of the 4 linears of a block, each matrix scaled by its largest magnitude (recipe current); in bf16: "
      "{}attention and head",
      linears.count, linears.others.empty() ? "" : linears.others + ", ");
}

namespace {

// Only one of several processes prints warnings.
RunRecord origin_of(const char* backend, const TrainingPlan& plan, const cuda::GpuInfo& gpu, GemmPrecision wanted,
                    bool tells) {
  const GemmPrecision precision = cuda::precision_on(gpu, wanted);
  if (tells && precision == GemmPrecision::kFp8 && !float8_linears(plan).others.empty()) {
    print_error(fmt::format("warning: fp8 products require sizes that are multiples of 16; these use bf16: {}",
                            float8_linears(plan).others));
  }
  if (tells && precision != wanted) {
    print_error(fmt::format("warning: {} (compute capability {}.{}) does not support products in {}; using {}",
                            gpu.name, gpu.compute_capability / 10, gpu.compute_capability % 10, name_of(wanted),
                            name_of(precision)));
  }
  RunRecord about;
  about.backend = backend;
  about.device = gpu.name;
  about.dtype = name_of(precision);
  about.libraries = {
      {"cuda_driver", gpu.driver_version}, {"cuda_runtime", gpu.runtime_version}, {"cublaslt", gpu.cublaslt_version}};
  about.conditions = float8_conditions(plan, gpu, wanted);
  return about;
}

void add_condition(RunRecord& origin, const std::string& condition) {
  if (!condition.empty()) origin.conditions = condition + (origin.conditions.empty() ? "" : "; ") + origin.conditions;
}

std::string conditions_of(const cuda::Gpu& gpu, int ranks) {
  if (gpu.partition() == cuda::Partition::kWhole) return {};
  const std::string shares = gpu.partition() == cuda::Partition::kGreen
                                 ? fmt::format("{} multiprocessors each", gpu.multiprocessors_per_rank())
                                 : std::string("competing for all its multiprocessors");
  std::string text = fmt::format(
      "{} virtual devices on one GPU, {}; messages are copies in its memory; bandwidth, caches and power are shared",
      ranks, shares);
  if (!gpu.has_one_clock()) text += "; each timed by its own clock, accurate to some microseconds";
  if (!gpu.refusal().empty()) text += fmt::format("; not partitioned: {}", gpu.refusal());
  const std::string shared = shared_connections(ranks);
  if (!shared.empty()) text += "; " + shared;
  return text;
}

void check_ranks(const TrainingPlan& plan) {
  const int largest = std::max({plan.dp, plan.tp, plan.pipeline_ranks()});
  if (largest <= cuda::kMostInputs) return;
  throw ConfigError({"--backend",
                     fmt::format("virtual-gpus: {} ranks along one axis exceed the {} that can share a GPU", largest,
                                 cuda::kMostInputs),
                     "--backend",
                     {}});
}

// A step is queued as a whole and waited for at its end, an asynchronous run even all at once: allows a multiple of the
// time limit of an action.
std::chrono::milliseconds step_patience(const LaunchOptions& options, const ThreadOptions& threads) {
  constexpr int kActions = 10;
  if (options.gpu.step_patience_s > 0) return std::chrono::seconds(options.gpu.step_patience_s);
  return kActions * threads.patience;
}

}  // namespace

int launch_on_virtual_gpus(const LaunchOptions& options, const ThreadOptions& threads) {
  const PreparedRun run = prepare_run(options);
  const TrainingPlan& plan = run.plan;
  const GemmPrecision precision = check_for_gpus(options, run);
  check_ranks(plan);
  const cuda::Partition wanted = options.gpu.streams ? cuda::Partition::kStreams : cuda::Partition::kGreen;
  const std::unique_ptr<cuda::Gpu> gpu =
      cuda::share_gpu(0, plan.ranks(), wanted, precision, step_patience(options, threads));
  check_gpu_memory(run, plan.ranks(), gpu->info().name, static_cast<double>(gpu->info().memory_bytes));
  RunRecord origin = origin_of("virtual-gpus", plan, gpu->info(), precision, true);
  add_condition(origin, conditions_of(*gpu, plan.ranks()));
  const std::string shared = shared_connections(plan.ranks());
  if (!shared.empty()) print_error(fmt::format("warning: {} virtual devices: {}", plan.ranks(), shared));
  run_with_result_file(options, run, origin, [&](std::vector<RankResult>& results, const BetweenSteps& between) {
    check_plan(plan);
    std::vector<std::unique_ptr<cuda::GpuRank>> ranks(static_cast<std::size_t>(plan.ranks()));
    const auto make = [&](ThreadHub& hub, int rank) {
      std::unique_ptr<cuda::GpuRank>& machine = ranks[static_cast<std::size_t>(rank)];
      machine = gpu->make_rank(rank);
      return std::make_unique<Traced<ThreadTransport>>(hub, rank, machine->queues());
    };
    try {
      run_threads(plan.ranks(), threads, make, [&](RankTransport& transport) {
        const auto rank = static_cast<std::size_t>(transport.rank());
        train_rank(plan, {ranks[rank]->device(), ranks[rank]->kernels()}, transport, results[rank], between);
      });
    } catch (const std::exception& error) {
      const bool stuck = std::any_of(ranks.begin(), ranks.end(),
                                     [](const auto& machine) { return machine != nullptr && machine->stuck(); });
      if (!stuck) throw;
      // Releasing the GPU would wait for it. Finished steps have been kept.
      print_error(error_report(error).text);
      std::_Exit(kEnvironmentFailed);
    }
  });
  return 0;
}

namespace {

// Lets several NCCL ranks share one GPU, which NCCL refuses unless they appear to be on separate machines or, from 2.30
// on, an option allows it: it then communicates over sockets. Few blocks, so that waiting kernels leave room for those
// they wait for. The user's settings take precedence.
void set_separate_nccl_hosts(int rank) {
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 0); };
  set("NCCL_HOSTID", fmt::format("flopcast-{}", rank));
  for (const auto& [name, value] : {std::pair{"NCCL_NET", "Socket"},
                                    {"NCCL_SOCKET_IFNAME", "lo"},
                                    {"NCCL_IB_DISABLE", "1"},
                                    {"NCCL_NET_PLUGIN", "none"},
                                    {"NCCL_TUNER_PLUGIN", "none"},
                                    {"NCCL_P2P_DISABLE", "1"},
                                    {"NCCL_SHM_DISABLE", "1"},
                                    {"NCCL_NVLS_ENABLE", "0"},
                                    {"NCCL_MNNVL_ENABLE", "0"},
                                    {"NCCL_RAS_ENABLE", "0"},
                                    {"NCCL_RUNTIME_CONNECT", "0"},
                                    {"NCCL_MAX_NCHANNELS", "2"},
                                    {"NCCL_MULTI_RANK_GPU_ENABLE", "1"},
                                    {"NCCL_PROTO", "Simple"}}) {
    set(name, value);
  }
}

std::string conditions_of(const NcclRun& run) {
  if (run.options.gpu.one_gpu == 0) return {};
  return fmt::format(
      "{} processes on one GPU, which use it in turns or share it (MPS); NCCL over loopback sockets, not over a link "
      "between GPUs",
      run.options.gpu.one_gpu);
}

RunRecord origin_of(const NcclRun& run, const ProcessPlace& place, const cuda::Gpu& gpu, const NcclApi& nccl) {
  RunRecord origin = origin_of("nccl", run.prepared.plan, gpu.info(), run.precision, place.rank == 0);
  origin.job = run.prepared.job;
  origin.warmup = run.options.warmup;
  origin.libraries["nccl"] = nccl.version();
  add_condition(origin, conditions_of(run));
  return origin;
}

/// Sends every rank's results to rank 0 through the store.
class Collection {
 public:
  Collection(const NcclRun& run, Store& store, const ProcessPlace& place)
      : store_(store),
        place_(place),
        patience_(run.patience()),
        with_calibration_(run.options.settings.calibration_steps > 0),
        results_(place.rank == 0 ? places() : 0U) {}

  // Omits the weights, which the file does not contain.
  void add(const RankResult& own) {
    RankResult latest = own.latest();
    latest.weights.clear();
    if (!with_calibration_) latest.calibration = {};
    const std::size_t step = own.steps.size();
    if (place_.rank != 0) return put(step, to_bytes(latest));
    for (std::size_t rank = 0; rank < results_.size(); ++rank) {
      results_[rank].add(rank == 0 ? latest : take(rank, step));
    }
  }
  const std::vector<RankResult>& results() const { return results_; }

 private:
  // The size of a store's values is limited.
  static constexpr std::size_t kPiece = std::size_t{1} << 19U;

  std::size_t places() const { return static_cast<std::size_t>(place_.ranks); }
  static std::string key(std::size_t rank, std::size_t step, std::size_t piece) {
    return fmt::format("result/{}/{}/{}", rank, step, piece);
  }

  void put(std::size_t step, const std::vector<std::byte>& bytes) {
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const auto rank = static_cast<std::size_t>(place_.rank);
    std::size_t pieces = 0;
    for (std::size_t start = 0; start < text.size(); start += kPiece) {
      store_.set(key(rank, step, ++pieces), text.substr(start, kPiece));
    }
    store_.set(key(rank, step, 0), std::to_string(pieces));
  }

  RankResult take(std::size_t rank, std::size_t step) {
    const std::string what = fmt::format("the measurements of rank {}", rank);
    const std::size_t pieces = std::stoul(wait_for(store_, key(rank, step, 0), patience_, what));
    std::string text;
    for (std::size_t piece = 1; piece <= pieces; ++piece) {
      text += wait_for(store_, key(rank, step, piece), patience_, what);
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    return result_from_bytes({bytes, bytes + text.size()});
  }

  Store& store_;
  ProcessPlace place_;
  std::chrono::milliseconds patience_;
  bool with_calibration_ = false;
  std::vector<RankResult> results_;
};

// Some launchers make only its own GPU visible to each process.
int gpu_of(const NcclRun& run, const ProcessPlace& place) {
  if (run.options.gpu.one_gpu > 0) return 0;
  return std::getenv("CUDA_VISIBLE_DEVICES") != nullptr && cuda::count_gpus() == 1 ? 0 : place.local_rank;
}

// Returns once all ranks have ended successfully. Each reports to rank 0, which holds the store and therefore leaves
// last.
void leave_together(const NcclRun& run, const ProcessPlace& place, Store& store) {
  store.set(kDoneKey + std::to_string(place.rank), "");
  for (int rank = 0; place.rank == 0 && rank < place.ranks; ++rank) {
    wait_for(store, kDoneKey + std::to_string(rank), run.patience(), fmt::format("the end of rank {}", rank));
  }
}

// Most messages that a rank awaits at a time: one from each neighbour.
int awaited_messages(const TrainingPlan& plan) {
  constexpr int kMostNeighbours = 2;
  return std::min(plan.pipeline_ranks() - 1, kMostNeighbours);
}

void train_as(const NcclRun& run, const ProcessPlace& place, Store& store, cuda::Gpu& gpu, NcclApi& nccl) {
  const std::unique_ptr<cuda::GpuRank> machine = gpu.make_rank(0, awaited_messages(run.prepared.plan) * kMessageBlocks);
  Collection collection(run, store, place);
  RunRecord origin = origin_of(run, place, gpu, nccl);
  ResultFile file(run.options.output, [&](const std::string& failure) {
    origin.failure = failure;
    return run_file(run.prepared.plan, collection.results(), origin);
  });
  const bool keeps_file = place.rank == 0;
  if (keeps_file) file.keep();
  std::string failure;
  {
    const NcclOptions options{
        .place = place, .patience = run.patience(), .interruption = run.interruption, .abandon = run.abandon};
    Traced<NcclTransport> transport(
        nccl, machine->queues(), [&](Queue queue) { return machine->stream(queue); }, store, options);
    const RankMachine computes{machine->device(), machine->kernels()};
    const auto go_by_one_clock = [&] { gpu.synchronise_clock(common_clock_offset(store, place, run.patience())); };
    try {
      RankResult own;
      go_by_one_clock();
      train_rank(run.prepared.plan, computes, transport, own, [&](RankTransport&) {
        collection.add(own);
        if (keeps_file) file.keep();
        go_by_one_clock();
      });
      collection.add(own);
      transport.note({.kind = Activity::Kind::kDone, .action = {}});
      leave_together(run, place, store);
    } catch (const Aborted&) {
      failure = transport.failure();
    } catch (const std::exception& error) {
      transport.fail(fmt::format("rank {} failed: {}", place.rank, error.what()));
      failure = transport.failure();
    }
  }
  if (keeps_file) file.finish(failure);
  if (!failure.empty()) throw EnvironmentError(failure);
}

}  // namespace

NcclRun prepare_nccl_run(const LaunchOptions& options, const std::atomic<int>* interruption) {
  // First use allocates memory and loads kernels, and either may stop a GPU until the messages it awaits arrive. A
  // calibration awaits none, so it precedes every run.
  LaunchOptions calibrating = options;
  calibrating.settings.calibration_steps = std::max(1, options.settings.calibration_steps);
  NcclRun run{.options = options, .prepared = prepare_run(calibrating), .interruption = interruption};
  run.precision = check_for_gpus(options, run.prepared);
  return run;
}

void train_nccl_rank(const NcclRun& run, const ProcessPlace& place, Store& store) {
  const int ranks = run.prepared.plan.ranks();
  if (place.ranks != ranks) {
    throw ConfigError({"--backend",
                       fmt::format("nccl: {} process{} started, but the job has {} ranks", place.ranks,
                                   place.ranks == 1 ? " was" : "es were", ranks),
                       "--backend", fmt::format("start {}", ranks)});
  }
  gather_ranks(store, place, run.patience());
  if (run.options.gpu.one_gpu > 0) set_separate_nccl_hosts(place.rank);
  try {
    const std::unique_ptr<NcclApi> nccl = load_nccl();
    const std::unique_ptr<cuda::Gpu> gpu =
        cuda::share_gpu(gpu_of(run, place), 1, cuda::Partition::kWhole, run.precision);
    check_gpu_memory(run.prepared, std::max(1, run.options.gpu.one_gpu), gpu->info().name,
                     static_cast<double>(gpu->info().memory_bytes));
    train_as(run, place, store, *gpu, *nccl);
  } catch (const EnvironmentError& error) {
    store.set_once("failure", error.what());
    throw;
  }
}

}  // namespace flopcast::realrun
