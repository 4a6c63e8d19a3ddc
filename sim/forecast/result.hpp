#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/layout/layout.hpp"

namespace flopcast {

inline constexpr double kSecondsADay = 86'400.0;

/// The answer to a job, as every output format prints it; field for field the schema flopcast.result/1.
/// Times in seconds, memory in GiB (2^30 bytes), shares between 0 and 1.
struct IterationResult {
  double time_s = 0.0;
  double tokens_per_s = 0.0;
  double tokens_per_s_per_gpu = 0.0;
  double samples_per_s = 0.0;
  double model_tflops_per_gpu = 0.0;
  double hardware_tflops_per_gpu = 0.0;
  double mfu = 0.0;         ///< model FLOPs (attention in full) over the device's peak
  double mfu_causal = 0.0;  ///< with causal attention by half, which is what its kernels visit
  double hfu = 0.0;         ///< recomputed FLOPs included
};

/// Where the measured step is expected: in nine of ten cases between low_s and high_s. See interval.hpp.
struct StepTimeInterval {
  double level = 0.0;       ///< 0.9
  double half_width = 0.0;  ///< half of the distance between the ends without stalls, as a share of the forecast
  double low_s = 0.0;
  double high_s = 0.0;
  double stalls_s = 0.0;  ///< of high_s: what hand-overs between nodes add where they stall (Stack::hand_over_stall)
  double factor = 1.0;    ///< by which the distance from what was measured widens it
  int sources = 0;        ///< of published runs that it rests on
  std::string evidence;   ///< in words
};

/// Where the step's time goes: exposed times, mean over pipeline ranks; they sum to time_s.
struct Breakdown {
  double compute_s = 0.0;
  double recompute_s = 0.0;
  double tp_comm_s = 0.0;
  double pp_comm_s = 0.0;
  double dp_comm_s = 0.0;
  double cp_comm_s = 0.0;
  double ep_comm_s = 0.0;
  double optimizer_s = 0.0;
  double offload_s = 0.0;  ///< waiting for activations on their way to or from the host
  double bubble_s = 0.0;
};

struct AxisCommunication {
  double total_s = 0.0;    ///< under way, hidden or not; mean over pipeline ranks
  double exposed_s = 0.0;  ///< the device waits for it
  double bytes_sent_per_rank = 0.0;
  double messages = 0.0;
};

struct CommunicationResult : ByAxis<AxisCommunication> {
  double fraction = 0.0;          ///< sum of total_s over time_s; above 1 when axes overlap
  double exposed_fraction = 0.0;  ///< sum of exposed_s over time_s
};
/// In the order of outputs, which list and sum them so.
inline constexpr std::array kResultAxes = {Axis::kTensor, Axis::kPipeline, Axis::kData, Axis::kContext, Axis::kExpert};
static_assert(kResultAxes.size() == kAxisCount);

struct BubbleResult {
  double fraction = 0.0;  ///< waiting that is no exposed communication, over ranks · time_s
  double ratio = 0.0;     ///< time_s over what the busiest rank computes and communicates, less 1
  double span_s = 0.0;    ///< the longest time from a rank's first start to its last end
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
  double workspace_gib = 0.0;        ///< buffers alive inside one action
  double total_gib = 0.0;
  double reserved_gib = 0.0;  ///< by the framework's allocator: total and the stack's allocator_slack
  double shown_gib = 0.0;     ///< as nvidia-smi shows it: reserved, context and communication buffers
  double capacity_gib = 0.0;  ///< of the smallest device among its ranks
  int peak_in_flight = 0;     ///< activations of one stage and microbatch each
};

struct MemoryResult {
  double capacity_gib = 0.0;  ///< of the smallest device
  double peak_gib = 0.0;
  double reserved_gib = 0.0;  ///< of the fullest rank, by the framework's allocator
  double shown_gib = 0.0;     ///< of the fullest rank, as nvidia-smi shows it
  bool fits = true;           ///< all that nvidia-smi shows, on every rank
  std::vector<RankMemoryResult> per_pipeline_rank;
};

struct TrainingResult {
  double steps = 0.0;
  double days = 0.0;
  double gpu_hours = 0.0;
  std::optional<double> cost_usd;
  std::optional<double> days_low;  ///< of a StepTimeInterval: filled in where a file is written
  std::optional<double> days_high;
};

struct SteadyResult {
  double period_s = 0.0;  ///< from one microbatch to the next
  double fill_s = 0.0;    ///< paid once, to fill and drain
  double throughput_samples_per_s = 0.0;
  std::vector<int> weight_versions;  ///< by pipeline rank
  std::vector<int> staleness;        ///< updates between a microbatch's weights and those its gradient is applied to
};

/// Of the step time when passes vary; see sim/variation/step_distribution.hpp.
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
  double slowdown = 0.0;  ///< mean_s over the forecast without variation, less 1
};

/// Of a step whose microbatches hold sequences of several lengths; see sim/variation/step_distribution.hpp.
struct PackingResult {
  int sequences = 0;       ///< a step
  double filled = 0.0;     ///< tokens over the room of all microbatches
  double attention = 0.0;  ///< the work of attention over that of full sequences
  double time_s = 0.0;     ///< of the step, sequences packed as they come
  double idle = 0.0;       ///< share of the ranks' time without a pass or an optimizer step
  double equal_s = 0.0;    ///< of the step, were every microbatch's attention the mean
  double equal_idle = 0.0;
  double tokens_per_s = 0.0;  ///< without padding
  /// One sequence a row instead, as many as the batch has, cut to the sequence length: the share of the tokens that are
  /// no padding where rows are padded to the sequence length, and where to the longest row of their microbatch.
  double padded_filled = 0.0;
  double longest_filled = 0.0;
  double padded_tokens_per_s = 0.0;  ///< padded to the sequence length, without padding
};

/// A link of the network, or several alike: how full while the step waits for messages on it, and whose messages fill
/// it.
struct HotLink {
  std::string link;  ///< the first of those alike
  int links = 1;
  double utilisation = 0.0;  ///< of its capacity, at the mean rate of each message
  ByAxis<double> share;      ///< of what it carries; they sum to 1
};

/// What nccl-tests should print where all groups of an axis run at once, and nothing else.
struct GroupBandwidth {
  Axis axis = Axis::kData;
  std::string collective;
  int ranks = 1;
  double bytes = 0.0;
  double alone_busbw_gb_per_s = 0.0;  ///< of one group with the network to itself
  double busbw_gb_per_s = 0.0;        ///< of the slowest group
};

/// Step times over seeds of the hash that chooses paths.
struct PathSamples {
  int samples = 0;
  double mean_s = 0.0;
  double p5_s = 0.0;
  double p50_s = 0.0;
  double p95_s = 0.0;
  double least_s = 0.0;
  double most_s = 0.0;
};

/// What shared links do to a step; see forecast/wiring.hpp.
struct NetworkResult {
  double without_sharing_s = 0.0;  ///< the step, had every group its links to itself
  /// What sharing adds to the step, by whose messages it waits for: they sum to time_s less without_sharing_s.
  ByAxis<double> contention_s;
  double waiting_s = 0.0;          ///< of the step: for messages that share made slower
  std::vector<HotLink> hot_links;  ///< fullest first
  std::vector<GroupBandwidth> nccl_tests;
  std::optional<PathSamples> paths;
  int replica_classes = 1;  ///< of replicas, among which links make no difference
  int replica = 0;          ///< the one that the timeline shows: of the class that ends last
};

/// Weights, to the last one: see count_parameters (model/workload/transformer.hpp).
struct ModelResult {
  std::uint64_t parameters = 0;
  std::uint64_t active_parameters = 0;  ///< those that a token passes
};

/// Of many runs: so many of them are below.
struct Quantiles {
  double p5 = 0.0;
  double p50 = 0.0;
  double p95 = 0.0;
};

struct NamedSeconds {
  std::string name;
  double seconds = 0.0;
};

/// What a change to the run's section `failures` makes of it.
struct RunOption {
  std::string change;
  double goodput_p50 = 0.0;
  double days_p50 = 0.0;
  double days_saved = 0.0;  ///< against the run as it is, drawn as often
  std::optional<double> saved_usd;
};

/// Of a run of months; see sim/run/run.hpp. Losses are means over the runs.
struct RunResult {
  int runs = 0;
  int seed = 0;
  double steps = 0.0;
  Quantiles goodput;  ///< the steps' time without any interruption, over the time on the clock
  /// Time in which training advances, at whatever pace, over the time on the clock; waits for replacements and restarts
  /// count in the clock (Effective Training Time Ratio of 2410.21680, with queueing; checkpoints count as lost).
  Quantiles ettr;
  Quantiles days;
  std::optional<Quantiles> cost_usd;  ///< spares included
  double interruptions_per_day = 0.0;
  std::vector<NamedSeconds> lost_by_cause;
  std::vector<NamedSeconds> lost_by_phase;
  double checkpoint_interval_s = 0.0;  ///< of the level that is saved more often; 0: none is worth it
  double storage_interval_s = 0.0;
  double memory_interval_s = 0.0;
  double checkpoint_gib = 0.0;
  double checkpoint_cost_s = 0.0;    ///< of that level
  double restore_s = 0.0;            ///< to storage's
  double nodes_in_repair = 0.0;      ///< on average
  int spares_for_95 = 0;             ///< nodes: more are in repair for less than 5 % of the time
  int spares_worth = 0;              ///< nodes: one more costs more than the waits that it saves
  double closed_form_goodput = 0.0;  ///< Daly's eq. 20 with all causes as one
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
  std::optional<ModelResult> model;  ///< nothing for a layer profile
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
  std::optional<CriticalPathResult> critical_path;  ///< where it is asked for
};

}  // namespace flopcast
