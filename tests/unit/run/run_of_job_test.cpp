// Effects of a job's section `failures`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "model/job/read_job.hpp"
#include "sim/files/result_file.hpp"
#include "sim/run/run.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

Forecast run_of(const std::string& failures, const std::string& layout = R"("tp": 8, "pp": 4, "dp": 8)",
                const std::string& nodes = "32") {
  Forecast answer = forecast(job_from(R"({"model": "gpt3-13b", "cluster": {"name": "dgx-h100", "nodes": )" + nodes +
                                      R"(}, "layout": {)" + layout + R"(, "global_batch_size": 512},
                                      "training": {"tokens": "500B"}, "failures": )" +
                                      failures + "}"),
                             no_files);
  add_run(answer, WithOptions::kNo);
  return answer;
}

TEST(RunOfAJob, WithoutFailuresIsTheForecastExactly) {
  const Forecast answer = run_of("\"none\"");
  ASSERT_TRUE(answer.result.run.has_value());
  const RunResult& run = *answer.result.run;
  EXPECT_EQ(run.days.p5, answer.result.training->days);
  EXPECT_EQ(run.days.p50, answer.result.training->days);
  EXPECT_EQ(run.days.p95, answer.result.training->days);
  EXPECT_EQ(run.goodput.p50, 1.0);
  EXPECT_EQ(run.ettr.p50, 1.0);
  EXPECT_EQ(run.interruptions_per_day, 0.0);
  EXPECT_EQ(run.checkpoint_interval_s, 0.0);
  for (const NamedSeconds& part : run.lost_by_phase) EXPECT_EQ(part.seconds, 0.0) << part.name;
}

TEST(RunOfAJob, OneCauseIsDalysRun) {
  const Forecast answer = run_of(R"({"mtbf": "2000h", "runs": 400})");
  const RunResult& run = *answer.result.run;
  const double mtbf = 2'000.0 * 3'600.0 / 256;
  EXPECT_EQ(run.checkpoint_cost_s, 10.0);
  EXPECT_EQ(run.restore_s, 300.0);
  EXPECT_NEAR(run.checkpoint_interval_s, best_checkpoint_interval(10.0, mtbf), answer.result.iteration.time_s);
  const double closed = daly_fraction(run.checkpoint_interval_s, 10.0, 300.0, mtbf);
  EXPECT_DOUBLE_EQ(run.closed_form_goodput, closed);
  EXPECT_NEAR(run.goodput.p50, closed, 0.004);
  EXPECT_LT(run.goodput.p5, run.goodput.p50);
  EXPECT_NEAR(run.interruptions_per_day, 86'400.0 / mtbf, 0.05 * 86'400.0 / mtbf);
}

TEST(RunOfAJob, LlamaThreeTrainsMoreThanNineTenthsOfTheTime) {
  Forecast answer = forecast(job_from(R"({"model": "llama3.1-405b", "cluster": {"name": "dgx-h100", "nodes": 2048},
                   "layout": {"tp": 8, "pp": 16, "dp": 128, "global_batch_size": 2048, "zero": 1},
                   "training": {"sequence_length": 8192}, "failures": {"preset": "llama3", "runs": 100}})"),
                             no_files);
  add_run(answer, WithOptions::kNo);
  const RunResult& run = *answer.result.run;
  EXPECT_GT(run.goodput.p5, 0.90);
  EXPECT_LT(run.goodput.p95, 0.97);
  EXPECT_NEAR(run.interruptions_per_day, 419.0 / 54.0, 0.1);
  // 405 B parameters of 14 bytes, on 2,048 nodes of 1.2 GB/s.
  EXPECT_NEAR(run.checkpoint_gib, 405.9e9 * 14.0 / kGibibyte, 0.01 * run.checkpoint_gib);
  EXPECT_NEAR(run.checkpoint_cost_s, 405.9e9 * 14.0 / (2'048 * 1.2e9), 0.05);
}

TEST(RunOfAJob, LossesHaveTheSameSumBothWays) {
  const Forecast answer = run_of(R"({"preset": "alibaba", "spares": 1, "detection": "10min",
    "stragglers": {"share": 0.01, "factor": 1.2}, "maintenance": {"every": "3d", "lasts": "1h"},
    "checkpoint": {"in_memory": true, "asynchronous": true}})");
  const RunResult& run = *answer.result.run;
  double by_cause = 0.0;
  double by_phase = 0.0;
  for (const NamedSeconds& part : run.lost_by_cause) by_cause += part.seconds;
  for (const NamedSeconds& part : run.lost_by_phase) by_phase += part.seconds;
  EXPECT_GT(by_cause, 0.0);
  EXPECT_NEAR(by_cause, by_phase, 1e-6 * by_cause);
}

TEST(RunOfAJob, CheckpointsAreOfTheJob) {
  const Job job = job_from(R"({"model": "gpt3-13b", "cluster": {"name": "dgx-h100", "nodes": 4},
    "layout": {"tp": 8, "global_batch_size": 64}, "failures": {"preset": "rsc-1",
    "checkpoint": {"storage_bandwidth": "10GB/s"}}})");
  const double bytes = checkpoint_bytes(job).value();
  EXPECT_NEAR(bytes, 12.85e9 * 14.0, 0.02 * bytes);
  EXPECT_DOUBLE_EQ(storage_times(job).blocking_s, bytes / 10e9);
  EXPECT_DOUBLE_EQ(storage_times(job).restore_s, 300.0 + bytes / 10e9);
  Job beside = job;
  beside.failures->checkpoint.asynchronous = true;
  EXPECT_DOUBLE_EQ(storage_times(beside).blocking_s, bytes / 32 / job.cluster.host_bandwidth.value());
  EXPECT_DOUBLE_EQ(storage_times(beside).writing_s, bytes / 10e9);
  // Only adapters are saved.
  const Job adapters = job_from(R"({"model": "llama3.1-8b", "cluster": "dgx-h100", "layout": {"global_batch_size": 64},
    "training": {"finetune": {"method": "lora", "rank": 16, "targets": ["q_proj"]}}, "failures": "rsc-1"})");
  EXPECT_DOUBLE_EQ(checkpoint_bytes(adapters).value(), 32.0 * 16.0 * (4096.0 + 4096.0) * 14.0);
}

TEST(RunOfAJob, FewerReplicasInsteadOfARestart) {
  const std::string rest = R"("detection": "30s", "mtbf": "2000h", "runs": 100)";
  const Forecast whole = run_of("{" + rest + "}");
  const Forecast elastic = run_of(R"({"elastic": {"least_dp": 4, "regroup": "20s"}, )" + rest + "}");
  EXPECT_GT(elastic.result.run->goodput.p50, whole.result.run->goodput.p50 + 0.01);
  // ZeRO shards the state over the replicas: losing one requires a checkpoint.
  const Forecast sharded = run_of(R"({"elastic": {"least_dp": 4, "regroup": "20s"}, )" + rest + "}",
                                  R"("tp": 8, "pp": 4, "dp": 8, "zero": 1)");
  EXPECT_LT(sharded.result.run->goodput.p50, elastic.result.run->goodput.p50 - 0.01);
  const Forecast never = run_of(R"({"elastic": {"least_dp": 9}, )" + rest + "}");
  EXPECT_EQ(never.result.run->goodput.p50, whole.result.run->goodput.p50);
  EXPECT_NE(never.result.warnings.back().find("least_dp: 9 exceeds the 8"), std::string::npos);
}

// The fabric keeps its size when replicas are lost, and slow devices slow down a step on shared links like any other.
TEST(RunOfAJob, OnAFabricReplicasAreLostToo) {
  const auto run_on = [](const std::string& network, const std::string& more) {
    Forecast answer = forecast(
        job_from(R"({"model": "gpt3-13b", "cluster": {"name": "dgx-h100", "nodes": 8)" + network +
                 R"(}, "layout": {"tp": 8, "pp": 2, "dp": 4, "global_batch_size": 512}, "training": {"tokens": "500B"},
                 "failures": {"mtbf": "2000h", "runs": 50)" +
                 more + "}}"),
        no_files);
    add_run(answer, WithOptions::kNo);
    return answer;
  };
  const std::string elastic = R"(, "elastic": {"least_dp": 2, "regroup": "20s"})";
  const double alone = run_on("", elastic).result.run->goodput.p50;
  for (const char* network : {R"("allocation": [7, 6, 5, 4, 3, 2, 1, 0], "tiers": [{"nodes": 2}])",
                              R"("topology": "torus", "shape": [4, 2])"}) {
    const Forecast shared = run_on(R"(, "network": {)" + std::string(network) + "}", elastic);
    EXPECT_NEAR(shared.result.run->goodput.p50, alone, 0.01) << network;
  }
  const std::string slow = R"(, "stragglers": {"share": 0.2, "factor": 1.5, "evict_after": "100d"})";
  const Forecast whole = run_on(R"(, "network": {"tiers": [{"nodes": 2, "oversubscription": 64}]})", "");
  const Forecast slowed = run_on(R"(, "network": {"tiers": [{"nodes": 2, "oversubscription": 64}]})", slow);
  EXPECT_GT(whole.result.iteration.time_s, 1.5 * whole.result.network->without_sharing_s);
  EXPECT_LT(slowed.result.run->goodput.p50, 0.9 * whole.result.run->goodput.p50);
}

TEST(RunOfAJob, RacksNeedStorageAndTakeAllTheirNodes) {
  const std::string rack = R"({"causes": [{"name": "rack", "per": "rack", "mtbf": "40d"}], "rack_nodes": 8,
    "checkpoint": {"in_memory": true}, "spares": 7})";
  Forecast answer = run_of(rack);
  const RunCase run = run_case_of(answer);
  ASSERT_EQ(run.causes.size(), 1u);
  EXPECT_EQ(run.causes[0].nodes, 8);
  EXPECT_TRUE(run.causes[0].needs_storage);
  EXPECT_DOUBLE_EQ(run.causes[0].per_second, 4.0 / (40.0 * 86'400.0));
  // One spare too few: each failure waits for a repair of one day.
  const auto waited = std::find_if(answer.result.run->lost_by_phase.begin(), answer.result.run->lost_by_phase.end(),
                                   [](const NamedSeconds& part) { return part.name == "wait_for_spare"; });
  ASSERT_NE(waited, answer.result.run->lost_by_phase.end());
  const double interruptions = answer.result.run->interruptions_per_day * answer.result.run->days.p50;
  EXPECT_NEAR(waited->seconds / interruptions, 86'400.0, 0.1 * 86'400.0);
  EXPECT_EQ(answer.result.run->spares_for_95, 8);
}

TEST(RunOfAJob, ReadsItsOwnJobAgain) {
  const Forecast answer = run_of(R"({"preset": "llama3", "spares": 3, "runs": 20, "seed": 9,
    "checkpoint": {"interval": "auto", "cost": "10s", "restore": "300s"}, "detection": "60s", "repair": "24h",
    "elastic": {"least_dp": 6, "regroup": "60s"},
    "slow_phases": {"rate": "0.6 per job month", "mean": "72min", "factor": 1.35}})");
  const nlohmann::ordered_json told = result_json(answer);
  Forecast again = forecast(read_job(nlohmann::json(told.at("job")), {}), no_files);
  add_run(again, WithOptions::kNo);
  EXPECT_EQ(result_json(again).at("run").dump(), told.at("run").dump());
}

TEST(RunOfAJob, ALogTellsRatesAndTheirDoubt) {
  const auto spread = [](double events) {
    const std::string text = R"({"causes": [{"name": "gpu", "events": )" + std::to_string(events) +
                             R"(}], "observed": {"gpus": 256, "days": )" + std::to_string(events) + "}}";
    const RunResult run = *run_of(text).result.run;
    return run.days.p95 - run.days.p5;
  };
  // The same rate, estimated from four events or from four hundred.
  EXPECT_GT(spread(4.0), 1.5 * spread(400.0));
}

TEST(RunOfAJob, MistakesNameTheirPlace) {
  const auto message_of = [](const std::string& failures) {
    return error_report(R"({"model": "gpt3-13b", "cluster": "dgx-h100", "layout": {"global_batch_size": 64},
                              "failures": )" +
                        failures + "}");
  };
  EXPECT_EQ(message_of("\"lama3\"").field, "failures.preset");
  EXPECT_NE(message_of("\"lama3\"").help.find("llama3"), std::string::npos);
  EXPECT_EQ(message_of(R"({"spares": -1})").field, "failures.spares");
  EXPECT_EQ(message_of(R"({"checkpoint": {"interval": "often"}})").field, "failures.checkpoint.interval");
  EXPECT_EQ(message_of(R"({"slow_phases": {"rate": "1 per century", "mean": "1h", "factor": 2}})").field,
            "failures.slow_phases.rate");
  EXPECT_EQ(message_of(R"({"slow_phases": {"rate": "1 per job day", "mean": "1h", "factor": 0.5}})").field,
            "failures.slow_phases.factor");
  EXPECT_EQ(message_of(R"({"causes": [{"name": "a"}]})").field, "failures.causes.0.mtbf");
  EXPECT_EQ(message_of(R"({"causes": [{"name": "a", "events": 3}]})").field, "failures.causes.0.events");
  EXPECT_EQ(message_of(R"({"causes": [{"name": "a", "mtbf": "1h"}, {"name": "a", "mtbf": "1h"}]})").field,
            "failures.causes.1.name");
  EXPECT_EQ(message_of(R"({"mtbf": "1h", "causes": []})").field, "failures.mtbf");
  EXPECT_EQ(message_of(R"({"checkpoint": {"memory_cost": "1s"}})").field, "failures.checkpoint.in_memory");
  EXPECT_EQ(message_of(R"({"detect": "1s"})").field, "failures.detect");
}

TEST(RunOfAJob, ASlowCardIsEverybodysCard) {
  const char* const layout = R"("model": "llama3-8b", "cluster": {"name": "dgx-h100", "nodes": 16},
    "layout": {"data_parallel": "fsdp", "global_batch_size": 128}, "training": {"tokens": "10B"})";
  const auto with = [&](const std::string& stragglers) {
    return forecast(
        job_from(fmt::format("{{{}, \"failures\": {{\"preset\": \"none\", \"stragglers\": {}}}}}", layout, stragglers)),
        no_files);
  };
  const Forecast slow = with(R"({"share": 1.0, "link_factor": 3})");
  Job narrow = slow.step.job;
  narrow.cluster.nic_bandwidth = narrow.cluster.nic_bandwidth / 3.0;
  const double step = forecast(narrow, no_files).result.iteration.time_s;
  EXPECT_GT(step, 1.1 * slow.result.iteration.time_s);
  EXPECT_NEAR(run_case_of(slow).slow_node_pace, slow.result.iteration.time_s / step, 1e-12);
  const double computes = run_case_of(with(R"({"share": 1.0, "factor": 1.3})")).slow_node_pace;
  const double both = run_case_of(with(R"({"share": 1.0, "factor": 1.3, "link_factor": 3})")).slow_node_pace;
  EXPECT_NEAR(1.0 / both, 1.0 / computes + step / slow.result.iteration.time_s - 1.0, 1e-9);
  EXPECT_THROW(with(R"({"share": 0.1})"), ConfigError);
  EXPECT_THROW(with(R"({"share": 0.1, "link_factor": 0.5})"), ConfigError);
}

TEST(RunOfAJob, RunsThatNobodyCanDrawAreRefused) {
  const std::string free = R"("checkpoint": {"cost": "0s", "restore": "0s"})";
  EXPECT_THROW(run_of(R"({"mtbf": "1s", )" + free + "}"), ConfigError);
  EXPECT_THROW(
      run_of(R"({"preset": "none", "slow_phases": {"rate": "9999 per gpu hour", "mean": "1us", "factor": 2}})"),
      ConfigError);
  EXPECT_THROW(run_of(R"({"preset": "none", "maintenance": {"every": "1us", "lasts": "0s"}})"), ConfigError);
  // Every node is slow, and so is its replacement.
  const Forecast slow = run_of(R"({"preset": "none", "runs": 2,
    "stragglers": {"share": 1.0, "factor": 1.5, "evict_after": "1us"}})");
  EXPECT_TRUE(slow.result.run.has_value() || !slow.result.warnings.empty());
  const Forecast away = run_of(R"({"mtbf": "50000h", "spares": 0, "repair": "100000000d", "runs": 3})");
  EXPECT_FALSE(away.result.run.has_value());
}

TEST(RunOfAJob, ARunThatNeverFinishesIsAWarning) {
  const Forecast answer = run_of(R"({"mtbf": "3h"})");
  EXPECT_FALSE(answer.result.run.has_value());
  EXPECT_NE(answer.result.warnings.back().find("never finishes"), std::string::npos);
}

}  // namespace
}  // namespace flopcast
