#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "calibrate/validation/evaluate.hpp"
#include "calibrate/validation/published_row.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

Json small_row() {
  return Json::parse(R"({
    "id": "a", "source": "some log line 12", "complete_for_e2e": true, "note": "bf16, fp32 main-grad accumulation",
    "hardware": {"gpu": "A100-SXM4-80GB", "gpus_per_node": 8, "num_gpus": 16, "inter_node": "8x HDR 200 Gb/s per node"},
    "model": {"layers": 8, "hidden": 1024, "heads": 16, "kv_heads": 16, "ffn": 4096, "seq": 1024},
    "parallel": {"dp": 2, "tp": 4, "pp": 2, "micro_batch": 1, "global_batch": 16, "schedule": "1f1b",
                 "recompute": "full", "sp": false},
    "measured": {"iteration_s": 1.0}})");
}

PublishedFile file_of(const Json& rows) {
  return read_published({{"rows", rows}}, "made_up", "made_up.json");
}

TEST(Mapping, FieldsBecomeAJob) {
  const MappedRow mapped = map_row(file_of(Json::array({small_row()})).rows[0], "");
  ASSERT_EQ(mapped.skip_reason, "");
  EXPECT_EQ(mapped.job["layout"]["tp"], 4);
  EXPECT_EQ(mapped.job["layout"]["recompute"], "full");
  EXPECT_EQ(mapped.job["cluster"]["nodes"], 2);
  EXPECT_EQ(mapped.job["cluster"]["nic_bandwidth"], "200Gbit/s");
  EXPECT_EQ(mapped.job["training"]["precision"], "bf16");
  EXPECT_EQ(mapped.job["training"]["stack"]["gradient_bytes"], 4);
}

TEST(Mapping, AVocabularyThatNobodyStatesIsTheUsualOneThatCountsAgreeWith) {
  Json small = small_row();
  small["model"]["params_b"] = 0.15;  // 0.154 with GPT-2's vocabulary, 0.135 with Llama's
  EXPECT_EQ(file_of(Json::array({small})).rows[0].vocab, 50257);
  Json large = small_row();
  large["id"] = "b";
  large["model"].update(
      {{"layers", 30}, {"hidden", 4096}, {"heads", 32}, {"kv_heads", 32}, {"ffn", 16384}, {"params_b", 6.2}});
  small["model"].erase("params_b");
  small["source"] = large["source"] = "arXiv:2401.10241";
  const std::vector<PublishedRow> rows = file_of(Json::array({small, large})).rows;
  EXPECT_EQ(rows[0].vocab, 32000);  // 6.25 billion with GPT-2's would be 6.3
  EXPECT_EQ(rows[1].vocab, 32000);
  large["model"]["params_b"] = 9.9;  // no vocabulary fits
  EXPECT_EQ(file_of(Json::array({large})).rows[0].vocab, 50257);
  large["model"]["vocab"] = 1000;
  EXPECT_EQ(file_of(Json::array({large})).rows[0].vocab, 1000);
  EXPECT_EQ(file_of(Json::array({small, large})).rows[0].vocab, 1000);  // stated by the same publication
  large["source"] = "another";
  EXPECT_EQ(file_of(Json::array({small, large})).rows[0].vocab, 50257);
}

TEST(Mapping, APublicationWithAZeroBubbleScheduleRanItsSoftware) {
  Json plain = small_row();
  plain["source"] = "Some Body, arXiv:2401.10241 Table 6";
  EXPECT_EQ(map_row(file_of(Json::array({plain})).rows[0], "").job["training"]["stack"]["name"], "megatron-2022");
  Json split = plain;
  split["id"] = "b";
  split["source"] = "arXiv:2401.10241 Table 4";
  split["parallel"]["schedule"] = "zb-1p";
  Json elsewhere = plain;
  elsewhere["id"] = "c";
  elsewhere["source"] = "arXiv:2205.05198";
  const std::vector<PublishedRow> rows = file_of(Json::array({plain, split, elsewhere})).rows;
  const Json stack = map_row(rows[0], "").job["training"]["stack"];
  EXPECT_EQ(stack["name"], "zero-bubble");
  EXPECT_EQ(stack["blocking_sends"], true);
  const Json sends_ahead = map_row(rows[1], "").job["training"]["stack"];
  EXPECT_EQ(sends_ahead["name"], "zero-bubble");
  EXPECT_FALSE(sends_ahead.contains("blocking_sends"));
  EXPECT_EQ(map_row(rows[2], "").job["training"]["stack"]["name"], "megatron-2022");
  // The row's own statements about its software take precedence.
  plain["note"] = "with DeepSpeed";
  EXPECT_EQ(map_row(file_of(Json::array({plain, split})).rows[0], "").job["training"]["stack"]["name"],
            "megatron-deepspeed");
  plain["note"] = "";
  plain["hardware"]["gpu"] = "H100-SXM5-80GB";
  EXPECT_EQ(map_row(file_of(Json::array({plain, split})).rows[0], "").job["training"]["stack"]["name"],
            "megatron-core");
}

Json layout_with(const char* schedule) {
  Json row = small_row();
  row["parallel"]["schedule"] = schedule;
  return map_row(file_of(Json::array({row})).rows[0], "").job["layout"];
}

TEST(Mapping, SchedulesAreTheOnesTheirSourcesName) {
  const std::vector<std::pair<const char*, const char*>> named = {{"1F1B (DeepSpeed PipelineEngine)", "1f1b"},
                                                                  {"1F1B (PipeDream style, flush)", "1f1b"},
                                                                  {"GPipe", "gpipe"},
                                                                  {"gpipe:lifo", "gpipe:lifo"},
                                                                  {"PipeDream-Flush", "1f1b"},
                                                                  {"PipeDream-2BW", "pipedream-2bw"},
                                                                  {"pipedream 1F1B (weight stashing)", "pipedream"},
                                                                  {"DualPipe (bidirectional)", "dualpipe"}};
  for (const auto& [words, schedule] : named) EXPECT_EQ(layout_with(words)["schedule"], schedule) << words;
  // Words about the replicas only.
  for (const char* words : {"", "none(dp/tp)", "fsdp full shard"}) {
    EXPECT_FALSE(layout_with(words).contains("schedule")) << words;
  }
}

TEST(Mapping, SchedulesWithChunksHaveThem) {
  for (const char* words : {"interleaved-zb", "DualPipeV (DeepSeek)", "ZB-V", "v-half"}) {
    EXPECT_EQ(layout_with(words)["vpp"], 2) << words;
  }
  EXPECT_EQ(layout_with("hanayo:4")["vpp"], 4);
}

TEST(Mapping, AnUnknownScheduleIsSaidAndNotGuessed) {
  Json row = small_row();
  row["parallel"]["schedule"] = "clockwork";
  const MappedRow unknown = map_row(file_of(Json::array({row})).rows[0], "");
  EXPECT_EQ(unknown.skip_reason, "unknown schedule \"clockwork\"");
  EXPECT_TRUE(unknown.job->is_null());
}

TEST(Mapping, CapitalsOfAScheduleMeanNothing) {
  Json row = small_row();
  row["parallel"]["schedule"] = "zb-1p";
  const MappedRow lower = map_row(file_of(Json::array({row})).rows[0], "");
  row["parallel"]["schedule"] = "ZB-1p";
  const MappedRow upper = map_row(file_of(Json::array({row})).rows[0], "");
  EXPECT_EQ(upper.job, lower.job);
  EXPECT_TRUE(upper.steps_overlap);
}

TEST(Mapping, SizesOfNothingAreRefused) {
  for (const char* size : {"layers", "hidden", "heads", "kv_heads", "ffn", "seq", "vocab"}) {
    Json row = small_row();
    row["model"][size] = 0;
    EXPECT_THROW(file_of(Json::array({row})), ConfigError) << size;
  }
}

TEST(Mapping, WhatIsMissingIsNamed) {
  Json row = small_row();
  row["model"].erase("heads");
  row["complete_for_e2e"] = false;
  EXPECT_EQ(map_row(file_of(Json::array({row})).rows[0], "").skip_reason, "not stated: heads");
  row = small_row();
  row["hardware"]["gpu"] = "Abacus 9000";
  EXPECT_EQ(map_row(file_of(Json::array({row})).rows[0], "").skip_reason,
            "the catalogue has no device \"Abacus 9000\"");
}

TEST(Mapping, WrongTypesAreRefusedWithTheirPlace) {
  Json row = small_row();
  row["model"]["layers"] = "eight";
  try {
    file_of(Json::array({row}));
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.diagnostic().field, "rows.0.model.layers");
  }
}

TEST(Mapping, ARowOfALogTakesFormatsFromTheRowAbove) {
  Json below = small_row();
  below["id"] = "b";
  below["source"] = "some log line 20";
  below["note"] = "ran out of memory";
  Json far = small_row();
  far["id"] = "c";
  far["source"] = "another log line 30";
  far["note"] = "nothing said";
  const PublishedFile file = file_of(Json::array({below, small_row(), far}));
  EXPECT_NE(file.rows[0].note.find("fp32 main-grad"), std::string::npos);
  EXPECT_EQ(file.rows[2].note, "nothing said");
}

TEST(Mapping, RulesDependOnWordsNotOnIds) {
  Json row = small_row();
  const Json job = map_row(file_of(Json::array({row})).rows[0], "").job;
  row["id"] = "anything else";
  EXPECT_EQ(map_row(file_of(Json::array({row})).rows[0], "").job, job);
}

TEST(Completions, FillInWhatIsOpen) {
  Json row = small_row();
  EXPECT_TRUE(completions(file_of(Json::array({row})).rows[0]).empty());
  row["complete_for_e2e"] = false;
  row["parallel"].erase("micro_batch");
  row["parallel"].erase("recompute");
  const auto choices = completions(file_of(Json::array({row})).rows[0]);
  EXPECT_EQ(choices.size(), 4u * 3u);  // 16 / dp 2 = 8 samples per replica: 1, 2, 4, 8
  EXPECT_EQ(choices.front().open, "micro batch, recompute");
  row["model"].erase("heads");
  EXPECT_TRUE(completions(file_of(Json::array({row})).rows[0]).empty());
}

// Sources with ZeRO 2 never state whether a pipeline's gradients are scattered once per step or per microbatch.
TEST(Completions, TryBothReadingsOfZeroTwoWithAPipeline) {
  Json row = small_row();
  row["complete_for_e2e"] = false;
  row["parallel"]["zero_stage"] = 2;
  const auto choices = completions(file_of(Json::array({row})).rows[0]);
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].open, "gradients scattered by every microbatch");
  EXPECT_EQ(map_row(choices[0].row, "").job["layout"]["zero"], 1);
  EXPECT_EQ(map_row(choices[1].row, "").job["layout"]["zero"], 2);
  row["parallel"]["pp"] = 1;
  EXPECT_EQ(completions(file_of(Json::array({row})).rows[0]).size(), 1u);
}

TEST(CatalogueChange, AppliesToTheEntryOnly) {
  Json job = map_row(file_of(Json::array({small_row()})).rows[0], "").job;
  EXPECT_FALSE(apply({CatalogueKind::kDevices, "h100", "gemm_efficiency", 0.5}, job));
  EXPECT_TRUE(apply({CatalogueKind::kDevices, "a100-80g", "gemm_efficiency", 0.5}, job));
  EXPECT_EQ(job["cluster"]["device"]["gemm_efficiency"], 0.5);
  const std::string stack = job["training"]["stack"]["name"];
  EXPECT_TRUE(apply({CatalogueKind::kStacks, stack, "gradient_bytes", 2}, job));
  EXPECT_EQ(job["training"]["stack"]["gradient_bytes"], 4) << "the row's own value takes precedence";
}

}  // namespace
}  // namespace flopcast
