#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/readers/imports.hpp"

namespace flopcast {
namespace {

using nlohmann::json;

TEST(HuggingFace, Llama3) {
  const ImportedJob imported = import_text(llama3_70b_config(), "config.json");
  EXPECT_EQ(imported.format->name, "Hugging Face config.json");
  EXPECT_EQ(imported.job, json::parse(R"({"model": {"layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8,
    "vocab": 128256, "ffn": 28672, "gated_mlp": true, "norm": "rmsnorm", "positions": "rotary", "biases": false,
    "dropout": false, "tied_embeddings": false, "sequence_length": 8192}})"));
  EXPECT_EQ(imported.places.at("model.kv_heads"), "config.json:/num_key_value_heads");
  EXPECT_TRUE(imported.warnings.empty());
  EXPECT_TRUE(mentions(imported.notes, "the sequence length 8192 comes from config.json:/max_position_embeddings"));
  EXPECT_TRUE(mentions(imported.notes,
                       "no effect on the forecast: hidden_act, rms_norm_eps, rope_scaling, rope_theta, torch_dtype"));
}

TEST(HuggingFace, Gpt2) {
  const ImportedJob imported = import_text(
      R"({"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25, "n_positions": 1024, "n_ctx": 1024,
          "vocab_size": 50257, "n_inner": null, "activation_function": "gelu_new", "resid_pdrop": 0.1,
          "attn_pdrop": 0.1, "embd_pdrop": 0.1, "layer_norm_epsilon": 1e-05})",
      "config.json");
  EXPECT_EQ(imported.job, json::parse(R"({"model": {"layers": 48, "hidden": 1600, "heads": 25, "vocab": 50257,
    "ffn": 6400, "gated_mlp": false, "norm": "layernorm", "positions": "learned", "biases": true, "dropout": true,
    "tied_embeddings": true, "sequence_length": 1024}})"));
}

std::string small(const std::string& type, const std::string& more) {
  return R"({"model_type": ")" + type +
         R"(", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 128, "hidden_act": "silu", "vocab_size": 1000, "max_position_embeddings": 2048)" +
         more + "}";
}

TEST(HuggingFace, Qwen2HasBiasesOnQueriesKeysAndValues) {
  const ImportedJob imported = import_text(small("qwen2", R"(, "tie_word_embeddings": true)"), "config.json");
  EXPECT_EQ(imported.job["model"]["attention_bias"], true);
  EXPECT_EQ(imported.job["model"]["biases"], false);
  EXPECT_EQ(imported.job["model"]["tied_embeddings"], true);
}

TEST(HuggingFace, Qwen3NormsItsHeads) {
  const ImportedJob imported =
      import_text(small("qwen3", R"(, "head_dim": 32, "attention_bias": false)"), "config.json");
  EXPECT_EQ(imported.job["model"]["qk_norm"], true);
  EXPECT_EQ(imported.job["model"]["head_dim"], 32);
  EXPECT_FALSE(imported.job["model"].contains("attention_bias"));
}

TEST(HuggingFace, WindowsOfTheFamilies) {
  struct Windows {
    const char* type;
    const char* more;
    int window;  ///< 0: none
    int layers;  ///< 0: all four
  };
  const Windows cases[] = {
      {"mistral", R"(, "sliding_window": 1024)", 1024, 0},
      {"mistral", R"(, "sliding_window": null)", 0, 0},
      {"qwen2", R"(, "sliding_window": 1024, "use_sliding_window": false)", 0, 0},
      {"qwen2", R"(, "sliding_window": 1024)", 0, 0},
      {"qwen2", R"(, "sliding_window": 1024, "use_sliding_window": true, "max_window_layers": 3)", 1024, 1},
      {"qwen2", R"(, "sliding_window": 1024, "use_sliding_window": true, "max_window_layers": 4)", 0, 0},
      {"gemma2", "", 4096, 2},
      {"gemma3_text", R"(, "sliding_window": 512, "sliding_window_pattern": 4)", 512, 3},
      {"gemma3_text", R"(, "sliding_window": 512, "layer_types": ["sliding_attention", "full_attention",
         "full_attention", "full_attention"])",
       512, 1},
      {"cohere2", R"(, "sliding_window": 512)", 512, 3},
      {"exaone4", R"(, "sliding_window": 512, "sliding_window_pattern": "LG")", 512, 2},
      {"gpt_neo", R"(, "attention_types": [[["global", "local"], 2]], "window_size": 64)", 64, 2},
      {"gpt_oss", R"(, "num_local_experts": 4, "num_experts_per_tok": 2)", 128, 2},
  };
  for (const Windows& item : cases) {
    const json model = import_text(small(item.type, item.more), "config.json").job["model"];
    EXPECT_EQ(model.value("sliding_window", 0), item.window) << item.type << item.more;
    EXPECT_EQ(model.value("windowed_layers", 0), item.layers) << item.type << item.more;
  }
  const json llama4 =
      import_text(small("llama4_text", R"(, "attention_chunk_size": 256, "no_rope_layers": [1, 1, 1, 0])"),
                  "config.json")
          .job["model"];
  EXPECT_EQ(llama4["attention_chunk"], 256);
  EXPECT_EQ(llama4["windowed_layers"], 3);
  const ImportedJob unknown = import_text(small("llama", R"(, "sliding_window": 1024)"), "config.json");
  EXPECT_TRUE(mentions(unknown.warnings, "config.json:/sliding_window: not modelled: the layers"));
}

TEST(HuggingFace, BlocksOfTheFamilies) {
  const auto block = [](const char* type, const char* more) {
    return import_text(small(type, more), "config.json").job["model"].value("block", "sequential");
  };
  EXPECT_EQ(block("llama", ""), "sequential");
  EXPECT_EQ(block("gptj", ""), "parallel_one_norm");
  EXPECT_EQ(block("phi", ""), "parallel_one_norm");
  EXPECT_EQ(block("cohere", ""), "parallel_one_norm");
  EXPECT_EQ(block("gpt_neox", ""), "parallel");
  EXPECT_EQ(block("gpt_neox", R"(, "use_parallel_residual": false)"), "sequential");
  EXPECT_EQ(block("falcon", ""), "parallel_one_norm");
  EXPECT_EQ(block("falcon", R"(, "new_decoder_architecture": true)"), "parallel");
  EXPECT_EQ(block("falcon", R"(, "parallel_attn": false)"), "sequential");
  EXPECT_EQ(block("stablelm", ""), "sequential");
  EXPECT_EQ(block("stablelm", R"(, "use_parallel_residual": true)"), "parallel_one_norm");
}

TEST(HuggingFace, MixturesOfExperts) {
  const json mixtral =
      import_text(small("mixtral", R"(, "num_local_experts": 8, "num_experts_per_tok": 2)"), "c.json").job;
  EXPECT_EQ(mixtral["model"]["experts"], json::parse(R"({"count": 8, "top_k": 2, "ffn": 128})"));
  const json qwen = import_text(small("qwen2_moe", R"(, "num_experts": 60, "num_experts_per_tok": 4,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 96, "decoder_sparse_step": 2)"),
                                "c.json")
                        .job;
  EXPECT_EQ(qwen["model"]["experts"],
            json::parse(R"({"count": 60, "top_k": 4, "ffn": 32, "shared": 1, "shared_ffn": 96, "every": 2})"));
}

TEST(HuggingFace, DeepSeekV3) {
  const ImportedJob imported = import_text(small("deepseek_v3", R"(, "n_routed_experts": 256,
    "num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 16, "first_k_dense_replace": 3,
    "moe_layer_freq": 1, "q_lora_rank": 24, "kv_lora_rank": 12, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 16, "num_nextn_predict_layers": 1, "n_group": 8, "topk_group": 4)"),
                                           "config.json");
  EXPECT_EQ(imported.job["model"]["experts"],
            json::parse(R"({"count": 256, "top_k": 8, "ffn": 16, "shared": 1, "first_dense_layers": 3, "groups": 8,
                            "group_top_k": 4})"));
  EXPECT_EQ(imported.job["model"]["mla"], json::parse(R"({"q_lora_rank": 24, "kv_lora_rank": 12,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16})"));
  EXPECT_TRUE(
      mentions(imported.warnings, "num_nextn_predict_layers: not modelled: the 1 layers for multi-token prediction"));
}

TEST(HuggingFace, ALongReadingWindowIsNotTheTrainingLength) {
  std::string text = llama3_70b_config();
  text.replace(text.find("8192, \n") == std::string::npos ? text.find("\"max_position_embeddings\": 8192") : 0,
               std::string("\"max_position_embeddings\": 8192").size(), "\"max_position_embeddings\": 131072");
  const ImportedJob imported = import_text(text, "config.json");
  EXPECT_EQ(imported.job["model"]["sequence_length"], 4096);
  EXPECT_TRUE(mentions(imported.warnings, "config.json:/max_position_embeddings is 131072"));
  EXPECT_TRUE(import_text(text, "config.json", {"training.sequence_length"}).warnings.empty());
}

TEST(HuggingFace, AFamilyThatNobodyKnowsIsRefused) {
  const Diagnostic message_of = import_complaint(small("novel", ""), "config.json");
  EXPECT_EQ(message_of.where, "config.json:/model_type");
  EXPECT_NE(message_of.help.find("--model.layers N"), std::string::npos);
  for (const char* type : {"jamba", "t5", "qwen3_next", "rwkv5", "clip_vision_model"}) {
    EXPECT_NE(import_complaint(small(type, ""), "c.json").problem.find("not modelled"), std::string::npos) << type;
  }
  const std::string hybrid = R"(, "layer_types": ["full_attention", "linear_attention"])";
  EXPECT_EQ(import_complaint(small("llama", hybrid), "c.json").where, "c.json:/layer_types");
  EXPECT_EQ(import_complaint(small("llama", R"(, "mamba_d_state": 16)"), "c.json").field, "mamba_d_state");
}

TEST(HuggingFace, FamiliesHaveTheirOwnNamesAndDefaults) {
  const json bloom = import_text(R"({"model_type": "bloom", "n_layer": 3, "n_embed": 64, "num_attention_heads": 4,
    "vocab_size": 1000})",
                                 "c.json")
                         .job["model"];
  EXPECT_EQ(bloom, json::parse(R"({"layers": 3, "hidden": 64, "heads": 4, "vocab": 1000, "ffn": 256, "gated_mlp": false,
    "norm": "layernorm", "positions": "alibi", "embedding_norm": true, "biases": true, "dropout": false,
    "tied_embeddings": true, "sequence_length": 2048})"));
  const json falcon = import_text(R"({"model_type": "falcon", "num_hidden_layers": 2, "hidden_size": 64,
    "num_attention_heads": 4, "vocab_size": 100, "multi_query": true, "bias": false})",
                                  "c.json")
                          .job["model"];
  EXPECT_EQ(falcon["kv_heads"], 1);
  EXPECT_EQ(falcon["ffn"], 256);
  EXPECT_EQ(falcon["tied_embeddings"], true);
  const json dbrx = import_text(R"({"model_type": "dbrx", "d_model": 64, "n_heads": 4, "n_layers": 2, "vocab_size": 100,
    "max_seq_len": 128, "attn_config": {"kv_n_heads": 2}, "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4,
    "moe_top_k": 2}})",
                                "c.json")
                        .job["model"];
  EXPECT_EQ(dbrx["kv_heads"], 2);
  EXPECT_EQ(dbrx["experts"], json::parse(R"({"count": 4, "top_k": 2, "ffn": 32})"));
  const json scout = import_text(small("llama4_text", R"(, "intermediate_size_mlp": 256, "num_local_experts": 8,
    "num_experts_per_tok": 1, "interleave_moe_layer_step": 2)"),
                                 "c.json")
                         .job["model"];
  EXPECT_EQ(scout["ffn"], 256);
  EXPECT_EQ(scout["experts"], json::parse(R"({"count": 8, "top_k": 1, "ffn": 128, "shared": 1, "every": 2})"));
  EXPECT_EQ(import_text(small("bert", ""), "c.json").job["model"]["causal"], false);
  EXPECT_EQ(import_text(small("minicpm", ""), "c.json").job["model"]["tied_embeddings"], true);
  EXPECT_EQ(import_text(small("smollm3", ""), "c.json").job["model"]["tied_embeddings"], true);
  const json llava =
      import_text(R"({"model_type": "llava", "text_config": {"model_type": "mistral", "vocab_size": 32064,
    "max_position_embeddings": 2048}})",
                  "c.json")
          .job["model"];
  EXPECT_EQ(llava["kv_heads"], 8);
  EXPECT_EQ(llava["ffn"], 14336);
  EXPECT_EQ(
      import_text(small("gemma2", R"(, "hidden_activation": "gelu_pytorch_tanh")"), "c.json").job["model"]["gated_mlp"],
      true);
}

TEST(HuggingFace, WhatIsTheSameForAllLayersMayBeAList) {
  const ImportedJob imported =
      import_text(small("hunyuan_v1_moe", R"(, "num_experts": 8, "moe_topk": [2, 2, 2, 2], "num_shared_expert": [1, 1],
        "moe_intermediate_size": [32, 32])"),
                  "config.json");
  EXPECT_EQ(imported.job["model"]["experts"], json::parse(R"({"count": 8, "top_k": 2, "shared": 1, "ffn": 32})"));
  EXPECT_THROW(import_text(small("hunyuan_v1_moe", R"(, "num_experts": 8, "moe_topk": [2, 1])"), "config.json"),
               ConfigError);
}

TEST(HuggingFace, OtherHeadsAndNarrowEmbeddingsAreTold) {
  const ImportedJob reward =
      import_text(small("llama", R"(, "architectures": ["LlamaForSequenceClassification"])"), "config.json");
  EXPECT_TRUE(mentions(reward.warnings, "has a different head"));
  EXPECT_THROW(import_text(small("opt", R"(, "word_embed_proj_dim": 32)"), "config.json"), ConfigError);
}

TEST(HuggingFace, TheTextPartOfAMultimodalModelIsRead) {
  const std::string text = R"({"model_type": "seer", "vision_config": {}, "text_config": )" + small("llama", "") + "}";
  const ImportedJob imported = import_text(text, "config.json");
  EXPECT_EQ(imported.places.at("model.layers"), "config.json:/text_config/num_hidden_layers");
  EXPECT_TRUE(mentions(imported.warnings, "vision"));
}

TEST(HuggingFace, ComplaintsPointIntoTheFile) {
  std::string text = llama3_70b_config();
  text.replace(text.find("num_hidden_layers"), 17, "num_hiden_layers");
  Diagnostic message_of = import_complaint(text, "config.json");
  EXPECT_EQ(message_of.field, "num_hidden_layers");
  EXPECT_EQ(message_of.where, "config.json:/num_hiden_layers");
  EXPECT_NE(message_of.help.find("did you mean \"num_hidden_layers\"?"), std::string::npos) << message_of.help;

  EXPECT_EQ(import_complaint(small("llama", R"(, "head_dim": "wide")"), "c.json").where, "c.json:/head_dim");
  EXPECT_EQ(import_complaint(small("mixtral", R"(, "num_local_experts": 2, "num_experts_per_tok": 3)"), "c.json").where,
            "c.json:/num_experts_per_tok");
  EXPECT_EQ(import_complaint(R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 10, "n_head": 3})", "c.json").where,
            "c.json:/n_head");
  EXPECT_EQ(import_complaint(R"({"model_type": "llama", "num_hidden_layers": -1})", "c.json").where,
            "c.json:/num_hidden_layers");
}

TEST(HuggingFace, ASlipInAnOptionalKeyIsAWarning) {
  std::string text = llama3_70b_config();
  text.replace(text.find("num_key_value_heads"), 19, "num_key_value_head");
  EXPECT_TRUE(mentions(import_text(text, "config.json").warnings,
                       "config.json:/num_key_value_head: unknown key, ignored; did you mean num_key_value_heads?"));
}

}  // namespace
}  // namespace flopcast
