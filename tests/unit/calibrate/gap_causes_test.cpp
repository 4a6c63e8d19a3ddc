// Ten faults injected one at a time: the trace of a healthy run is written from its forecast and then disturbed in one
// way.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "calibrate/verdict/verdict.hpp"
#include "model/cost/compute.hpp"
#include "sim/forecast/forecast.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

const char* const kGapJob = R"({"model": "llama3-8b", "cluster": {"name": "dgx-h100", "nodes": 4},
    "layout": {"tp": 2, "zero": 1, "sequence_parallel": true, "global_batch_size": 128},
    "training": {"stack": "nemo"}})";

// A fault on one rank.
struct Fault {
  double compute = 1.0;           // factor on the time of compute kernels
  double messages = 1.0;          // factor on the time of communication kernels
  bool overlaps = true;           // communication is hidden as forecast
  double launch_gap = 0.0;        // share of the step: idle before kernels that are launched late
  double data_wait = 0.0;         // share of the step
  double memory_wait = 0.0;       // share of the step: cudaMalloc and cudaFree
  bool forwards_twice = false;    // the forward pass runs again before the backward pass
  double waits_for_others = 0.0;  // share of the step: inside communication
};

// Writes the trace of one rank, two steps, like torch.profiler.
class TraceWriter {
 public:
  TraceWriter(const Forecast& answer, const Fault& fault, int rank) : fault_(fault) {
    const Result& result = answer.result;
    time_us_ = result.iteration.time_s * 1e6;
    compute_us_ = (result.breakdown.compute_s + result.breakdown.recompute_s + result.breakdown.optimizer_s) * 1e6;
    for (const Axis axis : kResultAxes) {
      total_us_ += result.communication[axis].total_s * 1e6;
      exposed_us_ += result.communication[axis].exposed_s * 1e6;
    }
    root_ = {{"schemaVersion", 1},
             {"deviceProperties", {{{"name", "NVIDIA H100 80GB HBM3"}, {"numSms", 132}}}},
             {"distributedInfo", {{"backend", "nccl"}, {"rank", rank}, {"world_size", 32}}},
             {"traceEvents", Json::array()}};
    for (int step = 0; step < 2; ++step) write_step(step);
  }

  std::string text() const { return root_.dump(); }

 private:
  static constexpr int kBlocks = 20;

  void event(const std::string& category, const std::string& name, double start, double length, const Json& arguments) {
    root_["traceEvents"].push_back({{"ph", "X"},
                                    {"cat", category},
                                    {"name", name},
                                    {"pid", category == "kernel" ? 0 : 100},
                                    {"tid", 7},
                                    {"ts", start},
                                    {"dur", length},
                                    {"args", arguments}});
  }

  void kernel(const std::string& name, double start, double length, double launched, Json arguments = Json::object()) {
    ++correlation_;
    arguments["correlation"] = correlation_;
    event("kernel", name, start, length, arguments);
    event("cuda_runtime", "cudaLaunchKernel", launched, 5.0, {{"correlation", correlation_}});
  }

  void compute(const std::string& name, double length) {
    const double gap = fault_.launch_gap * time_us_ / (kBlocks * 3);
    const double launched = gap > 0.0 ? now_ + gap - 8.0 : now_ - 500.0;
    now_ += gap;
    kernel(name, now_, length, launched);
    now_ += length;
  }

  void write_step(int step) {
    const double begin = now_;
    if (fault_.data_wait > 0.0) {
      event("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", now_,
            fault_.data_wait * time_us_, Json::object());
      now_ += fault_.data_wait * time_us_;
    }
    const double forward = compute_us_ * fault_.compute / 3.0 / kBlocks;
    const double message = total_us_ * fault_.messages / kBlocks + fault_.waits_for_others * time_us_ / kBlocks;
    const double hidden_share = fault_.overlaps ? 1.0 - exposed_us_ / total_us_ : 0.0;
    const double hidden = hidden_share * std::min(message, total_us_ / kBlocks);
    for (int block = 0; block < kBlocks; ++block) {
      for (int again = 0; again < (fault_.forwards_twice ? 2 : 1); ++again) {
        compute("flash_fwd_kernel", 0.2 * forward);
        compute("nvjet_tst_256x128_64x4_gemm", 0.8 * forward);
      }
      compute("flash_bwd_dq_dk_dv_loop_kernel", 2.0 * forward);
      const Json about = {{"Collective name", "_reduce_scatter_base"}, {"Group size", 16}, {"dtype", "BFloat16"}};
      kernel("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", now_ - hidden, message, now_ - hidden - 500.0, about);
      now_ += message - hidden;
      if (fault_.memory_wait > 0.0 && block % 5 == 0) {
        const double wait = fault_.memory_wait * time_us_ / 4.0;
        event("cuda_runtime", "cudaFree", now_, wait / 2.0, Json::object());
        event("cuda_runtime", "cudaMalloc", now_ + wait / 2.0, wait / 2.0, Json::object());
        now_ += wait;
      }
    }
    event("user_annotation", "ProfilerStep#" + std::to_string(step), begin, now_ - begin, Json::object());
  }

  Fault fault_;
  Json root_;
  double time_us_ = 0.0;
  double compute_us_ = 0.0;
  double total_us_ = 0.0;
  double exposed_us_ = 0.0;
  double now_ = 1e6;
  int correlation_ = 0;
};

std::vector<Hypothesis> diagnosis(const std::vector<Fault>& ranks) {
  const Forecast answer = forecast(job_from(kGapJob), no_files);
  GapEvidence evidence;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::istringstream stream(TraceWriter(answer, ranks[rank], static_cast<int>(rank)).text());
    evidence.traces.push_back(read_traced_rank(stream, "rank.json", 0.0));
  }
  evidence.measured_s = evidence.traces.front().typical().time_s;
  return explain_gap(answer, evidence, no_files);
}

GapCause found_in(const std::vector<Fault>& ranks) {
  return diagnosis(ranks).front().cause;
}

std::vector<Fault> on_all(const Fault& fault) {
  return {fault, fault, fault, fault};
}

TEST(GapCauses, AHealthyTraceIsAsForecast) {
  const Forecast answer = forecast(job_from(kGapJob), no_files);
  std::istringstream stream(TraceWriter(answer, Fault(), 0).text());
  const TracedRank rank = read_traced_rank(stream, "rank.json", 0.0);
  ASSERT_EQ(rank.steps.size(), 2u);
  EXPECT_EQ(rank.rank, 0);
  const TracedStep& step = rank.typical();
  EXPECT_NEAR(step.time_s, answer.result.iteration.time_s, 0.02 * step.time_s);
  EXPECT_NEAR(step.compute_s + step.exposed_s + step.idle_s, step.time_s, 1e-6);
  double total = 0.0;
  double exposed = 0.0;
  for (const Axis axis : kResultAxes) {
    total += answer.result.communication[axis].total_s;
    exposed += answer.result.communication[axis].exposed_s;
  }
  EXPECT_NEAR(step.communication_s, total, 0.01 * total);
  EXPECT_NEAR(step.exposed_s, exposed, 0.02 * total);
  EXPECT_EQ(step.attention_forward, step.attention_backward);
  EXPECT_EQ(step.collectives.size(), 1u);
  EXPECT_EQ(step.collectives.begin()->first, "reduce_scatter of 16");
  double covered = 0.0;
  for (const TracedInterval& stretch : step.stretches) covered += stretch.end_s - stretch.start_s;
  EXPECT_NEAR(covered, step.time_s, 1e-9);
}

TEST(GapCauses, SlowLink) {
  EXPECT_EQ(found_in(on_all({.messages = 4.0})), GapCause::kSlowLink);
}
TEST(GapCauses, NoOverlap) {
  EXPECT_EQ(found_in(on_all({.overlaps = false})), GapCause::kNoOverlap);
}
TEST(GapCauses, HostBound) {
  EXPECT_EQ(found_in(on_all({.launch_gap = 0.25})), GapCause::kHostBound);
}
TEST(GapCauses, Clocks) {
  EXPECT_EQ(found_in(on_all({.compute = 1.25})), GapCause::kClocks);
}
TEST(GapCauses, DataLoader) {
  EXPECT_EQ(found_in(on_all({.data_wait = 0.2})), GapCause::kDataLoader);
}
TEST(GapCauses, Straggler) {
  const Fault others = {.waits_for_others = 0.2};
  const Fault slow = {.compute = 1.21};
  const std::vector<Hypothesis> why = diagnosis({others, others, slow, others});
  EXPECT_EQ(why.front().cause, GapCause::kStraggler);
  EXPECT_NE(why.front().evidence.find("rank 2"), std::string::npos) << why.front().evidence;
}
TEST(GapCauses, Recompute) {
  EXPECT_EQ(found_in(on_all({.forwards_twice = true})), GapCause::kRecompute);
}
// If kernel names reveal nothing, GEMMs of known shape distinguish slow devices from recomputation.
TEST(GapCauses, ProductsOfKnownShapeTellSlowFromAgain) {
  const Forecast answer = forecast(job_from(kGapJob), no_files);
  const ComputeModel model(answer.step.job.cluster.device, Precision::kBf16);
  for (const double slower : {1.0, 1.3}) {
    Json root = {{"traceEvents", Json::array()}};
    const double computes = answer.result.iteration.time_s * 1.3e6;
    root["traceEvents"].push_back(
        {{"ph", "X"}, {"cat", "kernel"}, {"name", "kernel"}, {"ts", 0}, {"dur", computes}, {"args", Json::object()}});
    std::istringstream stream(root.dump());
    GapEvidence evidence;
    evidence.traces.push_back(read_traced_rank(stream, "rank.json", 0.0));
    evidence.measured_s = computes * 1e-6;
    for (const int width : {4096, 8192, 16384}) {
      Sample sample;
      sample.key.kind = SampleKind::kGemm;
      sample.key.shape = SampleShape{8192, width, 4096};
      sample.key.dtype = "bf16";
      sample.seconds = {slower * model.gemm({8192, width, 4096, 1}, 2.0).value()};
      evidence.products.push_back(sample);
    }
    EXPECT_EQ(explain_gap(answer, evidence, no_files).front().cause,
              slower > 1.0 ? GapCause::kClocks : GapCause::kRecompute);
  }
}

TEST(GapCauses, AWaitAtTheStartOfAStepIsOneForData) {
  const Forecast answer = forecast(job_from(kGapJob), no_files);
  Json root = {{"traceEvents", Json::array()}};
  const double time = answer.result.iteration.time_s * 1e6;
  for (int step = 0; step < 3; ++step) {
    const double start = step * 1.25 * time;
    root["traceEvents"].push_back({{"ph", "X"},
                                   {"cat", "user_annotation"},
                                   {"name", "ProfilerStep#" + std::to_string(step)},
                                   {"ts", start},
                                   {"dur", 1.25 * time}});
    root["traceEvents"].push_back(
        {{"ph", "X"}, {"cat", "kernel"}, {"name", "gemm"}, {"ts", start + 0.25 * time}, {"dur", time}});
  }
  std::istringstream stream(root.dump());
  GapEvidence evidence;
  evidence.traces.push_back(read_traced_rank(stream, "rank.json", 0.0));
  evidence.measured_s = evidence.traces.front().typical().time_s;
  EXPECT_EQ(explain_gap(answer, evidence, no_files).front().cause, GapCause::kDataLoader);
}

TEST(GapCauses, MemoryPressure) {
  EXPECT_EQ(found_in(on_all({.memory_wait = 0.3})), GapCause::kMemoryPressure);
}

// Runs of `flopcast run` with tp 8 inside a node: their passes include tensor-parallel communication.
std::string own_job(int pp) {
  return R"({"model": "gpt3-13b", "cluster": {"name": "dgx-a100-80g", "nodes": 4},
      "layout": {"tp": 8, "pp": )" +
         std::to_string(pp) + R"(, "global_batch_size": 32}, "training": {"stack": "megatron-2022"}})";
}

TEST(GapCauses, ASlowLinkBesideTensorParallelPasses) {
  const Forecast answer = forecast(job_from(own_job(4)), no_files);
  ASSERT_GT(answer.result.communication[Axis::kTensor].exposed_s, 0.1 * answer.result.iteration.time_s);
  for (const double rate : {0.1, 0.05, 0.03}) {  // share of the inter-node links' rate
    Job slow = job_from(own_job(4));
    slow.cluster.nic_efficiency *= rate;
    const Forecast run = forecast(slow, no_files);
    GapEvidence evidence;
    evidence.traces = traced_run({run.timeline}, "run.json", 0.0);
    evidence.measured_s = run.result.iteration.time_s;
    ASSERT_GT(evidence.measured_s, 1.04 * answer.result.iteration.time_s);
    const std::vector<Hypothesis> why = explain_gap(answer, evidence, no_files);
    EXPECT_EQ(why.front().cause, GapCause::kSlowLink) << name_of(why.front().cause) << ", " << why.front().evidence;
  }
}

TEST(GapCauses, ARunOfAnotherPipelineIsRefused) {
  GapEvidence evidence;
  evidence.traces = traced_run({forecast(job_from(own_job(4)), no_files).timeline}, "run.json", 0.0);
  for (const double measured_s : {1e-3, 1e3}) {
    evidence.measured_s = measured_s;
    try {
      explain_gap(forecast(job_from(own_job(2)), no_files), evidence, no_files);
      FAIL();
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.diagnostic().problem, "the run has 4 pipeline ranks, but the job has 2");
    }
  }
}

// Four stages of one device; the last one includes the head and therefore computes longer.
TEST(GapCauses, AnUnevenStageIsNoStraggler) {
  const std::string job = R"({"model": {"layers": 8, "hidden": 1024, "heads": 16, "ffn": 4096, "vocab": 50304,
      "sequence_length": 1024}, "cluster": {"name": "dgx-h100", "nodes": 1},
      "layout": {"pp": 4, "global_batch_size": 16}})";
  const Forecast answer = forecast(job_from(job), no_files);
  GapEvidence evidence;
  for (const TracedRank& rank : traced_run({answer.timeline}, "run.json", 0.0)) {
    evidence.traces.push_back(rank);
    evidence.traces.back().file = "node.sqlite, rank " + std::to_string(*rank.rank) + " of the file";
    evidence.traces.back().rank.reset();
    evidence.traces.back().waiting_separate = false;
  }
  evidence.measured_s = 1.2 * answer.result.iteration.time_s;
  const auto straggles_for = [&] {
    for (const Hypothesis& one : explain_gap(answer, evidence, no_files)) {
      if (one.cause == GapCause::kStraggler) return one.explains_s;
    }
    return -1.0;
  };
  std::vector<double> computes;
  for (const TracedRank& rank : evidence.traces) computes.push_back(rank.typical().compute_s);
  std::sort(computes.begin(), computes.end());
  const double uneven = computes.back() - computes.front();
  ASSERT_GT(uneven, 0.1 * computes.front());
  EXPECT_LT(straggles_for(), 0.2 * uneven) << "ranks numbered in file order";
  evidence.traces.erase(evidence.traces.begin());
  EXPECT_LT(straggles_for(), 0.2 * uneven) << "only some ranks, not identified";
}

// One line of a log.
std::string log_line(int iteration, double seconds) {
  return " iteration " + std::to_string(iteration) +
         "/ 100 | elapsed time per iteration (ms): " + std::to_string(seconds * 1e3) +
         " | global batch size:   128 |\n";
}

std::vector<Hypothesis> diagnosis_of_log(const std::string& timers, double times) {
  const Forecast answer = forecast(job_from(kGapJob), no_files);
  GapEvidence evidence;
  std::string text = log_line(1, 60.0);
  for (int step = 2; step <= 20; ++step) {
    text += log_line(step, answer.result.iteration.time_s * times) + timers;
  }
  evidence.log = read_training_log(text, "train.log");
  evidence.steps = steps_of_log(*evidence.log, "train.log", "--log", answer.step.job);
  evidence.measured_s = evidence.steps->median_s;
  return explain_gap(answer, evidence, no_files);
}

TEST(GapCauses, DataLoaderByTheLogsTimers) {
  const std::string timers =
      "(min, max) time across ranks (ms):\n"
      "    forward-compute ................................: (1010.00, 1020.00)\n"
      "    backward-compute ...............................: (2010.00, 2020.00)\n"
      "    batch-generator ................................: (1005.10, 1100.20)\n";
  EXPECT_EQ(diagnosis_of_log(timers, 1.3).front().cause, GapCause::kDataLoader);
}

TEST(GapCauses, StragglerByTheLogsTimers) {
  const std::string timers =
      "(min, max) time across ranks (ms):\n"
      "    forward-compute ................................: (1010.00, 1320.00)\n"
      "    backward-compute ...............................: (2010.00, 2720.00)\n"
      "    batch-generator ................................: (5.10, 10.20)\n";
  const std::vector<Hypothesis> why = diagnosis_of_log(timers, 1.3);
  EXPECT_EQ(why.front().cause, GapCause::kStraggler);
  EXPECT_NEAR(why.front().explains_s, 1.02, 0.01);
}

TEST(GapCauses, MemoryByTheLog) {
  const std::string memory =
      "[Rank 0] (after 2 iterations) memory (MB) | allocated: 60000.0 | max allocated: 70000.0 | reserved: 80000.0 | "
      "max "
      "reserved: 80400.0\n";
  EXPECT_EQ(diagnosis_of_log(memory, 1.3).front().cause, GapCause::kMemoryPressure);
}

TEST(GapCauses, EveryCauseIsListedWithItsCheck) {
  const std::vector<Hypothesis> why = diagnosis(on_all({.messages = 4.0}));
  ASSERT_EQ(why.size(), kGapCauses);
  double total = 0.0;
  for (std::size_t index = 0; index < why.size(); ++index) {
    total += why[index].score;
    EXPECT_FALSE(why[index].check.empty());
    EXPECT_FALSE(why[index].evidence.empty());
    if (index > 0) {
      EXPECT_LE(why[index].score, why[index - 1].score);
    }
  }
  EXPECT_NEAR(total, 1.0, 1e-9);
  // The cause explains the whole gap.
  const Forecast answer = forecast(job_from(kGapJob), no_files);
  std::istringstream stream(TraceWriter(answer, {.messages = 4.0}, 0).text());
  const double gap = read_traced_rank(stream, "rank.json", 0.0).typical().time_s - answer.result.iteration.time_s;
  EXPECT_NEAR(why.front().explains_s, gap, 0.1 * gap);
}

TEST(GapCauses, AFasterRunIsNotSlowedByAnything) {
  const Forecast answer = forecast(job_from(kGapJob), no_files);
  GapEvidence evidence;
  evidence.measured_s = 0.9 * answer.result.iteration.time_s;
  for (const Hypothesis& one : explain_gap(answer, evidence, no_files)) {
    const bool slows = one.cause == GapCause::kStraggler || one.cause == GapCause::kDataLoader ||
                       one.cause == GapCause::kMemoryPressure;
    if (slows) {
      EXPECT_EQ(one.score, 0.0) << name_of(one.cause);
    }
  }
}

TEST(TraceSteps, AreCutFromTracesWithoutMarks) {
  Json root = {{"traceEvents", Json::array()}};
  for (int step = 0; step < 4; ++step) {
    root["traceEvents"].push_back({{"ph", "X"}, {"cat", "kernel"}, {"name", "gemm"}, {"ts", 1e6 * step}, {"dur", 1e6}});
  }
  std::istringstream one(root.dump());
  EXPECT_EQ(read_traced_rank(one, "t.json", 0.0).steps.size(), 1u);
  std::istringstream four(root.dump());
  const TracedRank rank = read_traced_rank(four, "t.json", 1.0);
  ASSERT_EQ(rank.steps.size(), 4u);
  EXPECT_NEAR(rank.steps[2].compute_s, 1.0, 1e-9);
}

TEST(TraceSteps, KernelsOverEndsCountOnBothSides) {
  Json root = {{"traceEvents", Json::array()}};
  const auto add = [&root](const char* category, const std::string& name, double start, double length) {
    root["traceEvents"].push_back({{"ph", "X"}, {"cat", category}, {"name", name}, {"ts", start}, {"dur", length}});
  };
  for (int step = 0; step < 4; ++step) add("user_annotation", "ProfilerStep#" + std::to_string(step), 100 * step, 100);
  add("kernel", "ncclDevKernel_AllReduce", 50, 200);  // spans steps 0, 1 and half of 2
  add("kernel", "gemm", 90, 20);
  add("kernel", "gemm", 210, 10);
  add("user_annotation", "dataloader", 120, 60);
  add("user_annotation", "dataloader", 260, 20);
  std::istringstream stream(root.dump());
  const TracedRank rank = read_traced_rank(stream, "t.json", 0.0);
  ASSERT_EQ(rank.steps.size(), 3u) << "the last step has no kernel";
  const double communication[] = {50e-6, 100e-6, 50e-6};
  const double compute[] = {10e-6, 10e-6, 10e-6};
  for (std::size_t step = 0; step < 3; ++step) {
    EXPECT_NEAR(rank.steps[step].communication_s, communication[step], 1e-12);
    EXPECT_NEAR(rank.steps[step].compute_s, compute[step], 1e-12);
  }
  EXPECT_NEAR(rank.steps[1].idle_s, 0.0, 1e-12);
  EXPECT_NEAR(rank.steps[2].idle_by_cause_s[static_cast<std::size_t>(IdleCause::kData)], 20e-6, 1e-12);
}

TEST(TraceSteps, AKernelWithoutItsStartIsRefused) {
  std::istringstream stream(R"({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm", "dur": 5}]})");
  EXPECT_THROW(read_traced_rank(stream, "t.json", 0.0), ConfigError);
  std::istringstream empty(R"({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 5}]})");
  EXPECT_THROW(read_traced_rank(empty, "t.json", 0.0), ConfigError);
}

}  // namespace
}  // namespace flopcast
