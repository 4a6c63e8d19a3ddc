#include "tests/unit/readers/imports.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

namespace flopcast {

namespace {

// No other file can be read; for YAML, supports JSON and lines with a key and JSON.
class NoFiles final : public Files {
 public:
  std::string read(const std::string& path) const override { throw ConfigError({"", "no such file", path, ""}); }
  nlohmann::json parse_yaml(std::string_view text, const std::string& file) const override {
    if (text.empty() || text.front() == '{') return parse_json(text, file);
    nlohmann::json values;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
      const std::size_t colon = line.find(": ");
      if (colon != std::string::npos) values[line.substr(0, colon)] = parse_json(line.substr(colon + 2), file);
    }
    return values;
  }
  nlohmann::json parse_toml(std::string_view text, const std::string& file) const override {
    return parse_json(text, file);
  }
};

}  // namespace

ImportedJob import_text(std::string_view text, const std::string& file, const std::set<std::string>& given) {
  const NoFiles files;
  ImportContext context;
  context.files = &files;
  for (const std::string& field : given) context.given.emplace(field, "");
  return import_job(ForeignFile(text, file), context);
}

Diagnostic import_complaint(std::string_view text, const std::string& file) {
  try {
    import_text(text, file);
  } catch (const ConfigError& error) {
    return error.diagnostic();
  }
  return {};
}

bool mentions(const std::vector<std::string>& sentences, std::string_view words) {
  return std::any_of(sentences.begin(), sentences.end(),
                     [words](const std::string& sentence) { return sentence.find(words) != std::string::npos; });
}

std::string llama3_70b_config() {
  return R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
"hidden_act": "silu", "hidden_size": 8192, "intermediate_size": 28672, "max_position_embeddings": 8192,
"model_type": "llama", "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8,
"rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 500000.0, "tie_word_embeddings": false,
"torch_dtype": "bfloat16", "vocab_size": 128256})";
}

std::string gpt3_script() {
  return R"(#!/bin/bash
GPUS=8
NODES=16
TP=8
DATA=$1 # prefix
LAUNCH=(
  --nproc_per_node $GPUS
  --nnodes ${NODES}
)
MODEL="--num-layers 96 --hidden-size 12288 --num-attention-heads 96 \
  --seq-length 2048 --max-position-embeddings 2048"
BATCH=$((GPUS * NODES * 12))
TRAINING=(
  --micro-batch-size 1
  --global-batch-size $BATCH
  --train-samples 1000000
  --bf16
  --lr 6.0e-5
)
mkdir -p logs && echo "start" > logs/start
torchrun "${LAUNCH[@]}" pretrain_gpt.py $MODEL "${TRAINING[@]}" \
  --tensor-model-parallel-size=$TP \
  --pipeline-model-parallel-size 16 \
  --num-layers-per-virtual-pipeline-stage 3 \
  --sequence-parallel --use-distributed-optimizer --recompute-activations \
  --tokenizer-type GPT2BPETokenizer --data-path $DATA 2>&1 | tee log.txt
)";
}

std::string zero3_config() {
  return R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8,
"steps_per_print": 100, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
"zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true, "reduce_bucket_size": 5e8,
"stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": 1e5, "sub_group_size": 1e9,
"offload_optimizer": {"device": "cpu", "pin_memory": true}},
"activation_checkpointing": {"partition_activations": true, "contiguous_memory_optimization": true}})";
}

}  // namespace flopcast
