#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/forecast/result.hpp"

namespace flopcast {

/// The parts of a step's time. Bubbles are one part in the breakdown, and are split by cause in comparisons of steps.
enum class TermId : std::uint8_t {
  kCompute,
  kRecompute,
  kTensorParallel,
  kPipeline,
  kDataParallel,
  kContextParallel,
  kExpertParallel,
  kOptimizer,
  kOffload,
  kBubble,
  kWarmup,
  kCooldown,
  kImbalance,
  kDependency,
};

/// A part of the step's time, with the name, colour and explanation used in every output: tables, JSON, pages and
/// comparisons.
struct StepTerm {
  TermId id;
  const char* name;
  const char* key;    ///< in "breakdown", or in "bubble.by_cause", of flopcast.result/1
  const char* color;  ///< of the Okabe-Ito palette; empty: hatched, for waiting
  const char* what;   ///< what the time is spent on
  const char* check;  ///< checks if it takes longer than forecast, most likely first; may be empty
  double Breakdown::*spent = nullptr;
  double BubbleResult::*waited = nullptr;  ///< for causes of bubbles, instead of `spent`
  std::optional<Axis> axis = {};           ///< for communication

  double seconds(const Result& result) const {
    return spent != nullptr ? result.breakdown.*spent : result.bubble.*waited;
  }
};

/// In the order of "breakdown", whose fields they are; they sum to the step's time.
const std::array<StepTerm, 10>& breakdown_terms();
/// In the order of "bubble.by_cause"; they sum to the bubble.
const std::array<StepTerm, 4>& bubble_terms();
const StepTerm& step_term(TermId id);
const StepTerm& communication_term(Axis axis);
/// Every term once, as listed in comparisons: the breakdown with its bubble by cause; communication along the axes of
/// the model (tp, cp, ep) precedes that between stages and replicas.
const std::vector<TermId>& compared_terms();
/// Seconds of a step spent on each compared term, in order; they sum to the step's time.
std::vector<double> compared_seconds(const Result& result);

/// A part of the step's time in two layouts.
struct ComparedTerm {
  TermId id = TermId::kCompute;
  std::string name;
  double a_s = 0.0;
  double b_s = 0.0;
  double delta_s() const { return b_s - a_s; }
};

/// The breakdown of two results term by term, bubbles by cause; each column sums to its step time, so the deltas sum
/// to the difference.
std::vector<ComparedTerm> compare_terms(const Result& a, const Result& b);

/// A part of a rank's memory at its fullest moment.
struct MemoryTerm {
  const char* name;
  const char* key;  ///< in "memory.per_pipeline_rank" of flopcast.result/1
  const char* color;
  const char* what;
  double RankMemoryResult::*gib;
};
/// In the order of "memory.per_pipeline_rank"; they sum to total_gib.
const std::array<MemoryTerm, 6>& memory_terms();
const MemoryTerm& memory_term(double RankMemoryResult::*gib);

/// Memory of a rank outside tensors: RankMemoryResult::shown_gib minus total_gib; no result field holds it.
inline constexpr MemoryTerm kBeyondTensors = {"beyond tensors: context, buffers, fragmentation", "beyond_gib",
                                              "#8C8C8C", "the CUDA context, communication buffers and fragmentation",
                                              nullptr};

}  // namespace flopcast
