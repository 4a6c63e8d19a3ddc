#pragma once

#include <map>
#include <string>
#include <vector>

#include "realrun/training/train.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/realrun/delayed_gradients.hpp"

namespace flopcast::realrun {

/// A transformer that trains in milliseconds: `blocks` blocks of width 8.
NetworkSpec tiny_transformer(int blocks = 8);
/// A form of it: Mixtral, DeepSeek's experts, gpt-oss, GShard, Llama, Qwen 3, Mistral, Gemma 2, Falcon, GPT-NeoX,
/// BLOOM, BERT, or Llama 4's attention. Key/value heads are half as many as heads, and heads are wider than hidden /
/// heads, if those models have that.
struct NamedNetwork {
  const char* name;
  NetworkSpec network;
};
std::vector<NamedNetwork> network_forms(int blocks);
/// A random combination of the properties of these forms, from the seed; at least two key/value heads.
NetworkSpec random_network(std::uint64_t seed);

/// `request` under the schedule, on one replica of one rank each, with blocks spread as evenly as possible.
TrainingPlan plan_for(const NetworkSpec& network, const ScheduleInfo& info, const ScheduleRequest& request);

/// The same training on one rank: all microbatches of all replicas in order, and one update.
TrainingPlan serial_plan(const TrainingPlan& plan);

/// Whole parameters assembled from the ranks' parts. Fails a test if copies differ by a bit.
std::map<std::string, std::vector<float>> whole_weights(const std::vector<RankResult>& ranks);

/// Biases start at zero and stay small; errors are measured relative to weights of at least this size.
inline constexpr float kTypicalWeight = 0.2F;

/// Sums in a different order differ by some 1e-7, which three steps through norms of rows with little variance amplify:
/// to at most 5.8e-5 in all networks and layouts of the suite, under GCC and clang.
inline constexpr float kRounding = 1e-4F;

/// Losses of every step must agree to a relative 1e-5, and all final weights to kRounding of the largest in their
/// parameter. Fails a test otherwise, with `what` in the message.
void expect_same_training(const std::vector<RankResult>& expected, const std::vector<RankResult>& actual,
                          const std::string& what);

/// The same for a run without a flush, in one step.
void expect_delayed_training(const DelayedReference& expected, const std::vector<RankResult>& actual,
                             const std::string& what);

}  // namespace flopcast::realrun
