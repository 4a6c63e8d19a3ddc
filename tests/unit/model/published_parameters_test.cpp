#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "model/catalog/catalogue.hpp"
#include "model/workload/transformer.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

struct Published {
  const char* model;
  double total;         // as published
  double rounding;      // half a unit of the last digit, or the parts that the description excludes
  const char* source;   // source of the count, not of the shape
  double active = 0.0;  // for mixtures of experts
  double active_rounding = 0.0;
};

constexpr double kM = 1e6;
constexpr double kB = 1e9;
constexpr const char* kSafetensors = "parameter count of the safetensors on Hugging Face";
constexpr const char* kLlama2 = "2307.09288, Table 1";
constexpr const char* kTable1 = "2104.04473, Table 1";
constexpr const char* kGpt3 = "2005.14165, Table 2.1";
constexpr const char* kQwen25 = "2412.15115, model cards";
constexpr const char* kQwen3 = "2505.09388, model cards";

// Names such as "1.3B" of GPT-3 and OPT are only nominal: the tolerance is the distance of the shape from the name.
constexpr Published kPublished[] = {
    {"gpt2-124m", 124'439'808, 0, kSafetensors},
    {"gpt2-355m", 354'823'168, 0, kSafetensors},
    {"gpt2-774m", 774'030'080, 0, kSafetensors},
    {"gpt2-1.5b", 1'557'611'200, 0, kSafetensors},
    {"gpt3-125m", 125 * kM, 1.5 * kM, kGpt3},
    {"gpt3-350m", 350 * kM, 7 * kM, kGpt3},
    {"gpt3-760m", 760 * kM, 2 * kM, kGpt3},
    {"gpt3-1.3b", 1.3 * kB, 0.05 * kB, kGpt3},
    {"gpt3-2.7b", 2.7 * kB, 0.06 * kB, kGpt3},
    {"gpt3-6.7b", 6.7 * kB, 0.05 * kB, kGpt3},
    {"gpt3-13b", 13.0 * kB, 0.5 * kB, kGpt3},
    {"gpt3-175b", 174.6 * kB, 0.05 * kB, "2005.14165, Table D.1"},
    {"megatron-1.7b", 1.7 * kB, 0.05 * kB, kTable1},
    {"megatron-3.6b", 3.6 * kB, 0.05 * kB, kTable1},
    {"megatron-7.5b", 7.5 * kB, 0.05 * kB, kTable1},
    {"megatron-18.4b", 18.4 * kB, 0.05 * kB, kTable1},
    {"megatron-39.1b", 39.1 * kB, 0.05 * kB, kTable1},
    {"megatron-76.1b", 76.1 * kB, 0.05 * kB, kTable1},
    {"megatron-145.6b", 145.6 * kB, 0.05 * kB, kTable1},
    {"megatron-310b", 310.1 * kB, 0.05 * kB, kTable1},
    {"megatron-530b", 529.6 * kB, 0.05 * kB, kTable1},
    {"megatron-1t", 1008.0 * kB, 0.05 * kB, kTable1},
    {"megatron-22b", 22.0 * kB, 0.5 * kB, "2205.05198, Table 3"},
    {"llama2-7b", 6'738'415'616, 0, kSafetensors},
    {"llama2-13b", 13'015'864'320, 0, kSafetensors},
    {"llama2-70b", 68'976'648'192, 0, kSafetensors},
    {"llama3-8b", 8'030'261'248, 0, kSafetensors},
    {"llama3-70b", 70'553'706'496, 0, kSafetensors},
    {"llama3.1-8b", 8'030'261'248, 0, kSafetensors},
    {"llama3.1-70b", 70'553'706'496, 0, kSafetensors},
    {"llama3.1-405b", 405'853'388'800, 0, kSafetensors},
    {"qwen2.5-0.5b", 0.49 * kB, 0.005 * kB, kQwen25},
    {"qwen2.5-1.5b", 1.54 * kB, 0.005 * kB, kQwen25},
    {"qwen2.5-3b", 3.09 * kB, 0.005 * kB, kQwen25},
    {"qwen2.5-7b", 7'615'616'512, 0, kSafetensors},
    {"qwen2.5-14b", 14'770'033'664, 0, kSafetensors},
    {"qwen2.5-32b", 32'763'876'352, 0, kSafetensors},
    {"qwen2.5-72b", 72'706'203'648, 0, kSafetensors},
    {"qwen3-0.6b", 0.6 * kB, 0.05 * kB, kQwen3},
    {"qwen3-1.7b", 1.7 * kB, 0.05 * kB, kQwen3},
    {"qwen3-4b", 4.0 * kB, 0.05 * kB, kQwen3},
    {"qwen3-8b", 8'190'735'360, 0, kSafetensors},
    {"qwen3-14b", 14'768'307'200, 0, kSafetensors},
    {"qwen3-32b", 32'762'123'264, 0, kSafetensors},
    {"qwen3-30b-a3b", 30'532'122'624, 0, kSafetensors, 3.3 * kB, 0.1 * kB},
    {"qwen3-235b-a22b", 235'093'634'560, 0, kSafetensors, 22.0 * kB, 0.5 * kB},
    {"mistral-7b", 7'241'732'096, 0, kSafetensors},
    {"mixtral-8x7b", 46'702'792'704, 0, kSafetensors, 12.9 * kB, 0.05 * kB},
    {"mixtral-8x22b", 141 * kB, 0.5 * kB, "Mistral AI, announcement of April 2024", 39 * kB, 0.5 * kB},
    {"deepseek-v3", 671 * kB, 0.5 * kB, "2412.19437, abstract", 37 * kB, 0.6 * kB},
    // Without the biases that balance the router.
    {"kimi-k2", 1'026'408'232'448 - 60.0 * 384, 0, kSafetensors, 32 * kB, 1 * kB},
    {"qwen3-coder-480b-a35b", 480'154'875'392, 0, kSafetensors, 35 * kB, 0.6 * kB},
    {"deepseek-r1", 671 * kB, 0.5 * kB, "deepseek-ai/DeepSeek-R1, README", 37 * kB, 0.6 * kB},
    {"glm-4.5", 355 * kB, 3 * kB, "2508.06471, Table 1", 32 * kB, 1.7 * kB},
    {"glm-4.6", 355 * kB, 3 * kB, "zai-org/GLM-4.6 on Hugging Face", 32 * kB, 1.7 * kB},
    {"glm-4.5-air", 106 * kB, 1 * kB, "2508.06471, Table 1", 12 * kB, 1.5 * kB},
    // The published active count excludes the embedding table; the count here includes it.
    {"gpt-oss-20b", 20'914'757'184, 0, kSafetensors, 3.61 * kB + 201'088 * 2880.0, 0.01 * kB},
    {"gpt-oss-120b", 116'829'156'672, 0, kSafetensors, 5.13 * kB + 201'088 * 2880.0, 0.01 * kB},
    {"olmoe-1b-7b", 6'919'161'856, 0, kSafetensors, 1.3 * kB, 0.05 * kB},
    // Also without the embedding table.
    {"minimax-m2", 230 * kB, 2 * kB, "MiniMaxAI/MiniMax-M2 on Hugging Face", 10 * kB + 200'064 * 3072.0, 0.5 * kB},
    {"dbrx", 131'596'523'520, 0, kSafetensors, 36 * kB, 0.5 * kB},
    // The original shares the head with the embedding table; a separate head adds 0.8 B.
    {"grok-1", 314 * kB, 2 * kB, "xai-org/grok-1, README", 0.25 * 314 * kB, 6 * kB},
    // Without the vision encoder and its projection, which are the same in both.
    {"llama4-scout", 108'641'793'536 - 871'932'416, 0, kSafetensors, 17 * kB, 0.5 * kB},
    {"llama4-maverick", 401'583'781'376 - 871'932'416, 0, kSafetensors, 17 * kB, 0.5 * kB},
    {"opt-125m", 125'239'296, 2 * 768, kSafetensors},
    {"opt-1.3b", 1'315'758'080, 2 * 2048, kSafetensors},
    {"opt-2.7b", 2.7 * kB, 0.05 * kB, "2205.01068, Table 1"},
    {"opt-6.7b", 6.7 * kB, 0.05 * kB, "2205.01068, Table 1"},
    {"opt-13b", 13 * kB, 0.5 * kB, "2205.01068, Table 1"},
    {"opt-30b", 30 * kB, 0.5 * kB, "2205.01068, Table 1"},
    {"opt-66b", 66 * kB, 0.5 * kB, "2205.01068, Table 1"},
    {"opt-175b", 175 * kB, 0.5 * kB, "2205.01068, Table 1"},
    {"bloom-560m", 559'214'592, 0, kSafetensors},
    {"bloom-1b1", 1'065'314'304, 0, kSafetensors},
    {"bloom-1b7", 1'722'408'960, 0, kSafetensors},
    {"bloom-3b", 3'002'557'440, 0, kSafetensors},
    {"bloom-7b1", 7'069'016'064, 0, kSafetensors},
    {"bloom-176b", 176'247'271'424, 0, "2211.05100, Table 3"},
    // Without pooler (1024·1025) and token types (2·1024), but with the final norm (2·1024) of its head.
    {"bert-large", 335'141'888 - 1024.0 * 1025, 0, kSafetensors},
};

ParameterCounts counts_of(const std::string& name) {
  return count_parameters(
      job_from(R"({"model": ")" + name + R"(", "cluster": "one-gpu", "layout": {"global_batch_size": 1}})").model);
}

TEST(PublishedParameters, AreCounted) {
  int exact = 0;
  for (const Published& published : kPublished) {
    const ParameterCounts counts = counts_of(published.model);
    const double total = static_cast<double>(counts.total);
    EXPECT_NEAR(total, published.total, published.rounding) << published.model << ", " << published.source;
    if (total == published.total) ++exact;
    if (published.active > 0) {
      EXPECT_NEAR(static_cast<double>(counts.active), published.active, published.active_rounding) << published.model;
    } else {
      EXPECT_EQ(counts.active, counts.total) << published.model;
    }
  }
  std::printf("%zu published parameter counts, %d matched exactly\n", std::size(kPublished), exact);
}

TEST(PublishedParameters, CoverTheCatalogue) {
  for (const std::string& name : catalogue_names(CatalogueKind::kModels)) {
    const bool listed = std::any_of(std::begin(kPublished), std::end(kPublished),
                                    [&name](const Published& published) { return published.model == name; });
    EXPECT_TRUE(listed) << name << " has no published count to compare with";
  }
}

// DeepSeek-V3's README_WEIGHTS: a module of 11.5 B unique parameters, without the embedding and head that it shares.
TEST(PublishedParameters, OfMultiTokenPrediction) {
  const auto counts = [](int modules) {
    return count_parameters(job_from(R"({"model": {"name": "deepseek-v3", "mtp_layers": )" + std::to_string(modules) +
                                     R"(}, "cluster": "one-gpu", "layout": {"global_batch_size": 1}})")
                                .model);
  };
  const ParameterCounts none = counts(0);
  const ParameterCounts one = counts(1);
  EXPECT_EQ(none.mtp, 0);
  EXPECT_EQ(one.mtp, one.expert_block + 3 * 7168 + 2LL * 7168 * 7168);
  EXPECT_EQ(one.total - none.total, one.mtp);
  EXPECT_NEAR(static_cast<double>(one.mtp), 11.5 * kB, 0.15 * kB);
  EXPECT_EQ(one.active - none.active, one.mtp - 248LL * 3 * 7168 * 2048);
}

// DeepSeek-V3's tensor list: 61 layers, three of them dense.
TEST(PublishedParameters, DeepSeekLayerByLayer) {
  const ParameterCounts counts = counts_of("deepseek-v3");
  constexpr std::int64_t kHidden = 7168;
  constexpr std::int64_t kAttention =
      kHidden * 1536 + 1536 + 1536 * 128 * 192 + kHidden * 576 + 512 + 512LL * 128 * 256 + 128LL * 128 * kHidden;
  EXPECT_EQ(counts.block, kAttention + 3 * kHidden * 18432 + 2 * kHidden);
  EXPECT_EQ(counts.expert_block, kAttention + 257 * 3 * kHidden * 2048 + kHidden * 256 + 2 * kHidden);
  EXPECT_EQ(counts.total, 3 * counts.block + 58 * counts.expert_block + 2 * 129'280 * kHidden + kHidden);
}

}  // namespace
}  // namespace flopcast
