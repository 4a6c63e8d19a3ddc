#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include "base/text/error.hpp"
#include "calibrate/device/imports.hpp"
#include "tests/unit/calibrate/damage.hpp"

namespace flopcast {
namespace {

// Today's form, with the list of arguments, a batch size that ramps up, an overflow and a restart.
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
  EXPECT_TRUE(log.steps[4].warm_up) << "iteration 4 came again";
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
  EXPECT_EQ(log.steps.size(), 2u) << "two ranks printed the first";
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
  EXPECT_NE(training_log_complaint("").find("holds no progress"), std::string::npos);
  const auto with = [&text](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return training_log_complaint(changed);
  };
  EXPECT_EQ(with("2000.0", "2,000.0"), "run.log:9: \"2,000.0\" of \"elapsed time per iteration (ms)\" is not a number");
  EXPECT_EQ(with("(ms): 2000.0", "(min): 0.03"), "run.log:9: the elapsed time is cut off or has no unit");
  EXPECT_EQ(with("2000.0", "-5"), "run.log:9: the elapsed time is not above zero");
  EXPECT_EQ(with("| global batch size:    64 |", "|"), "run.log:9: does not tell the global batch size");
  EXPECT_NE(with("world_size ...", "world ...").find("how many ranks trained"), std::string::npos);
  EXPECT_NE(training_log_complaint(text.substr(0, text.find(" [2026-01-02 03:04:07]")))
                .find("warm-up and skipped iterations alone"),
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

}  // namespace
}  // namespace flopcast
