#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/enum_names.hpp"
#include "model/hardware/precision.hpp"
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
/// (Shazeer and Stern 1804.04235); these sums are below a thousandth of the parameters and not counted.
enum class Optimizer { kAdam, kSgd, kAdam8Bit, kLion, kAdafactor };
template <>
struct EnumNames<Optimizer> {
  static constexpr std::string_view kNames[] = {"adam", "sgd", "adam8bit", "lion", "adafactor"};
};

/// What `flopcast fit` learned from steps of one's own: how sure the constants are that it moved from the catalogue's,
/// so that a forecast with them knows how sure it is (sim/forecast/own_runs.hpp).
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
  std::optional<Fp8Recipe> fp8_recipe;  ///< of precision fp8 alone
  bool flash_attention = true;          ///< fused attention that keeps no score matrix
  Transport transport = Transport::kNccl;
  /// Of the replicas' collectives alone: gradients and sharded weights. A process group has a backend of its own in
  /// torch.distributed, and Gloo or MPI for all is nobody's choice where tensor-parallel ranks share a node.
  Transport gradient_transport = Transport::kNccl;
  Stack stack;
  std::optional<Finetune> finetune;          ///< absent: all weights are trained
  std::optional<RunFit> fitted;              ///< absent: the constants are the catalogue's, or the job's own
  std::optional<double> tokens;              ///< of the whole run
  std::optional<double> price_per_gpu_hour;  ///< US dollars
};

/// Bytes of moments per parameter.
inline double moment_bytes_per_parameter(const Training& training) {
  constexpr double kQuantised = 1.0 + 4.0 / 256.0;
  switch (training.optimizer) {
    case Optimizer::kAdam:
      return 2.0 * training.stack.moment_bytes;
    case Optimizer::kSgd:
    case Optimizer::kLion:
      return training.stack.moment_bytes;
    case Optimizer::kAdam8Bit:
      return 2.0 * kQuantised;
    case Optimizer::kAdafactor:
      return 0.0;
  }
  return 0.0;
}

/// Bytes of optimizer state per parameter: Adam keeps an fp32 weight and two fp32 moments, plain SGD with momentum an
/// fp32 weight and one; with fp32 weights there is no second copy of them.
inline double optimizer_bytes_per_parameter(const Training& training) {
  const bool weights_are_fp32 = training.precision == Precision::kFp32 || training.precision == Precision::kTf32;
  const double weight_copy = weights_are_fp32 ? 0.0 : 4.0;
  return weight_copy + moment_bytes_per_parameter(training);
}

}  // namespace flopcast
