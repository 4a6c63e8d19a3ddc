#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/catalog/catalogue.hpp"
#include "model/config/document.hpp"

namespace flopcast {

/// A measured collective, counted as in nccl-tests.
struct PublishedCollective {
  std::string operation;
  double bytes = 0.0;
  double seconds = 0.0;
};

/// One published measurement and the facts its source states about the run. Absent: not stated.
struct PublishedRow {
  std::string id;
  std::string citation;

  std::string gpu;
  std::optional<int> devices_per_node;
  std::optional<int> devices;
  std::string intra_node;  ///< links inside a node, in the source's wording
  std::string inter_node;

  std::optional<int> layers, hidden, heads, kv_heads, ffn, sequence_length, vocab;
  std::optional<double> billion_parameters;

  std::optional<int> dp, tp, pp, vpp, cp, ep, zero, micro_batch_size, global_batch_size;
  std::optional<bool> sequence_parallel;
  std::optional<bool> scatters_each_microbatch;  ///< ZeRO 2 with a pipeline; never stated by a source
  std::string schedule;
  /// Another run of the same publication has a zero-bubble schedule, so this run uses that software.
  bool in_zero_bubble_publication = false;
  std::optional<std::string> recompute;

  std::optional<double> iteration_s, tflops_per_gpu, tokens_per_s_per_gpu, samples_per_s, peak_memory_gib;
  std::optional<double> layer_s;  ///< forward and backward pass of a single layer
  std::optional<PublishedCollective> collective;
  bool out_of_memory = false;  ///< the measured result is that it did not fit

  std::string flops_convention;
  std::string note;
  std::string precision;
  bool complete = false;             ///< the source states everything that a forecast needs
  std::vector<std::string> missing;  ///< facts that it does not state
  bool used_in_fit = false;          ///< a constant of the catalogue was fitted to it

  /// The job a user would write to simulate the row; null JSON if the row's fields are mapped instead. `software` holds
  /// the row's release, kernels and recipe, with the keys of "training".
  JsonValue job;
  JsonValue software;
  std::string group;          ///< rows that are reported together
  std::string inexpressible;  ///< fact that no key can express
};

/// A file of published measurements.
struct PublishedFile {
  std::string source;  ///< the file's stem
  std::string about;   ///< text about all rows of the file
  std::vector<PublishedRow> rows;
};

/// Reads {"meta": {…}, "rows": [{"id", "hardware", "model", "parallel", "measured", …}]}. Types are checked; unknown
/// fields of a row are ignored. Rows may be written compactly: "common" holds the values that all rows share, and
/// "columns" names the dotted fields of the lists in "rows". A row of a log ("… line 917") that does not state its
/// number formats inherits those of the row above it. Facts that rows omit but their neighbours state are filled in
/// (share_facts). Throws ConfigError with the place in `file`.
PublishedFile read_published(const nlohmann::json& json, const std::string& source, const std::string& file);

/// Fills in facts that rows omit but others of their publication state. The arXiv numbers of the citation identify a
/// publication; a row without one is on its own.
///   in_zero_bubble_publication  another row of the publication has a zero-bubble schedule
///   vocab               the publication's, if a row states one; else the first of the usual tokenizers' for which
///                       every GPT of the publication has its stated number of parameters, to the given digits and
///                       with tied embeddings; GPT-2's if none matches
void share_facts(std::vector<PublishedRow>& rows);

/// True for MLPs of width 4h and equal numbers of key-value heads and heads, as in GPT; other models are treated as
/// Llama-like.
bool is_gpt(const PublishedRow& row);
inline constexpr std::int64_t kMlpWidthOfGpt = 4;

/// True for the schedules of Qi et al. 2401.10241 and 2405.15362, under the names used in publications: "zb-1p",
/// "zb-v".
bool runs_zero_bubble(const PublishedRow& row);

/// One possible completion of a row with unspecified details.
struct Completion {
  PublishedRow row;
  std::string open;  ///< the completed details: "micro batch, recompute"
};

/// Every plausible completion, if only these are unspecified: micro batch (1, 2, 4, 8, as long as it divides a
/// replica's batch), recompute (none, selective, full), sequence parallelism (no, yes) and, with an interleaved
/// schedule, chunks per rank (2, 3, 4, …, as the layers allow); and, for ZeRO 2 with a pipeline, whether gradients are
/// scattered by every microbatch or summed until the last. Empty if the row is complete, or if something else is
/// missing too.
std::vector<Completion> completions(const PublishedRow& row);

/// calibrate/validation/published/*.json, compiled in.
const std::vector<EmbeddedFile>& embedded_published();

/// The published measurements that come with the program.
std::vector<PublishedFile> shipped_published();

/// The measured part of a run, which is the part to forecast.
enum class MeasuredPart { kStep, kLayer, kCollective };

/// A row as a job file, or the reason why it cannot be one.
struct MappedRow {
  JsonValue job;
  MeasuredPart part = MeasuredPart::kStep;
  bool memory_reserved = false;       ///< torch.cuda.max_memory_reserved: including fragmentation
  bool memory_as_tools_show = false;  ///< measured with nvidia-smi: including context, buffers and fragmentation
  /// Zero-bubble runs validate a step afterwards (2401.10241, section 4): a rank begins the next step as soon as it has
  /// finished its own part, so a step takes the longest span of a rank, not the time from the first start to the last
  /// end.
  bool steps_overlap = false;
  std::string skip_reason;  ///< empty if there is a job
};

/// Maps a row to a job, using only its fields.
/// Model: MLPs of width 4h are GPT's (LayerNorm, biases, learned positions, tied embeddings), others Llama's (RMSNorm,
/// gated, rotary, untied).
/// Schedule: a name from flopcast's catalogue, or a phrase that sources use; the layout's default if the row names
/// none. A row with an unknown name is skipped.
/// Stages: if embedding and head count as one layer each (when the source says so, or when only that makes the stages
/// even), the first and the last stage have one layer less.
/// ZeRO 2 with a pipeline is mapped to ZeRO 1, because gradients are scattered once per step, unless
/// `scatters_each_microbatch`.
/// A single layer is priced as the middle one of three pipeline ranks.
/// A row with a job is that job: `software` completes its training, then completions.json, a table by source derived
/// from the text of the rows' id, citation and note.
MappedRow map_row(const PublishedRow& row, const std::string& about);
/// Text of completions.json: [{"says": […], "job": {…}}], each merged (RFC 7396) into the jobs of rows that contain all
/// its phrases.
const std::vector<EmbeddedFile>& embedded_completions();

// Translation of a source's wording into a job. Tables of rules in which the first match wins; no rule refers to a
// row's id, a file's name or a model's name.

/// The catalogue's name of a device, from memory size and generation ("A100 … 40 GB" -> "a100-40g").
std::optional<std::string> device_of(const PublishedRow& row);

/// The inline cluster of a row, with links from the names and rates in the source's wording. NVLink by the device's
/// generation, or by the links that a source counts; network cards by "N x R Gb/s per node", "R Gb/s per GPU", or eight
/// 200 Gbit/s cards if nothing is stated.
nlohmann::json cluster_of(const PublishedRow& row, const std::string& device, int devices);

/// The training software, and where the row departs from it: {"name": "megatron-2022", "gradient_bytes": 2}.
///   the source names                                   stack
///   a zero-bubble schedule                             zero-bubble
///   TransformerEngine, Megatron-Core                   megatron-core
///   NeMo, Megatron-Bridge                              nemo
///   DeepSpeed                                          megatron-deepspeed
///   FSDP                                               pytorch-fsdp
///   none of these, in a zero-bubble publication        zero-bubble, with Megatron's blocking transfers
///   sequence parallelism or selective recomputation    megatron-2022 (which introduced them, 2205.05198); on
///                                                      Hopper and later megatron-core
///   a paper of 2022 or later                           megatron-2022
///   none of these                                      megatron-2021; on Hopper and later megatron-core
/// and single properties: fp32 or fp16 gradient accumulation, FSDP's PURE mode (gradients reduced in bf16),
/// FlashAttention, fused cross entropy, no overlap of communication.
nlohmann::json stack_of(const PublishedRow& row, const std::string& about);

/// "bf16", "fp16" or "fp8" if the row states it; otherwise bf16 (fp16 on Volta).
std::string precision_of(const PublishedRow& row);

/// All text of a row, in lower case.
std::string words_of(const PublishedRow& row, const std::string& about);
bool mentions(const std::string& words, std::string_view phrase);

}  // namespace flopcast
