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

}  // namespace flopcast
