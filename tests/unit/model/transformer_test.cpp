#include "model/workload/transformer.hpp"

#include <gtest/gtest.h>

#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

Transformer model_named(const std::string& name) {
  return job_from(R"({"model": ")" + name + R"(", "cluster": "dgx-a100-80g", "layout": {"global_batch_size": 8}})")
      .model;
}

// Narayanan et al. 2104.04473 eq. 2: P = 12Lh²(1 + 13/12h + (V + s)/12Lh), plus the final norm's 2h.
double narayanan(double layers, double hidden, double vocab, double sequence) {
  return 12 * layers * hidden * hidden * (1 + 13 / (12 * hidden) + (vocab + sequence) / (12 * layers * hidden)) +
         2 * hidden;
}

TEST(Transformer, MatchesTheFormulaOfNarayanan) {
  EXPECT_EQ(count_parameters(model_named("gpt3-175b")).total, 174'604'259'328);
  for (const char* name : {"gpt3-175b", "megatron-22b", "megatron-530b", "megatron-1t"}) {
    const Transformer model = model_named(name);
    const double expected = narayanan(model.layers, model.hidden, model.vocab, model.sequence_length);
    EXPECT_NEAR(static_cast<double>(count_parameters(model).total), expected, expected * 1e-12) << name;
  }
  // The names are rounded sizes of the models trained in Korthikanti et al. 2205.05198 Table 3.
  EXPECT_NEAR(static_cast<double>(count_parameters(model_named("megatron-22b")).total) / 1e9, 22.0, 0.5);
  EXPECT_NEAR(static_cast<double>(count_parameters(model_named("megatron-530b")).total) / 1e9, 530.0, 1.0);
  EXPECT_NEAR(static_cast<double>(count_parameters(model_named("megatron-1t")).total) / 1e9, 1008.0, 2.0);
}

TEST(Transformer, CountsGroupedQueriesGatesAndUntiedHeads) {
  Transformer model;
  model.layers = 2;
  model.hidden = 8;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 2;
  model.ffn = 20;
  model.vocab = 100;
  model.gated_mlp = true;
  model.biases = false;
  model.norm = Norm::kRmsNorm;
  model.positions = Positions::kRotary;
  model.tied_embeddings = false;
  const ParameterCounts counts = count_parameters(model);
  EXPECT_EQ(counts.block, 8 * (8 + 2 * 4) + 8 * 8 + 3 * 8 * 20 + 2 * 8);
  EXPECT_EQ(counts.embedding, 800);
  EXPECT_EQ(counts.head, 8 + 800);
  EXPECT_EQ(counts.total, 2 * counts.block + 1608);
}

TEST(Transformer, PadsTheVocabularyForEveryRank) {
  EXPECT_EQ(padded_vocab(50'257, 128, 8), 51'200);  // size with which Megatron trains GPT-3
  EXPECT_EQ(padded_vocab(50'257, 128, 1), 50'304);
  EXPECT_EQ(padded_vocab(51'200, 128, 8), 51'200);
  EXPECT_EQ(padded_vocab(50'257, 1, 1), 50'257);
}

}  // namespace
}  // namespace flopcast
