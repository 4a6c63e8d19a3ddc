#pragma once

#include <array>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/device/measurement.hpp"

namespace flopcast {

/// What the device was doing. kCopy: copies and fills of the driver.
enum class TraceWork { kProduct, kAttention, kCommunication, kCopy, kOther };
inline constexpr std::size_t kTraceWorkCount = 5;
const std::vector<std::string>& trace_work_names();  ///< in the order of the enumerators

struct TraceTime {
  long kernels = 0;
  double seconds = 0.0;
};

struct OperatorTime {
  std::string name;  ///< of the innermost operator that launched the kernels: "aten::mm"
  TraceWork work = TraceWork::kOther;
  TraceTime time;
};

/// One rank's trace.
struct Trace {
  Measurement measurement;
  std::array<TraceTime, kTraceWorkCount> work;  ///< by TraceWork
  std::vector<OperatorTime> operators;          ///< the longest first
  TraceTime matched;                            ///< kernels, communication aside, whose operator the trace names
  std::vector<std::string> notes;               ///< what could not become a sample, and why

  TraceTime total() const;
};

struct TraceRequest {
  std::optional<int> devices_per_node;  ///< absent: as many as the trace lists devices
};

/// Reads what torch.profiler (Kineto) writes, as it comes (trace_events.hpp). Kernels are matched to operators by
/// "External id". What becomes samples:
///   gemm         kernels of aten::mm, aten::addmm and aten::_scaled_mm with shapes recorded (record_shapes=True); all
///                kernels of one call add up
///   collectives  nccl kernels with "Collective name", "In msg nelems", "Out msg nelems", "Group size" and "dtype";
///                bytes as nccl-tests counts them. Such a kernel also lasts while it waits for its last rank, so that
///                of each size the fastest quarter is kept. Nodes follow from "Process Group Ranks" and
///                devices_per_node.
/// The file's environment, host names and stacks are not taken. Throws ConfigError with "file:/traceEvents/17": what
/// trace_events.hpp refuses, a kernel whose time is no number above zero, a trace without kernels.
Trace read_trace(std::istream& stream, const std::string& file, const TraceRequest& request);

/// What a kernel does by its own name, where no operator is known: "sm90_xmma_gemm_bf16…", "ncclDevKernel_AllReduce…".
TraceWork work_of_kernel(std::string_view name);
TraceWork work_of_operator(std::string_view name);

}  // namespace flopcast
