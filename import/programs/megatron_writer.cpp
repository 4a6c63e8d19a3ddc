// Writes Megatron-LM's arguments: names and requirements as in megatron/training/arguments.py.
#include "import/programs/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "import/programs/megatron_reader.hpp"

namespace flopcast {

namespace {

constexpr int kShardedGradients = 2;
constexpr const char* kOwnStack = "megatron-core";  // the stack that the reader of these arguments assumes

// One argument per line, as `xargs` and a shell read them.
class Arguments {
 public:
  void flag(const char* name) { lines_.push_back(fmt::format("--{}", name)); }
  void flag_if(bool given, const char* name) {
    if (given) flag(name);
  }
  template <typename Value>
  void value(const char* name, const Value& value) {
    lines_.push_back(fmt::format("--{} {}", name, value));
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

// True if all ranks between the first and the last hold the same number of layers, as Megatron's arguments require.
bool has_even_middle(const std::vector<int>& layers) {
  if (layers.size() < 3) return true;
  return std::all_of(layers.begin() + 1, layers.end() - 1, [&](int count) { return count == layers[1] && count > 0; });
}

bool all_equal(const std::vector<int>& layers) {
  return std::all_of(layers.begin(), layers.end(), [&](int count) { return count == layers.front(); });
}

void require_model(const Transformer& model, Expressible& expressible) {
  expressible.require(model.causal, "a model with non-causal attention", "");
  expressible.require(!model.embedding_norm, "model.embedding_norm", "");
  expressible.require(!model.post_norms, "model.post_norms", "");
  expressible.require(model.block == BlockForm::kSequential, "model.block parallel", "");
  expressible.require(model.attention_chunk == 0, "model.attention_chunk", "");
  expressible.require(model.positions != Positions::kAlibi, "model.positions alibi", "");
}

constexpr double kHalf = 2.0;  // bytes
constexpr double kSingle = 4.0;

// Gradients and moments must be 32-bit or 16-bit, the latter in bf16.
void require_formats(const Job& job, Expressible& expressible) {
  const Optimizer optimizer = job.training.optimizer;
  expressible.require(optimizer == Optimizer::kAdam || optimizer == Optimizer::kSgd,
                      fmt::format("training.optimizer {}", name_of(optimizer)), "--training.optimizer adam");
  const Stack& stack = job.training.stack;
  const bool computes_in_bf16 = job.training.precision == Precision::kBf16 || job.training.precision == Precision::kFp8;
  const auto known = [computes_in_bf16](double bytes) {
    return bytes == kSingle || (bytes == kHalf && computes_in_bf16);
  };
  expressible.require(known(stack.gradient_bytes), "training.gradient_dtype with this precision",
                      "--training.gradient_dtype fp32");
  expressible.require(known(stack.moment_bytes), "training.moment_dtype with this precision",
                      "--training.moment_dtype fp32");
}

void require_megatron_layout(const Job& job, Expressible& expressible) {
  const Layout& layout = job.layout;
  const std::string schedule = schedule_base_name(layout);
  const bool is_known = schedule == "1f1b" || schedule == "interleaved";
  expressible.require(is_known || runs_one_microbatch(layout), fmt::format("layout.schedule {}", layout.schedule),
                      "--schedules 1f1b,interleaved");
  expressible.require(layout.data_parallel == DataParallel::kDdp, "layout.data_parallel fsdp or hsdp", "--zero 3");
  const bool supported_offload =
      layout.offload == Offload::kNone || (layout.offload == Offload::kOptimizer && layout.zero > 0);
  expressible.require(supported_offload, "layout.offload other than the optimizer's of ZeRO 1",
                      "--layout.offload none");
  expressible.require(!layout.bucket_mb, "layout.bucket_mb", "");
  expressible.require(!job.model.experts || layout.tp == 1 || layout.sequence_parallel,
                      "experts with tensor parallelism but without sequence parallelism", "--sp");
  expressible.require(layout.cp == 1 || job.training.sequence_length % (2 * layout.cp) == 0,
                      fmt::format("a sequence length not divisible by 2 · cp = {}", 2 * layout.cp), "another --cp");
  const Stack& stack = job.training.stack;
  const bool gathers_alone = stack.overlap_parameter_gather && !stack.overlap_gradient_reduction && layout.zero > 0;
  expressible.require(!gathers_alone, "training.overlap.parameters without training.overlap.gradients",
                      "--overlap-grad-reduce");
  require_formats(job, expressible);
}

void write_experts(const Transformer& model, Arguments& arguments) {
  if (!model.experts) return;
  const Experts& experts = *model.experts;
  arguments.value("num-experts", experts.count);
  arguments.value("moe-router-topk", experts.top_k);
  arguments.value("moe-ffn-hidden-size", experts.ffn);
  if (experts.shared > 0) arguments.value("moe-shared-expert-intermediate-size", experts.shared * experts.shared_ffn);
  if (experts.first_dense_layers > 0) {
    arguments.value("moe-layer-freq", fmt::format("\"([0]*{}+[1]*{})\"", experts.first_dense_layers,
                                                  model.layers - experts.first_dense_layers));
  } else if (experts.every > 1) {
    arguments.value("moe-layer-freq", experts.every);
  }
  if (experts.groups > 0) {
    arguments.value("moe-router-num-groups", experts.groups);
    arguments.value("moe-router-group-topk", experts.group_top_k);
  }
  if (experts.capacity_factor) {
    arguments.value("moe-expert-capacity-factor", *experts.capacity_factor);
    arguments.flag("moe-pad-expert-input-to-capacity");
  }
}

void write_attention(const Transformer& model, Arguments& arguments) {
  if (model.latent) {
    arguments.flag("multi-latent-attention");
    if (model.latent->query_rank > 0) arguments.value("q-lora-rank", model.latent->query_rank);
    arguments.value("kv-lora-rank", model.latent->key_value_rank);
    arguments.value("qk-head-dim", model.latent->nope_dim);
    arguments.value("qk-pos-emb-head-dim", model.latent->rope_dim);
    arguments.value("v-head-dim", model.latent->value_dim);
  } else {
    arguments.value("kv-channels", model.head_dim);
    if (model.kv_heads != model.heads) {
      arguments.flag("group-query-attention");
      arguments.value("num-query-groups", model.kv_heads);
    }
  }
  arguments.flag_if(!model.biases, "disable-bias-linear");
  arguments.flag_if(model.attention_bias && !model.biases, "add-qkv-bias");
  arguments.flag_if(model.qk_norm, "qk-layernorm");
  if (!model.windowed()) return;
  arguments.value("window-size", fmt::format("\"({},0)\"", model.sliding_window - 1));
  if (model.windowed_layers < model.layers) {
    arguments.value("window-attn-skip-freq",
                    fmt::format("\"([1]*{}+[0]*{})\"", model.windowed_layers, model.layers - model.windowed_layers));
  }
}

void write_model(const Job& job, Arguments& arguments) {
  const Transformer& model = job.model;
  arguments.value("num-layers", model.layers);
  arguments.value("hidden-size", model.hidden);
  arguments.value("num-attention-heads", model.heads);
  arguments.value("ffn-hidden-size", model.ffn);
  arguments.flag_if(model.gated_mlp, "swiglu");
  write_attention(model, arguments);
  write_experts(model, arguments);
  arguments.value("normalization", model.norm == Norm::kRmsNorm ? "RMSNorm" : "LayerNorm");
  const char* const position = model.positions == Positions::kLearned  ? "learned_absolute"
                               : model.positions == Positions::kRotary ? "rope"
                                                                       : "none";
  arguments.value("position-embedding-type", position);
  arguments.flag_if(!model.tied_embeddings, "untie-embeddings-and-output-weights");
  const char* const dropout = model.dropout ? "0.1" : "0";
  arguments.value("attention-dropout", dropout);
  arguments.value("hidden-dropout", dropout);
  arguments.value("vocab-size", model.vocab);
  if (model.mtp_layers > 0) arguments.value("mtp-num-layers", model.mtp_layers);
}

// "Et*5|t*7|t*6L": the layers t of every stage in the model's order, with the embedding E and the loss L.
std::string stage_string(const std::vector<int>& stages) {
  std::string text = "E";
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    if (stage > 0) text += "|";
    if (stages[stage] > 0) text += stages[stage] == 1 ? "t" : fmt::format("t*{}", stages[stage]);
  }
  return text + "L";
}

void write_pipeline(const Layout& layout, Arguments& arguments) {
  arguments.value("pipeline-model-parallel-size", layout.pp);
  const int chunks = layout.vpp.value_or(1);
  const bool chunked = layout.pp > 1 && chunks > 1;
  const std::vector<int>& stages = layout.stage_layers;
  const bool even = all_equal(stages);
  if (chunked && even) arguments.value("num-layers-per-virtual-pipeline-stage", stages.front());
  if (chunked && layout.group_size)
    arguments.value("microbatch-group-size-per-virtual-pipeline-stage", *layout.group_size);
  if (even) return;
  if (chunked || !has_even_middle(stages)) {
    arguments.value("pipeline-model-parallel-layout", fmt::format("\"{}\"", stage_string(stages)));
    return;
  }
  const int inner = stages[1];
  if (stages.front() != inner || stages.size() == 2) arguments.value("decoder-first-pipeline-num-layers", stages[0]);
  if (stages.back() != inner) arguments.value("decoder-last-pipeline-num-layers", stages.back());
}

void write_layout(const Job& job, Arguments& arguments) {
  const Layout& layout = job.layout;
  arguments.value("tensor-model-parallel-size", layout.tp);
  arguments.flag_if(layout.sequence_parallel && layout.tp > 1, "sequence-parallel");
  write_pipeline(layout, arguments);
  if (layout.cp > 1) {
    arguments.value("context-parallel-size", layout.cp);
    arguments.value("cp-comm-type", kMegatronExchanges[static_cast<std::size_t>(layout.context_parallel)]);
    if (layout.context_inner) {
      arguments.value("hierarchical-context-parallel-sizes",
                      fmt::format("{} {}", *layout.context_inner, layout.cp / *layout.context_inner));
    }
  }
  if (layout.ep > 1) arguments.value("expert-model-parallel-size", layout.ep);
  if (layout.etp) arguments.value("expert-tensor-parallel-size", *layout.etp);
  arguments.value("micro-batch-size", layout.micro_batch_size);
  arguments.value("global-batch-size", layout.global_batch_size);
  if (layout.recompute == Recompute::kSelective) {
    arguments.value("recompute-granularity", "selective");
    if (layout.recompute_modules) {
      arguments.value("recompute-modules", fmt::format("{}", fmt::join(names_in(*layout.recompute_modules), " ")));
    }
  }
  if (layout.recompute == Recompute::kFull) {
    arguments.value("recompute-granularity", "full");
    // Megatron cannot recompute every N-th layer; recomputing the same number of first layers per stage takes the same
    // time and memory.
    const int of_stage = job.model.layers / (layout.pp * layout.vpp.value_or(1));
    const bool some = layout.recompute_layers || layout.recompute_every;
    arguments.value("recompute-method", some ? "block" : "uniform");
    arguments.value("recompute-num-layers", some ? layout.recomputed(of_stage) : 1);
    arguments.flag_if(layout.partition_checkpoints && layout.tp > 1, "distribute-saved-activations");
  }
  arguments.flag_if(layout.zero > 0, "use-distributed-optimizer");
  arguments.flag_if(layout.offload == Offload::kOptimizer, "optimizer-cpu-offload");
  if (layout.zero >= kShardedGradients) {
    arguments.flag("use-megatron-fsdp");
    arguments.value("data-parallel-sharding-strategy",
                    layout.zero == kShardedGradients ? "optim_grads" : "optim_grads_params");
    arguments.value("ckpt-format", "fsdp_dtensor");
  }
}

void write_overlap(const Job& job, Arguments& arguments) {
  const Stack& stack = job.training.stack;
  arguments.flag_if(stack.overlap_gradient_reduction, "overlap-grad-reduce");
  // Megatron only overlaps gathers if it overlaps reductions too, and only with a distributed optimizer.
  arguments.flag_if(stack.overlap_gradient_reduction && stack.overlap_parameter_gather && job.layout.zero > 0,
                    "overlap-param-gather");
  // Megatron's plain 1F1B always sends after its passes.
  arguments.flag_if(stack.blocking_sends && job.layout.pp > 1, "no-overlap-p2p-communication");
  arguments.flag_if(stack.overlap_tp_in_pieces && job.layout.tp > 1 && job.layout.sequence_parallel, "tp-comm-overlap");
}

// DualPipe's overlap belongs to a schedule that Megatron lacks.
void write_experts_exchange(const Job& job, Arguments& arguments) {
  const Stack& stack = job.training.stack;
  if (!job.model.experts) return;
  const bool flex =
      stack.experts_dispatcher == ExpertDispatcher::kDeepep || stack.experts_dispatcher == ExpertDispatcher::kHybridep;
  const std::string dispatcher(name_of(stack.experts_dispatcher));
  arguments.value("moe-token-dispatcher-type", flex ? std::string("flex") : dispatcher);
  if (flex) arguments.value("moe-flex-dispatcher-backend", dispatcher);
  const bool delayed = stack.overlap_experts == ExpertOverlap::k1f1bDelayed;
  arguments.flag_if(delayed || stack.overlap_experts == ExpertOverlap::k1f1b, "overlap-moe-expert-parallel-comm");
  arguments.flag_if(delayed, "delay-wgrad-compute");
}

// Writes formats that differ from the defaults, 32-bit gradients and moments.
void write_formats(const Job& job, Arguments& arguments) {
  const Stack& stack = job.training.stack;
  arguments.flag_if(stack.gradient_bytes == kHalf, "grad-reduce-in-bf16");
  const bool small_moments = stack.moment_bytes == kHalf;
  // Megatron supports other formats and host memory only in its precision-aware optimizer.
  arguments.flag_if(small_moments || job.layout.offload == Offload::kOptimizer, "use-precision-aware-optimizer");
  if (small_moments) {
    arguments.value("exp-avg-dtype", "bf16");
    arguments.value("exp-avg-sq-dtype", "bf16");
  }
}

void write_training(const Job& job, Arguments& arguments) {
  const Training& training = job.training;
  arguments.value("seq-length", training.sequence_length);
  // Megatron refuses fewer positions than the sequence has.
  arguments.value("max-position-embeddings", std::max(training.sequence_length, job.model.sequence_length));
  arguments.flag_if(training.precision == Precision::kBf16 || training.precision == Precision::kFp8, "bf16");
  arguments.flag_if(training.precision == Precision::kFp16, "fp16");
  if (training.precision == Precision::kFp8) {
    arguments.value("fp8-format", "hybrid");
    if (training.fp8_recipe) arguments.value("fp8-recipe", std::string(name_of(*training.fp8_recipe)));
    arguments.flag_if(training.stack.fp8_parameters, "fp8-param-gather");
    arguments.flag_if(training.stack.fp8_attention, "fp8-dot-product-attention");
    arguments.flag_if(training.stack.fp8_activations, "activation-func-fp8-input-store");
    arguments.flag_if(training.stack.amax_reduction == AmaxReduction::kTensor, "tp-only-amax-red");
  }
  write_formats(job, arguments);
  arguments.value("optimizer", training.optimizer == Optimizer::kSgd ? "sgd" : "adam");
  arguments.value("attention-backend", training.flash_attention ? "flash" : "unfused");
  if (training.tokens) {
    arguments.value("train-samples", static_cast<std::int64_t>(std::ceil(*training.tokens / training.sequence_length)));
  }
}

Arguments megatron_arguments(const Job& job) {
  Expressible expressible("Megatron-LM");
  expressible.require_common(job);
  require_model(job.model, expressible);
  expressible.require(!job.training.finetune, "training.finetune", "--finetune full");
  require_megatron_layout(job, expressible);
  expressible.enforce();
  Arguments arguments;
  write_model(job, arguments);
  write_layout(job, arguments);
  write_overlap(job, arguments);
  write_experts_exchange(job, arguments);
  write_training(job, arguments);
  return arguments;
}

std::vector<std::string> notes_on(const Job& job) {
  std::vector<std::string> notes;
  notes.emplace_back(job.training.tokens ? "add data, tokenizer and learning rate yourself"
                                         : "add data, tokenizer, learning rate and the length of the run yourself");
  const Stack& stack = job.training.stack;
  std::vector<std::string> not_expressed;
  if (stack.name != kOwnStack) not_expressed.push_back(fmt::format("training.stack {}", stack.name));
  if (stack.compile) not_expressed.emplace_back("training.compile");
  if (stack.reduced_gradient_bytes() != stack.gradient_bytes) not_expressed.emplace_back("training.reduce_dtype");
  if (job.layout.tp > 1 && stack.name == kOwnStack && !stack.overlap_tp_with_weight_gradient)
    not_expressed.emplace_back("training.overlap.tp false");
  const Transformer& model = job.model;
  if (model.whole_qk_norm) not_expressed.emplace_back("model.whole_qk_norm");
  if (model.attention_sinks) not_expressed.emplace_back("model.attention_sinks");
  if (model.experts && model.experts->router_bias) not_expressed.emplace_back("model.experts.router_bias");
  if (model.experts && model.experts->imbalance > 0.0) not_expressed.emplace_back("model.experts.imbalance");
  if (!not_expressed.empty()) {
    notes.push_back(fmt::format("no argument expresses {}: give it again when reading the file back",
                                fmt::join(not_expressed, ", ")));
  }
  if (job.layout.zero >= kShardedGradients) {
    notes.push_back(
        fmt::format("ZeRO {} uses Megatron FSDP, which needs CUDA_DEVICE_MAX_CONNECTIONS above 1", job.layout.zero));
  }
  return notes;
}

}  // namespace

LaunchFile write_megatron(const Job& job) {
  LaunchFile file;
  file.text = fmt::format("{}\n", fmt::join(megatron_arguments(job).lines(), "\n"));
  file.notes = notes_on(job);
  file.notes.push_back(fmt::format("start it on {} nodes of {} GPUs: dp {} follows from the other axes",
                                   job.cluster.nodes, job.cluster.devices_per_node, job.layout.dp));
  return file;
}

LaunchFile write_torchrun(const Job& job) {
  LaunchFile file;
  const std::vector<std::string> lines = megatron_arguments(job).lines();
  file.text =
      "#!/bin/sh\n"
      "# Run on every node with NODE_RANK and MASTER_ADDR set, and append the remaining arguments.\n";
  // Before Blackwell Megatron requires it for tensor and context parallelism; its FSDP refuses it.
  if (job.layout.zero < kShardedGradients) file.text += "export CUDA_DEVICE_MAX_CONNECTIONS=1\n";
  file.text += fmt::format(
      "torchrun --nnodes {} --nproc-per-node {} --node-rank \"$NODE_RANK\" --master-addr \"$MASTER_ADDR\" "
      "--master-port 6000 \\\n  pretrain_gpt.py \\\n  {} \\\n  \"$@\"\n",
      job.cluster.nodes, job.cluster.devices_per_node, fmt::join(lines, " \\\n  "));
  file.notes = notes_on(job);
  return file;
}

}  // namespace flopcast
