#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/forecast/result.hpp"

namespace flopcast {

/// The parts of a step's time. Bubbles appear whole in the breakdown, and by cause in what compares steps.
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

/// A part of the step's time as every output names, colours and explains it: tables, JSON, pages and comparisons.
struct StepTerm {
  TermId id;
  const char* name;
  const char* key;    ///< in "breakdown", or in "bubble.by_cause", of flopcast.result/1
  const char* color;  ///< Okabe and Ito's; empty: hatched, as what is waiting
  const char* what;   ///< what the time is spent on
  const char* check;  ///< what to look at where it takes longer than forecast, most likely first; empty: nothing
  double Breakdown::*spent = nullptr;
  double BubbleResult::*waited = nullptr;  ///< of the causes of bubbles, instead of `spent`
  std::optional<Axis> axis = {};           ///< of communication

  double seconds(const Result& result) const {
    return spent != nullptr ? result.breakdown.*spent : result.bubble.*waited;
  }
};

/// In the order of "breakdown", of which they are the fields; they sum to the step's time.
const std::array<StepTerm, 10>& breakdown_terms();
/// In the order of "bubble.by_cause"; they sum to the bubble.
const std::array<StepTerm, 4>& bubble_terms();
const StepTerm& step_term(TermId id);
const StepTerm& communication_term(Axis axis);
/// Every term once: the breakdown with its bubble by cause, communication along the axes of the model (tp, cp, ep)
/// before that between stages and replicas. What comparisons list.
const std::vector<TermId>& compared_terms();
/// A step's seconds of the compared terms, in their order; they sum to the step's time.
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

/// What a rank holds that is no tensor: RankMemoryResult::shown_gib less total_gib, of which no result has a field.
inline constexpr MemoryTerm kBeyondTensors = {"beyond tensors: context, buffers, fragmentation", "beyond_gib",
                                              "#8C8C8C", "the CUDA context, communication buffers and fragmentation",
                                              nullptr};

}  // namespace flopcast
