#pragma once

#include <string>

#include "calibrate/validation/published_row.hpp"

namespace flopcast {

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

}  // namespace flopcast
