// Splits of layers into stages, compared with those of torchgpipe and PipeDream, and with exact optima computed
// elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "model/job/read_job.hpp"
#include "model/partition/balanced_split.hpp"
#include "model/partition/pipedream_planner.hpp"
#include "tests/support/folders.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

class Partition : public testing::Test {
 protected:
  void SetUp() override {
    const auto folder = reference_folder();
    if (!folder) GTEST_SKIP() << "no reference folder: set FLOPCAST_REFERENCE";
    goldens_ = *folder / "goldens";
  }
  std::filesystem::path goldens_;
};

double dearest(const std::vector<double>& costs) {
  return *std::max_element(costs.begin(), costs.end());
}

TEST_F(Partition, NeverWorseThanTorchgpipe) {
  int equal = 0;
  int better = 0;
  int refused = 0;
  const Json cases = Json::parse(read_text(goldens_ / "torchgpipe_balance.json")).at("cases");
  for (const Json& entry : cases) {
    const auto costs = entry.at("sequence").get<std::vector<double>>();
    const int parts = entry.at("partitions").get<int>();
    if (entry.contains("error")) {
      EXPECT_THROW(min_max_partition(costs, parts), ConfigError) << entry;
      ++refused;
      continue;
    }
    const std::vector<int> sizes = min_max_partition(costs, parts);
    ASSERT_EQ(sizes.size(), static_cast<std::size_t>(parts));
    EXPECT_GE(*std::min_element(sizes.begin(), sizes.end()), 1) << entry;
    const double ours = dearest(part_costs(costs, sizes));
    const double theirs = dearest(part_costs(costs, entry.at("balance").get<std::vector<int>>()));
    EXPECT_LE(ours, theirs) << entry;
    if (entry.contains("optimal_max_block")) {
      EXPECT_EQ(ours, entry.at("optimal_max_block").get<double>()) << entry;
    }
    (ours < theirs ? better : equal) += 1;
  }
  std::cout << "torchgpipe: " << equal << " cases as good, " << better << " better, " << refused << " refused alike\n";
  EXPECT_GT(better, 25);
  EXPECT_GT(equal, 40);
  EXPECT_GE(refused, 2);
}

std::vector<PlannerLevel> levels_of(const Json& entry) {
  std::vector<PlannerLevel> levels;
  for (std::size_t index = 0; index < entry.at("all_num_machines").size(); ++index) {
    levels.push_back({entry.at("all_num_machines")[index].get<int>(),
                      BytesPerSecond(entry.at("network_bandwidths")[index].get<double>())});
  }
  return levels;
}

PlannerOptions options_of(const Json& entry, PlannerRules rules) {
  PlannerOptions options;
  options.rules = rules;
  options.straight = entry.at("straight_pipeline").get<bool>();
  options.fewer_workers = entry.at("use_fewer_machines").get<bool>();
  if (entry.at("use_memory_constraint").get<bool>()) options.memory = Bytes(entry.at("memory_size").get<double>());
  if (!entry.at("activation_compression_ratio").is_null()) {
    options.activation_compression = entry.at("activation_compression_ratio").get<double>();
  }
  return options;
}

TEST_F(Partition, ReproducesPipeDreamsPlans) {
  constexpr double kRelative = 1e-9;
  std::map<std::string, CutStates> profiles;
  int equal = 0;
  int paper_equal = 0;
  int paper_faster = 0;
  int paper_activations = 0;
  int paper_gradients = 0;
  int timed_out = 0;
  double slowest = 0.0;
  const Json cases = Json::parse(read_text(goldens_ / "pipedream_partition.json")).at("cases");
  for (const Json& entry : cases) {
    const auto name = entry.at("profile").get<std::string>();
    if (profiles.find(name) == profiles.end()) {
      const auto file = goldens_ / "pipedream_profiles" / (name + ".graph.txt");
      profiles[name] = cut_states(read_layer_graph(read_text(file), file.string()));
    }
    const CutStates& cuts = profiles[name];
    const auto begin = std::chrono::steady_clock::now();
    const auto plan = plan_pipeline(cuts, levels_of(entry), options_of(entry, PlannerRules::kPublishedCode));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ASSERT_TRUE(plan.has_value()) << entry.dump().substr(0, 200);
    if (entry.at("status") != "ok") {
      std::cout << "pipedream: " << name << " " << entry.at("all_num_machines") << ", which took their optimizer over "
                << "60 s, planned in " << seconds << " s\n";
      slowest = std::max(slowest, seconds);
      ++timed_out;
      continue;
    }
    EXPECT_EQ(cuts.states.size(), entry.at("n_states").get<std::size_t>()) << name;
    const double expected = entry.at("time_per_stage_s").get<double>();
    EXPECT_NEAR(plan->time_per_minibatch.value() / expected, 1.0, kRelative) << entry.dump().substr(0, 300);
    EXPECT_NEAR(plan->data_parallel.value() / entry.at("data_parallel_time_s").get<double>(), 1.0, kRelative) << name;
    if (std::abs(plan->time_per_minibatch.value() / expected - 1.0) < kRelative) ++equal;
    PlannerOptions options = options_of(entry, PlannerRules::kPaper);
    const auto ratio_of = [&]() {
      const auto paper = plan_pipeline(cuts, levels_of(entry), options);
      return paper ? paper->time_per_minibatch.value() / expected : std::numeric_limits<double>::infinity();
    };
    const double ratio = ratio_of();
    if (std::abs(ratio - 1.0) < kRelative) {
      ++paper_equal;
    } else if (ratio < 1.0) {
      ++paper_faster;
    } else {
      // Slower only in terms that the code undercounts: activations over cuts, the current version in the memory test,
      // and beyond two replicas the gradients, which it divides by their number twice.
      options.activation_compression = 1e18;
      options.memory.reset();
      if (ratio_of() > 1.0 + kRelative) {
        const auto replicated = [](const PlannedStage& stage) { return stage.replicas > 2; };
        EXPECT_TRUE(std::any_of(plan->stages.begin(), plan->stages.end(), replicated)) << entry.dump().substr(0, 200);
        ++paper_gradients;
      } else {
        ++paper_activations;
      }
    }
  }
  std::cout << "pipedream: " << equal << " plans as fast under the code's rules\n"
            << "pipedream: under the paper's rules " << paper_equal << " as fast, " << paper_faster
            << " faster (gradients travel behind compute), " << paper_activations
            << " slower (activations over cuts, memory), " << paper_gradients
            << " slower (gradients divided by the replicas once)\n"
            << "pipedream: slowest of " << timed_out << " cases that timed out there " << slowest << " s\n";
  EXPECT_EQ(equal, 82);
  EXPECT_EQ(timed_out, 9);
  EXPECT_EQ(paper_equal + paper_faster + paper_activations + paper_gradients, equal);
}

}  // namespace
}  // namespace flopcast
