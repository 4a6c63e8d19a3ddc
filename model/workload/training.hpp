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

/// adam8bit: both moments in 8 bits with an fp32 scale per 256 (Dettmers et al. 2110.02861 §2). lion: one moment (Chen
/// et al. 2302.06675). adafactor: one sum per row and column instead of the second moment, and no first moment (Shazeer
/// and Stern 1804.04235); these sums are below a thousandth of the parameters and not counted. muon: one moment for the
/// blocks' matrices, Adam's two for everything else (Liu et al. 2502.16982 §2.2). galore: for the same matrices, Adam's
/// moments in optimizer_rank dimensions, and the projection (Zhao et al. 2403.03507 §4).
enum class Optimizer { kAdam, kSgd, kAdam8Bit, kLion, kAdafactor, kMuon, kGalore };
template <>
struct EnumNames<Optimizer> {
  static constexpr std::string_view kNames[] = {"adam", "sgd", "adam8bit", "lion", "adafactor", "muon", "galore"};
};

/// Preference or reward training. Only the training is modelled, not the generation of answers. dpo (Rafailov et al.
/// 2305.18290), orpo (2403.07691), simpo (2405.14734) and reward (2203.02155 §3.5) compare the two answers of a pair: a
/// sample is two sequences. kto (2402.01306) and grpo (2402.03300) judge each answer separately.
enum class PreferenceMethod { kDpo, kOrpo, kSimpo, kReward, kKto, kGrpo };
template <>
struct EnumNames<PreferenceMethod> {
  static constexpr std::string_view kNames[] = {"dpo", "orpo", "simpo", "reward", "kto", "grpo"};
};

/// The reference is the original model: a frozen copy in the training format or, with adapters, the trained model
/// without them. Each sequence makes one forward pass through it; with kto two, because the divergence is estimated on
/// other answers, which also make a forward pass without gradients through the trained model.
struct Preference {
  PreferenceMethod method = PreferenceMethod::kDpo;
  bool reference = true;

  bool of_pairs() const { return method < PreferenceMethod::kKto; }
  bool uses_reference() const { return method == PreferenceMethod::kDpo || !of_pairs(); }
  int reference_passes() const { return !reference ? 0 : method == PreferenceMethod::kKto ? 2 : 1; }
  int passes_without_gradients() const { return method == PreferenceMethod::kKto ? 1 : 0; }
};

/// Results of `flopcast fit` on a user's runs: the uncertainty of the constants it changed from the catalogue's, from
/// which forecasts derive their own uncertainty (sim/forecast/interval.hpp).
struct RunFit {
  int runs = 0;
  double noise = 0.0;                  ///< scale of the residuals ln(measured / forecast) of a step
  double freedom = 0.0;                ///< degrees of freedom of their Student t distribution
  std::string stack;                   ///< of the runs, without its release
  std::vector<std::string> kinds;      ///< kinds of runs: "bf16", "fp8, experts"
  std::vector<std::string> constants;  ///< their names
  std::vector<double> covariance;      ///< of the constants' logarithms, row by row
};

/// How the model is trained, apart from its layout.
struct Training {
  int sequence_length = 0;
  int document_length = 0;  ///< tokens per document packed into a sequence, which attends only to itself; 0: not packed
  Precision precision = Precision::kBf16;
  Optimizer optimizer = Optimizer::kAdam;
  int optimizer_rank = 128;             ///< of galore's projections
  bool paged_optimizer = false;         ///< states that do not fit are kept in host memory (bitsandbytes)
  bool master_weights = true;           ///< false: the optimizer updates the weights in the training format
  std::optional<Fp8Recipe> fp8_recipe;  ///< precision fp8 only
  bool flash_attention = true;          ///< fused attention that keeps no score matrix
  Transport transport = Transport::kNccl;
  /// For the replicas' collectives only: gradients and sharded weights. In torch.distributed each process group has its
  /// own backend, and nobody uses Gloo or MPI for everything if tensor-parallel ranks share a node.
  Transport gradient_transport = Transport::kNccl;
  Stack stack;
  std::optional<Finetune> finetune;          ///< absent: all weights are trained
  std::optional<Preference> preference;      ///< absent: next-token prediction
  std::optional<RunFit> fitted;              ///< absent: the constants are the catalogue's or the job's own
  std::optional<double> tokens;              ///< of the whole run
  std::optional<double> price_per_gpu_hour;  ///< US dollars
};

/// Bytes of moments per parameter. With muon and galore this is what their matrices need; the remaining moments are
/// added with MatrixUpdate.
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
/// fp32 weight and one moment; with fp32 weights, or without master_weights, there is no second copy of the weights.
inline double optimizer_bytes_per_parameter(const Training& training) {
  const bool weights_are_fp32 = training.precision == Precision::kFp32 || training.precision == Precision::kTf32;
  const double weight_copy = weights_are_fp32 || !training.master_weights ? 0.0 : 4.0;
  return weight_copy + moment_bytes_per_parameter(training);
}

/// Number of sequences in `samples` samples.
inline int sequences_of(const Training& training, int samples) {
  return training.preference && training.preference->of_pairs() ? 2 * samples : samples;
}

/// Number of forward passes without gradients per sequence.
inline int gradient_free_passes(const Training& training) {
  const std::optional<Preference>& preference = training.preference;
  return preference ? preference->reference_passes() + preference->passes_without_gradients() : 0;
}

/// True if the reference of preference training is a copy of the model.
inline bool holds_reference(const Training& training) {
  return training.preference && training.preference->reference && !(training.finetune && training.finetune->adapts());
}

}  // namespace flopcast
