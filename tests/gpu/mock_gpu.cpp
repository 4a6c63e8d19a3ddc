// Replaces the programs' GPU, so that tests/gpu/session runs end to end on any machine: flopcast-run with kernels and
// streams emulated on the CPU (virtual-gpus), or as threads with a fake NCCL (nccl), and flopcast-measure with a GPU of
// known figures. Its times are those of a CPU; it only shows that every file and table is produced.
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/host/guard.hpp"
#include "base/text/error.hpp"
#include "realrun/compute/cuda/cuda_device.hpp"
#include "realrun/compute/cuda/gpu.hpp"
#include "realrun/compute/cuda/runtime.hpp"
#include "realrun/launch/gpu_ranks.hpp"
#include "realrun/launch/launch.hpp"
#include "realrun/measure/measure_gpu.hpp"
#include "realrun/rendezvous/meeting.hpp"
#include "realrun/training/train.hpp"
#include "realrun/transport/nccl/nccl_transport.hpp"
#include "tests/realrun/emulated_cuda/host_products.hpp"
#include "tests/realrun/queued/fake_nccl.hpp"
#include "tests/realrun/queued/queued_machine.hpp"
#include "tests/unit/calibrate/fake_gpu.hpp"

namespace flopcast {

std::unique_ptr<MeasuredGpu> open_measured_gpu() {
  auto gpu = std::make_unique<FakeGpu>();
  gpu->facts_.name = "NVIDIA H200 (mock)";
  return gpu;
}

}  // namespace flopcast

namespace flopcast::realrun::cuda {

namespace {

class MockRank : public GpuRank {
 public:
  MockRank(DeviceClock& clock, std::chrono::milliseconds patience, GemmPrecision precision)
      : device_(streams(), clock, patience), kernels_(make_cuda_kernels(device_, products_, precision)) {}

  ComputeDevice& device() override { return device_; }
  Queues& queues() override { return device_; }
  Kernels<float>& kernels() override { return *kernels_; }
  bool stuck() const override { return device_.stuck(); }
  void* stream(Queue queue) override { return device_.stream(queue); }

 private:
  static Streams streams() {
    Streams streams{};
    for (std::size_t queue = 0; queue < streams.size(); ++queue)
      streams[queue] = make_stream(static_cast<Queue>(queue));
    return streams;
  }

  CudaDevice device_;
  HostProducts products_;
  std::unique_ptr<Kernels<float>> kernels_;
};

class MockGpu : public Gpu {
 public:
  MockGpu(int ranks, Partition wanted, GemmPrecision precision, std::chrono::milliseconds patience)
      : info_(open_gpu(0)),
        ranks_(ranks),
        partition_(ranks == 1 ? Partition::kWhole : wanted),
        precision_(precision),
        patience_(patience) {}

  const GpuInfo& info() const override { return info_; }
  Partition partition() const override { return partition_; }
  int multiprocessors_per_rank() const override { return info_.multiprocessors / ranks_; }
  const std::string& refusal() const override { return refusal_; }
  bool has_one_clock() const override { return true; }
  std::unique_ptr<GpuRank> make_rank(int /*rank*/, int /*held*/) override {
    return std::make_unique<MockRank>(clock_, patience_, precision_);
  }
  void synchronise_clock(Ticks offset) override { clock_.synchronise(offset); }

 private:
  GpuInfo info_;
  int ranks_;
  Partition partition_;
  GemmPrecision precision_;
  std::chrono::milliseconds patience_;
  DeviceClock clock_;
  std::string refusal_;
};

}  // namespace

int count_gpus() {
  return 1;
}

GpuInfo open_gpu(int index) {
  FLOPCAST_CHECK(index == 0);
  return {.name = "NVIDIA H200 (mock)",
          .index = 0,
          .multiprocessors = 132,
          .compute_capability = 90,
          .memory_bytes = std::size_t{141} << 30U,
          .driver_version = "mock",
          .runtime_version = "mock",
          .cublaslt_version = "mock"};
}

std::unique_ptr<Gpu> share_gpu(int /*index*/, int ranks, Partition wanted, GemmPrecision precision,
                               std::chrono::milliseconds patience) {
  return std::make_unique<MockGpu>(ranks, wanted, precision, patience);
}

ToolRange::~ToolRange() = default;

void ToolRange::begin(const std::string& /*name*/) {
  open_ = true;
}

}  // namespace flopcast::realrun::cuda

namespace flopcast::realrun {

// Ranks are threads here, but processes in the product.
int launch_on_nccl(const LaunchOptions& options, const ThreadOptions& threads) {
  const NcclRun run = prepare_nccl_run(options, threads.interruption);
  RunRecord about;
  about.backend = "nccl";
  about.device = cuda::open_gpu(0).name;
  about.dtype = name_of(run.precision);
  about.libraries = {{"nccl", "mock"}};
  about.conditions = "threads of a process, with a fake NCCL";
  run_with_result_file(
      options, run.prepared, about, [&](std::vector<RankResult>& results, const BetweenSteps& between) {
        const TrainingPlan& plan = run.prepared.plan;
        results.assign(static_cast<std::size_t>(plan.ranks()), {});
        FakeNccl nccl;
        const std::unique_ptr<TcpServer> server = serve_tcp_store({});
        std::vector<std::thread> ranks;
        for (int rank = 0; rank < plan.ranks(); ++rank) {
          ranks.emplace_back([&, rank] {
            const ProcessPlace place{rank, plan.ranks(), rank};
            const std::unique_ptr<Store> store = open_tcp_store("127.0.0.1", server->port(), "", run.patience());
            QueuedDevice device(rank, 0);
            QueuedKernels kernels(device);
            NcclTransport transport(nccl, device, [&device](Queue queue) { return &device.of(queue); }, *store,
                                    {.place = place, .patience = run.patience(), .interruption = run.interruption});
            try {
              train_rank(plan, {device, kernels}, transport, results[static_cast<std::size_t>(rank)], between);
              transport.note({.kind = Activity::Kind::kDone, .action = {}});
              store->set(kDoneKey + std::to_string(rank), "");
              for (int other = 0; other < plan.ranks(); ++other) {
                wait_for(*store, kDoneKey + std::to_string(other), run.patience(), "the end of a rank");
              }
            } catch (const std::exception& error) {
              print_error(error_report(error).text);
              std::_Exit(kEnvironmentFailed);
            }
          });
        }
        for (std::thread& rank : ranks) rank.join();
      });
  return 0;
}

}  // namespace flopcast::realrun
