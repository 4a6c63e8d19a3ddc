#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "calibrate/device/imports.hpp"
#include "sim/timeline.hpp"

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
  double forward_s = 0.0;                        ///< in forward passes; 0: not told
  std::map<std::string, TraceTime> collectives;  ///< by kind and group size: "all_reduce of 8"
  std::vector<TracedStretch> stretches;          ///< in order, without holes

  double overlapped_s() const { return std::max(0.0, communication_s - exposed_s); }
};

/// The steps of one rank's trace.
struct TracedRank {
  std::string file;
  std::optional<int> rank;
  std::string device;
  std::vector<TracedStep> steps;
  bool tells_host = false;  ///< when the host came to each kernel is in it
  /// Communication holds no waiting for the other side: messages are timed from when they were sent. Kernels of NCCL
  /// also last while they wait.
  bool waits_apart = false;

  /// The one of median time.
  const TracedStep& typical() const;
};

struct TracedSpan {
  double start = 0.0;
  double end = 0.0;
};

/// Work of a device, as the formats of traces have it in common.
struct TracedKernel {
  TracedSpan span;
  TraceWork work = TraceWork::kOther;
  std::optional<std::int64_t> launch = {};  ///< the call that launched it, if any: a key of TracedEvents::launches
  bool attends_forward = false;
  bool attends_backward = false;
  bool passes_forward = false;  ///< a whole forward pass
  std::string collective = {};  ///< of communication: "all_reduce of 8"
};

/// What a reader finds of one rank, in seconds of one clock, in any order.
struct TracedEvents {
  TracedRank rank;  ///< still without steps
  std::vector<TracedKernel> kernels;
  std::vector<std::pair<std::string, TracedSpan>> marks;  ///< steps by name
  std::unordered_map<std::int64_t, double> launches;      ///< when the host came to launch
  std::vector<TracedSpan> data;                           ///< the host waits for a batch
  std::vector<TracedSpan> memory;                         ///< the host allocates or frees device memory

  /// A kernel by its name, or a copy. `group`: ranks of a collective; 0: not told.
  void add_kernel(const std::string& name, bool copies, const TracedSpan& span, std::optional<std::int64_t> launch,
                  const std::string& collective, int group);
  /// What the host does: counts by its name where a device may wait for it.
  void add_host(const std::string& name, const TracedSpan& span);
};

/// A step reaches from one mark to the next; the last to its own end. Where none is marked, all of the trace is cut
/// into as many equal steps as `step_s` goes into it, 0 counting as one. Kernels that cross an end count on both sides.
/// There must be kernels.
TracedRank cut_into_steps(TracedEvents events, double step_s);

/// Reads the steps of a Kineto trace (torch.profiler of PyTorch 1.12 to 2.9, ROCm's too), whose "ProfilerStep#N" of the
/// host are the marks. Throws ConfigError like read_trace.
TracedRank read_traced_rank(std::istream& stream, const std::string& file, double step_s);

/// Steps of one's own runs: each rank's spans, with the wait for a message while it is on its way as communication, the
/// rest of the time before a span as launched late where nothing was to be waited for. Steps that warm up are left out.
std::vector<TracedRank> traced_run(const std::vector<Timeline>& steps, const std::string& file, double step_s);

/// Reads one's own run from a flopcast.measurement/1, and from a trace by write_chrome_trace(). Throw ConfigError.
std::vector<TracedRank> read_own_run(const std::string& text, const std::string& file, double step_s);
std::vector<TracedRank> read_own_trace(std::istream& stream, const std::string& file, double step_s);

/// Reads a Chakra execution trace (MLCommons, schema/protobuf/et_def.proto 0.0.4: GlobalMetadata and Nodes, each behind
/// its length; the metadata has a version, or attributes alone). Work of the device is COMP, MEM_LOAD, MEM_STORE and
/// COMM nodes but those with is_cpu_op; these are the host's. Where no node says when it began, a node begins when
/// those that it depends on have ended: what other ranks hold up is then unknown, and communication lasts as long as
/// its nodes say. The rank is that of the file's name, "llama.3.et" or "llama.3.et.gz". Throws ConfigError with the
/// file: what is no such message, or holds no duration.
TracedRank read_chakra_steps(std::istream& stream, const std::string& file, double step_s);

/// Reads the SQLite export of Nsight Systems (nsys export --type sqlite; schemas of 2020 to 2026): kernels, copies and
/// fills of each device and process, calls of the CUDA runtime, and NVTX ranges. Ranges named as a step with its number
/// ("ProfilerStep#3", "iteration 12", "step_7") are marks; so are steps of flopcast-run, whose ranges are the actions,
/// up to "the end of the step". Ranks that are threads of one process there are told apart by the thread that launches.
/// Throws ConfigError: no such database, no kernels, graphs traced as a whole.
std::vector<TracedRank> read_nsight_steps(const std::string& path, double step_s);

/// Told by what is in the file. kOwnRun and kOwnTrace: what `flopcast run` writes with -o and with --trace.
enum class TraceFormat { kKineto, kOwnRun, kOwnTrace, kChakra, kNsight };
TraceFormat trace_format_of(const std::string& path);

/// A file of any of them; all but Nsight's may be gzip. Throws ConfigError.
std::vector<TracedRank> read_traced_file(const std::string& path, double step_s);

}  // namespace flopcast
