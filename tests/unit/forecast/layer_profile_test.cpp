// Models defined by measurement: reading, linearising, balancing and simulating them.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "model/job/read_job.hpp"
#include "model/partition/balanced_split.hpp"
#include "sim/forecast/forecast.hpp"
#include "tests/support/folders.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

std::string job_text(const nlohmann::json& model, const char* layout) {
  return nlohmann::json{{"model", model}, {"cluster", "dgx-a100-80g"}, {"layout", nlohmann::json::parse(layout)}}
      .dump();
}

nlohmann::json small_profile() {
  return nlohmann::json::parse(R"({"name": "small", "measured_on": "a stopwatch", "micro_batch_size": 2, "layers": [
    {"name": "a", "forward_s": 0.1, "backward_s": 0.2, "activation_bytes": 100, "output_bytes": 10, "parameter_bytes": 40},
    {"name": "b", "forward_s": 0.1, "input_gradient_s": 0.05, "weight_gradient_s": 0.15, "activation_bytes": 200, "output_bytes": 20},
    {"name": "c", "forward_s": 0.3, "backward_s": 0.6, "activation_bytes": 300, "output_bytes": 0, "parameter_bytes": 80}]})");
}

double breakdown_sum(const Breakdown& b) {
  return b.compute_s + b.recompute_s + b.tp_comm_s + b.pp_comm_s + b.dp_comm_s + b.cp_comm_s + b.ep_comm_s +
         b.optimizer_s + b.bubble_s;
}

TEST(LayerProfile, AStageIsTheSumOfItsLayers) {
  const Job job = job_from(job_text(
      small_profile(), R"({"pp": 2, "micro_batch_size": 4, "global_batch_size": 128, "stage_layers": [2, 1]})"));
  ASSERT_TRUE(job.profile.has_value());
  EXPECT_EQ(job.model.layers, 3);
  EXPECT_DOUBLE_EQ(job.profile->parameters(), 30.0);
  const PreparedStep step = prepare(job, no_files);
  ASSERT_EQ(step.costs.stages.size(), 2u);
  // Twice the measured microbatch: twice the time and the bytes, not the parameters.
  EXPECT_DOUBLE_EQ(step.costs.stages[0].forward.compute.value(), 0.4);
  EXPECT_DOUBLE_EQ(step.costs.stages[0].input_gradient.compute.value(), 2 * (0.1 + 0.05));
  EXPECT_DOUBLE_EQ(step.costs.stages[0].weight_gradient.compute.value(), 2 * (0.1 + 0.15));
  EXPECT_DOUBLE_EQ(step.costs.stages[0].activation.value(), 600.0);
  EXPECT_DOUBLE_EQ(step.costs.stages[0].parameters, 10.0);
  EXPECT_DOUBLE_EQ(step.costs.stages[1].parameters, 20.0);
  EXPECT_DOUBLE_EQ(step.costs.boundaries[0].bytes.value(), 40.0);
  EXPECT_EQ(step.times.stages[0].backward, 800'000'000'000);
}

TEST(LayerProfile, FullRecomputationKeepsTheStagesInput) {
  const Job job = job_from(job_text(
      small_profile(),
      R"({"pp": 2, "micro_batch_size": 2, "global_batch_size": 64, "stage_layers": [2, 1], "recompute": "full"})"));
  const PreparedStep step = prepare(job, no_files);
  EXPECT_DOUBLE_EQ(step.costs.stages[0].activation.value(), 0.0);
  EXPECT_DOUBLE_EQ(step.costs.stages[1].activation.value(), 20.0);
  EXPECT_DOUBLE_EQ(step.costs.stages[1].recompute_buffer.value(), 300.0);
  EXPECT_DOUBLE_EQ(step.costs.stages[1].recompute.compute.value(), 0.3);
}

// With negligible communication the step is the closed form of 1F1B: (m + p - 1)(F + B) for equal stages.
TEST(LayerProfile, EqualLayersMeetTheClosedForm) {
  nlohmann::json model = {{"micro_batch_size", 1}, {"layers", nlohmann::json::array()}};
  for (int layer = 0; layer < 8; ++layer) model["layers"].push_back({{"forward_s", 0.25}, {"backward_s", 0.5}});
  const Result result = forecast(job_from(job_text(model, R"({"pp": 8, "global_batch_size": 16})")), no_files).result;
  EXPECT_NEAR(result.iteration.time_s, (16 + 7) * 0.75, 0.01);
  EXPECT_NEAR(result.bubble.fraction, 7.0 / 23.0, 1e-3);
  EXPECT_EQ(result.iteration.mfu, 0.0);
  EXPECT_EQ(result.iteration.model_tflops_per_gpu, 0.0);
}

TEST(LayerProfile, RefusesWhatAProfileCannotSay) {
  const std::pair<const char*, const char*> layouts[] = {
      {R"({"tp": 2, "global_batch_size": 64})", "layout.tp"},
      {R"({"cp": 2, "global_batch_size": 64})", "layout.cp"},
      {R"({"recompute": "selective", "global_batch_size": 64})", "layout.recompute"},
      {R"({"sequence_parallel": true, "global_batch_size": 64})", "layout.sequence_parallel"},
      {R"({"zero": 3, "global_batch_size": 64})", "layout.zero"},
      {R"({"data_parallel": "fsdp", "global_batch_size": 64})", "layout.data_parallel"},
      {R"({"offload": "activations", "global_batch_size": 64})", "layout.offload"},
  };
  for (const auto& [layout, field] : layouts) {
    EXPECT_EQ(error_report(job_text(small_profile(), layout)).field, field) << layout;
  }
  const std::pair<const char*, const char*> layers[] = {
      {R"({"backward_s": 1})", "model.layers.0.forward_s"},
      {R"({"forward_s": 1})", "model.layers.0.backward_s"},
      {R"({"forward_s": -1, "backward_s": 1})", "model.layers.0.forward_s"},
      {R"({"forward_s": "1s", "backward_s": 1})", "model.layers.0.forward_s"},
      {R"({"forward_s": 1, "backward_s": 1, "weight_gradient_s": 1})", "model.layers.0.backward_s"},
      {R"({"forward_s": 1, "backward_s": 1, "outptu_bytes": 1})", "model.layers.0.outptu_bytes"},
      {R"([])", "model.layers.0"},
  };
  for (const auto& [layer, field] : layers) {
    const nlohmann::json model = {{"layers", {nlohmann::json::parse(layer)}}};
    EXPECT_EQ(error_report(job_text(model, R"({"global_batch_size": 64})")).field, field) << layer;
  }
  EXPECT_EQ(error_report(job_text({{"layers", nlohmann::json::array()}}, R"({"global_batch_size": 64})")).field,
            "model.layers");
}

// A diamond with a skip: a feeds b and d, b feeds c, c feeds d. After b, a's output is still needed.
constexpr const char* kDiamond =
    "node1 -- Input -- forward_compute_time=9.000, backward_compute_time=0.000, activation_size=5.0, "
    "parameter_size=0.000\n"
    "node5 -- d(x, y) -- forward_compute_time=4.000, backward_compute_time=8.000, activation_size=1.0, "
    "parameter_size=4.000\n"
    "node2 -- a -- forward_compute_time=1.000, backward_compute_time=2.000, activation_size=[100; 20], "
    "parameter_size=0.000\n"
    "node3 -- b -- forward_compute_time=2.000, backward_compute_time=4.000, activation_size=7.0, parameter_size=8.000\n"
    "node4 -- c -- forward_compute_time=3.000, backward_compute_time=6.000, activation_size=9.0, parameter_size=0.000 "
    "-- stage_id=1\n"
    "\tnode1 -- node2\n\tnode2 -- node3\n\tnode3 -- node4\n\tnode4 -- node5\n\tnode2 -- node5\n";

TEST(LayerProfile, PutsAGraphInARow) {
  const nlohmann::json model = profile_from_graph(kDiamond, "some/where/diamond.graph.txt");
  EXPECT_EQ(model["name"], "diamond");
  ASSERT_EQ(model["layers"].size(), 4u);
  const char* names[] = {"a", "b", "c", "d(x, y)"};
  const double cuts[] = {120, 127, 129, 0};
  for (std::size_t index = 0; index < 4; ++index) {
    EXPECT_EQ(model["layers"][index]["name"], names[index]);
    EXPECT_DOUBLE_EQ(model["layers"][index]["output_bytes"].get<double>(), cuts[index]);
    EXPECT_DOUBLE_EQ(model["layers"][index]["forward_s"].get<double>(), 1e-3 * static_cast<double>(index + 1));
  }
}

TEST(LayerProfile, LocatesWhatIsWrongInAGraph) {
  const std::string good = kDiamond;
  const std::pair<std::string, const char*> cases[] = {
      {"", "g.txt:0"},
      {"rubbish\n", "g.txt:1"},
      {good + "\tnode5 -- node9\n", "g.txt:11"},
      {good + "\tnode5\n", "g.txt:11"},
      {good + "node5 -- e -- forward_compute_time=1, backward_compute_time=1, activation_size=1, parameter_size=1\n",
       "g.txt:11"},
      {good + "node6 -- e -- forward_compute_time=x, backward_compute_time=1, activation_size=1, parameter_size=1\n",
       "g.txt:11"},
      {good + "node6 -- e -- forward_compute_time=1, activation_size=1, parameter_size=1\n", "g.txt:11"},
      {good + "\tnode5 -- node2\n", "g.txt:2"},
  };
  for (const auto& [text, where] : cases) {
    try {
      profile_from_graph(text, "g.txt");
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.diagnostic().where, where) << error.what();
    }
  }
}

LayerProfile profile_of_times(const std::vector<double>& times) {
  LayerProfile profile;
  for (const double time : times) {
    ProfiledLayer layer;
    layer.forward = Seconds(time);
    profile.layers.push_back(layer);
  }
  return profile;
}

double slowest(const std::vector<double>& times, const std::vector<int>& counts) {
  double worst = 0.0;
  std::size_t next = 0;
  for (const int count : counts) {
    double sum = 0.0;
    for (int index = 0; index < count; ++index) sum += times.at(next++);
    worst = std::max(worst, sum);
  }
  EXPECT_EQ(next, times.size());
  return worst;
}

// Compared with the exact dynamic program over contiguous partitions, computed separately.
TEST(LayerProfile, BalancesAsWellAsPossible) {
  const auto folder = reference_folder();
  if (!folder) GTEST_SKIP() << "no reference folder: set FLOPCAST_REFERENCE";
  const auto cases = nlohmann::json::parse(read_text(*folder / "goldens" / "torchgpipe_balance.json")).at("cases");
  int compared = 0;
  for (const auto& entry : cases) {
    if (!entry.contains("optimal_max_block")) continue;
    const auto times = entry.at("sequence").get<std::vector<double>>();
    const std::vector<int> counts = balanced_stage_layers(profile_of_times(times), entry.at("partitions").get<int>());
    EXPECT_NEAR(slowest(times, counts), entry.at("optimal_max_block").get<double>(), 1e-6) << entry;
    for (const int count : counts) EXPECT_GE(count, 1);
    ++compared;
  }
  std::cout << "balanced stages: " << compared << " cases as good as the exact optimum\n";
  EXPECT_GT(compared, 70);
}

// Every profile that PipeDream published can be simulated, and loses nothing on import.
TEST(LayerProfile, SimulatesEveryPublishedProfile) {
  const auto folder = reference_folder();
  if (!folder) GTEST_SKIP() << "no reference folder: set FLOPCAST_REFERENCE";
  int profiles = 0;
  for (const auto& file : std::filesystem::directory_iterator(*folder / "goldens" / "pipedream_profiles")) {
    if (file.path().extension() != ".txt") continue;
    const std::string name = file.path().string();
    const nlohmann::json model = profile_from_graph(read_text(file.path()), name);
    double seconds = 0.0;
    double parameters = 0.0;
    double activations = 0.0;
    for (const auto& layer : model["layers"]) {
      seconds += layer["forward_s"].get<double>() + layer["backward_s"].get<double>();
      parameters += layer["parameter_bytes"].get<double>() / 4;
      activations += layer["activation_bytes"].get<double>();
    }
    for (const char* layout : {R"({"global_batch_size": 64})", R"({"pp": 4, "global_batch_size": 16})",
                               R"({"pp": 8, "schedule": "pipedream", "global_batch_size": 16})",
                               R"({"pp": 4, "schedule": "gpipe", "recompute": "full", "global_batch_size": 16})",
                               R"({"pp": 2, "vpp": 2, "schedule": "interleaved", "global_batch_size": 16})"}) {
      const Forecast answer = forecast(job_from(job_text(model, layout)), no_files);
      const Result& result = answer.result;
      EXPECT_TRUE(std::isfinite(result.iteration.time_s)) << name << layout;
      EXPECT_NEAR(breakdown_sum(result.breakdown) / result.iteration.time_s, 1.0, 1e-9) << name << layout;
      double stage_seconds = 0.0;
      double stage_parameters = 0.0;
      double stage_activations = 0.0;
      for (const StageCosts& stage : answer.step.costs.stages) {
        stage_seconds += (stage.forward.compute + stage.input_gradient.compute + stage.weight_gradient.compute).value();
        stage_parameters += stage.parameters;
        stage_activations += std::max(stage.activation.value(), stage.recompute_buffer.value());
      }
      EXPECT_NEAR(stage_seconds / seconds, 1.0, 1e-9) << name << layout;
      EXPECT_NEAR(stage_parameters / parameters, 1.0, 1e-9) << name << layout;
      EXPECT_NEAR(stage_activations / activations, 1.0, 1e-9) << name << layout;
      EXPECT_GE(result.iteration.time_s * answer.step.job.cluster.devices() * (1 + 1e-9), seconds * 16) << name;
    }
    ++profiles;
  }
  std::cout << "layer profiles: " << profiles << " simulated in 5 layouts each\n";
  EXPECT_EQ(profiles, 14);
}

// 672.535 ms on one machine: the figure of PipeDream's own optimizer for its VGG-16 profile.
TEST(LayerProfile, OneMachineTakesWhatPipeDreamSays) {
  const auto folder = reference_folder();
  if (!folder) GTEST_SKIP() << "no reference folder: set FLOPCAST_REFERENCE";
  const auto cases = nlohmann::json::parse(read_text(*folder / "goldens" / "pipedream_partition.json")).at("cases");
  int compared = 0;
  for (const auto& entry : cases) {
    if (!entry.contains("single_machine_time_s") || entry.at("single_machine_time_s").is_null()) continue;
    const auto file =
        *folder / "goldens" / "pipedream_profiles" / (entry.at("profile").get<std::string>() + ".graph.txt");
    if (!std::filesystem::exists(file)) continue;
    double seconds = 0.0;
    const nlohmann::json model = profile_from_graph(read_text(file), file.string());
    for (const auto& layer : model["layers"]) {
      seconds += layer["forward_s"].get<double>() + layer["backward_s"].get<double>();
    }
    EXPECT_NEAR(seconds, entry.at("single_machine_time_s").get<double>(), 1e-6) << entry.at("profile");
    ++compared;
  }
  std::cout << "one-machine times: " << compared << " cases compared\n";
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace flopcast
