#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "import/shell/shell.hpp"
#include "tests/unit/readers/imports.hpp"

namespace flopcast {
namespace {

using nlohmann::json;

const char* const kSmall =
    "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128\n"
    "--micro-batch-size 1 --global-batch-size 8 --vocab-size 1000 --attention-dropout 0 --hidden-dropout 0\n";

TEST(Megatron, LaunchScript) {
  const ImportedJob imported = import_text(gpt3_script(), "train.sh");
  EXPECT_EQ(imported.format->name, "Megatron-LM arguments");
  EXPECT_EQ(imported.job, json::parse(R"({
    "model": {"layers": 96, "hidden": 12288, "heads": 96, "ffn": 49152, "gated_mlp": false, "norm": "layernorm",
              "positions": "learned", "biases": true, "dropout": true, "tied_embeddings": true, "vocab": 50257,
              "sequence_length": 2048},
    "cluster": {"nodes": 16, "devices_per_node": 8},
    "layout": {"tp": 8, "pp": 16, "vpp": 2, "schedule": "interleaved", "sequence_parallel": true,
               "micro_batch_size": 1, "global_batch_size": 1536, "recompute": "selective", "zero": 1},
    "training": {"precision": "bf16", "sequence_length": 2048, "tokens": 2048000000.0,
                 "overlap": {"gradients": false}}})"));
  EXPECT_EQ(imported.places.at("layout.tp"), "train.sh:22: --tensor-model-parallel-size");
  EXPECT_EQ(imported.places.at("layout.global_batch_size"), "train.sh:15: --global-batch-size");
  EXPECT_EQ(imported.places.at("model.layers"), "train.sh:10: --num-layers");
  EXPECT_TRUE(imported.warnings.empty());
  EXPECT_TRUE(mentions(imported.notes, "no effect on the forecast: --data-path, --lr"));
  EXPECT_TRUE(mentions(imported.notes, "the vocabulary is GPT-2's 50257"));
}

TEST(Megatron, ArgumentList) {
  const json job = import_text(std::string(kSmall) + R"(--swiglu --normalization RMSNorm --disable-bias-linear
    --position-embedding-type rope --group-query-attention --num-query-groups 2 --ffn-hidden-size 96 --fp16
    --untie-embeddings-and-output-weights --recompute-granularity full --attention-backend unfused
    --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 1)",
                               "arguments.txt")
                       .job;
  EXPECT_EQ(job, json::parse(R"({
    "model": {"layers": 8, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 96, "gated_mlp": true, "norm": "rmsnorm",
              "positions": "rotary", "biases": false, "dropout": false, "tied_embeddings": false, "vocab": 1000,
              "sequence_length": 128},
    "layout": {"pp": 4, "schedule": "1f1b", "stage_layers": [1, 3, 3, 1], "micro_batch_size": 1,
               "global_batch_size": 8, "recompute": "full"},
    "training": {"precision": "fp16", "sequence_length": 128, "attention": "unfused",
                 "overlap": {"gradients": false}}})"));
}

TEST(Megatron, RecomputesLayersAndModulesAsTold) {
  const auto imported = [](const std::string& flags) {
    return import_text(std::string(kSmall) + flags, "arguments.txt");
  };
  const json block = imported("--recompute-granularity full --recompute-method block --recompute-num-layers 3").job;
  EXPECT_EQ(block["layout"]["recompute"], "full");
  EXPECT_EQ(block["layout"]["recompute_layers"], 3);
  // Groups of layers are recomputed completely.
  const ImportedJob uniform =
      imported("--recompute-granularity full --recompute-method uniform --recompute-num-layers 2");
  EXPECT_FALSE(uniform.job["layout"].contains("recompute_layers"));
  EXPECT_EQ(uniform.warnings.size(), 1u);
  const json modules = imported("--recompute-granularity selective --recompute-modules moe_act layernorm").job;
  EXPECT_EQ(modules["layout"]["recompute_modules"], json::parse(R"(["moe_act", "layernorm"])"));
  EXPECT_FALSE(
      imported("--recompute-activations --recompute-modules core_attn").job["layout"].contains("recompute_modules"));
  EXPECT_EQ(imported("--recompute-granularity full --recompute-modules mlp").warnings.size(), 1u);
}

TEST(Megatron, HierarchicalContextAndAmaxReductionAreRead) {
  const auto imported = [](const std::string& flags) {
    return import_text(std::string(kSmall) + flags, "arguments.txt");
  };
  const json layout =
      imported("--context-parallel-size 8 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 4")
          .job["layout"];
  EXPECT_EQ(layout["context_parallel"], "hierarchical");
  EXPECT_EQ(layout["context_inner"], 2);
  // Sizes that differ from those of the ranks are reported, and a ring is forecast.
  const ImportedJob ring =
      imported("--context-parallel-size 8 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 3");
  EXPECT_FALSE(ring.job["layout"].contains("context_parallel"));
  EXPECT_EQ(ring.warnings.size(), 1u);
  EXPECT_EQ(imported("--bf16 --fp8-format hybrid --tp-only-amax-red").job["training"]["amax_reduction"], "tensor");
  EXPECT_FALSE(imported("--bf16 --tp-only-amax-red").job["training"].contains("amax_reduction"));
}

TEST(Megatron, OverlapAndPrecisionAreWhatTheFlagsSay) {
  const auto training = [](const std::string& flags) {
    return import_text(std::string(kSmall) + flags, "arguments.txt").job["training"];
  };
  EXPECT_EQ(training(" --bf16")["overlap"], json::parse(R"({"gradients": false})"));
  EXPECT_EQ(training(" --bf16 --overlap-grad-reduce --overlap-param-gather --tp-comm-overlap "
                     "--no-overlap-p2p-communication")["overlap"],
            json::parse(R"({"gradients": true, "parameters": true, "tp": true, "p2p": false})"));
  EXPECT_EQ(training(" --bf16 --overlap-moe-expert-parallel-comm --delay-wgrad-compute")["overlap"]["experts"],
            "1f1b_delayed");
  const auto dispatcher = [&training](const std::string& flags) {
    return training(" --bf16 --moe-token-dispatcher-type " + flags)["experts_dispatch"]["dispatcher"];
  };
  EXPECT_EQ(dispatcher("alltoall"), "alltoall");
  EXPECT_EQ(dispatcher("flex"), "deepep");
  EXPECT_EQ(dispatcher("flex --moe-flex-dispatcher-backend hybridep"), "hybridep");
  // A sharded form prefetches whether specified or not.
  EXPECT_FALSE(training(" --bf16 --use-torch-fsdp2").contains("overlap"));
  EXPECT_FALSE(training(" --bf16 --fp8-recipe mxfp8").contains("fp8_recipe"));
  EXPECT_EQ(training(" --bf16 --fp8-format e4m3 --fp8-recipe mxfp8")["fp8_recipe"], "mxfp8");
  EXPECT_EQ(training(" --bf16 --fp4-format e2m1")["fp8_recipe"], "nvfp4");
  const json narrow =
      training(" --bf16 --fp8-format hybrid --fp8-dot-product-attention --activation-func-fp8-input-store");
  EXPECT_EQ(narrow["fp8_attention"], true);
  EXPECT_EQ(narrow["fp8_activations"], true);
  EXPECT_FALSE(training(" --bf16 --fp8-dot-product-attention").contains("fp8_attention"));
  EXPECT_EQ(training(" --bf16 --grad-reduce-in-bf16")["gradient_dtype"], "bf16");
  EXPECT_EQ(training(" --bf16 --main-grads-dtype bf16")["gradient_dtype"], "bf16");
  EXPECT_FALSE(training(" --bf16 --main-grads-dtype fp32").contains("gradient_dtype"));
  const ImportedJob own =
      import_text(std::string(kSmall) + " --bf16 --fp8-format e4m3 --fp8-recipe custom", "arguments.txt");
  EXPECT_FALSE(own.job["training"].contains("fp8_recipe"));
  EXPECT_TRUE(mentions(own.notes, "--fp8-recipe custom is not modelled"));
}

TEST(Megatron, ExpertsAndLatentAttention) {
  const std::string text = std::string(kSmall) + R"x(--num-experts 16 --moe-router-topk 4 --moe-ffn-hidden-size 32
    --moe-shared-expert-intermediate-size 48 --moe-layer-freq "([0]*3+[1]*5)" --expert-model-parallel-size 4
    --multi-latent-attention --q-lora-rank 24 --kv-lora-rank 12 --qk-head-dim 16 --qk-pos-emb-head-dim 8
    --v-head-dim 16 --mtp-num-layers 2 --moe-router-num-groups 4 --moe-router-group-topk 2)x";
  const json job = import_text(text, "arguments.txt").job;
  EXPECT_EQ(job["model"]["experts"], json::parse(R"({"count": 16, "top_k": 4, "ffn": 32, "shared": 1,
    "shared_ffn": 48, "first_dense_layers": 3, "groups": 4, "group_top_k": 2})"));
  EXPECT_EQ(job["model"]["mla"]["kv_lora_rank"], 12);
  EXPECT_EQ(job["model"]["mtp_layers"], 2);
  EXPECT_EQ(job["layout"]["ep"], 4);
}

TEST(Megatron, VocabularyIsPaddedAsTheFileSays) {
  const std::string text = std::string(kSmall) + "--make-vocab-size-divisible-by 512 --tensor-model-parallel-size 2";
  EXPECT_EQ(import_text(text, "a.txt").job["model"]["vocab"], 1024);
}

TEST(Megatron, ScriptsForTheWrongClusterSizeGrow) {
  std::string text = gpt3_script();
  text.replace(text.find("NODES=16"), 8, "NODES=1 ");
  const ImportedJob imported = import_text(text, "train.sh");
  EXPECT_EQ(imported.job["cluster"]["nodes"], 16);
  EXPECT_TRUE(mentions(imported.warnings, "train.sh:8: --nnodes: 8 devices are too few for a replica"));
}

TEST(Megatron, ComplaintsNameTheLine) {
  const auto with = [](const std::string& more) { return import_complaint(std::string(kSmall) + more, "a.txt"); };
  Diagnostic message_of = with("--context-parallel-size $CP");
  EXPECT_EQ(message_of.where, "a.txt:3: --context-parallel-size");
  EXPECT_NE(message_of.problem.find("$CP"), std::string::npos) << message_of.problem;
  EXPECT_EQ(with("--tensor-model-parallel-size two").where, "a.txt:3: --tensor-model-parallel-size");
  EXPECT_EQ(with("--bf16 --fp16").where, "a.txt:3: --fp16");
  EXPECT_EQ(with("--normalization Batch").where, "a.txt:3: --normalization");
  EXPECT_EQ(with("--num-layers-per-virtual-pipeline-stage 3").where,
            "a.txt:3: --num-layers-per-virtual-pipeline-stage");
  EXPECT_EQ(with("--moe-layer-freq x --num-experts 2").where, "a.txt:3: --moe-layer-freq");
  EXPECT_EQ(with("--optimizer adaptive_muon").where, "a.txt:3: --optimizer");
  EXPECT_EQ(with("--data-path \"open").where, "a.txt:3");
  EXPECT_EQ(import_complaint("--num-layers 8 --hidden-size 64", "a.txt").field, "--num-attention-heads");
  EXPECT_EQ(import_complaint("#!/bin/sh\necho hello\n", "a.sh").where, "a.sh");
}

TEST(Megatron, FlagsStandInForWhatTheScriptDoesNotSet) {
  const std::string text = std::string(kSmall) + "--context-parallel-size $CP";
  EXPECT_FALSE(import_text(text, "a.txt", {"layout.cp"}).has("layout.cp"));
}

TEST(Megatron, NeedsNoLayout) {
  const json job = import_text(
                       "torchrun --nproc_per_node 8 p.py --num-layers 4 --hidden-size 512 "
                       "--num-attention-heads 8 --seq-length 1024 --vocab-size 1000 --bf16 --train-iters 1000",
                       "a.sh")
                       .job;
  EXPECT_EQ(job["model"]["layers"], 4);
}

TEST(Megatron, AMisspelledRequiredFlagIsNamed) {
  std::string text = kSmall;
  text.replace(text.find("--hidden-size"), 13, "\n--hiden-size");
  const Diagnostic message_of = import_complaint(text, "a.txt");
  EXPECT_EQ(message_of.field, "--hidden-size");
  EXPECT_EQ(message_of.where, "a.txt:2: --hiden-size");
}

TEST(Megatron, ControlBytesAreEscaped) {
  const Diagnostic message_of =
      import_complaint(std::string(kSmall) + "--tensor-model-parallel-size \x1b[31m" + std::string(1, '\0'), "a.txt");
  EXPECT_EQ(message_of.problem, "\"\\x1b[31m\\x00\" is not a whole number");
}

TEST(Megatron, ScriptsInsideAWord) {
  const ImportedJob imported = import_text(
      "L=4\nsrun --nodes 2 --gpus-per-node=8 bash -lc \"\nexport X=1\ntorchrun p.py "
      "--num-layers $L \\\n--hidden-size 64 --num-attention-heads 4 --seq-length "
      "128 --vocab-size 1000 --micro-batch-size 1\"",
      "a.sh");
  EXPECT_EQ(imported.job["model"]["layers"], 4);
  EXPECT_EQ(imported.job["cluster"], json::parse(R"({"nodes": 2, "devices_per_node": 8})"));
  EXPECT_EQ(imported.places.at("model.hidden"), "a.sh:5: --hidden-size");
}

TEST(Megatron, AHereDocumentOfDeepSpeedIsFollowed) {
  const std::string script =
      "DS=./tmp/ds.json\ncat <<E > $DS\n{\"zero_optimization\": {\"stage\": 2}, \"bf16\": "
      "{\"enabled\": $BF16}}\nE\npython pretrain_gpt.py --deepspeed --deepspeed_config $DS " +
      std::string(kSmall).substr(0, std::string(kSmall).find('\n')) + " --vocab-size 1000";
  EXPECT_EQ(import_text(script, "train.sh").job["layout"]["zero"], 2);
}

TEST(Megatron, AKnownTaskIsNoPretraining) {
  const std::string script = "python tasks/main.py --task RACE " + std::string(kSmall);
  EXPECT_NE(import_complaint(script, "a.sh").problem.find("\"RACE\" evaluates a model"), std::string::npos);
}

TEST(Megatron, PositionsOfImagesTellAVisionTower) {
  const std::string script = "torchrun pretrain_qwen.py --mrope-section 16 24 24 " + std::string(kSmall);
  EXPECT_NE(import_complaint(script, "a.sh").problem.find("a vision encoder"), std::string::npos);
}

TEST(Megatron, APrefixIsCountedAsCausal) {
  const ImportedJob imported =
      import_text("A=(" + std::string(kSmall) + ")\npython pretrain_prefix_lm.py ${A[@]}", "a.sh");
  EXPECT_TRUE(mentions(imported.warnings, "bidirectional attention over the prefix"));
}

TEST(Megatron, OfTwoTrainingsTheLastIsRead) {
  const std::string base = "A=(" + std::string(kSmall) + ")\n";
  const ImportedJob both = import_text(
      base + "torchrun p.py ${A[@]} --swiglu --micro-batch-size 2\ntorchrun p.py ${A[@]} --micro-batch-size 1", "a.sh");
  EXPECT_EQ(both.job["model"]["gated_mlp"], false);
  EXPECT_EQ(both.job["layout"]["micro_batch_size"], 1);
  EXPECT_TRUE(mentions(both.warnings, "2 training commands; the last one is read"));
  EXPECT_TRUE(mentions(both.warnings, "without --swiglu of the previous one"));
  const ImportedJob shown = import_text(base + "C=\"torchrun p.py ${A[@]} --swiglu\"\necho $C --fp16\n$C", "a.sh");
  EXPECT_EQ(shown.job["model"]["gated_mlp"], true);
  EXPECT_EQ(shown.job["training"]["precision"], "fp32");
  EXPECT_FALSE(mentions(shown.warnings, "training commands"));
}

TEST(Megatron, UndecidedBranchesAreToldOf) {
  const std::string run =
      "fi\nARGS=(" + std::string(kSmall) + ")\ntorchrun p.py ${ARGS[@]} --tensor-model-parallel-size $TP";
  const ImportedJob unknown = import_text("if grep -q big $1; then\nTP=4\nelse\nTP=2\n" + run, "a.sh");
  EXPECT_TRUE(mentions(unknown.warnings, "a.sh:4: TP is \"2\" here and \"4\" in line 2"));
  const ImportedJob empty = import_text("if [ $1 = big ]; then\nTP=4\nelse\nTP=2\n" + run, "a.sh");
  EXPECT_EQ(empty.job["layout"]["tp"], 2);
  EXPECT_TRUE(mentions(empty.warnings, "a.sh:1: $1 is not set: treated as empty in the condition"));
  const ImportedJob known = import_text("S=big\nif [ $S = big ]; then\nTP=4\nelse\nTP=2\n" + run, "a.sh");
  EXPECT_EQ(known.job["layout"]["tp"], 4);
  EXPECT_TRUE(known.warnings.empty());
  const ImportedJob twice = import_text("TP=4\nif true; then A=1\n" + run + " --micro-batch-size 2", "a.sh");
  EXPECT_TRUE(mentions(twice.warnings, "--micro-batch-size: \"2\" here and \"1\" in line 5"));
}

TEST(Megatron, AdaptersOfSwift) {
  const std::string run =
      "megatron sft --model Qwen/Qwen2.5-7B --train_type lora --max_length 2048 --micro_batch_size 1 ";
  const auto tuned = [&run](const std::string& more) {
    return import_text(run + more, "a.sh").job["training"]["finetune"];
  };
  EXPECT_EQ(tuned(""),
            json::parse(R"({"method": "lora", "rank": 8, "alpha": 32.0, "dropout": 0.05, "targets": ["all"]})"));
  EXPECT_EQ(tuned("--lora_rank 64 --lora_dropout 0 --target_modules linear_qkv linear_fc1"),
            json::parse(R"({"method": "lora", "rank": 64, "alpha": 32.0,
                            "targets": ["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"]})"));
  EXPECT_THROW(import_text("megatron sft --model Qwen/Qwen2.5-7B --train_type longlora", "a.sh"), ConfigError);
}

TEST(Megatron, WhatAScriptWorksOutItselfNoEnvironmentSets) {
  const auto help = [](const std::string& head) {
    try {
      const std::string script = head + "A=(" + kSmall + ")\ntorchrun p.py ${A[@]} --tensor-model-parallel-size $TP";
      import_text(script, "a.sh");
    } catch (const ConfigError& error) {
      return error.diagnostic().help;
    }
    return std::string();
  };
  EXPECT_EQ(help("TP=$(python tp.py)\n"), "give --layout.tp");
  EXPECT_EQ(help(""), "set a variable with --env NAME=VALUE; or give --layout.tp");
}

TEST(Megatron, ExpertsAreFoldedWhateverEpIs) {
  const std::string run =
      "torchrun pretrain_gpt.py --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 "
      "--max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 16 --vocab-size 32000 --bf16 "
      "--tensor-model-parallel-size 4 --expert-tensor-parallel-size 1 ";
  const ImportedJob folded = import_text(run + "--sequence-parallel --num-experts 8", "a.sh");
  EXPECT_EQ(folded.job["layout"]["etp"], 1);
  const ImportedJob dense = import_text(run + "--sequence-parallel", "a.sh");
  EXPECT_FALSE(dense.job["layout"].contains("etp"));
  EXPECT_TRUE(mentions(dense.notes, "--expert-tensor-parallel-size has no effect without experts"));
  const ImportedJob apart = import_text(run + "--num-experts 8", "a.sh");
  EXPECT_FALSE(apart.job["layout"].contains("etp"));
  EXPECT_TRUE(mentions(apart.notes, "has no effect without --sequence-parallel"));
}

std::string words_of(std::string_view text) {
  std::string joined;
  for (const ShellCommand& command : parse_shell(text, "a.sh").commands) {
    for (const ShellWord& word : command) joined += "[" + word.text + "]";
    joined += ";";
  }
  return joined;
}

TEST(Shell, QuotesVariablesAndArrays) {
  EXPECT_EQ(words_of("A=1 B='x y'\nrun $A \"$B\" $B ${A}2 # not this"), "[run][1][x y][x][y][12];");
  EXPECT_EQ(words_of("L=(--a 1)\nL+=(--b \"2 3\")\nrun ${L[@]}"), "[run][--a][1][--b][2][3];");
  EXPECT_EQ(words_of("run ${N:-4} ${M-5}"), "[run][4][5];");
  EXPECT_EQ(words_of("run a\\\n b; c && d | e"), "[run][a][b];[c];[d];[e];");
}

TEST(Shell, ElementsWithBlanksAreSplitWhereUnquoted) {
  EXPECT_EQ(words_of("A=( \"--a 1\" '--b 2' )\nrun ${A[@]} x"), "[run][--a][1][--b][2][x];");
  EXPECT_EQ(words_of("A=( \"--a 1\" c )\nrun \"${A[@]}\" \"${A[*]}\""), "[run][--a 1][c][--a 1 c];");
}

TEST(Shell, AssignmentsAreNotSplit) {
  EXPECT_EQ(words_of("A=(--a 1)\nD=(--d 2)\nC=\"run ${A[@]} \\\n  ${D[@]} x\"\n$C"), "[run][--a][1][--d][2][x];");
  EXPECT_EQ(words_of("A='--a 1'\nB=$A\nexport C=$B\" --c\"\nrun $C"), "[run][--a][1][--c];");
  EXPECT_EQ(words_of("A='1 2'\nX=$A run -e Y=$A"), "[run][-e][Y=1][2];");
}

TEST(Shell, ArraysAreSlicedAndHaveDefaults) {
  EXPECT_EQ(words_of("A=(a b c)\nE=()\nrun ${A[@]+\"${A[@]}\"} ${E[@]+\"${E[@]}\"} \"${A[@]:1:2}\" ${E[@]:-d}"),
            "[run][a][b][c][b][c][d];");
  EXPECT_EQ(words_of("declare -A L=([7b]=32 [\"13b\"]=40)\nS=13b N=S\nrun ${L[$S]} ${L[7b]} ${!N} $'a b'"),
            "[run][40][32][13b][a b];");
  EXPECT_EQ(words_of("let \"A = 3 * 4\" B=2\nrun $A $B"), "[run][12][2];");
}

TEST(Shell, FunctionsAreReadWhereTheyAreCalled) {
  EXPECT_EQ(words_of("train() {\n  local tp=$1 pp=${2:-4}\n  run $tp $pp \"$@\"\n}\ntrain 2\ntrain 1 8"),
            "[run][2][4][2];[run][1][8][1][8];");
  EXPECT_EQ(words_of("N=1\nfunction big { N=2; }\nrun $N\nbig\nrun $N"), "[run][1];[run][2];");
  EXPECT_EQ(words_of("N=1\nf ()\n{\n  local N=3\n  if [ $1 = x ]; then run $N; fi; }\nf x | tee log\nrun $N"),
            "[run][3];[tee][log];[run][1];");
  EXPECT_EQ(words_of("sizes() { echo --a 1; }\nrun $(sizes)"), "[run][--a][1];");
  EXPECT_THROW(parse_shell("f() { f; }\nf", "a.sh"), ConfigError);
}

TEST(Shell, BlanksAfterABackslashAreToldOf) {
  EXPECT_EQ(words_of("A=\"--a 1 \\  \n --b\"\nrun $A \\ \n  --c"), "[run][--a][1][--b][--c];");
  EXPECT_TRUE(mentions(parse_shell("run \\ \n  --c", "a.sh").warnings, "a.sh:1: blanks after the backslash"));
  EXPECT_EQ(words_of("run a\\ b"), "[run][a b];");
}

TEST(Shell, NestedScripts) {
  EXPECT_EQ(words_of("A=1\nsh -c 'run $A; go'"), "[run][1];[go];");
  EXPECT_EQ(words_of("srun -n 2 bash -c \"run $(x) $1\""),
            "[srun][-n][2][run][\x1f(x)\x1f][\x1f"
            "1\x1f];");
  EXPECT_EQ(words_of("C='run --a'\neval \"$C 2\""), "[run][--a][2];");
}

TEST(Shell, BranchesThatConstantsDecide) {
  const auto run = [](const std::string& text) {
    const std::string words = words_of("X=big N=4 E= L=\n" + text + "\nrun $V ${L[@]}");
    return words.substr(words.find("[run]"));
  };
  EXPECT_EQ(run("if [ $X = big ]; then V=1; else V=2; fi"), "[run][1];");
  EXPECT_EQ(run("if [[ $X == s* ]]; then V=1; elif [[ $N -gt 3 && -z \"$E\" ]]; then V=2; else V=3; fi"), "[run][2];");
  EXPECT_EQ(run("if ! [ -n \"$E\" ]\nthen\n V=1\n L=(a)\nelse\n V=2\n L=(b)\nfi"), "[run][1][a];");
  EXPECT_EQ(run("case $X in small|tiny) V=1 ;; b*) V=2 ;; *) V=3 ;; esac"), "[run][2];");
  EXPECT_EQ(run("case $X in\n small)\n V=1\n L=(a)\n ;;\n *)\n V=3\n L=(c)\n ;;\nesac"), "[run][3][c];");
  EXPECT_EQ(run("V=1\n[ $N = 5 ] && V=2\n[[ $X == big ]] || L+=(no)\n[ $N = 4 ] && L+=(yes)"), "[run][1][yes];");
  EXPECT_EQ(run("V=1\n[ $N = 5 ] && { V=2; V=3; }"), "[run][1];");
  EXPECT_EQ(run("if $1; then V=1; elif true; then V=2; else V=3; fi"), "[run][2];");
}

TEST(Shell, AndOrListsHaveTheStatusOfWhatRan) {
  const auto run = [](const std::string& text) {
    const std::string words = words_of("N=4 V=\n" + text + "\nrun $V");
    return words.substr(words.find("[run]"));
  };
  EXPECT_EQ(run("[ $N -gt 1 ] && V=4 || V=1"), "[run][4];");
  EXPECT_EQ(run("[ $N -gt 8 ] && V=4 || V=1"), "[run][1];");
  EXPECT_EQ(run("! test $N = 4 && V=4 || V=1"), "[run][1];");
  EXPECT_EQ(run("[ $N = 5 ] || V=2 && V=$V$V"), "[run][22];");
  EXPECT_EQ(run("V=1; false && V=8"), "[run][1];");
  EXPECT_EQ(run("V=1; ! true || V=8; : || V=9"), "[run][8];");
  EXPECT_EQ(run("(( N > 2 )) && V=big || V=small"), "[run][big];");
  EXPECT_EQ(run("V=1; (( N > 8 )) && V=2"), "[run][1];");
  EXPECT_EQ(run("[ $N = 4 ] &&\n  V=\"--fp8 hybrid\" ||\n  V=\"\""), "[run][--fp8][hybrid];");
  EXPECT_EQ(run("[ $N = 4 ] && L=(a b) || L=(c)\nV=${L[@]}"), "[run][a][b];");
  EXPECT_EQ(run("[ $N = 4 ] && { V=2; V=3; } || { V=5; }"), "[run][3];");
  EXPECT_EQ(run("[ $N = 5 ] && { V=2; V=3; } || { V=5; }"), "[run][5];");
  EXPECT_EQ(run("[ $N -gt 8 ] 2>/dev/null && V=2 || V=4"), "[run][4];");
  EXPECT_EQ(run("V=1; [ $N = 4 ] > /dev/null 2>&1 || V=2"), "[run][1];");
  EXPECT_EQ(run("V=1; test $N = 5 2> /dev/null && V=2"), "[run][1];");
  EXPECT_EQ(run("V=$(x) || V=2"), "[run][2];") << "a command may fail";
  EXPECT_EQ(words_of("false && run a | tee log || run b"), "[false];[run][b];");
  EXPECT_EQ(parse_shell("V=1\n[ $(x) = b ] && V=2 || V=3", "a.sh").warnings.size(), 2u);
}

TEST(Shell, SubshellsKeepTheirAssignments) {
  EXPECT_EQ(words_of("A=1\n( A=2; run $A )\nrun $A"), "[run][2];[run][1];");
  EXPECT_EQ(words_of("A=1\n(A=2) && A=3 || A=4\nrun $A"), "[run][3];");
  EXPECT_EQ(words_of("A=1\nfalse && (run x) || (run y)\n(cd d && (A=5; run $A))\nrun $A"),
            "[false];[run][y];[cd][d];[run][5];[run][1];");
  EXPECT_EQ(words_of("A=1\ncase b in (b) A=2 ;; esac\nrun $A > >(tee log)"), "[run][2];[tee][log];");
}

TEST(Shell, UndecidedBranches) {
  const auto warnings = [](const char* text) { return parse_shell(text, "a.sh").warnings.size(); };
  EXPECT_EQ(warnings("case $(x) in a) V=1 ;; b) V=2 ;; esac"), 1u);
  EXPECT_EQ(warnings("V=1\n[ $(x) = b ] && V=2"), 1u);
  EXPECT_EQ(warnings("if [ -f x ]; then V=1; else V=1; fi"), 0u);
  EXPECT_EQ(warnings("if [ -z \"$V\" ]; then V=1; fi"), 0u);
  EXPECT_THROW(parse_shell("if [ a = b ]\nrun", "a.sh"), ConfigError);
  EXPECT_EQ(words_of("cat <<EOF\nif you like\nEOF\nrun a"), "[cat];[EOF];[run][a];");
}

std::string words_with(std::string_view text, const ShellInput& input) {
  std::string joined;
  for (const ShellCommand& command : parse_shell(text, "runs/a.sh", input).commands) {
    for (const ShellWord& word : command) joined += "[" + word.text + "]";
    joined += ";";
  }
  return joined;
}

TEST(Shell, ArgumentsEnvironmentAndSourcedFiles) {
  ShellInput input;
  input.arguments = {"8B", "2"};
  input.environment = {{"NODES", "4"}};
  input.read = [](const std::string& path) {
    return path == "runs/models/m.sh" ? std::optional<std::string>("M=(--num-layers 3)\n") : std::nullopt;
  };
  EXPECT_EQ(words_with("run $1 ${2} \"$@\" $# ${3}x $NODES", input), "[run][8B][2][8B][2][2][x][4];");
  EXPECT_EQ(words_with("shift\nrun $1", input), "[run][2];");
  EXPECT_EQ(words_with("D=\"$(cd \"$(dirname \"$0\")\" && pwd)\"\nsource $D/models/m.sh\nrun ${M[@]}", input),
            "[run][--num-layers][3];");
  EXPECT_EQ(parse_shell("source $HOME/none.sh", "a.sh").not_found.size(), 1u);
  EXPECT_EQ(words_with("while [[ $# -gt 0 ]]; do case $1 in 8B) S=8 ;; *) T=$1 ;; esac; shift; done\nrun $S $T", input),
            "[run][8][2];");
}

TEST(Shell, ParametersAreRewritten) {
  EXPECT_EQ(words_of("S=${S:-\"x\"} F=a/b.json E=\nrun $S ${F##*/} ${F%.json} ${F/b/c} ${E:-${F}} ${S:+y} ${#F}"),
            "[run][x][b.json][a/b][a/c.json][a/b.json][y][8];");
  EXPECT_EQ(words_of("A=(5 6 7)\nrun ${A[1]} ${#A[@]} $(echo 2 3) `expr 2 + 3` $(basename a/b)"),
            "[run][6][3][2][3][5][b];");
}

TEST(Shell, PlacesToFillInAreValues) {
  EXPECT_EQ(words_of("O=\"--load <PATH TO IT> --fp16\"\nrun --save <DIR> $O --bf16 <in >out"),
            "[run][--save][<DIR>][--load][<PATH][TO][IT>][--fp16][--bf16];[in];[out];");
}

TEST(Shell, LoopsAreRead) {
  EXPECT_EQ(words_of("L=()\nfor i in 1 2 3; do L+=($i); done\nrun ${L[@]}"), "[run][1][2][3];");
  EXPECT_EQ(words_of("L=()\nfor ((i = 0; i < 4; i++)); do\n  if ((i < 1)); then L+=(0); else L+=(1); fi\ndone\n"
                     "printf -v F \"[%s]\" \"$(IFS=', '; echo \"${L[*]}\")\"\nrun \"$F\""),
            "[run][[0 1 1 1]];");
  EXPECT_EQ(words_of("for i in {1..3} x{4..2..2}; do run $i; done"), "[run][1];[run][2];[run][3];[run][x4];[run][x2];");
  EXPECT_EQ(words_of("for i in $(seq 2) $(seq 8 -4 0) `seq 3 3`; do run $i; done"),
            "[run][1];[run][2];[run][8];[run][4];[run][0];[run][3];");
  EXPECT_EQ(
      words_of(
          "for i in {1..9}; do\n  if [ $i = 3 ]; then break; fi\n  ((i == 1)) && continue\n  run $i\ndone\nrun $i"),
      "[run][2];[run][3];");
  EXPECT_EQ(words_of("while true; do\n  for i in 1 2; do run a; break 2; done\ndone\nrun b"), "[run][a];[run][b];");
  EXPECT_EQ(words_of("while true; do run a; done").substr(0, 7), "[run][a");
}

TEST(Shell, BatchLinesAndHereDocuments) {
  const ShellScript script = parse_shell(
      "#SBATCH --nodes=24  # all\n#SBATCH --gres=gpu:8\nP=ds.$SLURM_JOB_ID.json\ncat <<E > $P\n{\"stage\": $STAGE}\nE\n"
      "run $SLURM_NNODES $SLURM_GPUS_ON_NODE",
      "a.slurm");
  EXPECT_EQ(script.commands.back()[1].text, "24");
  EXPECT_EQ(script.commands.back()[2].text, "8");
  ASSERT_EQ(script.written.size(), 1u);
  EXPECT_EQ(script.written.begin()->second, "{\"stage\": \x1fSTAGE\x1f}");
}

TEST(Shell, Arithmetic) {
  EXPECT_EQ(words_of("A=6\nrun $((A > 5 ? 2 : 3)) $((A == 6 && A != 7)) $((!A))"), "[run][2][1][0];");
  EXPECT_EQ(words_of("A=6\nrun $((A*(2+$A)/4%5)) $((-3))"), "[run][2][-3];");
  EXPECT_EQ(unset_name(parse_shell("run $((1/0))", "a.sh").commands[0][1].text), "$((1/0))");
  EXPECT_EQ(unset_name(parse_shell("run $(hostname)", "a.sh").commands[0][1].text), "$(hostname)");
  EXPECT_EQ(unset_name(parse_shell("run x$1", "a.sh").commands[0][1].text), "$1");
}

TEST(Shell, ExpansionIsBounded) {
  std::string text = "A=xxxxxxxx\n";
  for (int doubling = 0; doubling < 40; ++doubling) text += "A=$A$A\n";
  EXPECT_THROW(parse_shell(text, "a.sh"), ConfigError);
}

}  // namespace
}  // namespace flopcast
