#pragma once

#include <map>
#include <string>
#include <vector>

#include "realrun/training/train.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/realrun/delayed_gradients.hpp"

namespace flopcast::realrun {

/// A transformer that trains in milliseconds: 8 blocks of width 8, or as many as asked for.
NetworkSpec tiny_transformer(int blocks = 8);
/// A form of it: Mixtral's, DeepSeek's experts, gpt-oss's, GShard's, Llama's, Qwen 3's, Mistral's, Gemma 2's, Falcon's,
/// GPT-NeoX's, BLOOM's, BERT's, Llama 4's attention; key/value heads are half as many, and heads wider than hidden /
/// heads, where those models have that.
struct NamedNetwork {
  const char* name;
  NetworkSpec network;
};
std::vector<NamedNetwork> network_forms(int blocks);
/// Any combination of the forms' words, drawn by the seed; two key/value heads at least.
NetworkSpec random_network(std::uint64_t seed);

/// `request` under the schedule, on one replica of one rank each, with blocks spread as evenly as possible.
TrainingPlan plan_for(const NetworkSpec& network, const ScheduleInfo& info, const ScheduleRequest& request);

/// The same training on one rank: all microbatches of all replicas in their order, one update.
TrainingPlan serial_plan(const TrainingPlan& plan);

/// Whole parameters put together from what the ranks hold. Fails a test when copies differ by a bit.
std::map<std::string, std::vector<float>> whole_weights(const std::vector<RankResult>& ranks);

/// Biases start at nothing and stay small; errors are measured against weights of this size at least.
inline constexpr float kTypicalWeight = 0.2F;

/// Sums in another order differ by some 1e-7, which three steps behind norms of rows that vary little blow up:
/// to 5.8e-5 at most in all networks and layouts of the suite, under GCC and clang.
inline constexpr float kRounding = 1e-4F;

/// Losses of every step agree to a relative 1e-5, and all final weights to kRounding of the largest in their parameter.
/// Fails a test otherwise, with `what` in the message.
void expect_same_training(const std::vector<RankResult>& expected, const std::vector<RankResult>& actual,
                          const std::string& what);

/// The same for a run without a flush, in one step.
void expect_delayed_training(const DelayedReference& expected, const std::vector<RankResult>& actual,
                             const std::string& what);

}  // namespace flopcast::realrun
