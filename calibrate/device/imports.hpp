#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/device/measurement.hpp"
#include "model/config/document.hpp"
#include "model/enum_names.hpp"
#include "model/hardware/device.hpp"

namespace flopcast {

/// Facts that the file may lack, and the columns to read.
struct NcclTestsRequest {
  std::optional<SampleKind> kind;  ///< if set, overrides the collective that the file names
  std::optional<int> ranks;
  std::optional<int> nodes;
  bool in_place = false;  ///< the in-place columns instead of the out-of-place ones
};

/// Reads the output of nccl-tests (all versions: with or without root and redop columns, "#wrong" or "error", N/A,
/// extra columns; lines may have a prefix such as mpirun's "[1,0]<stdout>:", a rank or a timestamp) or its JSON report,
/// for one or several runs. Ranks are counted from the device lines, nodes from their hosts; without device lines, the
/// ranks follow from busbw / algbw of the largest message, 2(n-1)/n or (n-1)/n, if it is printed precisely enough.
///
/// Every printed busbw must agree with size, time and ranks to the printed precision, and no result may be marked
/// wrong. Size 0 is left out. Nothing else is taken from the file, in particular not its environment. Throws
/// ConfigError with `file:line` or `file:/results/3`; a partial result is never returned.
Measurement import_nccl_tests(std::string_view text, const std::string& file, const NcclTestsRequest& request);

/// busbw / algbw of nccl-tests (doc/PERFORMANCE.md): 2(n-1)/n for all-reduce; (n-1)/n for all-gather, reduce-scatter
/// and all-to-all; 1 for the others.
double bus_factor(SampleKind kind, int ranks);

/// Wiring of a node's devices, as `nvidia-smi topo -m` prints it.
struct NodeTopology {
  std::vector<std::vector<int>> links;  ///< NVLinks between each pair of devices; zero: through PCIe or the host
  int network_cards = 0;
  int near_network_cards = 0;  ///< cards that share a PCIe switch (PIX, PXB) with a device

  int devices() const { return static_cast<int>(links.size()); }
};

/// Reads the matrix wherever it is in the text; lines may have prefixes, the header may have terminal escapes, and
/// network cards may have either name (mlx5_0, NIC0). Throws ConfigError with `file:line`: no matrix, a truncated or
/// missing row, a cell that is not a connection, or an asymmetric matrix.
NodeTopology read_topology(std::string_view text, const std::string& file);

struct TopologyFacts {
  JsonValue cluster;               ///< keys for a job's cluster section
  std::vector<std::string> notes;  ///< what the matrix leaves undetermined
};

/// Cluster keys that follow from the matrix: devices_per_node, nics_per_node (only those near a device, if there are
/// any), and intra_bandwidth, links times a link's rate per direction: 25 GB/s for NVLink 2 to 4 (V100, A100, H100 and
/// H200), 50 GB/s for NVLink 5 (B200) (NVIDIA, NVLink and NVSwitch, 2024). A device whose matrix row has more links in
/// total than the device has (6, 12, 18, 18) is connected through a switch, which can use all its links to any peer;
/// otherwise the links to its peers add up, and nothing in between can reduce. intra_bandwidth is omitted if the
/// generation is unknown or has no NVLink, or if NVLink connects only some of the devices.
TopologyFacts topology_facts(const NodeTopology& topology, std::optional<GpuGeneration> generation);

/// Kind of work on the device. kCopy: the driver's copies and fills.
enum class TraceWork { kProduct, kAttention, kCommunication, kCopy, kOther };
inline constexpr std::size_t kTraceWorkCount = 5;
template <>
struct EnumNames<TraceWork> {
  static constexpr std::string_view kNames[] = {"products", "attention", "communication", "copies", "other kernels"};
};

struct TraceTime {
  long kernels = 0;
  double seconds = 0.0;
};

struct OperatorTime {
  std::string name;  ///< innermost operator that launched the kernels: "aten::mm"
  TraceWork work = TraceWork::kOther;
  TraceTime time;
};

/// Members of a trace's events and of their arguments, for the readers of traces; absent if missing or malformed.
/// Numbers may also be written as text.
const nlohmann::json* trace_member(const nlohmann::json& object, const char* key);
std::string trace_text(const nlohmann::json& object, const char* key);
std::optional<double> trace_number(const nlohmann::json& object, const char* key);
std::optional<int> trace_count(const nlohmann::json& object, const char* key);  ///< 1 or more
std::optional<std::int64_t> trace_id(const nlohmann::json& object, const char* key);
/// An event with a beginning and an end: phase "X" ("complete").
struct TraceEvent {
  std::string name;
  std::string category;            ///< in lower case
  std::optional<double> start_us;  ///< from the trace's time origin, which is arbitrary
  std::optional<double> duration_us;
  const nlohmann::json* arguments = nullptr;  ///< never null: an empty object if there are no arguments
  std::optional<std::int64_t> correlation;    ///< CUPTI's number of the call that launched the event

  /// A kernel, a copy or a fill.
  bool on_device() const { return category == "kernel" || copies(); }
  bool copies() const { return category == "gpu_memcpy" || category == "gpu_memset"; }
  /// A host call that may launch work.
  bool calls() const { return category == "cuda_runtime" || category == "cuda_driver" || category == "runtime"; }
};
/// Absent for events of other phases.
std::optional<TraceEvent> trace_event(const nlohmann::json& event);
/// Collective that a lower-case name refers to: "allreduce", "_allgather_base".
std::optional<SampleKind> traced_collective(std::string name);

/// One rank's trace.
struct Trace {
  Measurement measurement;
  std::array<TraceTime, kTraceWorkCount> work;  ///< by TraceWork
  std::vector<OperatorTime> operators;          ///< longest first
  TraceTime matched;                            ///< kernels, except communication, whose operator the trace names
  std::vector<std::string> notes;               ///< what could not become a sample, and why

  TraceTime total() const;
};

struct TraceRequest {
  std::optional<int> devices_per_node;  ///< absent: the number of devices that the trace lists
};

/// Reads the output of torch.profiler (Kineto) as it is written. Kernels are matched to operators by "External id".
/// Samples come from
///   gemm         kernels of aten::mm, aten::addmm and aten::_scaled_mm with recorded shapes (record_shapes=True); the
///                kernels of one call are summed
///   collectives  nccl kernels with "Collective name", "In msg nelems", "Out msg nelems", "Group size" and "dtype";
///                bytes are counted as in nccl-tests. Such a kernel also lasts while it waits for its last rank, so
///                only the fastest quarter of each size is kept. Nodes follow from "Process Group Ranks" and
///                devices_per_node.
/// The file's environment, host names and stacks are not read. Throws ConfigError with "file:/traceEvents/17":
/// something other than a list of events, a kernel whose duration is not a number above zero, a trace without kernels.
Trace read_trace(std::istream& stream, const std::string& file, const TraceRequest& request);

/// Kind of work according to a kernel's own name, for kernels whose operator is unknown: "sm90_xmma_gemm_bf16…",
/// "ncclDevKernel_AllReduce…".
TraceWork work_of_kernel(std::string_view name);
TraceWork work_of_operator(std::string_view name);

/// Reads a file in chunks and decompresses it if it is gzip; other files are read as they are. Throws ConfigError if
/// the file is missing, damaged or truncated, or if it is gzip and the program was built without zlib.
class PackedFile : public std::streambuf {
 public:
  explicit PackedFile(const std::string& path);
  PackedFile(const PackedFile&) = delete;
  PackedFile& operator=(const PackedFile&) = delete;
  PackedFile(PackedFile&&) = delete;
  PackedFile& operator=(PackedFile&&) = delete;
  ~PackedFile() override;

 protected:
  int_type underflow() override;

 private:
  struct Source;
  static constexpr std::size_t kPiece = 1 << 16;

  std::string path_;
  std::unique_ptr<Source> source_;
  std::array<char, kPiece> piece_{};
};

/// Callbacks for the parts of a Chrome trace, in file order. `place` is "run.json:/traceEvents/17".
struct TraceVisitor {
  std::function<void(const nlohmann::json& event, const std::string& place)> event;
  /// A top-level member other than the events, such as "deviceProperties".
  std::function<void(const std::string& key, const nlohmann::json& value)> member;
};

/// Reads the JSON object format (events in "traceEvents") or the array format of Chrome traces, one event at a time: a
/// file of gigabytes needs only the memory of its largest event, which may have at most 16 MiB. Throws ConfigError:
/// invalid JSON, with its position; events that are not objects or are nested deeper than 16 levels; a file without
/// events.
void read_trace_events(std::istream& stream, const std::string& file, const TraceVisitor& visitor);

/// One progress line: the mean over the steps since the previous line.
struct LoggedStep {
  long iteration = 0;
  double seconds = 0.0;             ///< 0: not reported, unless tokens_per_s_per_gpu is
  int global_batch_size = 0;        ///< in samples; 0: not reported
  double tokens_per_s_per_gpu = 0;  ///< 0: not reported
  double batch_tokens = 0.0;        ///< over all ranks, rounded as printed; 0: not reported
  std::optional<double> tflops_per_gpu;
  int skipped = 0;       ///< iterations without an update, such as after an overflow
  bool warm_up = false;  ///< first step after a start: includes compilation, allocation and first access to the data
};

/// A timer that Megatron prints between its steps (--timing-log-level), in seconds per step: the median over the log.
struct LoggedTimer {
  std::optional<double> shortest_s;  ///< minimum over ranks; absent if the log has only the maximum
  double longest_s = 0.0;
};

struct TrainingLog {
  std::vector<LoggedStep> steps;
  std::map<std::string, std::string> arguments;  ///< as the log lists them at its start
  std::optional<int> ranks;                      ///< world_size
  int starts = 0;                                ///< number of times training began, restarts included
  std::map<std::string, LoggedTimer> timers;     ///< by name: "batch-generator"
  std::optional<double> max_reserved_gib;        ///< by the framework's allocator, on the fullest rank
};

/// Reads what training programs print while they train. Megatron-LM and Megatron-DeepSpeed: lines with "iteration 5/
/// 100 |" and "elapsed time per iteration (ms):" (or "(s):"), with fields in any order and behind any prefix; several
/// ranks may print the same line. The lines between them provide timers ("forward-compute ....: (12.1, 13.4)", in ms,
/// of the fastest and the slowest rank, or of the slowest alone) and "max reserved" memory. An incomplete last line is
/// left over from a killed job and is dropped. Throws ConfigError with `file:line`: no progress line, a malformed
/// number or one that is not above zero, a missing batch size. If no line is Megatron's, the steps come from
///   NeMo         train_step_timing in s=12.9 (or ": 12.9"), the batch by global_batch_size or consumed_samples
///   DeepSpeed    iter time (s): 1.234 samples/sec: 51.9
///   nanotron     elapsed_time_per_iteration_ms: 4.78K | … | global_batch_size: 1.05M, which are tokens
///   torchtitan   step: 10 … tps: 5,762, tokens a second and GPU
///   Composer     throughput/batches_per_sec: 0.123, the batch by throughput/samples_per_sec
///   Lightning    50/1000 [01:20<25:00, 1.63s/it
TrainingLog read_training_log(std::string_view text, const std::string& file);

/// Turns the steps into samples, one per global batch size; warm-up and skipped updates are left out. Throws
/// ConfigError if no step remains, or if neither the log nor `ranks` gives the number of ranks.
Measurement measurement_of(const TrainingLog& log, const std::string& file, std::optional<int> ranks);

}  // namespace flopcast
