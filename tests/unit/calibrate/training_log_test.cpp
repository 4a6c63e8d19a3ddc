#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include "base/text/error.hpp"
#include "calibrate/device/imports.hpp"
#include "calibrate/runs/fit_runs.hpp"
#include "tests/unit/calibrate/damage.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

// Current format, with the list of arguments, a batch size that ramps up, an overflow and a restart.
const char* const kMegatron =
    "using world size: 16, data-parallel size: 2, tensor-model-parallel size: 8\n"
    "------------------------ arguments ------------------------\n"
    "  micro_batch_size ................................ 1\n"
    "  world_size ...................................... 16\n"
    "-------------------- end of arguments ---------------------\n"
    " [2026-01-02 03:04:05] iteration        1/     100 | consumed samples:           32 | elapsed time per iteration "
    "(ms): 30512.3 | throughput per GPU (TFLOP/s/GPU): 4.1 | learning rate: 1.0E-07 | global batch size:    32 | lm "
    "loss: 1.1E+01 | loss scale: 1.0 | grad norm: 11.2 | number of skipped iterations:   0 | number of nan "
    "iterations:   0 |\n"
    " [2026-01-02 03:04:07] iteration        2/     100 | consumed samples:           64 | elapsed time per iteration "
    "(ms): 1000.0 | throughput per GPU (TFLOP/s/GPU): 120.1 | learning rate: 1.0E-07 | global batch size:    32 | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    " [2026-01-02 03:04:08] iteration        3/     100 | consumed samples:           96 | elapsed time per iteration "
    "(ms): 1100.0 | global batch size:    32 | number of skipped iterations:   1 | number of nan iterations:   0 |\n"
    " [2026-01-02 03:04:09] iteration        4/     100 | consumed samples:          160 | elapsed time per iteration "
    "(ms): 2000.0 | global batch size:    64 | number of skipped iterations:   0 |\n"
    "saving checkpoint at iteration 4\n"
    " [2026-01-02 05:04:09] iteration        4/     100 | consumed samples:          160 | elapsed time per iteration "
    "(ms): 45000.0 | global batch size:    64 |\n"
    " [2026-01-02 05:04:11] iteration        5/     100 | consumed samples:          224 | elapsed time per iteration "
    "(ms): 2040.0 | global batch size:    64 |\n";

std::string training_log_complaint(const std::string& text) {
  try {
    measurement_of(read_training_log(text, "run.log"), "run.log", std::nullopt);
  } catch (const ConfigError& error) {
    return error.diagnostic().where + ": " + error.diagnostic().problem;
  }
  return "";
}

TEST(TrainingLog, StepsByBatchSizeWithoutWarmUp) {
  const TrainingLog log = read_training_log(kMegatron, "run.log");
  EXPECT_EQ(log.steps.size(), 6u);
  EXPECT_EQ(log.starts, 2);
  EXPECT_EQ(log.ranks, 16);
  EXPECT_EQ(log.arguments.at("micro_batch_size"), "1");
  EXPECT_DOUBLE_EQ(*log.steps[1].tflops_per_gpu, 120.1);
  EXPECT_TRUE(log.steps[4].warm_up) << "iteration 4 was repeated";
  const Measurement measurement = measurement_of(log, "run.log", std::nullopt);
  ASSERT_EQ(measurement.samples.size(), 2u);
  EXPECT_EQ(measurement.samples[0].key.text(), "training_step of 32 sequences, 16 ranks, pass 1");
  EXPECT_EQ(measurement.samples[0].seconds, std::vector<double>{1.0});
  EXPECT_EQ(measurement.samples[1].seconds, (std::vector<double>{2.0, 2.04}));
  const Measurement again = read_measurement(write_measurement(measurement), "m.json");
  EXPECT_EQ(again.samples[1].key, measurement.samples[1].key);
}

TEST(TrainingLog, OlderFormsAndRepeatedLines) {
  const std::string line =
      "[default7]: iteration       10/  500 | consumed samples: 20480 | elapsed time per iteration (s): 13.21 | "
      "learning rate: 6.000E-05 | global batch size:  2048 | samples per second: 155.0 | TFLOPs: 148.5 |\n";
  std::string next = line;
  next.replace(next.find("10/"), 3, "11/");
  const TrainingLog log = read_training_log(line + line + next, "run.log");
  EXPECT_EQ(log.steps.size(), 2u) << "two ranks printed the first step";
  EXPECT_DOUBLE_EQ(*log.steps[1].tflops_per_gpu, 148.5);
  const Measurement measurement = measurement_of(log, "run.log", 384);
  EXPECT_EQ(measurement.samples.at(0).key.ranks, 384);
  EXPECT_EQ(measurement.samples.at(0).seconds, std::vector<double>{13.21});
}

TEST(TrainingLog, AKilledJobsLastLineIsLeftOut) {
  const std::string text = kMegatron;
  EXPECT_EQ(read_training_log(text.substr(0, text.size() - 25), "run.log").steps.size(), 5u);
}

TEST(TrainingLog, ComplaintsTellTheLine) {
  const std::string text = kMegatron;
  EXPECT_NE(training_log_complaint("").find("contains no training progress"), std::string::npos);
  const auto with = [&text](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return training_log_complaint(changed);
  };
  EXPECT_EQ(with("2000.0", "2,000.0"), "run.log:9: \"2,000.0\" of \"elapsed time per iteration (ms)\" is not a number");
  EXPECT_EQ(with("(ms): 2000.0", "(min): 0.03"), "run.log:9: the elapsed time is truncated or has no unit");
  EXPECT_EQ(with("2000.0", "-5"), "run.log:9: the elapsed time is not above zero");
  EXPECT_EQ(with("| global batch size:    64 |", "|"), "run.log:9: the global batch size is missing");
  EXPECT_NE(with("world_size ...", "world ...").find("the number of ranks"), std::string::npos);
  EXPECT_NE(training_log_complaint(text.substr(0, text.find(" [2026-01-02 03:04:07]")))
                .find("only warm-up and skipped iterations"),
            std::string::npos);
}

RC_GTEST_PROP(TrainingLog, DamagedLogsAreRefusedOrRead, ()) {
  try {
    const TrainingLog log = read_training_log(damaged(kMegatron), "run.log");
    for (const Sample& sample : measurement_of(log, "run.log", 8).samples) {
      for (const double second : sample.seconds) RC_ASSERT(second > 0.0);
    }
  } catch (const ConfigError&) {
  }
}

Job job_of_batch(int batch, int nodes) {
  return job_from(R"({"model": "llama3-8b", "cluster": {"name": "dgx-h100", "nodes": )" + std::to_string(nodes) +
                  R"(}, "layout": {"global_batch_size": )" + std::to_string(batch) + "}}");
}

double median_of_log(const std::string& text, const Job& job) {
  return steps_of_log(read_training_log(text, "train.log"), "train.log", "--log", job).median_s;
}

TEST(OtherLogs, OfSixProgramsAreRead) {
  const Job job = job_of_batch(128, 1);  // on 8 GPUs, 8,192 tokens per sample
  EXPECT_DOUBLE_EQ(
      median_of_log(
          "Epoch 0: :   1%| | 1/100 [00:40, reduced_train_loss=10.9, global_step=0.000, consumed_samples=128.0, "
          "train_step_timing in s=40.90]\n"
          "Epoch 0: :   2%| | 2/100 [00:53, reduced_train_loss=10.2, global_step=1.000, consumed_samples=256.0, "
          "train_step_timing in s=12.90]\n",
          job),
      12.9);
  EXPECT_DOUBLE_EQ(median_of_log("Training epoch 0, iteration 0/99 | lr: 1e-06 | global_batch_size: 128 | "
                                 "train_step_timing in s: 30.5\n"
                                 "Training epoch 0, iteration 1/99 | lr: 1e-06 | global_batch_size: 128 | "
                                 "train_step_timing in s: 12.7\n",
                                 job),
                   12.7);
  EXPECT_DOUBLE_EQ(median_of_log(" steps: 10 loss: 9.1 iter time (s): 33.0 samples/sec: 3.879\n"
                                 " steps: 20 loss: 8.1 iter time (s): 12.5 samples/sec: 10.240\n",
                                 job),
                   12.5);
  EXPECT_DOUBLE_EQ(median_of_log("iteration: 1 / 100 | consumed_tokens: 1.05M | elapsed_time_per_iteration_ms: 30.1K | "
                                 "global_batch_size: 1.05M | lm_loss: 12\n"
                                 "iteration: 2 / 100 | consumed_tokens: 2.1M | elapsed_time_per_iteration_ms: 12.4K | "
                                 "global_batch_size: 1.05M | lm_loss: 11\n",
                                 job),
                   12400e-3);
  EXPECT_NEAR(median_of_log("[titan] INFO - step:  1  loss: 12.2  memory: 40.1GiB(50%)  tps: 900  mfu: 3%\n"
                            "[titan] INFO - \x1b[31mstep: 10  \x1b[32mloss:  7.2  \x1b[33mmemory: 40.1GiB(50%)  "
                            "\x1b[34mtps: 10,485  \x1b[36mtflops: 500\n",
                            job),
              128.0 * 8192 / (10485.0 * 8), 1e-9);
  EXPECT_DOUBLE_EQ(median_of_log("[batch=1/100]:\n\t Train throughput/batches_per_sec: 0.0100\n"
                                 "[batch=2/100]:\n\t Train throughput/batches_per_sec: 0.0800\n"
                                 "\t Train throughput/samples_per_sec: 10.2400\n",
                                 job),
                   12.5);
  EXPECT_DOUBLE_EQ(median_of_log("Epoch 0:   5%|5  | 1/1000 [00:40<25:00, 40.30s/it, v_num=0]\n"
                                 "Epoch 0:   5%|5  | 2/1000 [00:53<25:00, 12.63s/it, v_num=0]\n",
                                 job),
                   12.63);
}

TEST(OtherLogs, OfAnotherBatchAreRefused) {
  EXPECT_THROW(median_of_log(" steps: 10 loss: 9.1 iter time (s): 33.0 samples/sec: 3.879\n"
                             " steps: 20 loss: 8.1 iter time (s): 12.5 samples/sec: 10.240\n",
                             job_of_batch(64, 1)),
               ConfigError);
}

TEST(TrainingLog, TellsTimersOverRanksAndMemory) {
  std::string text;
  for (int step = 1; step <= 3; ++step) {
    text += " iteration " + std::to_string(step) +
            "/ 100 | elapsed time per iteration (ms): 512.3 | global batch size: 8 |\n" +
            "(min, max) time across ranks (ms):\n    forward-compute .......: (" + std::to_string(100 + step) +
            ".5, 120.25)\n" + "    optimizer .......: 7.5\n";
  }
  text +=
      "[Rank 1] (after 2 iterations) memory (MB) | allocated: 1.0 | max allocated: 2.0 | reserved: 3.0 | max reserved: "
      "2048.0\n";
  const TrainingLog log = read_training_log(text, "train.log");
  ASSERT_EQ(log.timers.size(), 2u);
  EXPECT_DOUBLE_EQ(*log.timers.at("forward-compute").shortest_s, 0.1025);
  EXPECT_DOUBLE_EQ(log.timers.at("forward-compute").longest_s, 0.12025);
  EXPECT_FALSE(log.timers.at("optimizer").shortest_s.has_value());
  EXPECT_DOUBLE_EQ(*log.max_reserved_gib, 2.0);
}

}  // namespace
}  // namespace flopcast
