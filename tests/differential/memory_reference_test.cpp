// Weights, gradients and optimizer state of a rank, counted matrix by matrix as created by Megatron's modules.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

struct Shape {
  const char* name;
  long layers, hidden, ffn, vocab, positions;
  bool gated, biases, tied, layer_norm;
};

// Width times height, plus biases if any, of a rank's part of a linear layer split `ways` ways.
long column_cut(const Shape& shape, long in, long out, long ways) {
  return in * (out / ways) + (shape.biases ? out / ways : 0);
}
long row_cut(const Shape& shape, long in, long out, long ways) {
  return (in / ways) * out + (shape.biases ? out : 0);  // the sum over ranks gets the whole bias
}
long norm(const Shape& shape) {
  return shape.layer_norm ? 2 * shape.hidden : shape.hidden;
}

std::vector<long> parameters_by_rank(const Shape& shape, long tp, long pp) {
  // Megatron pads the vocabulary to a multiple of 128 on every rank.
  const long vocab = (shape.vocab + 128 * tp - 1) / (128 * tp) * (128 * tp);
  std::vector<long> held(static_cast<std::size_t>(pp), 0);
  for (long layer = 0; layer < shape.layers; ++layer) {
    long& rank = held[static_cast<std::size_t>(layer / (shape.layers / pp))];
    rank += norm(shape) + column_cut(shape, shape.hidden, 3 * shape.hidden, tp);
    rank += row_cut(shape, shape.hidden, shape.hidden, tp);
    rank += norm(shape) + column_cut(shape, shape.hidden, (shape.gated ? 2 : 1) * shape.ffn, tp);
    rank += row_cut(shape, shape.ffn, shape.hidden, tp);
  }
  held.front() += vocab / tp * shape.hidden + shape.positions * shape.hidden;
  held.back() += norm(shape);
  // A tied head is the embedding, or a copy of it on another rank.
  if (!shape.tied || pp > 1) held.back() += vocab / tp * shape.hidden;
  return held;
}

TEST(MemoryReference, StatesAreTheirMatrices) {
  const Shape shapes[] = {{"gpt3-1.3b", 24, 2048, 8192, 50257, 2048, false, true, true, true},
                          {"llama2-7b", 32, 4096, 11008, 32000, 0, true, false, false, false}};
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  constexpr long kDevices = 16;
  int compared = 0;
  for (const Shape& shape : shapes) {
    for (const long tp : {1L, 2L, 4L}) {
      for (const long pp : {1L, 2L, 4L}) {
        for (const long zero : {0L, 1L}) {
          const Json told =
              json_of(run_flopcast({"memory", "--model", shape.name, "--cluster", "2xdgx-a100-80g", "--gbs", "64",
                                    "--tp", std::to_string(tp), "--pp", std::to_string(pp), "--zero",
                                    std::to_string(zero), "--stack", "megatron-core", "--format", "json"}));
          const std::vector<long> parameters = parameters_by_rank(shape, tp, pp);
          const double shards = zero == 1 ? static_cast<double>(kDevices / (tp * pp)) : 1.0;
          for (std::size_t rank = 0; rank < parameters.size(); ++rank) {
            const Json& held = told.at("memory").at("per_pipeline_rank").at(rank);
            const auto own = static_cast<double>(parameters[rank]);
            const std::string which = std::string(shape.name) + " tp " + std::to_string(tp) + " pp " +
                                      std::to_string(pp) + " rank " + std::to_string(rank);
            // bf16 weights, fp32 sums of gradients, Adam's two moments and a copy of the weights in fp32.
            EXPECT_NEAR(held.at("weights_gib").get<double>() * kGib, 2.0 * own, 1.0) << which;
            EXPECT_NEAR(held.at("gradients_gib").get<double>() * kGib, 4.0 * own, 1.0) << which;
            EXPECT_NEAR(held.at("optimizer_gib").get<double>() * kGib, 12.0 * own / shards, 1.0) << which;
            ++compared;
          }
        }
      }
    }
  }
  EXPECT_EQ(compared, 2 * 3 * 2 * (1 + 2 + 4));
}

}  // namespace
}  // namespace flopcast
