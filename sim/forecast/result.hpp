#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/layout/layout.hpp"

namespace flopcast {

inline constexpr double kSecondsADay = 86'400.0;

/// The answer to a job in every output format; matches the schema flopcast.result/1 field by field. Times in seconds,
/// memory in GiB (2^30 bytes), fractions between 0 and 1.
struct IterationResult {
  double time_s = 0.0;
  double tokens_per_s = 0.0;
  double tokens_per_s_per_gpu = 0.0;
  double samples_per_s = 0.0;
  double model_tflops_per_gpu = 0.0;
  double hardware_tflops_per_gpu = 0.0;
  double mfu = 0.0;         ///< model FLOPs (full attention) over the device's peak
  double mfu_causal = 0.0;  ///< with half of the attention FLOPs for causal attention, which its kernels compute
  double hfu = 0.0;         ///< recomputed FLOPs included
};

/// Interval in which the measured step is expected in nine of ten cases: low_s to high_s. See interval.hpp.
struct StepTimeInterval {
  double level = 0.0;       ///< 0.9
  double half_width = 0.0;  ///< half of the width without stalls, as a fraction of the forecast
  double low_s = 0.0;
  double high_s = 0.0;
  double stalls_s = 0.0;  ///< part of high_s from stalling hand-overs between nodes (Stack::hand_over_stall)
  double factor = 1.0;    ///< factor by which the distance from measured runs widens it
  int sources = 0;        ///< number of published sources behind it
  std::string evidence;   ///< in words
};

/// How the step's time is spent: exposed times, means over pipeline ranks; they sum to time_s.
struct Breakdown {
  double compute_s = 0.0;
  double recompute_s = 0.0;
  double tp_comm_s = 0.0;
  double pp_comm_s = 0.0;
  double dp_comm_s = 0.0;
  double cp_comm_s = 0.0;
  double ep_comm_s = 0.0;
  double optimizer_s = 0.0;
  double offload_s = 0.0;  ///< waiting for activations in transit to or from the host
  double bubble_s = 0.0;
};

struct AxisCommunication {
  double total_s = 0.0;    ///< in progress, hidden or not; mean over pipeline ranks
  double exposed_s = 0.0;  ///< the device waits for it
  double bytes_sent_per_rank = 0.0;
  double messages = 0.0;
};

struct CommunicationResult : ByAxis<AxisCommunication> {
  double fraction = 0.0;          ///< sum of total_s over time_s; above 1 if axes overlap
  double exposed_fraction = 0.0;  ///< sum of exposed_s over time_s
};
/// In the order in which outputs list and sum them.
inline constexpr std::array kResultAxes = {Axis::kTensor, Axis::kPipeline, Axis::kData, Axis::kContext, Axis::kExpert};
static_assert(kResultAxes.size() == kAxisCount);

struct BubbleResult {
  double fraction = 0.0;  ///< waiting other than exposed communication, over ranks · time_s
  double ratio = 0.0;     ///< time_s over the computing and communicating time of the busiest rank, minus 1
  double span_s = 0.0;    ///< longest time from a rank's first start to its last end
  double warmup_s = 0.0;
  double cooldown_s = 0.0;
  double imbalance_s = 0.0;
  double dependency_s = 0.0;
  std::vector<double> per_pipeline_rank;  ///< each rank's bubble over time_s
};

struct RankMemoryResult {
  double weights_gib = 0.0;
  double gradients_gib = 0.0;
  double optimizer_gib = 0.0;
  double activations_gib = 0.0;      ///< at the peak
  double weight_versions_gib = 0.0;  ///< copies beyond the first
  double workspace_gib = 0.0;        ///< buffers that live within one action
  double total_gib = 0.0;
  double reserved_gib = 0.0;  ///< by the framework's allocator: total plus the stack's allocator_slack
  double shown_gib = 0.0;     ///< as in nvidia-smi: reserved, context and communication buffers
  double capacity_gib = 0.0;  ///< of the smallest device among its ranks
  int peak_in_flight = 0;     ///< number of activations, each of one stage and microbatch
};

struct MemoryResult {
  double capacity_gib = 0.0;  ///< of the smallest device
  double peak_gib = 0.0;
  double reserved_gib = 0.0;  ///< of the fullest rank, by the framework's allocator
  double shown_gib = 0.0;     ///< of the fullest rank, as in nvidia-smi
  bool fits = true;           ///< true if on every rank all that nvidia-smi shows fits
  std::vector<RankMemoryResult> per_pipeline_rank;
};

struct TrainingResult {
  double steps = 0.0;
  double days = 0.0;
  double gpu_hours = 0.0;
  std::optional<double> cost_usd;
  std::optional<double> days_low;  ///< from a StepTimeInterval; filled in if a file is written
  std::optional<double> days_high;
};

struct SteadyResult {
  double period_s = 0.0;  ///< from one microbatch to the next
  double fill_s = 0.0;    ///< paid once, for filling and draining
  double throughput_samples_per_s = 0.0;
  std::vector<int> weight_versions;  ///< indexed by pipeline rank
  std::vector<int> staleness;        ///< updates from a microbatch's weights to those updated by its gradient
};

/// Distribution of the step time if passes vary; see sim/variation/step_distribution.hpp.
struct DistributionResult {
  int samples = 0;
  std::uint64_t seed = 0;
  double jitter = 0.0;  ///< standard deviation of a pass over its mean
  std::vector<std::string> stragglers;
  double mean_s = 0.0;
  double std_s = 0.0;
  double p5_s = 0.0;
  double p50_s = 0.0;
  double p95_s = 0.0;
  double p99_s = 0.0;
  double slowdown = 0.0;  ///< mean_s over the forecast without variation, minus 1
};

/// A step whose microbatches hold sequences of different lengths; see sim/variation/step_distribution.hpp.
struct PackingResult {
  int sequences = 0;       ///< per step
  double filled = 0.0;     ///< tokens over the room of all microbatches
  double attention = 0.0;  ///< attention work relative to that of full sequences
  double time_s = 0.0;     ///< of the step, with sequences packed in the given order
  double idle = 0.0;       ///< fraction of the ranks' time without a pass or an optimizer step
  double equal_s = 0.0;    ///< of the step, if every microbatch had the mean attention work
  double equal_idle = 0.0;
  double tokens_per_s = 0.0;  ///< without padding
  /// For comparison, one sequence per row, as many as the batch has, cut to the sequence length: the fraction of tokens
  /// that are not padding if rows are padded to the sequence length, or to the longest row of their microbatch.
  double padded_filled = 0.0;
  double longest_filled = 0.0;
  double padded_tokens_per_s = 0.0;  ///< padded to the sequence length; padding does not count
};

/// A link of the network, or several equivalent ones: its utilisation while the step waits for messages on it, and the
/// axes of these messages.
struct HotLink {
  std::string link;  ///< the first of the equivalent links
  int links = 1;
  double utilisation = 0.0;  ///< fraction of its capacity, at the mean rate of each message
  ByAxis<double> share;      ///< fractions of its traffic; they sum to 1
};

/// Expected output of nccl-tests with all groups of an axis running at once, and nothing else.
struct GroupBandwidth {
  Axis axis = Axis::kData;
  std::string collective;
  int ranks = 1;
  double bytes = 0.0;
  double alone_busbw_gb_per_s = 0.0;  ///< of one group that has the network to itself
  double busbw_gb_per_s = 0.0;        ///< of the slowest group
};

/// Step times over several seeds of the hash that chooses paths.
struct PathSamples {
  int samples = 0;
  double mean_s = 0.0;
  double p5_s = 0.0;
  double p50_s = 0.0;
  double p95_s = 0.0;
  double least_s = 0.0;
  double most_s = 0.0;
};

/// Effect of shared links on a step; see forecast/wiring.hpp.
struct NetworkResult {
  double without_sharing_s = 0.0;  ///< step time if every group had its links to itself
  /// Time that sharing adds to the step, by the axis of the messages it waits for; sums to time_s minus
  /// without_sharing_s.
  ByAxis<double> contention_s;
  double waiting_s = 0.0;          ///< part of the step that waits for messages slowed by sharing
  std::vector<HotLink> hot_links;  ///< fullest first
  std::vector<GroupBandwidth> nccl_tests;
  std::optional<PathSamples> paths;
  int replica_classes = 1;  ///< number of classes of replicas that the links treat alike
  int replica = 0;          ///< the replica that the timeline shows, of the class that ends last
};

/// Exact weight counts: see count_parameters (model/workload/transformer.hpp).
struct ModelResult {
  std::uint64_t parameters = 0;
  std::uint64_t active_parameters = 0;  ///< those used by a token
};

/// Values below which 5, 50 and 95 % of many runs lie.
struct Quantiles {
  double p5 = 0.0;
  double p50 = 0.0;
  double p95 = 0.0;
};

struct NamedSeconds {
  std::string name;
  double seconds = 0.0;
};

/// Effect of a change to the run's section `failures`.
struct RunOption {
  std::string change;
  double goodput_p50 = 0.0;
  double days_p50 = 0.0;
  double days_saved = 0.0;  ///< relative to the unchanged run, with the same number of draws
  std::optional<double> saved_usd;
};

/// A run of months; see sim/run/run.hpp. Losses are means over the runs.
struct RunResult {
  int runs = 0;
  int seed = 0;
  double steps = 0.0;
  Quantiles goodput;  ///< steps' time without any interruption over the elapsed time
  /// Time in which training progresses, at whatever pace, over the elapsed time; waits for replacements and restarts
  /// count as elapsed (Effective Training Time Ratio of 2410.21680, with queueing; checkpoints count as lost).
  Quantiles ettr;
  Quantiles days;
  std::optional<Quantiles> cost_usd;  ///< spares included
  double interruptions_per_day = 0.0;
  std::vector<NamedSeconds> lost_by_cause;
  std::vector<NamedSeconds> lost_by_phase;
  double checkpoint_interval_s = 0.0;  ///< of the level saved more often; 0: none pays off
  double storage_interval_s = 0.0;
  double memory_interval_s = 0.0;
  double checkpoint_gib = 0.0;
  double checkpoint_cost_s = 0.0;    ///< cost of a checkpoint of that level
  double restore_s = 0.0;            ///< from storage
  double nodes_in_repair = 0.0;      ///< on average
  int spares_for_95 = 0;             ///< nodes: more are in repair for less than 5 % of the time
  int spares_worth = 0;              ///< nodes: one more would cost more than the waits it saves
  double closed_form_goodput = 0.0;  ///< Daly's eq. 20 with all causes combined
  std::vector<RunOption> options;
};

/// The longest chain of work and transfers of a timeline. Times in seconds; the parts sum to total_s.
struct CriticalPathResult {
  double total_s = 0.0;
  int steps = 0;
  std::vector<NamedSeconds> by_kind;
  double transfers_s = 0.0;
  double waiting_s = 0.0;
};

struct Result {
  IterationResult iteration;
  std::optional<ModelResult> model;  ///< absent for a layer profile
  std::optional<StepTimeInterval> interval;
  Breakdown breakdown;
  CommunicationResult communication;
  BubbleResult bubble;
  MemoryResult memory;
  std::optional<TrainingResult> training;
  std::optional<SteadyResult> steady;
  std::optional<DistributionResult> distribution;
  std::optional<PackingResult> packing;
  std::optional<RunResult> run;
  std::optional<NetworkResult> network;
  std::vector<std::string> assumptions;
  std::vector<std::string> warnings;
  std::optional<CriticalPathResult> critical_path;  ///< if requested
};

}  // namespace flopcast
