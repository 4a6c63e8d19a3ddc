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

/// What the file may not tell, and which of its columns count.
struct NcclTestsRequest {
  std::optional<SampleKind> kind;  ///< given: the file's collective, whatever it says
  std::optional<int> ranks;
  std::optional<int> nodes;
  bool in_place = false;  ///< the in-place columns instead of the out-of-place ones
};

/// Reads what nccl-tests prints (all versions: with or without root and redop columns, "#wrong" or "error", N/A, extra
/// columns; every line behind a prefix such as mpirun's "[1,0]<stdout>:", a rank or a timestamp) or its JSON report, of
/// one or several runs. Ranks are counted from the device lines, nodes from their hosts; a file without them tells the
/// ranks by busbw / algbw of its largest message, 2(n-1)/n or (n-1)/n, where that is exact enough.
///
/// Every printed busbw must be what size, time and ranks give, as precisely as it is printed; no result may be marked
/// wrong. Size 0 is left out. Nothing else of the file is taken, least of all its environment. Throws ConfigError with
/// `file:line` or `file:/results/3`; there is no partial answer.
Measurement import_nccl_tests(std::string_view text, const std::string& file, const NcclTestsRequest& request);

/// busbw / algbw of nccl-tests (doc/PERFORMANCE.md): all-reduce 2(n-1)/n; all-gather, reduce-scatter, all-to-all
/// (n-1)/n; the others 1.
double bus_factor(SampleKind kind, int ranks);

/// How the devices of a node are wired, as `nvidia-smi topo -m` prints it.
struct NodeTopology {
  std::vector<std::vector<int>> links;  ///< NVLinks between each two devices; zero: through PCIe or the host
  int network_cards = 0;
  int near_network_cards = 0;  ///< those that share a PCIe switch (PIX, PXB) with a device

  int devices() const { return static_cast<int>(links.size()); }
};

/// Reads the matrix wherever it stands in the text; lines may have prefixes, the header terminal escapes, and network
/// cards either name (mlx5_0, NIC0). Throws ConfigError with `file:line`: no matrix, a row that is cut or missing, a
/// cell that is no connection, two halves of the matrix that differ.
NodeTopology read_topology(std::string_view text, const std::string& file);

struct TopologyFacts {
  JsonValue cluster;               ///< keys of a job's cluster section
  std::vector<std::string> notes;  ///< what the matrix leaves open
};

/// The cluster keys that the matrix tells: devices_per_node, nics_per_node (those near a device, where there are such),
/// and intra_bandwidth, links times a link's rate per direction: 25 GB/s of NVLink 2 to 4 (V100, A100, H100 and H200),
/// 50 GB/s of NVLink 5 (B200) (NVIDIA, NVLink and NVSwitch, 2024). A device with more links to all others together than
/// it has (6, 12, 18, 18) reaches them through a switch, which takes all its links to any of them; else the links to
/// its peers add up, and nothing between them can reduce. No bandwidth is told where the generation is not known or has
/// no NVLink, or where NVLink joins only some of the devices.
TopologyFacts topology_facts(const NodeTopology& topology, std::optional<GpuGeneration> generation);

/// What the device was doing. kCopy: copies and fills of the driver.
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
  std::string name;  ///< of the innermost operator that launched the kernels: "aten::mm"
  TraceWork work = TraceWork::kOther;
  TraceTime time;
};

/// Members of a trace's events and of their arguments, for the readers of traces; absent and malformed ones give
/// nothing. Numbers are also written as text.
const nlohmann::json* trace_member(const nlohmann::json& object, const char* key);
std::string trace_text(const nlohmann::json& object, const char* key);
std::optional<double> trace_number(const nlohmann::json& object, const char* key);
std::optional<int> trace_count(const nlohmann::json& object, const char* key);  ///< 1 or more
std::optional<std::int64_t> trace_id(const nlohmann::json& object, const char* key);
/// What began and ended: an event of phase "X" ("complete").
struct TraceEvent {
  std::string name;
  std::string category;            ///< in lower case
  std::optional<double> start_us;  ///< since whatever the trace counts from
  std::optional<double> duration_us;
  const nlohmann::json* arguments = nullptr;  ///< never null: no arguments are an empty object
  std::optional<std::int64_t> correlation;    ///< CUPTI's number of the call that launched it

  /// A kernel, a copy or a fill.
  bool on_device() const { return category == "kernel" || copies(); }
  bool copies() const { return category == "gpu_memcpy" || category == "gpu_memset"; }
  /// A call of the host that may launch.
  bool calls() const { return category == "cuda_runtime" || category == "cuda_driver" || category == "runtime"; }
};
/// Nothing of other phases.
std::optional<TraceEvent> trace_event(const nlohmann::json& event);
/// By a collective's name in lower case: "allreduce", "_allgather_base".
std::optional<SampleKind> traced_collective(std::string name);

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

/// Reads what torch.profiler (Kineto) writes, as it comes. Kernels are matched to operators by
/// "External id". What becomes samples:
///   gemm         kernels of aten::mm, aten::addmm and aten::_scaled_mm with shapes recorded (record_shapes=True); all
///                kernels of one call add up
///   collectives  nccl kernels with "Collective name", "In msg nelems", "Out msg nelems", "Group size" and "dtype";
///                bytes as nccl-tests counts them. Such a kernel also lasts while it waits for its last rank, so that
///                of each size the fastest quarter is kept. Nodes follow from "Process Group Ranks" and
///                devices_per_node.
/// The file's environment, host names and stacks are not taken. Throws ConfigError with "file:/traceEvents/17": what
/// is no list of events, a kernel whose time is no number above zero, a trace without kernels.
Trace read_trace(std::istream& stream, const std::string& file, const TraceRequest& request);

/// What a kernel does by its own name, where no operator is known: "sm90_xmma_gemm_bf16…", "ncclDevKernel_AllReduce…".
TraceWork work_of_kernel(std::string_view name);
TraceWork work_of_operator(std::string_view name);

/// Reads a file piece by piece, unpacking it where it is gzip; others are read as they are. Throws ConfigError when the
/// file is missing, damaged or cut off, or is gzip where the program was built without zlib.
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

/// What a Chrome trace is made of, in the order of the file. `place` is "run.json:/traceEvents/17".
struct TraceVisitor {
  std::function<void(const nlohmann::json& event, const std::string& place)> event;
  /// A member of the file beside its events, such as "deviceProperties".
  std::function<void(const std::string& key, const nlohmann::json& value)> member;
};

/// Reads the JSON object format (events in "traceEvents") or the array format of Chrome traces, one event at a time: a
/// file of gigabytes takes the memory of its largest event, which is refused above 16 MiB. Throws ConfigError: what is
/// no JSON, with its place; events that are no objects or are nested deeper than 16; a file without events.
void read_trace_events(std::istream& stream, const std::string& file, const TraceVisitor& visitor);

/// One line of progress: the mean over the steps since the line before.
struct LoggedStep {
  long iteration = 0;
  double seconds = 0.0;             ///< 0: not told, but by tokens_per_s_per_gpu
  int global_batch_size = 0;        ///< in samples; 0: not told
  double tokens_per_s_per_gpu = 0;  ///< 0: not told
  double batch_tokens = 0.0;        ///< of all ranks, as rounded as it is printed; 0: not told
  std::optional<double> tflops_per_gpu;
  int skipped = 0;       ///< iterations that did not update, such as after an overflow
  bool warm_up = false;  ///< the first of a start: it holds compilation, allocation and the first touch of the data
};

/// A timer that Megatron prints between its steps (--timing-log-level), in seconds a step: the median over the log.
struct LoggedTimer {
  std::optional<double> shortest_s;  ///< of all ranks; absent where the log has the longest alone
  double longest_s = 0.0;
};

struct TrainingLog {
  std::vector<LoggedStep> steps;
  std::map<std::string, std::string> arguments;  ///< as the log lists them at its start
  std::optional<int> ranks;                      ///< world_size
  int starts = 0;                                ///< how often training began, restarts included
  std::map<std::string, LoggedTimer> timers;     ///< by name: "batch-generator"
  std::optional<double> max_reserved_gib;        ///< by the framework's allocator, of the ranks that tell it
};

/// Reads what training programs print while they train. Megatron-LM and Megatron-DeepSpeed: lines with "iteration 5/
/// 100 |" and "elapsed time per iteration (ms):" (or "(s):"), fields in any order, behind any prefix; several ranks may
/// print the same line. Between them it takes timers ("forward-compute ....: (12.1, 13.4)", in ms, of the fastest and
/// the slowest rank, or of the slowest alone) and "max reserved" memory. A last line without its end belongs to a job
/// that was killed and is left out. Throws ConfigError with `file:line`: no such line, a number that is none or not
/// above zero, a batch size that is missing. Where no line is Megatron's, the steps of
///   NeMo         train_step_timing in s=12.9 (or ": 12.9"), the batch by global_batch_size or consumed_samples
///   DeepSpeed    iter time (s): 1.234 samples/sec: 51.9
///   nanotron     elapsed_time_per_iteration_ms: 4.78K | … | global_batch_size: 1.05M, which are tokens
///   torchtitan   step: 10 … tps: 5,762, tokens a second and GPU
///   Composer     throughput/batches_per_sec: 0.123, the batch by throughput/samples_per_sec
///   Lightning    50/1000 [01:20<25:00, 1.63s/it
TrainingLog read_training_log(std::string_view text, const std::string& file);

/// The steps as samples, a sample for each global batch size; warm-up and skipped updates are left out.
/// Throws ConfigError when none is left, or when neither the log nor `ranks` tells how many ranks trained.
Measurement measurement_of(const TrainingLog& log, const std::string& file, std::optional<int> ranks);

}  // namespace flopcast
