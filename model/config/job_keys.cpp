#include "model/config/job_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text/error.hpp"

namespace flopcast {

const std::vector<JobKey>& job_keys() {
  using Kind = KeyKind;
  static const std::vector<JobKey> keys = {
      {"model", Kind::kText, {}, "NAME", "model: a catalogue name, or the path of a layer profile"},
      {"model.micro_batch_size", Kind::kWhole, {}, "N", "samples of the microbatch that a layer profile measured"},
      {"model.layers", Kind::kWhole, {"--num-layers"}, "N", "transformer layers"},
      {"model.hidden", Kind::kWhole, {"--hidden-size"}, "N", "hidden size h"},
      {"model.heads", Kind::kWhole, {"--num-attention-heads"}, "N", "attention heads"},
      {"model.kv_heads", Kind::kWhole, {"--num-query-groups"}, "N", "key/value heads"},
      {"model.head_dim", Kind::kWhole, {"--kv-channels"}, "N", "width of a head"},
      {"model.ffn", Kind::kWhole, {"--ffn-hidden-size"}, "N", "MLP width"},
      {"model.vocab", Kind::kWhole, {"--vocab-size"}, "N", "vocabulary"},
      {"model.sequence_length", Kind::kWhole, {}, "N", "sequence length the model was made for"},
      {"model.gated_mlp", Kind::kBoolean, {"--swiglu"}, "", "three MLP matrices (SwiGLU)"},
      {"model.biases", Kind::kBoolean, {}, "", "biases on the linears"},
      {"model.attention_bias", Kind::kBoolean, {"--add-qkv-bias"}, "", "biases on queries, keys and values alone"},
      {"model.qk_norm", Kind::kBoolean, {"--qk-layernorm"}, "", "a norm over each query and key head"},
      {"model.causal", Kind::kBoolean, {}, "", "false: every token attends to every other"},
      {"model.embedding_norm", Kind::kBoolean, {}, "", "a norm behind the embedding"},
      {"model.experts.count", Kind::kWhole, {"--num-experts"}, "N", "experts of a layer"},
      {"model.experts.top_k", Kind::kWhole, {"--moe-router-topk"}, "N", "experts each token goes to"},
      {"model.experts.ffn", Kind::kWhole, {"--moe-ffn-hidden-size"}, "N", "MLP width of an expert"},
      {"model.experts.shared", Kind::kWhole, {}, "N", "experts that see every token"},
      {"model.experts.shared_ffn", Kind::kWhole, {}, "N", "MLP width of a shared expert"},
      {"model.experts.first_dense_layers", Kind::kWhole, {}, "N", "layers before the first with experts"},
      {"model.experts.capacity_factor",
       Kind::kNumber,
       {"--moe-expert-capacity-factor"},
       "C",
       "rows of an expert in fair shares, padded (default: as many as come)"},
      {"model.experts.every", Kind::kWhole, {}, "N", "experts in every N-th layer"},
      {"model.mla.q_lora_rank", Kind::kWhole, {"--q-lora-rank"}, "N", "width of the query latent, 0 for none"},
      {"model.mla.kv_lora_rank", Kind::kWhole, {"--kv-lora-rank"}, "N", "width of the key-value latent"},
      {"model.mla.qk_nope_head_dim", Kind::kWhole, {"--qk-head-dim"}, "N", "width of a head without position"},
      {"model.mla.qk_rope_head_dim", Kind::kWhole, {"--qk-pos-emb-head-dim"}, "N", "rotated width of a head"},
      {"model.mla.v_head_dim", Kind::kWhole, {"--v-head-dim"}, "N", "width of a value head"},
      {"model.dropout", Kind::kBoolean, {}, "", "dropout, with its stored masks"},
      {"model.norm", Kind::kText, {}, "NORM", "layernorm or rmsnorm"},
      {"model.positions", Kind::kText, {}, "KIND", "learned, rotary, alibi or none"},
      {"model.tied_embeddings", Kind::kBoolean, {}, "", "the head shares the embedding's table"},
      {"cluster", Kind::kText, {}, "[Nx]NAME", "cluster: a catalogue name, N nodes of it"},
      {"cluster.nodes", Kind::kWhole, {"--nodes"}, "N", "nodes"},
      {"cluster.devices_per_node", Kind::kWhole, {}, "N", "devices in a node"},
      {"cluster.device", Kind::kText, {}, "NAME", "device: a catalogue name"},
      {"cluster.intra_bandwidth", Kind::kText, {}, "RATE", "of one device to its node, per direction"},
      {"cluster.intra_efficiency", Kind::kNumber, {}, "SHARE", "share of it that collectives reach"},
      {"cluster.intra_latency", Kind::kText, {}, "TIME", "of a message inside the node"},
      {"cluster.nics_per_node", Kind::kWhole, {}, "N", "network cards in a node"},
      {"cluster.nic_bandwidth", Kind::kText, {}, "RATE", "of one card, per direction"},
      {"cluster.nic_efficiency", Kind::kNumber, {}, "SHARE", "share of it that collectives reach"},
      {"cluster.inter_latency", Kind::kText, {}, "TIME", "of a message between nodes"},
      {"cluster.host_bandwidth", Kind::kText, {}, "RATE", "of one device to its host, per direction"},
      {"cluster.host_memory_bandwidth", Kind::kText, {}, "RATE", "of a node's host memory"},
      {"layout.dp", Kind::kWhole, {"--dp"}, "N", "data-parallel replicas (default: the devices left over)"},
      {"layout.tp", Kind::kWhole, {"--tp", "--tensor-model-parallel-size"}, "N", "tensor-parallel ranks"},
      {"layout.pp", Kind::kWhole, {"--pp", "--pipeline-model-parallel-size"}, "N", "pipeline ranks"},
      {"layout.vpp",
       Kind::kWhole,
       {"--vpp", "--num-virtual-stages-per-pipeline-rank"},
       "N",
       "stages per pipeline rank"},
      {"layout.cp", Kind::kWhole, {"--cp", "--context-parallel-size"}, "N", "context-parallel ranks"},
      {"layout.context_parallel", Kind::kText, {}, "FORM", "of cp ranks: ring or ulysses"},
      {"layout.ep", Kind::kWhole, {"--ep", "--expert-model-parallel-size"}, "N", "expert-parallel ranks"},
      {"layout.tensor_parallel", Kind::kText, {}, "FORM", "1d, 2d, 2.5d or 3d"},
      {"layout.tensor_depth", Kind::kWhole, {}, "D", "depth d of tensor_parallel 2.5d, tp = q²·d"},
      {"layout.sequence_parallel",
       Kind::kBoolean,
       {"--sp", "--sequence-parallel"},
       "",
       "split norms and dropouts over tp"},
      {"layout.micro_batch_size", Kind::kWhole, {"--mbs", "--micro-batch-size"}, "N", "sequences per microbatch"},
      {"layout.global_batch_size", Kind::kWhole, {"--gbs", "--global-batch-size"}, "N", "sequences per step"},
      {"layout.schedule", Kind::kText, {"--schedule"}, "NAME[:V]", "pipeline schedule (see: flopcast schedule list)"},
      {"layout.chains", Kind::kText, {"--chains"}, "A-B,C-D", "stage ranges of a bidirectional schedule in a file"},
      {"layout.group_size", Kind::kWhole, {"--group"}, "N", "interleaving group"},
      {"layout.accumulation", Kind::kWhole, {"--accumulation"}, "N", "microbatches per update of pipedream-2bw"},
      {"layout.memory_limit", Kind::kWhole, {"--memory-limit"}, "N", "activations a rank may hold, in microbatches"},
      {"layout.slices", Kind::kWhole, {"--slices"}, "N", "token slices that a microbatch is cut into"},
      {"layout.stage_layers", Kind::kWholeList, {}, "N,N,…", "layers of each stage, or uniform or balanced"},
      {"layout.recompute", Kind::kText, {"--recompute", "--recompute-granularity"}, "KIND", "none, selective or full"},
      {"layout.partition_checkpoints",
       Kind::kBoolean,
       {"--distribute-saved-activations"},
       "",
       "recompute full: cut kept block inputs over tp"},
      {"layout.data_parallel", Kind::kText, {}, "FORM", "ddp, fsdp, hsdp, dataparallel, ps or byteps"},
      {"layout.shards", Kind::kWhole, {}, "N", "hsdp: ranks that share one copy of the model"},
      {"layout.reshard_after_forward",
       Kind::kBoolean,
       {},
       "",
       "fsdp, hsdp: gather weights again for the backward pass"},
      {"layout.spare_hosts", Kind::kWhole, {}, "K", "ps, byteps: hosts without GPUs that hold parameters"},
      {"layout.zero", Kind::kWhole, {"--zero"}, "0..3", "shard optimizer state (1), gradients (2), weights (3)"},
      {"layout.bucket_mb", Kind::kWhole, {}, "MIB", "gradient bucket of ddp (default 25, the first 1)"},
      {"layout.compression", Kind::kText, {}, "KIND", "of gradients: none, 8bit, 4bit, topk:F or powersgd:R"},
      {"layout.offload", Kind::kText, {}, "KIND", "to the host: none, optimizer, activations or all"},
      {"layout.placement", Kind::kText, {}, "AXES", "axes, innermost first: tp-cp-dp-pp"},
      {"training.sequence_length", Kind::kWhole, {"--seq", "--seq-length"}, "N", "tokens per sequence"},
      {"training.precision", Kind::kText, {"--precision"}, "FORMAT", "fp32, tf32, fp16, bf16 or fp8"},
      {"training.optimizer", Kind::kText, {}, "NAME", "adam or sgd"},
      {"training.attention", Kind::kText, {}, "KIND", "flash or unfused"},
      {"training.transport", Kind::kText, {}, "NAME", "nccl, gloo or mpi"},
      {"training.gradient_transport", Kind::kText, {}, "NAME", "of data-parallel traffic alone (default: transport)"},
      {"training.stack",
       Kind::kText,
       {"--stack"},
       "NAME|FILE",
       "training software: a name (flopcast catalog stacks) or a JSON file"},
      {"training.tokens", Kind::kText, {"--tokens"}, "COUNT", "tokens of the whole run, such as 300B"},
      {"training.price_per_gpu_hour", Kind::kText, {"--price"}, "DOLLARS", "price of a GPU hour"},
      {"training.profile",
       Kind::kText,
       {"--profile"},
       "FILE|NAME",
       "device profile (see: flopcast calibrate --help, flopcast catalog profiles)"},
  };
  return keys;
}

namespace {

[[noreturn]] void refuse(const FlagValue& value, const std::string& problem, const std::string& help) {
  throw ConfigError({std::string(value.key->field), problem, value.flag, help});
}

std::optional<long> whole_number(const std::string& text) {
  if (text.empty()) return std::nullopt;
  errno = 0;
  char* end = nullptr;
  const long number = std::strtol(text.c_str(), &end, 10);
  if (errno != 0 || *end != '\0') return std::nullopt;
  return number;
}

// A list, or a word, which the reader of the section judges.
nlohmann::json list_of(const FlagValue& value) {
  const bool is_word =
      !value.text.empty() && value.text.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos;
  if (is_word) return value.text;
  nlohmann::json numbers = nlohmann::json::array();
  std::size_t begin = 0;
  while (begin <= value.text.size()) {
    const std::size_t comma = std::min(value.text.find(',', begin), value.text.size());
    const auto number = whole_number(value.text.substr(begin, comma - begin));
    if (!number) refuse(value, fmt::format("\"{}\" is not a list of whole numbers", value.text), "expected N,N,…");
    numbers.push_back(*number);
    begin = comma + 1;
  }
  return numbers;
}

nlohmann::json typed(const FlagValue& value) {
  switch (value.key->kind) {
    case KeyKind::kText:
      return value.text;
    case KeyKind::kBoolean:
      if (value.text == "true" || value.text == "false") return value.text == "true";
      refuse(value, fmt::format("\"{}\" is neither true nor false", value.text), "valid: true, false");
    case KeyKind::kNumber: {
      char* end = nullptr;
      const double number = std::strtod(value.text.c_str(), &end);
      if (value.text.empty() || *end != '\0') refuse(value, fmt::format("\"{}\" is not a number", value.text), "");
      return number;
    }
    case KeyKind::kWholeList:
      return list_of(value);
    case KeyKind::kWhole:
      break;
  }
  const auto number = whole_number(value.text);
  if (!number) refuse(value, fmt::format("\"{}\" is not a whole number", value.text), "");
  return *number;
}

// The key under which a name becomes an object: "gpt3-175b" -> {"name": "gpt3-175b"}.
constexpr const char* kNameKey = "name";

}  // namespace

void apply_flags(const std::vector<FlagValue>& flags, nlohmann::json& root, Origins& origins) {
  // Whole names first, so that --model.layers refines --model whatever their order on the command line.
  for (const bool nested : {false, true}) {
    for (const FlagValue& value : flags) {
      const std::string field(value.key->field);
      const std::size_t dot = field.find('.');
      if ((dot != std::string::npos) != nested) continue;
      origins.flags[field] = value.flag;
      if (!nested) {
        root[field] = typed(value);
        continue;
      }
      nlohmann::json& section = root[field.substr(0, dot)];
      if (section.is_string()) section = {{kNameKey, section}};
      if (!section.is_null() && !section.is_object()) continue;  // the reader reports the section itself
      const std::string rest = field.substr(dot + 1);
      const std::size_t inner = rest.find('.');
      if (inner == std::string::npos) {
        section[rest] = typed(value);
        continue;
      }
      nlohmann::json& part = section[rest.substr(0, inner)];
      if (part.is_null() || part.is_object()) part[rest.substr(inner + 1)] = typed(value);
    }
  }
}

}  // namespace flopcast
