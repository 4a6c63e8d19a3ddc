#pragma once

#include <array>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/device/imports.hpp"

namespace flopcast {

/// What a device was doing at a moment, as far as an overlay tells it apart.
enum class TracedState { kCompute, kCommunication, kBoth, kIdle };

/// A stretch of one state, in seconds from the step's start.
struct TracedStretch {
  double start_s = 0.0;
  double end_s = 0.0;
  TracedState state = TracedState::kIdle;
};

/// Why a device had nothing to do. By what the host did meanwhile: waiting for a batch; allocating or freeing device
/// memory; launching too late, which shows where the launch of the next kernel began after the one before had ended.
/// kOther: none of these, such as waiting for another rank without a kernel.
enum class IdleCause { kData, kMemory, kLaunch, kOther };
inline constexpr std::size_t kIdleCauses = 4;
const std::vector<std::string>& idle_cause_names();

/// One step of one rank. Seconds; stretches of time are counted once, however many kernels run in them.
struct TracedStep {
  std::string name;  ///< "ProfilerStep#3"; empty where the trace marks no steps
  double time_s = 0.0;
  double compute_s = 0.0;        ///< kernels other than communication run
  double communication_s = 0.0;  ///< communication runs, hidden or not
  double exposed_s = 0.0;        ///< of it, beside no other kernel
  double idle_s = 0.0;           ///< no kernel runs
  std::array<double, kIdleCauses> idle_by_cause_s{};
  std::array<TraceTime, kTraceWorkCount> work{};  ///< by TraceWork: kernels and the sum of their times
  long attention_forward = 0;                     ///< kernels of fused attention
  long attention_backward = 0;
  std::map<std::string, TraceTime> collectives;  ///< by kind and group size: "all_reduce of 8"
  std::vector<TracedStretch> stretches;          ///< in order, without holes

  double overlapped_s() const { return communication_s - exposed_s; }
};

/// The steps of one rank's trace.
struct TracedRank {
  std::string file;
  std::optional<int> rank;
  std::string device;
  std::vector<TracedStep> steps;
  bool tells_host = false;  ///< the calls that launch kernels are in it

  /// The one of median time.
  const TracedStep& typical() const;
};

/// Reads the steps of a Kineto trace (torch.profiler of PyTorch 1.12 to 2.9, ROCm's too). A step reaches from one
/// "ProfilerStep#N" of the host to the next; the last to its own end. Where none is marked, all of the trace is
/// cut into as many equal steps as `step_s` goes into it, 0 counting as one. Kernels that cross an end count on both
/// sides. Throws ConfigError like read_trace.
TracedRank read_traced_rank(std::istream& stream, const std::string& file, double step_s);

}  // namespace flopcast
