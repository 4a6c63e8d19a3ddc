#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/unit/readers/imports.hpp"

namespace flopcast {
namespace {

constexpr int kMutations = 200'000;

struct Sample {
  std::string text;
  std::string file;
};

std::vector<Sample> samples() {
  return {
      {llama3_70b_config(), "config.json"},
      {gpt3_script(), "train.sh"},
      {zero3_config(), "ds.json"},
      {"A=1\ncase $A in 1|2) B=(\"--num-layers 4\") ;; *) B=() ;; esac\nif [[ $A == 1 && -n \"$1\" ]]; then\nC=2\nelif "
       "true; then C=3\nelse C=4; fi\n[ $C = 2 ] && { D=1; }\ncat <<E\nif\nE\nsrun bash -c \"run ${B[@]} --tp $D "
       "$(x)\"\n",
       "nested.sh"},
      {"f() { local n=$1; A+=(--num-layers $n); }\nfunction g { run ${A[@]+\"${A[@]}\"} \"${A[@]:0:2}\" \"$@\"; }\n"
       "declare -A L=([a]=4 [\"b\"]=8)\nf ${L[b]}\nX=$A\nC=\"torchrun p.py ${A[@]} --hidden-size 64 $'x y'\"\nlet "
       "\"N = 2 * 3\"\ng $N\n$C --num-attention-heads ${!K}\n",
       "functions.sh"},
      {R"({"data_parallel_size":4,"pipeline_parallel_size":2,"tensor_parallel_size":4})", "sizes.json"},
      {R"({"distributed_type": "FSDP", "fsdp_config": {"fsdp_sharding_strategy": "FULL_SHARD"},
"mixed_precision": "bf16", "num_machines": 2, "num_processes": 16})",
       "fsdp.yaml"},
      {"\nfinetuning_type: full\n", "train.yaml"},
      {R"({"model": {"name": "llama3", "flavor": "8B", "converters": ["float8"]}, "training": {"seq_len": 8192,
"local_batch_size": 4}, "parallelism": {"data_parallel_shard_degree": -1, "pipeline_parallel_degree": 2}})",
       "t.toml"},
      {R"({
  "trainer": {
    "num_nodes": 2, "devices": 8, "precision": "bf16"
  },
  "model": {
    "encoder_seq_length": 128, "num_layers": 4, "hidden_size": 64, "ffn_hidden_size": "${multiply:4, ${.hidden_size}}",
    "num_attention_heads": 4, "vocab_size": 99, "micro_batch_size": 1, "global_batch_size": "${TP}", "activation": "swiglu",
    "pipeline_model_parallel_layout": "Et|tt|tL", "moe_layer_freq": [0, 1]
  }
})",
       "nemo.yaml"},
      {"#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\nfor i in 1 2; do L+=(--num-layers $i); done\nfor ((i=0; i<3; i++)); "
       "do N=$((i*2)); "
       "done\nwhile [[ $# -gt 0 ]]; do case $1 in -x) X=${2:-\"y\"} ;; esac; shift; done\ncat <<E > "
       "ds.json\n{\"zero_optimization\": "
       "{\"stage\": $N}}\nE\npython x_gpt.py ${L[@]} --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
       "--vocab-size 99 "
       "--deepspeed --deepspeed_config ds.json --moe-layer-freq '([0]*1+[1]*1)' --num-experts 4\n",
       "a.slurm"},
      {R"({"model_type": "dbrx", "d_model": 64, "n_heads": 4, "n_layers": 2, "vocab_size": 100, "max_seq_len": 128,
"attn_config": {"kv_n_heads": 2}, "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2}})",
       "dbrx.json"},
      {R"({"pipe_parallel_size": 2, "num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "norm": "rmsnorm",
"zero_optimization": {"stage": 1}, "fp16": {"enabled": true, "type": "bfloat16"}, "attention_config": [[["flash"], 4]]})",
       "neox.yml"}};
}

// Either a job or one of our own errors; any other exception fails the test.
int complaints_about(const std::string& text, const std::string& file) {
  try {
    import_text(text, file);
    return 0;
  } catch (const ConfigError& error) {
    EXPECT_FALSE(error.diagnostic().problem.empty());
    return 1;
  }
}

void mutate(std::string& text, std::mt19937& random) {
  static const std::string kPieces = "\"'{}[]()$\\#-=:,\n\0018e9";
  const std::size_t edits = 1 + random() % 3;
  for (std::size_t edit = 0; edit < edits && !text.empty(); ++edit) {
    const std::size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text[at] = kPieces[random() % kPieces.size()];
        break;
      case 1:
        text.erase(at, 1 + random() % 8);
        break;
      case 2:
        text.insert(at, 1, kPieces[random() % kPieces.size()]);
        break;
      default:
        text.insert(at, text.substr(random() % text.size(), 1 + random() % 16));
    }
  }
}

TEST(ReadersFuzz, MutatedTextIsReadOrComplainedAbout) {
  std::mt19937 random(20260101);
  int complaints = 0;
  int runs = 0;
  const std::vector<Sample> all = samples();
  const int rounds = kMutations / static_cast<int>(all.size());
  for (const Sample& sample : all) {
    for (int round = 0; round < rounds; ++round, ++runs) {
      std::string text = sample.text;
      mutate(text, random);
      complaints += complaints_about(text, sample.file);
    }
  }
  EXPECT_GT(complaints, runs / 10);
  EXPECT_LT(complaints, runs);
}

TEST(ReadersFuzz, EveryValueOfTheWrongKind) {
  const std::vector<nlohmann::json> values = {
      nullptr, "auto", "", true, -1, 0, 1.5, 1e300, 1e9, 2147483648u, nlohmann::json::array(), nlohmann::json::object(),
      {1, "x"}};
  for (const Sample& sample : samples()) {
    if (sample.text.front() != '{') continue;
    const nlohmann::json whole = nlohmann::json::parse(sample.text).flatten();
    for (const auto& item : whole.items()) {
      for (const nlohmann::json& value : values) {
        nlohmann::json changed = nlohmann::json::parse(sample.text);
        changed[nlohmann::json::json_pointer(item.key())] = value;
        complaints_about(changed.dump(), sample.file);
      }
    }
  }
}

}  // namespace
}  // namespace flopcast
