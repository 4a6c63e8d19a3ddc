#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <thread>

#include "base/host/files.hpp"
#include "base/host/guard.hpp"
#include "base/host/processes.hpp"
#include "base/text/error.hpp"
#include "realrun/compute/cuda/gpu.hpp"
#include "realrun/launch/gpu_ranks.hpp"
#include "realrun/launch/launch.hpp"
#include "realrun/rendezvous/meeting.hpp"
#include "realrun/transport/nccl/nccl_api.hpp"

namespace flopcast::realrun {

namespace {

// True if the launcher has set up the process for MPI: without it some libraries end the process.
bool has_mpi() {
  const char* const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
  return std::any_of(std::begin(names), std::end(names), [](const char* name) { return std::getenv(name) != nullptr; });
}

/// Where the processes of a launcher meet.
struct Meeting {
  std::unique_ptr<TcpServer> server;  ///< on rank 0
  std::unique_ptr<Store> store;
};

// For launchers that do not specify where the processes meet. mpirun, and srun with MPI, can distribute the address and
// a secret token.
Meeting meet_through_mpi(const ProcessPlace& place, std::chrono::milliseconds patience) {
  Meeting meeting;
  const bool near = is_on_one_machine(place.ranks, std::getenv);
  std::string own;
  if (place.rank == 0 && has_mpi()) {
    const StoreListener listener = {.host = near ? "localhost" : "", .port = 0, .token = new_store_token()};
    meeting.server = serve_tcp_store(listener);
    own = fmt::format("{} tcp:{}:{}", listener.token, near ? "localhost" : host_name(), meeting.server->port());
  }
  const std::optional<std::string> told = has_mpi() ? broadcast_by_mpi(place.rank, place.ranks, own) : std::nullopt;
  if (!told) {
    throw ConfigError({"--store", "is required: the launcher does not specify where the processes meet", "--store",
                       "set MASTER_ADDR and MASTER_PORT, or --store file:FOLDER with a shared folder"});
  }
  const std::size_t blank = told->find(' ');
  StoreAddress address = parse_store_address(told->substr(blank + 1));
  // Not every machine can resolve its own name.
  if (address.host == host_name()) address.host = "localhost";
  meeting.store = open_tcp_store(address.host, address.port, told->substr(0, blank), patience);
  return meeting;
}

// Listens on the interface that the ranks use, or on all if their name for it is not one of this machine's addresses.
std::unique_ptr<TcpServer> serve_at(const StoreAddress& address) {
  // Debian maps a machine's own name to a loopback address, which other machines cannot reach.
  const bool named =
      address.host == "localhost" || address.host.find_first_not_of("0123456789.:abcdef") == std::string::npos;
  StoreListener listener = {.host = named ? address.host : "", .port = address.port, .token = address.token};
  try {
    return serve_tcp_store(listener);
  } catch (const EnvironmentError&) {
    if (listener.host.empty() || listener.host == "localhost") throw;
    listener.host.clear();
    return serve_tcp_store(listener);
  }
}

Meeting meet(const LaunchOptions& options, const Launched& launched) {
  const std::chrono::milliseconds patience = std::chrono::seconds(options.patience_s);
  std::optional<StoreAddress> address = launched.store;
  if (!options.gpu.store.empty()) {
    address = parse_store_address(options.gpu.store);
    address->token = store_token(std::getenv);
  }
  if (!address) return meet_through_mpi(launched.place, patience);
  Meeting meeting;
  if (!address->folder.empty()) {
    meeting.store = open_file_store(address->folder);
    return meeting;
  }
  if (is_on_one_machine(launched.place.ranks, std::getenv)) address->host = "localhost";
  if (launched.place.rank == 0) meeting.server = serve_at(*address);
  meeting.store = open_tcp_store(address->host, address->port, address->token, patience);
  return meeting;
}

// True if no other process has reported the failure.
bool is_first_reporter(const Meeting& meeting, const ProcessPlace& place, const std::string& failure) {
  Store& store = *meeting.store;
  store.set_once("failure", failure);
  const bool first = store.set_once("reported", "");
  store.set(kEndedKey + std::to_string(place.rank), "");
  return first;
}

// Waits until the other processes have found the failure in the store, and that it has been reported, before the store
// closes.
void wait_for_other_processes(const Meeting& meeting, const ProcessPlace& place) {
  constexpr auto kLongest = std::chrono::seconds(3);
  const auto deadline = std::chrono::steady_clock::now() + kLongest;
  for (int rank = 1; meeting.server != nullptr && rank < place.ranks; ++rank) {
    while (!meeting.store->get(kEndedKey + std::to_string(rank)) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

// Only the first of all failing processes reports.
void report_once(const Meeting& meeting, const ProcessPlace& place, const std::string& failure) {
  bool told = false;
  try {
    if (is_first_reporter(meeting, place, failure)) print_error(failure);
    told = true;
    wait_for_other_processes(meeting, place);
  } catch (const EnvironmentError&) {
    // If the store is gone, it is unknown whether another process has reported.
    if (!told) print_error(failure);
  }
}

// Runs one of the processes of a launcher.
int run_launched(const LaunchOptions& options, const Launched& launched, const std::atomic<int>* interruption) {
  const Meeting meeting = meet(options, launched);
  try {
    NcclRun run = prepare_nccl_run(options, interruption);
    run.abandon = [&](const std::string& failure) {
      report_once(meeting, launched.place, "error: " + failure);
      std::_Exit(kEnvironmentFailed);
    };
    train_nccl_rank(run, launched.place, *meeting.store);
    return 0;
  } catch (const std::exception& error) {
    const ErrorReport report = error_report(error);
    report_once(meeting, launched.place, report.text);
    return report.exit_code;
  }
}

[[noreturn]] void be_rank(const NcclRun& run, const ProcessPlace& place, const std::string& folder, pid_t parent) {
  // Ensures that no child outlives a killed parent.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) std::_Exit(kEnvironmentFailed);
  int exit_code = 0;
  try {
    train_nccl_rank(run, place, *open_file_store(folder));
  } catch (const std::exception& error) {
    // The parent reports, once.
    exit_code = error_report(error).exit_code;
  }
  std::_Exit(exit_code);
}

std::string activity_of(Store& store, std::size_t rank) {
  return store.get(kActivityKey + std::to_string(rank)).value_or("its set-up");
}

/// The ranks forked by this process.
class Children {
 public:
  explicit Children(Store& store) : store_(store) {}

  void add(pid_t child) { children_.push_back(child); }

  // Waits for all. The first child that dies, or a signal, ends the others through the failure that they all poll.
  void wait(const NcclRun& run) {
    std::optional<std::chrono::steady_clock::time_point> deadline;
    while (std::any_of(children_.begin(), children_.end(), [](pid_t child) { return child != kReaped; })) {
      for (std::size_t rank = 0; rank < children_.size(); ++rank) reap(rank);
      const int signal = run.interruption->load();
      if (signal != 0) {
        store_.set_once("failure",
                        fmt::format("stopped by signal {} while rank 0 was in {}", signal, activity_of(store_, 0)));
      }
      if (!deadline && store_.get("failure")) deadline = std::chrono::steady_clock::now() + run.patience();
      // Stuck where no abort reaches them.
      if (deadline && std::chrono::steady_clock::now() > *deadline) kill_all();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

 private:
  static constexpr pid_t kReaped = 0;

  void reap(std::size_t rank) {
    int status = 0;
    if (children_[rank] == kReaped || waitpid(children_[rank], &status, WNOHANG) != children_[rank]) return;
    children_[rank] = kReaped;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    const std::string how = WIFSIGNALED(status) ? fmt::format("was killed by signal {}", WTERMSIG(status))
                                                : fmt::format("ended with {}", WEXITSTATUS(status));
    store_.set_once("failure", fmt::format("rank {} {} in {}", rank, how, activity_of(store_, rank)));
  }
  void kill_all() const {
    for (const pid_t child : children_) {
      if (child != kReaped) kill(child, SIGKILL);
    }
  }

  Store& store_;
  std::vector<pid_t> children_;
};

// Forks all ranks before any thread or CUDA is started, because neither survives a fork.
int fork_ranks(const NcclRun& run) {
  const int ranks = run.prepared.plan.ranks();
  const PrivateFolder folder;  // for a run on this machine only
  const std::unique_ptr<Store> store = open_file_store(folder.path());
  Children children(*store);
  const pid_t parent = getpid();
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) be_rank(run, {rank, ranks, rank}, folder.path(), parent);
    if (child < 0) {
      store->set_once("failure", fmt::format("cannot start a process for rank {}: {}", rank, std::strerror(errno)));
      break;
    }
    children.add(child);
  }
  children.wait(run);
  if (const std::optional<std::string> failure = store->get("failure")) throw EnvironmentError(*failure);
  return 0;
}

// Runs in a separate process, because CUDA does not survive a fork.
void check_gpus(const NcclRun& run) {
  const int shared = run.options.gpu.one_gpu;
  const int wanted = shared > 0 ? 1 : run.prepared.plan.ranks();
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
      const cuda::GpuInfo gpu = cuda::open_gpu(0);
      check_gpu_memory(run.prepared, std::max(1, shared), gpu.name, static_cast<double>(gpu.memory_bytes));
    } catch (const std::exception& error) {
      const ErrorReport report = error_report(error);
      print_error(report.text);
      exit_code = report.exit_code;
    }
    std::_Exit(exit_code);
  }
  if (child < 0) throw EnvironmentError(fmt::format("cannot start a process: {}", std::strerror(errno)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  std::_Exit(WIFEXITED(status) ? WEXITSTATUS(status) : kEnvironmentFailed);
}

}  // namespace

int launch_on_nccl(const LaunchOptions& options, const ThreadOptions& threads) {
  const std::optional<Launched> launched = launched_by([](const char* name) { return std::getenv(name); });
  // Interactive shells of Slurm are also a launched process, a single one, and can fork ranks as well.
  const bool alone = launched && launched->place.ranks == 1 && !launched->store && options.gpu.store.empty();
  if (launched && !alone) return run_launched(options, *launched, threads.interruption);
  NcclRun run = prepare_nccl_run(options, threads.interruption);
  run.abandon = [](const std::string& /*the parent reports it*/) { std::_Exit(kEnvironmentFailed); };
  check_gpus(run);
  return fork_ranks(run);
}

}  // namespace flopcast::realrun
