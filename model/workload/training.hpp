#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/enum_names.hpp"
#include "model/hardware/device.hpp"
#include "model/workload/finetune.hpp"
#include "model/workload/stack.hpp"

namespace flopcast {

/// The library that moves data between devices.
enum class Transport { kNccl, kGloo, kMpi };
template <>
struct EnumNames<Transport> {
  static constexpr std::string_view kNames[] = {"nccl", "gloo", "mpi"};
};

/// adam8bit: both moments in 8 bits with an fp32 scale for each 256 (Dettmers et al. 2110.02861 §2). lion: one moment
/// (Chen et al. 2302.06675). adafactor: a sum for each row and column in place of the second moment, and no first
/// (Shazeer and Stern 1804.04235); these sums are below a thousandth of the parameters and not counted. muon: one
/// moment of the blocks' matrices, Adam's two of all else (Liu et al. 2502.16982 §2.2). galore: of the same matrices
/// Adam's moments in optimizer_rank dimensions, and the projection (Zhao et al. 2403.03507 §4).
enum class Optimizer { kAdam, kSgd, kAdam8Bit, kLion, kAdafactor, kMuon, kGalore };
template <>
struct EnumNames<Optimizer> {
  static constexpr std::string_view kNames[] = {"adam", "sgd", "adam8bit", "lion", "adafactor", "muon", "galore"};
};

/// Training by preferences or rewards, as far as it is training: what writes the answers is left out.
/// dpo (Rafailov et al. 2305.18290), orpo (2403.07691), simpo (2405.14734) and reward (2203.02155 §3.5) compare the two
/// answers of a pair: a sample is two sequences. kto (2402.01306) and grpo (2402.03300) judge each answer.
enum class PreferenceMethod { kDpo, kOrpo, kSimpo, kReward, kKto, kGrpo };
template <>
struct EnumNames<PreferenceMethod> {
  static constexpr std::string_view kNames[] = {"dpo", "orpo", "simpo", "reward", "kto", "grpo"};
};

/// A reference is the model as it was before: a frozen copy in the training format, or the trained model without its
/// adapters where it has such. Each sequence passes it forward; with kto twice, because the divergence is estimated on
/// other answers, which also pass the trained model forward without gradients.
struct Preference {
  PreferenceMethod method = PreferenceMethod::kDpo;
  bool reference = true;

  bool of_pairs() const { return method < PreferenceMethod::kKto; }
  bool may_have_reference() const { return method == PreferenceMethod::kDpo || !of_pairs(); }
  int reference_passes() const { return !reference ? 0 : method == PreferenceMethod::kKto ? 2 : 1; }
  int passes_without_gradients() const { return method == PreferenceMethod::kKto ? 1 : 0; }
};

/// What `flopcast fit` learned from steps of one's own: how sure the constants are that it moved from the catalogue's,
/// so that a forecast with them knows how sure it is (sim/forecast/interval.hpp).
struct RunFit {
  int runs = 0;
  double noise = 0.0;                  ///< scale of ln(measured / forecast) of a step that the constants leave
  double freedom = 0.0;                ///< of its Student t
  std::string stack;                   ///< that the runs had, without its release
  std::vector<std::string> kinds;      ///< "bf16", "fp8, experts": what the runs were
  std::vector<std::string> constants;  ///< by their names
  std::vector<double> covariance;      ///< of the constants' logarithms, row by row
};

/// How the model is trained, beside its layout.
struct Training {
  int sequence_length = 0;
  int document_length = 0;  ///< of documents packed in a sequence, which attend to themselves alone; 0: not packed
  Precision precision = Precision::kBf16;
  Optimizer optimizer = Optimizer::kAdam;
  int optimizer_rank = 128;      ///< of galore's projections
  bool paged_optimizer = false;  ///< states that do not fit beside the rest wait in the host's memory (bitsandbytes)
  bool master_weights = true;    ///< false: the optimizer changes the weights in the training format
  std::optional<Fp8Recipe> fp8_recipe;  ///< of precision fp8 alone
  bool flash_attention = true;          ///< fused attention that keeps no score matrix
  Transport transport = Transport::kNccl;
  /// Of the replicas' collectives alone: gradients and sharded weights. A process group has a backend of its own in
  /// torch.distributed, and Gloo or MPI for all is nobody's choice where tensor-parallel ranks share a node.
  Transport gradient_transport = Transport::kNccl;
  Stack stack;
  std::optional<Finetune> finetune;          ///< absent: all weights are trained
  std::optional<Preference> preference;      ///< absent: the next token is learned
  std::optional<RunFit> fitted;              ///< absent: the constants are the catalogue's, or the job's own
  std::optional<double> tokens;              ///< of the whole run
  std::optional<double> price_per_gpu_hour;  ///< US dollars
};

/// Bytes of moments per parameter, of those of matrices with muon and galore, whose other moments MatrixUpdate adds.
inline double moment_bytes_per_parameter(const Training& training) {
  constexpr double kQuantised = 1.0 + 4.0 / 256.0;
  switch (training.optimizer) {
    case Optimizer::kAdam:
      return 2.0 * training.stack.moment_bytes;
    case Optimizer::kSgd:
    case Optimizer::kLion:
    case Optimizer::kMuon:
      return training.stack.moment_bytes;
    case Optimizer::kAdam8Bit:
      return 2.0 * kQuantised;
    case Optimizer::kAdafactor:
    case Optimizer::kGalore:
      return 0.0;
  }
  return 0.0;
}

/// Bytes of optimizer state per parameter: Adam keeps an fp32 weight and two fp32 moments, plain SGD with momentum an
/// fp32 weight and one; with fp32 weights, or without master_weights, there is no second copy of them.
inline double optimizer_bytes_per_parameter(const Training& training) {
  const bool weights_are_fp32 = training.precision == Precision::kFp32 || training.precision == Precision::kTf32;
  const double weight_copy = weights_are_fp32 || !training.master_weights ? 0.0 : 4.0;
  return weight_copy + moment_bytes_per_parameter(training);
}

/// Of so many samples.
inline int sequences_of(const Training& training, int samples) {
  return training.preference && training.preference->of_pairs() ? 2 * samples : samples;
}

/// Forward passes of each sequence from which nothing is learned.
inline int passes_beside(const Training& training) {
  const std::optional<Preference>& preference = training.preference;
  return preference ? preference->reference_passes() + preference->passes_without_gradients() : 0;
}

/// Whether the reference of preference training is a copy of the model.
inline bool holds_reference(const Training& training) {
  return training.preference && training.preference->reference && !(training.finetune && training.finetune->adapts());
}

}  // namespace flopcast
