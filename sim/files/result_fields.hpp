#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/forecast/result.hpp"

namespace flopcast {

// The tables of a result's fields, from which it is written, read, checked and described. For the files that do so.

inline constexpr const char* kResultName = "flopcast.result/1";
inline constexpr const char* kMemoryName = "flopcast.memory/1";

/// Who refuses a result without a field. Early versions did not write all of them.
enum class Needed : std::uint8_t {
  kLater,       ///< nobody: early versions, or many results, are without it
  kWritten,     ///< nobody, though all versions write it
  kPage,        ///< a page
  kComparison,  ///< a comparison
  kBoth,
  kLaterComparison,  ///< a comparison, though early versions did not write it
};

inline constexpr int kAnySign = -1;  ///< as the least of a field's values

template <class Part>
struct ResultField {
  using Member = std::variant<double Part::*, int Part::*, std::uint64_t Part::*, bool Part::*, std::string Part::*,
                              std::optional<double> Part::*, std::vector<double> Part::*, std::vector<int> Part::*,
                              std::vector<std::string> Part::*>;
  const char* key;
  Member member;
  Needed needed = Needed::kWritten;
  int least = 0;
  const char* what = "";
};
template <class Part>
using ResultFields = std::vector<ResultField<Part>>;

const ResultFields<ModelResult>& parameter_fields();
const ResultFields<IterationResult>& iteration_fields();
const ResultFields<Breakdown>& breakdown_fields();
const ResultFields<AxisCommunication>& axis_fields();
const ResultFields<CommunicationResult>& communication_fields();
const ResultFields<BubbleResult>& bubble_fields();
const ResultFields<BubbleResult>& cause_fields();
const ResultFields<BubbleResult>& bubble_by_rank_fields();
const ResultFields<MemoryResult>& memory_fields();
const ResultFields<RankMemoryResult>& rank_memory_fields();
const ResultFields<StepTimeInterval>& interval_fields();
const ResultFields<TrainingResult>& training_result_fields();
/// Where there is an interval.
struct DayInterval {
  double low = 0.0;
  double high = 0.0;
};
const ResultFields<DayInterval>& day_fields();
const ResultFields<TrainingResult>& cost_fields();
const ResultFields<SteadyResult>& steady_fields();
const ResultFields<DistributionResult>& distribution_fields();
const ResultFields<PackingResult>& packing_fields();
const ResultFields<Quantiles>& quantile_fields();
const ResultFields<RunOption>& option_fields();
const ResultFields<RunResult>& run_fields();
const ResultFields<NetworkResult>& network_result_fields();
const ResultFields<HotLink>& hot_link_fields();
const ResultFields<GroupBandwidth>& bandwidth_fields();
const ResultFields<PathSamples>& path_fields();

}  // namespace flopcast
