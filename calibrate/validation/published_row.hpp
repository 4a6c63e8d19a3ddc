#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/catalog/catalogue.hpp"
#include "model/config/document.hpp"

namespace flopcast {

/// A measured collective, as nccl-tests counts it.
struct PublishedCollective {
  std::string operation;
  double bytes = 0.0;
  double seconds = 0.0;
};

/// One published measurement and what its source says about the run. Absent: not stated.
struct PublishedRow {
  std::string id;
  std::string citation;

  std::string gpu;
  std::optional<int> devices_per_node;
  std::optional<int> devices;
  std::string intra_node;  ///< links inside a node, in the source's words
  std::string inter_node;

  std::optional<int> layers, hidden, heads, kv_heads, ffn, sequence_length, vocab;
  std::optional<double> billion_parameters;

  std::optional<int> dp, tp, pp, vpp, cp, ep, zero, micro_batch_size, global_batch_size;
  std::optional<bool> sequence_parallel;
  std::optional<bool> scatters_each_microbatch;  ///< of ZeRO 2 with a pipeline; no source says it
  std::string schedule;
  /// Another run of the same publication has a zero-bubble schedule: its software is that one's.
  bool beside_zero_bubble = false;
  std::optional<std::string> recompute;

  std::optional<double> iteration_s, tflops_per_gpu, tokens_per_s_per_gpu, samples_per_s, peak_memory_gib;
  std::optional<double> layer_s;  ///< forward and backward pass of a single layer
  std::optional<PublishedCollective> collective;
  bool out_of_memory = false;  ///< what was measured is that it did not fit

  std::string flops_convention;
  std::string note;
  std::string precision;
  bool complete = false;             ///< the source says all that a forecast needs
  std::vector<std::string> missing;  ///< what it does not say
  bool used_in_fit = false;          ///< a constant of the catalogue was fitted to it

  /// What a user would give to simulate; null JSON where the row's fields are mapped instead. `software` is what the
  /// row says of release, kernels and recipe in the keys of "training".
  JsonValue job;
  JsonValue software;
  std::string group;          ///< rows that are told together
  std::string inexpressible;  ///< what no key could say
};

/// A file of published measurements.
struct PublishedFile {
  std::string source;  ///< the file's stem
  std::string about;   ///< what the file says of all its rows
  std::vector<PublishedRow> rows;
};

/// Reads {"meta": {…}, "rows": [{"id", "hardware", "model", "parallel", "measured", …}]}. Types are checked; unknown
/// fields of a row are left alone. Rows may be written compactly: "common" holds what all rows share, and "columns"
/// names the dotted fields that the lists in "rows" give.
/// A row of a log ("… line 917") that does not say its number formats has those of the row above it.
/// What rows leave out and their neighbours say is filled in (share_facts).
/// Throws ConfigError with the place in `file`.
PublishedFile read_published(const nlohmann::json& json, const std::string& source, const std::string& file);

/// Fills in what rows leave out and others of their publication say. A publication is told by the arXiv numbers of the
/// citation; a row that names none stands alone.
///   beside_zero_bubble  another row of the publication has a zero-bubble schedule
///   vocab               the publication's, where a row states one; else the first of the usual tokenizers' with which
///                       every GPT of the publication has as many parameters as is said of it, to the digits given,
///                       embeddings tied; GPT-2's when none has
void share_facts(std::vector<PublishedRow>& rows);

/// MLPs of width 4h and as many key-value heads as heads: GPT; others are Llama's kind.
bool is_gpt(const PublishedRow& row);
inline constexpr std::int64_t kMlpWidthOfGpt = 4;

/// The schedules of Qi et al. 2401.10241 and 2405.15362, in publications' own names: "zb-1p", "zb-v".
bool runs_zero_bubble(const PublishedRow& row);

/// One way to fill in what a row leaves open.
struct Completion {
  PublishedRow row;
  std::string open;  ///< what was filled in: "micro batch, recompute"
};

/// Every plausible way, where only these are open: micro batch (1, 2, 4, 8, as far as it divides a replica's batch),
/// recompute (none, selective, full), sequence parallelism (no, yes) and, with an interleaved schedule, chunks per rank
/// (2, 4, 8, …, as far as the layers allow); and, of ZeRO 2 with a pipeline, whether gradients are scattered by every
/// microbatch or summed until the last. Empty where the row is complete, or where something else is missing too.
std::vector<Completion> completions(const PublishedRow& row);

/// calibrate/validation/published/*.json, compiled in.
const std::vector<EmbeddedFile>& embedded_published();

/// The published measurements that come with the program.
std::vector<PublishedFile> shipped_published();

/// What of a run was measured, and so what must be forecast.
enum class MeasuredPart { kStep, kLayer, kCollective };

/// A row as a job file, or why it cannot be one.
struct MappedRow {
  JsonValue job;
  MeasuredPart part = MeasuredPart::kStep;
  bool memory_reserved = false;       ///< torch.cuda.max_memory_reserved: fragmentation included
  bool memory_as_tools_show = false;  ///< measured with nvidia-smi: context, buffers and fragmentation included
  /// Zero-bubble runs validate a step after it (2401.10241, section 4): a rank begins the next step when it is done
  /// with its own part, so that a step takes the longest span of a rank, not the time from the first start to the last
  /// end.
  bool steps_overlap = false;
  std::string skip_reason;  ///< empty when there is a job
};

/// Maps a row's fields to a job, by the fields alone.
/// Model: MLPs of width 4h are GPT's (LayerNorm, biases, learned positions, tied embeddings), others Llama's (RMSNorm,
/// gated, rotary, untied).
/// Schedule: a name of ours, or by the words its source uses; the default of a layout where a row names none, and a row
/// whose name is neither is skipped.
/// Stages: where embedding and head count as a layer each (they do where the source says so, and where only that makes
/// the stages even), first and last stage have one layer less.
/// ZeRO 2 with a pipeline is ZeRO 1, as gradients are scattered once a step, unless `scatters_each_microbatch`.
/// A single layer is priced as the middle one of three pipeline ranks.
/// A row with a job is that job: `software` completes its training, then completions.json, a table by source made from
/// what rows say in id, citation and note.
MappedRow map_row(const PublishedRow& row, const std::string& about);
/// The text of completions.json: [{"says": […], "job": {…}}], each merged (RFC 7396) into jobs of rows that say all of
/// it.
const std::vector<EmbeddedFile>& embedded_completions();

// What the words of a source mean in a job. Tables of rules, the first that fits wins; none knows a row's id, a file's
// name or a model's name.

/// The catalogue's name of a device: by memory size and generation ("A100 … 40 GB" -> "a100-40g").
std::optional<std::string> device_of(const PublishedRow& row);

/// The inline cluster of a row: its links by their names and rates in the source's words. NVLink by the device's
/// generation, or by the links a source counts; network cards by "N x R Gb/s per node", "R Gb/s per GPU", or eight
/// 200 Gbit/s cards where nothing is said.
nlohmann::json cluster_of(const PublishedRow& row, const std::string& device, int devices);

/// The training software and how the row departs from it: {"name": "megatron-2022", "gradient_bytes": 2}.
///   the source names                                   stack
///   a zero-bubble schedule                             zero-bubble
///   TransformerEngine, Megatron-Core                   megatron-core
///   NeMo, Megatron-Bridge                              nemo
///   DeepSpeed                                          megatron-deepspeed
///   FSDP                                               pytorch-fsdp
///   nothing of these, beside a zero-bubble schedule    zero-bubble, with Megatron's blocking transfers
///   sequence parallelism or selective recomputation    megatron-2022 (they came with it, 2205.05198); on Hopper and
///                                                      later megatron-core
///   a paper of 2022 or later                           megatron-2022
///   nothing of these                                   megatron-2021; on Hopper and later megatron-core
/// and of single properties: fp32 or fp16 gradient accumulation, FSDP's PURE mode (gradients reduced in bf16),
/// FlashAttention, fused cross entropy, no overlap of communication.
nlohmann::json stack_of(const PublishedRow& row, const std::string& about);

/// "bf16", "fp16" or "fp8", as the row says; bf16 (fp16 on Volta) when it does not.
std::string precision_of(const PublishedRow& row);

/// Everything a row says in words, in lower case.
std::string words_of(const PublishedRow& row, const std::string& about);
bool mentions(const std::string& words, std::string_view phrase);

}  // namespace flopcast
