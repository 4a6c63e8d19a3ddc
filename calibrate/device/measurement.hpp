#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/enum_names.hpp"
#include "model/hardware/network.hpp"

namespace flopcast {

/// What was timed. Bytes of a collective are as nccl-tests prints them: the whole buffer of an all-reduce, the sum over
/// ranks of an all-gather or a reduce-scatter, one rank's buffer of the others. Bytes of a copy, of kernels that the
/// memory bounds (norm to optimizer_step) count what must be read and what must be written; of a host copy what is
/// sent. A launch is the time from one kernel to the next on a busy stream, a host dispatch what the host takes to
/// queue one. A channel copy is a kernel that copies with as many thread blocks as it has channels, each too large to
/// share a multiprocessor with a product's: it takes from a product what a collective's channels take, and sends
/// nothing.
enum class SampleKind {
  kGemm,
  kMemoryCopy,
  kPointToPoint,
  kCollective,  ///< the first of them, in the order of CollectiveKind without barriers: sample_of()
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
/// Nothing of what is none, such as a reduction to one rank.
std::optional<CollectiveKind> collective_of(SampleKind kind);
/// Whether ranks exchanged a message: point-to-point or collective.
bool is_message(SampleKind kind);
/// Whether the kernel is one that memory bounds: from norm to optimizer_step.
bool is_memory_bound(SampleKind kind);
bool is_attention(SampleKind kind);

struct SampleShape {
  int m = 0;
  int n = 0;
  int k = 0;

  bool operator==(const SampleShape&) const = default;
};

/// Fused attention of so many sequences.
struct AttentionShape {
  int batch = 1;
  int heads = 1;
  int sequence = 1;
  int head_dim = 1;
  bool causal = true;  ///< half of the scores are computed

  /// Of the forward pass: 4 · batch · heads · sequence² · head_dim, half of them when causal.
  double flops() const;
  bool operator==(const AttentionShape&) const = default;
};

/// What identifies a sample: measuring the same again adds nothing.
struct SampleKey {
  SampleKind kind = SampleKind::kGemm;
  std::optional<SampleShape> shape;  ///< of a GEMM
  std::optional<double> bytes;       ///< of a copy or message
  int ranks = 1;
  int nodes = 1;
  std::string dtype;
  int pass = 1;                             ///< calibrations measure everything twice
  std::optional<int> batch = std::nullopt;  ///< of a training step: sequences of all ranks
  std::optional<AttentionShape> attention = std::nullopt;
  /// Which of several alike: "dgrad", "layernorm backward", "to host". Kernels of one name are fitted together.
  std::string op = {};
  /// What ran at the same time. The same sample without it tells the slowdown.
  std::optional<SampleKind> beside = std::nullopt;
  int channels = 0;  ///< of the message or channel copy: of this sample, or of what ran beside it

  /// "gemm 256x256x64 fp32", "all_reduce 4096 B, 2 ranks fp32".
  std::string text() const;
  /// As text, but alike for all passes.
  std::string text_without_pass() const;
  bool operator==(const SampleKey&) const = default;
};

struct Sample {
  SampleKey key;
  std::vector<double> seconds;              ///< one per repetition, as measured
  std::optional<double> processor_seconds;  ///< CPU time of the measuring thread over all repetitions

  double median() const;
};

/// What a calibration found on a device. `format`: docs/schema/measurement-1.schema.json.
struct Measurement {
  std::string device;                            ///< "Intel Xeon …", "NVIDIA H200"
  int multiprocessors = 1;                       ///< SMs of a GPU; cores that worked on one GEMM of a CPU
  std::optional<double> memory_bytes;            ///< of the device; of the whole host where cores were measured
  std::string host;                              ///< empty: not told
  std::string date;                              ///< YYYY-MM-DD
  std::map<std::string, std::string> libraries;  ///< name -> version
  std::map<std::string, double> clocks_mhz;      ///< the fastest that the device's parts may run: "memory" -> 2619
  std::vector<Sample> samples;

  bool has(const SampleKey& key) const;
};

/// Reads schema flopcast.measurement/1. Throws ConfigError with `file:/samples/3/seconds`: unknown keys, wrong types,
/// times that are not finite and positive, a sample given twice.
Measurement read_measurement(std::string_view text, const std::string& file);
std::string write_measurement(const Measurement& measurement);

/// Writes beside the target and renames, so that a killed run or a full disk leaves the old file or the new one, never
/// half of one. Throws EnvironmentError.
void replace_measurement_file(const std::string& path, const std::string& text);

/// A measurement that grows on disk: every sample is there as soon as `append` returns. A file that exists already is
/// continued, so that a run which was stopped goes on where it was.
class MeasurementFile {
 public:
  /// `about` tells device, host, date and libraries. An existing file of another device is refused (ConfigError): two
  /// devices do not mix. An empty path keeps everything in memory alone.
  MeasurementFile(std::string path, const Measurement& about);

  bool has(const SampleKey& key) const { return measurement_.has(key); }
  /// Throws InternalError when the sample is known already, EnvironmentError when it cannot be written.
  void append(const Sample& sample);
  /// Forgets all samples; the file keeps them until the next one is appended.
  void begin_anew() { measurement_ = about_; }
  const Measurement& measurement() const { return measurement_; }

 private:
  std::string path_;
  Measurement about_;
  Measurement measurement_;
};

/// Adds the samples of `more`, read from `file`; what is there already becomes a further pass. Throws ConfigError when
/// both name a device and it is not the same.
void add_samples(Measurement& all, const Measurement& more, const std::string& file);

/// Takes out what cannot be fitted: products of a precision that no forecast uses or with too few shapes, kernels,
/// copies and messages of a group with too few sizes. One sentence for each, for the user. For files that hold what
/// happened to run, or what the time sufficed for.
std::vector<std::string> leave_out_small_groups(Measurement& measurement);

/// How far two passes over the same samples lie apart, as |t1 / t2 - 1| of their medians with the larger on top.
struct Agreement {
  int compared = 0;
  double median = 0.0;
  double largest = 0.0;
  std::string worst;  ///< the sample of the largest
};

/// The median that two passes may differ by. One sample may be unlucky; when half of them moved by more, the machine
/// was not the same machine.
inline constexpr double kAgreementTolerance = 0.10;

/// Samples that only one pass holds are left out.
Agreement compare_passes(const Measurement& measurement);

/// Throws EnvironmentError when the passes disagree by more than kAgreementTolerance in the median. `file` is named as
/// the place of the measurements.
void require_agreement(const Measurement& measurement, const std::string& file);

/// Wall time over CPU time of the samples that tell both, median: 1.0 on a machine of one's own. Absent when none does.
std::optional<double> disturbance(const Measurement& measurement);
/// Above it a run counts as disturbed: something else used its cores.
inline constexpr double kDisturbedFrom = 1.03;

}  // namespace flopcast
