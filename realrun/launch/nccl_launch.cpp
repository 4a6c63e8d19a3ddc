#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <system_error>
#include <thread>

#include "model/error/error.hpp"
#include "realrun/compute/cuda/gpu.hpp"
#include "realrun/launch/complaint.hpp"
#include "realrun/launch/gpu_launch.hpp"
#include "realrun/launch/gpu_plan.hpp"
#include "realrun/launch/result_file.hpp"
#include "realrun/launch/run_file.hpp"
#include "realrun/rendezvous/launch_environment.hpp"
#include "realrun/rendezvous/mpi_meeting.hpp"
#include "realrun/training/result_bytes.hpp"
#include "realrun/transport/nccl/nccl_transport.hpp"

namespace flopcast::realrun {

namespace {

namespace fs = std::filesystem;

/// What all processes of the run know alike.
struct NcclRun {
  const LaunchOptions& options;
  PreparedRun prepared;
  GemmPrecision precision = GemmPrecision::kFp32;
  const std::atomic<int>* interruption = nullptr;

  std::chrono::milliseconds patience() const { return std::chrono::seconds(options.patience_s); }
};

// Several ranks of NCCL on one GPU, which it refuses unless they seem to be on machines of their own: then it talks
// over sockets. Few blocks, so that kernels that wait leave room for those they wait for. What the user set stays.
void pretend_own_machines(int rank) {
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
                                    {"NCCL_PROTO", "Simple"},
                                    {"CUDA_MODULE_LOADING", "EAGER"},
                                    {"CUDA_DEVICE_MAX_CONNECTIONS", "32"}}) {
    set(name, value);
  }
}

std::string conditions_of(const NcclRun& run) {
  if (run.options.gpu.one_gpu == 0) return {};
  return fmt::format(
      "{} processes on one GPU, which take turns on it or share it (MPS); NCCL over loopback sockets, not over any "
      "link between GPUs",
      run.options.gpu.one_gpu);
}

RunOrigin origin_of(const NcclRun& run, const cuda::Gpu& gpu, const NcclApi& nccl) {
  RunOrigin origin{.backend = "nccl"};
  origin.job = run.prepared.job;
  origin.warmup = run.options.warmup;
  origin.device = gpu.info().name;
  origin.dtype = name_of(run.precision);
  origin.libraries = {{"cuda_driver", gpu.info().driver_version},
                      {"cuda_runtime", gpu.info().runtime_version},
                      {"cublaslt", gpu.info().cublaslt_version},
                      {"nccl", nccl.version()}};
  origin.conditions = conditions_of(run);
  return origin;
}

/// Hands every rank's results to rank 0 through the store.
class Collection {
 public:
  Collection(Store& store, const ProcessPlace& place, std::chrono::milliseconds patience)
      : store_(store), place_(place), patience_(patience), results_(place.rank == 0 ? places() : 0U) {}

  // The last step of each, and whatever else is known.
  void add(const RankResult& own) {
    RankResult latest = own;
    latest.steps = {own.steps.back()};
    const std::size_t step = own.steps.size();
    if (place_.rank != 0) return put(step, to_bytes(latest));
    for (std::size_t rank = 0; rank < results_.size(); ++rank) {
      RankResult theirs = rank == 0 ? latest : take(rank, step);
      std::vector<StepRecord> steps = std::move(results_[rank].steps);
      steps.push_back(std::move(theirs.steps.back()));
      theirs.steps = std::move(steps);
      results_[rank] = std::move(theirs);
    }
  }
  const std::vector<RankResult>& results() const { return results_; }

 private:
  // A value of a store has an end.
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
    const std::string what = fmt::format("what rank {} measured", rank);
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
  std::vector<RankResult> results_;
};

void train_as(const NcclRun& run, const ProcessPlace& place, Store& store, cuda::Gpu& gpu, NcclApi& nccl) {
  const std::unique_ptr<cuda::GpuRank> machine = gpu.make_rank(0);
  Collection collection(store, place, run.patience());
  RunOrigin origin = origin_of(run, gpu, nccl);
  ResultFile file(run.options.output, [&](const std::string& failure) {
    origin.failure = failure;
    return run_file(run.prepared.plan, collection.results(), origin).dump() + "\n";
  });
  const bool keeps_file = place.rank == 0;
  if (keeps_file) file.keep();
  std::string failure;
  {
    const NcclOptions options{.place = place, .patience = run.patience(), .interruption = run.interruption};
    NcclTransport transport(
        nccl, machine->queues(), [&](Queue queue) { return machine->stream(queue); }, store, options);
    cuda::ToolRange range;
    try {
      RankResult own;
      train_rank(run.prepared.plan, {machine->device(), machine->kernels()}, transport, own, [&](Transport&) {
        collection.add(own);
        if (keeps_file) file.keep();
        gpu.synchronise_clock();
      });
      collection.add(own);
      transport.note({.kind = Activity::Kind::kDone, .action = {}});
      store.set(kDoneKey + std::to_string(place.rank), "");
      // The store is with rank 0, which therefore goes last.
      for (int rank = 0; keeps_file && rank < place.ranks; ++rank) {
        wait_for(store, kDoneKey + std::to_string(rank), run.patience(), fmt::format("the end of rank {}", rank));
      }
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

int run_rank(const NcclRun& run, const ProcessPlace& place, Store& store) {
  if (place.ranks != run.prepared.plan.ranks()) {
    throw ConfigError({"--backend",
                       fmt::format("nccl: {} processes were started, and the job has {} ranks", place.ranks,
                                   run.prepared.plan.ranks()),
                       "--backend", fmt::format("start {}", run.prepared.plan.ranks())});
  }
  gather_ranks(store, place, run.patience());
  if (run.options.gpu.one_gpu > 0) pretend_own_machines(place.rank);
  try {
    const std::unique_ptr<NcclApi> nccl = load_nccl();
    const int index = run.options.gpu.one_gpu > 0 ? 0 : place.local_rank;
    const std::unique_ptr<cuda::Gpu> gpu = cuda::share_gpu(index, 1, cuda::Partition::kWhole, run.precision);
    train_as(run, place, store, *gpu, *nccl);
  } catch (const EnvironmentError& error) {
    store.set_once("failure", error.what());
    throw;
  }
  return 0;
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Whether the launcher has given the process what MPI begins by: without it some libraries end the process.
bool has_mpi() {
  const char* const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
  return std::any_of(std::begin(names), std::end(names), [](const char* name) { return std::getenv(name) != nullptr; });
}

// The launcher has not said where the processes meet. mpirun, and srun with MPI, can tell them.
int run_where_mpi_says(const NcclRun& run, const ProcessPlace& place) {
  std::unique_ptr<TcpServer> server;
  if (place.rank == 0 && has_mpi()) server = serve_tcp_store(0);
  const std::string own = server == nullptr ? std::string() : fmt::format("tcp:{}:{}", host_name(), server->port());
  const std::optional<std::string> told = has_mpi() ? tell_by_mpi(place.rank, place.ranks, own) : std::nullopt;
  if (!told) {
    throw ConfigError({"--store", "is needed: the launcher has not said where the processes are to meet", "--store",
                       "set MASTER_ADDR and MASTER_PORT, or --store file:FOLDER with a folder that all see"});
  }
  StoreAddress address = parse_store_address(*told);
  // Not every machine finds itself by its name.
  if (address.host == host_name()) address.host = "localhost";
  return run_rank(run, place, *open_tcp_store(address.host, address.port, run.patience()));
}

// One of the processes of a launcher.
int run_launched(const NcclRun& run, const Launched& launched) {
  std::optional<StoreAddress> address = launched.store;
  if (!run.options.gpu.store.empty()) address = parse_store_address(run.options.gpu.store);
  if (!address) return run_where_mpi_says(run, launched.place);
  if (!address->folder.empty()) return run_rank(run, launched.place, *open_file_store(address->folder));
  const bool serves = launched.place.rank == 0;
  const std::unique_ptr<TcpServer> server = serves ? serve_tcp_store(address->port) : nullptr;
  return run_rank(run, launched.place, *open_tcp_store(address->host, address->port, run.patience()));
}

/// The folder of a run that meets on this machine only.
class MeetingFolder {
 public:
  MeetingFolder() : path_(fs::temp_directory_path() / fmt::format("flopcast-nccl-{}", getpid())) {}
  MeetingFolder(const MeetingFolder&) = delete;
  MeetingFolder& operator=(const MeetingFolder&) = delete;
  MeetingFolder(MeetingFolder&&) = delete;
  MeetingFolder& operator=(MeetingFolder&&) = delete;
  ~MeetingFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

[[noreturn]] void be_rank(const NcclRun& run, const ProcessPlace& place, const std::string& folder) {
  // Nobody is left behind when the parent is killed.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int exit_code = 0;
  try {
    exit_code = run_rank(run, place, *open_file_store(folder));
  } catch (const std::exception& error) {
    // The parent tells, once.
    exit_code = complaint_about(error).exit_code;
  }
  std::_Exit(exit_code);
}

// Waits for the ranks. The first that dies ends the others by the failure they all look for.
void wait_for_ranks(std::vector<pid_t> children, Store& store, std::chrono::milliseconds patience) {
  constexpr pid_t kReaped = 0;
  std::size_t left = children.size();
  std::optional<std::chrono::steady_clock::time_point> deadline;
  while (left > 0) {
    for (std::size_t rank = 0; rank < children.size(); ++rank) {
      int status = 0;
      if (children[rank] == kReaped || waitpid(children[rank], &status, WNOHANG) != children[rank]) continue;
      children[rank] = kReaped;
      --left;
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      const std::string activity = store.get(kActivityKey + std::to_string(rank)).value_or("its set-up");
      const std::string how = WIFSIGNALED(status) ? fmt::format("was killed by signal {}", WTERMSIG(status))
                                                  : fmt::format("ended with {}", WEXITSTATUS(status));
      store.set_once("failure", fmt::format("rank {} {} in {}", rank, how, activity));
      if (!deadline) deadline = std::chrono::steady_clock::now() + patience;
    }
    if (deadline && std::chrono::steady_clock::now() > *deadline) {
      // Stuck where no abort reaches them.
      for (const pid_t child : children) {
        if (child != kReaped) kill(child, SIGKILL);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// Forks all ranks: no thread and nothing of CUDA has begun yet, which would not survive it.
int fork_ranks(const NcclRun& run) {
  const int ranks = run.prepared.plan.ranks();
  const MeetingFolder folder;
  const std::unique_ptr<Store> store = open_file_store(folder.path());
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) be_rank(run, {rank, ranks, rank}, folder.path());
    if (child < 0) {
      store->set_once("failure", "no process could be started");
      break;
    }
    children.push_back(child);
  }
  wait_for_ranks(children, *store, run.patience());
  if (const std::optional<std::string> failure = store->get("failure")) throw EnvironmentError(*failure);
  return 0;
}

// In a process of its own: CUDA does not survive a fork.
void check_gpus(int wanted) {
  const pid_t child = fork();
  if (child == 0) {
    int exit_code = 0;
    try {
      const int count = cuda::count_gpus();
      load_nccl();
      if (count < wanted) {
        throw EnvironmentError(
            fmt::format("the job has {} ranks, and this machine {} GPU{}\n  help: --backend virtual-gpus runs them all "
                        "on one, --one-gpu {} does so with NCCL; more machines: docs/real-runs.md",
                        wanted, count, count == 1 ? "" : "s", wanted));
      }
    } catch (const std::exception& error) {
      const Complaint complaint = complaint_about(error);
      complain(complaint.text);
      exit_code = complaint.exit_code;
    }
    std::_Exit(exit_code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  std::_Exit(WIFEXITED(status) ? WEXITSTATUS(status) : kEnvironmentFailed);
}

}  // namespace

int launch_on_nccl(const LaunchOptions& options, const std::atomic<int>* interruption) {
  if (options.help) {
    std::fputs(launch_help().c_str(), stdout);
    return 0;
  }
  NcclRun run{options, prepare_run(options), GemmPrecision::kFp32, interruption};
  run.precision = check_for_gpus(options, run.prepared);
  check_plan(run.prepared.plan);
  const int ranks = run.prepared.plan.ranks();
  const std::optional<Launched> launched = launched_by([](const char* name) { return std::getenv(name); });
  // Interactive shells of Slurm are a launched process too, alone, from which ranks can be forked as well.
  const bool alone = launched && launched->place.ranks == 1 && !launched->store && options.gpu.store.empty();
  if (launched && !alone) return run_launched(run, *launched);
  check_gpus(options.gpu.one_gpu > 0 ? 1 : ranks);
  return fork_ranks(run);
}

}  // namespace flopcast::realrun
