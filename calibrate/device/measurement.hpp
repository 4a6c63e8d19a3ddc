#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/enum_names.hpp"
#include "model/hardware/network.hpp"

namespace flopcast {

/// Kind of work that was timed. Bytes of a collective are counted as nccl-tests prints them: the whole buffer of an
/// all-reduce, the sum over ranks of an all-gather or a reduce-scatter, one rank's buffer for the others. Bytes of a
/// copy and of memory-bound kernels (norm to optimizer_step) are those read plus those written; bytes of a host copy
/// are those transferred. A launch is the time from one kernel to the next on a busy stream; a host dispatch is the
/// host's time to queue one. A channel copy is a copy kernel with one thread block per channel, each too large to share
/// a multiprocessor with a GEMM's block: it takes from a GEMM the resources that a collective's channels take, but
/// sends nothing.
enum class SampleKind {
  kGemm,
  kMemoryCopy,
  kPointToPoint,
  kCollective,  ///< first collective, in the order of CollectiveKind without barriers: sample_of()
  kReduce = kCollective + 5,
  kTrainingStep,
  kAttentionForward,
  kAttentionBackward,
  kNorm,
  kElementwise,
  kEmbedding,
  kLoss,
  kOptimizerStep,
  kLaunch,
  kHostDispatch,
  kHostCopy,
  kChannelCopy
};
template <>
struct EnumNames<SampleKind> {
  static constexpr std::string_view kNames[] = {
      "gemm",          "memory_copy", "p2p",         "all_reduce",    "all_gather",        "reduce_scatter",
      "all_to_all",    "broadcast",   "reduce",      "training_step", "attention_forward", "attention_backward",
      "norm",          "elementwise", "embedding",   "loss",          "optimizer_step",    "launch",
      "host_dispatch", "host_copy",   "channel_copy"};
};
constexpr SampleKind sample_of(CollectiveKind kind) {
  return static_cast<SampleKind>(static_cast<int>(SampleKind::kCollective) + static_cast<int>(kind));
}
/// Absent if the kind is not such a collective, for example a reduction to one rank.
std::optional<CollectiveKind> collective_of(SampleKind kind);
/// True if ranks exchange a message: point-to-point or collective.
bool is_message(SampleKind kind);
/// True for memory-bound kernels: from norm to optimizer_step.
bool is_memory_bound(SampleKind kind);
bool is_attention(SampleKind kind);

struct SampleShape {
  int m = 0;
  int n = 0;
  int k = 0;

  bool operator==(const SampleShape&) const = default;
};

/// Fused attention over `batch` sequences.
struct AttentionShape {
  int batch = 1;
  int heads = 1;
  int sequence = 1;
  int head_dim = 1;
  bool causal = true;  ///< only half of the scores are computed

  /// FLOPs of the forward pass: 4 · batch · heads · sequence² · head_dim, half of that if causal.
  double flops() const;
  bool operator==(const AttentionShape&) const = default;
};

/// Identity of a sample; measuring the same key again adds nothing.
struct SampleKey {
  SampleKind kind = SampleKind::kGemm;
  std::optional<SampleShape> shape;  ///< for a GEMM
  std::optional<double> bytes;       ///< for a copy, a message or a memory-bound kernel
  int ranks = 1;
  int nodes = 1;
  std::string dtype;
  int pass = 1;                             ///< a calibration measures everything twice
  std::optional<int> batch = std::nullopt;  ///< for a training step: sequences over all ranks
  std::optional<AttentionShape> attention = std::nullopt;
  /// Distinguishes variants of one kind: "dgrad", "layernorm backward", "to host". Kernels of the same name are fitted
  /// together.
  std::string op = {};
  /// Kind that ran at the same time. Compared with the same sample alone, it gives the slowdown.
  std::optional<SampleKind> beside = std::nullopt;
  int channels = 0;  ///< of the message or channel copy: this sample, or the one it overlaps with

  /// "gemm 256x256x64 fp32", "all_reduce 4096 B, 2 ranks fp32".
  std::string text() const;
  /// Like text(), but the same for all passes.
  std::string text_without_pass() const;
  bool operator==(const SampleKey&) const = default;
};

struct Sample {
  SampleKey key;
  std::vector<double> seconds;              ///< one per repetition, as measured
  std::optional<double> processor_seconds;  ///< CPU time of the measuring thread over all repetitions

  double median() const;
};

/// Results of calibrating a device. `format`: docs/schema/measurement-1.schema.json.
struct Measurement {
  std::string device;                            ///< "Intel Xeon …", "NVIDIA H200"
  int multiprocessors = 1;                       ///< SMs of a GPU; cores that work on one GEMM of a CPU
  std::optional<double> memory_bytes;            ///< of the device; of the whole host if cores were measured
  std::string host;                              ///< empty: not given
  std::string date;                              ///< YYYY-MM-DD
  std::map<std::string, std::string> libraries;  ///< name -> version
  std::map<std::string, double> clocks_mhz;      ///< maximum clocks of the device's parts: "memory" -> 2619
  std::vector<Sample> samples;

  bool has(const SampleKey& key) const;
};

/// Reads schema flopcast.measurement/1. Throws ConfigError with `file:/samples/3/seconds`: unknown keys, wrong types,
/// times that are not finite and positive, a sample given twice.
Measurement read_measurement(std::string_view text, const std::string& file);
std::string write_measurement(const Measurement& measurement);

/// Writes to a temporary file next to the target and renames it, so that a killed run or a full disk leaves either the
/// old file or the new one, never half of one. Throws EnvironmentError.
void replace_measurement_file(const std::string& path, const std::string& text);

/// A measurement that grows on disk: every sample is on disk as soon as `append` returns. An existing file is
/// continued, so that an interrupted run resumes where it stopped.
class MeasurementFile {
 public:
  /// `about` gives device, host, date and libraries. An existing file of another device is refused (ConfigError):
  /// measurements of two devices are never mixed. An empty path keeps everything in memory only.
  MeasurementFile(std::string path, const Measurement& about);

  bool has(const SampleKey& key) const { return measurement_.has(key); }
  /// Throws InternalError if the sample exists already, EnvironmentError if it cannot be written.
  void append(const Sample& sample);
  /// Discards all samples in memory; the file keeps them until the next one is appended.
  void clear_samples() { measurement_ = about_; }
  const Measurement& measurement() const { return measurement_; }

 private:
  std::string path_;
  Measurement about_;
  Measurement measurement_;
};

/// Adds the samples of `more`, read from `file`; samples that exist already become a further pass. Throws ConfigError
/// if both name a device and the names differ.
void add_samples(Measurement& all, const Measurement& more, const std::string& file);

/// Removes samples that cannot be fitted: GEMMs of a precision that no forecast uses or with too few shapes, and
/// kernels, copies and messages of a group with too few sizes. Returns a sentence for the user about each. For files
/// that contain whatever happened to run, or whatever fitted into the time.
std::vector<std::string> leave_out_small_groups(Measurement& measurement);

/// Difference between two passes over the same samples: the ratio of their medians, larger over smaller, minus 1.
struct Agreement {
  int compared = 0;
  double median = 0.0;
  double largest = 0.0;
  std::string worst;  ///< the sample with the largest difference
};

/// Largest median difference between two passes. A single sample may be disturbed; if half of them moved by more, the
/// state of the machine changed.
inline constexpr double kAgreementTolerance = 0.10;

/// Ignores samples that only one pass has.
Agreement compare_passes(const Measurement& measurement);

/// Throws EnvironmentError if the passes disagree by more than kAgreementTolerance in the median. The message names
/// `file` as the file with the measurements.
void require_agreement(const Measurement& measurement, const std::string& file);

/// Median of wall time over CPU time, for the samples that have both: 1.0 on an otherwise idle machine. Absent if no
/// sample has both.
std::optional<double> disturbance(const Measurement& measurement);
/// A run above it counts as disturbed: something else used its cores.
inline constexpr double kDisturbedFrom = 1.03;

}  // namespace flopcast
