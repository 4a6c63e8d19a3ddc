// The CUDA kernels and the device around them, run on the CPU: the computation of a thread, and how the threads of a
// block wait for each other, are the source that nvcc compiles. Behaviour on a GPU is tested in gpu_kernels_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "base/text/error.hpp"
#include "calibrate/verdict/verdict.hpp"
#include "realrun/compute/cuda/cuda_device.hpp"
#include "realrun/compute/cuda/gpu.hpp"
#include "realrun/compute/cuda/launch.hpp"
#include "realrun/compute/cuda/runtime.hpp"
#include "realrun/device/device.hpp"
#include "realrun/launch/gpu_ranks.hpp"
#include "realrun/launch/launch.hpp"
#include "realrun/launch/plan_from_job.hpp"
#include "realrun/transport/threads/thread_transport.hpp"
#include "tests/realrun/cuda/kernel_cases.hpp"
#include "tests/realrun/emulated_cuda/emulation.hpp"
#include "tests/realrun/emulated_cuda/host_products.hpp"
#include "tests/realrun/loss_matrix.hpp"
#include "tests/support/folders.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast::realrun {
namespace {

cuda::Streams new_streams() {
  cuda::Streams streams{};
  for (cudaStream_t& stream : streams) {
    cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  return streams;
}

class EmulatedKernels : public testing::Test {
 protected:
  void check(void (*check_kernel)(const KernelsUnderTest&), GemmPrecision precision = GemmPrecision::kFp32) {
    cuda::DeviceClock clock;
    cuda::CudaDevice device(new_streams(), clock);
    cuda::HostProducts products;
    const auto kernels = cuda::make_cuda_kernels(device, products, precision);
    const std::size_t before = emulated::threads_run();
    const bool rounds = precision != GemmPrecision::kFp32;
    check_kernel({.device = device,
                  .kernels = *kernels,
                  .product_tolerance = rounds ? 1e-2 : 1e-5,
                  .least_product_error = rounds ? 1e-5 : 0.0,
                  .stream = device.stream(Queue::kCompute)});
    if (precision != GemmPrecision::kFp32 || check_kernel != check_products) {
      EXPECT_GT(emulated::threads_run(), before);
    }
  }
};

TEST_F(EmulatedKernels, Products) {
  check(check_products);
}

TEST_F(EmulatedKernels, ProductsOfRoundedFactors) {
  check(check_products, GemmPrecision::kBf16);
}

TEST_F(EmulatedKernels, ProductsIn8Bits) {
  check(check_float8_products, GemmPrecision::kFp8);
}

TEST_F(EmulatedKernels, NumbersOf8BitsAreThoseOfTheSpecification) {
  check(check_float8_numbers);
}

TEST_F(EmulatedKernels, Elementwise) {
  check(check_elementwise);
}

TEST_F(EmulatedKernels, RowSums) {
  check(check_row_sums);
}

TEST_F(EmulatedKernels, LayerNorm) {
  check(check_layer_norm);
}

TEST_F(EmulatedKernels, RmsNorm) {
  check(check_rms_norm);
}

TEST_F(EmulatedKernels, GatedSilu) {
  check(check_gated_silu);
}

TEST_F(EmulatedKernels, Heads) {
  check(check_heads);
}

TEST_F(EmulatedKernels, Attention) {
  check(check_attention);
}

// Compute capabilities 8.6 and 8.9.
TEST_F(EmulatedKernels, AttentionInLessSharedMemory) {
  const int usual = emulated::shared_limit();
  emulated::set_shared_limit(99 * 1024);
  check(check_attention);
  emulated::set_shared_limit(usual);
}

TEST_F(EmulatedKernels, AttentionOnTensorCores) {
  check(check_attention, GemmPrecision::kBf16);
}

// Lanes that exchange values wait only for their own warp: a missing barrier between warps is detected.
TEST(Emulation, WarpsMeetAtBarriersOnly) {
  constexpr unsigned kTwoWarps = 64;
  for (const bool meets : {true, false}) {
    int missed = 0;
    emulated::launch({1}, {kTwoWarps}, kTwoWarps * sizeof(float), [&] {
      float* const shared = emulated::dynamic_shared();
      const unsigned thread = emulated::threadIdx.x;
      shared[thread] = static_cast<float>(thread);
      EXPECT_EQ(emulated::swap_with(thread, 1), thread ^ 1U);
      if (meets) emulated::meet();
      const unsigned other = thread ^ 32U;
      if (shared[other] != static_cast<float>(other)) ++missed;
    });
    EXPECT_EQ(missed, meets ? 0 : 32);
  }
}

TEST_F(EmulatedKernels, Embedding) {
  check(check_embedding);
}

TEST_F(EmulatedKernels, CrossEntropy) {
  check(check_cross_entropy);
}

TEST_F(EmulatedKernels, Draws) {
  check(check_draws);
}

TEST_F(EmulatedKernels, Optimizers) {
  check(check_optimizers);
}

std::vector<float> values_of(cuda::CudaDevice& device, const Buffer& buffer) {
  std::vector<float> values(buffer.bytes() / sizeof(float));
  device.download(buffer, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

Buffer on_device(cuda::CudaDevice& device, const std::vector<float>& values) {
  const Buffer buffer = device.reserve(values.size() * sizeof(float));
  device.upload(reinterpret_cast<const std::byte*>(values.data()), buffer);
  return buffer;
}

// Parameters and buckets begin at any address: vectors of four are used only for aligned ones.
TEST(EmulatedDevice, AddsWhereverBuffersBegin) {
  cuda::DeviceClock clock;
  cuda::CudaDevice device(new_streams(), clock);
  for (const std::size_t first : {0U, 1U, 4U}) {
    for (const std::size_t count : {1U, 4U, 6U, 9U}) {
      const Buffer from = on_device(device, std::vector<float>(16, 1.0F));
      const Buffer to = on_device(device, std::vector<float>(16, 2.0F));
      device.add(from.slice(0, count * sizeof(float)), to.slice(first * sizeof(float), count * sizeof(float)));
      std::vector<float> expected(16, 2.0F);
      std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(first), count, 3.0F);
      EXPECT_EQ(values_of(device, to), expected) << first << " " << count;
    }
  }
}

// Unaligned products do not run on tensor cores: parameters of odd sizes must not shift those after them.
TEST(EmulatedDevice, ProductsFindTheirMatricesAligned) {
  cuda::DeviceClock clock;
  cuda::CudaDevice device(new_streams(), clock);
  const Buffer matrices = on_device(device, std::vector<float>(16, 1.0F));
  float* const aligned = cuda::floats(matrices);
  cuda::HostProducts products;
  const cuda::Product product{.m = 1, .n = 1, .k = 1};
  EXPECT_NO_THROW(products.multiply(product, aligned, aligned + 4, aligned + 8, 1.0F));
  EXPECT_THROW(products.multiply(product, aligned, aligned + 1, aligned + 8, 1.0F), std::logic_error);
  for (const std::size_t alignment : {std::size_t{1}, device.alignment()}) {
    ParameterList list(alignment);
    list.add({.name = "odd", .shard = whole_matrix(1, 3)});
    const std::size_t next = list.add({.name = "next", .shard = whole_matrix(4, 4)});
    EXPECT_EQ(next * sizeof(float) % 16 == 0, alignment == device.alignment());
  }
}

TEST(GpuRanks, SharedConnectionsAreTold) {
  EXPECT_EQ(shared_connections(6), "");
  EXPECT_NE(shared_connections(7).find("36 streams share the 32 connections"), std::string::npos);
}

TEST(EmulatedDevice, WeightsAreRoundedOnceUntilTheyChange) {
  cuda::DeviceClock clock;
  cuda::CudaDevice device(new_streams(), clock);
  cuda::HostProducts products;
  const auto kernels = cuda::make_cuda_kernels(device, products, GemmPrecision::kBf16);
  const Buffer one = on_device(device, {1.0F});
  const Buffer weight = on_device(device, {2.0F});
  const Buffer result = device.reserve(sizeof(float));
  const auto product = [&](bool lasting) {
    const MatrixView<const float> left{cuda::floats(one), 1, 1, 1};
    const MatrixView<const float> right{cuda::floats(weight), 1, 1, 1, Transposed::kNo, lasting};
    kernels->multiply(left, right, {cuda::floats(result), 1, 1, 1}, 1.0F, false);
    return values_of(device, result).front();
  };
  EXPECT_EQ(product(true), 2.0F);
  const float changed = 3.0F;
  device.upload(reinterpret_cast<const std::byte*>(&changed), weight);
  EXPECT_EQ(product(true), 2.0F);
  EXPECT_EQ(product(false), 3.0F);
  kernels->weights_changed();
  EXPECT_EQ(product(true), 3.0F);
}

// Heads whose size is a multiple of four are loaded 16 bytes at a time, which a GPU does from aligned addresses only.
TEST(EmulatedDevice, AttentionWantsItsMatricesAligned) {
  cuda::DeviceClock clock;
  cuda::CudaDevice device(new_streams(), clock);
  const cudaStream_t stream = device.stream(Queue::kCompute);
  const auto attend = [&](int head_dim, std::size_t first, std::size_t first_of_gradient) {
    const cuda::AttentionSize size{.sequences = 1, .heads = 1, .head_dim = head_dim, .length = 1, .kv_heads = 1};
    const Buffer all = on_device(device, std::vector<float>(128, 1.0F));
    float* const at = cuda::floats(all);
    cuda::tensor_attention(at + first, at + 64, at + 96, size, stream);
    cuda::tensor_attention_gradient(at + first, at + 64, at + 96, at + 72 + first_of_gradient, at + 100, at + 32, size,
                                    stream);
  };
  EXPECT_NO_THROW(attend(4, 4, 4));
  EXPECT_NO_THROW(attend(3, 1, 1));
  EXPECT_THROW(attend(4, 1, 0), EnvironmentError);
  EXPECT_THROW(attend(4, 0, 1), EnvironmentError);
}

// NaN is never treated as a number: a diverging training must be reported.
TEST(EmulatedDevice, WhatIsNoNumberStaysNoneIn8Bits) {
  cuda::DeviceClock clock;
  cuda::CudaDevice device(new_streams(), clock);
  cuda::HostProducts products;
  const auto kernels = cuda::make_cuda_kernels(device, products, GemmPrecision::kFp8);
  constexpr std::size_t kSide = 16;
  for (const Float8 format : {Float8::kE4m3, Float8::kE5m2}) {
    for (const float spoilt : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> values(kSide * kSide, 1.0F);
      const Buffer right = on_device(device, values);
      values.front() = spoilt;
      const Buffer left = on_device(device, values);
      const Buffer result = device.reserve(values.size() * sizeof(float));
      const auto view = [](const Buffer& buffer, Float8 float8) {
        return MatrixView<const float>{
            .data = cuda::floats(buffer), .rows = kSide, .columns = kSide, .stride = kSide, .float8 = float8};
      };
      kernels->multiply(view(left, format), view(right, Float8::kE4m3), {cuda::floats(result), kSide, kSide, kSide},
                        1.0F, false);
      EXPECT_FALSE(std::isfinite(values_of(device, result).front()));
    }
  }
}

TEST(GpuRanks, Fp8FallsBackWhereTheGpuHasNone) {
  cuda::GpuInfo gpu;
  gpu.compute_capability = 80;
  EXPECT_EQ(cuda::precision_on(gpu, GemmPrecision::kFp8), GemmPrecision::kBf16);
  EXPECT_EQ(cuda::precision_on(gpu, GemmPrecision::kTf32), GemmPrecision::kTf32);
  gpu.compute_capability = 89;
  EXPECT_EQ(cuda::precision_on(gpu, GemmPrecision::kFp8), GemmPrecision::kFp8);
}

LaunchOptions fp8_run(const std::string& training, const std::string& model = "") {
  const std::string path = testing::TempDir() + "/fp8_job.json";
  write_text(path,
             R"({"model": {"layers": 1, "hidden": 16, "heads": 2, "ffn": 64, "vocab": 16, "sequence_length": 16)" +
                 model + R"(}, "cluster": {"name": "one-gpu", "device": "h200"},
                      "layout": {"global_batch_size": 1}, "training": {"precision": "fp8")" +
                 training + "}}");
  LaunchOptions options;
  options.job_file = path;
  options.backend = find_backend("virtual-gpus");
  options.output = testing::TempDir() + "/fp8_run.json";
  options.settings.steps = 1;
  return options;
}

TEST(GpuRanks, Fp8IsWhatGpusDoOrRefused) {
  const std::pair<const char*, const char*> refused[] = {
      {R"(, "fp8_recipe": "delayed")", "training.fp8_recipe: delayed can be forecast but not run on GPUs"},
      {R"(, "fp8_recipe": "blockwise")", "valid for a run: current, tensorwise"},
      {R"(, "fp8_parameters": true)", "training.fp8_parameters: true can be forecast"},
      {R"(, "fp8_attention": true)", "training.fp8_attention: true can be forecast"},
      {R"(, "fp8_activations": true)", "training.fp8_activations: true can be forecast"}};
  for (const auto& [training, words] : refused) {
    try {
      prepare_run(fp8_run(training));
      ADD_FAILURE() << training;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
    LaunchOptions on_cpus = fp8_run(training);
    on_cpus.backend = find_backend("threads");
    EXPECT_NO_THROW(prepare_run(on_cpus)) << training;
  }
  // The stack's own recipes are not required.
  for (const char* training : {"", R"(, "fp8_recipe": "tensorwise")", R"(, "stack": "torchtitan")"}) {
    const PreparedRun run = prepare_run(fp8_run(training));
    EXPECT_NE(run.job.find(R"("fp8_recipe":")"), std::string::npos) << run.job;
    EXPECT_NE(run.job.find(R"("fp8_parameters":false)"), std::string::npos) << run.job;
  }
}

TEST(GpuRanks, LinearsThatHaveNo8BitsAreCounted) {
  const auto linears_of = [](const std::string& model, int tp) {
    TrainingPlan plan = prepare_run(fp8_run("", model)).plan;
    plan.tp = tp;
    return float8_linears(plan);
  };
  EXPECT_EQ(linears_of("", 1).count, 4);
  EXPECT_EQ(linears_of("", 1).others, "");
  EXPECT_EQ(linears_of(R"(, "gated_mlp": true)", 8).count, 1);
  EXPECT_EQ(linears_of("", 2).count, 2);  // 24 rows of qkv, 8 of the heads
  EXPECT_EQ(linears_of("", 2).others, "qkv, output (rows of qkv 24, width of all heads 8 per rank with tp 2)");
  TrainingPlan short_one = prepare_run(fp8_run("")).plan;
  short_one.network.sequence = 12;
  EXPECT_EQ(float8_linears(short_one).count, 0);
  EXPECT_EQ(float8_linears(short_one).others, "qkv, output, up, down (tokens of a microbatch 12)");
}

TEST(GpuRanks, RunsInFp8SayWhatThatIs) {
  const TrainingPlan plan = prepare_run(fp8_run("")).plan;
  cuda::GpuInfo gpu;
  gpu.compute_capability = 80;
  EXPECT_EQ(float8_conditions(plan, gpu, GemmPrecision::kFp8), "all products in bf16: this GPU does not support fp8");
  EXPECT_EQ(float8_conditions(plan, gpu, GemmPrecision::kBf16), "");
  for (const bool odd : {false, true}) {
    const LaunchOptions options = fp8_run("", odd ? R"(, "head_dim": 4)" : "");
    testing::internal::CaptureStderr();
    ASSERT_EQ(launch_on_virtual_gpus(options, {}), 0);
    const std::string told = testing::internal::GetCapturedStderr();
    const std::string warning =
        "warning: fp8 products require sizes that are multiples of 16; these use bf16: qkv, output";
    EXPECT_EQ(told.find(warning) != std::string::npos, odd) << told;
    const std::string file = read_text(options.output);
    const std::string words = odd ? "in fp8: 2 of the 4 linears of a block" : "in fp8: 4 of the 4 linears of a block";
    EXPECT_NE(file.find(words), std::string::npos) << file;
    EXPECT_NE(file.find(R"("fp8_recipe":"current")"), std::string::npos) << file;
    EXPECT_NE(file.find(R"("seed":1)"), std::string::npos) << file;
  }
}

TEST(EmulatedDevice, NobodyWaitsForItForEver) {
  const cuda::Streams streams = new_streams();
  {
    cuda::DeviceClock clock;
    cuda::CudaDevice device(streams, clock, std::chrono::milliseconds(50));
    const Buffer buffer = on_device(device, {1.0F});
    EXPECT_FALSE(device.stuck());
    emulated::hold_events(true);
    EXPECT_THROW(static_cast<void>(values_of(device, buffer)), EnvironmentError);
    emulated::hold_events(false);
    EXPECT_TRUE(device.stuck());
  }
  // A stuck device does not destroy its streams, because that could wait forever.
  for (const cudaStream_t stream : streams) EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// Times of processes on several machines use the clock of one of them.
TEST(EmulatedClock, GoesByAnotherMachinesClock) {
  constexpr Ticks kHour = Ticks{3600} * 1'000'000'000'000;
  constexpr double kTenMilliseconds = 1e10;
  cuda::DeviceClock clock;
  cuda::CudaDevice device(new_streams(), clock);
  const Mark before = device.mark();
  EXPECT_NEAR(static_cast<double>(device.time_of(before) - host_clock()), 0.0, kTenMilliseconds);
  clock.synchronise(-kHour);
  const Mark after = device.mark();
  EXPECT_NEAR(static_cast<double>(device.time_of(after) - host_clock() + kHour), 0.0, kTenMilliseconds);
}

std::vector<RankResult> on_emulated_devices(const TrainingPlan& plan, GemmPrecision precision) {
  std::vector<RankResult> results(static_cast<std::size_t>(plan.ranks()));
  cuda::DeviceClock clock;
  cuda::HostProducts products;
  std::vector<std::unique_ptr<cuda::CudaDevice>> devices;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    devices.push_back(std::make_unique<cuda::CudaDevice>(new_streams(), clock));
  }
  run_threads(
      plan.ranks(), {},
      [&](ThreadHub& hub, int rank) {
        return std::make_unique<ThreadTransport>(hub, rank, *devices[static_cast<std::size_t>(rank)]);
      },
      [&](RankTransport& transport) {
        const auto rank = static_cast<std::size_t>(transport.rank());
        const auto kernels = cuda::make_cuda_kernels(*devices[rank], products, precision);
        train_rank(plan, {*devices[rank], *kernels}, transport, results[rank]);
      });
  return results;
}

TrainingPlan small_plan(const char* schedule, int dp, int tp) {
  ScheduleRequest request;
  request.pipeline_ranks = 2;
  request.microbatches = 3;
  TrainingPlan plan = plan_for(tiny_transformer(2), *find_schedule(schedule), request);
  plan.dp = dp;
  plan.tp = tp;
  plan.steps = 2;
  plan.bucket_bytes = 600;
  return plan;
}

void expect_losses_of_the_cpu(const TrainingPlan& plan, const std::string& what) {
  expect_same_training(train_on_threads(serial_plan(plan), {}), on_emulated_devices(plan, GemmPrecision::kFp32), what);
}

TEST(EmulatedTraining, LossesOfAPipeline) {
  expect_losses_of_the_cpu(small_plan("1f1b", 1, 1), "1f1b");
}

TEST(EmulatedTraining, LossesOfSplitBackwards) {
  expect_losses_of_the_cpu(small_plan("zb-h1", 1, 1), "zb-h1");
}

TEST(EmulatedTraining, LossesOfShardedReplicas) {
  TrainingPlan plan = small_plan("gpipe", 2, 1);
  plan.zero = 2;
  expect_losses_of_the_cpu(plan, "gpipe, ZeRO 2");
}

TEST(EmulatedTraining, LossesOfTensorRanks) {
  TrainingPlan plan = small_plan("1f1b", 1, 2);
  plan.sequence_parallel = true;
  expect_losses_of_the_cpu(plan, "1f1b, sequence-parallel");
}

// Fused attention keeps its output and one float per row and head, but no probabilities.
TEST(EmulatedTraining, KeepsWhatIsForecast) {
  const Job job = job_from(R"({"model": {"layers": 4, "hidden": 32, "heads": 2, "ffn": 128, "vocab": 64,
                                         "sequence_length": 32, "tied_embeddings": false},
                               "cluster": {"name": "one-gpu", "nodes": 2},
                               "layout": {"pp": 2, "global_batch_size": 4, "schedule": "1f1b"},
                               "training": {"precision": "fp32"}})");
  const Forecast as_run = forecast(job_as_run(job, true), [](const std::string& path) -> std::string {
    throw EnvironmentError("unexpected read of " + path);
  });
  RunSettings settings;
  settings.steps = 1;
  const std::vector<RankResult> ranks = on_emulated_devices(plan_from_job(as_run.step, settings), GemmPrecision::kFp32);
  const MemoryResult memory = memory_as_run(as_run);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const double expected = memory.per_pipeline_rank.at(rank).activations_gib * 1024 * 1024 * 1024;
    EXPECT_NEAR(expected / static_cast<double>(ranks[rank].peak_activation_bytes), 1.0, 0.01) << "rank " << rank;
  }
}

// The GPU memory of a run is known before it starts.
TEST(EmulatedTraining, MemoryIsCheckedBeforeItStarts) {
  const auto prepare = [](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--model.layers",
                                      "16",
                                      "--model.hidden",
                                      "1024",
                                      "--model.heads",
                                      "8",
                                      "--model.ffn",
                                      "4096",
                                      "--model.vocab",
                                      "4096",
                                      "--model.sequence_length",
                                      "1024",
                                      "--model.tied_embeddings",
                                      "false",
                                      "--mbs",
                                      "4",
                                      "--gbs",
                                      "64",
                                      "--cluster",
                                      "8xone-gpu",
                                      "--pp",
                                      "8",
                                      "--training.precision",
                                      "bf16",
                                      "--backend",
                                      "virtual-gpus"};
    words.insert(words.end(), more.begin(), more.end());
    return prepare_run(parse_launch_options(words));
  };
  constexpr double kH100 = 85.5e9;
  constexpr double kGiga = 1e9;
  const PreparedRun gpipe = prepare({"--schedule", "gpipe"});
  EXPECT_FALSE(gpipe.plan.keeps_weights);
  // 211 M parameters: 16 bytes of state, 2 of rounded weights.
  GpuMemoryNeed all;
  for (const GpuMemoryNeed& need : gpipe.gpu_memory) {
    all.state += need.state;
    all.copies += need.copies;
    all.activations += need.activations;
  }
  EXPECT_NEAR(all.state / kGiga, 3.37, 0.05);
  EXPECT_NEAR(all.copies / kGiga, 0.42, 0.01);
  // Held by 16 microbatches on eight ranks; measured on CPU ranks of a smaller shape and scaled: 71 GB.
  EXPECT_NEAR(all.activations / kGiga, 71, 4);
  EXPECT_NO_THROW(check_gpu_memory(gpipe, 8, "H100", kH100));
  const PreparedRun more = prepare({"--schedule", "gpipe", "--gbs", "128"});
  try {
    check_gpu_memory(more, 8, "H100", kH100);
    FAIL() << "twice as many microbatches should not fit";
  } catch (const ConfigError& error) {
    EXPECT_NE(error.diagnostic().problem.find("8 ranks on one GPU need"), std::string::npos)
        << error.diagnostic().problem;
    EXPECT_NE(error.diagnostic().problem.find("H100 has 79.6"), std::string::npos) << error.diagnostic().problem;
  }
  // A single rank of the eight, each on its own GPU.
  EXPECT_NO_THROW(check_gpu_memory(more, 1, "H100", kH100));
  EXPECT_EQ(prepare({"--schedule", "1f1b", "--training.precision", "fp32"}).gpu_memory.front().copies, 0);
  // Among ranks with a GPU each, the fullest counts rather than their mean.
  const PreparedRun wide = prepare({"--schedule", "1f1b", "--mbs", "112", "--gbs", "1792"});
  EXPECT_THROW(check_gpu_memory(wide, 1, "H100", kH100), ConfigError);
}

TEST(EmulatedTraining, RoundedFactorsStayClose) {
  TrainingPlan plan = small_plan("1f1b", 1, 1);
  plan.network.hidden = 16;  // an 8-bit linear requires multiples of 16
  plan.network.sequence = 16;
  const std::vector<double> expected = mean_losses(train_on_threads(plan, {}));
  std::vector<double> before = expected;
  for (const auto& [precision, tolerance] : {std::pair{GemmPrecision::kBf16, 2e-2}, {GemmPrecision::kFp8, 5e-2}}) {
    const std::vector<double> actual = mean_losses(on_emulated_devices(plan, precision));
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t step = 0; step < expected.size(); ++step) {
      EXPECT_NE(actual[step], before[step]);
      EXPECT_NEAR(actual[step], expected[step], tolerance * expected[step]);
    }
    before = actual;
  }
}

}  // namespace
}  // namespace flopcast::realrun
